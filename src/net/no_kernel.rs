//! Stands in for `kernel.rs` where there is nothing to ask: reads are stamped at their return.

use std::io;

use tokio::io::ReadBuf;

use crate::clock::WallTime;

/// Whether there is anything to ask on this platform.
pub(super) const KNOWS: bool = false;

/// There is no such option here.
///
/// # Errors
/// Always.
pub(super) fn stamp_arrivals<S>(_socket: &S) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// One read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// How many bytes.
    pub(super) bytes: usize,
    /// When the kernel received them.
    pub(super) at: Option<WallTime>,
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
