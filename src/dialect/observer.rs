//! Reads one response body on its way: framer and dialect reader together.

use http::response::Parts;

use super::{Dialect, Facts, ObserverOff, Signal};

/// Reads a copy-free view of one response body and says what its events were.
///
/// Never fails: on lost framing, three unreadable events in a row or an unreadable encoding it switches itself off,
/// says why, and the bytes go on.
#[derive(Debug)]
pub struct Observer {}

impl Observer {
    /// A reader for a response of this dialect; the head's content type decides how it is framed.
    pub fn new(_dialect: Dialect, _head: &Parts) -> Self {
        Self {}
    }

    /// Whether the response is a stream of events (and not one plain document).
    pub fn is_stream(&self) -> bool {
        false
    }

    /// Reads the next bytes of the body; `event` is called for each event completed in them, in order.
    pub fn read(&mut self, _bytes: &[u8], _event: &mut impl FnMut(Signal)) {}

    /// The body has ended: an event without its closing blank line is one too.
    pub fn end(&mut self, _event: &mut impl FnMut(Signal)) {}

    /// What the reply said so far.
    pub fn facts(&self) -> Facts {
        Facts::default()
    }

    /// Why it no longer reads, if so.
    pub fn off(&self) -> Option<ObserverOff> {
        None
    }
}
