//! The figures of a report. Each stands beside the number of values it is made of. As JSON they are `--format json`.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use super::{
    read::Lines,
    rows::{Column, Log, Name, Row, groups, sample, streams, whole_part},
    sessions::{self, Sessions},
};
use crate::{
    figures::Quantiles,
    observation::{STAGES, input_class},
};

/// Seconds within which a first output is asked for: instant, fine, noticed; beyond it is broken.
pub(super) const DEADLINES: [f64; 3] = [0.3, 0.6, 1.0];

/// All that a log comes to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Of the program that made the report.
    pub(super) streamgauge: &'static str,
    pub(super) scope: Scope,
    /// By upstream and model, the one with most requests first.
    pub(super) pairs: Vec<Pair>,
    pub(super) by_input: Vec<Slice>,
    pub(super) by_load: Vec<Slice>,
    /// By hour of day, UTC.
    pub(super) by_hour: Vec<Slice>,
    /// Complete requests of declared workloads.
    pub(super) workloads: Vec<Slice>,
    pub(super) sessions: Sessions,
    pub(super) upstreams: Vec<Upstream>,
    /// Pairs whose provider times itself.
    pub(super) server_reported: Vec<Reported>,
    /// Requests by where times were taken: `client/upstream`.
    pub(super) stamps: BTreeMap<String, u64>,
    pub(super) flags: BTreeMap<String, u64>,
    pub(super) limits: BTreeMap<String, u64>,
}

/// What the report is made of.
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Scope {
    pub(super) files: Vec<String>,
    /// Flag and value.
    pub(super) filters: BTreeMap<&'static str, String>,
    /// The first and the last request's begin, RFC 3339; absent without requests that have a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    #[serde(flatten)]
    pub(super) lines: Lines,
    /// Of the requests, those that `bench` measured, as a client: there was no gauge.
    pub(super) by_bench: u64,
}

/// The figures of an upstream and model.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pair {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    pub(super) requests: u64,
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Of all requests, by outcome.
    pub(super) outcome_shares: BTreeMap<String, f64>,
    /// Requests for a stream.
    pub(super) streams: u64,
    /// Of them: failures whose record does not say so. They are taken for streams where there are any.
    pub(super) streams_assumed: u64,
    pub(super) deadlines: Vec<Deadline>,
    pub(super) ttft_s: Quantiles,
    pub(super) answer_ttft_s: Quantiles,
    pub(super) client_ttft_s: Quantiles,
    /// After the first token.
    pub(super) output_tokens_per_second: Quantiles,
    /// Output tokens over the upstream duration, of complete requests.
    pub(super) end_to_end_tokens_per_second: Quantiles,
    pub(super) tpot_s: Quantiles,
    /// From the request's departure to the end of the response, of complete requests.
    pub(super) duration_s: Quantiles,
    /// From the request head's arrival to the last byte's departure to the client, of complete requests.
    pub(super) client_duration_s: Quantiles,
    pub(super) max_gap_s: Quantiles,
    pub(super) tokens: Tokens,
}

/// How many streams had their first output in time, of all that were asked for.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "each is a key of the JSON")]
pub(super) struct Deadline {
    pub(super) deadline_s: f64,
    pub(super) met: u64,
    /// Too late, failed, or ended without output.
    pub(super) missed: u64,
    /// The client left before the deadline, or the request was its fault: in neither.
    pub(super) left: u64,
    /// Of met and missed; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) met_share: Option<f64>,
}

/// Sums of the provider's counts. Cached lie inside input, reasoning inside output.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
    /// Complete replies that should have counts, and those without.
    pub(super) replies: u64,
    pub(super) without_usage: u64,
}

/// The figures of a pair's requests of one class.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Slice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    pub(super) class: String,
    pub(super) requests: u64,
    pub(super) complete: u64,
    pub(super) rate_limited: u64,
    pub(super) ttft_s: Quantiles,
    pub(super) output_tokens_per_second: Quantiles,
    pub(super) client_duration_s: Quantiles,
}

/// Where the time went at an upstream, and what the gauge added.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "each is a key of the JSON")]
pub(super) struct Upstream {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream: Option<String>,
    /// Those whose record has stages.
    pub(super) requests: u64,
    /// Sum, exact to the nanosecond as the log has it.
    pub(super) wall_s: f64,
    /// In order; together `wall_s`.
    pub(super) stages: Vec<Stage>,
    pub(super) overhead_request_s: Quantiles,
    pub(super) overhead_first_output_s: Quantiles,
    pub(super) overhead_event_mean_s: Quantiles,
    pub(super) upstream_rtt_s: Quantiles,
    /// Requests whose upstream connection is known; those for which one was made.
    pub(super) connections: u64,
    pub(super) dialled: u64,
    pub(super) upstream_retransmits: u64,
}

/// One stage of all requests to an upstream.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "each is a key of the JSON")]
pub(super) struct Stage {
    pub(super) stage: String,
    pub(super) sum_s: f64,
    pub(super) mean_s: f64,
    /// Of the wall time.
    pub(super) share: f64,
}

/// What a provider says of itself beside what was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reported {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// Requests that have both: the same ones in these three.
    pub(super) gateway_ttft_s: Quantiles,
    pub(super) server_ttft_s: Quantiles,
    pub(super) outside_server_s: Quantiles,
    /// By phase, of all requests for which it says it.
    pub(super) phases: BTreeMap<&'static str, Quantiles>,
}

impl Report {
    /// The figures of a log.
    pub(super) fn of(log: &Log, scope: Scope) -> Self {
        let by_pair = ranked(log);
        let slices = |key: &dyn Fn(&Row) -> Option<String>| slices(log, &by_pair, key);
        let text = |name: Option<Name>| name.map(|name| log.text(name).to_owned());
        let complete = |row: &Row| log.text(row.outcome) == "complete";
        let mut report = Self {
            streamgauge: env!("CARGO_PKG_VERSION"),
            pairs: by_pair.iter().map(|(pair, rows)| pair_of(log, *pair, rows)).collect(),
            by_input: slices(&|row| Some(input_class(row.get(Column::InputTokens).map(whole_part)).to_owned())),
            by_load: slices(&|row| text(row.load)),
            by_hour: slices(&|row| Some(format!("{:02}", whole_part(row.time()? / 3_600.0) % 24))),
            workloads: slices(&|row| text(row.workload).filter(|_| complete(row))),
            sessions: sessions::of(log),
            upstreams: upstreams(log),
            server_reported: by_pair.iter().filter_map(|(pair, rows)| reported(log, *pair, rows)).collect(),
            stamps: log.stamps.clone(),
            flags: log.flags.clone(),
            limits: log.limits.clone(),
            scope,
        };
        let times = || log.rows.iter().filter_map(Row::time);
        report.scope.by_bench = log.by_bench;
        report.scope.from = times().min_by(f64::total_cmp).map(instant);
        report.scope.to = times().max_by(f64::total_cmp).map(instant);
        report
    }
}

impl Report {
    /// Of two texts the one that is true: of a gauge's records, or of `bench`'s where there are no others.
    pub(super) fn either(&self, of_a_gauge: &'static str, of_bench: &'static str) -> &'static str {
        if self.scope.all_by_bench() { of_bench } else { of_a_gauge }
    }
}

impl Scope {
    pub(super) fn all_by_bench(&self) -> bool {
        self.by_bench > 0 && self.by_bench == self.lines.requests
    }
}

/// Seconds since 1970 as RFC 3339, to the second; empty behind the year 9999, which has no such form.
pub(super) fn instant(seconds: f64) -> String {
    let since = std::time::Duration::try_from_secs_f64(seconds.floor()).unwrap_or_default();
    let mut text = String::new();
    let shown = std::time::UNIX_EPOCH
        .checked_add(since)
        .is_some_and(|time| write!(text, "{}", humantime::format_rfc3339_seconds(time)).is_ok());
    if shown { text } else { String::new() }
}

fn column(rows: &[&Row], column: Column) -> Quantiles {
    sample(rows.iter().copied(), column).quantiles()
}

/// Pairs and their rows, the one with most requests first.
pub(super) fn ranked(log: &Log) -> Vec<(usize, Vec<&Row>)> {
    let mut pairs: Vec<_> = groups(&log.rows, |row| Some(row.pair)).into_iter().collect();
    pairs.sort_by_key(|(pair, rows)| (std::cmp::Reverse(rows.len()), *pair));
    pairs
}

fn names(log: &Log, pair: usize) -> [Option<String>; 2] {
    let pair = &log.pairs[pair];
    [pair.upstream, pair.model].map(|name| name.map(|name| log.text(name).to_owned()))
}

fn pair_of(log: &Log, pair: usize, rows: &[&Row]) -> Pair {
    let [upstream, model] = names(log, pair);
    let requests = rows.len() as u64;
    let mut outcomes = BTreeMap::new();
    for row in rows {
        *outcomes.entry(log.text(row.outcome).to_owned()).or_insert(0) += 1;
    }
    let share = |(outcome, n): (&String, &u64)| (outcome.clone(), *n as f64 / requests as f64);
    let complete: Vec<&Row> = rows.iter().copied().filter(|row| log.text(row.outcome) == "complete").collect();
    let (streams, streams_assumed) = streams(rows);
    let sum =
        |column| rows.iter().filter_map(|row| row.get(column)).fold(0_u64, |sum, n| sum.saturating_add(whole_part(n)));
    Pair {
        upstream,
        model,
        requests,
        outcome_shares: outcomes.iter().map(share).collect(),
        outcomes,
        streams: streams.len() as u64,
        streams_assumed,
        deadlines: DEADLINES.map(|deadline| deadline_of(log, &streams, deadline)).to_vec(),
        ttft_s: column(rows, Column::Ttft),
        answer_ttft_s: column(rows, Column::AnswerTtft),
        client_ttft_s: column(rows, Column::ClientTtft),
        output_tokens_per_second: column(rows, Column::Speed),
        end_to_end_tokens_per_second: column(&complete, Column::EndToEndSpeed),
        tpot_s: column(rows, Column::Tpot),
        duration_s: column(&complete, Column::Duration),
        client_duration_s: column(&complete, Column::ClientDuration),
        max_gap_s: column(rows, Column::MaxGap),
        tokens: Tokens {
            input: sum(Column::InputTokens),
            cached: log.pairs[pair].cached_tokens,
            output: sum(Column::OutputTokens),
            reasoning: log.pairs[pair].reasoning_tokens,
            replies: rows.iter().filter(|row| row.counted).count() as u64,
            without_usage: rows.iter().filter(|row| row.counted && !row.usage).count() as u64,
        },
    }
}

/// As `streamgauge_ttft_deadline_total` counts: a failure misses every deadline; a client who left without output, or whose
/// request was at fault, only those that had passed. How long it had waited is the stage `first_output_wait`.
fn deadline_of(log: &Log, streams: &[&Row], deadline_s: f64) -> Deadline {
    let mut deadline = Deadline { deadline_s, met: 0, missed: 0, left: 0, met_share: None };
    for row in streams {
        let clients = matches!(log.text(row.outcome), "client_gone" | "client_error");
        let waited = row.get(Column::Waiting).unwrap_or(0.0);
        let count = match row.get(Column::Ttft) {
            Some(ttft) if ttft <= deadline_s => &mut deadline.met,
            None if clients && waited <= deadline_s => &mut deadline.left,
            _ => &mut deadline.missed,
        };
        *count += 1;
    }
    let of = deadline.met + deadline.missed;
    deadline.met_share = (of > 0).then(|| deadline.met as f64 / of as f64);
    deadline
}

fn slices(log: &Log, by_pair: &[(usize, Vec<&Row>)], key: &dyn Fn(&Row) -> Option<String>) -> Vec<Slice> {
    let mut slices = Vec::new();
    for (pair, rows) in by_pair {
        let mut classes: Vec<_> = groups(rows.iter().copied(), key).into_iter().collect();
        classes.sort_by_key(|(class, _)| lower(class));
        for (class, rows) in classes {
            let [upstream, model] = names(log, *pair);
            let ended = |outcome: &str| rows.iter().filter(|row| log.text(row.outcome) == outcome).count() as u64;
            let complete: Vec<&Row> = rows.iter().copied().filter(|row| log.text(row.outcome) == "complete").collect();
            slices.push(Slice {
                upstream,
                model,
                class,
                requests: rows.len() as u64,
                complete: complete.len() as u64,
                rate_limited: ended("rate_limited"),
                ttft_s: column(&rows, Column::Ttft),
                output_tokens_per_second: column(&rows, Column::Speed),
                client_duration_s: column(&complete, Column::ClientDuration),
            });
        }
    }
    slices
}

/// What a class begins at, such as 5000 for `5k_20k`; what is no number comes last.
pub(super) fn lower(class: &str) -> u64 {
    let first = class.split('_').next().unwrap_or_default();
    let (digits, unit) = first.strip_suffix('k').map_or((first, 1), |digits| (digits, 1_000));
    digits.parse::<u64>().map_or(u64::MAX, |number| number.saturating_mul(unit))
}

fn upstreams(log: &Log) -> Vec<Upstream> {
    let by_upstream = groups(&log.rows, |row| Some(log.pairs[row.pair].upstream));
    let mut upstreams = Vec::new();
    for (upstream, rows) in by_upstream {
        let spent = log.spent.get(&upstream).cloned().unwrap_or_default();
        // Known stages in their order, then what a newer gauge may have added.
        let known = STAGES.iter().copied().filter(|stage| spent.stages.contains_key(*stage));
        let others = spent.stages.keys().map(String::as_str).filter(|stage| !STAGES.contains(stage));
        let stage = |stage: &str| {
            let sum = spent.stages[stage];
            Stage {
                stage: stage.to_owned(),
                sum_s: seconds(sum),
                mean_s: seconds(sum) / spent.requests.max(1) as f64,
                share: sum as f64 / spent.wall.max(1) as f64,
            }
        };
        upstreams.push(Upstream {
            upstream: upstream.map(|name| log.text(name).to_owned()),
            requests: spent.requests,
            wall_s: seconds(spent.wall),
            stages: known.chain(others).map(stage).collect(),
            overhead_request_s: column(&rows, Column::OverheadRequest),
            overhead_first_output_s: column(&rows, Column::OverheadFirstOutput),
            overhead_event_mean_s: column(&rows, Column::OverheadEvent),
            upstream_rtt_s: column(&rows, Column::UpstreamRoundTrip),
            connections: spent.connections,
            dialled: spent.dialled,
            upstream_retransmits: spent.retransmits,
        });
    }
    upstreams.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.upstream.cmp(&b.upstream)));
    upstreams
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn reported(log: &Log, pair: usize, rows: &[&Row]) -> Option<Reported> {
    const PHASES: [(&str, Column); 5] = [
        ("queue", Column::ServerQueue),
        ("prefill", Column::ServerPrefill),
        ("decode", Column::ServerDecode),
        ("ttft", Column::ServerTtft),
        ("total", Column::ServerTotal),
    ];
    let phases: BTreeMap<_, _> =
        PHASES.iter().map(|(phase, times)| (*phase, column(rows, *times))).filter(|(_, spread)| spread.n > 0).collect();
    if phases.is_empty() {
        return None;
    }
    let [upstream, model] = names(log, pair);
    let both: Vec<&Row> = rows.iter().copied().filter(|row| row.get(Column::PairedTtft).is_some()).collect();
    Some(Reported {
        upstream,
        model,
        gateway_ttft_s: column(&both, Column::Ttft),
        server_ttft_s: column(&both, Column::PairedTtft),
        outside_server_s: column(&both, Column::OutsideServer),
        phases,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_count_those_who_never_got_a_token() {
        let log = Log::of(&[
            r#"{"stream":true,"outcome":"complete","ttft_s":0.3}"#,
            r#"{"stream":true,"outcome":"complete","ttft_s":0.7}"#,
            r#"{"stream":false,"outcome":"rate_limited","endpoint":"chat","status":429}"#,
            r#"{"stream":true,"outcome":"client_gone","stages_s":{"first_output_wait":0.5}}"#,
            r#"{"stream":true,"outcome":"client_gone","ttft_s":0.1}"#,
            r#"{"stream":false,"outcome":"complete","endpoint":"chat"}"#,
            r#"{"stream":false,"asked_stream":false,"outcome":"rate_limited","endpoint":"chat","status":429}"#,
        ]);
        let rows: Vec<&Row> = log.rows.iter().collect();
        let pair = pair_of(&log, 0, &rows);
        assert_eq!((pair.requests, pair.streams, pair.streams_assumed), (7, 5, 1));
        let counts: Vec<_> =
            pair.deadlines.iter().map(|Deadline { met, missed, left, .. }| [*met, *missed, *left]).collect();
        assert_eq!(counts, [[2, 3, 0], [2, 2, 1], [3, 1, 1]]);
    }

    #[test]
    fn a_refused_request_for_a_stream_is_one_and_one_for_a_document_is_none() {
        let log = Log::of(&[
            r#"{"stream":false,"asked_stream":true,"outcome":"rate_limited","endpoint":"chat","status":429}"#,
            r#"{"stream":false,"asked_stream":false,"outcome":"upstream_4xx","endpoint":"chat","status":400}"#,
        ]);
        let pair = pair_of(&log, 0, &log.rows.iter().collect::<Vec<_>>());
        assert_eq!((pair.streams, pair.streams_assumed, pair.deadlines[0].missed), (1, 0, 1));
    }

    #[test]
    fn classes_come_in_their_order() {
        let mut classes = ["unknown", "5k_20k", "200k_up", "0_200", "200_500", "65_up", "1", "500_2k"];
        classes.sort_by_key(|class| lower(class));
        assert_eq!(classes, ["0_200", "1", "65_up", "200_500", "500_2k", "5k_20k", "200k_up", "unknown"]);
    }

    #[test]
    fn stages_add_up_exactly() {
        let line = r#"{"upstream":"u","outcome":"complete","wall_s":0.100000003,
            "stages_s":{"first_output_wait":0.1,"generation":0.000000001,"tail":0.000000002}}"#;
        let log = Log::of(&vec![line; 1_000]);
        let upstream = &upstreams(&log)[0];
        assert_eq!((upstream.requests, upstream.wall_s), (1_000, 100.000_003));
        let sums: Vec<_> = upstream.stages.iter().map(|stage| (stage.stage.as_str(), stage.sum_s)).collect();
        assert_eq!(sums, [("first_output_wait", 100.0), ("generation", 1e-6), ("tail", 2e-6)]);
    }
}
