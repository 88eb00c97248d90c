//! Metrics, health and the last exchanges, on a thread and a runtime of their own: encoding a scrape takes milliseconds
//! that no stream may wait for.

mod exchanges;

use std::{
    convert::Infallible,
    io,
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::oneshot};

use crate::{clock::Clock, net::listener::std_listener, record::Recorder};

/// The admin listener, running.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds the address and serves it on a thread of its own until [`Admin::stop`] or drop.
    ///
    /// # Errors
    /// If the address can't be bound or the thread can't be started.
    pub fn bind(
        address: SocketAddr,
        recorder: Arc<Recorder>,
        ready: Arc<AtomicBool>,
        clock: Clock,
    ) -> io::Result<Self> {
        let pages = Pages { recorder, ready, clock };
        Self::serve("admin", address, move |request| pages.answer(request))
    }

    /// The same for pages of one's own; `name` is what messages call the listener.
    ///
    /// # Errors
    /// As [`Admin::bind`].
    pub fn serve(
        name: &'static str,
        address: SocketAddr,
        answer: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = std_listener(address)
            .map_err(|error| io::Error::new(error.kind(), format!("can't listen on {address} ({name}): {error}")))?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener, Arc::new(answer), stopped).await,
                    Err(error) => tracing::error!(%error, "the {name} listener can't be served"),
                }
            });
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, a port chosen by the system included.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops and waits for the thread's end.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.end();
    }
}

struct Pages {
    recorder: Arc<Recorder>,
    ready: Arc<AtomicBool>,
    clock: Clock,
}

async fn serve(
    listener: TcpListener,
    answer: Arc<impl Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync + 'static>,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => return,
        };
        let Ok((socket, _)) = accepted else {
            // Out of descriptors, most likely: they come back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let answer = Arc::clone(&answer);
        let service = service_fn(move |request| {
            let answer = answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(30))
            .serve_connection(TokioIo::new(socket), service);
        // Ends with its connection, or with this runtime.
        tokio::spawn(connection);
    }
}

impl Pages {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
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

    fn exchanges(&self, query: &str) -> Response<Full<Bytes>> {
        let (status, kind, page) = match exchanges::page(self.recorder.recent(), query) {
            Ok(page) => (StatusCode::OK, "application/json", page),
            Err(why) => (StatusCode::BAD_REQUEST, "text/plain; charset=utf-8", why + "\n"),
        };
        let mut response = Response::new(Full::new(Bytes::from(page)));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn metrics(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
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

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
