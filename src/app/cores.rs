//! A thread per core, each with connections of its own. One acceptor hands them out, so that they fall evenly: by
//! `SO_REUSEPORT` the kernel would give them out by a hash, and some core would have too many of few.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustls::ServerConfig;
use tokio::{
    runtime::{Builder, Handle},
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::{net::Socket, server::Server, tap::Shared};

/// The threads. They end when this is dropped, and what runs on them is cut.
#[derive(Debug)]
pub(super) struct Cores {
    cores: Vec<Core>,
    /// Connections that were given out.
    given: AtomicUsize,
}

#[derive(Debug)]
struct Core {
    runtime: Handle,
    open: Arc<AtomicUsize>,
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Cores {
    /// Starts so many.
    ///
    /// # Errors
    /// If a thread or its runtime can't be started.
    pub(super) fn start(cores: usize) -> io::Result<Self> {
        Ok(Self { cores: (0..cores).map(Core::start).collect::<io::Result<_>>()?, given: AtomicUsize::new(0) })
    }

    /// Their runtimes.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.cores.iter().map(|core| &core.runtime)
    }

    /// Serves a connection on the core that has the fewest. It joins `connections`.
    pub(super) fn serve(
        &self,
        connections: &mut JoinSet<()>,
        socket: Socket,
        server: &Server,
        tls: Option<Arc<ServerConfig>>,
        stop: watch::Receiver<bool>,
    ) {
        let place = self.place(server.shared());
        let Some(core) = self.cores.get(place) else { return };
        let put = match socket.take_off() {
            Ok(put) => put,
            Err(error) => return tracing::warn!(%error, "a connection can't be handed over"),
        };
        let (open, server) = (Opened::new(&core.open), server.on(place));
        let serving = async move {
            let _open = open;
            match put() {
                Ok(socket) => server.serve(socket, tls, stop).await,
                Err(error) => tracing::warn!(%error, "a connection can't be taken over"),
            }
        };
        connections.spawn_on(serving, &core.runtime);
    }

    /// The core with the fewest open connections; of several such the one with the fewest exchanges in flight; of several
    /// such the next in turn.
    fn place(&self, shared: &Shared) -> usize {
        let turn = self.given.fetch_add(1, Ordering::Relaxed);
        let count = self.cores.len();
        let load = |core: &usize| (self.cores[*core].open.load(Ordering::Acquire), shared.in_flight_on(*core));
        (0..count).map(|next| (turn + next) % count).min_by_key(load).unwrap_or_default()
    }
}

impl Core {
    fn start(index: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name(format!("core-{index}")).spawn(move || {
            let _ = runtime.block_on(stopped);
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, open: Arc::default(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // All are told before one is waited for.
        self.cores.iter_mut().for_each(|core| core.stop = None);
        for thread in self.cores.iter_mut().filter_map(|core| core.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// One of a core's open connections.
struct Opened(Arc<AtomicUsize>);

impl Opened {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(open))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
