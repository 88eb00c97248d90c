//! What came of it, as text and as JSON. Every number stands beside how many it is made of.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value, json};

use super::{
    client::Target,
    load::{CellResult, Done, MOST_IN_FLIGHT, Results},
    plan::{Cell, Load, Plan},
};
use crate::{
    cli::Arrivals,
    figures::{ABSENT, Quantiles, Record, Sample, percent, significant, table, tame, time},
    observation::Outcome,
};

/// One number of an answer: how it is called, read and shown.
pub(super) struct Number {
    /// Its key in JSON, and in the record.
    pub(super) key: &'static str,
    /// Its row's name.
    pub(super) name: &'static str,
    /// Of one request; absent if it was not observed.
    pub(super) of: fn(&Record) -> Option<f64>,
    /// More is better: its tail is at the low end.
    pub(super) speed: bool,
}

/// The numbers of a cell, in the order they are shown. A latency counts wherever it was observed, also in a stream that
/// broke off later; what needs the whole answer, of complete ones only.
pub(super) const NUMBERS: [Number; 9] = [
    Number { key: "ttft_s", name: "TTFT", of: |record| record.ttft_s, speed: false },
    Number { key: "client_ttft_s", name: "client TTFT", of: |record| record.client_ttft_s, speed: false },
    Number { key: "answer_ttft_s", name: "answer TTFT", of: |record| record.answer_ttft_s, speed: false },
    Number { key: "duration_s", name: "upstream duration", of: |record| whole(record)?.duration_s, speed: false },
    Number {
        key: "client_duration_s",
        name: "client duration",
        of: |record| whole(record)?.client_duration_s,
        speed: false,
    },
    Number { key: "max_gap_s", name: "longest gap", of: |record| record.max_gap_s, speed: false },
    Number { key: "tpot_s", name: "TPOT", of: |record| record.tpot_s, speed: false },
    Number {
        key: "output_tokens_per_second",
        name: "tokens/s",
        of: |record| record.output_tokens_per_second,
        speed: true,
    },
    Number {
        key: "end_to_end_tokens_per_second",
        name: "tokens/s end to end",
        of: |record| whole(record)?.end_to_end_tokens_per_second,
        speed: true,
    },
];

fn whole(record: &Record) -> Option<&Record> {
    is_complete(record).then_some(record)
}

fn is_complete(record: &Record) -> bool {
    record.outcome == Outcome::Complete.as_str()
}

/// What one target's requests of one cell come to.
pub(super) struct Summary<'a> {
    done: &'a [Done],
    span_s: f64,
    sized: bool,
}

impl<'a> Summary<'a> {
    /// Of this target in this cell.
    pub(super) fn new(result: &'a CellResult, target: usize) -> Self {
        Self {
            done: result.targets.get(target).map_or(&[], Vec::as_slice),
            span_s: result.span_s,
            sized: result.sized.get(target).copied().unwrap_or(false),
        }
    }

    /// The values of one number.
    pub(super) fn sample(&self, of: impl Fn(&Record) -> Option<f64>) -> Sample {
        self.done.iter().filter_map(|done| of(&done.record)).collect()
    }

    /// Requests that ended so, by outcome.
    pub(super) fn outcomes(&self) -> BTreeMap<&str, usize> {
        let mut outcomes = BTreeMap::new();
        for done in self.done {
            *outcomes.entry(done.record.outcome.as_str()).or_default() += 1;
        }
        outcomes
    }

    /// Requests over.
    pub(super) fn count(&self) -> usize {
        self.done.len()
    }

    /// Complete answers.
    pub(super) fn complete(&self) -> usize {
        self.completed().count()
    }

    fn completed(&self) -> impl Iterator<Item = &Record> {
        self.done.iter().map(|done| &done.record).filter(|record| is_complete(record))
    }

    /// The share of requests refused for want of room (429 and its like), of all.
    pub(super) fn rate_limited_share(&self) -> Option<f64> {
        let refused = self.done.iter().filter(|done| done.record.outcome == Outcome::RateLimited.as_str()).count();
        (!self.done.is_empty()).then(|| refused as f64 / self.done.len() as f64)
    }

    /// Complete answers per second of the cell.
    pub(super) fn requests_per_second(&self) -> Option<f64> {
        (self.span_s > 0.0).then(|| self.complete() as f64 / self.span_s)
    }

    /// Output tokens per second of the cell, all answers together; absent if any complete one came without its count,
    /// for then the sum is not known.
    pub(super) fn total_tokens_per_second(&self) -> Option<f64> {
        let tokens: Option<u64> = self.completed().map(|record| record.output_tokens).sum();
        let tokens = tokens.filter(|_| self.complete() > 0 && self.span_s > 0.0)?;
        Some(tokens as f64 / self.span_s)
    }

    /// Complete answers without a count of output tokens.
    pub(super) fn without_usage(&self) -> usize {
        self.completed().filter(|record| record.output_tokens.is_none()).count()
    }

    /// Requests that never had an output event: percentiles of TTFT know nothing of them.
    fn without_output(&self) -> usize {
        self.done.iter().filter(|done| done.record.ttft_s.is_none()).count()
    }

    /// How late this program itself began requests.
    fn lag(&self) -> Sample {
        self.done.iter().map(|done| done.lag.seconds()).collect()
    }

    /// That delay as a share of what those who got a first output had waited for it since they were due.
    fn lag_share(&self) -> Option<f64> {
        let waits = self.done.iter().filter_map(|done| Some((done.lag.seconds(), done.record.client_ttft_s?)));
        let (lag, waited) = waits.fold((0.0, 0.0), |sum, wait| (sum.0 + wait.0, sum.1 + wait.1));
        (waited > 0.0).then(|| lag / waited)
    }

    /// Why requests failed, the most frequent first.
    pub(super) fn errors(&self) -> Vec<(&str, usize)> {
        let mut errors: BTreeMap<&str, usize> = BTreeMap::new();
        for error in self.done.iter().filter_map(|done| done.error.as_deref()) {
            *errors.entry(error).or_default() += 1;
        }
        let mut errors: Vec<_> = errors.into_iter().collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        errors
    }
}

/// Characters shown of what somebody else said; JSON has all of it.
pub(super) const LONGEST_WORD: usize = 200;
/// Different errors that are shown of one target in one cell.
const MOST_ERRORS: usize = 5;

/// All cells, one block each, and where there are several a table of them. `names` are the targets'.
pub(super) fn text(plan: &Plan, names: &[&str], results: &Results, width: Option<u16>) -> String {
    let mut text = String::new();
    let mut blocks = 0;
    for (cell, result) in plan.cells.iter().zip(&results.cells) {
        for (index, name) in names.iter().enumerate() {
            let summary = Summary::new(result, index);
            if summary.count() == 0 {
                continue;
            }
            blocks += 1;
            let name = if names.len() > 1 { format!(" · {name}") } else { String::new() };
            // Formatting into a string does not fail.
            let _ = write!(text, "\n{} · {}{name}\n\n", cell.workload.name, cell.load);
            text.push_str(&block(cell, &summary, width));
            for note in notes(cell, &summary) {
                let _ = write!(text, "\n{note}");
            }
            text.push('\n');
        }
        if result.held_back {
            let _ = writeln!(
                text,
                "{MOST_IN_FLIGHT} requests were under way: some began later than they were due, which counts as their time"
            );
        }
    }
    if blocks > 1 {
        let _ = write!(text, "\n{}\n", overview(plan, names, results, width));
    }
    text.push_str(FOOT);
    if results.stopped {
        text.push_str("\nStopped early: what is above was measured until then.\n");
    }
    text
}

/// What the head of a table has no room for.
const FOOT: &str = "
TTFT and upstream duration count from the request's departure. p90 is there from
10 values on, p99 from 100, the worst always. Of tokens/s, p90 and p99 are what
90 % and 99 % of the answers reach at the least.
";

/// The numbers of one target in one cell.
fn block(cell: &Cell, summary: &Summary<'_>, width: Option<u16>) -> String {
    let mut table = table(&["", "n", "p50", "p90", "p99", "worst", "p99/p50"], 1..7, width);
    for number in &NUMBERS {
        let of = summary.sample(number.of).quantiles();
        let name = match (cell.load, number.counts_from_due()) {
            (Load::Open(..), true) => format!("{}, from due", number.name),
            // Nothing is due in a closed loop.
            (Load::Closed(_), true) => format!("{}, from begin", number.name),
            _ => number.name.to_owned(),
        };
        let show: fn(f64) -> String = if number.speed { significant } else { time };
        let [p50, p90, p99, worst] = number.tail(&of).map(|value| shown(value, show));
        let spread = shown(if number.speed { of.p50_over_p1 } else { of.p99_over_p50 }, significant);
        table.add_row([name, of.n.to_string(), p50, p90, p99, worst, spread]);
    }
    table.trim_fmt()
}

fn shown(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), show)
}

impl Number {
    /// Whether it counts from when the request was due or begun, not from its departure.
    pub(super) fn counts_from_due(&self) -> bool {
        self.key.starts_with("client_")
    }

    /// The median, what nine in ten and 99 in a hundred reach, and the worst: of times at the most, of speeds at the least.
    const fn tail(&self, of: &Quantiles) -> [Option<f64>; 4] {
        if self.speed { [of.p50, of.p10, of.p1, of.min] } else { [of.p50, of.p90, of.p99, of.max] }
    }
}

/// What the numbers do not say by themselves.
fn notes(cell: &Cell, summary: &Summary<'_>) -> Vec<String> {
    let count = summary.count();
    let mut parts = vec![format!("{} of {count} complete", summary.complete())];
    let outcomes = summary.outcomes();
    let others = outcomes.iter().filter(|(outcome, _)| **outcome != Outcome::Complete.as_str());
    parts.extend(others.map(|(outcome, count)| format!("{count} {outcome}")));
    let mut parts = vec![parts.join(", ")];
    let refused = summary.rate_limited_share();
    parts.extend(refused.map(|share| format!("429 share {}", percent(share))));
    parts.extend(summary.requests_per_second().map(|rate| format!("{} requests/s", significant(rate))));
    parts.extend(summary.total_tokens_per_second().map(|rate| format!("{} tokens/s in total", significant(rate))));
    let mut notes = vec![parts.join(" · ")];
    let tokens = |of: fn(&Record) -> Option<u64>| summary.sample(move |record| of(record).map(|tokens| tokens as f64));
    let (input, output) = (tokens(|record| record.input_tokens), tokens(|record| record.output_tokens));
    if let (Some(some_in), Some(some_out)) = (input.quantile(0.5), output.quantile(0.5)) {
        notes.push(format!(
            "as the provider counts: {some_in:.0} tokens in (n = {}), {some_out:.0} out (n = {}), medians",
            input.count(),
            output.count()
        ));
    }
    let without = summary.without_usage();
    if without > 0 {
        notes.push(format!(
            "{without} of {} complete answers came without token counts: no tokens/s of them, nothing is guessed",
            summary.complete()
        ));
    }
    if !summary.sized {
        notes.push("prompts not made to size: no warm-up came back with the provider's count".to_owned());
    }
    let (without, empty) =
        (summary.without_output(), summary.completed().filter(|record| record.ttft_s.is_none()).count());
    if without > 0 {
        let why = match empty {
            0 => String::new(),
            empty => format!("; {empty} of them are complete answers: empty, or not a stream"),
        };
        notes.push(format!(
            "{without} of {count} had no first output, and TTFT's percentiles know nothing of them{why}"
        ));
    }
    let lag = summary.lag().quantiles();
    if let (Load::Open(..), Some(p50)) = (cell.load, lag.p50) {
        let tail =
            lag.p99.map_or_else(|| format!("at most {}", shown(lag.max, time)), |p99| format!("p99 {}", time(p99)));
        let share =
            summary.lag_share().map_or_else(String::new, |share| format!("; {} of the client TTFT", percent(share)));
        notes.push(format!("begun late by this program itself: p50 {}, {tail}{share}", time(p50)));
    }
    let errors = summary.errors();
    // The provider's own words are among them.
    notes.extend(
        errors.iter().take(MOST_ERRORS).map(|(error, count)| format!("{count} × {}", tame(error, LONGEST_WORD))),
    );
    if errors.len() > MOST_ERRORS {
        notes.push(format!("and {} other errors: --records has them all", errors.len() - MOST_ERRORS));
    }
    notes
}

/// A line per cell and target. A narrow terminal gets the columns that there is room for.
fn overview(plan: &Plan, names: &[&str], results: &Results, width: Option<u16>) -> String {
    let narrow = width.is_some_and(|width| width < 110);
    let mut head = vec!["workload", "load"];
    if names.len() > 1 {
        head.push("provider");
    }
    let numbers =
        ["complete", "TTFT\np50", "TTFT\np99", "tokens/s\np50", "client\nduration\np50", "tokens/s\nin total"];
    let numbers = &numbers[..if narrow { 4 } else { 6 }];
    let labels = head.len();
    head.extend(numbers);
    let mut table = table(&head, labels..head.len(), width);
    for (cell, result) in plan.cells.iter().zip(&results.cells) {
        for (index, name) in names.iter().enumerate() {
            let summary = Summary::new(result, index);
            let quantile = |of: fn(&Record) -> Option<f64>, q| summary.sample(of).percentile(q);
            let mut row = vec![cell.workload.name.to_string(), cell.load.to_string()];
            if names.len() > 1 {
                row.push((*name).to_owned());
            }
            row.extend([
                format!("{}/{}", summary.complete(), summary.count()),
                shown(quantile(|record| record.ttft_s, 0.5), time),
                shown(quantile(|record| record.ttft_s, 0.99), time),
                shown(quantile(|record| record.output_tokens_per_second, 0.5), significant),
                shown(quantile(|record| whole(record)?.client_duration_s, 0.5), time),
                shown(summary.total_tokens_per_second(), significant),
            ]);
            row.truncate(head.len());
            table.add_row(row);
        }
    }
    table.trim_fmt()
}

/// All of it for programs: seconds as numbers; what was not observed has no key.
pub(super) fn json(plan: &Plan, targets: &[Target], results: &Results) -> Value {
    let mut cells = Vec::new();
    for (cell, result) in plan.cells.iter().zip(&results.cells) {
        for (index, target) in targets.iter().enumerate() {
            cells.push(cell_json(cell, &target.name, &Summary::new(result, index), result.held_back));
        }
    }
    let mut value = json!({
        "plan": {
            "targets": targets.iter().map(|target| json!({
                "name": &*target.name,
                "model": target.model,
                "dialect": target.dialect.as_str(),
                "path": target.path.path(),
            })).collect::<Vec<_>>(),
            "runs": plan.runs,
            "warm_up": plan.warm_up,
            "seed": plan.seed,
            "cached": plan.cached,
        },
        "stopped": results.stopped,
        "cells": cells,
    });
    if let Some(duration) = plan.duration {
        value["plan"]["duration_s"] = duration.as_secs_f64().into();
    }
    value
}

/// A load for programs.
pub(super) fn load_json(load: Load) -> Value {
    match load {
        Load::Closed(workers) => json!({"concurrency": workers}),
        Load::Open(rate, arrivals) => {
            json!({"rate": rate, "arrivals": if arrivals == Arrivals::Even { "even" } else { "poisson" }})
        }
    }
}

fn cell_json(cell: &Cell, target: &str, summary: &Summary<'_>, held_back: bool) -> Value {
    let mut figures = Map::new();
    for number in &NUMBERS {
        figures.insert(number.key.to_owned(), json!(summary.sample(number.of).quantiles()));
    }
    for (key, of) in COUNTS {
        let sample = summary.sample(|record| of(record).map(|count| count as f64));
        figures.insert(key.to_owned(), json!(sample.quantiles()));
    }
    let mut value = json!({
        "target": target,
        "workload": &*cell.workload.name,
        "input_tokens": cell.workload.input_tokens,
        "output_tokens": cell.workload.output_tokens,
        "load": load_json(cell.load),
        "n": summary.count(),
        "complete": summary.complete(),
        "outcomes": summary.outcomes(),
        "errors": summary.errors().iter().map(|(error, n)| json!({"error": error, "n": n})).collect::<Vec<_>>(),
        "without_usage": summary.without_usage(),
        "without_output": summary.without_output(),
        "sized": summary.sized,
        "span_s": summary.span_s,
        "held_back": held_back,
        "figures": figures,
    });
    if matches!(cell.load, Load::Open(..)) {
        value["schedule_lag_s"] = json!(summary.lag().quantiles());
    }
    let rates = [
        ("schedule_lag_share", summary.lag_share().filter(|_| matches!(cell.load, Load::Open(..)))),
        ("rate_limited_share", summary.rate_limited_share()),
        ("requests_per_second", summary.requests_per_second()),
        ("total_tokens_per_second", summary.total_tokens_per_second()),
    ];
    for (key, rate) in rates {
        if let Some(rate) = rate {
            value[key] = rate.into();
        }
    }
    value
}

/// Counts among the figures.
const COUNTS: [(&str, Count); 2] =
    [("input_tokens", |record| record.input_tokens), ("output_tokens", |record| record.output_tokens)];
type Count = fn(&Record) -> Option<u64>;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        bench::plan::Workload,
        clock::{Nanos, Stamp},
    };

    fn done(target: usize, number: usize, ttft_s: f64, record: Record) -> Done {
        let record = Record { ttft_s: Some(ttft_s), client_ttft_s: Some(ttft_s + 0.001), ..record };
        let error = (record.outcome != "complete").then(|| format!("status 503: {}", number % 2));
        let (due, end, trace_id) = (Stamp::ORIGIN, Stamp::ORIGIN, String::new());
        Done { target, number, due, lag: Nanos(1_500_000), end, record, trace_id, error }
    }

    fn complete(tokens: Option<u64>) -> Record {
        let speed = tokens.map(|tokens| tokens as f64 / 2.0);
        Record {
            outcome: "complete".to_owned(),
            duration_s: Some(2.0),
            output_tokens: tokens,
            output_tokens_per_second: speed,
            end_to_end_tokens_per_second: speed,
            ..Record::default()
        }
    }

    fn plan(loads: &[Load]) -> Plan {
        let workload = Workload { name: Arc::from("10k_in_1k_out"), input_tokens: 10_000, output_tokens: 1_000 };
        let cells = loads.iter().map(|load| Cell { workload: workload.clone(), load: *load }).collect();
        Plan { cells, runs: 20, duration: None, warm_up: 1, seed: 1, cached: false }
    }

    fn two_targets() -> CellResult {
        let of = |target| {
            (1..=20).map(|number| done(target, number, 0.1 * number as f64, complete(Some(100)))).collect::<Vec<_>>()
        };
        CellResult { targets: vec![of(0), of(1)], span_s: 10.0, ..CellResult::default() }
    }

    #[test]
    fn every_line_fits_into_eighty_columns() {
        let plan = plan(&[Load::Closed(8), Load::Open(12.5, Arrivals::Poisson)]);
        let results = Results { cells: vec![two_targets(), two_targets()], stopped: false };
        let text = text(&plan, &["127.0.0.1:9000", "127.0.0.1:9001"], &results, Some(80));
        let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80 && !line.contains(" of ")).collect();
        assert!(long.is_empty(), "{long:#?}");
        assert!(text.contains("10k_in_1k_out · 12.5/s · 127.0.0.1:9001"), "{text}");
    }

    #[test]
    fn a_tail_is_the_slow_end_of_times_and_of_speeds() {
        let speeds = (1..=100).map(|number| {
            let record = Record { output_tokens_per_second: Some(f64::from(number)), ..complete(None) };
            done(0, 0, f64::from(number), record)
        });
        let result = CellResult { targets: vec![speeds.collect()], span_s: 1.0, ..CellResult::default() };
        let cell = &plan(&[Load::Closed(1)]).cells[0];
        let block = block(cell, &Summary::new(&result, 0), None);
        let row = |name: &str| {
            let line = block.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("TTFT  "), ["TTFT", "100", "50.0 s", "90.0 s", "99.0 s", "100 s", "1.98"]);
        assert_eq!(row("tokens/s  "), ["tokens/s", "100", "50.0", "10.0", "1.00", "1.00", "50.0"]);
        assert!(block.contains("client TTFT, from begin") && !block.contains("due"), "nothing is due in a closed loop");
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let all = |tokens: [Option<u64>; 2]| CellResult {
            targets: vec![tokens.into_iter().map(|tokens| done(0, 0, 0.1, complete(tokens))).collect()],
            span_s: 4.0,
            ..CellResult::default()
        };
        let result = all([Some(100), Some(20)]);
        assert_eq!(Summary::new(&result, 0).total_tokens_per_second(), Some(30.0));
        let result = all([Some(100), None]);
        let summary = Summary::new(&result, 0);
        assert_eq!((summary.total_tokens_per_second(), summary.without_usage()), (None, 1));
        assert_eq!(summary.requests_per_second(), Some(0.5));
    }

    #[test]
    fn failures_are_counted_by_outcome_and_told_the_most_frequent_first() {
        let failed = |number| done(0, number, 0.1, Record { outcome: "upstream_5xx".to_owned(), ..Record::default() });
        let mut all: Vec<Done> = (0..3).map(failed).collect();
        all.push(done(0, 9, 0.1, complete(Some(5))));
        let result = CellResult { targets: vec![all], span_s: 1.0, ..CellResult::default() };
        let cell = &plan(&[Load::Closed(1)]).cells[0];
        let notes = notes(cell, &Summary::new(&result, 0));
        assert_eq!(
            notes[0],
            "1 of 4 complete, 3 upstream_5xx · 429 share 0 % · 1.00 requests/s · 5.00 tokens/s in total"
        );
        assert_eq!(notes[notes.len() - 2..], ["2 × status 503: 0", "1 × status 503: 1"]);
    }

    #[test]
    fn what_percentiles_do_not_know_is_said_beside_them() {
        let silent = || Record { ttft_s: None, client_ttft_s: None, ..Record::default() };
        let mut all: Vec<Done> = (0..7).map(|number| done(0, number, 0.0985, complete(Some(5)))).collect();
        for record in [silent(), silent(), Record { outcome: "complete".to_owned(), ..silent() }] {
            all.push(Done { record, ..all[0].clone() });
        }
        let result = CellResult { targets: vec![all], span_s: 1.0, sized: vec![true], ..CellResult::default() };
        let of = |load| notes(&plan(&[load]).cells[0], &Summary::new(&result, 0)).join("\n");
        let open = of(Load::Open(5.0, Arrivals::Even));
        assert!(
            open.contains(
                "3 of 10 had no first output, and TTFT's percentiles know nothing of them; 1 of them are complete answers"
            ),
            "{open}"
        );
        // 1.5 of 99.5 ms.
        assert!(
            open.contains("begun late by this program itself: p50 1.50 ms, at most 1.50 ms; 1.5 % of the client TTFT"),
            "{open}"
        );
        assert!(open.contains("429 share 0 %") && !open.contains("made to size"), "{open}");
        assert!(!of(Load::Closed(3)).contains("late"), "nothing is due");
    }
}
