//! Connections kept for the next exchange. Last in, first out, so that what is not needed grows old and is closed.
//!
//! Dropping a [`Lease`] closes its HTTP/1.1 connection (and ends its HTTP/2 stream): only [`Lease::release`], called
//! when both bodies have ended, gives a connection back.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Version;
use http_body::Body;
use hyper::client::conn::http2;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    connector::{ConnectTimings, Connected, Connector, Dialled},
    sender::Sender,
};
use crate::{
    clock::{AtomicStamp, Clock, Nanos, Stamp},
    config::{HttpVersion, UpstreamLimits},
    error::{Error, Stage},
    http1::client::Connection,
    net::ConnStats,
};

/// The connections of one upstream. `B` is the body of the requests sent on them.
pub struct Pool<B> {
    connector: Connector,
    clock: Clock,
    limits: UpstreamLimits,
    cores: Box<[Core<B>]>,
    /// The upstream's last connection spoke HTTP/2: exchanges then wait for the one that dials instead of dialling too.
    speaks_http2: AtomicBool,
    permits: Option<Permits>,
}

/// The connections that one core made: what they carry runs there.
struct Core<B> {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Vec<Shared<B>>>,
    dialling: tokio::sync::Mutex<()>,
}

/// Bounds the exchanges on connections, and thereby the connections: one each by HTTP/1.1, as many as fit by HTTP/2.
struct Permits {
    free: Arc<Semaphore>,
    connections: usize,
    widened: AtomicBool,
}

impl<B> fmt::Debug for Pool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("connector", &self.connector).finish_non_exhaustive()
    }
}

struct Idle {
    sender: Connection,
    facts: Facts,
    since: Stamp,
}

struct Shared<B> {
    sender: http2::SendRequest<B>,
    facts: Facts,
    uses: Arc<Uses>,
}

/// The exchanges on a shared connection.
#[derive(Default)]
struct Uses {
    active: AtomicUsize,
    /// When the last of them ended.
    idle_since: AtomicStamp,
}

#[derive(Clone)]
struct Facts {
    stats: Arc<ConnStats>,
    born: Stamp,
}

/// An upstream connection, lent to one exchange.
pub struct Lease<B> {
    /// Sends the request.
    pub sender: Sender<B>,
    /// What the connection's socket sees.
    pub stats: Arc<ConnStats>,
    /// It served an exchange before, or serves another one now.
    pub reused: bool,
    /// What it cost to make, if this exchange dialled it.
    pub timings: Option<ConnectTimings>,
    born: Stamp,
    retired: bool,
    pool: Arc<Pool<B>>,
    core: usize,
    used: Option<Used>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Counts one exchange on a shared connection.
struct Used {
    uses: Arc<Uses>,
    clock: Clock,
}

impl Used {
    fn begin(uses: &Arc<Uses>, clock: Clock) -> Self {
        uses.active.fetch_add(1, Ordering::AcqRel);
        Self { uses: Arc::clone(uses), clock }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.uses.idle_since.store(Some(self.clock.now()));
        self.uses.active.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<B> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("sender", &self.sender).field("reused", &self.reused).finish_non_exhaustive()
    }
}

/// What an exchange needs of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Wanted {
    /// HTTP/1.1, for an upgrade.
    pub http1_only: bool,
    /// Not one that idled: the last one turned out to be dead.
    pub fresh: bool,
}

impl<B> Pool<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// An empty pool over a connector, for exchanges on so many cores.
    pub fn new(
        connector: Connector,
        limits: UpstreamLimits,
        http: HttpVersion,
        clock: Clock,
        cores: usize,
    ) -> Arc<Self> {
        let core =
            |_| Core { idle: Mutex::default(), shared: Mutex::default(), dialling: tokio::sync::Mutex::default() };
        let permits = limits.max_connections.map(|connections| Permits {
            free: Arc::new(Semaphore::new(connections)),
            connections,
            widened: AtomicBool::new(false),
        });
        let pool = Arc::new(Self {
            connector,
            clock,
            limits,
            cores: (0..cores).map(core).collect(),
            speaks_http2: AtomicBool::new(http == HttpVersion::Http2),
            permits,
        });
        if http == HttpVersion::Http2 {
            pool.widen();
        }
        pool
    }

    /// The upstream speaks HTTP/2: each of its connections has room for many exchanges.
    fn widen(&self) {
        if let Some(permits) = &self.permits
            && !permits.widened.swap(true, Ordering::AcqRel)
        {
            let more = permits.connections.saturating_mul(self.limits.max_streams_per_connection.saturating_sub(1));
            permits
                .free
                .add_permits(more.min(Semaphore::MAX_PERMITS - permits.connections.min(Semaphore::MAX_PERMITS)));
        }
    }

    /// A connection for an exchange on this core: one that idles or is shared, else a fresh one, whose timings go into
    /// `dialled` as they happen. One of another core's only if that has no use for it, or if connections are limited.
    ///
    /// # Errors
    /// Where and how connecting failed; `timed_out` with stage `Pool` if no connection became free in time.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the pool as it was and closes what was being dialled.
    pub async fn acquire(self: &Arc<Self>, core: usize, wanted: Wanted, dialled: &Dialled) -> Result<Lease<B>, Error> {
        let permit = self.permit().await?;
        if !wanted.fresh
            && let Some(lease) = self.reuse(core, wanted)
        {
            return Ok(Lease { _permit: permit, ..lease });
        }
        let lease = if self.speaks_http2.load(Ordering::Acquire) && !wanted.http1_only {
            // Waiting for someone else's dial is waiting for a connection: the same limit holds for both together.
            let turn = self.limits.connect;
            let started = self.clock.now();
            // Where connections are limited, one core's dial may be for all.
            let dialling = &self.cores[if self.permits.is_some() { 0 } else { core }].dialling;
            let Ok(_turn) = tokio::time::timeout(turn, dialling.lock()).await else {
                return Err(Error::timed_out(Stage::Http));
            };
            // The one before us may have brought a connection for us too.
            match self.share(core) {
                Some(lease) if !wanted.fresh => lease,
                _ => {
                    let waited = self.clock.now().since(started);
                    Box::pin(self.dial(core, wanted, turn.saturating_sub(waited.into()), dialled)).await?
                }
            }
        } else {
            // Boxed: a dial is rare, and its future would make every exchange's larger by 2.6 KiB.
            Box::pin(self.dial(core, wanted, self.limits.connect, dialled)).await?
        };
        Ok(Lease { _permit: permit, ..lease })
    }

    /// A connection that needs no waiting: as [`Pool::acquire`] gives one first, where connections are not limited.
    pub fn at_hand(self: &Arc<Self>, core: usize, wanted: Wanted) -> Option<Lease<B>> {
        if self.permits.is_some() || wanted.fresh { None } else { self.reuse(core, wanted) }
    }

    async fn permit(&self) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let Some(permits) = &self.permits else { return Ok(None) };
        let wait = Arc::clone(&permits.free).acquire_owned();
        let permit = match self.limits.pool_wait {
            Some(limit) => tokio::time::timeout(limit, wait).await.map_err(|_| Error::timed_out(Stage::Pool))?,
            None => wait.await,
        };
        Ok(permit.ok())
    }

    fn reuse(self: &Arc<Self>, core: usize, wanted: Wanted) -> Option<Lease<B>> {
        if !wanted.http1_only
            && let Some(lease) = self.share(core)
        {
            return Some(lease);
        }
        let own = self.pop(core).map(|idle| (core, idle));
        let (home, Idle { sender, facts, .. }) = own.or_else(|| self.borrow(core))?;
        Some(self.lease(home, Sender::Http1(sender), facts, None))
    }

    /// The newest idle connection that is alive and young enough; closes those that are not.
    fn pop(&self, core: usize) -> Option<Idle> {
        let now = self.clock.now();
        let mut idle = lock(&self.cores[core].idle);
        while let Some(candidate) = idle.pop() {
            if self.worth_keeping(&candidate, now) {
                return Some(candidate);
            }
        }
        None
    }

    /// An idle connection of another core's, the one it would use last, and which core's. Their wake-ups cross over to it, so
    /// only one that has not been needed there for a while, or if connections are limited.
    fn borrow(&self, core: usize) -> Option<(usize, Idle)> {
        let now = self.clock.now();
        let mut others = (0..self.cores.len()).filter(|other| *other != core);
        others.find_map(|other| {
            let mut idle = lock(&self.cores[other].idle);
            idle.retain(|one| self.worth_keeping(one, now));
            let spare = |one: &Idle| self.permits.is_some() || !within(one.since, SPARE, now);
            idle.first().is_some_and(spare).then(|| (other, idle.remove(0)))
        })
    }

    fn worth_keeping(&self, idle: &Idle, now: Stamp) -> bool {
        !idle.sender.is_closed()
            && within(idle.since, self.limits.idle_connection, now)
            && within(idle.facts.born, self.limits.max_connection_age, now)
    }

    /// Room on an HTTP/2 connection; on another core's only if connections are limited.
    fn share(self: &Arc<Self>, core: usize) -> Option<Lease<B>> {
        let others = (0..self.cores.len()).filter(|other| *other != core && self.permits.is_some());
        std::iter::once(core).chain(others).find_map(|core| self.share_of(core))
    }

    fn share_of(self: &Arc<Self>, core: usize) -> Option<Lease<B>> {
        let now = self.clock.now();
        let mut shared = lock(&self.cores[core].shared);
        shared.retain(|one| self.worth_sharing(one, now));
        let room = self.limits.max_streams_per_connection;
        let one = shared.iter().find(|one| one.sender.is_ready() && one.uses.active.load(Ordering::Acquire) < room)?;
        Some(self.lease(core, Sender::Http2(one.sender.clone()), one.facts.clone(), Some(&one.uses)))
    }

    fn worth_sharing(&self, one: &Shared<B>, now: Stamp) -> bool {
        let unused = one.uses.active.load(Ordering::Acquire) == 0;
        let idle_since = one.uses.idle_since.load().filter(|_| unused);
        !one.sender.is_closed()
            && idle_since.is_none_or(|since| within(since, self.limits.idle_connection, now))
            && within(one.facts.born, self.limits.max_connection_age, now)
    }

    async fn dial(
        self: &Arc<Self>,
        core: usize,
        wanted: Wanted,
        limit: Duration,
        dialled: &Dialled,
    ) -> Result<Lease<B>, Error> {
        let connect = self.connector.connect(wanted.http1_only, dialled);
        let connected = match tokio::time::timeout(limit, connect).await {
            Ok(connected) => connected,
            Err(_) => Err(Error::timed_out(stage_under_way(&lock(dialled)))),
        };
        let Connected { sender, stats, timings, born } = connected.inspect_err(|error| {
            if error.timed_out {
                lock(dialled).give_up(self.clock.now());
            }
        })?;
        let facts = Facts { stats, born };
        if !wanted.http1_only {
            self.speaks_http2.store(matches!(sender, Sender::Http2(_)), Ordering::Release);
        }
        let uses = if let Sender::Http2(sender) = &sender {
            self.widen();
            let uses = Arc::new(Uses::default());
            let shared = Shared { sender: sender.clone(), facts: facts.clone(), uses: Arc::clone(&uses) };
            lock(&self.cores[core].shared).push(shared);
            Some(uses)
        } else {
            None
        };
        let lease = self.lease(core, sender, facts, uses.as_ref());
        Ok(Lease { reused: false, timings: Some(timings), ..lease })
    }

    fn lease(self: &Arc<Self>, core: usize, sender: Sender<B>, facts: Facts, uses: Option<&Arc<Uses>>) -> Lease<B> {
        let used = uses.map(|uses| Used::begin(uses, self.clock));
        Lease {
            sender,
            stats: facts.stats,
            reused: true,
            timings: None,
            born: facts.born,
            retired: false,
            pool: Arc::clone(self),
            core,
            used,
            _permit: None,
        }
    }

    /// Closes what idled or lived too long. Called now and then; exchanges do not depend on it.
    pub fn sweep(&self) {
        let now = self.clock.now();
        for core in &self.cores {
            lock(&core.idle).retain(|idle| self.worth_keeping(idle, now));
            lock(&core.shared).retain(|one| self.worth_sharing(one, now));
        }
    }
}

impl<B> Lease<B> {
    /// HTTP version spoken on it.
    pub const fn version(&self) -> Version {
        match self.sender {
            Sender::Http1(_) => Version::HTTP_11,
            Sender::Http2(_) => Version::HTTP_2,
        }
    }

    /// Nobody after this exchange may use the connection.
    pub fn retire(&mut self) {
        self.retired = true;
    }

    /// Gives the connection back: request and response have both ended.
    pub fn release(self) {
        if let Sender::Http1(sender) = self.sender
            && !self.retired
            && sender.is_at_rest()
        {
            let since = self.pool.clock.now();
            let facts = Facts { stats: self.stats, born: self.born };
            lock(&self.pool.cores[self.core].idle).push(Idle { sender, facts, since });
        }
        drop(self.used);
    }
}

/// What idled for so long is not needed where it is.
const SPARE: Duration = Duration::from_secs(1);

/// Whether less than `limit` has passed since `since`.
fn within(since: Stamp, limit: Duration, now: Stamp) -> bool {
    now.since(since) < Nanos::from(limit)
}

fn stage_under_way(timings: &ConnectTimings) -> Stage {
    match timings {
        ConnectTimings { tls: Some(_), .. } => Stage::Tls,
        ConnectTimings { tcp: Some(_), .. } => Stage::Tcp,
        ConnectTimings { dns: Some(_), .. } => Stage::Dns,
        _ => Stage::Http,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
