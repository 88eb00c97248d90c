//! The taps: bodies that pass the very same frames and errors, read the clock, and tell the exchange.
//!
//! A body need not be polled to its end: a declared length reached, `is_end_stream`, an answer without a body all end
//! it. So the books close on whichever comes first, and dropping a tap closes them too.

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{
    sync::{Notify, watch},
    time::Sleep,
};

use crate::{
    clock::{Clock, Nanos, Stamp},
    dialect::RequestScan,
    exchange::{Cause, Exchange, Sent},
    net::{ConnStats, io::STALL},
    observation::Limit,
    record::{Recorder, UpstreamHandles},
    upload::{Upload, UploadFault},
    upstream::{Lease, Sender},
};

/// What a body fails with: an error of its inner body, or a limit of ours.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

// === the request's way up ===

/// The request's body on its way to the upstream.
pub struct RequestTap {
    inner: Incoming,
    upload: Arc<Upload>,
    scan: Option<Box<RequestScan>>,
    clock: Clock,
    recorder: Arc<Recorder>,
    handles: Arc<UpstreamHandles>,
    downstream: Arc<ConnStats>,
    request_head: Stamp,
    upstream: Option<(Arc<ConnStats>, Nanos)>,
    most: Option<u64>,
    gate: Option<Gate>,
}

/// What a [`RequestTap`] is made of.
pub struct RequestParts<'a> {
    /// The exchange's way up.
    pub upload: &'a Arc<Upload>,
    /// Looks for the model.
    pub scan: RequestScan,
    /// Where the model is told.
    pub recorder: &'a Arc<Recorder>,
    /// The upstream's handles.
    pub handles: &'a Arc<UpstreamHandles>,
    /// What the client's socket sees.
    pub downstream: &'a Arc<ConnStats>,
    /// The exchange's first mark.
    pub request_head: Stamp,
    /// The largest body that is taken.
    pub most: Option<u64>,
    /// Holds the body back until the upstream asks for it.
    pub gate: Option<Arc<Continue>>,
}

impl RequestTap {
    /// Taps a request's body. One that is empty has ended here.
    pub fn new(inner: Incoming, clock: Clock, parts: RequestParts<'_>) -> Self {
        let gate = parts.gate.map(|open| Gate { open, since: None, waiting: None });
        let mut tap = Self {
            inner,
            upload: Arc::clone(parts.upload),
            scan: Some(Box::new(parts.scan)),
            clock,
            recorder: Arc::clone(parts.recorder),
            handles: Arc::clone(parts.handles),
            downstream: Arc::clone(parts.downstream),
            request_head: parts.request_head,
            upstream: None,
            most: parts.most,
            gate,
        };
        if tap.inner.is_end_stream() {
            tap.gate = None;
            tap.ended(parts.request_head);
        }
        tap
    }

    /// The connection it will be sent on, and how long writes had been pending there.
    pub fn attach(&mut self, upstream: Arc<ConnStats>, pending: Nanos) {
        self.upstream = Some((upstream, pending));
    }

    fn ended(&mut self, arrival: Stamp) {
        if self.upload.ended().is_some() {
            return;
        }
        if let Some(mut scan) = self.scan.take()
            && let Some(facts) = scan.finish()
        {
            self.upload.start_with(facts, &self.recorder, &self.handles, self.request_head);
        }
        let pending = self
            .upstream
            .as_ref()
            .map_or(Nanos::ZERO, |(upstream, before)| upstream.pending_until(arrival).less(*before));
        self.upload.note_end(arrival, self.clock.now(), pending + self.upload.awaited_100());
    }

    fn data(&mut self, bytes: &Bytes) -> Result<Stamp, BodyError> {
        let arrival = self.downstream.arrival(bytes).unwrap_or(self.request_head);
        let total = self.upload.add(bytes.len() as u64);
        if self.most.is_some_and(|most| total > most) {
            self.upload.note_fault(UploadFault::TooLarge);
            return Err("the request's body is larger than `limits.max_request_body`".into());
        }
        if let Some(scan) = &mut self.scan
            && let Some(facts) = scan.read(bytes)
        {
            self.scan = None;
            self.upload.start_with(facts, &self.recorder, &self.handles, self.request_head);
        }
        Ok(arrival)
    }
}

impl Body for RequestTap {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Some(gate) = &mut this.gate {
            let awaited = ready!(gate.poll(cx, this.clock));
            this.upload.note_100(awaited);
            this.gate = None;
        }
        match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    let arrival = this.data(bytes)?;
                    if this.inner.is_end_stream() {
                        this.ended(arrival);
                    }
                } else {
                    let arrival = this.downstream.last_read().unwrap_or(this.request_head);
                    this.ended(arrival);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                // hyper calls malformed chunks an invalid body; everything else is the connection's end.
                let malformed = std::error::Error::source(&error)
                    .and_then(|source| source.downcast_ref::<std::io::Error>())
                    .is_some_and(|source| {
                        matches!(source.kind(), std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData)
                    });
                this.upload.note_fault(if malformed { UploadFault::Malformed } else { UploadFault::Gone });
                Poll::Ready(Some(Err(error.into())))
            }
            None => {
                let arrival = this.downstream.last_read().unwrap_or(this.request_head);
                this.ended(arrival);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A client that sent `Expect: 100-continue` waits until the upstream asks for the body: so do we, without polling
/// it (polling is what makes hyper send the client its 100).
#[derive(Debug, Default)]
pub struct Continue {
    state: AtomicU8,
    notify: Notify,
    /// A 1xx other than 100 came and was dropped: there is no way to send it on.
    pub dropped: AtomicBool,
}

const OPEN: u8 = 1;

impl Continue {
    /// The upstream asks for the body (or has answered without it).
    pub fn open(&self) {
        self.state.store(OPEN, Ordering::Release);
        self.notify.notify_waiters();
        self.notify.notify_one();
    }
}

struct Gate {
    open: Arc<Continue>,
    since: Option<Stamp>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// An upstream that knows nothing of 100 never sends one: after this the body goes all the same (RFC 9110 §10.1.1).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

impl Gate {
    fn poll(&mut self, cx: &mut Context<'_>, clock: Clock) -> Poll<Nanos> {
        let since = *self.since.get_or_insert_with(|| clock.now());
        let open = Arc::clone(&self.open);
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::pin(async move {
                while open.state.load(Ordering::Acquire) != OPEN {
                    if tokio::time::timeout(CONTINUE_PATIENCE, open.notify.notified()).await.is_err() {
                        return;
                    }
                }
            })
        });
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(clock.now().since(since))
    }
}

// === the books of one exchange ===

/// What every exchange shares with the program.
#[derive(Debug)]
pub struct Shared {
    /// Time.
    pub clock: Clock,
    /// Where exchanges are booked.
    pub recorder: Arc<Recorder>,
    cutting: watch::Sender<bool>,
    /// Exchanges under way.
    pub in_flight: AtomicUsize,
}

impl Shared {
    /// Nothing is under way yet.
    pub fn new(clock: Clock, recorder: Arc<Recorder>) -> Arc<Self> {
        Arc::new(Self { clock, recorder, cutting: watch::Sender::new(false), in_flight: AtomicUsize::new(0) })
    }

    /// The shutdown deadline has come: whatever is dropped from now on was cut by us.
    pub fn cut(&self) {
        self.cutting.send_replace(true);
    }

    /// Waits for [`Shared::cut`].
    pub async fn cut_off(&self) {
        // The sender lives as long as `self`, so this ends with the cut only.
        let _ = self.cutting.subscribe().wait_for(|cutting| *cutting).await;
    }
}

/// An exchange that is booked exactly once, whatever happens: closed in order, or dropped.
pub struct Open {
    exchange: Option<Box<Exchange>>,
    shared: Arc<Shared>,
    downstream: Arc<Downstream>,
    /// How long the client's writes had been pending, and how often stalled, before this exchange …
    before: (Nanos, u32),
    /// … and when its response ended.
    pending_at_end: Option<Nanos>,
}

/// The client's connection.
#[derive(Debug)]
pub struct Downstream {
    /// What its socket sees.
    pub stats: Arc<ConnStats>,
    /// Departure of the last response's end on it; the next exchange does not begin before.
    pub delivered: crate::clock::AtomicStamp,
    /// It carries many exchanges at once (HTTP/2), so socket stamps can't be told apart by exchange.
    pub multiplexed: OnceLock<bool>,
}

impl Downstream {
    fn multiplexed(&self) -> bool {
        self.multiplexed.get() == Some(&true)
    }
}

impl Open {
    /// Takes charge of an exchange.
    pub fn new(exchange: Box<Exchange>, shared: Arc<Shared>, downstream: Arc<Downstream>) -> Self {
        shared.in_flight.fetch_add(1, Ordering::AcqRel);
        let before = (downstream.stats.pending_until(shared.clock.now()), downstream.stats.stalls());
        Self { exchange: Some(exchange), shared, downstream, before, pending_at_end: None }
    }

    /// The exchange, while it is open.
    pub fn exchange(&mut self) -> Option<&mut Exchange> {
        self.exchange.as_deref_mut()
    }

    /// Closes the books now.
    pub fn close(mut self, cause: Cause) {
        self.close_with(None, cause);
    }

    /// The response has ended: it closes when its last byte has left, or with the connection's loss.
    pub fn close_when_departed(mut self) {
        if self.downstream.multiplexed() {
            self.close_with(None, Cause::Ended);
            return;
        }
        let stats = Arc::clone(&self.downstream.stats);
        // A connection that hung up at this very moment drops what is parked, which closes the books as well.
        stats.park(move |departure| match departure {
            Some(departure) => self.close_with(Some(departure), Cause::Ended),
            None => drop(self),
        });
    }

    fn close_with(&mut self, departure: Option<Stamp>, cause: Cause) {
        let Some(mut exchange) = self.exchange.take() else { return };
        let now = self.shared.clock.now();
        let timeline = &exchange.seen().timeline;
        let floor = timeline.response_end.unwrap_or(timeline.request_head);
        // An answer without a byte to write (or written before its body was dropped) departs no earlier than it ended.
        let end = departure.unwrap_or(now).max(floor);
        let pending = self.downstream.stats.pending_until(end);
        if cause == Cause::Ended && exchange.awaits_departure() {
            exchange.departed(end, pending);
        }
        let waits = &mut exchange.seen().timeline.waits;
        waits.client = pending.less(self.before.0);
        waits.client_stalls = self.downstream.stats.stalls().saturating_sub(self.before.1);
        waits.tail = self.pending_at_end.map_or(Nanos::ZERO, |before| pending.less(before));
        if cause == Cause::Ended {
            self.downstream.delivered.store(Some(end));
        }
        exchange.finish(end, cause);
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let cause = if std::thread::panicking() {
            Cause::Panicked
        } else if *self.shared.cutting.borrow() {
            Cause::Drained
        } else {
            Cause::ClientGone
        };
        self.close_with(None, cause);
    }
}

// === the response's way down ===

/// The response's body on its way to the client. Owns the exchange and its upstream connection.
///
/// `B` is the body it taps: hyper's in life, a scripted one in the benchmark of the hot path.
pub struct ResponseTap<B = Incoming> {
    source: Source<B>,
    open: Option<Open>,
    lease: Option<Lease<RequestTap>>,
    upstream: Option<Arc<ConnStats>>,
    flushes: u32,
    stalls: u32,
    limits: Option<Box<BodyLimits>>,
}

enum Source<B> {
    Upstream(B),
    Own(Option<Bytes>),
}

/// Limits on a response body; allocated only where one is on.
pub struct BodyLimits {
    first_byte: Option<Duration>,
    idle: Option<Duration>,
    timer: Pin<Box<Sleep>>,
    which: Limit,
    total: Option<Pin<Box<Sleep>>>,
}

impl BodyLimits {
    /// The limits of a body whose head has just come; absent if none is on.
    pub fn new(
        first_byte: Option<Duration>,
        idle: Option<Duration>,
        total_at: Option<tokio::time::Instant>,
    ) -> Option<Box<Self>> {
        if first_byte.is_none() && idle.is_none() && total_at.is_none() {
            return None;
        }
        let which = if first_byte.is_some() { Limit::FirstByte } else { Limit::Idle };
        Some(Box::new(Self {
            first_byte,
            idle,
            timer: Box::pin(tokio::time::sleep(first_byte.or(idle).unwrap_or(Duration::MAX))),
            which,
            total: total_at.map(|at| Box::pin(tokio::time::sleep_until(at))),
        }))
    }

    fn frame(&mut self) {
        self.which = Limit::Idle;
        let armed = self.first_byte.take().is_some() || self.idle.is_some();
        if armed {
            self.timer = Box::pin(tokio::time::sleep(self.idle.unwrap_or(Duration::MAX)));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Limit> {
        if let Some(total) = &mut self.total
            && total.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Limit::Total);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(self.which)
    }
}

impl<B: Body<Data = Bytes>> ResponseTap<B> {
    /// Taps an upstream's response, which comes over the connection with these `stats`. One without a body has ended
    /// here. The lease goes back to its pool once the body has ended.
    pub fn new(
        inner: B,
        open: Open,
        stats: Arc<ConnStats>,
        lease: Option<Lease<RequestTap>>,
        limits: Option<Box<BodyLimits>>,
    ) -> Self {
        let client = &open.downstream.stats;
        let mut tap = Self {
            flushes: client.flushes(),
            stalls: client.stalls(),
            upstream: Some(stats),
            source: Source::Upstream(inner),
            open: Some(open),
            lease,
            limits,
        };
        if tap.has_ended() {
            let head_back = tap.exchange().and_then(|exchange| exchange.seen().timeline.head_back);
            tap.ended(head_back);
        }
        tap
    }

    /// An answer of the gateway's own.
    pub fn own(body: Bytes, open: Option<Open>) -> Self {
        if let Some(open) = open {
            open.close_when_departed();
        }
        let source = Source::Own(Some(body).filter(|body| !body.is_empty()));
        Self { source, open: None, lease: None, upstream: None, flushes: 0, stalls: 0, limits: None }
    }

    fn exchange(&mut self) -> Option<&mut Exchange> {
        self.open.as_mut().and_then(Open::exchange)
    }

    fn has_ended(&self) -> bool {
        match &self.source {
            Source::Upstream(inner) => inner.is_end_stream(),
            Source::Own(body) => body.is_none(),
        }
    }

    /// What was handed on has left if a flush has completed since: hyper polls the next frame only after it flushed.
    fn settle(&mut self) {
        let Some(open) = &mut self.open else { return };
        let stats = &open.downstream.stats;
        let flushes = stats.flushes();
        if flushes == self.flushes {
            return;
        }
        self.flushes = flushes;
        let Some(exchange) = open.exchange.as_deref_mut() else { return };
        if let Some(departure) = stats.last_write()
            && exchange.awaits_departure()
        {
            exchange.departed(departure, stats.pending_until(departure));
        }
    }

    fn data(&mut self, bytes: &Bytes) -> Option<Stamp> {
        let arrival = self.upstream.as_ref()?.arrival(bytes)?;
        let open = self.open.as_mut()?;
        let stats = &open.downstream.stats;
        let exchange = open.exchange.as_deref_mut()?;
        if open.downstream.multiplexed() {
            let now = open.shared.clock.now();
            // Flow control holds a stream back without a pending write: the frame's own wait shows it.
            if now.since(arrival) > STALL {
                exchange.taint();
            }
            exchange.data(arrival, bytes, Nanos::ZERO);
            if exchange.awaits_departure() {
                exchange.departed(now, Nanos::ZERO);
            }
        } else {
            let stalls = stats.stalls();
            if stalls != self.stalls {
                self.stalls = stalls;
                // The write that was stuck has gone through by now; a frame that was read before it sat here meanwhile.
                if stats.last_write().is_some_and(|departure| departure.since(arrival) > STALL) {
                    exchange.taint();
                }
            }
            exchange.data(arrival, bytes, stats.pending_until(arrival));
        }
        Some(arrival)
    }

    fn ended(&mut self, arrival: Option<Stamp>) {
        let Some(mut open) = self.open.take() else { return };
        self.limits = None;
        let stats = Arc::clone(&open.downstream.stats);
        let now = open.shared.clock.now();
        let mut reusable = false;
        if let Some(exchange) = open.exchange() {
            let arrival = arrival.unwrap_or(now);
            let pending = stats.pending_until(arrival);
            exchange.response_end(arrival, pending);
            reusable = exchange.upload().ended().is_some();
            open.pending_at_end = Some(pending);
        }
        if let Some(lease) = self.lease.take()
            && reusable
        {
            lease.release();
        }
        open.close_when_departed();
    }

    fn failed(&mut self, cause: Cause) {
        self.lease = None;
        if let Some(open) = self.open.take() {
            open.close(cause);
        }
    }
}

impl<B> Body for ResponseTap<B>
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let inner = match &mut this.source {
            Source::Own(body) => return Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Source::Upstream(inner) => Pin::new(inner),
        };
        let polled = inner.poll_frame(cx);
        this.settle();
        match polled {
            Poll::Pending => {
                if let Some(limits) = &mut this.limits
                    && let Poll::Ready(limit) = limits.poll(cx)
                {
                    this.failed(Cause::TimedOut(limit));
                    return Poll::Ready(Some(Err(format!("the limit `{}` was reached", limit.as_str()).into())));
                }
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(limits) = &mut this.limits {
                    limits.frame();
                }
                if let Some(bytes) = frame.data_ref() {
                    let arrival = this.data(bytes);
                    if this.has_ended() {
                        this.ended(arrival);
                    }
                } else {
                    this.ended(this.upstream.as_ref().and_then(|upstream| upstream.last_read()));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.failed(Cause::Reset);
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                this.ended(this.upstream.as_ref().and_then(|upstream| upstream.last_read()));
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Upstream(inner) => inner.size_hint(),
            Source::Own(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
        }
    }
}

/// What the connection says of the request's departure by now.
///
/// HTTP/1.1: the socket's own writes, since nothing else is written there. HTTP/2: the hand-over to the connection,
/// since one socket carries many streams.
pub fn departure(
    lease: &Lease<RequestTap>,
    upload: &Upload,
    handed_over: Stamp,
    before: (Nanos, u32),
    until: Stamp,
) -> Sent {
    let ended = upload.ended().is_some();
    let (first, last) = match lease.sender {
        Sender::Http1(_) => (lease.stats.first_write(), lease.stats.last_write()),
        Sender::Http2(_) => (Some(handed_over), Some(upload.handed_over().unwrap_or(handed_over).max(handed_over))),
    };
    let (pending, stalls) = match lease.sender {
        Sender::Http1(_) => (lease.stats.pending_until(until).less(before.0), lease.stats.stalls() - before.1),
        Sender::Http2(_) => (Nanos::ZERO, 0),
    };
    Sent {
        first,
        last: last.filter(|_| ended && first.is_some()),
        upload: pending + upload.awaited_100(),
        stalled: pending,
        stalls,
    }
}
