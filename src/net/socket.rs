//! [`Socket`]: what a connection's bytes come through. A TCP socket says with each read when the kernel received what it
//! brought, where the platform knows it and it was asked for.

/// What is a socket to the system.
#[cfg(unix)]
pub use std::os::fd::AsFd as AsSocket;
#[cfg(windows)]
pub use std::os::windows::io::AsSocket;
use std::{
    io,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::{
    io::{BoxIo, Io},
    kernel,
};
use crate::clock::{Clock, Nanos, WallTime};

/// A connection before anything is laid over it.
pub enum Socket {
    /// TCP whose reads the kernel stamps.
    Stamped(TcpStream),
    /// TCP whose reads are stamped at their return.
    Tcp(TcpStream),
    /// Anything else: a pipe in memory, in tests.
    Other(BoxIo),
}

/// Has the kernel stamp what this socket receives, or what the connections do that reach this listener from now on. Before
/// it connects, so that the first bytes are stamped. False where that can't be had.
pub fn stamp_arrivals(socket: &impl AsSocket) -> bool {
    if !kernel::KNOWS {
        return false;
    }
    kernel::stamp_arrivals(socket)
        .inspect_err(
            |error| tracing::debug!(%error, "the kernel stamps no arrivals: reads are stamped at their return"),
        )
        .is_ok()
}

impl Socket {
    /// A TCP connection. `stamped`: it, or the listener it came from, was given to [`stamp_arrivals`], which said true.
    pub const fn tcp(stream: TcpStream, stamped: bool) -> Self {
        if stamped { Self::Stamped(stream) } else { Self::Tcp(stream) }
    }

    /// Takes it off the runtime that made it. What is given puts it on the one that calls it.
    ///
    /// # Errors
    /// If the system refuses, here or there.
    pub fn take_off(self) -> io::Result<impl FnOnce() -> io::Result<Self> + Send> {
        let taken = match self {
            Self::Stamped(stream) => Ok((stream.into_std()?, true)),
            Self::Tcp(stream) => Ok((stream.into_std()?, false)),
            Self::Other(io) => Err(io),
        };
        Ok(move || match taken {
            Ok((stream, stamped)) => Ok(Self::tcp(TcpStream::from_std(stream)?, stamped)),
            Err(io) => Ok(Self::Other(io)),
        })
    }

    /// Reads, and says when the kernel received the last of what was read; absent if it does not say. Given the time, it
    /// reads no further than the first of several segments that have lain there.
    ///
    /// # Errors
    /// As the socket's own read.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        apart: Option<&Clock>,
    ) -> Poll<io::Result<Option<WallTime>>> {
        match self {
            Self::Stamped(stream) => poll_stamped(stream, cx, buf, apart),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf).map_ok(|()| None),
            Self::Other(io) => Pin::new(io).poll_read(cx, buf).map_ok(|()| None),
        }
    }

    fn inner(&mut self) -> Pin<&mut dyn Io> {
        match self {
            Self::Stamped(stream) | Self::Tcp(stream) => Pin::new(stream),
            Self::Other(io) => Pin::new(&mut **io),
        }
    }
}

/// As tokio's own read, but for the call to the system.
fn poll_stamped(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
    apart: Option<&Clock>,
) -> Poll<io::Result<Option<WallTime>>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let mut received = None;
        let tried = stream.try_io(Interest::READABLE, || {
            let most = apart.map_or(Ok(usize::MAX), |clock| first_segment(stream, buf, clock))?;
            let room = buf.remaining().min(most);
            let got = kernel::receive(stream, buf, room)?;
            received = Some(got.at);
            // What came short has emptied the socket. Said like this, tokio forgets that it was ready, and the next read waits
            // without a call that finds nothing.
            if 0 < got.bytes && got.bytes < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if let Some(at) = received {
            return Poll::Ready(Ok(at));
        }
        match tried {
            // Another task, or the driver, saw the readiness first.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            tried => return Poll::Ready(tried.map(|()| None)),
        }
    }
}

/// What is read so soon after it came is read in one go: a stamp is off by no more than this then.
const SOON: Nanos = Nanos(100_000);

/// How many bytes came with the first one; without a limit where they are read soon, or nothing is known.
///
/// One call finds that out. Who is late looks further: stamps rise along the bytes, so where the first one's ends is found by
/// halving, without taking anything.
fn first_segment(stream: &TcpStream, buf: &mut ReadBuf<'_>, clock: &Clock) -> io::Result<usize> {
    let first = kernel::peek(stream, buf, 1)?.at;
    if first.is_none() || clock.now().since(clock.arrival(first).at) < SOON {
        return Ok(usize::MAX);
    }
    let all = kernel::peek(stream, buf, usize::MAX)?;
    if all.at == first {
        return Ok(usize::MAX);
    }
    let (mut with_first, mut later) = (1, all.bytes);
    while later - with_first > 1 {
        let middle = with_first.midpoint(later);
        if kernel::peek(stream, buf, middle)?.at == first { with_first = middle } else { later = middle }
    }
    // What came meanwhile may have been joined to the first one, which then has its stamp: what was compared with is gone.
    if kernel::peek(stream, buf, 1)?.at == first { Ok(with_first) } else { Ok(usize::MAX) }
}

impl From<BoxIo> for Socket {
    fn from(io: BoxIo) -> Self {
        Self::Other(io)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Stamped(stream) | Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Other(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::{
        super::{ConnStats, MeteredIo, StampWrites, TracedIo, listener::std_listener},
        *,
    };
    use crate::clock::{Arrival, Stamp};

    struct Pair {
        clock: Clock,
        stats: Arc<ConnStats>,
        io: TracedIo,
        peer: TcpStream,
    }

    async fn pair(stamped: bool) -> Pair {
        let listener = std_listener(([127, 0, 0, 1], 0).into()).unwrap();
        let stamped = stamped && stamp_arrivals(&listener);
        let listener = TcpListener::from_std(listener).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        peer.set_nodelay(true).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (clock, stats) = (Clock::start(), Arc::new(ConnStats::default()));
        let metered = MeteredIo::new(Socket::tcp(stream, stamped), Arc::clone(&stats), clock, StampWrites::After);
        let io = TracedIo::new(Box::new(metered), Arc::clone(&stats));
        let mut pair = Pair { clock, stats, io, peer };
        // Switching the stamps on takes the kernel a moment.
        while stamped && {
            let before = pair.clock.now();
            pair.peer.write_all(b".").await.unwrap();
            pair.io.read_exact(&mut [0]).await.unwrap();
            !pair.stats.stamped_by_kernel(before)
        } {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        pair
    }

    const LIES: Duration = Duration::from_millis(100);

    impl Pair {
        /// The peer sends, and the bytes lie there for a while: when they had been sent.
        async fn lying(&mut self, bytes: &[u8]) -> Stamp {
            self.peer.write_all(bytes).await.unwrap();
            let sent = self.clock.now();
            std::thread::sleep(LIES);
            sent
        }
    }

    #[tokio::test]
    async fn each_of_several_reads_has_the_arrival_of_its_own_bytes() {
        let mut pair = pair(true).await;
        let begin = pair.clock.now();
        let mut memory = [[0; 8]; 3];
        let (mut sent, mut read) = (Vec::new(), Vec::new());
        for memory in &mut memory {
            sent.push(pair.lying(b"12345678").await);
            pair.io.read_exact(memory).await.unwrap();
            read.push(pair.clock.now());
        }
        // Looked at only after the last one, as a tap does that was not polled meanwhile.
        for (at, memory) in memory.iter().enumerate() {
            let arrival = pair.stats.arrival(memory).unwrap();
            assert!(arrival <= sent[at] + Nanos(50_000_000), "{arrival:?}, sent by {:?}", sent[at]);
            assert!(read[at].since(arrival) >= Nanos(50_000_000), "{arrival:?}, read by {:?}", read[at]);
        }
        assert!(pair.stats.stamped_by_kernel(begin));
    }

    #[tokio::test]
    async fn what_lay_there_together_is_read_apart_at_the_beginning_of_an_exchange() {
        for apart in [true, false] {
            let mut pair = pair(true).await;
            // Where there is an answer to carry the acknowledgement, the kernel holds it back for 40 ms; so it does here after a
            // few answers. To an acknowledged segment it joins what comes next, and what is joined has one stamp.
            for _ in 0..20 {
                pair.peer.write_all(b".").await.unwrap();
                pair.io.read_exact(&mut [0]).await.unwrap();
                pair.io.write_all(b".").await.unwrap();
                pair.peer.read_exact(&mut [0]).await.unwrap();
            }
            if apart {
                pair.stats.arm(true);
            }
            pair.peer.write_all(b"first").await.unwrap();
            let between = pair.clock.now();
            std::thread::sleep(Duration::from_millis(5));
            let second = pair.lying(b"second").await;
            let mut memory = [0; 100];
            if apart {
                assert_eq!(pair.io.read(&mut memory).await.unwrap(), 5);
                assert!(pair.stats.last_read().unwrap() <= between + Nanos(1_000_000), "the first one's own");
                assert_eq!(pair.io.read(&mut memory).await.unwrap(), 6);
            } else {
                assert_eq!(pair.io.read(&mut memory).await.unwrap(), 11);
            }
            let arrival = pair.stats.last_read().unwrap();
            assert!(arrival > between && arrival <= second + Nanos(1_000_000), "the last one's");
            assert!(memory.starts_with(if apart { b"second" } else { b"firstsecond" }));
        }
    }

    #[tokio::test]
    async fn an_exchange_is_read_apart_at_its_beginning_only() {
        let mut pair = pair(true).await;
        pair.stats.arm(true);
        let mut memory = [0; 100];
        for _ in 0..ConnStats::READ_APART {
            pair.peer.write_all(b"x").await.unwrap();
            assert_eq!(pair.io.read(&mut memory).await.unwrap(), 1);
        }
        pair.peer.write_all(b"first").await.unwrap();
        pair.lying(b"second").await;
        assert_eq!(pair.io.read(&mut memory).await.unwrap(), 11);
    }

    #[tokio::test]
    async fn who_has_its_first_output_is_read_in_one_go_again() {
        let mut pair = pair(true).await;
        pair.stats.arm(true);
        pair.stats.disarm();
        pair.peer.write_all(b"first").await.unwrap();
        pair.lying(b"second").await;
        let mut memory = [0; 100];
        assert_eq!(pair.io.read(&mut memory).await.unwrap(), 11);
        // The next exchange on the connection begins anew.
        pair.stats.arm(true);
        for _ in 0..2 {
            pair.peer.write_all(b"x").await.unwrap();
            assert_eq!(pair.io.read(&mut memory).await.unwrap(), 1);
        }
    }

    #[tokio::test]
    async fn who_is_not_stamped_has_arrivals_when_they_are_read() {
        for (stamped, many) in [(false, false), (true, true)] {
            let mut pair = pair(stamped).await;
            if many {
                pair.stats.carries_many();
            }
            pair.lying(b"12345678").await;
            let before = pair.clock.now();
            pair.io.read_exact(&mut [0; 8]).await.unwrap();
            assert!(pair.stats.last_read().unwrap() >= before);
            assert!(!pair.stats.stamped_by_kernel(before));
        }
    }

    #[tokio::test]
    async fn one_read_the_kernel_did_not_stamp_is_told_from_later_ones() {
        let mut pair = pair(true).await;
        pair.lying(b"1").await;
        let now = pair.clock.now();
        pair.stats.was_read(Arrival { at: now, read: now, by_kernel: false });
        let user = pair.stats.last_read().unwrap();
        // It lay there before: time stands still rather than going back.
        pair.io.read_exact(&mut [0; 1]).await.unwrap();
        assert_eq!(pair.stats.last_read(), Some(user));
        assert!(pair.stats.read_returned() > Some(user));
        assert!(!pair.stats.stamped_by_kernel(user));
        assert!(pair.stats.stamped_by_kernel(user + Nanos(1)));
    }

    #[tokio::test]
    async fn the_end_is_when_it_was_seen() {
        let mut pair = pair(true).await;
        pair.lying(b"12345678").await;
        // Read before the end comes: the kernel joins an end to the bytes that lie there, and stamps them with its arrival.
        pair.io.read_exact(&mut [0; 8]).await.unwrap();
        pair.peer.shutdown().await.unwrap();
        std::thread::sleep(LIES);
        let before = pair.clock.now();
        assert_eq!(pair.io.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(pair.stats.last_read().unwrap() < before && pair.stats.read_end().unwrap() >= before);
    }

    /// A lot of bytes through a little buffer and a large one, in both directions at once: what is read is what was sent,
    /// and no wake-up is lost when a read comes short.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_byte_comes_through() {
        const ALL: usize = 3_000_000;
        for room in [700, 70_000] {
            let Pair { io, peer, .. } = pair(true).await;
            let sent: Arc<Vec<u8>> = Arc::new((0..=250).cycle().take(ALL).collect());
            let ((mut from_us, mut to_us), (mut from_peer, mut to_peer)) = (peer.into_split(), tokio::io::split(io));
            let writing = [Arc::clone(&sent), Arc::clone(&sent)];
            let [up, down] = writing;
            let up = tokio::spawn(async move {
                for (at, part) in up.chunks(1_999).enumerate() {
                    to_us.write_all(part).await.unwrap();
                    if at % 97 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                to_us
            });
            let down = tokio::spawn(async move {
                to_peer.write_all(&down).await.unwrap();
                to_peer.shutdown().await.unwrap();
            });
            let there = tokio::spawn(async move {
                let mut all = Vec::new();
                from_us.read_to_end(&mut all).await.unwrap();
                all
            });
            let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
            while all.len() < ALL {
                let read = from_peer.read(&mut buffer).await.unwrap();
                assert!(read > 0, "ended after {}", all.len());
                all.extend_from_slice(&buffer[..read]);
            }
            assert!(all == *sent && there.await.unwrap() == *sent);
            down.await.unwrap();
            drop(up.await.unwrap());
        }
    }
}
