//! The data plane in memory: clients and upstreams are pipes, names and connects are scripted, the clock is paused.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use streamgauge::{
    clock::Clock,
    config::{
        Adds, AdminAccess, Config, HttpVersion, Limits, Matches, Metrics, Roots, Route, Runtime, Upstream,
        UpstreamLimits,
    },
    net::{BoxIo, Socket},
    observation::Observation,
    proxy::Gateway,
    record::Recorder,
    server::Server,
    upstream::Dial,
};
use tokio::sync::{mpsc, watch};

use super::Peer;

/// What a world may differ in.
pub struct WorldOptions {
    /// Bytes a pipe holds before writing to it waits.
    pub pipe: usize,
    /// The same towards the upstream, if it differs.
    pub upstream_pipe: Option<usize>,
    /// How long a name takes to resolve; absent for an upstream named by its address.
    pub dns: Option<Duration>,
    /// How long a connect takes.
    pub tcp: Duration,
    /// Changes to the upstream's configuration.
    pub upstream: fn(&mut Upstream),
    /// Changes to the configuration.
    pub config: fn(&mut Config),
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self { pipe: 64 * 1024, upstream_pipe: None, dns: None, tcp: Duration::ZERO, upstream: |_| {}, config: |_| {} }
    }
}

impl WorldOptions {
    /// Pipes that fill at once.
    pub fn narrow() -> Self {
        Self {
            pipe: 1024,
            upstream_pipe: Some(64 * 1024),
            config: |config| config.limits.max_head_bytes = 8192,
            ..Self::default()
        }
    }
}

/// The gauge between scripted clients and one scripted upstream.
pub struct World {
    pub gateway: Arc<Gateway>,
    pub clock: Clock,
    pub recorder: Arc<Recorder>,
    server: Server,
    stop: watch::Sender<bool>,
    cut: watch::Sender<bool>,
    records: mpsc::Receiver<Observation>,
    dialled: mpsc::Receiver<BoxIo>,
    pipe: usize,
}

impl World {
    pub fn new(options: WorldOptions) -> Self {
        let (ends, dialled) = mpsc::channel(10_000);
        let dial =
            PipeDial { ends, dns: options.dns, tcp: options.tcp, pipe: options.upstream_pipe.unwrap_or(options.pipe) };
        Self::with_dial(options, Arc::new(dial), dialled)
    }

    /// A world whose upstream is reached in the test's own way; `dialled` tells of the connections made.
    pub fn with_dial(options: WorldOptions, dial: Arc<dyn Dial>, dialled: mpsc::Receiver<BoxIo>) -> Self {
        let clock = Clock::start();
        let mut upstream = upstream("up", if options.dns.is_some() { "up.test" } else { "127.0.0.1" });
        (options.upstream)(&mut upstream);
        let upstream = Arc::new(upstream);
        let mut config = config(vec![upstream]);
        (options.config)(&mut config);
        let (tell, records) = mpsc::channel(10_000);
        let recorder = Recorder::new(&config, clock).expect("no file to open").with_listener(Box::new(move |record| {
            // A test that has ended already, and failed, no longer listens.
            let told = tell.try_send(record.clone());
            assert!(!matches!(told, Err(mpsc::error::TrySendError::Full(_))), "room for the record");
        }));
        let recorder = Arc::new(recorder);
        let gateway = Gateway::new(&config, Arc::clone(&recorder), dial, clock).expect("a valid gateway");
        let gateway = Arc::new(gateway);
        let server = Server::new(Arc::clone(&gateway));
        Self {
            gateway,
            clock,
            recorder,
            server,
            stop: watch::Sender::new(false),
            cut: watch::Sender::new(false),
            records,
            dialled,
            pipe: options.pipe,
        }
    }

    /// A client connects.
    pub fn client(&self) -> Peer {
        let (ours, theirs) = tokio::io::duplex(self.pipe);
        let (server, stop) = (self.server.clone(), self.stop.subscribe());
        let mut cut = self.cut.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                () = server.serve(Socket::Other(Box::new(theirs)), None, stop) => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
        });
        Peer::new(Box::new(ours))
    }

    /// A client connects, and this core serves it.
    pub fn client_on(&self, core: usize) -> Peer {
        let (ours, theirs) = tokio::io::duplex(self.pipe);
        let (server, stop) = (self.server.on(core), self.stop.subscribe());
        tokio::spawn(async move { server.serve(Socket::Other(Box::new(theirs)), None, stop).await });
        Peer::new(Box::new(ours))
    }

    /// A client connects with TLS.
    pub fn client_of(&self, tls: Arc<rustls::ServerConfig>) -> Peer {
        let (ours, theirs) = tokio::io::duplex(self.pipe);
        let (server, stop) = (self.server.clone(), self.stop.subscribe());
        tokio::spawn(async move { server.serve(Socket::Other(Box::new(theirs)), Some(tls), stop).await });
        Peer::new(Box::new(ours))
    }

    /// Whether the gateway has dialled and nobody took the connection yet.
    pub fn has_dialled(&self) -> bool {
        !self.dialled.is_empty()
    }

    /// From now on every connection is refused.
    pub fn refuse(&mut self) {
        self.dialled.close();
    }

    /// Exchanges under way.
    pub fn in_flight(&self) -> usize {
        self.gateway.shared().in_flight()
    }

    /// A client of its own sends this request, and a fresh connection to the upstream brings it to its last bytes.
    pub async fn asked(&mut self, request: impl AsRef<[u8]>) -> (Peer, Peer) {
        let request = request.as_ref();
        let mut client = self.client();
        client.send(request).await;
        let mut up = self.upstream().await;
        let last = request.last_chunk::<4>().expect("a request");
        up.read_to(std::str::from_utf8(last).expect("text")).await;
        (client, up)
    }

    /// One exchange on fresh connections, every byte of it checked on both sides: what is sent, and what must come out
    /// at the other end, nothing before and nothing after.
    pub async fn relay(&mut self, request: Sides<'_>, response: Sides<'_>) -> Observation {
        let mut client = self.client();
        let (mut up, ()) = tokio::join!(
            async {
                let mut up = self.upstream().await;
                let came = up.read(request.out.len()).await;
                assert_same(&came, request.out);
                up
            },
            client.send(request.sent)
        );
        up.assert_silent().await;
        let (came, ()) = tokio::join!(client.read(response.out.len()), up.send(response.sent));
        assert_same(&came, response.out);
        let record = self.record().await;
        client.assert_silent().await;
        up.assert_silent().await;
        self.assert_no_record();
        assert_eq!(self.in_flight(), 0);
        record
    }

    /// The next connection the gateway makes to the upstream.
    pub async fn upstream(&mut self) -> Peer {
        let waiting = tokio::time::timeout(Duration::from_secs(3600), self.dialled.recv());
        Peer::new(waiting.await.expect("the gateway dials").expect("the gateway is there"))
    }

    /// The record of the next finished exchange.
    pub async fn record(&mut self) -> Observation {
        let waiting = tokio::time::timeout(Duration::from_secs(3600), self.records.recv());
        waiting.await.expect("a record comes").expect("the recorder is there")
    }

    /// No further record is there.
    pub fn assert_no_record(&mut self) {
        assert!(self.records.try_recv().is_err(), "one exchange, one record");
    }

    /// Requests under way run on, no more are taken.
    pub fn drain(&self) {
        self.stop.send_replace(true);
    }

    /// The shutdown's deadline has come: what is under way is cut.
    pub fn cut(&self) {
        self.gateway.shared().cut();
        self.cut.send_replace(true);
    }

    /// The exposition as a scrape would see it now.
    pub fn scrape(&self) -> String {
        self.recorder.encode(false, self.clock.now())
    }
}

/// What one side sends, and what must come out at the other.
#[derive(Clone, Copy)]
pub struct Sides<'a> {
    pub sent: &'a [u8],
    pub out: &'a [u8],
}

impl<'a> Sides<'a> {
    /// It comes out as it went in.
    pub fn same(sent: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { sent: sent.as_ref(), out: sent.as_ref() }
    }

    /// It comes out like this.
    pub fn changed(sent: &'a (impl AsRef<[u8]> + ?Sized), out: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { sent: sent.as_ref(), out: out.as_ref() }
    }
}

/// Compares as text where it is text, so that a failure can be read.
#[track_caller]
pub fn assert_same(came: &[u8], wanted: &[u8]) {
    assert!(
        came == wanted,
        "came:   {:?}\nwanted: {:?}",
        String::from_utf8_lossy(&came[..came.len().min(4000)]),
        String::from_utf8_lossy(&wanted[..wanted.len().min(4000)])
    );
}

/// An upstream as configuration has it.
pub fn upstream(name: &str, host: &str) -> Upstream {
    Upstream {
        name: name.into(),
        tls: false,
        authority: format!("{host}:80").parse().expect("an authority"),
        host: host.to_owned(),
        port: 80,
        base_path: String::new(),
        provider: None,
        ca_file: None,
        roots: Roots::Webpki,
        client_certificate: None,
        http: HttpVersion::Auto,
        preserve_host: false,
        models: Vec::new(),
        limits: UpstreamLimits::default(),
    }
}

/// A configuration whose first upstream takes everything.
pub fn config(upstreams: Vec<Arc<Upstream>>) -> Config {
    let first = Arc::clone(&upstreams[0]);
    Config {
        listeners: Vec::new(),
        recent: 512,
        admin: None,
        admin_access: AdminAccess::default(),
        client_timings: None,
        workers: None,
        runtime: Runtime::MultiThread,
        kernel_stamps: true,
        upstreams,
        routes: vec![Route {
            matches: Matches::Default,
            strip_prefix: false,
            observe: true,
            ask_for_usage: false,
            adds: Adds::default(),
            upstream: first,
            upstream_index: 0,
        }],
        metrics: Metrics::default(),
        limits: Limits::default(),
        access_log: None,
        log_level: "off".to_owned(),
        session_header: None,
    }
}

struct PipeDial {
    ends: mpsc::Sender<BoxIo>,
    dns: Option<Duration>,
    tcp: Duration,
    pipe: usize,
}

impl Dial for PipeDial {
    fn resolve(&self, _host: &str, port: u16) -> streamgauge::upstream::Dialling<Vec<SocketAddr>> {
        let wait = self.dns.unwrap_or_default();
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        })
    }

    fn connect(&self, _address: SocketAddr) -> streamgauge::upstream::Dialling<Socket> {
        let (wait, ends, pipe) = (self.tcp, self.ends.clone(), self.pipe);
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            let (ours, theirs) = tokio::io::duplex(pipe);
            ends.try_send(Box::new(theirs)).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(Socket::Other(Box::new(ours)))
        })
    }
}
