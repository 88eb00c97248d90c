//! The program's life: bind everything, run, drain.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet};

use crate::{
    admin::Admin, clock::Clock, config::Config, net::listener::Listener, proxy::Gateway, record::Recorder,
    server::Server, tap::Shared, upstream::TcpDial,
};

/// A gauge whose addresses are bound, not running yet.
#[derive(Debug)]
pub struct App {
    gateway: Arc<Gateway>,
    listeners: Vec<Listener>,
    admin: Option<Admin>,
    ready: Arc<AtomicBool>,
    drain_timeout: Duration,
}

/// Asks a running gauge to stop.
#[derive(Clone, Debug)]
pub struct Stop {
    stop: watch::Sender<bool>,
    now: watch::Sender<bool>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { stop: watch::Sender::new(false), now: watch::Sender::new(false) }
    }
}

impl Stop {
    /// Take no more requests; let what is under way run on up to `drain_timeout`.
    pub fn drain(&self) {
        self.stop.send_replace(true);
    }

    /// Cut what is under way.
    pub fn now(&self) {
        self.stop.send_replace(true);
        self.now.send_replace(true);
    }
}

impl App {
    /// Binds listeners and the admin address, so that a taken port fails the start. Call inside a tokio runtime.
    ///
    /// # Errors
    /// If an address can't be bound, a certificate can't be used, or the access log can't be opened; the message says
    /// which.
    pub fn bind(config: &Config) -> io::Result<Self> {
        let clock = Clock::start();
        let recorder = Arc::new(Recorder::new(config, clock)?);
        let gateway =
            Gateway::new(config, Arc::clone(&recorder), Arc::new(TcpDial), clock).map_err(io::Error::other)?;
        let listeners = config.listeners.iter().map(Listener::bind).collect::<io::Result<_>>()?;
        let ready = Arc::new(AtomicBool::new(false));
        let admin =
            config.admin.map(|address| Admin::bind(address, recorder, Arc::clone(&ready), clock)).transpose()?;
        let drain_timeout = config.limits.drain_timeout;
        Ok(Self { gateway: Arc::new(gateway), listeners, admin, ready, drain_timeout })
    }

    /// Where clients connect, in the configured order, ports chosen by the system included.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.address().ok()).collect()
    }

    /// Where metrics and health are served; absent if switched off.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// What every exchange shares.
    pub fn shared(&self) -> &Arc<Shared> {
        self.gateway.shared()
    }

    /// Runs until `stop` asks for the end and what was under way has ended or was cut.
    ///
    /// Readiness turns 503 first, then listeners close, then streams run on up to the drain timeout.
    ///
    /// # Cancel safety
    /// Dropping the future cuts everything.
    pub async fn run(self, stop: Stop) {
        self.ready.store(true, Ordering::Release);
        let server = Server::new(Arc::clone(&self.gateway));
        let stopping = stop.stop.subscribe();
        let mut accepting: JoinSet<JoinSet<()>> =
            self.listeners.into_iter().map(|listener| accept(listener, server.clone(), stopping.clone())).collect();
        let sweeping = sweep(&self.gateway);
        let mut asked = stopping;
        tokio::select! {
            () = sweeping => {}
            _ = asked.wait_for(|stop| *stop) => {}
        }
        self.ready.store(false, Ordering::Release);

        let shared = self.gateway.shared();
        let mut connections = Vec::new();
        while let Some(accepted) = accepting.join_next().await {
            connections.extend(accepted);
        }
        let under_way = shared.in_flight.load(Ordering::Acquire);
        tracing::info!(under_way, "stopping: no more requests are taken, streams run on");
        let mut now = stop.now.subscribe();
        let cut = tokio::select! {
            () = drained(&mut connections, shared) => false,
            _ = now.wait_for(|now| *now) => true,
            () = tokio::time::sleep(self.drain_timeout) => true,
        };
        if cut {
            let under_way = shared.in_flight.load(Ordering::Acquire);
            tracing::warn!(under_way, "stopping: what is under way is cut");
            shared.cut();
            for mut set in connections {
                set.shutdown().await;
            }
            while shared.in_flight.load(Ordering::Acquire) > 0 {
                // Tunnels and HTTP/2 streams end in tasks of their own, which the cut has told.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        if let Some(admin) = self.admin {
            admin.stop();
        }
        shared.recorder.close();
    }
}

/// Takes connections until asked to stop; gives back those that are still open then.
async fn accept(listener: Listener, server: Server, mut stop: watch::Receiver<bool>) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let stopping = stop.clone();
    loop {
        tokio::select! {
            socket = listener.accept() => {
                let (server, tls, stop) = (server.clone(), listener.tls.clone(), stopping.clone());
                connections.spawn(async move { server.serve(Box::new(socket), tls, stop).await });
            }
            Some(_) = connections.join_next() => {}
            _ = stop.wait_for(|stop| *stop) => return connections,
        }
    }
}

/// All connections and all exchanges (tunnels outlive their connections' tasks) have ended.
async fn drained(connections: &mut Vec<JoinSet<()>>, shared: &Shared) {
    for set in connections.iter_mut() {
        while set.join_next().await.is_some() {}
    }
    while shared.in_flight.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn sweep(gateway: &Gateway) {
    let mut tick = tokio::time::interval(Duration::from_secs(5));
    loop {
        tick.tick().await;
        gateway.sweep();
    }
}
