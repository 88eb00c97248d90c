//! Which read brought a frame of HTTP/2? hyper hands frames over from another task, and between a read and its frame's arrival
//! at the tap the next read may have come. But a frame *is* the memory the read filled (hyper slices its read buffer,
//! it does not copy), so [`TracedIo`] notes the address range and stamp of the last few reads, and a frame finds its
//! own by the address of its last byte. While a frame is alive its memory can't be filled again, so the newest range
//! that holds the address is the right one.
//!
//! Where a library copies after all, no range holds the address and the caller falls back to the newest read's stamp.

use std::{
    io,
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::io::{BoxIo, ConnStats};
use crate::clock::{AtomicStamp, Stamp};

/// Reads remembered. hyper reads at most one chunk ahead of the tap, so two or three would do.
const REMEMBERED: u32 = 8;

/// The last reads of a connection: where their bytes lie and when they arrived. One writer.
#[derive(Debug, Default)]
pub struct Reads {
    newest: AtomicU32,
    slots: [Slot; REMEMBERED as usize],
}

#[derive(Debug, Default)]
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    stamp: AtomicStamp,
}

impl Reads {
    /// Arrival of the read that put the last byte of `bytes` where it lies; absent if none of the last ones did.
    pub fn arrival(&self, bytes: &[u8]) -> Option<Stamp> {
        let address = std::ptr::from_ref(bytes.last()?).addr();
        let newest = self.newest.load(Ordering::Acquire);
        if newest == 0 {
            // HTTP/1.1 is read by whoever it is for, so its reads need no notes.
            return None;
        }
        // The slot the writer fills next may be half written: leave it out.
        for back in 0..REMEMBERED - 1 {
            let slot = &self.slots[(newest.wrapping_sub(back) % REMEMBERED) as usize];
            if (slot.start.load(Ordering::Relaxed)..slot.end.load(Ordering::Relaxed)).contains(&address) {
                return slot.stamp.load();
            }
        }
        None
    }

    /// A read has put these bytes where they lie.
    pub fn push(&self, bytes: &[u8], stamp: Option<Stamp>) {
        let next = self.newest.load(Ordering::Relaxed).wrapping_add(1);
        let slot = &self.slots[(next % REMEMBERED) as usize];
        let start = bytes.as_ptr().addr();
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(start + bytes.len(), Ordering::Relaxed);
        slot.stamp.store(stamp);
        self.newest.store(next, Ordering::Release);
    }
}

/// A connection as the HTTP library sees it: above TLS. Notes where each read's bytes lie.
pub struct TracedIo {
    inner: BoxIo,
    stats: Arc<ConnStats>,
}

impl TracedIo {
    /// Wraps the plain side of a connection whose socket fills `stats`.
    pub fn new(inner: BoxIo, stats: Arc<ConnStats>) -> Self {
        Self { inner, stats }
    }
}

impl AsyncRead for TracedIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if let Some(fresh) = buf.filled().get(before..)
            && !fresh.is_empty()
        {
            self.stats.reads().push(fresh, self.stats.last_read());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TracedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Option<Stamp> {
        Stamp::from_nanos(nanos)
    }

    #[test]
    fn a_frame_finds_its_read() {
        let memory = [0_u8; 64];
        let reads = Reads::default();
        assert_eq!(reads.arrival(&memory), None);
        reads.push(&memory[..10], at(1));
        reads.push(&memory[10..30], at(2));
        reads.push(&memory[30..40], at(3));
        assert_eq!(reads.arrival(&memory[2..4]), at(1));
        assert_eq!(reads.arrival(&memory[5..11]), at(2), "the read that brought the last byte");
        assert_eq!(reads.arrival(&memory[30..40]), at(3));
        assert_eq!(reads.arrival(&memory[50..]), None, "memory no read has filled");
        assert_eq!(reads.arrival(&[]), None);
    }

    #[test]
    fn memory_filled_again_belongs_to_the_newest_read() {
        let memory = [0_u8; 8];
        let reads = Reads::default();
        for stamp in 1..=20 {
            reads.push(&memory, at(stamp));
        }
        assert_eq!(reads.arrival(&memory), at(20));
    }

    #[test]
    fn old_reads_are_forgotten() {
        let memory = [0_u8; 64];
        let reads = Reads::default();
        for i in 0..32 {
            reads.push(&memory[i..=i], at(i as u64 + 1));
        }
        assert_eq!(reads.arrival(&memory[..1]), None);
        assert_eq!(reads.arrival(&memory[31..32]), at(32));
    }
}
