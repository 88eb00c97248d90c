//! HTTP/1.1 on both sides, polled in one task: no channel between a read and the frame it becomes, no buffer that a silent
//! stream holds, and the stamp of the read is that of the frame.
//!
//! Heads are parsed by `httparse`, as in hyper, and the same heads are refused (RFC 9112): what two servers may read in two
//! ways never passes. HTTP/2 is hyper's on both sides.
//!
//! A `Wire` is one connection: its socket, what was read of it and not taken yet, and how far the message under way has
//! come. A message's body ([`Incoming`]) reads it when polled, from whichever task that is; whoever owns the connection polls it
//! only while no body does. The lock is never held while anything else is polled.

mod body;
pub mod client;
mod decode;
mod encode;
mod head;
mod names;
mod send;
pub mod server;
mod wire;

use std::{fmt, io};

pub use self::{
    body::{Incoming, NoUpload, Outgoing, Upgrade},
    head::{expects_continue, tokens, words},
    wire::Upgraded,
};

/// Why a connection broke.
#[derive(Debug)]
pub enum Error {
    /// The socket failed.
    Io(io::Error),
    /// The other side closed the connection in the middle of a message.
    Closed,
    /// What came is not HTTP/1.1; the text says what is wrong.
    Malformed(&'static str),
    /// The body to be sent failed.
    Body(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Io(_) => "the connection failed",
            Self::Closed => "connection closed before message completed",
            Self::Malformed(what) => return write!(f, "malformed HTTP: {what}"),
            Self::Body(_) => "the body to be sent failed",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Body(error) => Some(&**error),
            Self::Closed | Self::Malformed(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
