//! What is done with a cell: the few things, in one place.

use prometheus::IntCounter;

use crate::{
    clock::Nanos,
    metrics::{Child, Histogram, family::Cell},
};

/// Makes the child exist.
pub(super) fn touch<C: Cell>(child: &Child<C>) {
    child.get();
}

/// Adds, unless there is nothing to add: a counter that was never used is not exposed.
#[inline]
pub(super) fn add(cell: &Child<IntCounter>, amount: u64) {
    if amount > 0 {
        cell.get().inc_by(amount);
    }
}

pub(super) fn observe(cell: &Child<Histogram>, span: Option<Nanos>) {
    if let Some(span) = span {
        cell.get().observe(span.0);
    }
}

/// A speed as its cells count it, millionths; what is no finite number is counted and dropped.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(super) fn finite(speed: f64, measurements_dropped: &IntCounter) -> Option<u64> {
    if !speed.is_finite() {
        measurements_dropped.inc();
        return None;
    }
    Some((speed * 1e6).round() as u64)
}
