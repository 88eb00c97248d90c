//! A way to send requests on one connection, whichever HTTP it speaks.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Poll, ready},
};

use http::{Request, Response, StatusCode};
use http_body_util::Either;
use hyper::client::conn::http2;

use crate::http1::{self, Outgoing, client::Connection};

/// A way to send requests on one connection.
pub enum Sender<B> {
    /// One exchange at a time.
    Http1(Connection),
    /// Many at once.
    Http2(http2::SendRequest<B>),
}

impl<B> fmt::Debug for Sender<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1(_) => "Http1",
            Self::Http2(_) => "Http2",
        })
    }
}

/// An answer's body as it comes, to a request whose body is a `B`.
pub type AnswerBody<B> = Either<http1::Incoming<B>, hyper::body::Incoming>;

/// A request without an answer.
pub struct Lost<B> {
    /// The request, if no byte of it was taken.
    pub request: Option<Box<Request<B>>>,
    /// What happened.
    pub error: Box<dyn std::error::Error + Send + Sync>,
}

impl<B> fmt::Debug for Lost<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B: Outgoing> Sender<B> {
    /// Sends a request; the answer comes when its head has. `informed` is told of each 1xx before it, by HTTP/1.1.
    ///
    /// # Errors
    /// If the connection broke, or what came is no HTTP. The request comes back if no byte of it was taken.
    ///
    /// # Cancel safety
    /// Dropping the future gives the request up, and by HTTP/1.1 the connection with it.
    pub fn send<'a>(
        &'a mut self,
        request: Request<B>,
        informed: impl Fn(StatusCode) + Unpin + 'a,
    ) -> impl Future<Output = Result<Response<AnswerBody<B>>, Lost<B>>> + Unpin + 'a {
        let mut sent = match self {
            Self::Http1(connection) => Either::Left(connection.send(request, informed)),
            // Boxed: an exchange by HTTP/1.1 would have room for it.
            Self::Http2(sender) => Either::Right(Box::pin(sender.try_send_request(request))),
        };
        poll_fn(move |cx| {
            Poll::Ready(match &mut sent {
                Either::Left(sent) => match ready!(Pin::new(sent).poll(cx)) {
                    Ok(response) => Ok(response.map(Either::Left)),
                    Err(unanswered) => Err(Lost { request: unanswered.request, error: unanswered.error.into() }),
                },
                Either::Right(sent) => match ready!(sent.as_mut().poll(cx)) {
                    Ok(response) => Ok(response.map(Either::Right)),
                    Err(mut error) => {
                        Err(Lost { request: error.take_message().map(Box::new), error: error.into_error().into() })
                    }
                },
            })
        })
    }
}
