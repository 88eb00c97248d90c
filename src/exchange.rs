//! The measuring machine of one exchange: told what happened and when, it keeps the marks, reads the response, and ends
//! as one [`Observation`]. No I/O and no clock, so a test drives it stamp by stamp.

mod turn;

use std::sync::{Arc, PoisonError};

use http::{Method, StatusCode, response::Parts};

use crate::{
    clock::{Nanos, Stamp},
    dialect::{Dialect, Endpoint, Kinds, Observer, Signal, limits::rate_limits},
    observation::{Limit, Observation, Outcome},
    record::{Exemplar, Marked, Pair, Recorder, Started, UpstreamHandles},
    timeline::{Cadence, Interval, Waits},
    upload::Upload,
    upstream::Dialled,
};

/// One exchange under way.
#[derive(Debug)]
pub struct Exchange {
    seen: Box<Observation>,
    recorder: Arc<Recorder>,
    upstream: Option<Arc<UpstreamHandles>>,
    upload: Arc<Upload>,
    exemplar: Exemplar,
    pair: Option<Arc<Pair>>,
    observer: Option<Observer>,
    undelivered: Undelivered,
    output_seen: Kinds,
    marked: Marked,
    answered: Option<Answered>,
    dialled: Option<Dialled>,
    newest_read: Option<Stamp>,
    /// Nobody saw a client ask, or can say what left for it: no mark of its side is set.
    clientless: bool,
}

/// The gateway answered by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Why, as an outcome.
    pub outcome: Outcome,
    /// The limit behind it, if one was.
    pub limit: Option<Limit>,
    /// The status it gave.
    pub status: u16,
}

/// Why an exchange is over. The first cause wins; a dialect's own end seen before it makes it complete all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The response ended as its framing says.
    Ended,
    /// The upstream cut it.
    Reset,
    /// A limit fired.
    TimedOut(Limit),
    /// The client left.
    ClientGone,
    /// The shutdown deadline cut it.
    Drained,
    /// Our own fault.
    Panicked,
}

/// What the way up looked like when the response head (or the end) came.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Departure of the request's first byte.
    pub first: Option<Stamp>,
    /// Departure of its last byte; absent if it never left.
    pub last: Option<Stamp>,
    /// Time an upstream write was pending or a 100 was awaited since the lease.
    pub upload: Nanos,
    /// All of the upstream connection's pending time in this exchange.
    pub stalled: Nanos,
    /// Stalls among it.
    pub stalls: u32,
}

impl Exchange {
    /// An exchange that has begun; `seen` holds what its request's head says, `marked` the workloads its headers fit.
    pub fn begin(
        seen: Observation,
        recorder: Arc<Recorder>,
        upstream: Option<Arc<UpstreamHandles>>,
        upload: Arc<Upload>,
        marked: Marked,
    ) -> Box<Self> {
        let exemplar = Exemplar { id: seen.id, trace_id: seen.trace_id.as_deref().map(Arc::from) };
        Box::new(Self {
            seen: Box::new(seen),
            recorder,
            upstream,
            upload,
            exemplar,
            pair: None,
            observer: None,
            undelivered: Undelivered::none(),
            output_seen: Kinds::NONE,
            marked,
            answered: None,
            dialled: None,
            newest_read: None,
            clientless: false,
        })
    }

    /// What is known so far, for whoever must fill in a plain fact.
    pub fn seen(&mut self) -> &mut Observation {
        &mut self.seen
    }

    /// The same, to look at.
    pub fn so_far(&self) -> &Observation {
        &self.seen
    }

    /// What happens on the request's way.
    pub const fn upload(&self) -> &Arc<Upload> {
        &self.upload
    }

    /// Another attempt begins: its marks replace the earlier one's. `dialled` tells where its dialling stands, if a connection
    /// is not at hand.
    pub fn attempt(&mut self, lease_wanted: Stamp, dialled: Option<&Dialled>) {
        self.dialled = dialled.cloned();
        self.seen.attempts += 1;
        self.seen.flags.retried = self.seen.attempts > 1;
        let timeline = &mut self.seen.timeline;
        timeline.lease_wanted = Some(lease_wanted);
        timeline.lease_got = None;
        (timeline.dns, timeline.tcp, timeline.tls) = (None, None, None);
        // HTTP/2 may have handed over what never left.
        (timeline.sent_first, timeline.sent_last) = (None, None);
        timeline.waits = Waits::default();
    }

    /// A connection is there; it was dialled by this exchange or not.
    pub fn leased(&mut self, lease_got: Stamp, reused: bool, dialled: bool) {
        self.seen.timeline.lease_got = Some(lease_got);
        self.seen.connection.reused = Some(reused);
        if !dialled {
            self.dialled = None;
        }
        self.take_dialled(lease_got);
        let timeline = &self.seen.timeline;
        if let (Some(upstream), Some(wanted)) = (&self.upstream, timeline.lease_wanted) {
            let spans = [timeline.dns, timeline.tcp, timeline.tls].map(|phase| phase.map(Interval::span));
            let dialling = spans.iter().flatten().fold(Nanos::ZERO, |sum, span| sum + *span);
            upstream.lease(reused, spans[0], spans[1], spans[2], Some(lease_got.since(wanted).less(dialling)));
        }
    }

    /// What follows is a byte tunnel.
    pub fn tunnel(&mut self) {
        self.seen.endpoint = Endpoint::Tunnel;
        self.seen.stream = false;
        self.observer = None;
        self.upload.tunnelled();
    }

    /// What the tunnel carried: up to the upstream, down to the client.
    pub fn tunnelled(&mut self, up: u64, down: u64) {
        self.upload.add(up);
        self.seen.response_bytes = down;
        if let Some(pair) = &self.pair {
            pair.tunnelled(down);
        }
    }

    fn take_dialled(&mut self, until: Stamp) {
        if let Some(dialled) = self.dialled.take() {
            let mut timings = *dialled.lock().unwrap_or_else(PoisonError::into_inner);
            timings.give_up(until);
            let timeline = &mut self.seen.timeline;
            (timeline.dns, timeline.tcp, timeline.tls) = (timings.dns, timings.tcp, timings.tls);
        }
    }

    /// The request has left, or is as good as gone.
    pub fn sent(&mut self, sent: Sent) {
        let timeline = &mut self.seen.timeline;
        timeline.sent_first = sent.first;
        timeline.sent_last = sent.last;
        timeline.waits.upload = sent.upload;
        timeline.waits.upload_before_request_end = self.upload.waited_before_end().min(sent.upload);
        timeline.waits.upstream = sent.stalled;
        timeline.waits.upstream_stalls = sent.stalls;
        timeline.request_end = self.upload.ended();
    }

    /// The final response head came. Call [`Exchange::sent`] first.
    pub fn head(&mut self, arrival: Stamp, parts: &Parts, observe: Option<Dialect>) {
        self.seen.timeline.head_back = Some(arrival);
        self.seen.status = Some(parts.status.as_u16());
        // Answered while the client still sent or some of what it sent had not left.
        self.seen.flags.early_response = self.seen.timeline.sent_last.is_none();
        if self.seen.flags.early_response {
            self.seen.timeline.sent_last = self.seen.timeline.sent_first;
        }
        let mut observe = observe;
        self.upload.with_started(|started, facts| {
            self.seen.model.clone_from(&facts.model);
            if let Some(dialect) = facts.dialect {
                shown(&mut self.seen, dialect);
                observe = observe.map(|_| dialect);
            }
            self.seen.load = Some(started.load());
            if let Some(sent_last) = self.seen.timeline.sent_last {
                started.sent(sent_last);
            }
        });
        if let Some(upstream) = &self.upstream {
            let admits = parts.status.is_success();
            self.pair = Some(self.recorder.pair(upstream, self.seen.model.as_deref(), admits));
        }
        self.seen.rate_limits = rate_limits(&parts.headers);
        if let Some(pair) = &self.pair {
            pair.rate_limits(&self.seen.rate_limits);
        }
        // No body can follow, whatever the head says of one: nothing is read, and nothing will be missing.
        let bodiless = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || self.seen.method == Some(Method::HEAD);
        let observer = observe.filter(|_| !bodiless).map(|dialect| Observer::new(dialect, parts));
        self.seen.stream = observer.as_ref().is_some_and(Observer::is_stream);
        self.observer = observer;
    }

    /// One body frame from the upstream. `pending` is how long downstream writes had been pending at its arrival.
    #[inline]
    pub fn data(&mut self, arrival: Stamp, bytes: &[u8], pending: Nanos) {
        let Self { seen, pair, newest_read, .. } = self;
        let size = bytes.len() as u64;
        // The frames of one read share its stamp: with chunked framing every chunk is a frame.
        let fresh = newest_read.replace(arrival) != Some(arrival);
        seen.reads += u64::from(fresh);
        seen.response_bytes += size;
        if let Some(pair) = pair {
            pair.read(u64::from(fresh), size);
        }
        if seen.timeline.first_byte.is_none() {
            seen.timeline.first_byte = Some(arrival);
            if let (Some(pair), Some(span)) = (pair, seen.timeline.ttfb()) {
                pair.ttfb(span);
            }
        }
        let Some(observer) = &mut self.observer else { return };
        let mut batch = Batch::new(arrival, &mut self.seen, self.pair.as_deref());
        observer.read(bytes, &mut |signal| batch.event(signal));
        let said = batch.said();
        if !self.seen.stream {
            // Where the head did not say what the body is, its first byte did.
            self.seen.stream = observer.is_stream();
        }
        self.events(arrival, said, pending);
    }

    /// The upstream's body has ended as its framing says. Its last event may lack the closing blank line: then it ends
    /// here, come with the last bytes.
    pub fn response_end(&mut self, arrival: Stamp, pending: Nanos) {
        if self.seen.timeline.response_end.is_some() {
            return;
        }
        self.seen.timeline.response_end = Some(arrival);
        let Some(observer) = &mut self.observer else { return };
        let mut batch = Batch::new(arrival, &mut self.seen, self.pair.as_deref());
        observer.end(&mut |signal| batch.event(signal));
        let said = batch.said();
        self.events(arrival, said, pending);
    }

    /// Books what one frame completed.
    #[expect(
        clippy::inline_always,
        reason = "once per frame on the hot path; elsewhere at the end of a stream and in a turn"
    )]
    #[inline(always)]
    fn events(&mut self, arrival: Stamp, said: Said, pending: Nanos) {
        let seen = &mut self.seen;
        if said.events == 0 || !seen.stream {
            return;
        }
        seen.events += said.events;
        if let Some(pair) = &self.pair {
            pair.events(said.events, said.outputs, said.coalesced);
        }
        let timeline = &mut seen.timeline;
        if said.outputs > 0 {
            seen.output_events += said.outputs;
            timeline.last_output = Some(arrival);
            self.undelivered.push(arrival, said.outputs, pending);
        }
        // An answer comes with or after the first output, that with or after the first event.
        let new_kinds = self.output_seen | said.kinds;
        if timeline.first_event.is_none() || new_kinds != self.output_seen {
            self.output_seen = new_kinds;
            self.firsts(arrival, said);
        }
    }

    /// Marks what has come for the first time: the first event, the first output, the first answer, the first audio.
    #[cold]
    fn firsts(&mut self, arrival: Stamp, said: Said) {
        let Self { seen, pair, upload, exemplar, .. } = self;
        let timeline = &mut seen.timeline;
        if timeline.first_event.is_none() {
            timeline.first_event = Some(arrival);
            if let (Some(pair), Some(span)) = (&pair, timeline.first_event_time()) {
                pair.first_event(span);
            }
        }
        if said.outputs > 0 && timeline.first_output.is_none() {
            timeline.first_output = Some(arrival);
            if let Some(ttft) = timeline.ttft() {
                upload.with_started(|started, _| started.first_output(ttft));
                if let Some(pair) = &pair {
                    pair.ttft(ttft, seen.load.unwrap_or(1), exemplar);
                }
            }
        }
        if said.kinds.contains(Kinds::ANSWER) && timeline.first_answer.is_none() {
            timeline.first_answer = Some(arrival);
            if let (Some(pair), Some(span)) = (&pair, timeline.answer_ttft()) {
                pair.answer_ttft(span, exemplar);
            }
        }
        if said.kinds.contains(Kinds::AUDIO) && timeline.first_audio.is_none() {
            timeline.first_audio = Some(arrival);
            if let (Some(pair), Some(span)) = (&pair, timeline.voice_first_audio()) {
                pair.voice_first_audio(span);
            }
        }
    }

    /// Whether output events were handed on whose departure is not known yet.
    pub const fn awaits_departure(&self) -> bool {
        self.undelivered.held > 0
    }

    /// Everything handed on so far has left at `departure`, when downstream writes had been pending for `pending`.
    #[inline]
    pub fn departed(&mut self, departure: Stamp, pending: Nanos) {
        let Self { seen, pair, undelivered, exemplar, .. } = self;
        for batch in undelivered.take() {
            let waited = pending.less(batch.pending);
            let overhead = departure.since(batch.arrival).less(waited);
            let sums = &mut seen.event_overhead;
            sums.count += batch.events;
            sums.sum += Nanos(overhead.0.saturating_mul(batch.events));
            sums.max = sums.max.max(overhead);
            if let Some(pair) = &pair {
                for _ in 0..batch.events {
                    pair.overhead_event(overhead);
                }
            }
            if seen.timeline.first_output_delivered.is_none() {
                seen.timeline.first_output_delivered = Some(departure);
                seen.timeline.waits.first_output = waited;
                if let Some(pair) = &pair {
                    if let Some(span) = seen.timeline.client_ttft() {
                        pair.client_ttft(span, exemplar);
                    }
                    if let Some(span) = seen.timeline.overhead_first_output() {
                        pair.overhead_first_output(span);
                    }
                }
            }
        }
    }

    /// The client did not take bytes for so long that the upstream was not read: arrivals after it are not the provider's.
    pub fn taint(&mut self) {
        self.seen.flags.tainted = true;
    }

    /// The gateway answers by itself; what was still dialling is given up.
    pub fn answer(&mut self, now: Stamp, answered: Answered) {
        self.answered = Some(answered);
        self.seen.status = Some(answered.status);
        self.take_dialled(now);
        self.seen.timeline.request_end = self.seen.timeline.request_end.or_else(|| self.upload.ended());
    }

    /// Ends the exchange and books it.
    pub fn finish(mut self: Box<Self>, end: Stamp, cause: Cause) {
        self.seen.timeline.end = Some(end);
        self.take_dialled(end);
        if cause == Cause::Ended && self.answered.is_none() && !self.clientless {
            self.seen.timeline.delivered = Some(end);
        }
        self.seen.reasoning_seen = self.output_seen.contains(Kinds::REASONING);
        self.seen.request_bytes = self.upload.bytes();
        self.seen.timeline.request_end = self.seen.timeline.request_end.or_else(|| self.upload.ended());
        if let Some(observer) = &mut self.observer {
            self.seen.facts = observer.take_facts();
            self.seen.observer_off = observer.off();
        }
        let (started, facts) =
            self.upload.close(&self.recorder, self.upstream.as_ref(), self.seen.timeline.request_head);
        self.seen.asked_stream = facts.stream;
        if self.seen.status.is_none() || self.answered.is_some() {
            self.seen.stream = facts.stream == Some(true);
            // Else the reply was read as what was known then.
            if let Some(dialect) = facts.dialect {
                shown(&mut self.seen, dialect);
            }
        }
        if self.seen.model.is_none() {
            self.seen.model = facts.model;
        }
        self.seen.load = self.seen.load.or_else(|| started.as_ref().map(Started::load));
        let (outcome, limit) = self.outcome(cause);
        self.seen.outcome = outcome;
        self.seen.limit = limit;
        self.seen.flags.partial = matches!(outcome, Outcome::ClientGone | Outcome::Drained);
        let (input, output) = (self.seen.facts.usage.input, self.seen.output_tokens());
        self.seen.workload = self.recorder.workload(&self.marked, input, output);
        self.recorder.finish(self.upstream.as_ref(), started, self.seen);
    }

    fn outcome(&self, cause: Cause) -> (Outcome, Option<Limit>) {
        if let Some(answered) = self.answered {
            return (answered.outcome, answered.limit);
        }
        match self.seen.status {
            Some(429 | 529) => return (Outcome::RateLimited, None),
            Some(400..=499) => return (Outcome::Upstream4xx, None),
            Some(500..) => return (Outcome::Upstream5xx, None),
            _ => {}
        }
        let reads_events = self.seen.stream && self.seen.dialect != Dialect::Other && self.seen.observer_off.is_none();
        let facts = &self.seen.facts;
        if facts.error.is_some() {
            return (Outcome::ErrorEvent, None);
        }
        if facts.ended {
            return (Outcome::Complete, None);
        }
        match cause {
            Cause::Ended if reads_events && !facts.finished() => (Outcome::Truncated, None),
            Cause::Ended if self.observer.as_ref().is_some_and(Observer::is_half_read) => (Outcome::Truncated, None),
            Cause::Ended => (Outcome::Complete, None),
            Cause::Reset => (Outcome::UpstreamReset, None),
            Cause::TimedOut(limit) => (Outcome::UpstreamTimeout, Some(limit)),
            Cause::ClientGone => (Outcome::ClientGone, None),
            Cause::Drained => (Outcome::Drained, Some(Limit::Drain)),
            Cause::Panicked => (Outcome::GatewayError, None),
        }
    }
}

/// The request's body has shown which dialect it is.
fn shown(seen: &mut Observation, dialect: Dialect) {
    seen.dialect = dialect;
    if seen.endpoint == Endpoint::Other {
        seen.endpoint = dialect.endpoint();
    }
}

/// The events that one frame completes.
struct Batch<'a> {
    arrival: Stamp,
    cadence: &'a mut Cadence,
    pair: Option<&'a Pair>,
    /// Gaps no longer are the provider's.
    tainted: bool,
    /// Coalesced events before.
    coalesced: u64,
    said: Said,
}

/// What they said, all in all.
#[derive(Clone, Copy, Default)]
struct Said {
    events: u64,
    outputs: u64,
    coalesced: u64,
    kinds: Kinds,
}

impl<'a> Batch<'a> {
    fn new(arrival: Stamp, seen: &'a mut Observation, pair: Option<&'a Pair>) -> Self {
        let (tainted, coalesced) = (seen.flags.tainted, seen.cadence.coalesced());
        Self { arrival, cadence: &mut seen.cadence, pair, tainted, coalesced, said: Said::default() }
    }

    fn said(&self) -> Said {
        Said { coalesced: self.cadence.coalesced() - self.coalesced, ..self.said }
    }

    #[inline]
    fn event(&mut self, signal: Signal) {
        self.said.events += 1;
        if signal.output.is_empty() {
            return;
        }
        self.said.kinds |= signal.output;
        self.said.outputs += 1;
        let cadence = &mut *self.cadence;
        let gap = if self.tainted { cadence.unobserved(self.arrival) } else { cadence.output(self.arrival) };
        if let (Some(gap), Some(pair)) = (gap, self.pair) {
            pair.gap(gap);
        }
    }
}

/// Output events handed on and not departed yet: usually those of one read. While a write is pending more may queue
/// up; beyond the eighth batch they join the newest, whose waiting is subtracted anyway.
#[derive(Debug)]
struct Undelivered {
    held: usize,
    batches: [Waiting; 8],
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    arrival: Stamp,
    events: u64,
    pending: Nanos,
}

impl Undelivered {
    const fn none() -> Self {
        Self { held: 0, batches: [Waiting { arrival: Stamp::ORIGIN, events: 0, pending: Nanos::ZERO }; 8] }
    }

    fn push(&mut self, arrival: Stamp, events: u64, pending: Nanos) {
        let full = self.held == self.batches.len();
        if let Some(newest) = self.batches[..self.held].last_mut()
            && (newest.arrival == arrival || full)
        {
            newest.events += events;
            return;
        }
        self.batches[self.held] = Waiting { arrival, events, pending };
        self.held += 1;
    }

    fn take(&mut self) -> &[Waiting] {
        let held = std::mem::take(&mut self.held);
        &self.batches[..held]
    }
}
