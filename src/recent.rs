//! The last exchanges, for whoever asks the admin listener: a ring of bounded length, filled when an exchange ends.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    access_log::record_json,
    observation::{ExchangeId, Observation},
};

/// The newest exchanges. One short lock per finished exchange; what is shown is formatted by whoever asks.
#[derive(Debug)]
pub struct Recent {
    capacity: usize,
    ring: Mutex<VecDeque<Arc<Observation>>>,
}

impl Recent {
    /// Room for so many; with 0 nothing is kept.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ring: Mutex::new(VecDeque::with_capacity(capacity)) }
    }

    /// Keeps one more, and lets the oldest go if there is no room.
    pub fn push(&self, observation: Arc<Observation>) {
        if self.capacity == 0 {
            return;
        }
        let mut ring = self.ring();
        let oldest = if ring.len() == self.capacity { ring.pop_front() } else { None };
        ring.push_back(observation);
        drop(ring);
        // Freed outside the lock.
        drop(oldest);
    }

    /// The newest that `wanted` takes, newest first, at most `most`.
    pub fn newest(&self, most: usize, wanted: impl Fn(&Observation) -> bool) -> Vec<Arc<Observation>> {
        self.ring().iter().rev().filter(|observation| wanted(observation)).take(most).cloned().collect()
    }

    /// The exchange with this id, if it is still here.
    pub fn find(&self, id: ExchangeId) -> Option<Arc<Observation>> {
        self.newest(1, |observation| observation.id == id).pop()
    }

    /// Records as a JSON array of objects.
    pub fn json(observations: &[Arc<Observation>]) -> String {
        let records: Vec<String> = observations.iter().map(|observation| record_json(observation)).collect();
        format!("[{}]", records.join(",\n"))
    }

    fn ring(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Observation>>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
