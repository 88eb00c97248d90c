//! The raw records of everything that went through, kept to be compared with what `/metrics` says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    clock::Nanos,
    dialect::Endpoint,
    figures::rank,
    observation::{Observation, Outcome},
    timeline::Timeline,
};

/// Records by upstream and model as requested. A clone is a handle to the same.
#[derive(Clone, Default, Debug)]
pub(super) struct Records(Arc<Mutex<BTreeMap<(String, String), Columns>>>);

/// The numbers of one (upstream, model): one entry per exchange that has the number, in no order.
#[derive(Clone, Default, Debug)]
pub(super) struct Columns {
    pub(super) outcomes: BTreeMap<&'static str, u64>,
    /// Nanoseconds.
    pub(super) ttft: Vec<u64>,
    /// Nanoseconds.
    pub(super) client_ttft: Vec<u64>,
    /// Millionths of tokens per second.
    pub(super) output_speed: Vec<u64>,
    /// Nanoseconds; of complete exchanges.
    pub(super) duration: Vec<u64>,
}

impl Records {
    /// Keeps one more.
    pub(super) fn add(&self, record: &Observation) {
        let key = (
            record.upstream.as_deref().unwrap_or_default().to_owned(),
            record.model.as_deref().unwrap_or_default().to_owned(),
        );
        self.lock().entry(key).or_default().add(record);
    }

    /// The numbers of one (upstream, model).
    pub(super) fn of(&self, upstream: &str, model: &str) -> Columns {
        self.lock().get(&(upstream.to_owned(), model.to_owned())).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Columns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Columns {
    fn add(&mut self, record: &Observation) {
        *self.outcomes.entry(record.outcome.as_str()).or_default() += 1;
        if record.endpoint == Endpoint::Tunnel {
            return;
        }
        let marks = record.streamed();
        let nanos = |span: Option<Nanos>| span.map(|span| span.0);
        self.ttft.extend(nanos(marks.and_then(Timeline::ttft)));
        self.client_ttft.extend(nanos(marks.and_then(Timeline::client_ttft)));
        self.output_speed.extend(record.output_speed().map(millionths));
        if record.outcome == Outcome::Complete {
            self.duration.extend(nanos(record.timeline.duration()));
        }
    }
}

/// The exact quantile of nearest rank; absent without values.
pub(super) fn quantile(values: &[u64], q: f64) -> Option<u64> {
    let rank = usize::try_from(rank(q, values.len() as u64)?).ok()?;
    let mut values = values.to_vec();
    let (_, value, _) = values.select_nth_unstable(rank - 1);
    Some(*value)
}

/// As finely as metrics count a speed.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; speeds are not negative")]
fn millionths(speed: f64) -> u64 {
    (speed * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let values = [40, 10, 30, 20];
        assert_eq!([0.0, 0.5, 0.51, 0.99].map(|q| quantile(&values, q).unwrap()), [10, 20, 30, 40]);
        assert_eq!(quantile(&[], 0.5), None);
    }
}
