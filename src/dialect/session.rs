//! Reads both directions of a WebSocket session: where its turns begin, what their events say, where they end.
//!
//! * OpenAI Responses: a turn begins with the client's `response.create` and ends with `response.completed`,
//!   `.incomplete`, `.failed` or `error`.
//! * Realtime: it begins with the client's `response.create`, or with what the provider heard if it answers that by
//!   itself (`speech_stopped`, `committed`); it ends with `response.done`, or an `error` that refuses it.
//! * Gemini Live: it begins with the client's completed turn (`turnComplete: true`; absent is false), end of activity
//!   or text, with the answers to all tools that were called, or with speech that the provider says it heard; it ends
//!   with `turnComplete`, also if it was interrupted, or with a call of tools that the model waits for. Usage that
//!   comes behind that is lost; that of a turn begun by answers to tools covers the calls too.
//!
//! Realtime may have several responses under way (`conversation: "none"`): their ids tell their events apart. An
//! `error` is of the oldest turn that nothing has answered, if it names that turn's message (or neither has a name)
//! and not a buffer or a cancellation; any other one is no turn's, as the session goes on. What Realtime hears begins
//! a turn only while its session detects turns and answers them; a `response.create` for what was heard opens no
//! second one.
//!
//! A mark that finds the turn before it unanswered moves that turn's begin, where providers make one answer to both
//! (Gemini Live) or may have found nothing to answer (what was heard): the time since an older mark would be
//! nobody's.
//!
//! Gemini Live does not say when it heard speech end unless it is asked to: without that, and at the end of a stream of
//! audio (of which nobody knows whether speech was in it), no turn begins, and the answer is [`Told::Unasked`].

mod state;
mod wish;

use self::{state::State, wish::Wishes};
use super::{Dialect, Facts, ObserverOff, Signal, reader::Reader};
use crate::framing::websocket::{Deflate, Framer, Piece};

/// What a message of the client's means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A response is asked for: a turn begins with this message, behind those that are open.
    Response {
        /// The model as requested; absent if nobody said yet.
        model: Option<String>,
    },
    /// The youngest turn, which nothing has answered, begins with this message instead.
    Again,
    /// The client says goodbye: it will ask for nothing more.
    Goodbye,
    /// Anything else.
    Nothing,
}

/// What a message of the provider's means. Turns are numbered by their place among the open ones, the oldest is 0: a
/// turn is open from [`Asked::Response`] or [`Told::Heard`] to its [`Told::Last`].
#[derive(Clone, Debug)]
pub enum Told {
    /// The provider heard the client's speech end: a turn begins here, behind those that are open.
    Heard,
    /// The youngest turn, begun by [`Self::Heard`], was not answered before more was heard: it begins here instead.
    HeardAgain,
    /// An event of this turn.
    Event(usize, Signal),
    /// The last event of this turn, and what all of it said.
    Last(usize, Signal, Box<Facts>),
    /// The last event of a response that nobody was seen to ask for, and what all of it said: it can't be timed.
    Unasked(Box<Facts>),
    /// The provider says goodbye: no open turn will be answered any more.
    Goodbye,
    /// No event of a turn.
    Nothing,
}

/// Reads a session: both directions as their bytes pass, in the order they do.
///
/// Never fails: once the framing of one side is lost, three messages of the provider's in a row are unreadable, or
/// more than eight turns are open, it reads no longer and says why.
#[derive(Debug)]
pub struct Session {
    client: Framer,
    wishes: Wishes,
    server: Framer,
    reader: Reader,
    state: State,
}

impl Session {
    /// A reader of a session of this dialect. `model` is what the request (its query) names; `client` and `server`
    /// are how the two directions compress ([`crate::framing::websocket::agreed`]).
    pub fn new(dialect: Dialect, model: Option<String>, client: Option<Deflate>, server: Option<Deflate>) -> Self {
        Self {
            client: Framer::new(client),
            wishes: Wishes::default(),
            server: Framer::new(server),
            reader: Reader::new(dialect),
            state: State::new(dialect, model),
        }
    }

    /// Reads the client's next bytes; `asked` is called for each complete message, in order.
    pub fn client(&mut self, bytes: &[u8], asked: &mut impl FnMut(Asked)) {
        let Self { client, wishes, state, .. } = self;
        if state.off().is_some() {
            return;
        }
        client.read(bytes, &mut |piece| match piece {
            Piece::Data(part) => wishes.data(part),
            Piece::End => {
                let wish = wishes.end();
                if state.off().is_none() {
                    asked(state.asked(wish));
                }
            }
            Piece::Close(_) => asked(Asked::Goodbye),
        });
        state.lose(client.lost());
    }

    /// Reads the provider's next bytes; `told` is called for each complete message, in order.
    pub fn server(&mut self, bytes: &[u8], told: &mut impl FnMut(Told)) {
        let Self { server, reader, state, .. } = self;
        if state.off().is_some() {
            return;
        }
        server.read(bytes, &mut |piece| match piece {
            Piece::Data(part) => reader.data(part),
            Piece::End => {
                let read = reader.end(true);
                if state.off().is_none() {
                    told(state.told(read, reader));
                }
            }
            Piece::Close(_) => told(Told::Goodbye),
        });
        state.lose(server.lost());
    }

    /// The model as requested, as far as it is known by now: what the request or the client says, else the session.
    pub fn model(&self) -> Option<&str> {
        self.state.model()
    }

    /// Why it no longer reads, if so.
    pub const fn off(&self) -> Option<ObserverOff> {
        self.state.off()
    }
}

#[cfg(test)]
mod tests;
