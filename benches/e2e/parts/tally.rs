//! What the load saw: samples and counts, told as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The most samples of a kind that are kept; what comes behind is counted only.
const MOST: usize = 8_000_000;
/// Kinds of faults that are told apart.
const KINDS: usize = 8;

/// Durations in nanoseconds, all of them: percentiles are exact, and so are differences of percentiles. One may be below
/// zero, where a stamp and a reading are of the same moment.
#[derive(Default)]
pub(crate) struct Samples(Vec<i64>);

impl Samples {
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        if self.0.len() < MOST {
            self.0.push(to.cast_signed().wrapping_sub(from.cast_signed()));
        }
    }

    /// In microseconds.
    fn told(&mut self) -> Value {
        self.0.sort_unstable();
        let at = |q: f64| {
            let rank = (q * self.0.len() as f64).ceil() as usize;
            self.0.get(rank.saturating_sub(1)).map(|nanoseconds| *nanoseconds as f64 / 1000.0)
        };
        json!({ "n": self.0.len(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": at(1.0) })
    }
}

#[derive(Default)]
pub(crate) struct Tally {
    /// Arrival of an event, less the stamp in it.
    pub(crate) event_delay: Samples,
    /// Arrival of the first token, less when the request was due.
    pub(crate) ttft: Samples,
    /// Arrival of a plain answer's last byte, less when the request was due.
    pub(crate) latency: Samples,
    pub(crate) events: u64,
    pub(crate) merged: u64,
    pub(crate) requests: u64,
    pub(crate) window: f64,
    pub(crate) active: usize,
    pub(crate) exact: u64,
    pub(crate) inexact: u64,
    pub(crate) altered_requests: u64,
    pub(crate) cut: u64,
    pub(crate) errors: u64,
    overdue: u64,
    faults: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn error(&mut self, what: String) {
        self.errors += 1;
        self.fault(what);
    }

    /// Late beyond all measure: what a machine that can't carry the load comes to, and a proxy that forgets a stream.
    pub(crate) fn overdue(&mut self, what: &str) {
        self.overdue += 1;
        self.fault(what.to_owned());
    }

    pub(crate) fn inexact(&mut self, what: String) {
        self.inexact += 1;
        self.fault(what);
    }

    fn fault(&mut self, what: String) {
        if self.faults.len() < KINDS || self.faults.contains_key(&what) {
            *self.faults.entry(what).or_default() += 1;
        }
    }

    pub(crate) fn told(mut self) -> Value {
        json!({
            "event_delay_us": self.event_delay.told(),
            "ttft_us": self.ttft.told(),
            "latency_us": self.latency.told(),
            "events": self.events,
            "merged": self.merged,
            "requests": self.requests,
            "window_s": self.window,
            "active": self.active,
            "exact": self.exact,
            "inexact": self.inexact,
            "altered_requests": self.altered_requests,
            "cut": self.cut,
            "errors": self.errors,
            "overdue": self.overdue,
            "faults": self.faults,
        })
    }
}
