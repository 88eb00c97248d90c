//! Two targets asked in turns, A (`--url`) beside B (`--compare`): what they differ by in each number, and what the
//! samples allow to say of it.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    client::Target,
    load::{CellResult, Done, Results},
    plan::{Cell, Load, Plan},
    table::{NUMBERS, Number, load_json},
};
use crate::figures::{
    ABSENT, Sample, least, percent,
    ratio::{self, Interval},
    signed_time, significant, table as text_table, time,
};

/// Columns a terminal must have for intervals to stand beside their values.
const WIDE: u16 = 100;

/// The table of ratios, first target over second, one block per cell. `width` is the terminal's, if there is one.
pub(super) fn table(plan: &Plan, targets: &[Target], results: &Results, width: Option<u16>) -> String {
    let [a, b] = targets else { return String::new() };
    let name = |target: &Target| format!("{} ({})", target.name, target.model);
    let mut text = format!("A is {}, B is {}.\n", name(a), name(b));
    for (cell, result) in plan.cells.iter().zip(&results.cells) {
        // Formatting into a string does not fail.
        let _ = write!(text, "\n{}", block(cell, &Compared::of(cell, result), width));
    }
    text
}

/// The same for `--json`: the value of the key `compare`, one element per cell.
pub(super) fn json(plan: &Plan, targets: &[Target], results: &Results) -> Value {
    let [a, b] = targets else { return Value::Array(Vec::new()) };
    let cells = plan.cells.iter().zip(&results.cells).map(|(cell, result)| {
        let compared = Compared::of(cell, result);
        let side = |target: &Target, side: &Side| {
            json!({
                "target": &*target.name, "model": target.model, "requests": side.requests, "errors": side.errors,
                "rate_limited": side.rate_limited,
            })
        };
        json!({
            "workload": &*cell.workload.name,
            "load": load_json(cell.load),
            "a": side(a, &compared.a),
            "b": side(b, &compared.b),
            "numbers": compared.rows,
            "words": compared.words(),
        })
    });
    Value::Array(cells.collect())
}

/// One cell's two samples, beside each other.
struct Compared {
    a: Side,
    b: Side,
    rows: Vec<Row>,
}

/// What became of one target's requests.
struct Side {
    requests: usize,
    errors: usize,
    rate_limited: usize,
}

/// One quantile of one number.
#[derive(Serialize)]
struct Row {
    #[serde(rename = "number", serialize_with = "key")]
    number: &'static Number,
    quantile: f64,
    n_a: usize,
    n_b: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<f64>,
    /// A / B, if both are there and B is not zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// With a 95 % confidence interval, from so many values on that there can be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_interval: Option<Interval>,
    /// A − B, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference_interval: Option<Interval>,
    /// The median of A − B within pairs, of medians only.
    #[serde(skip_serializing_if = "Option::is_none")]
    paired_difference_interval: Option<Interval>,
    pairs: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn key<S: serde::Serializer>(number: &&'static Number, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(number.key)
}

impl Side {
    fn of(done: &[Done]) -> Self {
        Self {
            requests: done.len(),
            errors: done.iter().filter(|done| done.error.is_some()).count(),
            rate_limited: done.iter().filter(|done| done.record.outcome == "rate_limited").count(),
        }
    }

    /// `2 of 40 failed (5.0 %), 1 of them with 429 (2.5 % of all)`.
    fn words(&self) -> String {
        let share = |count: usize| percent(count as f64 / self.requests.max(1) as f64);
        let Self { requests, errors, rate_limited } = self;
        let (failed, limited) = (share(*errors), share(*rate_limited));
        format!("{errors} of {requests} failed ({failed}), {rate_limited} of them with 429 ({limited} of all)")
    }
}

impl Compared {
    fn of(cell: &Cell, result: &CellResult) -> Self {
        let of_target = |target: usize| result.targets.get(target).map_or(&[][..], Vec::as_slice);
        let (a, b) = (of_target(0), of_target(1));
        // In a closed loop nothing is due, and what lies before the departure is connecting and this program itself.
        let closed = matches!(cell.load, Load::Closed(_));
        let rows = NUMBERS.iter().filter(|number| !(closed && number.counts_from_due())).flat_map(|number| {
            let value = |done: &Done| (number.of)(&done.record);
            let sample = |done: &[Done]| done.iter().filter_map(value).collect::<Sample>();
            let (sample_a, sample_b) = (sample(a), sample(b));
            let mut rows = vec![Row::of(number, 0.5, &sample_a, &sample_b)];
            let pairs: Vec<_> = pairs(a, b).filter_map(|(a, b)| value(a).zip(value(b))).collect();
            rows[0].pairs = pairs.len();
            rows[0].paired_difference_interval = ratio::paired(pairs);
            if sample_a.count().min(sample_b.count()) >= least(0.99) {
                // The tail of a speed is at its low end.
                rows.push(Row::of(number, if number.speed { 0.01 } else { 0.99 }, &sample_a, &sample_b));
            }
            rows
        });
        Self { a: Side::of(a), b: Side::of(b), rows: rows.collect() }
    }

    /// What the intervals support, and no more.
    fn words(&self) -> Vec<String> {
        self.rows.iter().filter(|row| row.quantile == 0.5 && row.n_a + row.n_b > 0).map(Row::words).collect()
    }
}

/// The requests of the same number, which were sent side by side.
fn pairs<'a>(a: &'a [Done], b: &'a [Done]) -> impl Iterator<Item = (&'a Done, &'a Done)> {
    let by_number: std::collections::HashMap<usize, &Done> = b.iter().map(|done| (done.number, done)).collect();
    a.iter().filter_map(move |done| Some((done, *by_number.get(&done.number)?)))
}

impl Row {
    fn of(number: &'static Number, quantile: f64, a: &Sample, b: &Sample) -> Self {
        let compared = ratio::compare(a, b, quantile);
        let (at_a, at_b) = (a.quantile(quantile), b.quantile(quantile));
        Self {
            number,
            quantile,
            n_a: a.count(),
            n_b: b.count(),
            a: at_a,
            b: at_b,
            ratio: at_a.zip(at_b).map(|(a, b)| a / b).filter(|ratio| ratio.is_finite()),
            ratio_interval: compared.and_then(|compared| compared.ratio),
            difference: at_a.zip(at_b).map(|(a, b)| a - b),
            difference_interval: compared.map(|compared| compared.difference),
            paired_difference_interval: None,
            pairs: 0,
        }
    }

    fn cells(&self) -> Vec<String> {
        let shown = |value: Option<f64>| value.map_or_else(|| ABSENT.to_owned(), |value| self.show(value));
        let difference = |value, interval: Option<Interval>| {
            with_interval(value, interval, |value| self.show_difference(value), " … ")
        };
        vec![
            format!("{} {}", self.number.name, if self.quantile == 0.5 { "p50" } else { "p99" }),
            shown(self.a),
            shown(self.b),
            with_interval(self.ratio, self.ratio_interval, |ratio| self.show_ratio(ratio), "–"),
            difference(self.difference, self.difference_interval),
            if self.n_a == self.n_b { self.n_a.to_string() } else { format!("{}/{}", self.n_a, self.n_b) },
        ]
    }

    /// The row of the same number's differences within pairs.
    fn paired_cells(&self) -> Option<Vec<String>> {
        let interval = self.paired_difference_interval?;
        let shown = with_interval(Some(interval.estimate), Some(interval), |d| self.show_difference(d), " … ");
        let empty = String::new;
        Some(vec!["  in pairs".to_owned(), empty(), empty(), empty(), shown, self.pairs.to_string()])
    }

    fn show(&self, value: f64) -> String {
        if self.number.speed { significant(value) } else { time(value) }
    }

    fn show_difference(&self, value: f64) -> String {
        match self.number.speed {
            false => signed_time(value),
            true if value < 0.0 => format!("−{}", significant(-value)),
            true => format!("+{}", significant(value)),
        }
    }

    /// With so many decimals that the ends of the interval can be told from each other and from 1.
    fn show_ratio(&self, ratio: f64) -> String {
        let narrow = self.ratio_interval.map_or(1.0, |interval| {
            let off_one = |end: f64| if end == 1.0 { f64::INFINITY } else { (end - 1.0).abs() };
            off_one(interval.low).min(off_one(interval.high))
        });
        let decimals: i32 = (2..4).find(|decimals| narrow >= 10_f64.powi(-decimals)).unwrap_or(4);
        format!("{ratio:.*}", decimals.unsigned_abs() as usize)
    }

    /// `A's TTFT is 1.04–1.09 times B's (8.10 ms … 18.2 ms longer).`
    fn words(&self) -> String {
        let name = self.number.name;
        let Some(difference) = self.difference_interval else {
            let least = ratio::enough(self.quantile);
            return format!(
                "{name}: too few answers to compare, {} and {}; {least} of each are needed.",
                self.n_a, self.n_b
            );
        };
        let paired = self.paired_difference_interval.filter(|interval| !interval.contains(0.0));
        match (self.ratio_interval, paired) {
            (Some(ratio), _) if !ratio.contains(1.0) => {
                let by = if difference.contains(0.0) { String::new() } else { format!(" ({})", self.by(difference)) };
                format!("A's {name} is {}–{} times B's{by}.", self.show_ratio(ratio.low), self.show_ratio(ratio.high))
            }
            (None, _) if !difference.contains(0.0) => format!("A's {name} is {} than B's.", self.by(difference)),
            (_, Some(paired)) => format!(
                "A's {name} is {} than B's within pairs (n = {}); the medians alone do not show it.",
                self.by(paired),
                self.pairs
            ),
            _ => format!(
                "{name}: no difference seen at n = {} and {}; A − B lies between {} and {}.",
                self.n_a,
                self.n_b,
                self.show_difference(difference.low),
                self.show_difference(difference.high)
            ),
        }
    }

    /// `8.10 ms to 18.2 ms longer`: of an interval without zero.
    fn by(&self, interval: Interval) -> String {
        let (less, more) = if self.number.speed { ("lower", "higher") } else { ("shorter", "longer") };
        let (near, far, word) = if interval.high < 0.0 {
            (-interval.high, -interval.low, less)
        } else {
            (interval.low, interval.high, more)
        };
        format!("{} to {} {word}", self.show(near), self.show(far))
    }
}

/// `1.06 (1.04–1.09)`; without an interval the value alone.
fn with_interval(value: Option<f64>, interval: Option<Interval>, show: impl Fn(f64) -> String, to: &str) -> String {
    match (value, interval) {
        (None, _) => ABSENT.to_owned(),
        (Some(value), None) => show(value),
        (Some(value), Some(interval)) => format!("{} ({}{to}{})", show(value), show(interval.low), show(interval.high)),
    }
}

fn block(cell: &Cell, compared: &Compared, width: Option<u16>) -> String {
    let mut table = text_table(&["", "A", "B", "A / B (95 %)", "A − B (95 %)", "n"], 1..6, width);
    // An interval takes 20 columns beside its value; below it none.
    let fitted = |cells: Vec<String>| match width {
        Some(width) if width < WIDE => cells.into_iter().map(|cell| cell.replace(" (", "\n(")).collect(),
        _ => cells,
    };
    for row in &compared.rows {
        table.add_row(fitted(row.cells()));
        if let Some(cells) = row.paired_cells() {
            table.add_row(fitted(cells));
        }
    }
    let mut text = format!("{} · {}\n\n{}\n\n", cell.workload.name, cell.load, table.trim_fmt());
    let _ = writeln!(text, "A: {}. B: {}.", compared.a.words(), compared.b.words());
    if !compared.rows.iter().any(|row| row.quantile != 0.5) {
        let _ = writeln!(text, "p99 is shown from {} answers of each.", least(0.99));
    }
    let needed = ratio::enough(0.99);
    if compared.rows.iter().any(|row| row.quantile != 0.5 && row.n_a.min(row.n_b) < needed) {
        let _ = writeln!(text, "p99 has an interval from {needed} answers of each.");
    }
    for line in compared.words() {
        let _ = writeln!(text, "{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::plan::{Load, Workload},
        clock::Stamp,
        figures::Record,
    };

    fn done(target: usize, number: usize, ttft_s: f64) -> Done {
        let record = Record {
            outcome: "complete".into(),
            ttft_s: Some(ttft_s),
            duration_s: Some(1.0),
            tpot_s: Some(0.01),
            output_tokens_per_second: Some(100.0),
            ..Record::default()
        };
        let stamp = Stamp::ORIGIN;
        let lag = crate::clock::Nanos::ZERO;
        Done { target, number, due: stamp, lag, end: stamp, record, trace_id: String::new(), error: None }
    }

    fn cell() -> Cell {
        let workload = Workload { name: "1k_in_200_out".into(), input_tokens: 1_000, output_tokens: 200 };
        Cell { workload, load: Load::Closed(1) }
    }

    /// So many pairs; A's TTFT made of B's, which drifts between 0.2 and 0.3 s.
    fn compared(n: usize, a_of: impl Fn(usize, f64) -> f64) -> Compared {
        let drift = |number: usize| 0.2 + 0.1 * (number * 37 % n) as f64 / n as f64;
        let b = (0..n).map(|number| done(1, number, drift(number))).collect();
        // As they ended, which is in no order.
        let a = (0..n).rev().map(|number| done(0, number, a_of(number, drift(number)))).collect();
        Compared::of(&cell(), &CellResult { targets: vec![a, b], span_s: 1.0, ..CellResult::default() })
    }

    #[test]
    fn a_difference_is_said_as_far_as_the_interval_supports_it() {
        let longer = compared(40, |_, b| b * 1.5);
        let words = &longer.words()[0];
        let ratio = longer.rows[0].ratio_interval.unwrap();
        assert_eq!((ratio.estimate * 1e6).round(), 1.5e6);
        assert!(
            words.starts_with("A's TTFT is 1.") && words.contains(" times B's (") && words.contains("ms longer"),
            "{words}"
        );
        let shorter = &compared(40, |_, b| b / 1.5).words()[0];
        assert!(shorter.starts_with("A's TTFT is 0.") && shorter.contains("ms shorter"), "{shorter}");
    }

    #[test]
    fn what_medians_do_not_show_pairs_may() {
        let words = &compared(40, |_, b| b + 0.0002).words()[0];
        assert_eq!(
            words,
            "A's TTFT is 200 µs to 200 µs longer than B's within pairs (n = 40); the medians alone do not show it."
        );
    }

    #[test]
    fn no_difference_is_said_with_its_n_and_range() {
        let words = compared(40, |number, b| b + if number % 2 == 0 { 0.01 } else { -0.01 }).words();
        assert!(
            words[0].starts_with("TTFT: no difference seen at n = 40 and 40; A − B lies between −"),
            "{}",
            words[0]
        );
        assert_eq!(
            words[1],
            "upstream duration: no difference seen at n = 40 and 40; A − B lies between +0.00 µs and +0.00 µs."
        );
        assert_eq!(words.len(), 4, "an answer's TTFT was not observed at all: {words:?}");
    }

    #[test]
    fn too_few_are_said_to_be_too_few() {
        let few = compared(5, |_, b| b * 9.0);
        assert_eq!(few.words()[0], "TTFT: too few answers to compare, 5 and 5; 6 of each are needed.");
        assert!(few.rows[0].ratio.is_some() && few.rows[0].ratio_interval.is_none());
        let none = Compared::of(&cell(), &CellResult::default());
        assert!(none.words().is_empty() && none.rows.iter().all(|row| row.ratio.is_none()));
    }

    #[test]
    fn the_block_has_everything_beside_its_n() {
        let mut twenty = compared(20, |_, b| b + 0.1);
        (twenty.a.errors, twenty.a.rate_limited) = (2, 1);
        let text = block(&cell(), &twenty, Some(200));
        println!("{text}");
        let row = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap().to_owned();
        assert!(text.starts_with("1k_in_200_out · one at a time\n"), "{text}");
        assert!(row("TTFT p50").trim_end().ends_with("20"), "{text}");
        assert!(row("in pairs").contains("+100 ms (+100 ms … +100 ms)"), "{text}");
        assert!(row("answer TTFT").contains(ABSENT), "{text}");
        assert!(
            text.contains(
                "A: 2 of 20 failed (10.0 %), 1 of them with 429 (5.0 % of all). B: 0 of 20 failed (0 %), 0 of them with 429 (0 % of all)."
            )
        );
        assert!(text.contains("p99 is shown from 100 answers of each.") && !text.contains("TTFT p99"));

        let narrow = block(&cell(), &twenty, Some(80));
        assert!(
            narrow.lines().take_while(|line| !line.starts_with("A: ")).all(|line| line.chars().count() <= 80),
            "{narrow}"
        );

        let hundred = block(&cell(), &compared(100, |_, b| b), None);
        assert!(hundred.contains("TTFT p99") && hundred.contains("p99 has an interval from 368"), "{hundred}");
        let many = block(&cell(), &compared(400, |_, b| b), None);
        assert!(!many.contains("p99 has an interval") && !many.contains("p99 is shown"), "{many}");
    }

    #[test]
    fn ratios_near_one_get_the_decimals_they_need() {
        let text = |low: f64, high: f64| {
            let mut row = Row::of(&NUMBERS[0], 0.5, &Sample::default(), &Sample::default());
            row.ratio_interval = Some(Interval { estimate: low, low, high });
            [low, high].map(|end| row.show_ratio(end))
        };
        assert_eq!(text(1.04, 1.09), ["1.04", "1.09"]);
        assert_eq!(text(1.0011, 1.0034), ["1.001", "1.003"]);
        assert_eq!(text(0.9996, 0.9999), ["0.9996", "0.9999"]);
        assert_eq!(text(0.5, 2.0), ["0.50", "2.00"]);
    }

    #[test]
    fn json_leaves_out_what_is_absent() {
        let rows = serde_json::to_value(compared(7, |_, b| b).rows).unwrap();
        assert_eq!(rows[0]["number"], "ttft_s");
        assert_eq!(rows[0]["ratio_interval"]["estimate"], 1.0);
        assert!(rows[0]["ratio_interval"]["low"].as_f64() <= Some(1.0));
        assert_eq!((&rows[1]["n_a"], rows[1].get("a"), rows[1].get("ratio")), (&json!(0), None, None));
    }
}
