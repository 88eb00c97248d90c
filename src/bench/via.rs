//! The same requests as the gauge saw them, joined by trace id: client, gauge and provider side by side.
//!
//! The gauge remembers only its last exchanges, so its memory is read while requests run, by a thread of its own: what is
//! fetched and parsed there is in no request's way.

mod spans;
mod watch;

use std::{collections::HashMap, fmt::Write as _};

use serde_json::{Map, Value, json};

use self::spans::{BETWEEN, Between, CLOCKS, Clocks, STAGES};
pub(super) use self::watch::{Seen, Watch};
use super::{
    client::Target,
    load::{CellResult, Done, Results},
    plan::Plan,
    table::{LONGEST_WORD, load_json},
};
use crate::figures::{ABSENT, Record, Sample, signed_time, table as text_table, tame, time};

/// What client and gauge know of the same requests, by cell and target.
#[derive(Debug)]
pub(super) struct Joined<'a> {
    cells: Vec<Vec<Part<'a>>>,
    overrun: bool,
    fault: Option<String>,
}

/// One target's requests of one cell.
#[derive(Debug)]
struct Part<'a> {
    /// The client's record beside the gauge's.
    pairs: Vec<(&'a Record, Record)>,
    requests: usize,
    /// Of those not joined: had no connection.
    unreached: usize,
}

/// Lays each request's record beside the gauge's.
pub(super) fn join<'a>(results: &'a Results, mut seen: Seen) -> Joined<'a> {
    let mut parts = |cell: &'a CellResult| -> Vec<Part<'a>> {
        cell.targets.iter().map(|done| of_target(done, &mut seen.records)).collect()
    };
    let cells = results.cells.iter().map(&mut parts).collect();
    Joined { cells, overrun: seen.overrun, fault: seen.fault }
}

fn of_target<'a>(done: &'a [Done], records: &mut HashMap<String, Record>) -> Part<'a> {
    Part {
        pairs: done.iter().filter_map(|done| Some((&done.record, records.remove(&done.trace_id)?))).collect(),
        requests: done.len(),
        unreached: done.iter().filter(|done| done.record.outcome == "unreachable").count(),
    }
}

/// One row with its samples, by column.
struct Row {
    name: &'static str,
    key: &'static str,
    ends: String,
    /// Why a column of ours may be empty.
    absent: &'static str,
    columns: Vec<Option<Sample>>,
}

impl Row {
    fn cells(&self, show: impl Fn(f64) -> String) -> Vec<String> {
        let shown = |sample: &Option<Sample>| match sample {
            None => String::new(),
            Some(sample) => sample.quantile(0.5).map_or_else(|| ABSENT.to_owned(), &show),
        };
        let mut cells = vec![format!("{}: {}", self.name, self.ends)];
        cells.extend(self.columns.iter().map(shown));
        cells.push(self.counts());
        cells
    }

    /// `{name, ends, client_s: {n, p50, …}, …}`; a column that is not in this row is left out.
    fn json(&self, columns: &[&str]) -> Value {
        let mut object = Map::new();
        object.insert("name".to_owned(), self.key.into());
        object.insert("ends".to_owned(), self.ends.as_str().into());
        for (column, sample) in columns.iter().zip(&self.columns) {
            let Some(sample) = sample else { continue };
            object.insert((*column).to_owned(), json!(sample.quantiles()));
        }
        object.into()
    }

    /// `200`, or by column where they differ: `200/200/41`.
    fn counts(&self) -> String {
        let mut counts: Vec<String> = self.columns.iter().flatten().map(|sample| sample.count().to_string()).collect();
        if counts.iter().all(|count| *count == counts[0]) {
            counts.truncate(1);
        }
        counts.join("/")
    }
}

impl Part<'_> {
    fn clocks(&self) -> Vec<Row> {
        let row = |clocks: &Clocks| Row {
            name: clocks.name,
            key: clocks.key,
            ends: format!("{} → {}", clocks.from, clocks.to),
            absent: clocks.absent,
            columns: vec![
                clocks.ours.map(|of| self.clients(of)),
                clocks.ours.map(|of| self.gauges(of)),
                clocks.provider.map(|of| self.gauges(of)),
            ],
        };
        CLOCKS.iter().map(row).collect()
    }

    fn between(&self) -> Vec<Row> {
        let row = |between: &Between| {
            let values = self.pairs.iter().filter_map(|(client, gauge)| (between.of)(client, gauge));
            let columns = vec![Some(values.collect())];
            Row { name: between.name, key: between.key, ends: between.ends.to_owned(), absent: "", columns }
        };
        BETWEEN.iter().map(row).collect()
    }

    fn stages(&self) -> Vec<Row> {
        let row = |(name, ends): &(&'static str, &str)| {
            let of = |record: &Record| record.stages_s.get(*name).copied();
            let columns = vec![Some(self.clients(of)), Some(self.gauges(of))];
            Row { name, key: name, ends: (*ends).to_owned(), absent: "", columns }
        };
        STAGES.iter().map(row).collect()
    }

    fn clients(&self, of: impl Fn(&Record) -> Option<f64>) -> Sample {
        self.pairs.iter().filter_map(|(client, _)| of(client)).collect()
    }

    fn gauges(&self, of: impl Fn(&Record) -> Option<f64>) -> Sample {
        self.pairs.iter().filter_map(|(_, gauge)| of(gauge)).collect()
    }

    /// Those not joined, and why.
    fn missing(&self, overrun: bool, fault: Option<&str>) -> Vec<(usize, String)> {
        let missing = self.requests - self.pairs.len();
        let unreached = self.unreached.min(missing);
        let mut causes = vec![(unreached, "had no connection".to_owned())];
        let why = match fault {
            Some(fault) => format!("the gauge stopped answering: {fault}"),
            None if overrun => {
                "the gauge had forgotten some before they were fetched: raise [admin] recent, or ask for \
                                fewer at a time"
                    .to_owned()
            }
            None => "not among what the gauge remembers: they went another way, or [admin] recent is 0".to_owned(),
        };
        causes.push((missing - unreached, why));
        causes.retain(|(count, _)| *count > 0);
        causes
    }
}

/// The parts worth showing: of two targets the one that does not lead through the gauge is left out.
fn parts<'j, 'a>(
    plan: &'j Plan,
    targets: &'j [Target],
    joined: &'j Joined<'a>,
) -> impl Iterator<Item = (&'j super::plan::Cell, &'j Target, &'j Part<'a>)> {
    plan.cells.iter().zip(&joined.cells).flat_map(move |(cell, parts)| {
        let any = parts.iter().any(|part| !part.pairs.is_empty());
        let shown = move |(_, part): &(&Target, &Part<'_>)| part.requests > 0 && !(any && part.pairs.is_empty());
        targets.iter().zip(parts).filter(shown).map(move |(target, part)| (cell, target, part))
    })
}

/// Stage by stage: what the client saw, what the gauge saw, what the provider said. `width` is the terminal's.
pub(super) fn table(plan: &Plan, targets: &[Target], joined: &Joined<'_>, width: Option<u16>) -> String {
    let mut text = String::new();
    for (cell, target, part) in parts(plan, targets, joined) {
        let title = format!("{} · {} · {}", cell.workload.name, cell.load, target.name);
        // Formatting into a string does not fail.
        let _ = writeln!(text, "\n{title}: {} of {} requests joined", part.pairs.len(), part.requests);
        for (count, why) in part.missing(joined.overrun, joined.fault.as_deref()) {
            let _ = writeln!(text, "{count} not: {}.", tame(&why, LONGEST_WORD));
        }
        if !part.pairs.is_empty() {
            text.push_str(&block(part, width));
        }
        text.push('\n');
    }
    text
}

fn block(part: &Part<'_>, width: Option<u16>) -> String {
    let mut clocks_table =
        text_table(&["medians, by each one's clock", "client", "gauge", "provider", "n"], 1..5, width);
    let clocks = part.clocks();
    for row in &clocks {
        clocks_table.add_row(row.cells(time));
    }
    let mut between = text_table(&["medians of what lies between", "", "n"], 1..3, width);
    for row in part.between() {
        between.add_row(row.cells(signed_time));
    }
    let mut stages = text_table(&["medians of the stages", "client", "gauge", "n"], 1..4, width);
    for row in part.stages() {
        let taken = |sample: &Sample| sample.values().last().is_some_and(|most| *most > 0.0);
        if row.columns.iter().flatten().any(taken) {
            stages.add_row(row.cells(time));
        }
    }
    let mut text = format!("\n{}\n", clocks_table.trim_fmt());
    for foot in feet(&clocks) {
        let _ = writeln!(text, "{ABSENT} {foot}.");
    }
    let _ = write!(text, "\n{}\n\n{}\n", between.trim_fmt(), stages.trim_fmt());
    text.push_str(
        "Stages of one request add up to its wall time, medians need not. One that nobody\n\
         spent time in is left out. gateway_… is each one's own time.\n",
    );
    text
}

/// Why something is absent.
fn feet(rows: &[Row]) -> Vec<String> {
    let empty = |column: usize, row: &Row| row.columns[column].as_ref().is_some_and(Sample::is_empty);
    let mut feet: Vec<String> = Vec::new();
    let silent: Vec<&str> = rows.iter().filter(|row| empty(2, row)).map(|row| row.name).collect();
    if silent.len() == rows.iter().filter(|row| row.columns[2].is_some()).count() {
        feet.push("The provider reports no times of its own".to_owned());
    } else if !silent.is_empty() {
        feet.push(format!("The provider does not say: {}", silent.join(", ")));
    }
    let mut by_cause: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| empty(0, row) || empty(1, row)) {
        match by_cause.iter_mut().find(|(cause, _)| *cause == row.absent) {
            Some((_, names)) => names.push(row.name),
            None => by_cause.push((row.absent, vec![row.name])),
        }
    }
    feet.extend(by_cause.into_iter().map(|(cause, names)| format!("{}: {cause}", names.join(", "))));
    feet
}

/// The same for `--json`: the value of the key `via`, one element per cell and target.
pub(super) fn json(plan: &Plan, targets: &[Target], joined: &Joined<'_>) -> Value {
    let elements = parts(plan, targets, joined).map(|(cell, target, part)| {
        let missing = part.missing(joined.overrun, joined.fault.as_deref());
        let missing: Vec<_> = missing.into_iter().map(|(n, why)| json!({"n": n, "why": why})).collect();
        let objects = |rows: Vec<Row>, columns: &[&str]| rows.iter().map(|row| row.json(columns)).collect::<Vec<_>>();
        json!({
            "workload": &*cell.workload.name,
            "load": load_json(cell.load),
            "target": &*target.name,
            "model": target.model,
            "requests": part.requests,
            "joined": part.pairs.len(),
            "not_joined": missing,
            "clocks": objects(part.clocks(), &["client_s", "gauge_s", "provider_s"]),
            "between": objects(part.between(), &["time_s"]),
            "stages": objects(part.stages(), &["client_s", "gauge_s"]),
        })
    });
    Value::Array(elements.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Nanos, Stamp};

    /// A request that took 300 ms to its first output at the client, 250 ms at the gauge, 180 ms at the provider.
    fn records(trace_id: &str, provider: bool) -> (Record, Record) {
        let client = r#"{"outcome":"complete","ttft_s":0.3,"duration_s":1.31,"stages_s":{"first_output_wait":0.3}}"#;
        let gauge = r#"{"outcome":"complete","ttft_s":0.25,"duration_s":1.25,"client_ttft_s":0.295,
            "request_s":0.015,"overhead_s":{"request":0.001,"first_output":0.002},
            "stages_s":{"dns":0.0,"tcp":0.02,"tls":0.007,"pool_wait":0.0,"receive":0.01,"gateway_request":0.003,"first_output_wait":0.25}}"#;
        let (client, mut gauge) = (Record::parse(client).unwrap(), Record::parse(gauge).unwrap());
        gauge.trace_id = Some(trace_id.to_owned());
        if provider {
            gauge.server_reported_s =
                [("queue", 0.03), ("prefill", 0.15), ("ttft", 0.18)].map(|(k, v)| (k.to_owned(), v)).into();
        }
        (client, gauge)
    }

    fn results(clients: impl IntoIterator<Item = (String, Record)>) -> Results {
        let done = clients.into_iter().enumerate().map(|(number, (trace_id, record))| Done {
            target: 0,
            number,
            due: Stamp::ORIGIN,
            lag: Nanos::ZERO,
            end: Stamp::ORIGIN,
            record,
            trace_id,
            error: None,
        });
        Results {
            cells: vec![CellResult { targets: vec![done.collect()], span_s: 1.0, ..CellResult::default() }],
            stopped: false,
        }
    }

    /// So many requests, of which the gauge knows the first `known`.
    fn play(requests: usize, known: usize, provider: bool) -> (Results, Seen) {
        let ids: Vec<String> = (0..requests).map(|number| format!("{number:032x}")).collect();
        let results = results(ids.iter().map(|id| (id.clone(), records(id, provider).0)));
        let records = ids.iter().take(known).map(|id| (id.clone(), records(id, provider).1)).collect();
        let mut seen = Seen::default();
        seen.records = records;
        (results, seen)
    }

    fn median(rows: &[Row], name: &str, column: usize) -> Option<f64> {
        let row = rows.iter().find(|row| row.name.trim() == name).unwrap();
        row.columns[column].as_ref()?.quantile(0.5).map(|value| (value * 1e6).round() / 1e3)
    }

    #[test]
    fn each_row_has_its_clocks() {
        let (results, seen) = play(20, 20, true);
        let joined = join(&results, seen);
        let part = &joined.cells[0][0];
        let clocks = part.clocks();
        assert_eq!([0, 1, 2].map(|column| median(&clocks, "TTFT", column)), [Some(300.0), Some(250.0), Some(180.0)]);
        assert_eq!([0, 1, 2].map(|column| median(&clocks, "queue", column)), [None, None, Some(30.0)]);
        assert_eq!([0, 1, 2].map(|column| median(&clocks, "total", column)), [Some(1310.0), Some(1250.0), None]);
        assert_eq!([0, 1].map(|column| median(&clocks, "TCP", column)), [None, Some(20.0)]);
        let between = part.between();
        let ms = |name| median(&between, name, 0).unwrap();
        assert_eq!(
            (ms("client − gauge"), ms("outside server"), ms("outside server, by the client")),
            (50.0, 70.0, 120.0)
        );
        // Five of the dial's 27 ms went by while the body still came: they are no wait of the request, and not the way's.
        let parts =
            ["the way", "gauge, request", "gauge, waiting", "gauge's TTFT", "gauge, first output", "gauge, not taken"];
        assert_eq!(parts.map(ms), [20.0, 1.0, 24.0, 250.0, 2.0, 3.0]);
        assert_eq!(ms("client's TTFT"), 300.0);
    }

    #[test]
    fn what_was_not_joined_is_counted_with_its_cause() {
        let (mut results, seen) = play(20, 17, true);
        results.cells[0].targets[0][19].record.outcome = "unreachable".into();
        let joined = join(&results, seen);
        let part = &joined.cells[0][0];
        assert_eq!((part.pairs.len(), part.requests), (17, 20));
        let causes = |overrun, fault| part.missing(overrun, fault);
        assert_eq!(causes(false, None)[0], (1, "had no connection".to_owned()));
        assert_eq!(causes(false, None)[1].0, 2);
        assert!(causes(false, None)[1].1.contains("went another way"));
        assert!(causes(true, None)[1].1.contains("raise [admin] recent"));
        assert!(causes(true, Some("refused"))[1].1.ends_with("stopped answering: refused"));
        let (results, seen) = play(3, 3, true);
        assert!(join(&results, seen).cells[0][0].missing(true, None).is_empty());
    }

    #[test]
    fn the_block_says_why_something_is_absent() {
        let (results, seen) = play(4, 4, false);
        let joined = join(&results, seen);
        let text = block(&joined.cells[0][0], None);
        assert!(text.contains("– The provider reports no times of its own."), "{text}");
        assert!(text.contains("– DNS, TCP, TLS: no measured request needed this step"), "{text}");
        assert!(!text.contains("client_stall"), "nobody spent time there: {text}");
        let (results, seen) = play(4, 4, true);
        let joined = join(&results, seen);
        let text = block(&joined.cells[0][0], None);
        println!("{text}");
        assert!(text.contains("– The provider does not say: decode, total."), "{text}");
        let narrow = block(&joined.cells[0][0], Some(80));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let row = text.lines().find(|line| line.contains("TTFT: request out → first output")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[words.len() - 7..], ["300", "ms", "250", "ms", "180", "ms", "4"], "{row}");
    }

    #[test]
    fn counts_that_differ_stand_by_column() {
        let sample = |n: usize| Some((0..n).map(|_| 1.0).collect::<Sample>());
        let counts = |columns| Row { name: "", key: "", ends: String::new(), absent: "", columns }.counts();
        assert_eq!(counts(vec![sample(200), sample(200), sample(41)]), "200/200/41");
        assert_eq!(counts(vec![None, None, sample(41)]), "41");
        assert_eq!(counts(vec![sample(0), sample(0), None]), "0");
    }

    #[test]
    fn json_has_what_is_known_of_each_column() {
        let columns = vec![Some([1.0, 2.0].into_iter().collect()), Some(Sample::default()), None];
        let row = Row { name: "TTFT", key: "ttft", ends: "a → b".into(), absent: "", columns };
        let expected = json!({
            "name": "ttft", "ends": "a → b", "gauge_s": {"n": 0},
            "client_s": {"n": 2, "min": 1.0, "p50": 1.0, "max": 2.0, "mean": 1.5},
        });
        assert_eq!(row.json(&["client_s", "gauge_s", "provider_s"]), expected);
    }
}
