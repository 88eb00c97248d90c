//! The last exchanges, for whoever asks the admin listener: a ring of bounded length, filled when an exchange ends.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use crate::{
    access_log::record_json,
    clock::Nanos,
    observation::{Observation, push_decimal},
};

/// The newest exchanges. One short lock per finished exchange; what is shown is formatted by whoever asks.
#[derive(Debug)]
pub struct Recent {
    capacity: usize,
    ring: Mutex<Ring>,
}

/// An exchange that has ended, and what its client said of it since.
#[derive(Debug)]
pub struct Remembered {
    /// The exchange, where it was observed: it is not copied when it ends.
    pub observation: Box<Observation>,
    /// By [`ClientPhase`].
    client: [OnceLock<Nanos>; 2],
}

/// What a client measures itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientPhase {
    /// From the client's request to its first token.
    Ttft,
    /// From the client's request to the end.
    Total,
}

impl ClientPhase {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ttft, Self::Total];

    /// Its name in metrics and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Total => "total",
        }
    }
}

impl Remembered {
    /// One that has just ended.
    pub fn new(observation: Box<Observation>) -> Self {
        Self { observation, client: Default::default() }
    }

    /// What the client said; absent if it has not.
    pub fn client_reported(&self, phase: ClientPhase) -> Option<Nanos> {
        self.client[phase as usize].get().copied()
    }

    /// Keeps what the client says, once. Whether it was the first time.
    pub fn report(&self, phase: ClientPhase, span: Nanos) -> bool {
        self.client[phase as usize].set(span).is_ok()
    }

    /// The record, as the access log has it, and `client_reported_s` behind it if the client said something: when the log's
    /// line was written it had not.
    pub fn json(&self) -> String {
        let mut json = record_json(&self.observation);
        let said = ClientPhase::ALL.into_iter().filter_map(|phase| Some((phase, self.client_reported(phase)?)));
        for (index, (phase, span)) in said.enumerate() {
            // Into the record's braces, or into those that the first has made there.
            json.truncate(json.len() - 1 - index.min(1));
            json.push_str(if index == 0 { ",\"client_reported_s\":{\"" } else { ",\"" });
            json.push_str(phase.as_str());
            json.push_str("\":");
            push_decimal(&mut json, span.0, 9);
            json.push_str("}}");
        }
        json
    }
}

#[derive(Debug)]
struct Ring {
    kept: VecDeque<Arc<Remembered>>,
    /// All there ever were: the number of the next one.
    pushed: u64,
}

/// How many are taken under one lock.
const AT_ONCE: usize = 64;

impl Ring {
    /// The last of those with a number below this one, newest first, as far as they are still here.
    fn before(&self, number: u64) -> Vec<Arc<Remembered>> {
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
    pub fn push(&self, remembered: Arc<Remembered>) {
        let mut ring = self.ring();
        ring.pushed += 1;
        if self.capacity == 0 {
            return;
        }
        let oldest = if ring.kept.len() == self.capacity { ring.kept.pop_front() } else { None };
        ring.kept.push_back(remembered);
        drop(ring);
        // Freed outside the lock.
        drop(oldest);
    }

    /// The newest that `wanted` takes, newest first, at most `most`. Looks through the ring a few at a time, so that no
    /// worker that has finished an exchange waits for the whole of it; what is pushed meanwhile is not seen.
    pub fn newest(&self, most: usize, wanted: impl Fn(&Remembered) -> bool) -> Vec<Arc<Remembered>> {
        self.before(self.pushed(), most, wanted)
    }

    /// How many were ever pushed.
    pub fn pushed(&self) -> u64 {
        self.ring().pushed
    }

    /// Those pushed after the first `seen` and before the `pushed`th, as far as they are still here: newest first, at most
    /// `most`.
    pub fn between(&self, seen: u64, pushed: u64, most: usize) -> Vec<Arc<Remembered>> {
        let fresh = usize::try_from(pushed.saturating_sub(seen)).unwrap_or(usize::MAX);
        self.before(pushed, most.min(fresh), |_| true)
    }

    fn before(&self, number: u64, most: usize, wanted: impl Fn(&Remembered) -> bool) -> Vec<Arc<Remembered>> {
        let mut found = Vec::new();
        let mut before = number;
        while found.len() < most {
            let some = self.ring().before(before);
            if some.is_empty() {
                break;
            }
            before -= some.len() as u64;
            found.extend(some.into_iter().filter(|exchange| wanted(exchange)));
        }
        found.truncate(most);
        found
    }

    /// Records as a JSON array of objects.
    pub fn json(exchanges: &[Arc<Remembered>]) -> String {
        let records: Vec<String> = exchanges.iter().map(|exchange| exchange.json()).collect();
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
            recent.push(Arc::new(Remembered::new(Box::new(exchange))));
        }
    }

    fn ids(found: &[Arc<Remembered>]) -> Vec<u64> {
        found.iter().map(|exchange| exchange.observation.id.0).collect()
    }

    #[test]
    fn the_ring_keeps_the_newest_and_gives_them_newest_first() {
        let recent = Recent::new(200);
        assert!(recent.newest(10, |_| true).is_empty());
        push(&recent, 1..=1_000);
        let all: Vec<u64> = (801..=1_000).rev().collect();
        assert_eq!(ids(&recent.newest(1_000, |_| true)), all);
        assert_eq!(ids(&recent.newest(70, |_| true)), all[..70]);
        assert_eq!(ids(&recent.newest(2, |exchange| exchange.observation.id.0 % 100 == 0)), [1_000, 900]);
        assert!(recent.newest(0, |_| true).is_empty());
    }

    #[test]
    fn what_is_new_since_a_look_is_had_once() {
        let recent = Recent::new(200);
        push(&recent, 1..=150);
        let seen = recent.pushed();
        assert!(recent.between(seen, recent.pushed(), 10).is_empty());
        push(&recent, 151..=153);
        let pushed = recent.pushed();
        push(&recent, 154..=154);
        assert_eq!(ids(&recent.between(seen, pushed, 10)), [153, 152, 151], "what came later is for the next look");
        assert_eq!(ids(&recent.between(seen, pushed, 2)), [153, 152]);
        assert_eq!(ids(&recent.between(pushed, recent.pushed(), 10)), [154]);
        push(&recent, 155..=1_000);
        assert_eq!(recent.between(pushed, recent.pushed(), 1_000).len(), 200, "as many as are still here");
    }

    #[test]
    fn what_ends_while_it_is_looked_through_is_neither_seen_nor_makes_anything_seen_twice() {
        let recent = Recent::new(200);
        push(&recent, 1..=200);
        let looked = std::cell::Cell::new(0);
        let found = recent.newest(1_000, |exchange| {
            looked.set(looked.get() + 1);
            if looked.get() % 64 == 1 {
                let id = exchange.observation.id.0 * 1_000;
                push(&recent, id..=id + 9);
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

    #[test]
    fn what_a_client_said_stands_behind_the_record_and_is_kept_once() {
        let recent = Recent::new(2);
        push(&recent, 1..=1);
        let [exchange] = &recent.newest(1, |_| true)[..] else { panic!("one") };
        let plain = exchange.json();
        assert_eq!(plain, record_json(&exchange.observation));
        let with = |said: &str| format!("{},\"client_reported_s\":{{{said}}}}}", &plain[..plain.len() - 1]);
        assert!(exchange.report(ClientPhase::Total, Nanos(2_500_000_000)));
        assert_eq!(exchange.json(), with("\"total\":2.5"));
        assert!(exchange.report(ClientPhase::Ttft, Nanos(250_000_001)));
        assert_eq!(exchange.json(), with("\"ttft\":0.250000001,\"total\":2.5"));
        assert!(!exchange.report(ClientPhase::Ttft, Nanos(1)), "once");
        assert_eq!(exchange.client_reported(ClientPhase::Ttft), Some(Nanos(250_000_001)));
    }
}
