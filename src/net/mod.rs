//! Sockets: what passes through them is stamped and counted here, below and above TLS.

pub mod io;
#[cfg_attr(not(all(target_os = "linux", target_pointer_width = "64")), path = "no_kernel.rs")]
mod kernel;
pub mod listener;
mod pending;
pub mod reads;
pub mod socket;
pub mod tls;
mod told;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use self::kernel::waited_for;
pub use self::{
    io::{BoxIo, ConnStats, Io, MeteredIo, StampWrites},
    pending::STALL,
    reads::TracedIo,
    socket::{Socket, stamp_arrivals},
};
