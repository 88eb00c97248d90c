//! [`MeteredIo`]: the socket's own wrapper, below TLS. It stamps reads and writes, and measures how long writes were
//! pending. What it finds stands in [`ConnStats`], atomics with one writer.
//!
//! A read's stamp is the arrival of its last bytes: when the kernel received them where it says so ([`Socket`]), else the
//! read's return, which is later by however long this program did not run.

use std::{
    fmt, io,
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{kernel::Lent, pending::Pending, reads::Reads, socket::Socket};
use crate::{
    clock::{Arrival, AtomicStamp, Clock, Nanos, Stamp},
    observation::Network,
};

/// Anything bytes flow through: a TCP stream, TLS over one, an in-memory pipe in tests.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection whose kind no longer matters. One indirect call per read or write, against generics everywhere.
pub type BoxIo = Box<dyn Io>;

/// Which side of a write is its departure (see `Marks` in the documentation of the numbers).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampWrites {
    /// Just before the call: a writer preempted after the packet left must not shorten an upstream's TTFT.
    Before,
    /// At its return: what the client waited for ends when the bytes have left us.
    After,
}

/// A look at the network stays fresh for so long.
const FRESH: Nanos = Nanos(100_000_000);

/// What one connection's socket has seen. Written by its [`MeteredIo`] alone, read by the taps.
pub struct ConnStats {
    last_read: AtomicStamp,
    read_returned: AtomicStamp,
    /// The newest read that the kernel did not stamp.
    last_user_read: AtomicStamp,
    read_end: AtomicStamp,
    /// Reads from now on that end with their segment.
    apart: AtomicU32,
    first_write: AtomicStamp,
    last_write: AtomicStamp,
    pending: Pending,
    flushes: AtomicU32,
    reads: Reads,
    many_streams: AtomicBool,
    socket: Lent,
    /// Retransmits that somebody was told of.
    retransmits: AtomicU32,
    looked: Mutex<Option<(Stamp, Network)>>,
    parked: AtomicBool,
    closing: Mutex<Vec<Closing>>,
}

/// Called once with the departure of everything written so far, or with nothing if the connection was lost first.
type Closing = Box<dyn FnOnce(Option<Stamp>) + Send>;

impl Default for ConnStats {
    fn default() -> Self {
        Self {
            last_read: AtomicStamp::absent(),
            read_returned: AtomicStamp::absent(),
            last_user_read: AtomicStamp::absent(),
            read_end: AtomicStamp::absent(),
            apart: AtomicU32::new(0),
            first_write: AtomicStamp::absent(),
            last_write: AtomicStamp::absent(),
            pending: Pending::default(),
            flushes: AtomicU32::new(0),
            reads: Reads::default(),
            many_streams: AtomicBool::new(false),
            socket: Lent::default(),
            retransmits: AtomicU32::new(0),
            looked: Mutex::default(),
            parked: AtomicBool::new(false),
            closing: Mutex::new(Vec::new()),
        }
    }
}

impl fmt::Debug for ConnStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnStats")
            .field("last_read", &self.last_read)
            .field("last_write", &self.last_write)
            .finish_non_exhaustive()
    }
}

impl ConnStats {
    /// So many reads of a response end with their segment. A stream's first events come one by one, so this is enough for head,
    /// prelude and first output on the whole, and it costs one call for each.
    pub(super) const READ_APART: u32 = 16;

    /// Arrival of the newest bytes; absent before the first. Never earlier than it was before.
    pub fn last_read(&self) -> Option<Stamp> {
        self.last_read.load()
    }

    /// When the newest bytes were read, which may be later than they arrived; absent before the first.
    pub fn read_returned(&self) -> Option<Stamp> {
        self.read_returned.load()
    }

    /// Since when the bytes that arrived at `arrival`, which were read last, have been in this program's hands. Where many
    /// streams share the connection others' bytes may have been read since, and `arrival` itself is the return of a read.
    pub fn in_hand_since(&self, arrival: Stamp) -> Stamp {
        if self.many_streams.load(Ordering::Relaxed) { arrival } else { self.read_returned().unwrap_or(arrival) }
    }

    /// Whether the kernel stamped every read whose stamp is `since` or later.
    pub fn stamped_by_kernel(&self, since: Stamp) -> bool {
        !self.many_streams.load(Ordering::Acquire) && self.last_user_read.load().is_none_or(|last| last < since)
    }

    /// The connection carries many streams (HTTP/2). A read may bring bytes of any of them, so from now on reads are stamped
    /// at their return.
    pub fn carries_many(&self) {
        self.many_streams.store(true, Ordering::Release);
    }

    /// What the kernel knows of the way to the other side; nothing for a pipe, and once the socket is closed. Retransmits are
    /// those since the last look, so that each is told once. Who asks again within 100 ms of a look gets its round trips:
    /// the kernel's are means of many, and short exchanges would spend a call of the system each on them.
    pub fn network(&self, now: Stamp) -> Network {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, network)) = *looked
            && now.since(at) < FRESH
        {
            return network;
        }
        let Some(info) = self.socket.tcp_info() else { return Network::default() };
        let fresh = |all: u32| all.saturating_sub(self.retransmits.swap(all, Ordering::AcqRel));
        let network = Network { rtt: info.rtt, min_rtt: info.min_rtt, retransmits: info.retransmits.map(fresh) };
        *looked = Some((now, Network { retransmits: network.retransmits.map(|_| 0), ..network }));
        network
    }

    /// A read has brought bytes.
    #[inline]
    pub(super) fn was_read(&self, arrival: Arrival) {
        // Segments that came out of order, and a kernel's stamp behind one of ours: time does not go back on a connection.
        let at = self.last_read.load().map_or(arrival.at, |last| last.max(arrival.at));
        if !arrival.by_kernel {
            self.last_user_read.store(Some(at));
        }
        self.last_read.store(Some(at));
        self.read_returned.store(Some(arrival.read));
    }

    /// Arrival of the connection's end as the other side had it; absent while it may send more.
    pub fn read_end(&self) -> Option<Stamp> {
        self.read_end.load()
    }

    /// Arrival of the read that brought the last byte of `bytes`, if `bytes` still lie where that read put them;
    /// otherwise the newest read's.
    pub fn arrival(&self, bytes: &[u8]) -> Option<Stamp> {
        self.reads.arrival(bytes).or_else(|| self.last_read())
    }

    /// The reads this connection's bytes came in.
    pub const fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Departure of the first write since [`ConnStats::arm`].
    pub fn first_write(&self) -> Option<Stamp> {
        self.first_write.load()
    }

    /// Departure of the newest write; absent before the first.
    pub fn last_write(&self) -> Option<Stamp> {
        self.last_write.load()
    }

    /// A new exchange uses this connection to its upstream. Forgets the first write, so that the next one is it.
    ///
    /// `apart`: what comes first is read segment by segment, even if several have lain there since this program last ran. A
    /// read has one arrival, that of its last segment, and a first output read with the event behind it would be that much
    /// later. It costs each read one or two calls of the system, so not where no first output is looked for.
    pub fn arm(&self, apart: bool) {
        self.first_write.store(None);
        self.apart.store(if apart { Self::READ_APART } else { 0 }, Ordering::Release);
    }

    /// The first output is through: from here on a read brings whatever there is.
    pub fn disarm(&self) {
        self.apart.store(0, Ordering::Release);
    }

    /// Whether a read ends with its segment.
    #[cfg(test)]
    pub(crate) fn reads_apart(&self) -> bool {
        self.apart.load(Ordering::Acquire) > 0
    }

    /// Completed flushes: after one, nothing is left between the writer and the kernel.
    pub fn flushes(&self) -> u32 {
        self.flushes.load(Ordering::Acquire)
    }

    /// How long writes were pending, all in all, up to `until`, which may lie in the near past.
    #[inline]
    pub fn pending_until(&self, until: Stamp) -> Nanos {
        self.pending.until(until)
    }

    /// A write is pending now.
    pub fn is_pending(&self) -> bool {
        self.pending.is_blocked()
    }

    /// Writes that were pending for longer than [`super::STALL`].
    pub fn stalls(&self) -> u32 {
        self.pending.stalls()
    }

    /// Calls `closing` once the next flush has completed, or when the connection is lost before it.
    ///
    /// A server drops a body at its end before it flushes, so the end of an exchange waits here for its departure. Several
    /// wait where requests were pipelined and the client does not read: one flush lets them all go.
    pub fn park(&self, closing: impl FnOnce(Option<Stamp>) + Send + 'static) {
        self.closing().push(Box::new(closing));
        self.parked.store(true, Ordering::Release);
    }

    fn closing(&self) -> std::sync::MutexGuard<'_, Vec<Closing>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_parked(&self, departure: Option<Stamp>) {
        // Mostly nobody waits, and to look is cheaper than to take.
        if self.parked.load(Ordering::Acquire) && self.parked.swap(false, Ordering::AcqRel) {
            let parked = std::mem::take(&mut *self.closing());
            for closing in parked {
                closing(departure);
            }
        }
    }

    fn wrote(&self, departure: Stamp) {
        self.first_write.store_once(departure);
        self.last_write.store(Some(departure));
    }
}

/// A socket that is stamped and counted. Passes every call on, vectored writes included.
pub struct MeteredIo {
    inner: Socket,
    stats: Arc<ConnStats>,
    clock: Clock,
    writes: StampWrites,
}

impl MeteredIo {
    /// Wraps a socket; what it sees stands in `stats`.
    pub fn new(inner: impl Into<Socket>, stats: Arc<ConnStats>, clock: Clock, writes: StampWrites) -> Self {
        let inner = inner.into();
        if let Socket::Stamped(stream) | Socket::Tcp(stream) = &inner {
            stats.socket.lend(stream);
        }
        Self { inner, stats, clock, writes }
    }

    fn write(&mut self, write: impl FnOnce(Pin<&mut Socket>) -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        // One reading of the clock is enough, but for a write that ends a wait.
        let was_pending = self.stats.is_pending();
        let before = (was_pending || self.writes == StampWrites::Before).then(|| self.clock.now());
        let result = write(Pin::new(&mut self.inner));
        let departure = before.filter(|_| self.writes == StampWrites::Before).unwrap_or_else(|| self.clock.now());
        match &result {
            Poll::Pending => self.stats.pending.blocked(before.unwrap_or(departure)),
            Poll::Ready(taken) => {
                if let Some(before) = before.filter(|_| was_pending) {
                    self.stats.pending.unblocked(before);
                }
                if taken.is_ok() {
                    self.stats.wrote(departure);
                }
            }
        }
        result
    }
}

impl AsyncRead for MeteredIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let many = this.stats.many_streams.load(Ordering::Relaxed);
        let apart = if many { 0 } else { this.stats.apart.load(Ordering::Acquire) };
        let clock = (apart > 0).then_some(&this.clock);
        let received = ready!(this.inner.poll_receive(cx, buf, clock))?;
        if buf.filled().len() > before {
            if apart > 0 {
                // Armed or disarmed meanwhile, it stays so.
                let _ = this.stats.apart.compare_exchange(apart, apart - 1, Ordering::AcqRel, Ordering::Relaxed);
            }
            let received = received.filter(|_| !many);
            this.stats.was_read(this.clock.arrival(received));
        } else if buf.remaining() > 0 {
            this.stats.read_end.store_once(this.clock.now());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write(|inner| inner.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|inner| inner.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        // One writer: a load and a store are enough, and cost less than a locked addition.
        let flushes = self.stats.flushes.load(Ordering::Relaxed).wrapping_add(1);
        self.stats.flushes.store(flushes, Ordering::Release);
        self.stats.close_parked(self.stats.last_write());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Drop for MeteredIo {
    fn drop(&mut self) {
        self.stats.socket.take_back();
        self.stats.close_parked(None);
    }
}
