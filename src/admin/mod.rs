//! What is not traffic: the live page, metrics, health and the last exchanges on the admin listener, and what clients
//! measured on one of its own. Each has a thread and a runtime to itself: encoding a scrape takes milliseconds that no stream
//! may wait for.

mod aside;
mod client_timings;
mod exchanges;
mod gate;
mod impatient;
mod live;
mod now;
mod page;

use std::{
    io,
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::sync::Semaphore;

pub use self::client_timings::ClientTimings;
use self::{
    aside::{Answer, Aside, Role, json, of_kind, text},
    gate::Gate,
    live::Live,
    now::since_epoch,
};
use crate::{
    clock::{Clock, Stamp},
    config::AdminAccess,
    record::Recorder,
};

/// The admin listener, running until it is dropped.
#[derive(Debug)]
pub struct Admin(Aside);

/// Whoever scrapes keeps one connection; a thousand is somebody's mistake.
const ROLE: Role = Role { name: "admin", header_read: Duration::from_secs(30), keep_alive: true, connections: 1000 };
/// Who may look at the live page at the same time: each costs a look at the last exchanges twice a second.
const SEATS: usize = 8;

/// What there is, for whoever asks without a browser.
const INDEX: &str = "streamgauge\n\n\
                     /           the live page, in a browser\n\
                     /metrics    Prometheus exposition\n\
                     /exchanges  records of the last exchanges, newest first, as JSON: ?trace_id= ?id= ?upstream= ?model= \
                     ?outcome= ?limit=\n\
                     /healthz    alive\n\
                     /readyz     taking requests\n\
                     /help       this list\n";

impl Admin {
    /// Binds the address and serves it on a thread of its own.
    ///
    /// # Errors
    /// If the address can't be bound, the thread can't be started, or the token can't be read.
    pub fn bind(
        address: SocketAddr,
        access: &AdminAccess,
        recorder: Arc<Recorder>,
        ready: Arc<AtomicBool>,
        clock: Clock,
    ) -> io::Result<Self> {
        let (gate, seats) = (Gate::new(access)?, Arc::new(Semaphore::new(SEATS)));
        let started = since_epoch(clock.wall(Stamp::ORIGIN));
        let pages = Arc::new(Pages { recorder, ready, clock, started, gate, seats });
        let answer = move |request: Request<_>| std::future::ready(pages.answer(&request));
        Ok(Self(Aside::bind(address, ROLE, answer)?))
    }

    /// The same for pages of one's own; `name` is what messages call the listener.
    ///
    /// # Errors
    /// If the address can't be bound or the thread can't be started.
    pub fn serve(
        name: &'static str,
        address: SocketAddr,
        answer: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let role = Role { name, ..ROLE };
        Ok(Self(Aside::bind(address, role, move |request: Request<_>| std::future::ready(answer(&request)))?))
    }

    /// Where it listens, a port chosen by the system included.
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// What is there as a whole, or goes on and on.
type Content = Either<Full<Bytes>, Live>;

struct Pages {
    recorder: Arc<Recorder>,
    ready: Arc<AtomicBool>,
    clock: Clock,
    /// Seconds since the epoch. Read once: a clock that is set makes no other process.
    started: f64,
    gate: Gate,
    seats: Arc<Semaphore>,
}

impl Pages {
    fn answer<B>(self: &Arc<Self>, request: &Request<B>) -> Response<Content> {
        let (path, headers) = (request.uri().path(), request.headers());
        if path == "/live" && request.method() == Method::GET {
            return self.watch(headers);
        }
        let answer = match *request.method() {
            Method::GET | Method::HEAD => self.plain(path, request.uri().query().unwrap_or_default(), headers),
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"),
        };
        answer.map(Either::Left)
    }

    /// What is there as a whole.
    fn plain(&self, path: &str, query: &str, headers: &HeaderMap) -> Answer {
        match path {
            // These tell of no single exchange but by exemplars (ids and a TTFT), and answer to any name.
            "/metrics" => self.metrics(headers),
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Acquire) => text(StatusCode::OK, "ready\n"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or draining\n"),
            "/help" => text(StatusCode::OK, INDEX),
            "/" if !accepts(headers, header::ACCEPT, "text/html") => text(StatusCode::OK, INDEX),
            "/exchanges" => self.records(headers, || exchanges::page(self.recorder.recent(), query)),
            "/exchange" => self.records(headers, || exchanges::one(self.recorder.recent(), query)),
            _ => self.gate.refuses_name(headers).or_else(|| page::file(path, headers)).unwrap_or_else(|| {
                text(StatusCode::NOT_FOUND, "not found; try /, /metrics, /exchanges, /healthz, /readyz, /help\n")
            }),
        }
    }

    /// Records, for whom they are.
    fn records(&self, headers: &HeaderMap, found: impl FnOnce() -> Result<String, String>) -> Answer {
        if let Some(refusal) = self.refuses(headers) {
            return refusal;
        }
        match found() {
            Ok(page) => json(page),
            Err(why) => text(StatusCode::BAD_REQUEST, why + "\n"),
        }
    }

    fn refuses(&self, headers: &HeaderMap) -> Option<Answer> {
        self.gate.refuses_name(headers).or_else(|| self.gate.refuses_reader(headers))
    }

    /// The live page's events, for as long as somebody reads them.
    fn watch(self: &Arc<Self>, headers: &HeaderMap) -> Response<Content> {
        if let Some(refusal) = self.refuses(headers) {
            return refusal.map(Either::Left);
        }
        let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() else {
            let many = format!("{SEATS} are looking already, and no more may\n");
            return text(StatusCode::SERVICE_UNAVAILABLE, many).map(Either::Left);
        };
        let zipped = accepts(headers, header::ACCEPT_ENCODING, "gzip");
        let mut response = Response::new(Either::Right(Live::new(Arc::clone(self), seat, zipped)));
        let about = response.headers_mut();
        about.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        about.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if zipped {
            about.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }

    fn metrics(&self, headers: &HeaderMap) -> Answer {
        let openmetrics = accepts(headers, header::ACCEPT, "application/openmetrics-text");
        let exposition = self.recorder.encode(openmetrics, self.clock.now());
        let kind = if openmetrics {
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        };
        let mut answer = packed(headers, HeaderValue::from_static(kind), exposition);
        answer.headers_mut().insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
        answer
    }
}

/// An answer of this kind, compressed if its reader takes that.
fn packed(headers: &HeaderMap, kind: HeaderValue, content: impl AsRef<[u8]> + Into<Bytes>) -> Answer {
    let zipped = accepts(headers, header::ACCEPT_ENCODING, "gzip").then(|| gzip(content.as_ref())).and_then(Result::ok);
    let Some(zipped) = zipped else { return of_kind(StatusCode::OK, kind, content) };
    let mut answer = of_kind(StatusCode::OK, kind, zipped);
    answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    answer
}

/// Whether a header lists `token` and does not weigh it with zero.
fn accepts(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(
        |item| {
            let mut parts = item.split(';').map(str::trim);
            let named = parts.next().is_some_and(|first| first.eq_ignore_ascii_case(token));
            let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)));
            named && !refused
        },
    )
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}
