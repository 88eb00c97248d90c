//! What a run came to, and the metrics made of runs.

use std::{collections::BTreeMap, sync::Arc, time::UNIX_EPOCH};

use prometheus::{IntCounter, IntGauge};

use super::History;
use crate::{
    bench::{
        client::Target,
        load::Results,
        plan::{Load, Plan},
        table::{NUMBERS, Summary},
    },
    cli::Arrivals,
    clock::Clock,
    figures::Sample,
    metrics::{
        encode::{Format, encode},
        family::{Desc, Exposed, Family},
    },
};

/// What is given of a sample: of times the tail is above, of speeds below.
const PERCENTILES: [(&str, f64, f64); 3] = [("p50", 0.5, 0.5), ("p90", 0.9, 0.1), ("p99", 0.99, 0.01)];

const LABELS: &[&str] = &["target", "model", "workload", "load", "window", "percentile"];

/// The families of [`NUMBERS`], in their order.
const FAMILIES: [Desc; NUMBERS.len()] = [
    times(
        "streamgauge_bench_ttft_seconds",
        "From the request's departure to the first output event, by the client's ruler. window=last: of the last run's requests; window=72h: median of the runs' medians.",
    ),
    times(
        "streamgauge_bench_client_ttft_seconds",
        "From when the request was due (closed loop: begun) to the first output event. Windows as in ttft_seconds.",
    ),
    times(
        "streamgauge_bench_answer_ttft_seconds",
        "From the request's departure to the first event with answer. Windows as in ttft_seconds.",
    ),
    times(
        "streamgauge_bench_duration_seconds",
        "From the request's departure to the end of the response, of complete answers. Windows as in ttft_seconds.",
    ),
    times(
        "streamgauge_bench_client_duration_seconds",
        "From when the request was due (closed loop: begun) to the end of the response, of complete answers. Windows as in ttft_seconds.",
    ),
    times(
        "streamgauge_bench_max_gap_seconds",
        "The longest time between two successive output events of a request. Windows as in ttft_seconds.",
    ),
    times(
        "streamgauge_bench_time_per_output_token_seconds",
        "From the first to the last output event, per output token after the first. Windows as in ttft_seconds.",
    ),
    speeds(
        "streamgauge_bench_output_tokens_per_second",
        "Output tokens after the first, from the first to the last output event. p90 is what 90 % reach. Windows as in ttft_seconds.",
    ),
    speeds(
        "streamgauge_bench_end_to_end_tokens_per_second",
        "Output tokens, from the request's departure to the end of the response. p90 is what 90 % reach. Windows as in ttft_seconds.",
    ),
];

const fn times(name: &'static str, help: &'static str) -> Desc {
    Desc::new(name, help, LABELS).seconds()
}

const fn speeds(name: &'static str, help: &'static str) -> Desc {
    Desc::new(name, help, LABELS).tokens_per_second()
}

const SAMPLES: Desc = Desc::new(
    "streamgauge_bench_samples",
    "How many values stand behind a number (the other family's name without streamgauge_bench_): window=last: requests; window=72h: runs.",
    &["target", "model", "workload", "load", "window", "number"],
);
const REQUESTS: Desc = Desc::new(
    "streamgauge_bench_requests_total",
    "Measured requests of all runs, by how they ended.",
    &["target", "model", "workload", "load", "outcome"],
);
const RUNS: Desc = Desc::new(
    "streamgauge_bench_runs_total",
    "Runs of the whole plan; failed: not carried out, or without a complete answer.",
    &["result"],
);
const LAST_RUN: Desc = Desc::new(
    "streamgauge_bench_last_run_timestamp_seconds",
    "When the last run ended, failed or not, since the Unix epoch.",
    &[],
)
.seconds();

/// What one run came to.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// One cell's requests of one target each: cells in the plan's order, within a cell the targets in theirs.
    pub(super) series: Vec<Series>,
}

/// What one target's requests of one cell came to.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Requests by how they ended.
    pub(super) outcomes: BTreeMap<String, u64>,
    /// By place in [`NUMBERS`].
    samples: Vec<Sample>,
}

impl Run {
    /// Absent without a complete answer.
    pub(super) fn of(plan: &Plan, results: &Results) -> Option<Self> {
        let summaries = plan
            .cells
            .iter()
            .zip(&results.cells)
            .flat_map(|(_, result)| (0..result.targets.len()).map(|target| Summary::new(result, target)));
        let mut complete = 0;
        let series = summaries.map(|summary| {
            complete += summary.complete();
            let outcomes = summary.outcomes().into_iter();
            Series {
                outcomes: outcomes.map(|(outcome, count)| (outcome.to_owned(), count as u64)).collect(),
                samples: NUMBERS.iter().map(|number| summary.sample(number.of)).collect(),
            }
        });
        let series = series.collect();
        (complete > 0).then_some(Self { series })
    }

    /// The median of each number of each series.
    pub(super) fn medians(&self) -> Vec<Vec<Option<f64>>> {
        let medians = |series: &Series| series.samples.iter().map(|sample| sample.quantile(0.5)).collect();
        self.series.iter().map(medians).collect()
    }

    /// A run of one request with this TTFT.
    #[cfg(test)]
    pub(super) fn of_one(ttft_s: f64) -> Self {
        let mut samples = vec![Sample::default(); NUMBERS.len()];
        samples[0] = [ttft_s].into_iter().collect();
        Self { series: vec![Series { outcomes: [("complete".to_owned(), 1)].into(), samples }] }
    }
}

/// The labels of all series; their text is made anew at each scrape, which comes a few times a minute.
#[derive(Debug)]
pub(super) struct Exposition {
    /// Target, model, workload and load, in the order of [`Run::series`].
    series: Vec<[String; 4]>,
}

impl Exposition {
    pub(super) fn new(plan: &Plan, targets: &[Target]) -> Self {
        let series = plan.cells.iter().flat_map(|cell| {
            targets.iter().map(|target| {
                [target.name.to_string(), target.model.clone(), cell.workload.name.to_string(), load_label(cell.load)]
            })
        });
        Self { series: series.collect() }
    }

    /// The exposition, text 0.0.4. What was not observed is not in it; counts of runs and requests begin at 0.
    pub(super) fn text(&self, history: &History, clock: Clock) -> String {
        // Its names are constants that a test encodes: it does not fail.
        self.families(history, clock).map(|families| encode(&families, &[], Format::Text)).unwrap_or_default()
    }

    fn families(&self, history: &History, clock: Clock) -> prometheus::Result<Vec<Arc<dyn Exposed>>> {
        // Nothing is folded here, so it stays at 0 and is not exposed.
        let unused = IntCounter::new("unused", "unused")?;
        let numbers =
            FAMILIES.iter().map(|desc| Family::<IntGauge>::new(*desc, &unused)).collect::<Result<Vec<_>, _>>()?;
        let samples = Family::<IntGauge>::new(SAMPLES, &unused)?;
        let requests = Family::<IntCounter>::new(REQUESTS, &unused)?;
        let runs = Family::<IntCounter>::new(RUNS, &unused)?;
        let last_run = Family::<IntGauge>::new(LAST_RUN, &unused)?;

        runs.child(&["ok"]).inc_by(history.succeeded);
        runs.child(&["failed"]).inc_by(history.failed);
        if let Some((ended, _)) = &history.last {
            let since = clock.wall(*ended).duration_since(UNIX_EPOCH).unwrap_or_default();
            last_run.child(&[]).set(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
        }
        let last = history.last.as_ref().and_then(|(_, run)| run.as_ref());
        for (place, labels) in self.series.iter().enumerate() {
            let [target, model, workload, load] = labels.each_ref().map(String::as_str);
            requests.child(&[target, model, workload, load, "complete"]);
            for (outcome, count) in history.outcomes.get(place).into_iter().flatten() {
                requests.child(&[target, model, workload, load, outcome]).inc_by(*count);
            }
            for (index, (number, family)) in NUMBERS.iter().zip(&numbers).enumerate() {
                let desc = family.desc();
                let name = desc.name.trim_start_matches("streamgauge_bench_");
                let observe = |window: &str, sample: &Sample, percentiles: &[(&str, f64, f64)]| {
                    let count = i64::try_from(sample.count()).unwrap_or(i64::MAX);
                    samples.child(&[target, model, workload, load, window, name]).set(count);
                    for (percentile, of_times, of_speeds) in percentiles {
                        if let Some(value) = sample.percentile(if number.speed { *of_speeds } else { *of_times }) {
                            let cell = family.child(&[target, model, workload, load, window, percentile]);
                            cell.set(units(value, desc.unit.digits()));
                        }
                    }
                };
                if let Some(sample) = last.and_then(|run| run.series.get(place)?.samples.get(index)) {
                    observe("last", sample, &PERCENTILES);
                }
                let window = history.window(place, index, clock.now());
                if !window.is_empty() {
                    observe("72h", &window, &PERCENTILES[..1]);
                }
            }
        }
        let mut all: Vec<Arc<dyn Exposed>> = numbers.into_iter().map(|family| Arc::new(family) as _).collect();
        all.extend([Arc::new(samples) as Arc<dyn Exposed>, Arc::new(requests), Arc::new(runs), Arc::new(last_run)]);
        Ok(all)
    }
}

/// As the encoder counts: whole billionths of a second, millionths of a token.
#[expect(clippy::cast_possible_truncation, reason = "saturates")]
fn units(value: f64, digits: u32) -> i64 {
    (value * 10_f64.powi(digits.cast_signed())).round() as i64
}

/// `8` at a time, or `5/s`.
fn load_label(load: Load) -> String {
    match load {
        Load::Closed(workers) => workers.to_string(),
        Load::Open(rate, Arrivals::Poisson) => format!("{rate}/s"),
        Load::Open(rate, Arrivals::Even) => format!("{rate}/s even"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::clock::Nanos;

    fn exposition() -> Exposition {
        Exposition { series: vec![["127.0.0.1:1", "m\"1", "1k_in_200_out", "8"].map(str::to_owned)] }
    }

    /// Lines that are samples, without their values.
    fn series(text: &str) -> BTreeSet<&str> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap().0).collect()
    }

    /// What `promtool check metrics` holds against an exposition: a family without help or type, one that is not together,
    /// one series twice, a counter without `_total` or a `_total` that is none, `quantile` and `le` outside of what owns
    /// them, a name out of form, a value that is none.
    fn lint(text: &str) -> Vec<String> {
        let (mut faults, mut seen, mut family) = (Vec::new(), BTreeSet::new(), None::<(String, String)>);
        let (mut families, mut help) = (BTreeSet::new(), None);
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, text] if !text.is_empty() => help = Some(name.to_owned()),
                ["#", "TYPE", name, kind] => {
                    let form = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                    if help.take().as_deref() != Some(name) || !name.bytes().all(form) {
                        faults.push(format!("no help, or no name: {line}"));
                    }
                    if !families.insert(name.to_owned()) || (kind == "counter") != name.ends_with("_total") {
                        faults.push(format!("twice, or the wrong suffix: {line}"));
                    }
                    family = Some((name.to_owned(), kind.to_owned()));
                }
                _ => {
                    let (labels, value) = line.rsplit_once(' ').unwrap_or((line, ""));
                    let name = labels.split('{').next().unwrap_or_default();
                    if family.as_ref().is_none_or(|(family, _)| family != name) {
                        faults.push(format!("outside its family: {line}"));
                    }
                    if !seen.insert(labels.to_owned()) || value.parse::<f64>().is_err() {
                        faults.push(format!("twice, or no value: {line}"));
                    }
                    if ["{quantile=", ",quantile=", "{le=", ",le="].iter().any(|label| labels.contains(label)) {
                        faults.push(format!("a reserved label: {line}"));
                    }
                }
            }
        }
        faults
    }

    #[test]
    fn the_lint_finds_what_it_is_there_for() {
        let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\"} 1\n";
        assert_eq!(lint(good), [] as [String; 0]);
        for bad in [
            "# TYPE a_total counter\na_total 1\n",
            "# HELP a A.\n# TYPE a counter\na 1\n",
            "# HELP a A.\n# TYPE a gauge\na{quantile=\"0.5\"} 1\n",
            "# HELP a A.\n# TYPE a gauge\na 1\na 2\n",
            "# HELP a A.\n# TYPE a gauge\nb 1\n",
            "# HELP a A.\n# TYPE a gauge\na none\n",
        ] {
            assert_eq!(lint(bad).len(), 1, "{bad}: {:?}", lint(bad));
        }
    }

    #[test]
    fn before_the_first_run_there_are_counters_at_zero_and_nothing_else() {
        let text = exposition().text(&History::default(), Clock::start());
        assert_eq!(lint(&text), [] as [String; 0]);
        let expected = [
            r#"streamgauge_bench_requests_total{target="127.0.0.1:1",model="m\"1",workload="1k_in_200_out",load="8",outcome="complete"} 0"#,
            r#"streamgauge_bench_runs_total{result="failed"} 0"#,
            r#"streamgauge_bench_runs_total{result="ok"} 0"#,
        ];
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn after_runs_there_are_the_last_one_and_the_window() {
        let clock = Clock::start();
        let mut history = History::default();
        for ttft_s in [0.3, 0.1, 0.2, 0.25] {
            history.add(clock.now(), Some(Run::of_one(ttft_s)));
        }
        let text = exposition().text(&history, clock);
        assert_eq!(lint(&text), [] as [String; 0], "{text}");
        let labels = r#"target="127.0.0.1:1",model="m\"1",workload="1k_in_200_out",load="8""#;
        for line in [
            format!(r#"streamgauge_bench_ttft_seconds{{{labels},window="last",percentile="p50"}} 0.25"#),
            format!(r#"streamgauge_bench_ttft_seconds{{{labels},window="72h",percentile="p50"}} 0.2"#),
            format!(r#"streamgauge_bench_samples{{{labels},window="last",number="ttft_seconds"}} 1"#),
            format!(r#"streamgauge_bench_samples{{{labels},window="72h",number="ttft_seconds"}} 4"#),
            format!(r#"streamgauge_bench_requests_total{{{labels},outcome="complete"}} 4"#),
            r#"streamgauge_bench_runs_total{result="ok"} 4"#.to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(
            !text.contains("p90") && !text.contains("bench_duration_seconds{"),
            "one request, without an end: {text}"
        );
        assert!(series(&text).contains("streamgauge_bench_last_run_timestamp_seconds"));
    }

    #[test]
    fn a_failed_run_takes_the_last_ones_numbers_away_and_leaves_the_window() {
        let clock = Clock::start();
        let mut history = History::default();
        history.add(clock.now(), Some(Run::of_one(0.3)));
        history.add(clock.now() + Nanos(1), None);
        let text = exposition().text(&history, clock);
        assert!(!text.contains(r#"window="last""#), "{text}");
        assert!(text.contains(r#"window="72h",percentile="p50"} 0.3"#), "{text}");
    }

    #[test]
    fn tails_come_with_the_requests_they_need() {
        let clock = Clock::start();
        for (n, tails) in [(9, 1), (10, 2), (99, 2), (100, 3)] {
            let mut run = Run::of_one(0.3);
            run.series[0].samples[0] = (1..=n).map(f64::from).collect();
            // A speed's tail is its low end.
            let speeds = NUMBERS.iter().position(|number| number.speed).unwrap();
            run.series[0].samples[speeds] = (1..=n).map(f64::from).collect();
            let mut history = History::default();
            history.add(clock.now(), Some(run));
            let text = exposition().text(&history, clock);
            let last = text.lines().filter(|line| line.contains(r#"window="last",percentile"#));
            assert_eq!(last.count(), 2 * tails, "{n}: {text}");
            if n == 100 {
                let value =
                    |start: &str| text.lines().find(|line| line.starts_with(start) && line.contains("p99")).unwrap();
                assert!(value("streamgauge_bench_ttft_seconds").ends_with(" 99.0"), "{text}");
                assert!(value("streamgauge_bench_output_tokens_per_second").ends_with(" 1.0"), "{text}");
            }
        }
    }

    #[test]
    fn each_number_has_the_family_of_its_name() {
        for (number, desc) in NUMBERS.iter().zip(&FAMILIES) {
            let renamed = number.key.replace("tpot_s", "time_per_output_token_s");
            let name = renamed.strip_suffix("_s").map_or(renamed.clone(), |name| format!("{name}_seconds"));
            assert_eq!(desc.name, format!("streamgauge_bench_{name}"));
            assert_eq!(desc.unit.digits() == 6, number.speed, "{name}");
        }
    }

    #[test]
    fn each_family_is_in_the_documentation() {
        let page = include_str!("../../../docs/bench.md");
        for desc in FAMILIES.iter().chain([&SAMPLES, &REQUESTS, &RUNS, &LAST_RUN]) {
            let name = desc.name.strip_prefix("streamgauge_bench_").unwrap();
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn loads_are_short_labels() {
        let loads = [Load::Closed(8), Load::Open(0.5, Arrivals::Poisson), Load::Open(5.0, Arrivals::Even)];
        assert_eq!(loads.map(load_label), ["8", "0.5/s", "5/s even"]);
    }
}
