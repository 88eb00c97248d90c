//! What a record says, or a scrape, in the words of an assertion.

use streamgauge::{
    clock::Nanos,
    observation::{Observation, STAGES},
};

/// The stages that took any time, in whole milliseconds; their sum is the wall time to the nanosecond.
pub fn stages(record: &Observation) -> Vec<(&'static str, u64)> {
    let stages = record.stages();
    let sum: u64 = stages.iter().map(|stage| stage.0).sum();
    assert_eq!(sum, record.wall().0, "the stages add up");
    STAGES.into_iter().zip(stages).filter(|(_, span)| span.0 > 0).map(|(name, span)| (name, whole_ms(span))).collect()
}

/// Milliseconds of a span that has nothing below them: under the paused clock every span is one.
pub fn whole_ms(span: Nanos) -> u64 {
    assert_eq!(span.0 % 1_000_000, 0, "{span:?} is not whole");
    span.0 / 1_000_000
}

/// The same of a span that may be absent.
pub fn ms_of(span: Option<Nanos>) -> Option<u64> {
    span.map(whole_ms)
}

/// The value of this series, named with its labels and without the prefix of all; absent if it is not exposed.
pub fn value(scrape: &str, series: &str) -> Option<f64> {
    let line = scrape.lines().find_map(|line| line.strip_prefix("streamgauge_")?.strip_prefix(series))?;
    line.trim().parse().ok()
}

/// The same of upstream `up` and model `m`, with these labels behind theirs.
pub fn of_pair(scrape: &str, family: &str, labels: &str) -> Option<f64> {
    let comma = if labels.is_empty() { "" } else { "," };
    value(scrape, &format!("{family}{{upstream=\"up\",model=\"m\"{comma}{labels}}} "))
}
