//! Resolve → TCP → TLS → HTTP, each phase timed. The connection comes back with its own facts, because whoever shares
//! it later must know that this one dialled and they did not.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use http_body::Body;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::ServerName;
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use super::sender::Sender;
use crate::{
    clock::{Clock, Nanos, Stamp},
    config::{HttpVersion, Upstream},
    error::{Error, Stage},
    http1::client::Connection,
    net::{
        self, Begun, BoxIo, ConnStats, MeteredIo, Socket, StampWrites, Together, TracedIo, stamp_arrivals, tls,
        tls::ClientTls,
    },
    timeline::Interval,
};

/// A boxed future: dialling is rare, a box costs nothing beside it.
pub type Dialling<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// How names are resolved and connections made: the operating system's way, or a test's scripted one.
pub trait Dial: Send + Sync + 'static {
    /// The addresses of a host, in the order to try them.
    fn resolve(&self, host: &str, port: u16) -> Dialling<Vec<SocketAddr>>;
    /// A connection to one address.
    fn connect(&self, address: SocketAddr) -> Dialling<Socket>;
}

/// The operating system's resolver and TCP, with small packets sent at once.
#[derive(Clone, Copy, Debug)]
pub struct TcpDial {
    /// The kernel stamps what its connections receive, if it can.
    pub kernel_stamps: bool,
}

impl Dial for TcpDial {
    fn resolve(&self, host: &str, port: u16) -> Dialling<Vec<SocketAddr>> {
        let host = host.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }

    fn connect(&self, address: SocketAddr) -> Dialling<Socket> {
        let kernel_stamps = self.kernel_stamps;
        Box::pin(async move {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            let stamped = kernel_stamps && stamp_arrivals(&socket);
            let stream = socket.connect(address).await?;
            stream.set_nodelay(true)?;
            // A provider may think for minutes in silence; middle boxes forget such connections.
            let keepalive = socket2::TcpKeepalive::new().with_time(std::time::Duration::from_secs(60));
            let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
            Ok(Socket::tcp(stream, stamped))
        })
    }
}

/// When the phases of a dial began and ended; a phase that was not needed is absent.
#[derive(Clone, Copy, Default, Debug)]
pub struct ConnectTimings {
    /// Name resolution; absent for an address or a name still believed.
    pub dns: Option<Interval>,
    /// TCP connect, all addresses tried.
    pub tcp: Option<Interval>,
    /// TLS handshake.
    pub tls: Option<Interval>,
}

impl ConnectTimings {
    /// The dial was given up at `now`: the phase under way (its end still stands at its start) ends there.
    pub fn give_up(&mut self, now: Stamp) {
        let phases = [&mut self.tls, &mut self.tcp, &mut self.dns];
        if let Some(last) = phases.into_iter().flatten().next()
            && last.end == last.start
        {
            last.end = now;
        }
    }
}

/// Timings that a dial fills while the exchange that pays for it can look.
pub type Dialled = Arc<Mutex<ConnectTimings>>;

/// A fresh connection and its facts.
#[derive(Debug)]
pub struct Connected<B> {
    /// Sends requests on it.
    pub sender: Sender<B>,
    /// What its socket sees.
    pub stats: Arc<ConnStats>,
    /// What it cost to make.
    pub timings: ConnectTimings,
    /// When it was ready.
    pub born: Stamp,
}

/// Makes connections to one upstream.
pub struct Connector {
    upstream: Arc<Upstream>,
    dial: Arc<dyn Dial>,
    tls: Option<ClientTls>,
    clock: Clock,
    believed: Mutex<Option<(Stamp, Vec<SocketAddr>)>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("upstream", &self.upstream.name).finish_non_exhaustive()
    }
}

impl Connector {
    /// A connector for this upstream.
    ///
    /// # Errors
    /// If its certificates can't be used.
    pub fn new(upstream: Arc<Upstream>, dial: Arc<dyn Dial>, clock: Clock) -> Result<Self, tls::TlsError> {
        let tls = tls::client(&upstream)?;
        Ok(Self { upstream, dial, tls, clock, believed: Mutex::new(None) })
    }

    /// Dials. `http1_only` is for upgrades, which HTTP/2 has no room for. `timings` is filled phase by phase, so a
    /// dial that fails or is given up still tells where its time went; a phase under way has `end` = its start.
    ///
    /// # Errors
    /// With the stage that failed. The limit on connecting is the caller's.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened so far.
    pub async fn connect<B>(&self, http1_only: bool, timings: &Mutex<ConnectTimings>) -> Result<Connected<B>, Error>
    where
        B: Body + Send + 'static + Unpin,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let addresses = self.resolve(timings).await?;
        let socket = self.tcp(&addresses, timings).await?;
        let stats = Arc::new(ConnStats::default());
        let metered = MeteredIo::new(socket, Arc::clone(&stats), self.clock, StampWrites::Before);
        let (plain, http2) = match &self.tls {
            None => (Box::new(metered) as BoxIo, self.upstream.http == HttpVersion::Http2),
            Some(tls) => self.handshake(metered, if http1_only { &tls.http1 } else { &tls.any }, timings).await?,
        };
        let http2 = http2 && !http1_only;
        if http2 {
            stats.carries_many();
        }
        let sender = if http2 {
            self.http2(TokioIo::new(TracedIo::new(plain, Arc::clone(&stats)))).await?
        } else {
            Sender::Http1(Connection::new(plain))
        };
        let timings = *timings.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Connected { sender, stats, timings, born: self.clock.now() })
    }

    async fn resolve(&self, timings: &Mutex<ConnectTimings>) -> Result<Vec<SocketAddr>, Error> {
        let upstream = &self.upstream;
        if let Ok(address) = upstream.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, upstream.port)]);
        }
        let ttl = Nanos::from(upstream.limits.dns_ttl);
        if let Some((since, addresses)) = &*self.believed.lock().unwrap_or_else(PoisonError::into_inner)
            && self.clock.now().since(*since) < ttl
        {
            return Ok(addresses.clone());
        }
        let addresses = self
            .timed(timings, |timings| &mut timings.dns, self.dial.resolve(&upstream.host, upstream.port))
            .await
            .map_err(|error| Error::upstream(Stage::Dns, error))?;
        if addresses.is_empty() {
            let nothing = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            return Err(Error::upstream(Stage::Dns, nothing));
        }
        let resolved = (self.clock.now(), addresses.clone());
        *self.believed.lock().unwrap_or_else(PoisonError::into_inner) = Some(resolved);
        Ok(addresses)
    }

    async fn tcp(&self, addresses: &[SocketAddr], timings: &Mutex<ConnectTimings>) -> Result<Socket, Error> {
        // Each address gets its share of the limit, so that a first one that swallows packets leaves time for the next.
        let share = self.upstream.limits.connect / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let attempt = async {
            let mut failure = io::Error::other("no address");
            for address in addresses {
                match tokio::time::timeout(share, self.dial.connect(*address)).await {
                    Ok(Ok(socket)) => return Ok(socket),
                    Ok(Err(error)) => failure = error,
                    Err(_) => failure = io::ErrorKind::TimedOut.into(),
                }
            }
            Err(failure)
        };
        let result = self.timed(timings, |timings| &mut timings.tcp, attempt).await;
        result.map_err(|error| {
            // The name may have moved: ask again next time.
            *self.believed.lock().unwrap_or_else(PoisonError::into_inner) = None;
            if error.kind() == io::ErrorKind::TimedOut {
                Error::timed_out(Stage::Tcp)
            } else {
                Error::upstream(Stage::Tcp, error)
            }
        })
    }

    async fn handshake(
        &self,
        socket: MeteredIo,
        config: &Arc<rustls::ClientConfig>,
        timings: &Mutex<ConnectTimings>,
    ) -> Result<(BoxIo, bool), Error> {
        let name = ServerName::try_from(self.upstream.host.clone())
            .map_err(|error| Error::upstream(Stage::Tls, io::Error::other(error)))?;
        let connect = TlsConnector::from(Arc::clone(config)).connect(name, socket);
        let stream = self
            .timed(timings, |timings| &mut timings.tls, connect)
            .await
            .map_err(|error| Error::upstream(Stage::Tls, error))?;
        let http2 = match stream.get_ref().1.alpn_protocol() {
            Some(protocol) => protocol == b"h2",
            None => self.upstream.http == HttpVersion::Http2,
        };
        Ok((Box::new(stream), http2))
    }

    async fn http2<B>(&self, io: TokioIo<TracedIo>) -> Result<Sender<B>, Error>
    where
        B: Body + Send + 'static + Unpin,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let begun = Begun::default();
        let (sender, connection) = http2::Builder::new(begun.clone())
            .timer(TokioTimer::new())
            // A silent death must not hold new exchanges for the kernel's quarter of an hour.
            .keep_alive_interval(std::time::Duration::from_secs(20))
            .keep_alive_timeout(std::time::Duration::from_secs(10))
            .initial_stream_window_size(net::STREAM_WINDOW)
            .initial_connection_window_size(net::CONNECTION_WINDOW)
            // The library's 16 KiB resets answers whose cookies and policies HTTP/1.1 lets through.
            .max_header_list_size(256 * 1024)
            .handshake(io)
            .await
            .map_err(|error| Error::upstream(Stage::Http, error))?;
        // Ends by itself when its senders and the bodies it feeds are gone; what it has to say reaches them first.
        tokio::spawn(Together::new(connection, begun));
        Ok(Sender::Http2(sender))
    }

    async fn timed<T>(
        &self,
        timings: &Mutex<ConnectTimings>,
        phase: impl Fn(&mut ConnectTimings) -> &mut Option<Interval>,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let note = |interval| *phase(&mut timings.lock().unwrap_or_else(PoisonError::into_inner)) = Some(interval);
        let start = self.clock.now();
        note(Interval { start, end: start });
        let result = work.await;
        note(Interval { start, end: self.clock.now() });
        result
    }
}
