//! The other side of HTTP/2: a client or an upstream that lets the library frame and a test decide.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::{
    body::Incoming,
    client::conn::http2::{SendRequest, handshake},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Notify, mpsc, oneshot};

use super::Peer;

/// A body whose frames a test sends, and which ends when it drops the sender.
pub struct Fed(mpsc::Receiver<Bytes>);

/// A body to feed, with room for more frames than a test sends.
pub fn fed() -> (mpsc::Sender<Bytes>, Fed) {
    let (feed, frames) = mpsc::channel(100);
    (feed, Fed(frames))
}

impl Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A request as an HTTP/2 upstream sees it, and the way to answer it.
pub struct Asked {
    pub request: Request<Incoming>,
    pub answer: oneshot::Sender<Response<Fed>>,
}

/// An upstream that speaks HTTP/2 on one connection.
pub struct Http2Upstream {
    asked: mpsc::Receiver<Asked>,
    leave: Arc<Notify>,
    served: tokio::task::JoinHandle<()>,
}

impl Http2Upstream {
    pub fn new(peer: Peer) -> Self {
        let (io, _) = peer.into_inner();
        let (tell, asked) = mpsc::channel(100);
        let leave = Arc::new(Notify::new());
        let leaving = Arc::clone(&leave);
        let served = tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (answer, answered) = oneshot::channel();
                let told = tell.try_send(Asked { request, answer }).is_ok();
                async move { if told { answered.await.map_err(|_| "not answered") } else { Err("gone") } }
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(io), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = leaving.notified() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
        Self { asked, leave, served }
    }

    /// The next request.
    pub async fn asked(&mut self) -> Asked {
        self.asked.recv().await.expect("a request")
    }

    /// Sends GOAWAY; what is under way runs on.
    pub fn leave(&self) {
        self.leave.notify_one();
    }

    /// Waits until the connection has ended.
    pub async fn ended(self) {
        let _ = self.served.await;
    }
}

/// A client that speaks HTTP/2 with prior knowledge.
pub async fn http2_client(peer: Peer) -> SendRequest<Fed> {
    let (io, _) = peer.into_inner();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}
