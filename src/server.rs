//! One client connection: TLS if the listener has it, HTTP/1.1 or HTTP/2 by what the client speaks, and each request
//! handed to the [`Gateway`].

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Either;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::{
    config::Limits,
    http1::{
        Upgraded,
        server::{self as http1, Ended},
    },
    net::{self, Begun, BoxIo, MeteredIo, Socket, StampWrites, Together, TracedIo},
    proxy::Gateway,
    tap::{Downstream, Shared},
};

/// Serves connections; one for all of them.
#[derive(Clone, Debug)]
pub struct Server {
    gateway: Arc<Gateway>,
    core: usize,
}

impl Server {
    /// A server in front of this gateway, on its first core.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, core: 0 }
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
        let limits = gateway.limits();
        let mut spoken = None;
        let mut plain: BoxIo = match tls {
            None => Box::new(metered),
            Some(config) => {
                // Boxed, to be gone after it: every connection's task would be larger by a KiB, TLS or not.
                let accept = Box::pin(TlsAcceptor::from(config).accept(metered));
                match tokio::time::timeout(limits.header_read, accept).await {
                    Ok(Ok(stream)) => {
                        spoken = stream.get_ref().1.alpn_protocol().map(|protocol| protocol == b"h2");
                        Box::new(stream)
                    }
                    Ok(Err(error)) => return tracing::debug!(%error, "a client's TLS handshake failed"),
                    Err(_) => return tracing::debug!("a client's TLS handshake took too long"),
                }
            }
        };
        let (read, is_http2) = if let Some(is_http2) = spoken {
            (Bytes::new(), is_http2)
        } else {
            let greeting = Box::pin(tokio::time::timeout(limits.header_read, http1::greeting(&mut plain)));
            let greeting = tokio::select! {
                greeting = greeting => greeting,
                () = asked_to(&mut stop) => return,
            };
            match greeting {
                Ok(Ok(greeting)) => greeting,
                Ok(Err(error)) => return tracing::debug!(%error, "a client's connection ended"),
                Err(_) => return tracing::debug!("a client connected and said nothing"),
            }
        };
        if is_http2 {
            let io = TracedIo::new(Box::new(Upgraded::new(plain, read)), stats);
            Box::pin(self.serve_http2(io, downstream, stop)).await;
        } else {
            self.serve_http1(plain, read, downstream, stop).await;
        }
    }

    async fn serve_http1(&self, io: BoxIo, read: Bytes, downstream: Arc<Downstream>, mut stop: watch::Receiver<bool>) {
        let gateway = &self.gateway;
        let limits = gateway.limits();
        let limits = http1::Limits {
            head_read: limits.header_read,
            head_bytes: limits.max_head_bytes,
            headers: limits.max_headers,
        };
        // Boxed, to be gone once the head is there: a connection's task would have room for its future as long as it lives.
        let service =
            |request: http::Request<_>| Box::pin(Arc::clone(gateway).call(&downstream, request.map(Either::Left)));
        match http1::serve(io, read, limits, asked_to(&mut stop), service).await {
            Ended::Refused(status) => gateway.refused_head(&downstream, status),
            ended => tracing::debug!(?ended, "a client's connection ended"),
        }
    }

    async fn serve_http2(&self, io: TracedIo, downstream: Arc<Downstream>, mut stop: watch::Receiver<bool>) {
        let gateway = &self.gateway;
        downstream.stats.carries_many();
        let service = service_fn(|request: http::Request<_>| {
            let call = Arc::clone(gateway).call(&downstream, request.map(Either::Right));
            Box::pin(async move { Ok::<_, Infallible>(call.await) })
        });
        let begun = Begun::default();
        let connection = http2(gateway.limits(), begun.clone()).serve_connection(TokioIo::new(io), service);
        let mut together = Together::new(connection, begun);
        let ended = tokio::select! {
            ended = &mut together => ended,
            () = asked_to(&mut stop) => {
                if let Some(connection) = together.connection() {
                    connection.graceful_shutdown();
                }
                together.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a client's connection ended");
        }
    }
}

fn http2(limits: &Limits, begun: Begun) -> http2::Builder<Begun> {
    let mut http2 = http2::Builder::new(begun);
    http2
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_header_list_size(u32::try_from(limits.max_head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(net::STREAM_WINDOW)
        .initial_connection_window_size(net::CONNECTION_WINDOW)
        // A client that died without a word must not hold its upstream streams for a quarter of an hour.
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    http2
}

async fn asked_to(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Nobody is left to ask.
        std::future::pending::<()>().await;
    }
}
