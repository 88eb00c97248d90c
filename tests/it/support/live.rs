//! The program on real sockets, between real clients and a scripted upstream.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use streamgauge::{
    app::{App, Stop},
    clock::{Clock, Stamp},
    config::{Config, KeyPair, Listener, Upstream},
    net::{self, BoxIo, ConnStats, MeteredIo, StampWrites},
    observation::Observation,
    record::Recorder,
    tap::Shared,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{OnceCell, mpsc},
    task::JoinHandle,
};

use super::{Peer, tls::Certificate, world};

/// A running gauge in front of one upstream that the test plays.
pub struct Live {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where clients connect with TLS, if it was given a certificate.
    pub tls_address: Option<SocketAddr>,
    /// Where metrics and records are served, if the test configured that.
    pub admin: Option<SocketAddr>,
    /// Its time.
    pub clock: Clock,
    /// Where clients send in their own timings, likewise.
    pub client_timings: Option<SocketAddr>,
    shared: Arc<Shared>,
    upstream: TcpListener,
    records: mpsc::Receiver<Observation>,
    stop: Stop,
    running: JoinHandle<()>,
}

/// The kernel stamps arrivals from here on: switching that on takes it a moment, and it lasts as long as a socket asks.
async fn stamps_are_on() {
    static ASKS: OnceCell<net::listener::Listener> = OnceCell::const_new();
    let switched_on = async {
        let any = Listener { address: ([127, 0, 0, 1], 0).into(), tls: None };
        let listener = net::listener::Listener::bind(&any, true).expect("a port");
        loop {
            let mut peer = TcpStream::connect(listener.address().expect("an address")).await.expect("a connection");
            let (clock, stats) = (Clock::start(), Arc::new(ConnStats::default()));
            let mut io = MeteredIo::new(listener.accept().await, Arc::clone(&stats), clock, StampWrites::After);
            peer.write_all(b".").await.expect("a reader");
            io.read_u8().await.expect("a writer");
            if stats.stamped_by_kernel(Stamp::ORIGIN) {
                return listener;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if cfg!(target_os = "linux") {
        ASKS.get_or_init(|| switched_on).await;
    }
}

/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

impl Live {
    /// Starts it; `change` may alter the upstream, and with a pair there is a second listener that speaks TLS.
    pub async fn start(tls: Option<&KeyPair>, change: impl FnOnce(&mut Upstream)) -> Self {
        Self::start_with(tls, change, |_| {}).await
    }

    /// The same; `configure` may alter the rest of the configuration.
    pub async fn start_with(
        tls: Option<&KeyPair>,
        change: impl FnOnce(&mut Upstream),
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        let upstream = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = upstream.local_addr().expect("an address").port();
        let mut configured = world::upstream("up", "127.0.0.1");
        configured.port = port;
        configured.authority = format!("127.0.0.1:{port}").parse().expect("an authority");
        change(&mut configured);
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let mut config = Config { listeners: Vec::new(), ..world::config(vec![Arc::new(configured)]) };
        config.listeners.push(Listener { address: any, tls: None });
        config.listeners.extend(tls.map(|pair| Listener { address: any, tls: Some(pair.clone()) }));
        configure(&mut config);
        if config.kernel_stamps {
            stamps_are_on().await;
        }
        let clock = Clock::start();
        let (tell, records) = mpsc::channel(1000);
        let recorder = Recorder::new(&config, clock).expect("no file to open").with_listener(Box::new(move |record| {
            tell.try_send(record.clone()).expect("room for the record");
        }));
        let app = App::bind_with(&config, recorder, clock).expect("free ports");
        let (addresses, admin, client_timings) = (app.addresses(), app.admin_address(), app.client_timings_address());
        let (stop, shared) = (Stop::default(), Arc::clone(app.shared()));
        let running = tokio::spawn(app.run(stop.clone()));
        Self {
            address: addresses[0],
            tls_address: addresses.get(1).copied(),
            admin,
            client_timings,
            clock,
            shared,
            upstream,
            records,
            stop,
            running,
        }
    }

    /// A client connects.
    pub async fn client(&self) -> Peer {
        Peer::new(Box::new(TcpStream::connect(self.address).await.expect("the gauge listens")))
    }

    /// A client connects to the listener that speaks TLS.
    pub async fn tls_client(&self, certificate: &Certificate, protocol: &str) -> Peer {
        let stream = TcpStream::connect(self.tls_address.expect("a TLS listener")).await.expect("the gauge listens");
        Peer::new(certificate.connect(Box::new(stream), protocol).await)
    }

    /// The next connection the gauge makes.
    pub async fn upstream(&self) -> Peer {
        let accepted = tokio::time::timeout(PATIENCE, self.upstream.accept()).await.expect("the gauge dials");
        Peer::new(Box::new(accepted.expect("a connection").0) as BoxIo)
    }

    /// The exposition as a scrape would see it now.
    pub fn scrape(&self) -> String {
        self.shared.recorder.encode(false, self.clock.now())
    }

    /// What its exchanges share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The record of the next finished exchange.
    pub async fn record(&mut self) -> Observation {
        let record = tokio::time::timeout(PATIENCE, self.records.recv()).await.expect("a record comes");
        record.expect("the recorder is there")
    }

    /// Takes no more requests; what is under way runs on.
    pub fn drain(&self) {
        self.stop.drain();
    }

    /// Stops it while one exchange is under way, and gives that one's record.
    pub async fn drained(mut self) -> Observation {
        self.stop.drain();
        let record = self.record().await;
        self.finish().await;
        record
    }

    /// Stops it; no record may be left and nothing under way.
    pub async fn finish(mut self) {
        self.stop.drain();
        tokio::time::timeout(PATIENCE, &mut self.running).await.expect("it stops").expect("it does not panic");
        assert!(self.records.try_recv().is_err(), "one exchange, one record");
    }
}
