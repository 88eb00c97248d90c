//! One connection: its socket, what was read of it and not taken yet, and the message that comes in on it.

use std::{
    cell::RefCell,
    io,
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker, ready},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::{
    Error,
    decode::{Decoder, Step},
    encode::Out,
    head::may_be_whole,
};
use crate::net::BoxIo;

/// Read at once. What is read lies here for as long as it takes to pass it on: one buffer per thread instead of one per
/// stream, most of which are silent at any moment.
const READ: usize = 64 * 1024;
/// Of a request that nobody reads yet so much is read ahead, to see whether its client is still there.
const AHEAD: usize = 16 * 1024;
/// From this size on what was read is passed on where it lies, below it is copied out.
pub(super) const LARGE: usize = 4 * 1024;

thread_local! {
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// A connection.
pub(super) struct Wire {
    io: BoxIo,
    /// Read, and not taken yet: what follows the message under way, or a part of a head.
    pub(super) input: Bytes,
    /// The message under way.
    pub(super) decoder: Decoder,
    /// The other side has ended.
    is_ended: bool,
    /// What follows the data that came.
    next: Next,
    /// No further message comes, or can be sent.
    pub(super) is_last: bool,
    /// A message is on its way out.
    pub(super) is_sending: bool,
    /// Somebody holds the body of the message under way.
    pub(super) has_reader: bool,
    /// The client waits for a 100 before it sends its body.
    pub(super) must_continue: bool,
    /// What is left to send of a 100.
    interim: &'static [u8],
    /// Waits for the body's reader to be done.
    waits: Option<Waker>,
    /// The body's reader, who waits for bytes.
    reader: Option<Waker>,
    /// Rings when the other side is to be looked after; absent until somebody asked whether it is gone.
    bell: Option<Arc<Bell>>,
}

/// Tells a task that is woken for many reasons that this one was among them: whether a client has left is asked whenever the
/// task of its stream runs, and a look at the socket costs more than all else that is asked then.
struct Bell {
    has_rung: AtomicBool,
    task: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

/// A connection and whoever reads a body on it.
pub(super) type Link = Arc<Mutex<Wire>>;

/// The lock is held for one look, read or write.
pub(super) fn lock(link: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    pub(super) fn new(io: BoxIo, input: Bytes) -> Self {
        Self {
            io,
            input,
            decoder: Decoder::Done,
            is_ended: false,
            next: Next::Frames,
            is_last: false,
            is_sending: false,
            has_reader: false,
            must_continue: false,
            interim: b"",
            waits: None,
            reader: None,
            bell: None,
        }
    }

    /// One read, behind what lies there: how many bytes it brought; none at the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_ended {
            return Poll::Ready(Ok(0));
        }
        let Self { io, input, .. } = self;
        let read = ready!(with_read(io, cx, |read| {
            let earlier = std::mem::take(input);
            *input = if earlier.is_empty() { read.into_bytes() } else { [&earlier, read.bytes()].concat().into() };
        }))?;
        self.is_ended = read == 0;
        Poll::Ready(Ok(read))
    }

    /// Reads until `parse` finds a whole head, of at most so many bytes, or why there is none; absent at the connection's end.
    /// `seen` is what was looked at before, nothing at first.
    pub(super) fn poll_head<T, E>(
        &mut self,
        cx: &mut Context<'_>,
        seen: &mut usize,
        most: usize,
        parse: impl Fn(&Bytes) -> Result<Option<T>, E>,
    ) -> Poll<io::Result<Option<Result<T, E>>>> {
        loop {
            let input = &self.input;
            if !input.is_empty()
                && (*seen == 0 || may_be_whole(input, *seen) || input.len() >= most)
                && let Some(head) = parse(input).transpose()
            {
                return Poll::Ready(Ok(Some(head)));
            }
            *seen = input.len();
            self.misses_bell();
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// A message whose head was read begins: so much of what lies here was its head, which is given.
    pub(super) fn begin(&mut self, head: usize, decoder: Decoder) -> Bytes {
        (self.decoder, self.next) = (decoder, Next::Frames);
        self.input.split_to(head)
    }

    /// Nothing is under way, and another message may follow.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_last && !self.is_sending && !self.is_ended && self.is_whole() && self.input.is_empty()
    }

    /// The same, and nothing came that nobody asked for.
    pub(super) fn is_idle(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_at_rest() && self.poll_fill(cx).is_pending()
    }

    /// Whether the other side is gone. What it sends meanwhile is kept: the rest of its message, of which a reader that waits
    /// is told, or the beginning of the next one.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_reader {
            keep(&mut self.waits, cx);
            if self.reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                self.reader = None;
            }
        }
        let bell = match &self.bell {
            Some(bell) if bell.task.will_wake(cx.waker()) => {
                if !bell.has_rung.swap(false, Ordering::AcqRel) {
                    return Poll::Pending;
                }
                bell
            }
            _ => self.bell.insert(Arc::new(Bell { has_rung: AtomicBool::new(false), task: cx.waker().clone() })),
        };
        let waker = Waker::from(Arc::clone(bell));
        let cx = &mut Context::from_waker(&waker);
        // Behind a request that waits its end can't be seen: that it is the last of this client's is seen when it is its turn.
        let most = if self.is_whole() { 1 } else { AHEAD };
        while self.input.len() < most {
            match ready!(self.poll_fill(cx)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {
                    if let Some(reader) = self.reader.take() {
                        reader.wake();
                    }
                }
            }
        }
        self.misses_bell();
        Poll::Pending
    }

    /// The socket wakes nobody, or somebody else than the bell.
    fn misses_bell(&self) {
        if let Some(bell) = &self.bell {
            bell.has_rung.store(true, Ordering::Release);
        }
    }

    /// The next frame of the body under way; absent at its end.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.must_continue {
            self.must_continue = false;
            self.interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        }
        if !self.interim.is_empty() {
            // Where it can't leave now, the next poll or the answer sends it on.
            let _ = self.poll_interim(cx)?;
        }
        let frame = loop {
            match std::mem::take(&mut self.next) {
                Next::Frames => {}
                Next::Trailers(trailers) => break Some(Ok(Frame::trailers(trailers))),
                Next::Fault(error) => {
                    self.next = Next::Nothing;
                    break Some(Err(error));
                }
                Next::Nothing => {
                    self.next = Next::Nothing;
                    break None;
                }
            }
            if self.decoder.is_done() {
                break None;
            }
            let taken = if self.input.is_empty() && self.is_ended {
                self.body_ended()
            } else if self.input.is_empty() {
                self.misses_bell();
                let Self { io, decoder, input, .. } = self;
                let mut taken = None;
                let Poll::Ready(read) = with_read(io, cx, |read| taken = Some(read.take(decoder, input))) else {
                    // It may be in a task of its own, which is not the one that is woken when somebody else reads.
                    keep(&mut self.reader, cx);
                    return Poll::Pending;
                };
                match (read, taken) {
                    (Err(error), _) => Taken { next: Next::Fault(Error::Io(error)), ..Taken::default() },
                    (Ok(_), Some(taken)) => taken,
                    (Ok(_), None) => self.body_ended(),
                }
            } else {
                let bytes = std::mem::take(&mut self.input);
                Read::Large(bytes).take(&mut self.decoder, &mut self.input)
            };
            self.next = taken.next;
            if !taken.data.is_empty() {
                break Some(Ok(Frame::data(taken.data)));
            }
        };
        if self.is_read() {
            self.reader_is_done();
        }
        Poll::Ready(frame)
    }

    /// No frame of the body under way is left.
    pub(super) const fn is_read(&self) -> bool {
        match self.next {
            Next::Frames => self.decoder.is_done(),
            Next::Nothing => true,
            Next::Trailers(_) | Next::Fault(_) => false,
        }
    }

    fn body_ended(&mut self) -> Taken {
        self.is_ended = true;
        if matches!(self.decoder, Decoder::UntilClose) {
            self.decoder = Decoder::Done;
            Taken::default()
        } else {
            Taken { next: Next::Fault(Error::Closed), ..Taken::default() }
        }
    }

    /// The body under way has ended, or nobody reads it any more.
    pub(super) fn reader_is_done(&mut self) {
        self.has_reader = false;
        if let Some(waker) = self.waits.take() {
            waker.wake();
        }
    }

    /// Ready once nobody reads a body here.
    pub(super) fn poll_unread(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_reader {
            return Poll::Ready(());
        }
        keep(&mut self.waits, cx);
        Poll::Pending
    }

    /// The message under way has ended, and what follows it is the next one's.
    pub(super) const fn is_whole(&self) -> bool {
        self.decoder.is_done() && matches!(self.next, Next::Frames)
    }

    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interim.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, self.interim))?;
            self.interim = self.interim.get(written..).unwrap_or_default();
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Sends all of `out`, and flushes.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Out) -> Poll<io::Result<()>> {
        if !self.interim.is_empty() {
            ready!(self.poll_interim(cx))?;
        }
        out.poll_send(&mut self.io, cx)
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    /// Leaves HTTP: what comes and goes from now on is somebody else's.
    pub(super) fn upgrade(&mut self) -> Upgraded {
        let io = std::mem::replace(&mut self.io, Box::new(tokio::io::empty()));
        self.next = Next::Nothing;
        Upgraded { io, read: std::mem::take(&mut self.input) }
    }
}

/// Keeps whom to wake.
fn keep(slot: &mut Option<Waker>, cx: &Context<'_>) {
    if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *slot = Some(cx.waker().clone());
    }
}

/// What one read brought, and where it lies.
enum Read<'a> {
    /// In the thread's buffer: gone with the next read.
    Small(&'a [u8]),
    Large(Bytes),
}

/// What a body has next.
#[derive(Default)]
enum Next {
    /// What its decoder finds.
    #[default]
    Frames,
    Trailers(HeaderMap),
    Fault(Error),
    /// It is broken, or the connection has left HTTP: nothing after it can be told from it.
    Nothing,
}

#[derive(Default)]
struct Taken {
    data: Bytes,
    next: Next,
}

impl Read<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Large(bytes) => bytes,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Small(bytes) => Bytes::copy_from_slice(bytes),
            Self::Large(bytes) => bytes,
        }
    }

    fn part(&self, part: std::ops::Range<usize>) -> Bytes {
        match self {
            Self::Small(bytes) => Bytes::copy_from_slice(bytes.get(part).unwrap_or_default()),
            Self::Large(bytes) => bytes.slice(part),
        }
    }

    /// Takes the next piece of the body's own bytes out of the framing: up to the end of its chunk, so that each chunk stays
    /// one. What is left of the read goes to `rest`.
    fn take(&self, decoder: &mut Decoder, rest: &mut Bytes) -> Taken {
        let bytes = self.bytes();
        let mut at = 0;
        let mut result = Taken::default();
        while at < bytes.len() && !decoder.is_done() && result.data.is_empty() {
            match decoder.step(bytes.get(at..).unwrap_or_default()) {
                Ok(Step { taken, data, trailers }) => {
                    if !data.is_empty() {
                        result.data = self.part(at + data.start..at + data.end);
                    }
                    if let Some(trailers) = trailers {
                        result.next = Next::Trailers(trailers);
                    }
                    at += taken;
                }
                Err(error) => {
                    result.next = Next::Fault(error);
                    return result;
                }
            }
        }
        // The end of the last chunk belongs to it, if it is here: then nobody needs to look for it again.
        if decoder.is_last_line(bytes.get(at..).unwrap_or_default())
            && let Ok(step) = decoder.step(bytes.get(at..).unwrap_or_default())
        {
            at += step.taken;
        }
        if at < bytes.len() {
            *rest = self.part(at..bytes.len());
        }
        result
    }
}

/// Reads once, and gives what came to `work`, unless it is the end.
fn with_read(io: &mut BoxIo, cx: &mut Context<'_>, work: impl FnOnce(Read<'_>)) -> Poll<io::Result<usize>> {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.capacity() < READ / 4 {
            scratch.reserve(READ);
        }
        let read = ready!(poll_read_buf(Pin::new(io), cx, scratch))?;
        if read >= LARGE {
            work(Read::Large(scratch.split_to(read).freeze()));
        } else if read > 0 {
            work(Read::Small(scratch));
            scratch.clear();
        }
        Poll::Ready(Ok(read))
    })
}

/// A connection that has left HTTP.
pub struct Upgraded {
    io: BoxIo,
    /// Read already.
    read: Bytes,
}

impl std::fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upgraded").field("read", &self.read.len()).finish_non_exhaustive()
    }
}

impl Upgraded {
    /// A connection of which these bytes were read already.
    pub fn new(io: BoxIo, read: Bytes) -> Self {
        Self { io, read }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let size = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read.split_to(size));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
