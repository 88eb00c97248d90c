//! Bytes in, events out in pieces, across any split. Pure: no time, no I/O, no failure, no allocation on the usual path.
//! (Only what is compressed needs a window, and may be corrupt.)
//!
//! [`inflate`] undoes a body's compression; [`sse`], [`ndjson`], [`mod@array`] and [`messages`] cut a body into events; [`json`]
//! walks a document for the fields of a [`json::Tree`], [`multipart`] a form for its small ones; [`wrapped`] undoes what
//! stands around a document; [`twin`] knows an event again that differs from an earlier one in nothing but values nobody
//! asked for.

pub mod array;
mod bytes;
pub mod inflate;
pub mod json;
pub mod messages;
pub mod multipart;
pub mod ndjson;
pub mod sse;
pub mod twin;
pub mod websocket;
pub mod wrapped;

pub use self::bytes::{find, is_plain, percent_decoded, split_once};

/// What cuts a body into events, in pieces.
pub trait Framed {
    /// Reads up to and including the end of one event and returns how many bytes were taken: all of them if none ended.
    fn read(&mut self, bytes: &[u8], piece: &mut impl FnMut(sse::Piece<'_>)) -> usize;

    /// The body has ended: what was begun is an event too.
    fn end(&mut self, piece: &mut impl FnMut(sse::Piece<'_>));

    /// Whether the next byte begins an event or stands before one, so that an event could be known again from here.
    fn between_events(&self) -> bool;

    /// How many of the bytes to skip before an event can begin.
    #[inline]
    fn skip(&mut self, _bytes: &[u8]) -> usize {
        0
    }

    /// Goes on behind an event that was read elsewhere and ended with this byte.
    #[inline]
    fn passed(&mut self, _last: u8) {}
}

/// Gives a framer a body in these pieces, whose end is yet to be told.
#[cfg(test)]
fn feed<'a>(
    framer: &mut impl Framed,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    take: &mut impl FnMut(sse::Piece<'_>),
) {
    for mut piece in pieces {
        while !piece.is_empty() {
            let taken = framer.read(piece, take);
            assert!(taken > 0, "it gets somewhere");
            piece = &piece[taken..];
        }
    }
}
