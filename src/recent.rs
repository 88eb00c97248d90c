//! The last exchanges, for whoever asks the admin listener: a ring of bounded length, filled when an exchange ends.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{access_log::record_json, observation::Observation};

/// The newest exchanges. One short lock per finished exchange; what is shown is formatted by whoever asks.
#[derive(Debug)]
pub struct Recent {
    capacity: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    kept: VecDeque<Arc<Observation>>,
    /// All there ever were: the number of the next one.
    pushed: u64,
}

/// How many are taken under one lock.
const AT_ONCE: usize = 64;

impl Ring {
    /// The last of those with a number below this one, newest first, as far as they are still here.
    fn before(&self, number: u64) -> Vec<Arc<Observation>> {
        let newer = usize::try_from(self.pushed - number).unwrap_or(usize::MAX);
        self.kept.iter().rev().skip(newer).take(AT_ONCE).cloned().collect()
    }
}

impl Recent {
    /// Room for so many; with 0 nothing is kept.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ring: Mutex::new(Ring { kept: VecDeque::with_capacity(capacity), pushed: 0 }) }
    }

    /// Keeps one more, and lets the oldest go if there is no room.
    pub fn push(&self, observation: Arc<Observation>) {
        if self.capacity == 0 {
            return;
        }
        let mut ring = self.ring();
        let oldest = if ring.kept.len() == self.capacity { ring.kept.pop_front() } else { None };
        ring.kept.push_back(observation);
        ring.pushed += 1;
        drop(ring);
        // Freed outside the lock.
        drop(oldest);
    }

    /// The newest that `wanted` takes, newest first, at most `most`. Looks through the ring a few at a time, so that no
    /// worker that has finished an exchange waits for the whole of it; what is pushed meanwhile is not seen.
    pub fn newest(&self, most: usize, wanted: impl Fn(&Observation) -> bool) -> Vec<Arc<Observation>> {
        let mut found = Vec::new();
        let mut before = self.ring().pushed;
        while found.len() < most {
            let some = self.ring().before(before);
            if some.is_empty() {
                break;
            }
            before -= some.len() as u64;
            found.extend(some.into_iter().filter(|observation| wanted(observation)));
        }
        found.truncate(most);
        found
    }

    /// Records as a JSON array of objects.
    pub fn json(observations: &[Arc<Observation>]) -> String {
        let records: Vec<String> = observations.iter().map(|observation| record_json(observation)).collect();
        format!("[{}]", records.join(",\n"))
    }

    fn ring(&self) -> std::sync::MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{
        clock::Stamp,
        observation::{ExchangeId, Outcome},
        timeline::Timeline,
    };

    fn push(recent: &Recent, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            let timeline = Timeline::begin(Stamp::ORIGIN);
            let exchange = Observation::begin(ExchangeId(id), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete);
            recent.push(Arc::new(exchange));
        }
    }

    fn ids(found: &[Arc<Observation>]) -> Vec<u64> {
        found.iter().map(|observation| observation.id.0).collect()
    }

    #[test]
    fn the_ring_keeps_the_newest_and_gives_them_newest_first() {
        let recent = Recent::new(200);
        assert!(recent.newest(10, |_| true).is_empty());
        push(&recent, 1..=1_000);
        let all: Vec<u64> = (801..=1_000).rev().collect();
        assert_eq!(ids(&recent.newest(1_000, |_| true)), all);
        assert_eq!(ids(&recent.newest(70, |_| true)), all[..70]);
        assert_eq!(ids(&recent.newest(2, |observation| observation.id.0 % 100 == 0)), [1_000, 900]);
        assert!(recent.newest(0, |_| true).is_empty());
    }

    #[test]
    fn what_ends_while_it_is_looked_through_is_neither_seen_nor_makes_anything_seen_twice() {
        let recent = Recent::new(200);
        push(&recent, 1..=200);
        let looked = std::cell::Cell::new(0);
        let found = recent.newest(1_000, |observation| {
            looked.set(looked.get() + 1);
            if looked.get() % 64 == 1 {
                push(&recent, observation.id.0 * 1_000..=observation.id.0 * 1_000 + 9);
            }
            true
        });
        // Of 200, 64 are taken each time, and ten of the oldest pushed out before the second and the third.
        assert_eq!(ids(&found), (21..=200).rev().collect::<Vec<_>>());
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let recent = Recent::new(0);
        push(&recent, 1..=3);
        assert!(recent.newest(10, |_| true).is_empty());
    }
}
