//! A histogram of integers (nanoseconds, millionths of tokens per second), cheap enough for every output event.
//!
//! The `prometheus` crate's own searches its bounds one by one and adds floats in a compare-and-swap loop, between two
//! counters that lead a scrape past running observations: 152 instructions for a gap of 0.1 to 30 ms among 30 bounds.
//! Each output event has two such observations. Here a table leads to the bound, the sum is an integer, and 32
//! instructions do. A scrape adds the count up from the buckets, so count and `+Inf` bucket are one number; its sum may
//! be ahead by observations that run meanwhile.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::observation::ExchangeId;

/// The bounds of a family's histograms, and a table from a value's highest bit to the first bound it may lie under.
#[derive(Debug)]
pub struct Scale {
    /// Upper bounds, inclusive and ascending.
    bounds: Box<[u64]>,
    /// By octave: how many bounds lie below all of it.
    below: [u8; 64],
}

impl Scale {
    /// A scale of these upper bounds: inclusive, ascending, 255 at most.
    pub fn new(bounds: impl IntoIterator<Item = u64>) -> Self {
        let bounds: Box<[u64]> = bounds.into_iter().take(u8::MAX.into()).collect();
        let below = std::array::from_fn(|octave| {
            // The lowest octave holds 0 as well as 1.
            let least = if octave == 0 { 0 } else { 1 << octave };
            u8::try_from(bounds.partition_point(|bound| *bound < least)).unwrap_or(u8::MAX)
        });
        Self { bounds, below }
    }

    /// The bucket of a value: how many bounds are smaller.
    #[inline]
    fn bucket(&self, value: u64) -> usize {
        let octave = (value | 1).ilog2();
        let mut index = usize::from(self.below[(octave & 63) as usize]);
        // Three steps at most: no family has more bounds in an octave.
        while self.bounds.get(index).is_some_and(|bound| *bound < value) {
            index += 1;
        }
        index
    }
}

/// What an exemplar carries.
#[derive(Clone, Debug)]
pub struct Exemplar {
    /// The exchange's id.
    pub id: ExchangeId,
    /// Its trace id, if the request had a `traceparent`.
    pub trace_id: Option<Arc<str>>,
}

/// A shared histogram: a clone is a handle to the same cells. Holds at most one exemplar per bucket, the latest.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Cells>);

#[derive(Debug)]
struct Cells {
    scale: Arc<Scale>,
    /// One more than bounds.
    buckets: Box<[AtomicU64]>,
    /// Wraps after 584 years of observed seconds; to a reader that is a counter's restart.
    sum: AtomicU64,
    /// As many as buckets where the family has exemplars, else none.
    exemplars: Box<[Slot]>,
}

/// The latest exemplar of one bucket and the value it is for.
type Slot = Mutex<Option<(u64, Exemplar)>>;

/// A histogram at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Cumulative counts by bucket; the last is the count of all.
    pub buckets: Vec<u64>,
    /// The sum, in the unit of the observations.
    pub sum: u64,
    /// Latest exemplar by bucket; empty where the family has none.
    pub exemplars: Vec<Option<(u64, Exemplar)>>,
}

impl Histogram {
    /// Empty cells on this scale.
    pub fn new(scale: &Arc<Scale>, exemplars: bool) -> Self {
        let buckets: Box<[_]> = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        let slots = if exemplars { buckets.len() } else { 0 };
        let exemplars = (0..slots).map(|_| Mutex::new(None)).collect();
        Self(Arc::new(Cells { scale: scale.clone(), buckets, sum: AtomicU64::new(0), exemplars }))
    }

    /// Counts one value. No lock, no allocation.
    pub fn observe(&self, value: u64) {
        self.bucket_of(value);
    }

    /// Counts one value that has an example to show. Gives the example up rather than wait for a reader.
    pub fn observe_with(&self, value: u64, exemplar: &Exemplar) {
        let index = self.bucket_of(value);
        let Some(slot) = self.0.exemplars.get(index) else { return };
        if let Ok(mut slot) = slot.try_lock() {
            *slot = Some((value, exemplar.clone()));
        }
    }

    #[inline]
    fn bucket_of(&self, value: u64) -> usize {
        let cells = &*self.0;
        let index = cells.scale.bucket(value);
        if let Some(bucket) = cells.buckets.get(index) {
            bucket.fetch_add(1, Relaxed);
        }
        cells.sum.fetch_add(value, Relaxed);
        index
    }

    /// What was counted so far.
    pub fn snapshot(&self) -> Snapshot {
        let mut count = 0;
        let buckets = self.0.buckets.iter().map(|bucket| {
            count += bucket.load(Relaxed);
            count
        });
        Snapshot {
            buckets: buckets.collect(),
            sum: self.0.sum.load(Relaxed),
            exemplars: self
                .0
                .exemplars
                .iter()
                .map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).clone())
                .collect(),
        }
    }
}

impl Snapshot {
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(exemplars: bool) -> Histogram {
        Histogram::new(&Arc::new(Scale::new([10, 20, 40])), exemplars)
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_it_ends() {
        let histogram = histogram(false);
        for value in [0, 10, 11, 20, 40, 41, u64::MAX / 2] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets, [2, 4, 5, 7]);
        assert_eq!(snapshot.count(), 7);
        assert_eq!(snapshot.sum, 122 + u64::MAX / 2);
        assert!(snapshot.exemplars.is_empty());
    }

    #[test]
    fn zero_lies_under_a_bound_of_zero() {
        assert_eq!([0, 1].map(|value| Scale::new([0]).bucket(value)), [0, 1]);
    }

    #[test]
    fn each_bucket_keeps_its_latest_exemplar() {
        let histogram = histogram(true);
        for (value, id) in [(5, 1), (7, 2), (100, 3)] {
            histogram.observe_with(value, &Exemplar { id: ExchangeId(id), trace_id: None });
        }
        let kept: Vec<_> = histogram.snapshot().exemplars.into_iter().map(|e| e.map(|(v, e)| (v, e.id.0))).collect();
        assert_eq!(kept, [Some((7, 2)), None, None, Some((100, 3))]);
    }

    #[test]
    fn the_count_is_the_last_bucket_while_others_observe() {
        let histogram = histogram(false);
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let histogram = histogram.clone();
                std::thread::spawn(move || (0..50_000).for_each(|value| histogram.observe(value % 50)))
            })
            .collect();
        let mut before = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let snapshot = histogram.snapshot();
            assert!(snapshot.buckets.is_sorted(), "cumulative");
            assert!(snapshot.count() >= before, "never back");
            before = snapshot.count();
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum), (100_000, 2 * 1_000 * (0..50).sum::<u64>()));
    }

    proptest::proptest! {
        #[test]
        fn every_value_lands_where_a_walk_along_the_bounds_would_put_it(
            bounds in proptest::collection::btree_set(0_u64..3_000, 0..40),
            values in proptest::collection::vec(0_u64..4_000, 1..20),
        ) {
            let scale = Scale::new(bounds.iter().copied());
            for value in values.into_iter().chain(bounds.iter().copied()).chain([u64::MAX]) {
                let naive = bounds.iter().filter(|bound| **bound < value).count();
                proptest::prop_assert_eq!(scale.bucket(value), naive);
            }
        }
    }
}
