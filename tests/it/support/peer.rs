//! One end of a connection that speaks exactly the bytes a test says, when it says.

use std::time::Duration;

use streamgauge::net::BoxIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A client or an upstream by hand.
pub struct Peer {
    io: BoxIo,
    seen: Vec<u8>,
}

/// Nothing in these tests takes longer, paused or not.
const PATIENCE: Duration = Duration::from_secs(3600);

impl Peer {
    pub fn new(io: BoxIo) -> Self {
        Self { io, seen: Vec::new() }
    }

    /// Sends bytes and flushes them.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).await.expect("the other side reads");
        self.io.flush().await.expect("the other side reads");
    }

    /// Sends bytes; the other side may be gone.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.io.write_all(bytes.as_ref()).await?;
        self.io.flush().await
    }

    /// Reads until what was seen and not taken yet ends with or contains `mark`; takes it all up to the mark's end.
    pub async fn read_to(&mut self, mark: &str) -> String {
        let mut searched = 0;
        loop {
            if let Some(at) = find(&self.seen[searched..], mark.as_bytes()) {
                let rest = self.seen.split_off(searched + at + mark.len());
                let taken = std::mem::replace(&mut self.seen, rest);
                return String::from_utf8(taken).expect("text");
            }
            searched = (self.seen.len() + 1).saturating_sub(mark.len());
            assert!(self.more().await > 0, "ended before {mark:?}; seen: {:?}", String::from_utf8_lossy(&self.seen));
        }
    }

    /// Reads a head: all up to the blank line, which is included.
    pub async fn head(&mut self) -> String {
        self.read_to("\r\n\r\n").await
    }

    /// Reads exactly so many bytes.
    pub async fn read(&mut self, count: usize) -> Vec<u8> {
        while self.seen.len() < count {
            assert!(self.more().await > 0, "ended after {} of {count} bytes", self.seen.len());
        }
        let rest = self.seen.split_off(count);
        std::mem::replace(&mut self.seen, rest)
    }

    /// Reads to the end of the connection. An abort ends it too.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more().await > 0 {}
        std::mem::take(&mut self.seen)
    }

    /// Nothing comes for a moment, and nothing was left over: under the paused clock that is for good.
    pub async fn assert_silent(&mut self) {
        let mut buffer = [0; 1024];
        let read = tokio::time::timeout(Duration::from_millis(1), self.io.read(&mut buffer)).await;
        assert_eq!(String::from_utf8_lossy(&self.seen), "", "bytes nobody asked for");
        assert!(read.is_err(), "silence, not {read:?}: {:?}", String::from_utf8_lossy(&buffer));
    }

    /// The other side has closed or reset the connection and sent nothing more.
    pub async fn assert_closed(&mut self) {
        let rest = self.rest().await;
        assert_eq!(String::from_utf8_lossy(&rest), "", "bytes nobody asked for");
    }

    /// Whatever the next read brings; 0 at the end, also when it ends with an error.
    async fn more(&mut self) -> usize {
        self.seen.reserve(16 * 1024);
        let read = tokio::time::timeout(PATIENCE, self.io.read_buf(&mut self.seen)).await;
        read.expect("bytes within the patience").unwrap_or(0)
    }

    /// Says that nothing more will be sent.
    pub async fn shutdown(&mut self) {
        let _ = self.io.shutdown().await;
    }

    /// The connection itself, with what was read and not taken.
    pub fn into_inner(self) -> (BoxIo, Vec<u8>) {
        (self.io, self.seen)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
