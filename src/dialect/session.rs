//! Reads both directions of a WebSocket session: where its turns begin, what their events say, where they end.

use super::{Dialect, Facts, ObserverOff, Signal};
use crate::framing::websocket::{Deflate, Framer, Piece};

/// What a message of the client's means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A response is asked for: a turn begins with this message, behind those that are open.
    Response {
        /// The model as requested; absent if nobody said yet.
        model: Option<String>,
    },
    /// Anything else.
    Nothing,
}

/// What a message of the provider's means. Turns are numbered by their place among the open ones, the oldest is 0: a
/// turn is open from [`Asked::Response`] or [`Told::Heard`] to its [`Told::Last`].
#[derive(Clone, Debug)]
pub enum Told {
    /// The provider heard the client's speech end: a turn begins here, behind those that are open.
    Heard,
    /// An event of this turn.
    Event(usize, Signal),
    /// The last event of this turn, and what all of it said.
    Last(usize, Signal, Box<Facts>),
    /// The last event of a response that nobody was seen to ask for, and what all of it said: it can't be timed.
    Unasked(Box<Facts>),
    /// No event of a turn.
    Nothing,
}

/// Reads a session.
#[derive(Debug)]
pub struct Session {
    dialect: Dialect,
    model: Option<String>,
    client: Framer,
    server: Framer,
    off: Option<ObserverOff>,
}

impl Session {
    /// A reader of a session of this dialect. `model` is what the request (its query) names; `client` and `server` are how
    /// the two directions compress ([`crate::framing::websocket::agreed`]).
    pub fn new(dialect: Dialect, model: Option<String>, client: Option<Deflate>, server: Option<Deflate>) -> Self {
        Self { dialect, model, client: Framer::new(client), server: Framer::new(server), off: None }
    }

    /// Reads the client's next bytes; `asked` is called for each complete message, in order.
    pub fn client(&mut self, bytes: &[u8], asked: &mut impl FnMut(Asked)) {
        self.client.read(bytes, &mut |piece| {
            if piece == Piece::End {
                asked(Asked::Nothing);
            }
        });
    }

    /// Reads the provider's next bytes; `told` is called for each complete message, in order.
    pub fn server(&mut self, bytes: &[u8], told: &mut impl FnMut(Told)) {
        self.server.read(bytes, &mut |piece| {
            if piece == Piece::End {
                told(Told::Nothing);
            }
        });
    }

    /// The model as requested, as far as it is known by now: what the request, the client or the session itself says.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Why it no longer reads, if so.
    pub const fn off(&self) -> Option<ObserverOff> {
        self.off
    }
}
