//! Two targets asked in turns: the ratio of each number, with its confidence interval.

use serde_json::Value;

use super::{client::Target, load::Results, plan::Plan};

/// The table of ratios, second target over first, one block per cell. `width` is the terminal's, if there is one.
pub(super) fn table(_plan: &Plan, _targets: &[Target], _results: &Results, _width: Option<u16>) -> String {
    String::new()
}

/// The same for `--json`: the value of the key `compare`, one element per cell.
pub(super) fn json(_plan: &Plan, _targets: &[Target], _results: &Results) -> Value {
    Value::Array(Vec::new())
}
