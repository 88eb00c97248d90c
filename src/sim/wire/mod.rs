//! The wire shapes of the simulated dialects: pure, bytes out.

mod anthropic;
mod chat;
mod responses;

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    Reports,
    reports::Times,
    script::{Finish, Kind},
};
use crate::clock::Nanos;

/// A wire protocol the simulated provider speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// `POST …/chat/completions`.
    Chat,
    /// `POST …/responses`.
    Responses,
    /// `POST …/messages`.
    Messages,
}

impl Protocol {
    /// The protocol of a request path, by its suffix.
    pub fn of_path(path: &str) -> Option<Self> {
        match path.rsplit('/').next()? {
            "completions" if path.ends_with("/chat/completions") => Some(Self::Chat),
            "responses" => Some(Self::Responses),
            "messages" => Some(Self::Messages),
            _ => None,
        }
    }

    /// Its path below a provider's base.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// The dialect's name in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "openai_chat",
            Self::Responses => "openai_responses",
            Self::Messages => "anthropic",
        }
    }
}

/// What every shape of one reply needs to know.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// Unique within the server's life; ids are made of it.
    pub(super) number: u64,
    /// Seconds since the Unix epoch.
    pub(super) created: u64,
    /// The model's name as a JSON string, quotes included.
    pub(super) model: String,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u32,
    pub(super) reasoning_tokens: u32,
    /// Usage is reported where the dialect has it.
    pub(super) usage: bool,
    /// Where its times are told.
    pub(super) reports: Reports,
    /// Its times, once they are known.
    pub(super) times: Option<Times>,
    /// A chat stream asked for its usage chunk.
    pub(super) wants_usage: bool,
    pub(super) early_prelude: bool,
    pub(super) tool_call: bool,
    /// Tokens that the event naming the tool stands for.
    pub(super) name_tokens: u32,
    pub(super) finish: Finish,
}

impl Reply {
    /// Tokens that are not reasoning.
    fn answer_tokens(&self) -> u32 {
        self.output_tokens - self.reasoning_tokens
    }

    /// The name of the tool and the one argument it takes.
    const TOOL: &'static str = "look_up";
    const ARGUMENT_OPEN: &'static str = r#"{\"text\":\""#;
    const ARGUMENT_CLOSE: &'static str = r#"\"}"#;

    /// The whole reasoning, inside a JSON string.
    fn all_reasoning(&self, out: &mut BytesMut) {
        words(out, 0, self.reasoning_tokens);
    }

    /// The whole answer text, inside a JSON string.
    fn all_text(&self, out: &mut BytesMut) {
        words(out, self.reasoning_tokens, self.answer_tokens());
    }

    /// The tool's whole arguments, inside a JSON string.
    fn all_arguments(&self, out: &mut BytesMut) {
        let tokens = self.answer_tokens().saturating_sub(self.name_tokens);
        if tokens == 0 {
            return out.put_slice(b"{}");
        }
        out.put_slice(Self::ARGUMENT_OPEN.as_bytes());
        plain_words(out, self.reasoning_tokens + self.name_tokens, tokens);
        out.put_slice(Self::ARGUMENT_CLOSE.as_bytes());
    }
}

/// The content of one output event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) first: u32,
    pub(super) tokens: u32,
    pub(super) last_of_kind: bool,
}

impl Piece {
    /// Its text, inside a JSON string.
    fn text(&self, reply: &Reply, out: &mut BytesMut) {
        if self.kind != Kind::ToolArguments {
            return words(out, self.first, self.tokens);
        }
        if self.first == reply.reasoning_tokens + reply.name_tokens {
            out.put_slice(Reply::ARGUMENT_OPEN.as_bytes());
        }
        plain_words(out, self.first, self.tokens);
        if self.last_of_kind {
            out.put_slice(Reply::ARGUMENT_CLOSE.as_bytes());
        }
    }
}

/// One event ready to leave.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) bytes: Bytes,
    /// It carries generated content.
    pub(super) output: bool,
    /// The token counts it reports, if it does: input, output.
    pub(super) usage: Option<(u64, u32)>,
}

/// Events in the order they leave, cut from one buffer so that an event costs no allocation of its own.
#[derive(Debug, Default)]
pub(super) struct Events {
    ready: VecDeque<Event>,
    buffer: BytesMut,
}

impl Events {
    /// Room for some ten events at a time: enough that refilling is rare, little enough for thousands of streams.
    const ROOM: usize = 4096;

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// An event without generated content.
    pub(super) fn plain(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.push(false, None, write);
    }

    /// An output event.
    pub(super) fn output(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.push(true, None, write);
    }

    /// An event that reports these counts (or would, if the reply reports usage at all).
    fn usage(&mut self, counts: Option<(u64, u32)>, write: impl FnOnce(&mut BytesMut)) {
        self.push(false, counts, write);
    }

    fn push(&mut self, output: bool, usage: Option<(u64, u32)>, write: impl FnOnce(&mut BytesMut)) {
        if self.buffer.capacity() < 512 {
            self.buffer.reserve(Self::ROOM);
        }
        write(&mut self.buffer);
        self.ready.push_back(Event { bytes: self.buffer.split().freeze(), output, usage });
    }
}

/// The writer of one streamed reply.
#[derive(Debug)]
pub(super) enum Wire {
    Chat(chat::Chat),
    Responses(responses::Responses),
    Messages(anthropic::Messages),
}

impl Wire {
    pub(super) fn new(protocol: Protocol, reply: Reply) -> Self {
        match protocol {
            Protocol::Chat => Self::Chat(chat::Chat::new(reply)),
            Protocol::Responses => Self::Responses(responses::Responses::new(reply)),
            Protocol::Messages => Self::Messages(anthropic::Messages::new(reply)),
        }
    }

    /// What comes before all output.
    pub(super) fn prelude(&mut self, events: &mut Events) {
        match self {
            Self::Chat(wire) => wire.prelude(events),
            Self::Responses(wire) => wire.prelude(events),
            Self::Messages(wire) => wire.prelude(events),
        }
    }

    /// One output event, with the openings and closings around it. Exactly one of the pushed events is an output event.
    pub(super) fn piece(&mut self, piece: &Piece, events: &mut Events) {
        match self {
            Self::Chat(wire) => wire.piece(piece, events),
            Self::Responses(wire) => wire.piece(piece, events),
            Self::Messages(wire) => wire.piece(piece, events),
        }
    }

    /// What comes after the last output event, up to the dialect's end marker; with these times, where it has a place for
    /// them.
    pub(super) fn closing(&mut self, times: Option<Times>, events: &mut Events) {
        match self {
            Self::Chat(wire) => wire.closing(times, events),
            Self::Responses(wire) => wire.closing(times, events),
            Self::Messages(wire) => wire.closing(events),
        }
    }

    /// An error inside the stream; nothing follows it.
    pub(super) fn error(&mut self, events: &mut Events) {
        match self {
            Self::Chat(_) => events.plain(chat::error),
            Self::Responses(wire) => wire.error(events),
            Self::Messages(_) => events.plain(anthropic::error),
        }
    }
}

/// The whole reply as one JSON document.
pub(super) fn plain(protocol: Protocol, reply: &Reply) -> Bytes {
    let mut out = BytesMut::with_capacity(1024 + 8 * reply.output_tokens as usize);
    match protocol {
        Protocol::Chat => chat::plain(reply, &mut out),
        Protocol::Responses => responses::plain(reply, &mut out),
        Protocol::Messages => anthropic::plain(reply, &mut out),
    }
    out.freeze()
}

/// The body of a refusal in the dialect's shape.
pub(super) fn refusal(protocol: Option<Protocol>, status: u16, message: &str) -> Bytes {
    let text = |s: &str| serde_json::Value::from(s).to_string();
    let (kind, code) = match status {
        429 => ("rate_limit_error", "\"rate_limit_exceeded\""),
        404 => ("not_found_error", "null"),
        400..=499 => ("invalid_request_error", "null"),
        529 => ("overloaded_error", "null"),
        _ if protocol == Some(Protocol::Messages) => ("api_error", "null"),
        _ => ("server_error", "null"),
    };
    let message = text(message);
    Bytes::from(match protocol {
        Some(Protocol::Messages) => {
            format!(r#"{{"type":"error","error":{{"type":"{kind}","message":{message}}}}}"#)
        }
        _ => format!(r#"{{"error":{{"message":{message},"type":"{kind}","param":null,"code":{code}}}}}"#),
    })
}

/// A line that is neither JSON nor valid UTF-8, yet framed as an event so that readers have to look at it.
pub(super) fn garbage(first: u32, out: &mut BytesMut) {
    out.put_slice(b"data: {\"\xff\xfe");
    words(out, first, 3);
    out.put_slice(b"]]\x00\n\n");
}

/// Words as they stand inside a JSON string; each counts as one token. Some are escaped or not ASCII, as in life.
const WORDS: [&str; 32] = [
    " the",
    " slow",
    " river",
    " carries",
    " cold",
    " light",
    " under",
    " an",
    " old",
    " bridge",
    ",",
    " and",
    " seven",
    " grey",
    " herons",
    " wait",
    " for",
    " what",
    " the",
    " current",
    " brings",
    ".\\n",
    " Nobody",
    " here",
    " says",
    " \\\"hurry\\\"",
    ";",
    " caf\u{e9}s",
    " close",
    " at",
    " dusk",
    " \u{2014}",
];

/// The words in front that need no escaping, not even in a JSON document that is itself a JSON string.
const PLAIN_WORDS: usize = 21;

/// Appends the words of the tokens `first .. first + count`: any slice of a reply can be made again without keeping it.
fn words(out: &mut BytesMut, first: u32, count: u32) {
    for token in first..first.saturating_add(count) {
        out.put_slice(WORDS[token as usize % WORDS.len()].as_bytes());
    }
}

/// As [`words`], for tool arguments.
fn plain_words(out: &mut BytesMut, first: u32, count: u32) {
    for token in first..first.saturating_add(count) {
        out.put_slice(WORDS[token as usize % PLAIN_WORDS].as_bytes());
    }
}

/// vLLM's name for its times of a request, and these; its TTFT begins behind the queue.
fn vllm_metrics(reply: &Reply, out: &mut BytesMut) {
    let (Reports::Vllm, Some(times)) = (reply.reports, reply.times) else { return };
    let millis = |span: Nanos| span.seconds() * 1e3;
    let tokens = f64::from(reply.output_tokens);
    put(
        out,
        format_args!(
            r#","metrics":{{"time_to_first_token_ms":{:.6},"queue_time_ms":{:.6},"generation_time_ms":{:.6},"mean_itl_ms":{:.6},"tokens_per_second":{:.3}}}"#,
            millis(times.prompt),
            millis(times.queue),
            millis(times.completion),
            millis(times.completion) / (tokens - 1.0).max(1.0),
            tokens / (times.prompt + times.completion).seconds().max(1e-9),
        ),
    );
}

/// Formats into memory, which does not fail.
fn put(out: &mut BytesMut, value: impl std::fmt::Display) {
    use std::fmt::Write;
    let _ = write!(out, "{value}");
}

#[cfg(test)]
mod tests;
