//! Reads the events of one reply by its dialect: pieces in, one [`Signal`] per event out.

use super::{
    Dialect, Facts, Signal, anthropic, bedrock_converse, cohere, gemini, ollama, openai_chat, openai_responses,
    reply::{ERROR, ERROR_TYPE, Event, Reply},
    tgi,
};
use crate::framing::json::{Free, Progress, Scanner, Value};

/// The end marker that is no JSON. Most dialects' streams may end with it, whatever else they end with.
const DONE: &[u8] = b"[DONE]";

/// The event name that makes any event an error.
const ERROR_NAME: &[u8] = b"error";

/// Not (or no longer) the beginning of what is compared.
const NO_MATCH: u8 = u8::MAX;

/// Reads a reply's events, one after another.
#[derive(Debug)]
pub(super) struct Reader {
    dialect: Dialect,
    scanner: Scanner,
    reply: Reply,
    event: Event,
    /// Something of the present event was read.
    open: bool,
    /// It was not data.
    stray: bool,
    /// How much of [`DONE`] the data was so far.
    done: u8,
    /// How much of [`ERROR_NAME`] the name was so far.
    name: u8,
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

impl Reader {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            scanner: Scanner::default(),
            reply: Reply::default(),
            event: Event::default(),
            open: false,
            stray: false,
            done: 0,
            name: 0,
        }
    }

    /// The next part of the event's data.
    #[inline]
    pub(super) fn data(&mut self, part: &[u8]) {
        if !self.open || self.stray {
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
        follow(&mut self.name, ERROR_NAME, part);
    }

    /// The event is an exception of this name (which may be empty).
    pub(super) fn exception(&mut self, name: &[u8]) {
        self.open();
        self.begin_error();
        self.reply.take(&mut self.event, ERROR_TYPE, Value::Text(name));
    }

    /// JSON outside of data, or the value of an `error` field: what it says is taken, but it is no event.
    pub(super) fn stray(&mut self, part: &[u8], error: bool) {
        if !self.open {
            self.open();
            self.stray = true;
            if error {
                self.begin_error();
            }
        }
        self.scan(part);
    }

    /// The event has ended; it had data or not.
    #[inline]
    pub(super) fn end(&mut self, data: bool) -> Read {
        let named_error = usize::from(self.name) == ERROR_NAME.len();
        self.name = 0;
        if data && !self.open {
            self.open();
        }
        if !std::mem::take(&mut self.open) {
            return Read::Nothing;
        }
        if !data {
            if self.event.error {
                self.dialect_end();
            }
            return Read::Nothing;
        }
        if self.dialect == Dialect::Other {
            return Read::Event(Signal::default());
        }
        if named_error {
            self.begin_error();
            return Read::Event(self.dialect_end());
        }
        if usize::from(self.done) == DONE.len() {
            self.reply.ended = true;
            return Read::Event(Signal { end: true, ..Signal::default() });
        }
        match self.scanner.progress() {
            Progress::Closed => Read::Event(self.dialect_end()),
            Progress::Blank if self.event.error => Read::Event(self.dialect_end()),
            Progress::Blank if self.done == NO_MATCH || self.done == 0 => Read::Event(Signal::default()),
            _ => Read::Unreadable,
        }
    }

    /// The framing itself said that the reply is complete.
    pub(super) const fn closed(&mut self) {
        self.reply.ended = true;
    }

    /// The next part of a reply that is one plain document.
    pub(super) fn document(&mut self, part: &[u8]) -> Progress {
        let before = self.scanner.progress();
        self.scan(part);
        let now = self.scanner.progress();
        if now == Progress::Closed && before != now {
            self.dialect_end();
            self.reply.ended = true;
        }
        now
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
    /// in it was said that would have to be said again.
    pub(super) fn alike(&self) -> Option<&[Free]> {
        let silent = !self.event.telling && !self.event.error && self.done == NO_MATCH;
        if silent { self.scanner.free() } else { None }
    }

    /// Takes a number of an event that is alike to one that was read.
    pub(super) fn tell(&mut self, field: u8, number: &[u8]) {
        self.found(field, Value::Number(number));
    }

    pub(super) fn facts(&self) -> Facts {
        match self.dialect {
            Dialect::OpenAiChat | Dialect::Other => openai_chat::facts(&self.reply),
            Dialect::OpenAiResponses => openai_responses::facts(&self.reply),
            Dialect::Anthropic => anthropic::facts(&self.reply),
            Dialect::Ollama => ollama::facts(&self.reply),
            Dialect::Gemini => gemini::facts(&self.reply),
            Dialect::Cohere => cohere::facts(&self.reply),
            Dialect::Tgi => tgi::facts(&self.reply),
            Dialect::BedrockConverse => bedrock_converse::facts(&self.reply),
        }
    }

    #[inline]
    fn open(&mut self) {
        self.open = true;
        self.stray = false;
        self.event = Event::default();
        self.done = 0;
        self.scanner.restart();
        if usize::from(self.name) == ERROR_NAME.len() {
            self.begin_error();
        }
    }

    /// Data that may still turn out to be the end marker.
    #[inline]
    fn maybe_done(&mut self, part: &[u8]) {
        let before = usize::from(self.done);
        // White space behind the marker means nothing.
        let (word, behind) = part.split_at(part.len().min(DONE.len() - before));
        if behind.iter().all(u8::is_ascii_whitespace) {
            follow(&mut self.done, DONE, word);
        } else {
            self.done = NO_MATCH;
        }
        if self.done == NO_MATCH {
            self.scan(&DONE[..before]);
            self.scan(part);
        }
    }

    #[inline]
    fn scan(&mut self, part: &[u8]) {
        let Self { scanner, reply, event, .. } = self;
        match self.dialect {
            Dialect::OpenAiChat => scanner.read(&openai_chat::TREE, part, &mut |field, value| {
                openai_chat::found(reply, event, field, value);
            }),
            Dialect::OpenAiResponses => scanner.read(&openai_responses::TREE, part, &mut |field, value| {
                openai_responses::found(reply, event, field, value);
            }),
            Dialect::Anthropic => scanner.read(&anthropic::TREE, part, &mut |field, value| {
                anthropic::found(reply, event, field, value);
            }),
            Dialect::Ollama => scanner.read(&ollama::TREE, part, &mut |field, value| {
                ollama::found(reply, event, field, value);
            }),
            Dialect::Gemini => scanner.read(&gemini::TREE, part, &mut |field, value| {
                gemini::found(reply, event, field, value);
            }),
            Dialect::Cohere => scanner.read(&cohere::TREE, part, &mut |field, value| {
                cohere::found(reply, event, field, value);
            }),
            Dialect::Tgi => scanner.read(&tgi::TREE, part, &mut |field, value| {
                tgi::found(reply, event, field, value);
            }),
            Dialect::BedrockConverse => scanner.read(&bedrock_converse::TREE, part, &mut |field, value| {
                bedrock_converse::found(reply, event, field, value);
            }),
            Dialect::Other => {}
        }
    }

    fn found(&mut self, field: u8, value: Value<'_>) {
        let Self { reply, event, .. } = self;
        match self.dialect {
            Dialect::OpenAiChat => openai_chat::found(reply, event, field, value),
            Dialect::OpenAiResponses => openai_responses::found(reply, event, field, value),
            Dialect::Anthropic => anthropic::found(reply, event, field, value),
            Dialect::Ollama => ollama::found(reply, event, field, value),
            Dialect::Gemini => gemini::found(reply, event, field, value),
            Dialect::Cohere => cohere::found(reply, event, field, value),
            Dialect::Tgi => tgi::found(reply, event, field, value),
            Dialect::BedrockConverse => bedrock_converse::found(reply, event, field, value),
            Dialect::Other => {}
        }
    }

    fn begin_error(&mut self) {
        let Self { reply, event, .. } = self;
        match self.dialect {
            Dialect::OpenAiChat => openai_chat::begin_error(reply, event),
            Dialect::OpenAiResponses => openai_responses::begin_error(reply, event),
            Dialect::Anthropic => anthropic::begin_error(reply, event),
            Dialect::Ollama | Dialect::Gemini | Dialect::Cohere | Dialect::Tgi | Dialect::BedrockConverse => {
                reply.take(event, ERROR, Value::Object);
            }
            Dialect::Other => {}
        }
    }

    #[inline]
    fn dialect_end(&mut self) -> Signal {
        let Self { reply, event, .. } = self;
        match self.dialect {
            Dialect::OpenAiChat => openai_chat::end(reply, event),
            Dialect::OpenAiResponses => openai_responses::end(reply, event),
            Dialect::Anthropic => anthropic::end(reply, event),
            Dialect::Ollama => ollama::end(reply, event),
            Dialect::Gemini => gemini::end(reply, event),
            Dialect::Cohere => cohere::end(reply, event),
            Dialect::Tgi => tgi::end(reply, event),
            Dialect::BedrockConverse => bedrock_converse::end(reply, event),
            Dialect::Other => Signal::default(),
        }
    }
}

/// Follows a word through pieces: `seen` of its bytes came before.
#[inline]
fn follow(seen: &mut u8, word: &[u8], part: &[u8]) {
    let begin = usize::from(*seen);
    let fits = *seen != NO_MATCH && word.get(begin..).is_some_and(|rest| rest.starts_with(part));
    #[expect(clippy::cast_possible_truncation, reason = "within a word of a few bytes")]
    let now = (begin + part.len()) as u8;
    *seen = if fits { now } else { NO_MATCH };
}
