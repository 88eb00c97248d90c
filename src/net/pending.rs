//! How long a connection's writes were pending: in all, up to any stamp of the near past, and how often too long.
//!
//! Marks are looked at late: a frame that arrived while a write was pending is seen when that write has gone through.
//! What was pending *until the frame's arrival* is then a question about the past, so the last few spans are kept.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use crate::{
    clock::{AtomicStamp, Nanos, Stamp},
    timeline::Interval,
};

/// A pending write longer than this is a stall.
pub const STALL: Nanos = Nanos(10_000_000);

/// Spans remembered. A client that drains a full buffer bit by bit makes more of them while a frame lies in the kernel and
/// waits for its turn; those before the last ones follow close on each other then, and are remembered as one.
const REMEMBERED: usize = 16;

/// Spans this far apart at most follow close on each other.
const CLOSE: Nanos = Nanos(1_000_000);

/// The pending writes of one connection. One writer. The lock is for questions about the time before the last span's
/// end only: most connections never block, and those that did are asked about what came after.
#[derive(Debug, Default)]
pub(super) struct Pending {
    blocked: AtomicBool,
    /// End of the last span, and how long all spans were until then.
    ended: AtomicStamp,
    total: AtomicU64,
    stalls: AtomicU32,
    spans: Mutex<Spans>,
}

#[derive(Debug, Default)]
struct Spans {
    since: Option<Stamp>,
    total: Nanos,
    last: VecDeque<Interval>,
}

impl Pending {
    /// A write was not taken at `now`.
    pub(super) fn blocked(&self, now: Stamp) {
        self.spans().since.get_or_insert(now);
        self.blocked.store(true, Ordering::Release);
    }

    /// A write was taken (or failed) at `now`: if one was pending, its time is booked.
    pub(super) fn unblocked(&self, now: Stamp) {
        if !self.is_blocked() {
            return;
        }
        let mut spans = self.spans();
        let Some(start) = spans.since.take() else { return };
        let span = Interval { start, end: now };
        spans.total += span.span();
        // In this order: who sees that nothing is blocked sees the total, and the end that tells whether it fits.
        self.total.store(spans.total.0, Ordering::Release);
        self.ended.store(Some(now));
        self.blocked.store(false, Ordering::Release);
        spans.remember(span);
        if span.span() > STALL {
            self.stalls.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A write is pending now.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    /// How long writes were pending, all in all, up to `until`.
    #[inline]
    pub(super) fn until(&self, until: Stamp) -> Nanos {
        if !self.is_blocked() {
            let total = Nanos(self.total.load(Ordering::Acquire));
            if self.ended.load().is_none_or(|ended| ended <= until) {
                return total;
            }
        }
        self.looked_up(until)
    }

    #[cold]
    fn looked_up(&self, until: Stamp) -> Nanos {
        let spans = self.spans();
        let current = spans.since.map_or(Nanos::ZERO, |since| until.since(since));
        let later = spans.last.iter().map(|span| span.end.since(span.start.max(until)));
        later.fold(spans.total, Nanos::less) + current
    }

    /// Spans longer than [`STALL`].
    pub(super) fn stalls(&self) -> u32 {
        self.stalls.load(Ordering::Acquire)
    }

    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spans {
    fn remember(&mut self, span: Interval) {
        if self.last.len() == REMEMBERED
            && let Some(oldest) = self.last.pop_front()
            && let Some(next) = self.last.front_mut()
            && next.start.since(oldest.end) <= CLOSE
        {
            // As long as both, and ended with the later one: it began too late by the pause between.
            next.start = next.start.minus(oldest.span());
        }
        self.last.push_back(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Stamp {
        Stamp::from_nanos(nanos).unwrap()
    }

    fn pended(spans: &[(u64, u64)]) -> Pending {
        let pending = Pending::default();
        for (since, until) in spans {
            pending.blocked(at(*since));
            pending.unblocked(at(*until));
        }
        pending
    }

    #[test]
    fn nothing_pending_is_no_time() {
        let pending = Pending::default();
        pending.unblocked(at(5));
        assert_eq!((pending.until(at(9)), pending.stalls(), pending.is_blocked()), (Nanos::ZERO, 0, false));
    }

    #[test]
    fn the_past_is_cut_where_it_is_asked_for() {
        let pending = pended(&[(100, 150), (200, 300)]);
        let asked = [(50, 0), (100, 0), (120, 20), (150, 50), (199, 50), (250, 100), (300, 150), (900, 150)];
        for (until, expected) in asked {
            assert_eq!(pending.until(at(until)), Nanos(expected), "until {until}");
        }
    }

    #[test]
    fn a_write_still_pending_counts_up_to_the_stamp() {
        let pending = pended(&[(100, 150)]);
        pending.blocked(at(200));
        pending.blocked(at(210));
        assert!(pending.is_blocked());
        assert_eq!(pending.until(at(120)), Nanos(20));
        assert_eq!(pending.until(at(230)), Nanos(80), "since the first refusal");
    }

    #[test]
    fn only_spans_above_the_bound_are_stalls() {
        let bound = STALL.0;
        assert_eq!(pended(&[(1, 1 + bound)]).stalls(), 0);
        assert_eq!(pended(&[(1, 2 + bound), (3 * bound, 9 * bound)]).stalls(), 2);
    }

    /// A slow client takes a little every 10 ms, a hundred times, each time after a pause of ours.
    #[test]
    fn a_client_that_drains_bit_by_bit_is_remembered_from_its_beginning() {
        let (step, ours) = (10_000_000, 20_000);
        let spans: Vec<_> = (0..100).map(|at| (1 + at * step, (at + 1) * step - ours)).collect();
        let pending = pended(&spans);
        for steps in [0, 1, 50, 84, 85, 99] {
            let before = pending.until(at(1 + steps * step));
            let truly = steps * (step - ours - 1);
            let pauses = 100_u64.saturating_sub(steps).saturating_sub(15) * (ours + 1);
            assert!(before.0.abs_diff(truly) <= pauses, "{steps} steps: {before:?} for {truly}");
        }
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let second = 1_000_000_000;
        let pending = pended(&(1..=20).map(|at| (at * second, at * second + 5)).collect::<Vec<_>>());
        assert_eq!(pending.until(at(19 * second + 9)), Nanos(19 * 5));
        assert_eq!(pending.until(at(1)), Nanos(4 * 5), "as if they had come before");
    }

    proptest::proptest! {
        #[test]
        fn the_last_spans_are_exact(steps in proptest::collection::vec((1_u64..50, 1_u64..50), 1..15), until in 1_u64..1500) {
            let mut now = 1;
            let spans: Vec<_> = steps.iter().map(|(pause, length)| {
                let since = now + pause;
                now = since + length;
                (since, now)
            }).collect();
            let expected: u64 = spans.iter().map(|(since, end)| until.min(*end).saturating_sub(*since)).sum();
            proptest::prop_assert_eq!(pended(&spans).until(at(until)), Nanos(expected));
        }
    }
}
