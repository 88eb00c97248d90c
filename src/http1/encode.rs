//! What leaves: bytes gathered for one write, and a body in its framing (RFC 9112 §6, §7.1).

use std::{
    cell::Cell,
    io,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use tokio::io::AsyncWrite as _;

use super::{Error, wire::LARGE};
use crate::net::BoxIo;

/// Gathered at most before it is written.
const ENOUGH: usize = 16 * 1024;
/// Gathered at most while the other side takes nothing. What comes meanwhile is read, so that it is stamped when it came.
const FULL: usize = 2 * ENOUGH;

thread_local! {
    /// Memory for what leaves at once, which is nearly all: a stream holds none while nothing waits.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes on their way out: small ones copied together, so that one call sends them; a large one lies where it is.
#[derive(Default)]
pub(super) struct Out {
    gathered: Vec<u8>,
    /// Of `gathered`, sent already.
    sent: usize,
    large: Bytes,
    /// Behind the large one.
    tail: &'static [u8],
    /// Written, and maybe not with the kernel yet.
    is_unflushed: bool,
}

impl Out {
    /// Where bytes are gathered, behind all that waits.
    pub(super) fn gather(&mut self) -> &mut Vec<u8> {
        if self.gathered.capacity() == 0 {
            self.gathered = SPARE.take();
        }
        if !self.large.is_empty() || !self.tail.is_empty() {
            self.gathered.extend_from_slice(&std::mem::take(&mut self.large));
            self.gathered.extend_from_slice(std::mem::take(&mut self.tail));
        }
        &mut self.gathered
    }

    fn append(&mut self, lead: &[u8], bytes: Bytes, tail: &'static [u8]) {
        let gathered = self.gather();
        if bytes.len() < LARGE {
            gathered.reserve(lead.len() + bytes.len() + tail.len());
            gathered.extend_from_slice(lead);
            gathered.extend_from_slice(&bytes);
            gathered.extend_from_slice(tail);
        } else {
            gathered.extend_from_slice(lead);
            (self.large, self.tail) = (bytes, tail);
        }
    }

    const fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.large.is_empty() && self.tail.is_empty()
    }

    /// All that was gathered is with the kernel.
    pub(super) const fn is_sent(&self) -> bool {
        self.is_empty() && !self.is_unflushed
    }

    /// Enough to be sent before more is gathered.
    pub(super) const fn is_enough(&self) -> bool {
        !self.large.is_empty() || self.gathered.len() >= ENOUGH
    }

    /// As much as is held for a side that takes nothing.
    pub(super) const fn is_full(&self) -> bool {
        self.gathered.len() - self.sent + self.large.len() >= FULL
    }

    /// Writes and flushes all of it.
    pub(super) fn poll_send(&mut self, io: &mut BoxIo, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            self.is_unflushed = true;
            let head = self.gathered.get(self.sent..).unwrap_or_default();
            let written = if self.large.is_empty() && self.tail.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, head))?
            } else {
                let pieces = [IoSlice::new(head), IoSlice::new(&self.large), IoSlice::new(self.tail)];
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &pieces))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        ready!(Pin::new(io).poll_flush(cx))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, written: usize) {
        let head = written.min(self.gathered.len() - self.sent);
        self.sent += head;
        if head > 0 && self.sent == self.gathered.len() {
            self.sent = 0;
            let mut spare = std::mem::take(&mut self.gathered);
            spare.clear();
            if spare.capacity() <= 2 * FULL {
                SPARE.set(spare);
            }
        }
        let large = (written - head).min(self.large.len());
        let _ = self.large.split_to(large);
        self.tail = self.tail.get(written - head - large..).unwrap_or_default();
    }
}

/// How the body of a message that leaves is framed.
#[derive(Debug)]
pub(super) enum Encoder {
    /// None follows, whatever the body says.
    Nothing,
    /// So many bytes are left.
    Length(u64),
    /// In chunks; of trailers those with these names.
    Chunked(Vec<HeaderName>),
    /// It ends with the connection.
    UntilClose,
}

impl Encoder {
    pub(super) fn data(&mut self, bytes: Bytes, out: &mut Out) {
        match self {
            _ if bytes.is_empty() => {}
            Self::Nothing => {}
            Self::UntilClose => out.append(b"", bytes, b""),
            Self::Length(left) => {
                // What is beyond the length that was promised would be the next message's.
                let size = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= size as u64;
                out.append(b"", bytes.slice(..size), b"");
            }
            Self::Chunked(_) => {
                let mut line = [0; SIZE_LINE];
                out.append(size_line(bytes.len(), &mut line), bytes, b"\r\n");
            }
        }
    }

    /// The body has ended with these trailers, which go on where they were announced.
    pub(super) fn trailers(&self, trailers: &HeaderMap, out: &mut Out) {
        let Self::Chunked(announced) = self else { return };
        let out = out.gather();
        out.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            if announced.contains(name) {
                out.extend_from_slice(name.as_str().as_bytes());
                out.extend_from_slice(b": ");
                out.extend_from_slice(value.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The body has ended without trailers.
    ///
    /// # Errors
    /// If it is shorter than was promised.
    pub(super) fn end(&self, out: &mut Out) -> Result<(), Error> {
        match self {
            Self::Length(1..) => Err(Error::Malformed("a body ended before its length")),
            Self::Chunked(_) => {
                out.gather().extend_from_slice(b"0\r\n\r\n");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Room for the longest size line.
const SIZE_LINE: usize = size_of::<usize>() * 2 + 2;

/// A chunk's size line, written at the end of `line`.
fn size_line(size: usize, line: &mut [u8; SIZE_LINE]) -> &[u8] {
    line[SIZE_LINE - 2..].copy_from_slice(b"\r\n");
    let (mut at, mut rest) = (SIZE_LINE - 2, size);
    while at > 0 && (rest > 0 || at == SIZE_LINE - 2) {
        at -= 1;
        line[at] = b"0123456789ABCDEF"[rest & 0xf];
        rest >>= 4;
    }
    &line[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunks_size_is_hexadecimal() {
        for size in [1, 9, 10, 15, 16, 255, 256, 4096, 65_535, 1 << 20, usize::MAX] {
            assert_eq!(size_line(size, &mut [0; SIZE_LINE]), format!("{size:X}\r\n").as_bytes());
        }
    }
}
