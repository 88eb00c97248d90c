//! One client connection: TLS if the listener has it, HTTP/1.1 or HTTP/2 by what the client speaks, and each request
//! handed to the [`Gateway`].

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::{
    config::Limits,
    net::{BoxIo, MeteredIo, Socket, StampWrites, TracedIo},
    proxy::Gateway,
    tap::{Downstream, Shared},
};

/// Serves connections; one for all of them.
#[derive(Clone, Debug)]
pub struct Server {
    gateway: Arc<Gateway>,
    core: usize,
    http: auto::Builder<TokioExecutor>,
}

impl Server {
    /// A server in front of this gateway, on its first core.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let http = http(gateway.limits());
        Self { gateway, core: 0, http }
    }

    /// The same on another core.
    #[must_use]
    pub fn on(&self, core: usize) -> Self {
        Self { core, ..self.clone() }
    }

    /// What every exchange shares.
    pub fn shared(&self) -> &Shared {
        self.gateway.shared()
    }

    /// Serves one connection until it ends. When `stop` turns true, requests under way run on and no further one is
    /// taken.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection and books its exchanges.
    pub async fn serve(
        &self,
        socket: impl Into<Socket>,
        tls: Option<Arc<ServerConfig>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let gateway = &self.gateway;
        let downstream = Gateway::downstream(self.core);
        let stats = Arc::clone(&downstream.stats);
        let metered = MeteredIo::new(socket, Arc::clone(&stats), gateway.shared().clock, StampWrites::After);
        let plain: BoxIo = match tls {
            None => Box::new(metered),
            Some(config) => {
                // Boxed, to be gone after it: every connection's task would be larger by a KiB, TLS or not.
                let accept = Box::pin(TlsAcceptor::from(config).accept(metered));
                match tokio::time::timeout(gateway.limits().header_read, accept).await {
                    Ok(Ok(stream)) => {
                        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                            stats.carries_many();
                        }
                        Box::new(stream)
                    }
                    Ok(Err(error)) => return tracing::debug!(%error, "a client's TLS handshake failed"),
                    Err(_) => return tracing::debug!("a client's TLS handshake took too long"),
                }
            }
        };
        let io = TokioIo::new(TracedIo::new(plain, Arc::clone(&stats)));
        let service = service_fn(|request| {
            let (gateway, downstream) = (Arc::clone(gateway), Arc::clone(&downstream));
            // Boxed, to be gone once the head is there: hyper keeps the room of a service's future (4 KiB) as long as the
            // connection lives.
            Box::pin(async move { gateway.call(downstream, request).await })
        });
        let mut connection = std::pin::pin!(self.http.serve_connection_with_upgrades(io, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = says_nothing(&downstream, gateway.limits().header_read) => {
                return tracing::debug!("a client connected and said nothing");
            }
            () = asked_to(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = %*error, "a client's connection ended");
            if let Some(status) = error.downcast_ref().and_then(refused_head) {
                gateway.refused_head(&downstream, status);
            }
        }
    }
}

fn http(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_buf_size(limits.max_head_bytes)
        .preserve_header_case(true)
        .auto_date_header(false);
    if limits.max_headers != Limits::default().max_headers {
        // Set at all, it costs an allocation per request.
        http.http1().max_headers(limits.max_headers);
    }
    http.http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_header_list_size(u32::try_from(limits.max_head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 23)
        // A client that died without a word must not hold its upstream streams for a quarter of an hour.
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    http
}

/// The status hyper has answered a head with that it could not read; absent if it answered nothing.
fn refused_head(error: &hyper::Error) -> Option<StatusCode> {
    if error.is_parse_too_large() {
        // There is no predicate of its own for the second kind of too large.
        if error.to_string() == "URI too long" {
            return Some(StatusCode::URI_TOO_LONG);
        }
        Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
    } else if error.is_parse() {
        Some(StatusCode::BAD_REQUEST)
    } else {
        None
    }
}

/// Ends for a client whose HTTP version is not known after so long: the library's own limit begins only then.
async fn says_nothing(downstream: &Downstream, patience: Duration) {
    tokio::time::sleep(patience).await;
    if downstream.stats.greeted() || downstream.multiplexed.get().is_some() {
        std::future::pending::<()>().await;
    }
}

async fn asked_to(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Nobody is left to ask.
        std::future::pending::<()>().await;
    }
}
