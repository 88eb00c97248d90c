//! Listening sockets, bound before anything runs so that a taken port fails the start.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::net::TcpListener;

use super::{
    socket::{Socket, stamp_arrivals},
    tls,
};
use crate::config;

/// One bound listener.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    stamped: bool,
    /// TLS, if its clients must speak it.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Listener {
    /// Binds the address. The backlog is the system's largest: a burst of agents must not see refused connections. With
    /// `kernel_stamps` the kernel stamps what its connections receive, if it can; one that is made in the microsecond between
    /// listening and asking for that has its reads stamped at their return.
    ///
    /// # Errors
    /// If the address can't be bound, or its certificate or key can't be used.
    pub fn bind(listener: &config::Listener, kernel_stamps: bool) -> io::Result<Self> {
        let tls = listener.tls.as_ref().map(tls::server).transpose().map_err(io::Error::other)?;
        let socket = std_listener(listener.address)
            .map_err(|error| io::Error::new(error.kind(), format!("can't listen on {}: {error}", listener.address)))?;
        let stamped = kernel_stamps && stamp_arrivals(&socket);
        Ok(Self { socket: TcpListener::from_std(socket)?, stamped, tls })
    }

    /// Where it listens, the port chosen by the system included.
    ///
    /// # Errors
    /// If the system doesn't say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next connection, with its small packets sent at once.
    ///
    /// Running out of descriptors is waited out: connections close, and a listener that gave up would never recover.
    ///
    /// # Cancel safety
    /// No connection is lost when the future is dropped.
    pub async fn accept(&self) -> Socket {
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    return Socket::tcp(stream, self.stamped);
                }
                Err(error) if is_connections_own(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "can't accept connections, trying again in 50 ms");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// A listening socket with address reuse, so that a restart does not wait for old connections to time out.
///
/// # Errors
/// If the address can't be bound.
pub fn std_listener(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// The connection broke before it was taken: no reason to wait.
fn is_connections_own(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
