//! What a kernel says of a socket, on whatever platform.

use crate::clock::{Nanos, WallTime};

/// One read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// How many bytes; 0 is the end, unless there was no room.
    pub(super) bytes: usize,
    /// When the kernel received the last segment among them; absent if the socket is not stamped, and at the end.
    pub(super) at: Option<WallTime>,
}

/// What TCP knows of the way to the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TcpInfo {
    /// Smoothed round trip; absent before the first.
    pub(super) rtt: Option<Nanos>,
    /// Shortest round trip of the last minutes; absent before the first, and from kernels before 4.6.
    pub(super) min_rtt: Option<Nanos>,
    /// Segments this side has sent again, since the connection began; absent from kernels before 2.6.26.
    pub(super) retransmits: Option<u32>,
}
