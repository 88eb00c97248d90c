//! Many streams on one connection: HTTP/2 by the library `h2`, turned by this program's own epoll instead of a runtime.
//!
//! A connection is driven when its socket is ready or something was queued on it; streams that have news then say so
//! through their wakers. What the socket does not take waits in the library.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::system::{self, READ, WRITE, ready};

/// What any window may be: nobody is to wait for one here.
pub(crate) const WINDOW: u32 = 1 << 30;

/// The socket as the library sees it.
pub(crate) struct Wire {
    socket: Arc<TcpStream>,
    is_blocked: Arc<AtomicBool>,
}

/// The same for the epoll that waits for it.
pub(crate) struct Waits {
    pub(crate) socket: Arc<TcpStream>,
    is_blocked: Arc<AtomicBool>,
    armed: bool,
}

/// Both ends of a socket that never blocks.
pub(crate) fn wire(socket: TcpStream) -> (Wire, Waits) {
    let (socket, is_blocked) = (Arc::new(socket), Arc::<AtomicBool>::default());
    let wire = Wire { socket: Arc::clone(&socket), is_blocked: Arc::clone(&is_blocked) };
    (wire, Waits { socket, is_blocked, armed: false })
}

impl Waits {
    /// Asks for room in the socket where something waits for it.
    pub(crate) fn arm(&mut self, poll: &system::Poll, token: u64) -> io::Result<()> {
        let want = self.is_blocked.load(Ordering::Relaxed);
        if want == self.armed {
            return Ok(());
        }
        self.armed = want;
        poll.change(&*self.socket, token, if want { READ | WRITE } else { READ })
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match ready((&*self.socket).read(buf.initialize_unfilled()))? {
            Some(length) => buf.advance(length),
            None => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready((&*self.socket).write(bytes))?;
        self.is_blocked.store(sent.is_none(), Ordering::Relaxed);
        sent.map_or(Poll::Pending, |sent| Poll::Ready(Ok(sent)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = ready((&*self.socket).write_vectored(bytes))?;
        self.is_blocked.store(sent.is_none(), Ordering::Relaxed);
        sent.map_or(Poll::Pending, |sent| Poll::Ready(Ok(sent)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Numbers of streams that have news.
#[derive(Clone, Default)]
pub(crate) struct News(Arc<Mutex<Vec<u64>>>);

impl News {
    pub(crate) fn take(&self, into: &mut Vec<u64>) {
        into.clear();
        into.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells of the stream with this number.
    pub(crate) fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(Teller { news: self.clone(), number }))
    }
}

struct Teller {
    news: News,
    number: u64,
}

impl Wake for Teller {
    fn wake(self: Arc<Self>) {
        self.news.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// A fault of the library's as one of the socket's.
pub(crate) fn failed(error: h2::Error) -> io::Error {
    if error.is_io() { error.into_io().unwrap_or_else(|| io::ErrorKind::Other.into()) } else { io::Error::other(error) }
}
