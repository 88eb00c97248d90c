//! WebSocket messages (RFC 6455) of one direction, in pieces: unmasked, defragmented, inflated (RFC 7692).

/// A piece of what one direction carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// The next part of a text or binary message, unmasked and inflated.
    Data(&'a [u8]),
    /// The message has ended.
    End,
    /// The side says goodbye, with its status code if it gives one.
    Close(Option<u16>),
}
