//! The end: what `/metrics` says beside what the raw records say, and whether they agree.
//!
//! They must: counts exactly, and the record of a quantile's rank must lie in the very bucket that holds that rank.

use std::fmt::Write as _;

use super::{
    records::{Columns, Records, quantile},
    scrape::{Exposition, Matching, Quantile},
    table::{read, short},
};
use crate::{
    figures::{ABSENT, significant, table, time},
    observation::Outcome,
};

/// A number that both sides have.
struct Number {
    title: &'static str,
    family: &'static str,
    matching: Matching<'static>,
    records: fn(&Columns) -> &[u64],
    /// Record units in a unit of the metric.
    scale: f64,
    quantiles: &'static [f64],
    show: fn(f64) -> String,
}

const NUMBERS: [Number; 4] = [
    Number {
        title: "TTFT",
        family: "streamgauge_ttft_seconds",
        matching: &[],
        records: |columns| &columns.ttft,
        scale: 1e9,
        quantiles: &[0.5, 0.99],
        show: time,
    },
    Number {
        title: "client TTFT",
        family: "streamgauge_client_ttft_seconds",
        matching: &[],
        records: |columns| &columns.client_ttft,
        scale: 1e9,
        quantiles: &[0.5, 0.99],
        show: time,
    },
    Number {
        title: "tokens/s",
        family: "streamgauge_output_tokens_per_second",
        matching: &[],
        records: |columns| &columns.output_speed,
        scale: 1e6,
        quantiles: &[0.5],
        show: significant,
    },
    Number {
        title: "duration, ok",
        family: "streamgauge_request_duration_seconds",
        matching: &[("result", "ok")],
        records: |columns| &columns.duration,
        scale: 1e9,
        quantiles: &[0.5, 0.99],
        show: time,
    },
];

/// Phases of the gauge's own time, and what each means.
const OVERHEAD: [(&str, &str, &str); 3] = [
    ("request", "request", "last byte in to last byte out, without connecting"),
    ("first_output", "first output", "first event with output, in from upstream to out"),
    ("event", "event", "each event with output, all through the stream"),
];

const BUCKETS: &str = "\
Buckets only tell between which two bounds a percentile lies: /metrics has the
estimate inside, the records the exact value, which must lie there too.";

/// A finished comparison.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    exchanges: u64,
    /// Of models that are not the demo's own.
    others: u64,
    lines: Vec<Line>,
    overhead: Vec<[String; 4]>,
    /// What does not agree.
    faults: Vec<String>,
}

#[derive(Clone, Debug)]
struct Line {
    upstream: String,
    model: String,
    number: &'static str,
    count: u64,
    /// By quantile, from the metrics and from the records.
    values: Vec<[String; 2]>,
    agrees: bool,
}

impl Summary {
    /// Compares what these pairs' metrics and records say.
    pub(super) fn of(exposition: &Exposition, records: &Records, pairs: &[(&str, &str)]) -> Self {
        let mut summary = Self { exchanges: 0, others: 0, lines: Vec::new(), overhead: Vec::new(), faults: Vec::new() };
        for (upstream, model) in pairs {
            let columns = records.of(upstream, model);
            summary.count(exposition, &columns, upstream, model);
            for number in &NUMBERS {
                summary.compare(number, exposition, &columns, upstream, model);
            }
        }
        summary.others = exposition.sum("streamgauge_requests_total", &[]).saturating_sub(summary.exchanges);
        for (phase, title, meaning) in OVERHEAD {
            let buckets = exposition.histogram("streamgauge_overhead_seconds", &[("phase", phase)]);
            let [p50, p99] = [0.5, 0.99].map(|q| read(buckets.quantile(q), time));
            summary.overhead.push([title.to_owned(), p50, p99, meaning.to_owned()]);
        }
        summary
    }

    /// Whether nothing differs.
    pub(super) fn agrees(&self) -> bool {
        self.faults.is_empty()
    }

    fn count(&mut self, exposition: &Exposition, columns: &Columns, upstream: &str, model: &str) {
        let pair = [("upstream", upstream), ("model", model)];
        let counts = exposition.sums_by("streamgauge_requests_total", "outcome", &pair);
        for outcome in Outcome::ALL {
            let of = |counts: Option<&u64>| counts.copied().unwrap_or(0);
            let (metrics, records) = (of(counts.get(outcome.as_str())), of(columns.outcomes.get(outcome.as_str())));
            self.exchanges += metrics;
            if metrics != records {
                let short = short(outcome);
                self.faults
                    .push(format!("{upstream} {model}: {metrics} {short} in /metrics, {records} in the records"));
            }
        }
    }

    fn compare(&mut self, number: &Number, exposition: &Exposition, columns: &Columns, upstream: &str, model: &str) {
        let Number { title, family, matching, records, scale, quantiles, show } = number;
        let matching = [&[("upstream", upstream), ("model", model)], *matching].concat();
        let buckets = exposition.histogram(family, &matching);
        let values = records(columns);
        let before = self.faults.len();
        if buckets.count() != values.len() as u64 {
            let (metrics, records) = (buckets.count(), values.len());
            self.faults
                .push(format!("{upstream} {model}: {title} of {metrics} in /metrics, of {records} in the records"));
        }
        let mut shown = Vec::new();
        for q in *quantiles {
            let (bucket, exact) = (buckets.quantile(*q), quantile(values, *q));
            if let (Some(bucket), Some(exact)) = (bucket, exact)
                && !holds(bucket, exact, *scale)
            {
                let [above, upto, exact] = [bucket.above, bucket.upto, exact as f64 / scale].map(show);
                self.faults.push(format!(
                    "{upstream} {model}: {title} p{:.0} is {exact} in the records, above {above} and up to {upto} in /metrics",
                    q * 100.0
                ));
            }
            let exact = exact.map_or_else(|| ABSENT.to_owned(), |exact| show(exact as f64 / scale));
            shown.push([read(bucket, show), exact]);
        }
        self.lines.push(Line {
            upstream: upstream.to_owned(),
            model: model.to_owned(),
            number: title,
            count: buckets.count(),
            values: shown,
            agrees: self.faults.len() == before,
        });
    }

    /// The summary in full, at most `width` columns wide.
    pub(super) fn render(&self, width: Option<u16>) -> String {
        let head = [
            "upstream",
            "model",
            "number",
            "count",
            "p50\n/metrics",
            "p50\nrecords",
            "p99\n/metrics",
            "p99\nrecords",
            "same\nbucket",
        ];
        let mut numbers = table(&head, 3..8, width);
        let mut last = None;
        for line in &self.lines {
            let pair = (line.upstream.as_str(), line.model.as_str());
            let (upstream, model) = if last == Some(pair) { ("", "") } else { pair };
            last = Some(pair);
            let value = |index: usize, side: usize| line.values.get(index).map_or("", |value| value[side].as_str());
            numbers.add_row([
                upstream,
                model,
                line.number,
                &line.count.to_string(),
                value(0, 0),
                value(0, 1),
                value(1, 0),
                value(1, 1),
                match () {
                    () if !line.agrees => "NO",
                    () if line.count == 0 => ABSENT,
                    () => "yes",
                },
            ]);
        }
        let mut overhead = table(&["overhead", "p50", "p99", "the gauge's own time, socket to socket"], 1..3, width);
        overhead.add_rows(&self.overhead);

        let mut text = format!("{}\n\n{BUCKETS}\n\n{}\n\n", numbers.trim_fmt(), overhead.trim_fmt());
        // Formatting into a string does not fail.
        if self.others > 0 {
            let _ = writeln!(text, "{} exchanges with models of your own are in /metrics, not in here.", self.others);
        }
        if self.agrees() {
            let _ = writeln!(
                text,
                "{} exchanges: /metrics and the raw records agree.\n\
                 Every count is equal, every percentile lies in its bucket.",
                self.exchanges
            );
        } else {
            let _ = writeln!(text, "/metrics and the raw records DISAGREE:");
            for fault in &self.faults {
                let _ = writeln!(text, "  {fault}");
            }
        }
        text
    }
}

/// Whether a bucket holds a value in record units. Bounds are decimal fractions, so they are rounded to whole units.
fn holds(bucket: Quantile, value: u64, scale: f64) -> bool {
    let value = value as f64;
    (bucket.above * scale).round() < value && value <= (bucket.upto * scale).round()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Clock, Stamp},
        observation::{ExchangeId, Observation},
        timeline::Timeline,
    };

    const MS: u64 = 1_000_000;

    /// A complete stream of this TTFT.
    fn record(ttft: u64) -> Observation {
        let at = |nanos| Stamp::from_nanos(nanos + 1).unwrap();
        let mut timeline = Timeline::begin(at(0));
        timeline.sent_last = Some(at(0));
        timeline.first_output = Some(at(ttft));
        let mut record = Observation::begin(ExchangeId(1), Clock::start().wall(at(0)), timeline, Outcome::Complete);
        record.stream = true;
        record.upstream = Some("gpu".into());
        record.model = Some("m".into());
        record
    }

    /// An exposition that says so many of these TTFTs lie at or below 100 ms, and at or below 200 ms.
    fn exposition(complete: u64, buckets: [u64; 2]) -> Exposition {
        let [low, high] = buckets;
        Exposition::parse(&format!(
            "streamgauge_requests_total{{upstream=\"gpu\",model=\"m\",outcome=\"complete\"}} {complete}\n\
             streamgauge_requests_total{{upstream=\"gpu\",model=\"own\",outcome=\"complete\"}} 5\n\
             streamgauge_ttft_seconds_bucket{{upstream=\"gpu\",model=\"m\",le=\"0.1\"}} {low}\n\
             streamgauge_ttft_seconds_bucket{{upstream=\"gpu\",model=\"m\",le=\"0.2\"}} {high}\n\
             streamgauge_ttft_seconds_bucket{{upstream=\"gpu\",model=\"m\",le=\"+Inf\"}} {high}\n"
        ))
        .unwrap()
    }

    fn summary(exposition: &Exposition, ttfts: &[u64]) -> Summary {
        let records = Records::default();
        for ttft in ttfts {
            records.add(&record(*ttft));
        }
        Summary::of(exposition, &records, &[("gpu", "m")])
    }

    #[test]
    fn what_agrees_is_said_to_agree() {
        // On the bound itself: a bound belongs to the bucket it ends.
        let summary = summary(&exposition(3, [2, 3]), &[200 * MS, 100 * MS, 50 * MS]);
        assert!(summary.agrees(), "{:?}", summary.faults);
        let text = summary.render(None);
        assert!(text.contains("3 exchanges: /metrics and the raw records agree"), "{text}");
        assert!(text.contains("5 exchanges with models of your own"), "{text}");
        let row = text.lines().find(|line| line.contains("TTFT") && line.contains("gpu")).unwrap();
        let cells: Vec<_> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["gpu", "m", "TTFT", "3", "75.0 ms", "100 ms", "150 ms", "200 ms", "yes"]);
    }

    #[test]
    fn a_record_in_another_bucket_is_a_fault() {
        let summary = summary(&exposition(1, [1, 1]), &[100 * MS + 1]);
        assert_eq!(summary.faults.len(), 2, "p50 and p99: {:?}", summary.faults);
        let text = summary.render(None);
        assert!(text.contains("DISAGREE") && text.contains("NO"), "{text}");
        assert!(summary.faults[0].contains("p50 is 100 ms in the records, above 0.00 µs and up to 100 ms"), "{text}");
    }

    #[test]
    fn a_count_that_differs_is_a_fault() {
        let metrics = summary(&exposition(2, [2, 2]), &[50 * MS]);
        assert_eq!(
            metrics.faults,
            ["gpu m: 2 ok in /metrics, 1 in the records", "gpu m: TTFT of 2 in /metrics, of 1 in the records"]
        );
        let records = summary(&Exposition::default(), &[50 * MS]);
        assert_eq!(records.faults.len(), 2, "{:?}", records.faults);
    }
}
