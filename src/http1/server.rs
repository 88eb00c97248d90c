//! A client's connection: requests one after the other, each handed to a service, each answer sent as it comes.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::io::poll_read_buf;

use super::{
    Error, Incoming, Outgoing,
    body::Upgrade,
    encode::Out,
    head::{self, Asked, RequestHead, Size},
    send::Sending,
    wire::{Link, Wire, lock},
};
use crate::net::BoxIo;

/// What clients may take of us.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a whole head, from the moment one is waited for.
    pub head_read: Duration,
    /// Bytes of a head.
    pub head_bytes: usize,
    /// Lines of a head.
    pub headers: usize,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// In order, or with its client; exchanges under way were dropped.
    Closed,
    /// A head could not be read, and was answered with this status.
    Refused(StatusCode),
    /// No head came in time.
    TimedOut,
    /// It has left HTTP, and is somebody else's.
    Upgraded,
}

/// Serves one connection until it ends. `read` was read of it before. Once `stops` is ready, what is under way runs on, and no
/// further request is taken.
///
/// # Cancel safety
/// Dropping the future drops the exchange under way and closes the connection.
pub async fn serve<S, F, B>(
    io: BoxIo,
    read: Bytes,
    limits: Limits,
    stops: impl Future<Output = ()>,
    service: S,
) -> Ended
where
    S: Fn(Request<Incoming>) -> Pin<Box<F>>,
    F: Future<Output = Response<B>>,
    B: Outgoing,
{
    let link = Arc::new(Mutex::new(Wire::new(io, read)));
    let mut stops = pin!(stops);
    let mut stopping = false;
    let mut patience = Patience::new(limits.head_read);
    loop {
        let head = {
            let mut seen = 0;
            patience.begin();
            poll_fn(|cx| {
                // A request that is here is served, after a stop too: its answer is the last then.
                if let Poll::Ready(head) = poll_head(&link, cx, limits, &mut seen) {
                    return Poll::Ready(head);
                }
                stopping = stopping || stops.as_mut().poll(cx).is_ready();
                if stopping && lock(&link).input.is_empty() {
                    return Poll::Ready(Head::None);
                }
                patience.poll(cx).map(|()| Head::TimedOut)
            })
            .await
        };
        let head = match head {
            Head::Whole(head) => head,
            Head::None => return hang_up(&link).await,
            Head::TimedOut => return Ended::TimedOut,
            Head::Refused(status) => {
                refuse(&link, status).await;
                return Ended::Refused(status);
            }
        };
        let mut asked = Asked::by(&head);
        let (upgrades, upgrade) = if head.may_upgrade {
            let (upgrades, upgrade) = oneshot::channel();
            (Some(upgrades), Some(Upgrade::Later(upgrade)))
        } else {
            (None, None)
        };
        let came = {
            let mut wire = lock(&link);
            wire.must_continue = head.expects && !head.decoder.is_done();
            wire.begin(head.length, head.decoder)
        };
        let body = Incoming::new(&link, came, None, upgrade);
        let answered = {
            let mut call = service(Request::from_parts(head.parts, body));
            poll_fn(|cx| {
                // Whoever has left is not answered any more, whatever became of the request meanwhile. Of a request that is
                // still read, its reader comes first.
                let is_whole = {
                    let mut wire = lock(&link);
                    if wire.is_whole() && wire.poll_gone(cx).is_ready() {
                        return Poll::Ready(None);
                    }
                    wire.is_whole()
                };
                if let Poll::Ready(response) = call.as_mut().poll(cx) {
                    return Poll::Ready(Some(response));
                }
                if is_whole { Poll::Pending } else { lock(&link).poll_gone(cx).map(|()| None) }
            })
            .await
        };
        let Some(response) = answered else { return Ended::Closed };
        stopping = stopping || poll_fn(|cx| Poll::Ready(stops.as_mut().poll(cx).is_ready())).await;
        let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        {
            let mut wire = lock(&link);
            // A body can't be asked for by a 100 once there is an answer.
            wire.must_continue = false;
            // A body that nobody reads to its end leaves no way to the next request.
            asked.keeps_alive &= !stopping && (wire.has_reader || wire.is_whole());
        }
        match respond(&link, response, &asked).await {
            Ok(true) => {}
            Ok(false) if is_switch => {
                let upgraded = lock(&link).upgrade();
                if let Some(upgrades) = upgrades {
                    let _ = upgrades.send(upgraded);
                }
                return Ended::Upgraded;
            }
            Ok(false) => return hang_up(&link).await,
            Err(_) => return Ended::Closed,
        }
        // Somebody may still read the request: what comes is not the next one's before.
        poll_fn(|cx| lock(&link).poll_unread(cx)).await;
        if !lock(&link).is_whole() && !drains(&link).await {
            return hang_up(&link).await;
        }
    }
}

/// Closes a connection in order, whether the other side still hears it or not.
async fn hang_up(link: &Link) -> Ended {
    let _ = poll_fn(|cx| lock(link).poll_shutdown(cx)).await;
    Ended::Closed
}

/// Whether the rest of a request that nobody reads lies here already.
async fn drains(link: &Link) -> bool {
    poll_fn(|cx| {
        let mut wire = lock(link);
        while !wire.is_whole() {
            match wire.poll_body(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                _ => break,
            }
        }
        Poll::Ready(wire.is_whole())
    })
    .await
}

enum Head {
    Whole(Box<RequestHead>),
    /// The connection has ended.
    None,
    Refused(StatusCode),
    TimedOut,
}

fn poll_head(link: &Link, cx: &mut Context<'_>, limits: Limits, seen: &mut usize) -> Poll<Head> {
    let parse = |input: &Bytes| head::request(input, limits.headers, limits.head_bytes);
    Poll::Ready(match ready!(lock(link).poll_head(cx, seen, limits.head_bytes, parse)) {
        Ok(Some(Ok(head))) => Head::Whole(Box::new(head)),
        Ok(Some(Err(refusal))) => Head::Refused(refusal.status()),
        Ok(None) | Err(_) => Head::None,
    })
}

/// Answers a head that could not be read.
async fn refuse(link: &Link, status: StatusCode) {
    let reason = status.canonical_reason().unwrap_or_default();
    let line = format!("HTTP/1.1 {} {reason}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", status.as_str());
    let mut out = Out::default();
    out.gather().extend_from_slice(line.as_bytes());
    // Whether it is still there to hear it or not.
    if poll_fn(|cx| lock(link).poll_send(cx, &mut out)).await.is_ok() {
        hang_up(link).await;
    }
}

/// Sends an answer to its end; whether the connection can carry another.
async fn respond<B: Outgoing>(link: &Link, response: Response<B>, asked: &Asked) -> Result<bool, Error> {
    let (parts, mut body) = response.into_parts();
    let mut out = Out::default();
    let came = body.take_head().unwrap_or_default();
    let (encoder, lives_on) = head::write_response(out.gather(), &parts, &came, Size::of(&body), asked);
    drop(parts);
    let mut sending = Sending::new(body, encoder, out)?;
    poll_fn(|cx| match sending.poll(link, cx) {
        Poll::Pending => lock(link).poll_gone(cx).map(|()| Err(Error::Closed)),
        Poll::Ready(sent) => Poll::Ready(sent),
    })
    .await?;
    Ok(lives_on)
}

/// How long a head is waited for. The timer is set once for many heads: where it fires too early it is set anew.
struct Patience {
    limit: Duration,
    /// Absent until one is waited for.
    until: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    const fn new(limit: Duration) -> Self {
        Self { limit, until: None, timer: None }
    }

    /// Another head is waited for.
    fn begin(&mut self) {
        self.until = None;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = *self.until.get_or_insert_with(|| sleep(self.limit).deadline());
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }
}

/// What HTTP/2 begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads as much as tells which HTTP a client speaks; what was read, and whether it is HTTP/2. Nothing at the connection's end.
///
/// # Errors
/// As the connection's own read.
///
/// # Cancel safety
/// What was read is lost with the future.
pub async fn greeting(io: &mut BoxIo) -> io::Result<(Bytes, bool)> {
    let mut read = BytesMut::new();
    while PREFACE.starts_with(&read) && read.len() < PREFACE.len() {
        if poll_fn(|cx| poll_read_buf(Pin::new(&mut *io), cx, &mut read)).await? == 0 {
            break;
        }
    }
    let is_http2 = read.starts_with(PREFACE);
    Ok((read.freeze(), is_http2))
}
