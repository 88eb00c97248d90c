//! What a record says, in the words of an assertion.

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
