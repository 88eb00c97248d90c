//! What is kept of a log: a row of numbers per request, every name once, and sums.

use std::{
    collections::{BTreeMap, HashMap},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::figures::{Record, Sample};

/// The numbers kept of each request: seconds, tokens, tokens per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    Ttft,
    AnswerTtft,
    ClientTtft,
    Speed,
    EndToEndSpeed,
    Tpot,
    Duration,
    ClientDuration,
    MaxGap,
    Wall,
    /// The stage `first_output_wait`.
    Waiting,
    /// The stage `generation`.
    Generation,
    OverheadRequest,
    OverheadFirstOutput,
    OverheadEvent,
    /// The provider's TTFT where it compares with ours.
    PairedTtft,
    /// Ours less the provider's, not below zero.
    OutsideServer,
    ServerQueue,
    ServerPrefill,
    ServerDecode,
    ServerTtft,
    ServerTotal,
    UpstreamRoundTrip,
    InputTokens,
    OutputTokens,
}

const COLUMNS: usize = Column::OutputTokens as usize + 1;

/// One request: some 240 bytes, whatever its record's length.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Since 1970, in seconds; no number if the record has no time.
    time: f64,
    /// What was not observed is no number.
    numbers: [f64; COLUMNS],
    /// An index into [`Log::pairs`].
    pub(super) pair: usize,
    pub(super) outcome: Name,
    pub(super) load: Option<Name>,
    pub(super) workload: Option<Name>,
    pub(super) session: Option<Name>,
    /// The request asked for a stream; where the record does not say, the answer was one.
    stream: bool,
    /// It failed with an answer that was no stream, and its record does not say whether a stream was asked for.
    unsure: bool,
    /// Its reply should have token counts: it is complete, generated, and its dialect is known.
    pub(super) counted: bool,
    /// It has any.
    pub(super) usage: bool,
}

impl Row {
    /// Absent if it was not observed.
    pub(super) fn get(&self, column: Column) -> Option<f64> {
        let number = self.numbers[column as usize];
        (!number.is_nan()).then_some(number)
    }

    /// When the request's head had arrived, in seconds since 1970; absent without a time.
    pub(super) fn time(&self) -> Option<f64> {
        (!self.time.is_nan()).then_some(self.time)
    }
}

/// A column of some rows.
pub(super) fn sample<'a>(rows: impl IntoIterator<Item = &'a Row>, column: Column) -> Sample {
    rows.into_iter().filter_map(|row| row.get(column)).collect()
}

/// Rows by a key, each group in the rows' order.
pub(super) fn groups<'a, K: Ord>(
    rows: impl IntoIterator<Item = &'a Row>,
    key: impl Fn(&Row) -> Option<K>,
) -> BTreeMap<K, Vec<&'a Row>> {
    let mut groups: BTreeMap<K, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        if let Some(key) = key(row) {
            groups.entry(key).or_default().push(row);
        }
    }
    groups
}

/// Requests of an upstream and model that asked for a stream, and of how many of them that is assumed: of failures that don't
/// say, where there are streams at all.
pub(super) fn streams<'a>(rows: &[&'a Row]) -> (Vec<&'a Row>, u64) {
    let any = rows.iter().any(|row| row.stream);
    let streams: Vec<&Row> = rows.iter().copied().filter(|row| row.stream || (any && row.unsure)).collect();
    let assumed = streams.iter().filter(|row| row.unsure).count() as u64;
    (streams, assumed)
}

/// A text, kept once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Name(u32);

/// All requests that count.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) rows: Vec<Row>,
    /// Upstream and model, in the order they came.
    pub(super) pairs: Vec<Pair>,
    /// By upstream: where the time went, in nanoseconds, so that the sums are exact.
    pub(super) spent: BTreeMap<Option<Name>, Spent>,
    /// How often each flag was set.
    pub(super) flags: BTreeMap<String, u64>,
    /// Requests by where their times were taken: `client's side/upstream's side`.
    pub(super) stamps: BTreeMap<String, u64>,
    /// Requests that `bench` measured.
    pub(super) by_bench: u64,
    /// How often each limit fired.
    pub(super) limits: BTreeMap<String, u64>,
    texts: Vec<Box<str>>,
    names: HashMap<Box<str>, Name>,
    pair_of: HashMap<(Option<Name>, Option<Name>), usize>,
}

/// An upstream and a model, and sums of what went between.
#[derive(Clone, Default, Debug)]
pub(super) struct Pair {
    /// Absent if no route took the request.
    pub(super) upstream: Option<Name>,
    /// As requested; absent if the request names none.
    pub(super) model: Option<Name>,
    pub(super) cached_tokens: u64,
    pub(super) reasoning_tokens: u64,
}

/// Wall time and its stages, of the requests whose record has them.
#[derive(Clone, Default, Debug)]
pub(super) struct Spent {
    pub(super) requests: u64,
    pub(super) wall: u64,
    pub(super) stages: BTreeMap<String, u64>,
    /// Whose upstream connection is known, and had not served before.
    pub(super) connections: u64,
    pub(super) dialled: u64,
    pub(super) retransmits: u64,
}

impl Log {
    /// The text of a name.
    pub(super) fn text(&self, name: Name) -> &str {
        &self.texts[name.0 as usize]
    }

    /// Keeps what is needed of a record.
    pub(super) fn add(&mut self, record: &Record) {
        let upstream = self.optional(record.upstream.as_deref());
        let model = self.optional(record.model.as_deref());
        let pair = *self.pair_of.entry((upstream, model)).or_insert_with(|| {
            self.pairs.push(Pair { upstream, model, ..Pair::default() });
            self.pairs.len() - 1
        });
        let sums = &mut self.pairs[pair];
        sums.cached_tokens = sums.cached_tokens.saturating_add(record.cached_tokens.unwrap_or(0));
        sums.reasoning_tokens = sums.reasoning_tokens.saturating_add(record.reasoning_tokens.unwrap_or(0));
        self.spend(upstream, record);
        for flag in &record.flags {
            *named(&mut self.flags, flag) += 1;
        }
        self.by_bench += u64::from(record.flags.iter().any(|flag| flag == "bench"));
        if let Some(limit) = &record.limit {
            *named(&mut self.limits, limit) += 1;
        }
        let side = |side: &str| record.stamp.get(side).map_or("", String::as_str);
        *named(&mut self.stamps, &format!("{}/{}", side("client"), side("upstream"))) += 1;

        let row = Row {
            time: time(&record.time).unwrap_or(f64::NAN),
            numbers: numbers(record),
            pair,
            outcome: self.name(&record.outcome),
            load: self.optional(record.load_class.as_deref()),
            workload: self.optional(record.workload.as_deref()),
            session: self.optional(record.session.as_deref()),
            stream: record.asked_stream.unwrap_or(record.stream),
            unsure: record.asked_stream.is_none()
                && !record.stream
                && generates(record)
                && record.outcome != "complete",
            counted: generates(record) && record.outcome == "complete",
            usage: record.input_tokens.is_some() || record.output_tokens.is_some(),
        };
        self.rows.push(row);
    }

    fn spend(&mut self, upstream: Option<Name>, record: &Record) {
        let spent = self.spent.entry(upstream).or_default();
        if !record.stages_s.is_empty() {
            spent.requests += 1;
            spent.wall = spent.wall.saturating_add(nanos(record.wall_s));
            for (stage, seconds) in &record.stages_s {
                let sum = named(&mut spent.stages, stage);
                *sum = sum.saturating_add(nanos(*seconds));
            }
        }
        if let Some(reused) = record.connection.reused {
            spent.connections += 1;
            spent.dialled += u64::from(!reused);
        }
        spent.retransmits = spent.retransmits.saturating_add(record.connection.upstream_retransmits.unwrap_or(0));
    }

    fn optional(&mut self, text: Option<&str>) -> Option<Name> {
        text.map(|text| self.name(text))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a log with four milliards of names does not fit into memory")]
    fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.names.get(text) {
            return *name;
        }
        let name = Name(self.texts.len() as u32);
        self.texts.push(text.into());
        self.names.insert(text.into(), name);
        name
    }
}

/// Names kept of each kind that a gauge has some twenty of, and bytes of each: whatever else a log holds costs no more memory.
const NAMES: usize = 64;
const LONGEST: usize = 128;
/// The name that stands for all others.
const OTHER: &str = "_other";

/// What is kept under this name, or under [`OTHER`] where there is no room.
fn named<'a>(kept: &'a mut BTreeMap<String, u64>, name: &str) -> &'a mut u64 {
    let room = kept.contains_key(name) || kept.len() < NAMES && name.len() <= LONGEST;
    kept.entry(if room { name } else { OTHER }.to_owned()).or_default()
}

#[cfg(test)]
impl Log {
    /// The log of these lines.
    pub(super) fn of(lines: &[&str]) -> Self {
        let mut log = Self::default();
        for line in lines {
            log.add(&Record::parse(line).unwrap());
        }
        log
    }
}

fn numbers(record: &Record) -> [f64; COLUMNS] {
    let mut numbers = [f64::NAN; COLUMNS];
    let mut set = |column: Column, number: Option<f64>| {
        // Nothing that is measured is below zero or as large as that: whoever wrote it did not measure it.
        if let Some(number) = number.filter(|number| (0.0..1e15).contains(number)) {
            numbers[column as usize] = number;
        }
    };
    let overhead = |phase: &str| record.overhead_s.get(phase).copied();
    let stage = |stage: &str| record.stages_s.get(stage).copied();
    // The time a provider took to say no is not the time it takes to answer.
    let answered = record.status.is_none_or(|status| status == 101 || (200..300).contains(&status));
    let server = |phase: &str| record.server_reported_s.get(phase).copied().filter(|_| answered);
    let paired = record.ttft_s.zip(record.comparable_server_ttft()).filter(|_| answered);
    set(Column::Ttft, record.ttft_s);
    set(Column::AnswerTtft, record.answer_ttft_s);
    set(Column::ClientTtft, record.client_ttft_s);
    set(Column::Speed, record.output_tokens_per_second);
    set(Column::EndToEndSpeed, record.end_to_end_tokens_per_second);
    set(Column::Tpot, record.tpot_s);
    set(Column::Duration, record.duration_s);
    set(Column::ClientDuration, record.client_duration_s);
    set(Column::MaxGap, record.max_gap_s);
    set(Column::Wall, Some(record.wall_s));
    set(Column::Waiting, stage("first_output_wait"));
    set(Column::Generation, stage("generation"));
    set(Column::OverheadRequest, overhead("request"));
    set(Column::OverheadFirstOutput, overhead("first_output"));
    set(Column::OverheadEvent, overhead("event_mean"));
    set(Column::PairedTtft, paired.map(|(_, server)| server));
    set(Column::OutsideServer, paired.map(|(ours, server)| (ours - server).max(0.0)));
    set(Column::ServerQueue, server("queue"));
    set(Column::ServerPrefill, server("prefill"));
    set(Column::ServerDecode, server("decode"));
    let behind_queue = record.flags.iter().any(|flag| flag == BEHIND_QUEUE);
    set(Column::ServerTtft, server("ttft").filter(|_| !behind_queue));
    set(Column::ServerTotal, server("total"));
    set(Column::UpstreamRoundTrip, record.connection.upstream_rtt_s);
    set(Column::InputTokens, record.input_tokens.map(|tokens| tokens as f64));
    set(Column::OutputTokens, record.output_tokens.map(|tokens| tokens as f64));
    numbers
}

/// The provider's TTFT begins behind a queue of unknown length: it is no whole TTFT.
const BEHIND_QUEUE: &str = "server_ttft_behind_queue";

/// Whether a complete reply should have token counts, as `streamgauge_no_usage_total` has it.
fn generates(record: &Record) -> bool {
    const GENERATING: [&str; 6] = ["chat", "completions", "responses", "messages", "generate", "realtime"];
    record.dialect != "other" && GENERATING.contains(&record.endpoint.as_str())
}

/// The whole part of a number that is not below zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(super) fn whole_part(number: f64) -> u64 {
    number as u64
}

/// Seconds as the log has them are whole nanoseconds, and exact as such up to 104 days.
fn nanos(seconds: f64) -> u64 {
    whole_part((seconds * 1e9).round())
}

/// A record's time in seconds since 1970.
pub(super) fn time(text: &str) -> Option<f64> {
    let time: SystemTime = humantime::parse_rfc3339(text).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_kept() {
        let mut log = Log::default();
        let line = r#"{"time":"2026-01-31T12:00:00.5Z","outcome":"complete","endpoint":"chat","wall_s":-1.0,"ttft_s":-0.1,
            "upstream":"u","tpot_s":0.0}"#;
        log.add(&Record::parse(line).unwrap());
        let row = &log.rows[0];
        assert_eq!(row.time(), Some(1_769_860_800.5));
        assert_eq!((row.get(Column::Ttft), row.get(Column::Wall), row.get(Column::Tpot)), (None, None, Some(0.0)));
        assert_eq!((row.load, row.session), (None, None));
        assert!(row.counted && !row.usage);
    }

    #[test]
    fn names_of_a_kind_are_bounded_and_what_they_count_is_not_lost() {
        let mut log = Log::default();
        for index in 0..1_000 {
            let long = "x".repeat(LONGEST + 1);
            let line = format!(
                r#"{{"outcome":"complete","flags":["f{index}","{long}"],"limit":"l{index}","stamp":{{"client":"c{index}"}},
                    "stages_s":{{"s{index}":1.0}}}}"#
            );
            log.add(&Record::parse(&line).unwrap());
        }
        for (kept, all) in [(&log.flags, 2_000), (&log.limits, 1_000), (&log.stamps, 1_000)] {
            assert!(kept.len() <= NAMES + 1 && kept.contains_key(OTHER), "{}", kept.len());
            assert_eq!(kept.values().sum::<u64>(), all);
        }
        let stages = &log.spent[&None].stages;
        assert_eq!((stages.len(), stages.values().sum::<u64>()), (NAMES + 1, 1_000_000_000_000));
    }

    #[test]
    fn times_of_the_provider_count_where_they_compare() {
        let of = |extra: &str| {
            let line = format!(r#"{{"ttft_s":0.3,"server_reported_s":{{"ttft":0.2,"queue":0.1}}{extra}}}"#);
            let row = numbers(&Record::parse(&line).unwrap());
            [Column::PairedTtft, Column::OutsideServer, Column::ServerQueue].map(|column| row[column as usize])
        };
        assert_eq!(of(r#","status":200"#), [0.2, 0.3 - 0.2, 0.1]);
        assert!(of(r#","status":429"#).iter().all(|number| number.is_nan()));
        let hidden = of(r#","status":200,"flags":["hidden_reasoning"]"#);
        assert!(hidden[0].is_nan() && hidden[1].is_nan() && hidden[2] == 0.1);
        assert!(of(r#","status":200,"flags":["server_ttft_behind_queue"]"#)[0].is_nan());
    }

    #[test]
    fn nanoseconds_come_back_whole() {
        for whole in [0, 1, 123_456_789, 86_400_000_000_001] {
            assert_eq!(nanos(whole as f64 / 1e9), whole);
        }
    }
}
