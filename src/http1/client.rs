//! A connection to an upstream: one exchange at a time, all of it polled by whoever sends the request and reads the answer.

use std::{
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};

use super::{
    Error, Incoming, Outgoing,
    body::Upgrade,
    decode::Decoder,
    encode::Out,
    head::{self, ResponseHead, Size},
    send::Sending,
    wire::{Link, Wire, lock},
};
use crate::net::BoxIo;

/// The most headers, and the most bytes of a head, that an upstream may answer with.
const MOST_HEADERS: usize = 100;
const MOST_HEAD: usize = 400 * 1024;

/// A connection to an upstream.
pub struct Connection {
    link: Link,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub struct Unanswered<B> {
    /// The request, if no byte of it was taken.
    pub request: Option<Box<Request<B>>>,
    /// What happened.
    pub error: Error,
}

impl<B> From<Error> for Unanswered<B> {
    fn from(error: Error) -> Self {
        Self { request: None, error }
    }
}

impl Connection {
    /// A connection on which nothing was said yet.
    pub fn new(io: BoxIo) -> Self {
        Self { link: Arc::new(Mutex::new(Wire::new(io, Bytes::new()))) }
    }

    /// Whether it can't carry a request now: an exchange is under way, the last one was said to be, or the upstream has
    /// closed it or said something nobody asked for.
    pub fn is_closed(&self) -> bool {
        !lock(&self.link).is_idle(&mut Context::from_waker(Waker::noop()))
    }

    /// Whether the last exchange has ended, and may be followed by another. What has come since is not looked at.
    pub fn is_at_rest(&self) -> bool {
        lock(&self.link).is_at_rest()
    }

    /// Sends a request; the answer comes when its head has, whether the request has left by then or not. `informed` is told
    /// of each 1xx before it.
    ///
    /// # Errors
    /// If the connection broke, or what came is no HTTP. The request comes back if the connection was closed before.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the connection in the middle of an exchange: it [is closed](Self::is_closed) then.
    pub fn send<'a, B: Outgoing>(
        &'a self,
        request: Request<B>,
        informed: impl Fn(StatusCode) + Unpin + 'a,
    ) -> impl Future<Output = Result<Response<Incoming<B>>, Unanswered<B>>> + Unpin + 'a {
        // What is needed of the request until its answer comes, and no more: there is room for it in every exchange.
        let (mut upload, method, mut refused) = match self.depart(request) {
            Ok((sending, method)) => (Some(sending), method, None),
            Err(unanswered) => (None, Method::default(), Some(unanswered)),
        };
        let mut failed = None;
        let mut seen = 0;
        poll_fn(move |cx| {
            if let Some(refused) = refused.take() {
                return Poll::Ready(Err(refused));
            }
            if let Some(sending) = &mut upload {
                match sending.poll(&self.link, cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) => {
                        upload = None;
                        lock(&self.link).is_sending = false;
                    }
                    Poll::Ready(Err(error @ Error::Body(_))) => return Poll::Ready(Err(error.into())),
                    Poll::Ready(Err(error)) => {
                        // It may have been answered before it hung up.
                        upload = None;
                        failed = Some(error);
                    }
                }
            }
            Poll::Ready(match ready!(self.poll_head(cx, &method, &mut seen, &informed)) {
                Ok(head) => Ok(self.answered(head, upload.take())),
                Err(error) => Err(failed.take().unwrap_or(error).into()),
            })
        })
    }

    /// Makes a request ready to leave, if this connection can carry it.
    fn depart<B: Outgoing>(&self, request: Request<B>) -> Result<(Sending<B>, Method), Unanswered<B>> {
        let is_idle = {
            let mut wire = lock(&self.link);
            let is_idle = wire.is_idle(&mut Context::from_waker(Waker::noop()));
            wire.is_sending |= is_idle;
            is_idle
        };
        if !is_idle {
            return Err(Unanswered { request: Some(Box::new(request)), error: Error::Closed });
        }
        let (parts, mut body) = request.into_parts();
        let mut out = Out::default();
        let came = body.take_head().unwrap_or_default();
        let encoder = head::write_request(out.gather(), &parts, &came, Size::of(&body));
        Ok((Sending::new(body, encoder, out)?, parts.method))
    }

    /// The answer with this head, while what is left of the request goes up.
    fn answered<B: Outgoing>(&self, head: ResponseHead, upload: Option<Sending<B>>) -> Response<Incoming<B>> {
        let ResponseHead { parts, decoder, length, keeps_alive } = head;
        let (came, upgrade) = {
            let mut wire = lock(&self.link);
            let decoder = decoder.unwrap_or(Decoder::Done);
            let is_switch = parts.status == StatusCode::SWITCHING_PROTOCOLS;
            wire.is_last = !keeps_alive || is_switch || matches!(decoder, Decoder::UntilClose);
            let came = wire.begin(length, decoder);
            (came, is_switch.then(|| Upgrade::Now(wire.upgrade())))
        };
        let mut body = Incoming::new(&self.link, came, upload.map(Box::new), upgrade);
        if http_body::Body::is_end_stream(&body) {
            body.let_upload_end();
        }
        Response::from_parts(parts, body)
    }

    fn poll_head(
        &self,
        cx: &mut Context<'_>,
        method: &Method,
        seen: &mut usize,
        informed: &impl Fn(StatusCode),
    ) -> Poll<Result<ResponseHead, Error>> {
        let mut wire = lock(&self.link);
        loop {
            let parse = |input: &Bytes| head::response(input, method, MOST_HEADERS, MOST_HEAD);
            match ready!(wire.poll_head(cx, seen, MOST_HEAD, parse))? {
                None => return Poll::Ready(Err(Error::Closed)),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                Some(Ok(head)) if head.decoder.is_some() => return Poll::Ready(Ok(head)),
                Some(Ok(interim)) => {
                    informed(interim.parts.status);
                    wire.begin(interim.length, Decoder::Done);
                    *seen = 0;
                }
            }
        }
    }
}
