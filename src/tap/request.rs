//! The request's body on its way to the upstream.

mod hold;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use tokio::sync::Notify;

use self::hold::Held;
use super::BodyError;
use crate::{
    clock::{Clock, Nanos, Stamp},
    dialect::RequestScan,
    http1::{self, Outgoing},
    net::ConnStats,
    record::{Recorder, UpstreamHandles},
    upload::{Upload, UploadFault},
};

/// A request's body as it comes from a client: by HTTP/1.1 or by HTTP/2.
pub type Asking = Either<http1::Incoming, hyper::body::Incoming>;

/// The request's body on its way to the upstream.
pub struct RequestTap {
    inner: Asking,
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
    http2: bool,
    to_http1: bool,
    /// What has come is not handed on yet.
    is_held: bool,
    held: Option<Box<Held>>,
}

/// A request's body as it is sent. Boxed, since the channel into each upstream connection has room for 32 requests laid
/// out from the start: what a request does not carry is saved 32 times.
pub type RequestBody = Box<RequestTap>;

/// What a [`RequestTap`] is made of.
pub struct RequestParts<'a> {
    /// The exchange's way up.
    pub upload: &'a Arc<Upload>,
    /// Looks for the model, if the exchange is observed.
    pub scan: Option<RequestScan>,
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
    /// The client speaks HTTP/2.
    pub http2: bool,
}

impl RequestTap {
    /// Taps a request's body. One that is empty has ended here.
    pub fn new(inner: Asking, clock: Clock, parts: RequestParts<'_>) -> RequestBody {
        let gate = parts.gate.map(|open| Gate { open, waiting: None });
        let mut tap = Box::new(Self {
            inner,
            upload: Arc::clone(parts.upload),
            scan: parts.scan.map(Box::new),
            clock,
            recorder: Arc::clone(parts.recorder),
            handles: Arc::clone(parts.handles),
            downstream: Arc::clone(parts.downstream),
            request_head: parts.request_head,
            upstream: None,
            most: parts.most,
            gate,
            http2: parts.http2,
            to_http1: false,
            is_held: false,
            held: None,
        });
        if tap.inner.is_end_stream() {
            tap.gate = None;
            tap.ended(parts.request_head);
        }
        tap
    }

    /// The connection it will be sent on, how long writes had been pending there, and what it speaks.
    pub fn attach(&mut self, upstream: Arc<ConnStats>, pending: Nanos, version: Version) {
        self.to_http1 = version != Version::HTTP_2;
        if version == Version::HTTP_2 {
            // The library does not tell of a 100 in HTTP/2: waiting for it would cost every such request its patience.
            self.gate = None;
        }
        self.upstream = Some((upstream, pending));
    }

    fn ended(&mut self, arrival: Stamp) {
        if self.upload.ended().is_some() {
            return;
        }
        // A pipelined request may have come while the one ahead of it was answered: it has not begun before its turn.
        let arrival = arrival.max(self.request_head);
        if let Some(mut scan) = self.scan.take()
            && let Some(facts) = scan.finish()
        {
            self.upload.start_with(facts, &self.recorder, &self.handles, self.request_head);
        }
        if self.is_held {
            self.upload.note_received(arrival);
            return;
        }
        let waited = self
            .upstream
            .as_ref()
            .map_or(Nanos::ZERO, |(upstream, before)| self.upload.waited(upstream, *before, arrival));
        self.upload.note_end(arrival, self.clock.now(), waited);
        if let Some((upstream, _)) = &self.upstream
            && !self.upload.may_stream()
        {
            upstream.disarm();
        }
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

    /// The next frame from the client.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    let arrival = self.data(bytes)?;
                    // Of a body of known length the HTTP/1 client asks for no more than that.
                    let filled = self.to_http1 && self.inner.size_hint().exact() == Some(0);
                    if filled || self.inner.is_end_stream() {
                        self.ended(arrival);
                    }
                } else {
                    let arrival = self.downstream.last_read().unwrap_or(self.request_head);
                    self.ended(arrival);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let malformed = matches!(error.downcast_ref(), Some(http1::Error::Malformed(_)));
                self.upload.note_fault(if malformed { UploadFault::Malformed } else { UploadFault::Gone });
                Poll::Ready(Some(Err(error)))
            }
            None => {
                if self.http2 && self.upload.ended().is_none() && !self.inner.is_end_stream() {
                    // As for responses (`ResponseTap::was_cut`); no client has a reason to end its request like that.
                    self.upload.note_fault(UploadFault::Gone);
                    return Poll::Ready(Some(Err("the request's stream was reset".into())));
                }
                let arrival = self.downstream.last_read().unwrap_or(self.request_head);
                self.ended(arrival);
                Poll::Ready(None)
            }
        }
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl Outgoing for RequestBody {
    fn take_head(&mut self) -> Option<Bytes> {
        self.inner.take_head()
    }
}

impl Body for RequestTap {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = &mut *self;
        if let Some(gate) = &mut this.gate {
            this.upload.await_100(this.clock.now());
            ready!(gate.poll(cx));
            this.upload.note_100(this.clock.now());
            this.gate = None;
        }
        if let Some(frame) = this.next_held() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if this.held.as_ref().is_some_and(|held| held.is_whole()) {
            return Poll::Ready(None);
        }
        this.poll_inner(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.held.as_ref().map_or_else(|| self.inner.is_end_stream(), |held| held.is_end_stream(&self.inner))
    }

    fn size_hint(&self) -> SizeHint {
        self.held.as_ref().map_or_else(|| self.inner.size_hint(), |held| held.size_hint(&self.inner))
    }
}

/// A client that sent `Expect: 100-continue` waits until the upstream asks for the body: so do we, without polling
/// it (polling is what sends the client its 100).
#[derive(Debug, Default)]
pub struct Continue {
    state: AtomicU8,
    notify: Notify,
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
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// An upstream that knows nothing of 100 never sends one: after this the body goes all the same (RFC 9110 §10.1.1).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

impl Gate {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
        waiting.as_mut().poll(cx)
    }
}
