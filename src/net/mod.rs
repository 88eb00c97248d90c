//! Sockets: what passes through them is stamped and counted here, below and above TLS.

pub mod io;
pub mod listener;
mod pending;
pub mod reads;
pub mod tls;

pub use self::{
    io::{BoxIo, ConnStats, Io, MeteredIo, StampWrites},
    pending::STALL,
    reads::TracedIo,
};
