//! What is not traffic: metrics, health and the last exchanges on the admin listener, and what clients measured on one
//! of its own. Each has a thread and a runtime to itself: encoding a scrape takes milliseconds that no stream may wait for.

mod aside;
mod client_timings;
mod exchanges;

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
use http_body_util::Full;

use self::aside::{Answer, Aside, Role, json, text};
pub use self::client_timings::ClientTimings;
use crate::{clock::Clock, record::Recorder};

/// The admin listener, running until it is dropped.
#[derive(Debug)]
pub struct Admin(Aside);

/// Whoever scrapes keeps one connection; a thousand is somebody's mistake.
const ROLE: Role = Role { name: "admin", header_read: Duration::from_secs(30), keep_alive: true, connections: 1000 };

impl Admin {
    /// Binds the address and serves it on a thread of its own.
    ///
    /// # Errors
    /// If the address can't be bound or the thread can't be started.
    pub fn bind(
        address: SocketAddr,
        recorder: Arc<Recorder>,
        ready: Arc<AtomicBool>,
        clock: Clock,
    ) -> io::Result<Self> {
        let pages = Arc::new(Pages { recorder, ready, clock });
        Self::serve("admin", address, move |request| pages.answer(request))
    }

    /// The same for pages of one's own; `name` is what messages call the listener.
    ///
    /// # Errors
    /// As [`Admin::bind`].
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

struct Pages {
    recorder: Arc<Recorder>,
    ready: Arc<AtomicBool>,
    clock: Clock,
}

impl Pages {
    fn answer<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        }
        match request.uri().path() {
            "/metrics" => self.metrics(request.headers()),
            "/exchanges" => self.exchanges(request.uri().query().unwrap_or_default()),
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Acquire) => text(StatusCode::OK, "ready\n"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or draining\n"),
            "/" => text(
                StatusCode::OK,
                "streamgauge\n\n\
                 /metrics    Prometheus exposition\n\
                 /exchanges  records of the last exchanges, newest first, as JSON: ?trace_id= ?id= ?upstream= ?model= \
                 ?outcome= ?limit=\n\
                 /healthz    alive\n\
                 /readyz     taking requests\n",
            ),
            _ => text(StatusCode::NOT_FOUND, "not found; try /metrics, /exchanges, /healthz, /readyz\n"),
        }
    }

    fn exchanges(&self, query: &str) -> Answer {
        match exchanges::page(self.recorder.recent(), query) {
            Ok(page) => json(page),
            Err(why) => text(StatusCode::BAD_REQUEST, why + "\n"),
        }
    }

    fn metrics(&self, headers: &HeaderMap) -> Answer {
        let openmetrics = accepts(headers, header::ACCEPT, "application/openmetrics-text");
        let exposition = self.recorder.encode(openmetrics, self.clock.now());
        let kind = if openmetrics {
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        };
        let zipped =
            accepts(headers, header::ACCEPT_ENCODING, "gzip").then(|| gzip(exposition.as_bytes())).and_then(Result::ok);
        let gzipped = zipped.is_some();
        let mut response = Response::new(Full::new(zipped.map_or_else(|| Bytes::from(exposition), Bytes::from)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
        if gzipped {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
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
