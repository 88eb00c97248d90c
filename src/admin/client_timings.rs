//! `POST /client-timings`: what clients measured themselves, put beside the gauge's own record of the same exchange.
//!
//! Anyone may call who can reach the address, so nothing is believed but a number within reason, of an exchange that has
//! just been and once of each kind; labels are the exchange's. A batch holds a connection for some ten seconds at most, and
//! there are 64 of them.

mod report;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};

use self::report::Batch;
use super::{
    aside::{Answer, Aside, Role, json, text},
    gate::Token,
};
use crate::{config, record::Recorder};

/// The client timings' listener, running until it is dropped.
#[derive(Debug)]
pub struct ClientTimings(Aside);

/// Each call is one connection: a client that kept one would hold one of few for nothing.
const ROLE: Role =
    Role { name: "client-timings", header_read: Duration::from_secs(5), keep_alive: false, connections: 64 };
/// How long a body may take.
const BODY_READ: Duration = Duration::from_secs(5);
/// A hundred reports take some 12 KiB.
const MAX_BODY: usize = 64 * 1024;
/// How long after one another to look for exchanges that are not there yet: a client may be done with a stream (at its
/// `[DONE]`) a moment before the stream has ended.
const LOOK_AGAIN: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(750)];

impl ClientTimings {
    /// Binds the address and serves it on a thread of its own.
    ///
    /// # Errors
    /// If the address can't be bound, the thread can't be started, or the token can't be read.
    pub fn bind(config: &config::ClientTimings, recorder: Arc<Recorder>) -> io::Result<Self> {
        let token = config.token_file.as_deref().map(Token::read).transpose()?;
        let gate = Arc::new(Gate { recorder, token, origins: config.allowed_origins.clone() });
        let answer = move |request| {
            let gate = Arc::clone(&gate);
            async move { gate.answer(request).await }
        };
        Ok(Self(Aside::bind(config.address, ROLE, answer)?))
    }

    /// Where it listens, a port chosen by the system included.
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Who is let in, and to what.
struct Gate {
    recorder: Arc<Recorder>,
    token: Option<Token>,
    origins: Vec<String>,
}

impl Gate {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let origin = request.headers().get(header::ORIGIN).cloned();
        // A browser says which page is asking; a page that is not allowed gets nothing, not even by a request that needs
        // no leave. Programs send no origin.
        if let Some(origin) = &origin
            && !self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
        {
            return text(StatusCode::FORBIDDEN, "this page's origin is not in client_timings.allowed_origins\n");
        }
        let mut answer = self.admitted(request).await;
        if let Some(origin) = origin {
            answer.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            answer.headers_mut().insert(header::VARY, HeaderValue::from_static("origin"));
        }
        answer
    }

    async fn admitted(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() != "/client-timings" {
            return text(StatusCode::NOT_FOUND, "not found; POST to /client-timings\n");
        }
        match *request.method() {
            Method::POST => {}
            Method::OPTIONS if request.headers().contains_key(header::ORIGIN) => return preflight(),
            _ => return text(StatusCode::METHOD_NOT_ALLOWED, "only POST\n"),
        }
        if self.token.as_ref().is_some_and(|token| !token.is_in(request.headers())) {
            return Token::wanted();
        }
        let body = match read(request.into_body()).await {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        match Batch::read(&body) {
            Ok(batch) => json(self.take(batch).await),
            Err(why) => text(StatusCode::BAD_REQUEST, why + "\n"),
        }
    }

    async fn take(&self, mut batch: Batch) -> String {
        batch.take(&self.recorder);
        for wait in LOOK_AGAIN {
            if !batch.waits() {
                break;
            }
            tokio::time::sleep(wait).await;
            batch.take(&self.recorder);
        }
        batch.answer()
    }
}

/// What a browser asks before a page's request that is more than a form's.
fn preflight() -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

async fn read(body: Incoming) -> Result<bytes::Bytes, Answer> {
    let too_large = || text(StatusCode::PAYLOAD_TOO_LARGE, "at most 64 KiB and 100 reports at once\n");
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_READ, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(text(StatusCode::BAD_REQUEST, "the body can't be read\n")),
        Err(_) => Err(text(StatusCode::REQUEST_TIMEOUT, "the body did not come within 5 s\n")),
    }
}
