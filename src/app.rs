//! The program's life: bind everything, run, drain.

mod cores;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod delay;

use std::{
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, task::JoinSet};

use self::cores::Cores;
use crate::{
    admin::{Admin, ClientTimings},
    clock::Clock,
    config::{Config, Matches, Runtime},
    net::listener::Listener,
    proxy::Gateway,
    record::Recorder,
    server::Server,
    tap::Shared,
    upstream::TcpDial,
};

/// The command `run`: everything from this configuration to the end asked for by a signal.
///
/// SIGTERM or SIGINT drains; a second one cuts what is under way.
///
/// # Errors
/// If an address can't be bound, a certificate can't be used, or the access log can't be opened.
pub fn main(config: &Config) -> io::Result<ExitCode> {
    log_to_stderr(&config.log_level);
    raise_descriptors();
    let runtime = match config.runtime {
        Runtime::MultiThread => runtime(config.workers)?,
        // It only accepts: the cores have threads of their own.
        Runtime::PerCore => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
    };
    runtime.block_on(async {
        let app = App::bind(config)?;
        app.announce(config);
        let stop = Stop::default();
        // Ends with the runtime.
        tokio::spawn(on_signals(stop.clone())?);
        app.run(stop).await;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    })
}

/// A runtime for traffic: one worker per core unless said otherwise.
///
/// # Errors
/// If its threads can't be started.
pub fn runtime(workers: Option<usize>) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    builder.enable_all().build()
}

/// Every stream needs two descriptors; the usual soft limit of 1,024 would end at 500 streams. The hard limit stays.
///
/// To be called before there are threads: with threads, each time the table of descriptors doubles, the kernel holds the one
/// that needs the next descriptor until every processor has passed a point of rest (`expand_fdtable`, `synchronize_rcu`). On
/// a busy machine those are seconds (6.8 were seen), and a worker that stands still takes streams with it. So the table
/// gets its size here, half a megabyte for the table; it never shrinks.
pub fn raise_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        tracing::warn!(%error, "can't raise the limit on open descriptors");
    }
    let current = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let size = current.and_then(|current| i32::try_from(current).ok()).map_or(TABLE, |current| current.min(TABLE));
    // A copy of anything, with the last number there is room for. Without one the table grows as it is needed.
    drop(rustix::io::fcntl_dupfd_cloexec(io::stderr(), size.saturating_sub(1)));
}

/// Descriptors the table is made for: 32,768 streams. More make it grow.
const TABLE: i32 = 1 << 16;

fn log_to_stderr(level: &str) {
    let filter = tracing_subscriber::EnvFilter::new(level);
    let terminal = io::IsTerminal::is_terminal(&io::stderr());
    // Set already only where a test runs this twice.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(terminal)
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .try_init();
}

/// Tells `stop` of SIGTERM and SIGINT: the first drains, the second cuts.
///
/// # Errors
/// If the handlers can't be set.
pub fn on_signals(stop: Stop) -> io::Result<impl Future<Output = ()> + Send> {
    let mut signals = Signals::new()?;
    Ok(async move {
        signals.next().await;
        stop.drain();
        signals.next().await;
        stop.now();
    })
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// A gauge whose addresses are bound, not running yet.
#[derive(Debug)]
pub struct App {
    gateway: Arc<Gateway>,
    listeners: Vec<Listener>,
    /// Absent if the runtime that runs this serves the connections as well.
    cores: Option<Arc<Cores>>,
    admin: Option<Admin>,
    client_timings: Option<ClientTimings>,
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

    /// Whether the end was asked for, draining or not.
    pub fn is_asked(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ready once the end was asked for, draining or not.
    pub async fn asked(&self) {
        // The sender lives as long as `self`, so this does not fail.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Ready once what is under way is to be cut.
    pub async fn cutting(&self) {
        let _ = self.now.subscribe().wait_for(|now| *now).await;
    }
}

impl App {
    /// Binds listeners and the admin address, so that a taken port fails the start. Call inside a tokio runtime.
    ///
    /// # Errors
    /// If an address can't be bound, a certificate can't be used, or the access log can't be opened; the message says
    /// which.
    pub fn bind(config: &Config) -> io::Result<Self> {
        let clock = Clock::system();
        Self::bind_with(config, Recorder::new(config, clock)?, clock)
    }

    /// The same with a recorder of one's own: that of the library's user, who listens to it.
    ///
    /// # Errors
    /// As [`App::bind`].
    pub fn bind_with(config: &Config, recorder: Recorder, clock: Clock) -> io::Result<Self> {
        let recorder = Arc::new(recorder);
        let kernel_stamps = config.kernel_stamps;
        let dial = Arc::new(TcpDial { kernel_stamps });
        let gateway = Gateway::new(config, Arc::clone(&recorder), dial, clock).map_err(io::Error::other)?;
        let cores = match config.runtime {
            Runtime::MultiThread => None,
            Runtime::PerCore => Some(Arc::new(Cores::start(gateway.shared().cores())?)),
        };
        let listeners = config.listeners.iter().map(|listener| Listener::bind(listener, kernel_stamps));
        let listeners = listeners.collect::<io::Result<_>>()?;
        let ready = Arc::new(AtomicBool::new(false));
        let timings = config.client_timings.as_ref();
        let client_timings = timings.map(|timings| ClientTimings::bind(timings, Arc::clone(&recorder))).transpose()?;
        let admin =
            config.admin.map(|address| Admin::bind(address, &config.admin_access, recorder, Arc::clone(&ready), clock));
        let admin = admin.transpose()?;
        let drain_timeout = config.limits.drain_timeout;
        Ok(Self { gateway: Arc::new(gateway), listeners, cores, admin, client_timings, ready, drain_timeout })
    }

    /// Where clients connect, in the configured order, ports chosen by the system included.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.address().ok()).collect()
    }

    /// Where metrics and health are served; absent if switched off.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Where clients send in their own timings; absent unless switched on.
    pub fn client_timings_address(&self) -> Option<SocketAddr> {
        self.client_timings.as_ref().map(ClientTimings::address)
    }

    /// Says where everything is.
    fn announce(&self, config: &Config) {
        for (address, listener) in self.addresses().iter().zip(&config.listeners) {
            let scheme = if listener.tls.is_some() { "https" } else { "http" };
            tracing::info!("clients connect to {scheme}://{address}");
        }
        for route in &config.routes {
            let upstream = &route.upstream;
            let scheme = if upstream.tls { "https" } else { "http" };
            let matched = match &route.matches {
                Matches::PathPrefix(prefix) => format!("paths under {prefix}"),
                Matches::Host(host) => format!("host {host}"),
                Matches::Default => "everything else".to_owned(),
            };
            let matched = if config.routes.len() == 1 { "everything".to_owned() } else { matched };
            tracing::info!(
                "{matched} goes to {} at {scheme}://{}{}",
                upstream.name,
                upstream.authority,
                upstream.base_path
            );
        }
        if let Some(address) = self.admin_address() {
            tracing::info!("metrics at http://{address}/metrics");
            tracing::info!("live page at http://{address}/");
            if config.admin_access.token_file.is_none() && !address.ip().is_loopback() {
                tracing::warn!("anyone who reaches {address} can read who asks for what: set admin.token_file");
            }
        }
        if let Some(address) = self.client_timings_address() {
            tracing::info!("clients send their timings to http://{address}/client-timings");
            let guarded = config.client_timings.as_ref().is_some_and(|timings| timings.token_file.is_some());
            if !guarded && !address.ip().is_loopback() {
                tracing::warn!("anyone who reaches {address} can send timings: set client_timings.token_file");
            }
        }
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
        let closing = watch::Sender::new(false);
        let cores = self.cores;
        let accept = |listener| accept(listener, server.clone(), cores.clone(), closing.subscribe());
        let mut accepting: JoinSet<JoinSet<()>> = self.listeners.into_iter().map(accept).collect();
        let sweeping = sweep(&self.gateway);
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let _watching = match &cores {
            None => delay::Watch::start(self.gateway.shared(), [&Handle::current()]),
            Some(cores) => delay::Watch::start(self.gateway.shared(), cores.runtimes()),
        };
        let mut asked = stop.stop.subscribe();
        tokio::select! {
            () = sweeping => {}
            _ = asked.wait_for(|stop| *stop) => {}
        }
        self.ready.store(false, Ordering::Release);
        closing.send_replace(true);

        let shared = self.gateway.shared();
        let mut connections = Vec::new();
        while let Some(accepted) = accepting.join_next().await {
            connections.extend(accepted);
        }
        let under_way = shared.in_flight();
        tracing::info!(under_way, "stopping: no more requests are taken, streams run on");
        let mut now = stop.now.subscribe();
        let cut = tokio::select! {
            () = drained(&mut connections, shared) => false,
            _ = now.wait_for(|now| *now) => true,
            () = tokio::time::sleep(self.drain_timeout) => true,
        };
        if cut {
            let under_way = shared.in_flight();
            tracing::warn!(under_way, "stopping: what is under way is cut");
            shared.cut();
            for mut set in connections {
                set.shutdown().await;
            }
            while shared.in_flight() > 0 {
                // Tunnels and HTTP/2 streams end in tasks of their own, which the cut has told.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        // Nobody is answered any more who could ask for what is being written out.
        drop((self.admin, self.client_timings));
        write_out(&shared.recorder, &stop);
    }
}

/// Waits for the access log's last lines, for up to five seconds: its reader may have stopped reading, and a second
/// signal says not to wait for that. Half a second it has in any case, for what was just cut.
fn write_out(recorder: &Recorder, stop: &Stop) {
    for _ in 0..10 {
        if recorder.close(Duration::from_millis(500)) {
            return;
        }
        if *stop.now.borrow() {
            break;
        }
    }
    tracing::warn!("the access log's reader takes nothing: its last records are lost");
}

/// Takes connections until asked to stop; gives back those that are still open then.
async fn accept(
    listener: Listener,
    server: Server,
    cores: Option<Arc<Cores>>,
    mut stop: watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let stopping = stop.clone();
    loop {
        tokio::select! {
            socket = listener.accept() => {
                let (tls, stop) = (listener.tls.clone(), stopping.clone());
                if let Some(cores) = &cores {
                    cores.serve(&mut connections, socket, &server, tls, stop);
                } else {
                    let server = server.clone();
                    connections.spawn(async move { server.serve(socket, tls, stop).await });
                }
            }
            Some(_) = connections.join_next() => {}
            _ = stop.wait_for(|stop| *stop) => return connections,
        }
    }
}

/// All connections and all exchanges (tunnels outlive their connections' tasks) have ended.
async fn drained(connections: &mut [JoinSet<()>], shared: &Shared) {
    for set in connections.iter_mut() {
        while set.join_next().await.is_some() {}
    }
    while shared.in_flight() > 0 {
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn the_table_of_descriptors_has_its_size_at_once() {
        super::raise_descriptors();
        let read = |file: &str| std::fs::read_to_string(file).unwrap();
        let number = |text: &str, name: &str| -> i32 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap_or(i32::MAX)
        };
        let limit = number(&read("/proc/self/limits"), "Max open files");
        assert!(number(&read("/proc/self/status"), "FDSize:") >= limit.min(super::TABLE));
    }
}
