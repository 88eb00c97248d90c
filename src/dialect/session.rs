//! Reads both directions of a WebSocket session: where its turns begin, what their events say, where they end.

use super::{Facts, Signal};

/// What a message of the client's means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A response is asked for: a turn begins with this message. `model` if the message (or one before) named it.
    Response {
        /// The model as requested; absent if nobody said yet.
        model: Option<String>,
    },
    /// Anything else.
    Nothing,
}

/// What a message of the provider's means.
#[derive(Clone, Debug)]
pub enum Told {
    /// The provider heard the client's speech end: a turn begins here, if none is open.
    Heard,
    /// An event of the open turn.
    Event(Signal),
    /// The last event of the open turn, and what all of it said.
    Last(Signal, Box<Facts>),
    /// No event of a turn.
    Nothing,
}
