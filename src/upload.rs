//! What happens on a request's way up, shared by the tap that sees it (owned by whoever sends it on) and the
//! exchange that books it. Atomics with one writer, and one lock that is taken a handful of times per exchange.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use crate::{
    clock::{AtomicStamp, Nanos, Stamp},
    dialect::RequestFacts,
    net::ConnStats,
    record::{Recorder, Started, UpstreamHandles},
    timeline::Interval,
};

/// The marks of a request's way up.
#[derive(Debug, Default)]
pub struct Upload {
    ended: AtomicStamp,
    handed_over: AtomicStamp,
    bytes: AtomicU64,
    waited_before_end: AtomicU64,
    awaits_100: AtomicStamp,
    got_100: AtomicStamp,
    fault: AtomicU8,
    start: Mutex<Start>,
}

#[derive(Debug, Default)]
struct Start {
    facts: RequestFacts,
    started: Option<Started>,
    closed: bool,
}

/// What went wrong with a request's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadFault {
    /// The client left, or its connection broke.
    Gone = 1,
    /// Its framing was malformed.
    Malformed = 2,
    /// It was larger than allowed.
    TooLarge = 3,
}

impl Upload {
    /// Arrival of the request's last byte; absent until then.
    pub fn ended(&self) -> Option<Stamp> {
        self.ended.load()
    }

    /// When the last of the body was handed to the connection; absent until then.
    pub fn handed_over(&self) -> Option<Stamp> {
        self.handed_over.load()
    }

    /// Body bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Time upstream writes were pending or a 100 was awaited, until the request had ended; zero until then.
    pub fn waited_before_end(&self) -> Nanos {
        Nanos(self.waited_before_end.load(Ordering::Acquire))
    }

    /// Time a 100 was awaited, up to `until`.
    pub fn awaited_100(&self, until: Stamp) -> Nanos {
        self.span_of_100(until).map_or(Nanos::ZERO, Interval::span)
    }

    /// Time writes to this upstream were pending or a 100 was awaited, up to `until`. `before` is how long writes had
    /// been pending on this connection before the exchange.
    pub fn waited(&self, upstream: &ConnStats, before: Nanos, until: Stamp) -> Nanos {
        let pending = upstream.pending_until(until).less(before);
        // While the head is stuck the 100 can't come: that time is one and the same.
        let both = self
            .span_of_100(until)
            .map_or(Nanos::ZERO, |span| upstream.pending_until(span.end).less(upstream.pending_until(span.start)));
        pending + self.awaited_100(until).less(both)
    }

    fn span_of_100(&self, until: Stamp) -> Option<Interval> {
        let start = self.awaits_100.load()?;
        let end = self.got_100.load().unwrap_or(until).min(until).max(start);
        Some(Interval { start, end })
    }

    /// What went wrong with the body, if something did.
    pub fn fault(&self) -> Option<UploadFault> {
        match self.fault.load(Ordering::Acquire) {
            1 => Some(UploadFault::Gone),
            2 => Some(UploadFault::Malformed),
            3 => Some(UploadFault::TooLarge),
            _ => None,
        }
    }

    /// Body bytes came; returns how many by now.
    pub fn add(&self, bytes: u64) -> u64 {
        self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes
    }

    /// A 100 is awaited since `now`, or longer.
    pub fn await_100(&self, now: Stamp) {
        self.awaits_100.store_once(now);
    }

    /// The 100 came, or is no longer awaited.
    pub fn note_100(&self, now: Stamp) {
        self.got_100.store_once(now);
    }

    /// The body broke.
    pub fn note_fault(&self, fault: UploadFault) {
        self.fault.store(fault as u8, Ordering::Release);
    }

    /// The request has ended: arrival of its last byte, hand-over to the connection, waiting until then.
    pub fn note_end(&self, arrival: Stamp, handed_over: Stamp, waited: Nanos) {
        self.waited_before_end.store(waited.0, Ordering::Release);
        self.note_handed_over(handed_over);
        self.note_received(arrival);
    }

    /// The request's last byte has come, and is held back: [`Upload::note_handed_over`] follows.
    pub fn note_received(&self, arrival: Stamp) {
        self.ended.store_once(arrival);
    }

    /// The last of the body was handed to the connection.
    pub fn note_handed_over(&self, now: Stamp) {
        self.handed_over.store_once(now);
        if let Some(started) = &self.start().started {
            started.sent(now);
        }
    }

    /// The request's facts are known: the exchange counts as started. Once; later calls and calls after the exchange
    /// has closed do nothing.
    pub fn start_with(
        &self,
        facts: RequestFacts,
        recorder: &Recorder,
        upstream: &Arc<UpstreamHandles>,
        request_head: Stamp,
    ) {
        let mut start = self.start();
        if start.closed || start.started.is_some() {
            return;
        }
        let started = recorder.started(upstream, &facts, request_head);
        if let Some(handed_over) = self.handed_over() {
            started.sent(handed_over);
        }
        *start = Start { facts, started: Some(started), closed: false };
    }

    /// Runs `work` on the started exchange, if it has started and not closed.
    pub fn with_started(&self, work: impl FnOnce(&Started, &RequestFacts)) {
        let start = self.start();
        if let Some(started) = &start.started {
            work(started, &start.facts);
        }
    }

    /// Whether a stream may answer the request, as far as is known: not once its body has ended, and said that it wants none, or
    /// named its model and said nothing of one.
    pub fn may_stream(&self) -> bool {
        let mut wants = None;
        self.with_started(|_, facts| wants = facts.stream.or(facts.model.as_ref().map(|_| false)));
        wants != Some(false) || self.ended().is_none()
    }

    /// The exchange has become a tunnel.
    pub fn tunnelled(&self) {
        if let Some(started) = &self.start().started {
            started.tunnelled();
        }
    }

    /// Closes the books. An exchange whose model was never known starts here, so that each is counted once.
    pub fn close(
        &self,
        recorder: &Recorder,
        upstream: Option<&Arc<UpstreamHandles>>,
        request_head: Stamp,
    ) -> (Option<Started>, RequestFacts) {
        let mut start = self.start();
        start.closed = true;
        let facts = std::mem::take(&mut start.facts);
        let started = start.started.take();
        let started = started.or_else(|| upstream.map(|upstream| recorder.started(upstream, &facts, request_head)));
        (started, facts)
    }

    fn start(&self) -> MutexGuard<'_, Start> {
        self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
