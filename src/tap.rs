//! The taps: bodies that pass the very same frames and errors, read the clock, and tell the exchange.
//!
//! A body need not be polled to its end: a declared length reached, `is_end_stream`, an answer without a body all end
//! it. So the books close on whichever comes first, and dropping a tap closes them too.
//!
//! [`RequestTap`] goes up, [`ResponseTap`] comes down, [`Open`] is the exchange that both belong to.

mod books;
mod request;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use tokio::{sync::oneshot, time::Sleep};

pub use self::{
    books::{Departing, Downstream, Open, Shared},
    request::{Asking, Continue, RequestBody, RequestParts, RequestTap},
};
use crate::{
    clock::{Nanos, Stamp},
    exchange::{Cause, Exchange},
    http1::Outgoing,
    net::{ConnStats, STALL},
    observation::Limit,
    upstream::{AnswerBody, Lease},
};

/// What a body fails with: an error of its inner body, or a limit of ours.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The response's body on its way to the client. Owns the exchange and its upstream connection.
///
/// `B` is the body it taps: an upstream's in life, a scripted one in the benchmark of the hot path.
pub struct ResponseTap<B = AnswerBody<RequestBody>> {
    source: Source<B>,
    open: Option<Open>,
    lease: Option<Lease<RequestBody>>,
    upstream: Option<Arc<ConnStats>>,
    flushes: u32,
    stalls: u32,
    /// The client's connection carries many exchanges at once.
    multiplexed: bool,
    /// As it came, if by HTTP/1.1.
    head: Option<Bytes>,
    /// The body has a length, and goes to a client of HTTP/1.
    fills: bool,
    /// The body ends with its connection: only then does the connection's end say when.
    until_close: bool,
    limits: Option<Box<BodyLimits>>,
    /// Flushes when the newest bytes, head included, were handed on.
    handed_on: u32,
    /// The last look found a frame, and nobody has looked since whether there is another.
    is_unwatched: bool,
    failure: Option<Box<Failure>>,
}

/// A failure that waits until what was handed on before it has left.
struct Failure {
    left: oneshot::Receiver<()>,
    error: BodyError,
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
        lease: Option<Lease<RequestBody>>,
        limits: Option<Box<BodyLimits>>,
    ) -> Self {
        let client = &open.downstream.stats;
        let mut tap = Self {
            flushes: client.flushes(),
            handed_on: client.flushes(),
            is_unwatched: false,
            failure: None,
            stalls: client.stalls(),
            upstream: Some(stats),
            multiplexed: open.downstream.multiplexed(),
            head: None,
            fills: !open.downstream.multiplexed() && inner.size_hint().exact().is_some(),
            source: Source::Upstream(inner),
            open: Some(open),
            lease,
            until_close: false,
            limits,
        };
        if tap.has_ended() || tap.is_filled() {
            let head_back = tap.exchange().and_then(|exchange| exchange.seen().timeline.head_back);
            tap.ended(head_back);
        }
        tap
    }

    /// The body ends with its connection, for want of any other framing (RFC 9112 §6.3).
    pub fn ends_with_connection(&mut self) {
        self.until_close = true;
    }

    /// The answer came with this head.
    pub fn came_with(&mut self, head: Option<Bytes>) {
        self.head = head;
    }

    /// An answer of the gateway's own.
    pub fn own(body: Bytes, open: Option<Open>) -> Self {
        if let Some(open) = open {
            open.close_when_departed();
        }
        let source = Source::Own(Some(body).filter(|body| !body.is_empty()));
        Self {
            source,
            open: None,
            lease: None,
            upstream: None,
            flushes: 0,
            handed_on: 0,
            is_unwatched: false,
            multiplexed: false,
            head: None,
            fills: false,
            failure: None,
            stalls: 0,
            until_close: false,
            limits: None,
        }
    }

    /// The answer goes to a client of HTTP/1, whose server asks no body that can't have a byte: of the answer to a
    /// HEAD, of a 204 and 304. So it ends here, for its HTTP/2 stream may not have said so yet.
    pub fn fit_http1(&mut self, to_head: bool, status: StatusCode) {
        if to_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            let head_back = self.exchange().and_then(|exchange| exchange.seen().timeline.head_back);
            self.ended(head_back);
            self.source = Source::Own(None);
        }
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

    /// Every byte of a body of known length has come. The HTTP/1 server then asks for no more, although an HTTP/2
    /// upstream may say only in another frame that this was the end.
    fn is_filled(&self) -> bool {
        self.fills && matches!(&self.source, Source::Upstream(inner) if inner.size_hint().exact() == Some(0))
    }

    /// hyper takes a reset or a closed connection with the code `NO_ERROR` for the end of an HTTP/2 body, for that is how a
    /// server that has answered in full waves the rest of an upload off. With the upload at its end it is a cut.
    fn was_cut(&self) -> bool {
        let http2 = self.lease.as_ref().is_some_and(|lease| lease.version() == Version::HTTP_2);
        http2 && !self.has_ended() && self.open.as_ref().is_some_and(|open| open.upload().handed_over().is_some())
    }

    /// What was handed on has left if a flush has completed since: the next frame is polled only after that.
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
        if !open.looked && exchange.so_far().timeline.first_output_delivered.is_some() {
            // Not before it has left: asking takes a microsecond.
            open.look_at_network();
            if let Some(upstream) = &self.upstream {
                upstream.disarm();
            }
        }
    }

    fn data(&mut self, bytes: &Bytes) -> Option<Stamp> {
        let was_unwatched = std::mem::replace(&mut self.is_unwatched, true);
        let upstream = self.upstream.as_ref()?;
        let arrival = upstream.arrival(bytes)?;
        let open = self.open.as_mut()?;
        let stats = &open.downstream.stats;
        let exchange = open.exchange.as_deref_mut()?;
        if self.multiplexed {
            let now = open.shared.clock.now();
            // Flow control holds a stream back without a pending write: the frame's own wait shows it, since it was read.
            if now.since(upstream.in_hand_since(arrival)) > STALL {
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
                // The write that was stuck has gone through by now. A frame that was read before it sat here meanwhile, and one
                // that nobody looked for, since as much was held already as may be, came nobody knows when.
                if was_unwatched || stats.last_write().is_some_and(|departure| departure.since(arrival) > STALL) {
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
        let reusable = open.upload().handed_over().is_some();
        if let Some(exchange) = open.exchange() {
            let arrival = arrival.unwrap_or(now);
            let pending = stats.pending_until(arrival);
            exchange.response_end(arrival, pending);
            open.pending_at_end = Some(pending);
        }
        if let Some(lease) = self.lease.take()
            && reusable
        {
            lease.release();
        }
        open.close_when_departed();
    }

    /// Arrival of the end of the body, which has just been seen.
    fn end_arrival(&self) -> Option<Stamp> {
        let upstream = self.upstream.as_ref()?;
        let closed = if self.until_close { upstream.read_end() } else { None };
        closed.or_else(|| upstream.last_read())
    }

    /// The body ends here, as a cut, once what came before it has left: with the connection the server drops what it has not
    /// written yet, and bytes that came in one read with the cut (a provider's last error event) would be lost with it.
    fn failed(&mut self, cause: Cause, error: BodyError, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(open) = &mut self.open {
            // While there still is a connection to ask about.
            open.look_at_network();
        }
        self.lease = None;
        self.limits = None;
        if let Some(open) = self.open.take() {
            let client = Arc::clone(&open.downstream.stats);
            open.close(cause);
            if client.flushes() == self.handed_on {
                let (leaves, left) = oneshot::channel();
                // Lost or flushed, it is over either way: the sender tells by being dropped.
                client.park(move |_| drop(leaves));
                // On HTTP/2 the flush may have come in between, and then nobody knows when the next one will.
                if client.flushes() == self.handed_on {
                    self.failure = Some(Box::new(Failure { left, error }));
                    return self.poll_failure(cx);
                }
            }
        }
        Poll::Ready(Some(Err(error)))
    }

    fn poll_failure(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(failure) = &mut self.failure {
            let _ = ready!(Pin::new(&mut failure.left).poll(cx));
        }
        Poll::Ready(self.failure.take().map(|failure| Err(failure.error)))
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A response's body as it is sent. Boxed: it is handed on a few times, and a connection's task has room for it as often.
pub type ResponseBody = Box<ResponseTap>;

impl<B> Outgoing for Box<ResponseTap<B>>
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static,
{
    fn take_head(&mut self) -> Option<Bytes> {
        self.head.take()
    }
}

impl<B> Body for ResponseTap<B>
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = &mut *self;
        if this.failure.is_some() {
            return this.poll_failure(cx);
        }
        let inner = match &mut this.source {
            Source::Own(body) => return Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Source::Upstream(inner) => Pin::new(inner),
        };
        let polled = inner.poll_frame(cx);
        this.settle();
        match polled {
            Poll::Pending => {
                this.is_unwatched = false;
                if let Some(limits) = &mut this.limits
                    && let Poll::Ready(limit) = limits.poll(cx)
                {
                    let error = format!("the limit `{}` was reached", limit.as_str());
                    return this.failed(Cause::TimedOut(limit), error.into(), cx);
                }
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => {
                this.handed_on = this.flushes;
                if let Some(limits) = &mut this.limits {
                    limits.frame();
                }
                if let Some(bytes) = frame.data_ref() {
                    let arrival = this.data(bytes);
                    if this.has_ended() || this.is_filled() {
                        this.ended(arrival);
                    }
                } else {
                    this.ended(this.end_arrival());
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => this.failed(Cause::Reset, error.into(), cx),
            Poll::Ready(None) => {
                if this.was_cut() {
                    return this.failed(Cause::Reset, "the upstream's stream was reset".into(), cx);
                }
                this.ended(this.end_arrival());
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
