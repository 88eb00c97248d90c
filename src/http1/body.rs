//! Bodies: one that comes in, read when it is polled, and one that goes out on an upstream's connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use tokio::sync::oneshot;

use super::{
    Error, Upgraded,
    send::Sending,
    wire::{Link, lock},
};

/// A body that can be sent.
pub trait Outgoing:
    Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static
{
    /// The head of its message as it came, by which names are spelled where they go on; absent if it came by no HTTP/1.1, and
    /// once it was taken.
    fn take_head(&mut self) -> Option<Bytes> {
        None
    }
}

impl Outgoing for NoUpload {}

/// A body that came by HTTP/1.1, or by HTTP/2.
impl<B: Outgoing> Outgoing for Either<Incoming<B>, hyper::body::Incoming> {
    fn take_head(&mut self) -> Option<Bytes> {
        match self {
            Self::Left(body) => body.head.take(),
            Self::Right(_) => None,
        }
    }
}

/// A message's body, read from its connection when it is polled.
///
/// `B` is the body of the request that is still on its way up while its answer comes down: both go on as this is polled.
///
/// # Cancel safety
/// Dropped before its end, nothing else is ever read as if it followed: the connection is not used again.
pub struct Incoming<B = NoUpload> {
    link: Link,
    left: Option<u64>,
    has_ended: bool,
    upload: Option<Box<Sending<B>>>,
    upgrade: Option<Upgrade>,
    head: Option<Bytes>,
}

/// Nothing goes up with the body: it is a request's own.
pub type NoUpload = http_body_util::Empty<Bytes>;

/// How a connection leaves HTTP.
#[derive(Debug)]
pub enum Upgrade {
    /// The client's, once the answer has left.
    Later(oneshot::Receiver<Upgraded>),
    /// The upstream's, which has answered.
    Now(Upgraded),
}

impl Upgrade {
    /// The connection; absent if it was lost before.
    pub async fn connection(self) -> Option<Upgraded> {
        match self {
            Self::Later(later) => later.await.ok(),
            Self::Now(upgraded) => Some(upgraded),
        }
    }
}

impl<B> std::fmt::Debug for Incoming<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<B: Outgoing> Incoming<B> {
    /// The body under way on this connection, behind this head.
    pub(super) fn new(link: &Link, head: Bytes, upload: Option<Box<Sending<B>>>, upgrade: Option<Upgrade>) -> Self {
        let mut wire = lock(link);
        let (left, has_ended) = (wire.decoder.left(), wire.is_read());
        wire.has_reader = !has_ended;
        drop(wire);
        Self { link: Arc::clone(link), left, has_ended, upload, upgrade, head: Some(head) }
    }

    /// How the connection leaves HTTP; absent if it was not asked to, or does not.
    pub const fn take_upgrade(&mut self) -> Option<Upgrade> {
        self.upgrade.take()
    }

    /// The answer is whole, and the request is not: what is left of it goes up all the same, and nothing is sent after it.
    pub(super) fn let_upload_end(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            let link = Arc::clone(&self.link);
            // Ends with the client's body, or with either connection.
            tokio::spawn(async move { std::future::poll_fn(|cx| upload.poll(&link, cx)).await });
        }
    }
}

impl<B: Outgoing> Body for Incoming<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Some(upload) = &mut this.upload
            && let Poll::Ready(sent) = upload.poll(&this.link, cx)
        {
            this.upload = None;
            if sent.is_ok() {
                lock(&this.link).is_sending = false;
            }
        }
        let mut wire = lock(&this.link);
        let frame = ready!(wire.poll_body(cx));
        (this.left, this.has_ended) = (wire.decoder.left(), wire.is_read());
        drop(wire);
        if this.has_ended {
            this.let_upload_end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<B> Drop for Incoming<B> {
    fn drop(&mut self) {
        if !self.has_ended {
            lock(&self.link).reader_is_done();
        }
    }
}
