//! Stands in for `kernel.rs` where there is nothing to ask: reads are stamped at their return,
//! and nothing is known of the network.
#![expect(clippy::unused_self, reason = "as the kernel's own file has it")]

use std::io;

use tokio::io::ReadBuf;

use super::told::{Received, TcpInfo};

/// Whether there is anything to ask on this platform.
pub(super) const KNOWS: bool = false;

/// There is no such option here.
///
/// # Errors
/// Always.
pub(super) fn stamp_arrivals<S>(_socket: &S) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Never called, for no socket is stamped.
///
/// # Errors
/// Always.
pub(super) fn receive<S>(_socket: &S, _buf: &mut ReadBuf<'_>, _most: usize) -> io::Result<Received> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Never called, for no socket is stamped.
///
/// # Errors
/// Always.
pub(super) fn peek<S>(_socket: &S, _buf: &mut ReadBuf<'_>, _most: usize) -> io::Result<Received> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A socket that can't be asked.
#[derive(Debug, Default)]
pub(super) struct Lent(());

impl Lent {
    /// Nothing comes of it.
    pub(super) fn lend<S>(&self, _socket: &S) {}

    /// Nothing was lent.
    pub(super) fn take_back(&self) {}

    /// Nothing is known.
    pub(super) fn tcp_info(&self) -> Option<TcpInfo> {
        None
    }
}
