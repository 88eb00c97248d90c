//! A listener beside the traffic: its own thread and runtime, and a bound on everything a caller may hold.

use std::{convert::Infallible, error::Error, fmt, io, net::SocketAddr, thread::JoinHandle, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};

use super::impatient::Impatient;
use crate::net::listener::std_listener;

/// What is usually answered here: small enough to be there as a whole.
pub(super) type Answer = Response<Full<Bytes>>;

/// How long a caller may take none of its answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// What a listener is for, and how much its callers may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    /// Its name in errors, and its thread's.
    pub(super) name: &'static str,
    /// How long a request's head may take, and a connection without a request be kept.
    pub(super) header_read: Duration,
    /// Whether a connection is kept for another request.
    pub(super) keep_alive: bool,
    /// Connections at the same time; one above it is closed at once.
    pub(super) connections: usize,
}

/// A listener, running until it is stopped or dropped.
pub(super) struct Aside {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Aside {
    /// Binds the address and has `answer` answer every request there, on a thread of its own.
    ///
    /// # Errors
    /// If the address can't be bound or the thread can't be started.
    pub(super) fn bind<A, F, B>(address: SocketAddr, role: Role, answer: A) -> io::Result<Self>
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let listener = std_listener(address).map_err(|error| {
            io::Error::new(error.kind(), format!("can't listen on {address} ({}): {error}", role.name))
        })?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(role.name.into()).spawn(move || {
            runtime.block_on(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener, role, answer, stopped).await,
                    Err(error) => tracing::error!(%error, "the {} listener can't be served", role.name),
                }
            });
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, a port chosen by the system included.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Aside {
    /// Stops it and waits for the thread's end.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve<A, F, B>(listener: TcpListener, role: Role, answer: A, mut stopped: oneshot::Receiver<()>)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    // Its tasks end with their connections, or with this future.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = &mut stopped => return,
        };
        let Ok((socket, _)) = accepted else {
            // Out of descriptors, most likely: they come back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if connections.len() >= role.connections {
            continue;
        }
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answered = answer(request);
            async move { Ok::<_, Infallible>(answered.await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(role.header_read)
            .keep_alive(role.keep_alive)
            .serve_connection(TokioIo::new(Impatient::new(socket, TAKEN_WITHIN)), service);
        connections.spawn(connection);
    }
}

/// An answer in words.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    of_kind(status, HeaderValue::from_static("text/plain; charset=utf-8"), text)
}

/// An answer in JSON, of the moment and nobody else's.
pub(super) fn json(json: String) -> Answer {
    let mut answer = of_kind(StatusCode::OK, HeaderValue::from_static("application/json"), json);
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An answer of this content type.
pub(super) fn of_kind(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
