//! Sockets: what passes through them is stamped and counted here, below and above TLS.

pub mod io;
#[cfg_attr(not(all(target_os = "linux", target_pointer_width = "64")), path = "no_kernel.rs")]
mod kernel;
pub mod listener;
mod pending;
pub mod reads;
pub mod socket;
pub mod tls;
pub mod together;
mod told;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use self::kernel::waited_for;
pub use self::{
    io::{BoxIo, ConnStats, Io, MeteredIo, StampWrites},
    pending::STALL,
    reads::TracedIo,
    socket::{Socket, stamp_arrivals},
    together::{Begun, Together},
};

/// How much of one HTTP/2 stream may lie here unread.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// How much of all streams of an HTTP/2 connection together: as much as the protocol can say, so that it is never what
/// somebody waits for. A smaller one, once a few streams that are not read have filled it, stops all others; and the library
/// allows for half of it what small frames cost beside their bytes, and ends the connection beyond. What lies here is
/// bounded all the same, by each stream's own window.
pub const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
