//! Peers that speak proper HTTP of any version, for what is about meaning and not about bytes; and raw HTTP/2 frames
//! for what no proper peer would send.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, request};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use streamgauge::net::BoxIo;
use tokio::sync::mpsc;

/// A body that says what the test says, when it says it; dropping the sender ends it.
pub struct Said(mpsc::Receiver<Result<Frame<Bytes>, &'static str>>);

/// Speaks a [`Said`].
pub type Voice = mpsc::Sender<Result<Frame<Bytes>, &'static str>>;

impl Said {
    pub fn channel() -> (Voice, Self) {
        let (voice, said) = mpsc::channel(1);
        (voice, Self(said))
    }

    /// All of it at once.
    pub fn all(frames: Vec<Frame<Bytes>>) -> Self {
        let (voice, said) = mpsc::channel(frames.len().max(1));
        for frame in frames {
            voice.try_send(Ok(frame)).expect("room for every frame");
        }
        Self(said)
    }
}

impl Body for Said {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }
}

/// A client's connection, any version.
pub enum Speaker {
    Http1(http1::SendRequest<Said>),
    Http2(http2::SendRequest<Said>),
}

impl Speaker {
    pub async fn http1(io: BoxIo) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(io)).await.expect("a handshake");
        tokio::spawn(connection);
        Self::Http1(sender)
    }

    pub async fn http2(io: BoxIo) -> Self {
        let io = TokioIo::new(io);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.expect("a handshake");
        tokio::spawn(connection);
        Self::Http2(sender)
    }

    pub async fn send(&mut self, request: Request<Said>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }
}

/// A message taken whole.
pub struct Whole<P> {
    pub parts: P,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

/// Reads a message to its end.
pub async fn whole<P>(parts: P, body: Incoming) -> hyper::Result<Whole<P>> {
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok(Whole { parts, body: collected.to_bytes(), trailers })
}

/// Serves one connection in whatever version it speaks: each request is taken whole and shown to the test, and the
/// answer is what `answer` makes.
pub fn serve(
    io: BoxIo,
    answer: impl Fn() -> Response<Said> + Send + Sync + 'static,
) -> mpsc::Receiver<Whole<request::Parts>> {
    let (seen, requests) = mpsc::channel(100);
    let answer = Arc::new(answer);
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, answer) = (seen.clone(), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            if let Ok(request) = whole(parts, body).await {
                let _ = seen.try_send(request);
            }
            Ok::<_, Infallible>(answer())
        }
    });
    tokio::spawn(async move {
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().auto_date_header(false);
        server.http2().auto_date_header(false);
        let _ = server.serve_connection(TokioIo::new(io), service).await;
    });
    requests
}

// === HTTP/2 by hand ===

/// What a client's connection begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Whether these bytes hold a whole frame of this kind on this stream.
pub fn holds(mut bytes: &[u8], kind: u8, stream: u32) -> bool {
    while let [a, b, c, this, _, rest @ ..] = bytes {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some((id, payload)) = rest.split_at_checked(4) else { return false };
        if payload.len() < length {
            return false;
        }
        if *this == kind && id == stream.to_be_bytes() {
            return true;
        }
        bytes = &payload[length..];
    }
    false
}
