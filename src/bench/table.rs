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
    figures::{ABSENT, Record, Sample, significant, table, time},
    observation::Outcome,
};

/// One number of an answer: how it is called, read and shown.
pub(super) struct Number {
    /// Its key in JSON.
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
    Number { key: "ttft_from_due_s", name: "TTFT from due", of: |record| record.client_ttft_s, speed: false },
    Number { key: "answer_ttft_s", name: "answer TTFT", of: |record| record.answer_ttft_s, speed: false },
    Number { key: "end_to_end_s", name: "end to end", of: |record| whole(record)?.duration_s, speed: false },
    Number {
        key: "end_to_end_from_due_s",
        name: "end to end from due",
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
}

impl<'a> Summary<'a> {
    /// Of this target in this cell.
    pub(super) fn new(result: &'a CellResult, target: usize) -> Self {
        Self { done: result.targets.get(target).map_or(&[], Vec::as_slice), span_s: result.span_s }
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

    /// Complete answers without an output event: empty, or no stream at all.
    fn without_output(&self) -> usize {
        self.completed().filter(|record| record.ttft_s.is_none()).count()
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

/// Different errors that are shown of one target in one cell.
const MOST_ERRORS: usize = 5;

/// All cells, one block each, and where there are several a table of them.
pub(super) fn text(plan: &Plan, targets: &[Target], results: &Results, width: Option<u16>) -> String {
    let mut text = String::new();
    let mut blocks = 0;
    for (cell, result) in plan.cells.iter().zip(&results.cells) {
        for (index, target) in targets.iter().enumerate() {
            let summary = Summary::new(result, index);
            if summary.count() == 0 {
                continue;
            }
            blocks += 1;
            let name = if targets.len() > 1 { format!(" · {}", target.name) } else { String::new() };
            // Formatting into a string does not fail.
            let _ = write!(text, "\n{} · {}{name}\n\n", cell.workload.name, cell.load);
            text.push_str(&block(cell, &summary, width));
            for note in notes(&summary) {
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
        let _ = write!(text, "\n{}\n", overview(plan, targets, results, width));
    }
    text.push_str(FOOT);
    if results.stopped {
        text.push_str("\nStopped early: what is above was measured until then.\n");
    }
    text
}

/// What the head of a table has no room for.
const FOOT: &str = "
TTFT counts from the request's departure; p99 of fewer than 100 values is the slowest one.
Of tokens/s, p90 and p99 are what 90 % and 99 % of the answers reach at the least.
";

/// The numbers of one target in one cell.
fn block(cell: &Cell, summary: &Summary<'_>, width: Option<u16>) -> String {
    let mut table = table(&["", "n", "p50", "p90", "p99", "p99/p50"], 1..6, width);
    for number in &NUMBERS {
        let sample = summary.sample(number.of);
        let name = match (cell.load, number.name.split_once(" from due")) {
            // Nothing is due in a closed loop.
            (Load::Closed(_), Some((what, _))) => format!("{what} from begin"),
            _ => number.name.to_owned(),
        };
        let show: fn(f64) -> String = if number.speed { significant } else { time };
        let cells = quantiles(&sample, number.speed).map(|value| value.map_or_else(|| ABSENT.to_owned(), show));
        let spread = spread(&sample, number.speed).map_or_else(|| ABSENT.to_owned(), significant);
        let [p50, p90, p99] = cells;
        table.add_row([name, sample.count().to_string(), p50, p90, p99, spread]);
    }
    table.trim_fmt()
}

/// The median, and what nine in ten and 99 in a hundred reach: of times at the most, of speeds at the least.
fn quantiles(sample: &Sample, speed: bool) -> [Option<f64>; 3] {
    [0.5, 0.9, 0.99].map(|q| sample.quantile(if speed { 1.0 - q } else { q }))
}

/// How much worse the tail is than the median.
fn spread(sample: &Sample, speed: bool) -> Option<f64> {
    if !speed {
        return sample.spread();
    }
    let [p50, _, tail] = quantiles(sample, true);
    tail.filter(|tail| *tail > 0.0).zip(p50).map(|(tail, p50)| p50 / tail)
}

/// What the numbers do not say by themselves.
fn notes(summary: &Summary<'_>) -> Vec<String> {
    let count = summary.count();
    let mut parts = vec![format!("{} of {count} complete", summary.complete())];
    let outcomes = summary.outcomes();
    let others = outcomes.iter().filter(|(outcome, _)| **outcome != Outcome::Complete.as_str());
    parts.extend(others.map(|(outcome, count)| format!("{count} {outcome}")));
    let mut parts = vec![parts.join(", ")];
    let refused = summary.rate_limited_share().filter(|share| *share > 0.0);
    parts.extend(refused.map(|share| format!("429 share {:.1} %", share * 100.0)));
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
    let without = summary.without_output();
    if without > 0 {
        notes.push(format!("{without} complete answers had no output event (empty, or not a stream): no TTFT of them"));
    }
    let errors = summary.errors();
    notes.extend(errors.iter().take(MOST_ERRORS).map(|(error, count)| format!("{count} × {error}")));
    if errors.len() > MOST_ERRORS {
        notes.push(format!("and {} other errors: --records has them all", errors.len() - MOST_ERRORS));
    }
    notes
}

/// A line per cell and target.
fn overview(plan: &Plan, targets: &[Target], results: &Results, width: Option<u16>) -> String {
    let head = [
        "workload",
        "load",
        "provider",
        "complete",
        "TTFT\np50",
        "TTFT\np99",
        "end to end\np50",
        "tokens/s\np50",
        "tokens/s\nin total",
    ];
    let mut table = table(&head, 3..9, width);
    let shown = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| ABSENT.to_owned(), show);
    for (cell, result) in plan.cells.iter().zip(&results.cells) {
        for (index, target) in targets.iter().enumerate() {
            let summary = Summary::new(result, index);
            let quantile = |of: fn(&Record) -> Option<f64>, q| summary.sample(of).quantile(q);
            table.add_row([
                cell.workload.name.to_string(),
                cell.load.to_string(),
                target.name.to_string(),
                format!("{}/{}", summary.complete(), summary.count()),
                shown(quantile(|record| record.ttft_s, 0.5), time),
                shown(quantile(|record| record.ttft_s, 0.99), time),
                shown(quantile(|record| whole(record)?.duration_s, 0.5), time),
                shown(quantile(|record| record.output_tokens_per_second, 0.5), significant),
                shown(summary.total_tokens_per_second(), significant),
            ]);
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
        figures.insert(number.key.to_owned(), figure(&summary.sample(number.of), number.speed));
    }
    for (key, of) in COUNTS {
        let sample = summary.sample(|record| of(record).map(|count| count as f64));
        figures.insert(key.to_owned(), figure(&sample, false));
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
        "span_s": summary.span_s,
        "held_back": held_back,
        "figures": figures,
    });
    let rates = [
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

/// `n`, quantiles, extremes and the mean; of speeds the low quantiles, which are their tail.
fn figure(sample: &Sample, speed: bool) -> Value {
    let mut figure = json!({"n": sample.count()});
    let values = sample.values();
    let quantiles: [(&str, f64); 3] =
        if speed { [("p50", 0.5), ("p10", 0.1), ("p1", 0.01)] } else { [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] };
    for (key, q) in quantiles {
        if let Some(value) = sample.quantile(q) {
            figure[key] = value.into();
        }
    }
    if let ([least, ..], [.., most]) = (values, values) {
        figure["min"] = (*least).into();
        figure["max"] = (*most).into();
        figure["mean"] = (values.iter().sum::<f64>() / values.len() as f64).into();
    }
    if let Some(spread) = sample.spread().filter(|_| !speed) {
        figure["p99_over_p50"] = spread.into();
    }
    figure
}
