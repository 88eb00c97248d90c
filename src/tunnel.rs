//! What follows a 101: bytes both ways, counted, until both sides have ended. Of a WebSocket whose dialect is known the
//! messages are read on their way, and each of its turns is an exchange of its own.
//!
//! Bytes never wait for that: they are read once they have left, or while the other side does not take them.

mod turns;

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use http::{
    HeaderMap,
    header::{SEC_WEBSOCKET_EXTENSIONS, UPGRADE},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use self::turns::Turns;
use crate::{
    clock::{Clock, Nanos, Stamp},
    dialect::{Dialect, Endpoint, ObserverOff, Recognised, session::Session},
    exchange::{Cause, Sent},
    framing::websocket,
    http1::Upgrade,
    net::ConnStats,
    tap::{Open, RequestBody},
    upstream::Lease,
};

/// Whose turns are read in a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    dialect: Dialect,
    endpoint: Endpoint,
    /// How each side compresses its messages.
    deflate: Result<(Option<websocket::Deflate>, Option<websocket::Deflate>), ObserverOff>,
}

impl Watched {
    /// The session that this answer with status 101 begins. Absent if it is no WebSocket, or of no dialect that has turns.
    pub fn new(recognised: Recognised, answer: &HeaderMap) -> Option<Self> {
        let Recognised { dialect, endpoint } = recognised;
        let has_turns = matches!(dialect, Dialect::OpenAiResponses | Dialect::Realtime | Dialect::GeminiLive);
        let mut upgrades = answer.get_all(UPGRADE).iter();
        if !has_turns || !upgrades.any(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket")) {
            return None;
        }
        let extensions: Option<Vec<_>> =
            answer.get_all(SEC_WEBSOCKET_EXTENSIONS).iter().map(|value| value.to_str().ok()).collect();
        let deflate = extensions.and_then(|lines| websocket::agreed(&lines.join(",")).ok());
        Some(Self { dialect, endpoint, deflate: deflate.ok_or(ObserverOff::Encoding) })
    }
}

/// Carries bytes between client and upstream once both have upgraded, and closes the books at the end: when both sides
/// have ended, one is lost, or the shutdown's deadline cuts it.
///
/// # Cancel safety
/// Dropping the future closes both connections and books the exchange and its turns.
pub async fn run(
    client: Upgrade,
    upstream: Upgrade,
    mut open: Open,
    lease: Lease<RequestBody>,
    watched: Option<Watched>,
) {
    let shared = Arc::clone(open.shared());
    let tunnel = open.look();
    let sides = Sides {
        client: Arc::clone(open.client()),
        upstream: Arc::clone(&lease.stats),
        clock: shared.clock,
        begin: tunnel.and_then(|tunnel| tunnel.so_far().timeline.head_back).unwrap_or(Stamp::ORIGIN),
    };
    let mut books = Books::default();
    if let (Some(tunnel), Some(watched)) = (tunnel, watched) {
        let model = tunnel.so_far().model.as_deref().map(str::to_owned);
        match watched.deflate {
            Ok((up, down)) => {
                let session = Some(Session::new(watched.dialect, model.clone(), up, down));
                let both = (Arc::clone(&sides.client), Arc::clone(&sides.upstream));
                let turns = Turns::new(tunnel, &shared, watched.endpoint, both, model);
                books.reading = Some(Reading { session, turns });
            }
            Err(off) => books.off = Some(off),
        }
    }
    let books = Mutex::new(books);
    let cause = tokio::select! {
        cause = carry(client, upstream, &books, &sides) => cause,
        () = shared.cut_off() => Cause::Drained,
    };
    let carried = lock(&books).close(cause);
    drop(books);
    open.discount(carried.waited, carried.stalls);
    if let Some(exchange) = open.exchange() {
        exchange.tunnelled(carried.up, carried.down);
        exchange.seen().observer_off = carried.off;
        if cause != Cause::Drained {
            exchange.response_end(shared.clock.now(), Nanos::ZERO);
        }
    }
    drop(lease);
    open.close(cause);
}

async fn carry(client: Upgrade, upstream: Upgrade, books: &Mutex<Books<'_>>, sides: &Sides) -> Cause {
    let (Some(client), Some(upstream)) = tokio::join!(client.connection(), upstream.connection()) else {
        return Cause::Reset;
    };
    let (from_client, to_client) = split(client);
    let (from_upstream, to_upstream) = split(upstream);
    // Each direction ends by itself (half-closed connections are legal here); a broken one ends both.
    let both =
        tokio::try_join!(up(from_client, to_upstream, books, sides), down(from_upstream, to_client, books, sides));
    both.err().unwrap_or(Cause::Ended)
}

/// Read at once.
const BUFFER: usize = 8 * 1024;

async fn up(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    books: &Mutex<Books<'_>>,
    sides: &Sides,
) -> Result<(), Cause> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await.map_err(|_| Cause::ClientGone)?;
        if read == 0 {
            lock(books).client_ended();
            return to.shutdown().await.map_err(|_| Cause::Reset);
        }
        let arrival = sides.arrival(&sides.client);
        let waited = Waited::begin(&sides.upstream, arrival);
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let taken = to.write(rest).await.map_err(|_| Cause::Reset)?;
            to.flush().await.map_err(|_| Cause::Reset)?;
            if taken == 0 {
                return Err(Cause::Reset);
            }
            // A part at a time: one that has left may be answered while the upstream does not take the next.
            let (gone, left) = rest.split_at(taken);
            lock(books).up(gone, arrival, waited.sent(&sides.upstream, sides.departure(&sides.upstream)));
            rest = left;
        }
    }
}

async fn down(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    books: &Mutex<Books<'_>>,
    sides: &Sides,
) -> Result<(), Cause> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await.map_err(|_| Cause::Reset)?;
        if read == 0 {
            let now = sides.clock.now();
            lock(books).upstream_ended(sides.upstream.read_end().unwrap_or(now), now);
            return to.shutdown().await.map_err(|_| Cause::ClientGone);
        }
        let (arrival, bytes) = (sides.arrival(&sides.upstream), &buffer[..read]);
        let mut writing = pin!(async {
            to.write_all(bytes).await?;
            to.flush().await
        });
        let mut written = std::future::poll_fn(|cx| Poll::Ready(writing.as_mut().poll(cx))).await;
        // Read by now, whether it could leave at once or not: a first output is no later for a client that is slow.
        lock(books).down(bytes, arrival);
        if written.is_pending() {
            written = Poll::Ready(writing.await);
        }
        if !matches!(written, Poll::Ready(Ok(()))) {
            return Err(Cause::ClientGone);
        }
        lock(books).departed(sides.departure(&sides.client));
    }
}

/// What both sides' sockets see.
struct Sides {
    client: Arc<ConnStats>,
    upstream: Arc<ConnStats>,
    clock: Clock,
    /// When there was a tunnel: arrival of the answer that made it one.
    begin: Stamp,
}

impl Sides {
    /// Arrival of what was just read from this side. What was sent before there was a tunnel came with it.
    fn arrival(&self, side: &ConnStats) -> Stamp {
        side.last_read().unwrap_or_else(|| self.clock.now()).max(self.begin)
    }

    /// Departure of what was just written to this side.
    fn departure(&self, side: &ConnStats) -> Stamp {
        side.last_write().unwrap_or_else(|| self.clock.now())
    }
}

/// The upstream's waiting writes before some bytes were written to it.
#[derive(Clone, Copy)]
struct Waited {
    pending: Nanos,
    stalls: u32,
}

impl Waited {
    fn begin(upstream: &ConnStats, arrival: Stamp) -> Self {
        Self { pending: upstream.pending_until(arrival), stalls: upstream.stalls() }
    }

    /// How these bytes have left.
    fn sent(self, upstream: &ConnStats, departure: Stamp) -> Sent {
        let waited = upstream.pending_until(departure).less(self.pending);
        let stalls = upstream.stalls().saturating_sub(self.stalls);
        Sent { first: Some(departure), last: Some(departure), upload: waited, stalled: waited, stalls }
    }
}

/// What both directions write down. The lock is never contended: both run in one task.
#[derive(Default)]
struct Books<'a> {
    up: u64,
    down: u64,
    reading: Option<Reading<'a>>,
    off: Option<ObserverOff>,
}

/// A session and its turns.
struct Reading<'a> {
    /// Absent once it can't be read.
    session: Option<Session>,
    turns: Turns<'a>,
}

/// What the tunnel itself has of all that passed: every byte is a turn's or the tunnel's.
struct Carried {
    up: u64,
    down: u64,
    /// The client's waiting that turns have.
    waited: Nanos,
    stalls: u32,
    off: Option<ObserverOff>,
}

fn lock<'a, 'b>(books: &'a Mutex<Books<'b>>) -> MutexGuard<'a, Books<'b>> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books<'_> {
    /// Bytes of the client's have left like this.
    fn up(&mut self, bytes: &[u8], arrival: Stamp, sent: Sent) {
        self.up += bytes.len() as u64;
        let Some(Reading { session: Some(session), turns }) = &mut self.reading else { return };
        turns.up(bytes.len() as u64);
        session.client(bytes, &mut |asked| turns.asked(asked, arrival, sent));
        self.keep_reading(None);
    }

    /// Bytes of the upstream's came.
    fn down(&mut self, bytes: &[u8], arrival: Stamp) {
        self.down += bytes.len() as u64;
        let Some(Reading { session: Some(session), turns }) = &mut self.reading else { return };
        turns.down(bytes.len() as u64, arrival);
        turns.model(session.model());
        let mut lost = None;
        session.server(bytes, &mut |told| {
            if lost.is_none() {
                lost = turns.told(told, arrival).err();
            }
        });
        self.keep_reading(lost);
    }

    /// Unless there is a reason not to.
    fn keep_reading(&mut self, lost: Option<ObserverOff>) {
        let Some(Reading { session, turns }) = &mut self.reading else { return };
        if let Some(off) = lost.or_else(|| session.as_ref().and_then(Session::off)) {
            *session = None;
            turns.lost_sight(off);
            self.off = Some(off);
        }
    }

    /// All of the upstream's bytes have left for the client.
    fn departed(&mut self, departure: Stamp) {
        if let Some(Reading { turns, .. }) = &mut self.reading {
            turns.departed(departure);
        }
    }

    fn client_ended(&mut self) {
        if let Some(Reading { turns, .. }) = &mut self.reading {
            turns.client_left();
        }
    }

    /// The upstream's side has ended, and everything before has left.
    fn upstream_ended(&mut self, arrival: Stamp, now: Stamp) {
        if let Some(Reading { turns, .. }) = &mut self.reading {
            turns.upstream_ended(arrival);
            turns.departed(now);
        }
    }

    /// The tunnel ends like this, and every turn with it.
    fn close(&mut self, cause: Cause) -> Carried {
        let mut carried = Carried { up: self.up, down: self.down, waited: Nanos::ZERO, stalls: 0, off: self.off };
        if let Some(Reading { turns, .. }) = &mut self.reading {
            turns.close(cause);
            let had = turns.had();
            (carried.up, carried.down) = (carried.up.saturating_sub(had.up), carried.down.saturating_sub(had.down));
            (carried.waited, carried.stalls) = (had.waited, had.stalls);
        }
        carried
    }
}
