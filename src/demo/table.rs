//! The live table: one row per upstream and model, all of it read from one scrape.

use std::fmt::Write as _;

use super::scrape::{Exposition, Quantile};
use crate::{
    figures::{ABSENT, significant, table, time},
    observation::Outcome,
};

/// Columns a terminal must have for the outcomes to stand in the row.
const WIDE: u16 = 130;

/// The table of this scrape; in fewer columns than it takes the outcomes stand below it.
pub(super) fn live(exposition: &Exposition, width: Option<u16>) -> String {
    let wide = width.is_none_or(|width| width >= WIDE);
    let head = [
        "upstream",
        "model",
        "requests",
        "in\nflight",
        "TTFT\np50",
        "TTFT\np99",
        "tokens/s\np50",
        "gap\np99",
        "overhead\np99",
        "outcomes",
    ];
    let mut table = table(if wide { &head } else { &head[..9] }, 2..9, width);
    let mut below = if wide { String::new() } else { "\n".to_owned() };
    for (upstream, model) in exposition.pairs("streamgauge_requests_total") {
        let pair = [("upstream", upstream), ("model", model)];
        let event = [("upstream", upstream), ("phase", "event")];
        let quantile = |name, q| exposition.histogram(name, &pair).quantile(q);
        let mut row = vec![
            upstream.to_owned(),
            model.to_owned(),
            exposition.sum("streamgauge_requests_total", &pair).to_string(),
            exposition.sum("streamgauge_in_flight", &pair).to_string(),
            read(quantile("streamgauge_ttft_seconds", 0.5), time),
            read(quantile("streamgauge_ttft_seconds", 0.99), time),
            read(quantile("streamgauge_output_tokens_per_second", 0.5), significant),
            read(quantile("streamgauge_inter_event_seconds", 0.99), time),
            read(exposition.histogram("streamgauge_overhead_seconds", &event).quantile(0.99), time),
        ];
        let outcomes = outcomes(exposition, &pair);
        if wide {
            row.push(outcomes);
        } else if !outcomes.is_empty() {
            // Formatting into a string does not fail.
            let _ = write!(below, "\n{upstream} {model}: {outcomes}");
        }
        table.add_row(row);
    }
    table.trim_fmt() + &below
}

/// A quantile as buckets know it; of the last bucket only the lower bound is known.
pub(super) fn read(quantile: Option<Quantile>, show: impl Fn(f64) -> String) -> String {
    match quantile {
        None => ABSENT.to_owned(),
        Some(quantile) if quantile.upto.is_infinite() => format!("> {}", show(quantile.value)),
        Some(quantile) => show(quantile.value),
    }
}

/// How many ended how, such as `412 ok · 9 429 · 3 cut`.
fn outcomes(exposition: &Exposition, pair: &[(&str, &str)]) -> String {
    let counts = exposition.sums_by("streamgauge_requests_total", "outcome", pair);
    let counted = Outcome::ALL.into_iter().filter_map(|outcome| {
        let count = counts.get(outcome.as_str()).filter(|count| **count > 0)?;
        Some(format!("{count} {}", short(outcome)))
    });
    counted.collect::<Vec<_>>().join(" · ")
}

/// An outcome in a word or two.
pub(super) const fn short(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "ok",
        Outcome::Truncated => "truncated",
        Outcome::ErrorEvent => "error event",
        Outcome::UpstreamReset => "cut",
        Outcome::Unreachable => "unreachable",
        Outcome::UpstreamTimeout => "timeout",
        Outcome::Upstream4xx => "4xx",
        Outcome::RateLimited => "429",
        Outcome::Upstream5xx => "5xx",
        Outcome::ClientGone => "client left",
        Outcome::ClientError => "client error",
        Outcome::Refused => "refused",
        Outcome::Drained => "drained",
        Outcome::GatewayError => "gateway error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
streamgauge_requests_total{upstream="gpu",model="m",endpoint="chat",stream="true",outcome="complete"} 12
streamgauge_requests_total{upstream="gpu",model="m",endpoint="chat",stream="false",outcome="complete"} 1
streamgauge_requests_total{upstream="gpu",model="m",endpoint="chat",stream="true",outcome="rate_limited"} 2
streamgauge_requests_total{upstream="gpu",model="m",endpoint="chat",stream="true",outcome="truncated"} 0
streamgauge_in_flight{upstream="gpu",model="m"} 3
streamgauge_ttft_seconds_bucket{upstream="gpu",model="m",le="0.1"} 0
streamgauge_ttft_seconds_bucket{upstream="gpu",model="m",le="0.2"} 1
streamgauge_ttft_seconds_bucket{upstream="gpu",model="m",le="+Inf"} 1
streamgauge_overhead_seconds_bucket{upstream="gpu",phase="event",le="5e-05"} 4
streamgauge_overhead_seconds_bucket{upstream="gpu",phase="event",le="+Inf"} 5
"#;

    #[test]
    fn a_row_has_what_was_observed_and_no_more() {
        let table = live(&Exposition::parse(TEXT).unwrap(), None);
        let row = table.lines().find(|line| line.contains("gpu")).unwrap();
        let cells: Vec<_> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["gpu", "m", "15", "3", "150 ms", "150 ms", "–", "–", "> 50.0 µs", "13 ok · 2 429"]);
    }

    #[test]
    fn a_narrow_terminal_gets_a_narrow_table() {
        let table = live(&Exposition::parse(TEXT).unwrap(), Some(80));
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        assert!(table.ends_with("\ngpu m: 13 ok · 2 429"), "{table}");
    }
}
