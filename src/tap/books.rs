//! The books of one exchange: open until it has left, closed exactly once, whatever happens.

use std::{
    hash::{BuildHasher as _, RandomState},
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use http::response::Parts;
use tokio::sync::watch;

use crate::{
    clock::{AtomicStamp, Clock, Nanos, Stamp},
    dialect::Dialect,
    exchange::{Cause, Exchange, Sent},
    net::ConnStats,
    observation::{ExchangeId, Observation, Outcome, StampSource},
    record::Recorder,
    timeline::Timeline,
    upload::Upload,
    upstream::{Lease, Sender},
};

/// What every exchange shares with the program.
#[derive(Debug)]
pub struct Shared {
    /// Time.
    pub clock: Clock,
    /// Where exchanges are booked.
    pub recorder: Arc<Recorder>,
    cutting: watch::Sender<bool>,
    ids: Ids,
    /// Exchanges under way, by core.
    in_flight: Box<[Line]>,
}

/// A counter that no other core's is next to: writing it takes nothing from them.
#[derive(Default, Debug)]
#[repr(align(128))]
struct Line(AtomicUsize);

impl Shared {
    /// Nothing is under way yet, on none of so many cores.
    pub fn new(clock: Clock, recorder: Arc<Recorder>, cores: usize) -> Arc<Self> {
        let (cutting, ids) = (watch::Sender::new(false), Ids::new());
        let in_flight = (0..cores).map(|_| Line::default()).collect();
        Arc::new(Self { clock, recorder, cutting, ids, in_flight })
    }

    /// Exchanges under way.
    pub fn in_flight(&self) -> usize {
        // One that ends while this adds up is counted or not; none is counted twice.
        self.in_flight.iter().map(|core| core.0.load(Ordering::Acquire)).sum()
    }

    /// How many threads keep the connections they were given.
    pub fn cores(&self) -> usize {
        self.in_flight.len()
    }

    /// Those of them on this core.
    pub fn in_flight_on(&self, core: usize) -> usize {
        self.in_flight[core].0.load(Ordering::Acquire)
    }

    /// What is known of an exchange at its beginning. Until it ends, it would be our own fault.
    pub fn begin(&self, request_head: Stamp) -> Observation {
        let time = self.clock.wall(request_head);
        Observation::begin(self.ids.next(), time, Timeline::begin(request_head), Outcome::GatewayError)
    }

    /// Why an exchange is over that nobody closed but by dropping it.
    pub fn cause_of_drop(&self) -> Cause {
        if std::thread::panicking() {
            Cause::Panicked
        } else if *self.cutting.borrow() {
            Cause::Drained
        } else {
            Cause::ClientGone
        }
    }

    /// The shutdown deadline has come: whatever is dropped from now on was cut by us.
    pub fn cut(&self) {
        self.cutting.send_replace(true);
    }

    /// Waits for [`Shared::cut`].
    pub async fn cut_off(&self) {
        // The sender lives as long as `self`, so this ends with the cut only.
        let _ = self.cutting.subscribe().wait_for(|cutting| *cutting).await;
    }
}

/// An exchange that is booked exactly once, whatever happens: closed in order, or dropped.
pub struct Open {
    /// Absent if its route does not observe, and once it is booked.
    pub(super) exchange: Option<Box<Exchange>>,
    upload: Arc<Upload>,
    pub(super) shared: Counted,
    pub(super) downstream: Arc<Downstream>,
    /// The request is on its way up and not answered yet.
    departing: Option<Departing>,
    /// The connection it went up by last.
    upstream: Option<Arc<ConnStats>>,
    /// How long the client's writes had been pending, and how often stalled, before this exchange …
    before: (Nanos, u32),
    /// … and when its response ended.
    pub(super) pending_at_end: Option<Nanos>,
    /// The kernel was asked about the networks.
    pub(super) looked: bool,
}

/// The client's connection.
#[derive(Debug)]
pub struct Downstream {
    /// What its socket sees.
    pub stats: Arc<ConnStats>,
    /// Departure of the last response's end on it; the next exchange does not begin before.
    pub delivered: AtomicStamp,
    /// The core that serves it.
    pub core: usize,
    /// It carries many exchanges at once (HTTP/2), so socket stamps can't be told apart by exchange.
    pub multiplexed: OnceLock<bool>,
}

impl Downstream {
    /// Whether it does, as far as is known by now.
    pub fn multiplexed(&self) -> bool {
        self.multiplexed.get() == Some(&true)
    }
}

impl Open {
    /// Takes charge of an exchange.
    pub fn new(exchange: Box<Exchange>, shared: Arc<Shared>, downstream: Arc<Downstream>) -> Self {
        let upload = Arc::clone(exchange.upload());
        let mut open = Self::unobserved(upload, shared, downstream);
        open.exchange = Some(exchange);
        open
    }

    /// Takes charge of a request of which only what its forwarding needs is known: it is in flight, and leaves no record.
    pub fn unobserved(upload: Arc<Upload>, shared: Arc<Shared>, downstream: Arc<Downstream>) -> Self {
        let shared = Counted::new(shared, downstream.core);
        let before = (downstream.stats.pending_until(shared.clock.now()), downstream.stats.stalls());
        let (departing, upstream, pending_at_end) = (None, None, None);
        let (exchange, looked) = (None, false);
        Self { exchange, upload, shared, downstream, departing, upstream, before, pending_at_end, looked }
    }

    /// The exchange, while it is open.
    pub fn exchange(&mut self) -> Option<&mut Exchange> {
        self.exchange.as_deref_mut()
    }

    /// The same, to look at.
    pub fn look(&self) -> Option<&Exchange> {
        self.exchange.as_deref()
    }

    /// What happens on the request's way.
    pub const fn upload(&self) -> &Arc<Upload> {
        &self.upload
    }

    /// What its exchange shares with all others.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared.shared
    }

    /// The core that serves its client.
    pub fn core(&self) -> usize {
        self.downstream.core
    }

    /// What the client's socket sees.
    pub fn client(&self) -> &Arc<ConnStats> {
        &self.downstream.stats
    }

    /// The client's writes were pending for so long, and so often stalled, on the account of other exchanges: of the turns
    /// in this tunnel.
    pub fn discount(&mut self, pending: Nanos, stalls: u32) {
        self.before = (self.before.0 + pending, self.before.1 + stalls);
    }

    /// The request goes up by this connection.
    pub fn departs(&mut self, departing: Departing) {
        departing.stats.arm(self.exchange.is_some() && self.upload.may_stream());
        self.upstream = Some(Arc::clone(&departing.stats));
        self.departing = Some(departing);
    }

    /// Books what is known of the request's departure at `until`, when it was answered or given up.
    pub fn sent(&mut self, until: Stamp) {
        if let (Some(departing), Some(exchange)) = (self.departing.take(), &mut self.exchange) {
            let sent = departing.by(exchange.upload(), until);
            exchange.sent(sent);
        }
    }

    /// The final response head came: what it says, and what is known of the request's departure by then.
    pub fn head(&mut self, arrival: Stamp, parts: &Parts, dialect: Dialect) {
        self.sent(arrival);
        if let Some(exchange) = &mut self.exchange {
            exchange.head(arrival, parts, Some(dialect));
            if !exchange.so_far().stream {
                self.look_at_network();
            }
        }
    }

    /// Looks at what the kernel knows of both connections' networks, once: of a stream when its first output has left (or at
    /// its end, if there was none), of any other answer when its head is there.
    #[cold]
    pub fn look_at_network(&mut self) {
        if let (Some(exchange), Some(upstream)) = (&mut self.exchange, &self.upstream)
            && !std::mem::replace(&mut self.looked, true)
        {
            let connection = &mut exchange.seen().connection;
            let now = self.shared.clock.now();
            (connection.client, connection.upstream) = (self.downstream.stats.network(now), upstream.network(now));
        }
    }

    /// Closes the books now.
    pub fn close(mut self, cause: Cause) {
        self.close_with(None, cause);
    }

    /// The response has ended: it closes when its last byte has left, or with the connection's loss.
    pub fn close_when_departed(mut self) {
        if self.downstream.multiplexed() {
            self.close_with(None, Cause::Ended);
            return;
        }
        let stats = Arc::clone(&self.downstream.stats);
        // A connection that hung up at this very moment drops what is parked, which closes the books as well.
        stats.park(move |departure| match departure {
            Some(departure) => self.close_with(Some(departure), Cause::Ended),
            None => drop(self),
        });
    }

    fn close_with(&mut self, departure: Option<Stamp>, cause: Cause) {
        let now = self.shared.clock.now();
        // Still waiting for an answer: the request may have left all the same.
        self.sent(now);
        // A stream without output, or whose first came with its end.
        if self.look().is_some_and(|exchange| exchange.so_far().timeline.head_back.is_some()) {
            self.look_at_network();
        }
        let Some(mut exchange) = self.exchange.take() else {
            if cause == Cause::Ended {
                self.downstream.delivered.store(Some(departure.unwrap_or(now)));
            }
            return;
        };
        let timeline = &exchange.seen().timeline;
        let floor = timeline.response_end.unwrap_or(timeline.request_head);
        // An answer without a byte to write (or written before its body was dropped) departs no earlier than it ended.
        let end = departure.unwrap_or(now).max(floor);
        let stats = &self.downstream.stats;
        // Of a connection that carries many, nobody can say whom its pending writes held up.
        if !self.downstream.multiplexed() {
            let pending = stats.pending_until(end);
            if cause == Cause::Ended && exchange.awaits_departure() {
                exchange.departed(end, pending);
            }
            let begin = exchange.seen().timeline.request_head;
            exchange.seen().client_stamp = StampSource::of(stats.stamped_by_kernel(begin));
            let waits = &mut exchange.seen().timeline.waits;
            waits.client = pending.less(self.before.0);
            waits.client_stalls = stats.stalls().saturating_sub(self.before.1);
            waits.tail = self.pending_at_end.map_or(Nanos::ZERO, |before| pending.less(before));
        }
        let timeline = &exchange.seen().timeline;
        if let (Some(upstream), Some(leased), Some(_)) = (&self.upstream, timeline.lease_got, timeline.head_back) {
            exchange.seen().upstream_stamp = Some(StampSource::of(upstream.stamped_by_kernel(leased)));
        }
        if cause == Cause::Ended {
            self.downstream.delivered.store(Some(end));
        }
        exchange.finish(end, cause);
    }
}

/// What all share, by one that is in flight: until it is dropped, also when a listener panics, else nobody could ever drain.
pub(super) struct Counted {
    shared: Arc<Shared>,
    core: usize,
}

impl Counted {
    fn new(shared: Arc<Shared>, core: usize) -> Self {
        shared.in_flight[core].0.fetch_add(1, Ordering::AcqRel);
        Self { shared, core }
    }
}

impl Deref for Counted {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.in_flight[self.core].0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let cause = self.shared.cause_of_drop();
        self.close_with(None, cause);
    }
}

/// Ids: a counter, enciphered with a secret key (Speck 64/128, ISO/IEC 29167-22). So none comes twice, and who knows some can't
/// name the next one's: with an id whoever may send timings in speaks for its exchange.
#[derive(Debug)]
struct Ids {
    next: AtomicU64,
    keys: [u32; 27],
}

impl Ids {
    fn new() -> Self {
        let secret = RandomState::new();
        let (low, high) = (secret.hash_one(0_u8), secret.hash_one(1_u8));
        Self { next: AtomicU64::new(0), keys: round_keys(u128::from(high) << 64 | u128::from(low)) }
    }

    fn next(&self) -> ExchangeId {
        ExchangeId(encipher(self.next.fetch_add(1, Ordering::Relaxed), &self.keys))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a block's halves, a key's quarters")]
fn round_keys(key: u128) -> [u32; 27] {
    let mut rest = [32, 64, 96].map(|quarter| (key >> quarter) as u32);
    let mut next = key as u32;
    std::array::from_fn(|round| {
        let key = next;
        let word = &mut rest[round % 3];
        *word = key.wrapping_add(word.rotate_right(8)) ^ round as u32;
        next = key.rotate_left(3) ^ *word;
        key
    })
}

#[expect(clippy::cast_possible_truncation, reason = "a block's halves")]
fn encipher(block: u64, keys: &[u32; 27]) -> u64 {
    let (high, low) = keys.iter().fold(((block >> 32) as u32, block as u32), |(high, low), key| {
        let high = high.rotate_right(8).wrapping_add(low) ^ key;
        (high, low.rotate_left(3) ^ high)
    });
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use crate::{
        config::{Config, Overrides},
        dialect::RequestFacts,
        proxy::Gateway,
        record::Marked,
    };

    #[test]
    fn only_what_may_stream_and_is_observed_is_read_in_segments() {
        let file = "[[upstreams]]\nname = \"u\"\nurl = \"http://127.0.0.1:1\"\n";
        let config = Config::from_toml(file, Path::new("f.toml"), &Overrides::default()).unwrap();
        let clock = Clock::start();
        let recorder = Arc::new(Recorder::new(&config, clock).unwrap());
        let handles = recorder.upstream(&"u".into());
        let shared = Shared::new(clock, Arc::clone(&recorder), 1);
        // One exchange after the other on one connection.
        let stats = Arc::<ConnStats>::default();
        let read_apart = |model: Option<&str>, stream, ended, observed| {
            let upload = Arc::<Upload>::default();
            let facts = RequestFacts { model: model.map(Arc::from), stream, dialect: None };
            upload.start_with(facts, &recorder, &handles, clock.now());
            if ended {
                upload.note_end(clock.now(), clock.now(), Nanos::ZERO);
            }
            let seen = shared.begin(clock.now());
            let exchange = Exchange::begin(seen, Arc::clone(&recorder), None, Arc::clone(&upload), Marked::default());
            let mut open = if observed {
                Open::new(exchange, Arc::clone(&shared), Gateway::downstream(0))
            } else {
                Open::unobserved(upload, Arc::clone(&shared), Gateway::downstream(0))
            };
            open.departs(Departing {
                stats: Arc::clone(&stats),
                multiplexed: false,
                handed_over: clock.now(),
                pending: Nanos::ZERO,
                stalls: 0,
            });
            stats.reads_apart()
        };
        assert!(read_apart(Some("m"), Some(true), true, true));
        assert!(!read_apart(Some("m"), Some(true), true, false), "nobody asks");
        assert!(!read_apart(Some("m"), Some(false), true, true), "it says that it wants none");
        assert!(!read_apart(Some("m"), None, true, true), "it says nothing of one");
        assert!(read_apart(None, None, true, true), "nobody could read it");
        assert!(read_apart(Some("m"), None, false, true), "it may still say so");
    }

    #[test]
    fn the_cipher_is_speck() {
        let keys = round_keys(0x1b1a_1918_1312_1110_0b0a_0908_0302_0100);
        assert_eq!(encipher(0x3b72_6574_7475_432d, &keys), 0x8c6f_a548_454e_028b, "its designers' test vector");
    }

    #[test]
    fn no_id_comes_twice_or_tells_the_next() {
        let ids = Ids::new();
        let first: Vec<u64> = (0..10_000).map(|_| ids.next().0).collect();
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), first.len());
        let steps: BTreeSet<u64> = first.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > first.len() - 10, "{} different steps", steps.len());
        assert_ne!(Ids::new().next(), Ids::new().next(), "each start has a key of its own");
    }
}

/// A request on its way up one connection.
#[derive(Clone, Debug)]
pub struct Departing {
    stats: Arc<ConnStats>,
    /// One socket carries many requests, so it can't say when this one's bytes left.
    multiplexed: bool,
    handed_over: Stamp,
    pending: Nanos,
    stalls: u32,
}

impl Departing {
    /// A request is about to be handed over to this connection, which carries no other by HTTP/1.1.
    pub fn by_lease<B>(lease: &Lease<B>, handed_over: Stamp) -> Self {
        let stats = Arc::clone(&lease.stats);
        let (pending, stalls) = (stats.pending_until(handed_over), stats.stalls());
        Self { stats, multiplexed: matches!(lease.sender, Sender::Http2(_)), handed_over, pending, stalls }
    }

    /// What the connection's writes had been pending before.
    pub const fn pending_before(&self) -> Nanos {
        self.pending
    }

    /// What is known of the request's departure at `until`.
    ///
    /// HTTP/1.1: the socket's own writes, since nothing else is written there. HTTP/2: the hand-over to the connection.
    fn by(&self, upload: &Upload, until: Stamp) -> Sent {
        // What is held back has ended, and has not left.
        let ended = upload.handed_over().is_some() && upload.ended().is_some_and(|ended| ended <= until);
        let stats = &self.stats;
        if self.multiplexed {
            let last = upload.handed_over().map(|last| last.max(self.handed_over)).filter(|last| *last <= until);
            let upload = upload.awaited_100(until);
            let first = Some(self.handed_over);
            return Sent { first, last: last.filter(|_| ended), upload, stalled: Nanos::ZERO, stalls: 0 };
        }
        let first = stats.first_write();
        // While a write is pending some of it has not left; what left after the answer had come was not what it answers.
        let last = stats.last_write().filter(|last| *last <= until);
        let last = last.filter(|_| ended && first.is_some() && !stats.is_pending());
        let stalled = stats.pending_until(until).less(self.pending);
        let upload = upload.waited(stats, self.pending, until);
        Sent { first, last, upload, stalled, stalls: stats.stalls().saturating_sub(self.stalls) }
    }
}
