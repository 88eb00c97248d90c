//! `docs/report.md`: the keys it names are those that `report --format json` writes, both ways.

use std::collections::BTreeSet;

use serde_json::Value;
use streamgauge::{
    cli::{ReportArgs, ReportFormat},
    report::make,
};

use crate::{first_cells, path, read, section};

/// Objects with names of the log's own as keys.
const OPEN: [&str; 6] = ["scope.filters", "pairs.outcomes", "pairs.outcome_shares", "flags", "limits", "stamps"];
/// The same as another, which has them told.
const AGAIN: [(&str, &str); 4] = [
    ("by_load", "by_input"),
    ("by_hour", "by_input"),
    ("workloads", "by_input"),
    ("sessions.total", "sessions.longest"),
];

#[test]
fn report_md_has_every_key_of_the_json() {
    // Often enough for a p99 of something.
    let mut files = vec![path("tests/report/exchanges.jsonl"); 20];
    files.push(path("tests/report/README.md"));
    let format = ReportFormat::Json;
    let arguments = ReportArgs { files, format, output: None, upstream: None, model: None, since: None, until: None };
    let report: Value = serde_json::from_str(&make(&arguments, None).unwrap()).unwrap();
    let mut keys = BTreeSet::new();
    collect(&report, "", &mut keys);
    let page = read("docs/report.md");
    let documented: BTreeSet<String> = first_cells(section(&page, "## JSON")).into_iter().map(str::to_owned).collect();
    assert_eq!(documented, keys);
}

/// The path of every key, those of quantiles once.
fn collect(value: &Value, at: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, at, keys)),
        Value::Object(object) if object.contains_key("n") => {
            keys.extend(object.keys().map(|key| format!("*.{key}")));
        }
        Value::Object(object) if !OPEN.contains(&at) => {
            for (key, inner) in object {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                // Phases are told apart by the provider.
                let path = path
                    .strip_prefix("server_reported.phases.")
                    .map_or(path.clone(), |_| "server_reported.phases".into());
                keys.insert(path.clone());
                match AGAIN.iter().find(|(again, _)| *again == path) {
                    Some((_, told)) => collect(inner, told, keys),
                    None => collect(inner, &path, keys),
                }
            }
        }
        _ => {}
    }
}
