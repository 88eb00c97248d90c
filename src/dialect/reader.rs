//! Reads the events of one reply by its dialect's [`Rules`]: pieces in, one [`Signal`] per event out.

use http::response::Parts;

use super::{
    Dialect, Facts, Signal, headers,
    reply::{ERROR_BY_NAME, ERROR_TYPE, Event, NAME, Reply, TEXT},
    rules::{Data, Rules},
};
use crate::framing::{
    json::{Free, Progress, Scanner, Value, blanks},
    wrapped::Unwrapper,
};

/// The end marker that is no JSON. Most dialects' streams may end with it, whatever else they end with.
const DONE: &[u8] = b"[DONE]";

/// The event name that makes any event an error.
const ERROR_NAME: &[u8] = b"error";

/// So many unreadable events in a row end the reading.
pub(super) const UNREADABLE_LIMIT: u8 = 3;

/// Not (or no longer) the beginning of what is compared.
const NO_MATCH: u8 = u8::MAX;

/// Reads a reply's events, one after another.
pub(super) struct Reader {
    dialect: Dialect,
    rules: &'static Rules,
    scanner: Scanner,
    unwrapper: Unwrapper,
    reply: Reply,
    event: Event,
    /// Something of the present event was read.
    open: bool,
    /// It was not data.
    stray: bool,
    /// How much of [`DONE`] the data was so far.
    done: u8,
    name: ShortName,
}

/// What an ended event was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// An event that said this.
    Event(Signal),
    /// An event that could not be read.
    Unreadable,
    /// No event: nothing with data.
    Nothing,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("dialect", &self.dialect).field("reply", &self.reply).finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            rules: dialect.rules(),
            scanner: Scanner::default(),
            unwrapper: Unwrapper::default(),
            reply: Reply::default(),
            event: Event::default(),
            open: false,
            stray: false,
            done: 0,
            name: ShortName::default(),
        }
    }

    /// The next part of the event's data.
    #[inline]
    pub(super) fn data(&mut self, part: &[u8]) {
        if !self.open || self.stray {
            if self.open {
                self.reply.abandon(&self.event);
            }
            self.open();
        }
        if self.done == NO_MATCH {
            self.scan(part);
        } else {
            self.maybe_done(part);
        }
    }

    /// The next part of the event's name.
    pub(super) fn name(&mut self, part: &[u8]) {
        self.name.push(part);
    }

    /// The event is an exception of this name (which may be empty).
    pub(super) fn exception(&mut self, name: &[u8]) {
        self.open();
        self.found(ERROR_BY_NAME, Value::Object);
        self.reply.take(&mut self.event, ERROR_TYPE, Value::Text(name));
    }

    /// JSON outside of data, or the value of an `error` field: what it says is taken, but it is no event.
    pub(super) fn stray(&mut self, part: &[u8], error: bool) {
        if !self.open {
            self.open();
            self.stray = true;
            if error {
                self.found(ERROR_BY_NAME, Value::Object);
            }
        }
        self.scan(part);
    }

    /// The event has ended; it had data or not.
    #[inline]
    pub(super) fn end(&mut self, data: bool) -> Read {
        let name = std::mem::take(&mut self.name);
        if data && !self.open {
            self.open();
        }
        if !std::mem::take(&mut self.open) {
            return Read::Nothing;
        }
        if !data {
            if self.event.error {
                self.dialect_end();
            } else {
                self.reply.abandon(&self.event);
            }
            return Read::Nothing;
        }
        if self.rules.data == Data::Unread {
            return Read::Event(Signal::default());
        }
        if name.as_bytes() == ERROR_NAME {
            // The name may stand behind the data, too.
            self.found(ERROR_BY_NAME, Value::Object);
            return Read::Event(self.dialect_end());
        }
        if usize::from(self.done) == DONE.len() {
            self.reply.ended = true;
            return Read::Event(Signal { end: true, ..Signal::default() });
        }
        if !name.as_bytes().is_empty() {
            self.found(NAME, Value::Text(name.as_bytes()));
        }
        if self.rules.data == Data::Text {
            return Read::Event(self.dialect_end());
        }
        match self.scanner.progress() {
            Progress::Blank if self.event.error => Read::Event(self.dialect_end()),
            Progress::Closed if self.unwrapper.is_sound() => Read::Event(self.dialect_end()),
            Progress::Blank if self.unwrapper.is_sound() && matches!(self.done, 0 | NO_MATCH) => {
                Read::Event(Signal::default())
            }
            _ => {
                self.reply.abandon(&self.event);
                Read::Unreadable
            }
        }
    }

    /// The framing itself said that the reply is complete.
    pub(super) const fn closed(&mut self) {
        self.reply.ended = true;
    }

    /// The next part of a reply that is one plain document.
    pub(super) fn document(&mut self, part: &[u8]) -> Progress {
        let before = self.scanner.is_whole();
        match self.rules.data {
            // Nothing stands around what is no stream.
            Data::Wrapped => self.walk(part),
            _ => self.scan(part),
        }
        if self.scanner.is_whole() && !before {
            self.dialect_end();
            self.reply.ended = true;
        }
        self.scanner.progress()
    }

    /// What it reads by.
    pub(super) const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// How far the present document was read.
    pub(super) const fn progress(&self) -> Progress {
        self.scanner.progress()
    }

    /// The free values of the event that just ended, if another one alike would say the same: it has output, and nothing
    /// in it was said that would have to be said again. What was unwrapped has other places in it than the event.
    pub(super) fn alike(&self) -> Option<&[Free]> {
        let silent = !self.event.telling && !self.event.error && self.done == NO_MATCH;
        if silent && self.rules.data != Data::Wrapped { self.scanner.free() } else { None }
    }

    /// The count that had to grow for the output event that just ended to be one, if it did.
    pub(super) const fn growing(&self) -> Option<u8> {
        self.event.growing()
    }

    /// The event that is alike to one that said this, by a count that had to be `growing`, has ended: what it says itself.
    pub(super) fn same(&mut self, signal: Signal, growing: u8) -> Signal {
        self.reply.alike(signal, growing)
    }

    /// Takes a number of an event that is alike to one that was read.
    pub(super) fn tell(&mut self, field: u8, number: &[u8]) {
        self.found(field, Value::Number(number));
    }

    /// Takes what the response's head says.
    pub(super) fn head(&mut self, head: &Parts) {
        self.reply.head = headers::said(head);
    }

    /// What the reply said so far; `stream`: as a stream, not as a plain answer.
    pub(super) fn facts(&self, stream: bool) -> Facts {
        self.named(self.reply.clone(), stream)
    }

    /// The same; what follows is of another reply.
    pub(super) fn take_facts(&mut self, stream: bool) -> Facts {
        let reply = std::mem::take(&mut self.reply);
        self.named(reply, stream)
    }

    /// What a reply said; of an error that has not ended, what it was called so far.
    fn named(&self, mut reply: Reply, stream: bool) -> Facts {
        reply.name_error(&self.event);
        reply.into_facts(self.rules.usage, stream)
    }

    /// The event that just ended.
    pub(super) const fn event(&self) -> &Event {
        &self.event
    }

    /// What follows is of another reply.
    pub(super) fn renew(&mut self) {
        self.reply = Reply::default();
    }

    /// The model that was named, which is then forgotten.
    pub(super) const fn take_model(&mut self) -> Option<String> {
        self.reply.model.take()
    }

    /// The error that was named, which is then forgotten.
    pub(super) const fn take_error(&mut self) -> Option<String> {
        self.reply.error.take()
    }

    #[inline]
    fn open(&mut self) {
        self.open = true;
        self.stray = false;
        self.event = Event::default();
        // Text may begin like the end marker, or be it.
        self.done = if self.rules.data == Data::Text { NO_MATCH } else { 0 };
        self.scanner.restart();
        self.unwrapper.restart();
        if self.name.as_bytes() == ERROR_NAME {
            self.found(ERROR_BY_NAME, Value::Object);
        }
    }

    /// Data that may still turn out to be the end marker.
    #[inline]
    fn maybe_done(&mut self, part: &[u8]) {
        let before = usize::from(self.done);
        // White space around the marker means nothing.
        let rest = if before == 0 { &part[blanks(part)..] } else { part };
        let (word, behind) = rest.split_at(rest.len().min(DONE.len() - before));
        if DONE[before..].starts_with(word) && blanks(behind) == behind.len() {
            #[expect(clippy::cast_possible_truncation, reason = "within a word of six bytes")]
            let now = (before + word.len()) as u8;
            self.done = now;
        } else {
            self.done = NO_MATCH;
            self.scan(&DONE[..before]);
            self.scan(part);
        }
    }

    #[inline]
    fn scan(&mut self, part: &[u8]) {
        match self.rules.data {
            Data::Json => self.walk(part),
            Data::Wrapped => self.unwrap(part),
            Data::Text => {
                if !part.is_empty() {
                    self.found(TEXT, Value::Filled);
                }
                self.walk(part);
            }
            Data::Unread => {}
        }
    }

    #[inline]
    fn walk(&mut self, part: &[u8]) {
        let Self { rules, scanner, reply, event, .. } = self;
        scanner.read(&rules.tree, part, &mut |field, value| (rules.found)(reply, event, field, value));
    }

    #[inline(never)]
    fn unwrap(&mut self, part: &[u8]) {
        let Self { rules, scanner, unwrapper, reply, event, .. } = self;
        unwrapper.read(part, &mut |inner| {
            scanner.read(&rules.tree, inner, &mut |field, value| (rules.found)(reply, event, field, value));
        });
    }

    #[inline]
    fn found(&mut self, field: u8, value: Value<'_>) {
        (self.rules.found)(&mut self.reply, &mut self.event, field, value);
    }

    #[inline]
    fn dialect_end(&mut self) -> Signal {
        (self.rules.end)(&mut self.reply, &mut self.event)
    }
}

/// The beginning of an event's name, as long as any that is asked for.
#[derive(Clone, Copy, Default, Debug)]
struct ShortName {
    bytes: [u8; 24],
    len: u8,
}

impl ShortName {
    fn push(&mut self, part: &[u8]) {
        for byte in part {
            if let Some(slot) = self.bytes.get_mut(usize::from(self.len)) {
                *slot = *byte;
                self.len += 1;
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
