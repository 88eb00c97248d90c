//! Reads one response body on its way: framer and dialect reader together.

use std::borrow::Cow;

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
    response::Parts,
};

use super::{
    Dialect, Facts, ObserverOff, Signal,
    reader::{Read, Reader, UNREADABLE_LIMIT},
};
use crate::framing::{
    Framed, array,
    inflate::{Fault, Inflater},
    json::Progress,
    messages, ndjson,
    sse::{self, Piece},
    twin::Twin,
};

/// Reads a copy-free view of one response body and says what its events were.
///
/// Compressed bodies are inflated for it, piece by piece, as they pass.
///
/// Never fails: on lost framing, three unreadable events in a row or an unreadable encoding it switches itself off,
/// says why, and the bytes go on.
#[derive(Debug)]
pub struct Observer {
    body: Body,
    /// Undoes the body's compression; absent if it has none, or is no longer read.
    inflater: Option<Box<Inflater>>,
    events: Events,
}

/// How the body is framed.
#[derive(Debug)]
enum Body {
    Events(sse::Framer),
    Lines(ndjson::Framer),
    Array(array::Framer),
    Messages(Box<messages::Framer>),
    Document,
    /// The head does not say: the first byte does.
    Untold,
    /// Nothing that is read.
    Blind,
}

/// What is read of the events, however they are framed.
#[derive(Debug)]
struct Events {
    off: Option<ObserverOff>,
    /// Unreadable events since the last readable one.
    row: u8,
    skipped: u32,
    reader: Reader,
    /// The last output event that others may be alike to, what it said, and the count that must have grown for them to
    /// say it too. Allocated at the first.
    twin: Option<Box<(Twin, Signal, Option<u8>)>>,
}

impl Observer {
    /// A reader for a response of this dialect; the head's content type decides how it is framed, or without one the
    /// body's first byte.
    pub fn new(dialect: Dialect, head: &Parts) -> Self {
        let body = match essence(&head.headers, &CONTENT_TYPE).as_deref() {
            Some("text/event-stream") => Body::Events(sse::Framer::default()),
            _ if dialect == Dialect::Other => Body::Blind,
            // Of Google what begins with a bracket is a stream; DashScope frames errors as events under any type.
            Some("application/json") if matches!(dialect, Dialect::Gemini | Dialect::DashScope) => Body::Untold,
            Some("application/json") => Body::Document,
            Some("application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/stream+json") => {
                Body::Lines(ndjson::Framer::default())
            }
            Some("application/vnd.amazon.eventstream") => Body::Messages(Box::default()),
            Some(essence) if essence.ends_with("+json") => Body::Document,
            // Audio of any kind: its first byte may be any.
            Some("application/octet-stream") if dialect == Dialect::OpenAiMedia => Body::Blind,
            None | Some("application/octet-stream") => Body::Untold,
            Some(_) => Body::Blind,
        };
        let (inflater, off) = match inflater(&head.headers) {
            _ if matches!(body, Body::Blind) => (None, None),
            Err(off) => (None, Some(off)),
            Ok(inflater) if matches!(body, Body::Events(_)) && dialect == Dialect::Other => {
                (inflater, Some(ObserverOff::UnknownDialect))
            }
            Ok(inflater) => (inflater, None),
        };
        let mut reader = Reader::new(dialect);
        reader.head(head);
        Self { body, inflater, events: Events { off, row: 0, skipped: 0, reader, twin: None } }
    }

    /// Whether the response is a stream of events (and not one plain document). Without a content type that is known
    /// only once its first byte was read.
    pub fn is_stream(&self) -> bool {
        !matches!(self.body, Body::Document | Body::Untold | Body::Blind)
    }

    /// Reads the next bytes of the body; `event` is called for each event completed in them, in order. Events of an
    /// unknown dialect are counted too: they say nothing.
    #[inline]
    pub fn read(&mut self, bytes: &[u8], event: &mut impl FnMut(Signal)) {
        // First what nearly every frame is.
        if let (Body::Events(framer), None, None) = (&mut self.body, self.events.off, &self.inflater) {
            self.events.read(framer, bytes, event);
        } else if self.inflater.is_some() {
            self.read_inflated(bytes, event);
        } else {
            self.read_plain(bytes, event);
        }
    }

    /// The body has ended: an event without its closing blank line is one too.
    pub fn end(&mut self, event: &mut impl FnMut(Signal)) {
        self.inflater = None;
        if !self.events.is_reading() {
            return;
        }
        let Self { body, events, .. } = self;
        match body {
            Body::Events(framer) => events.end(framer, event),
            Body::Lines(framer) => events.end(framer, event),
            Body::Array(framer) => events.end(framer, event),
            Body::Messages(framer) => events.end(&mut **framer, event),
            Body::Document | Body::Untold | Body::Blind => {}
        }
    }

    /// A plain document that has begun and not ended: if nothing more comes, half an answer.
    pub fn is_half_read(&self) -> bool {
        let Self { body, events, .. } = self;
        matches!(body, Body::Document) && events.off.is_none() && events.reader.progress() == Progress::Open
    }

    /// What the reply said so far.
    pub fn facts(&self) -> Facts {
        self.events.reader.facts(self.is_stream())
    }

    /// The same at the end, when nothing more is read: it is handed over, not copied.
    pub fn take_facts(&mut self) -> Facts {
        let stream = self.is_stream();
        self.events.reader.take_facts(stream)
    }

    /// Why it no longer reads, if so.
    pub fn off(&self) -> Option<ObserverOff> {
        self.events.off
    }

    /// How many events could not be read and were skipped.
    pub fn skipped(&self) -> u32 {
        self.events.skipped
    }

    #[inline(never)]
    fn read_plain(&mut self, bytes: &[u8], event: &mut impl FnMut(Signal)) {
        let Self { body, events, .. } = self;
        if !events.is_reading() {
            return;
        }
        match body {
            Body::Events(framer) => events.read(framer, bytes, event),
            Body::Lines(framer) => events.read(framer, bytes, event),
            Body::Array(framer) => {
                events.read(framer, bytes, event);
                if framer.is_closed() {
                    events.reader.closed();
                }
            }
            Body::Messages(framer) => {
                events.read(&mut **framer, bytes, event);
                if framer.is_lost() {
                    events.off = Some(ObserverOff::Malformed);
                }
            }
            Body::Document => events.read_document(bytes),
            Body::Untold => {
                if let Some((told, rest)) = told(bytes, events.reader.dialect()) {
                    self.body = told;
                    self.read_plain(rest, event);
                }
            }
            Body::Blind => {}
        }
    }

    /// Reads what compressed bytes hold. The inflater is put back only if there is more to read: its window is not small.
    fn read_inflated(&mut self, bytes: &[u8], event: &mut impl FnMut(Signal)) {
        let Some(mut inflater) = self.inflater.take() else { return };
        let read = inflater.read(bytes, &mut |plain| self.read_plain(plain, event));
        if !self.events.is_reading() || matches!(self.body, Body::Blind) {
            return;
        }
        match read {
            Ok(()) => self.inflater = Some(inflater),
            Err(Fault::Corrupt) => self.events.off = Some(ObserverOff::Encoding),
            Err(Fault::Overflow) => self.events.off = Some(ObserverOff::Overflow),
        }
    }
}

impl Events {
    /// Events of an unknown dialect are read too, to count them.
    #[inline]
    fn is_reading(&self) -> bool {
        matches!(self.off, None | Some(ObserverOff::UnknownDialect))
    }

    #[inline]
    fn read(&mut self, framer: &mut impl Framed, bytes: &[u8], event: &mut impl FnMut(Signal)) {
        let mut at = 0;
        while at < bytes.len() {
            let whole = framer.between_events();
            if whole {
                at += framer.skip(&bytes[at..]);
                let reader = &mut self.reader;
                if let Some(twin) = &mut self.twin
                    && let Some(len) = twin.0.recognise(&bytes[at..], &mut |field, number| reader.tell(field, number))
                {
                    at += len;
                    framer.passed(bytes[at - 1]);
                    self.row = 0;
                    let signal = twin.1;
                    event(match twin.2 {
                        None => signal,
                        Some(growing) => reader.same(signal, growing),
                    });
                    continue;
                }
            }
            at += self.read_event(framer, &bytes[at..], whole, event);
            if !self.is_reading() {
                return;
            }
        }
    }

    /// Reads to the end of one event (`whole`: from its beginning), or of the bytes. Returns how many were read.
    fn read_event(
        &mut self,
        framer: &mut impl Framed,
        bytes: &[u8],
        whole: bool,
        event: &mut impl FnMut(Signal),
    ) -> usize {
        let reader = &mut self.reader;
        let mut read = None;
        let (mut parts, mut document) = (0, 0);
        let len = framer.read(bytes, &mut |piece| {
            if let Piece::Data(_, at) = piece {
                parts += 1;
                document = at;
            }
            read = take(reader, piece);
        });
        if let Some(read) = read {
            if let Read::Event(signal) = read
                && whole
                && parts == 1
            {
                self.remember(&bytes[..len], document, signal);
            }
            self.book(read, event);
        }
        len
    }

    fn end(&mut self, framer: &mut impl Framed, event: &mut impl FnMut(Signal)) {
        let reader = &mut self.reader;
        let mut read = None;
        framer.end(&mut |piece| read = take(reader, piece));
        if let Some(read) = read {
            self.book(read, event);
        }
    }

    fn remember(&mut self, event: &[u8], document: usize, signal: Signal) {
        if signal.output.is_empty() || !Twin::fits(event.len()) {
            return;
        }
        if let Some(free) = self.reader.alike() {
            let growing = self.reader.growing();
            let twin = self.twin.get_or_insert_default();
            twin.0.remember(event, document, free);
            (twin.1, twin.2) = (signal, growing);
        }
    }

    fn book(&mut self, read: Read, event: &mut impl FnMut(Signal)) {
        match read {
            Read::Nothing => {}
            Read::Event(signal) => {
                self.row = 0;
                event(signal);
            }
            Read::Unreadable => {
                self.skipped = self.skipped.saturating_add(1);
                self.row += 1;
                event(Signal::default());
                if self.row == UNREADABLE_LIMIT {
                    self.off = Some(ObserverOff::Malformed);
                }
            }
        }
    }

    fn read_document(&mut self, bytes: &[u8]) {
        match self.reader.document(bytes) {
            Progress::Malformed => self.off = Some(ObserverOff::Malformed),
            Progress::TooDeep => self.off = Some(ObserverOff::Overflow),
            Progress::Blank | Progress::Open | Progress::Closed => {}
        }
    }
}

/// Takes a body without a content type for what it begins like: a field's name, a comment, a document; and the body from
/// there on, without the white space before, which would be a part of the field's name only if no cut is behind it. Absent
/// while there is nothing else.
fn told(bytes: &[u8], dialect: Dialect) -> Option<(Body, &[u8])> {
    let bytes = bytes.trim_ascii_start();
    let told = match bytes.first()? {
        b'[' if dialect == Dialect::Gemini => Body::Array(array::Framer::default()),
        b'{' | b'[' => Body::Document,
        b'd' | b'e' | b'i' | b'r' | b':' | 0xef => Body::Events(sse::Framer::default()),
        _ => Body::Blind,
    };
    Some((told, bytes))
}

/// Hands a piece to the reader; what the event was, if it ended.
#[inline]
fn take(reader: &mut Reader, piece: Piece<'_>) -> Option<Read> {
    match piece {
        Piece::Data(part, _) => reader.data(part),
        Piece::Name(part) => reader.name(part),
        Piece::Bare(part) => reader.stray(part, false),
        Piece::Error(part) => reader.stray(part, true),
        Piece::Exception(name) => reader.exception(name),
        Piece::End { data } => return Some(reader.end(data)),
    }
    None
}

/// What undoes the body's coding; absent if it has none. Fails if it can't be undone, as several can't.
fn inflater(headers: &HeaderMap) -> Result<Option<Box<Inflater>>, ObserverOff> {
    let mut found = None;
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value.to_str().map_err(|_| ObserverOff::Encoding)?;
        for coding in value.split(',').map(str::trim) {
            if coding.is_empty() || coding.eq_ignore_ascii_case("identity") {
                continue;
            }
            let inflater = Inflater::of(coding).ok_or(ObserverOff::Encoding)?;
            if found.replace(Box::new(inflater)).is_some() {
                return Err(ObserverOff::Encoding);
            }
        }
    }
    Ok(found)
}

/// A header's value without its parameters, in lower case; absent if empty.
fn essence<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let value = headers.get(name)?.to_str().ok()?;
    let essence = value.split(';').next()?.trim();
    let lower = !essence.bytes().any(|byte| byte.is_ascii_uppercase());
    let essence = if lower { Cow::Borrowed(essence) } else { Cow::Owned(essence.to_ascii_lowercase()) };
    (!essence.is_empty()).then_some(essence)
}

#[cfg(test)]
mod tests;
