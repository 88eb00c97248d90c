//! Provider dialects: what a request asks for, and which events of a reply carry output, usage and the end.
//!
//! Pure functions of bytes. A dialect is one file with a reader, one row in [`recognise()`], one folder of fixtures.
//! Framers ([`crate::framing`]) cut the body into pieces of events, the reader says what each event was ([`Signal`])
//! and keeps what the whole exchange said ([`Facts`]). [`observer::Observer`] joins the two for one response.

mod anthropic;
mod bedrock_converse;
mod cohere;
mod gemini;
pub mod observer;
mod ollama;
mod openai_chat;
mod openai_responses;
mod reader;
pub mod recognise;
mod reply;
pub mod request;
mod tgi;
pub mod usage;

use std::ops::{BitOr, BitOrAssign};

pub use self::{
    observer::Observer,
    recognise::{Recognised, recognise},
    request::{RequestFacts, RequestScan},
    usage::Usage,
};

/// The wire protocol of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// OpenAI chat completions and the many compatible ones.
    OpenAiChat,
    /// OpenAI Responses over SSE.
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Ollama's own API.
    Ollama,
    /// Google's `generateContent`, of the Gemini API and of Vertex.
    Gemini,
    /// Cohere's chat, version 2.
    Cohere,
    /// Text Generation Inference's own stream.
    Tgi,
    /// Amazon Bedrock's Converse.
    BedrockConverse,
    /// Any other: passed and timed by bytes.
    Other,
}

impl Dialect {
    /// Its name in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai_chat",
            Self::OpenAiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
            Self::Gemini => "gemini",
            Self::Cohere => "cohere",
            Self::Tgi => "tgi",
            Self::BedrockConverse => "bedrock_converse",
            Self::Other => "other",
        }
    }
}

/// What a request is for: a closed set, fit to be a label.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum Endpoint {
    Chat,
    Completions,
    Responses,
    Messages,
    Generate,
    Realtime,
    Embeddings,
    Rerank,
    Images,
    Audio,
    Models,
    Batch,
    Tunnel,
    Other,
}

impl Endpoint {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Generate => "generate",
            Self::Realtime => "realtime",
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Images => "images",
            Self::Audio => "audio",
            Self::Models => "models",
            Self::Batch => "batch",
            Self::Tunnel => "tunnel",
            Self::Other => "other",
        }
    }
}

/// The kinds of generated content in one event: a small set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kinds(u8);

impl Kinds {
    /// No generated content.
    pub const NONE: Self = Self(0);
    /// Visible, redacted or summarised thinking; planning and compaction text.
    pub const REASONING: Self = Self(1);
    /// Answer or refusal text, audio or its transcript, image data.
    pub const ANSWER: Self = Self(2);
    /// A tool's name or arguments, generated code.
    pub const TOOL: Self = Self(4);

    /// Nothing was generated.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `kinds` are in this set.
    pub const fn contains(self, kinds: Self) -> bool {
        self.0 & kinds.0 == kinds.0
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Kinds {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What one event said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Signal {
    /// The generated content in it; empty for every other event.
    pub output: Kinds,
    /// It is the dialect's own end marker.
    pub end: bool,
    /// It reports an error inside a 2xx stream.
    pub error: bool,
}

/// What a whole reply said, as far as it was read. Unknown stays absent.
#[derive(Clone, Default, Debug)]
pub struct Facts {
    /// The model that served it.
    pub response_model: Option<String>,
    /// Finish reasons in the order they came, one per choice or per part the dialect splits them in.
    pub finish_reasons: Vec<String>,
    /// Token counts, the dialect's arithmetic done.
    pub usage: Usage,
    /// The dialect's own end was seen (of a plain document: its last bracket).
    pub ended: bool,
    /// An error inside the reply: its type or code (`error` if it has neither), never its message. Also set by errors
    /// that are no event: a field `error`, a bare object between events.
    pub error: Option<String>,
    /// More than one choice was seen.
    pub multi_choice: bool,
    /// A summary of the reasoning was seen, not the reasoning itself.
    pub summarised_reasoning: bool,
}

impl Facts {
    /// Whether a clean end of the transport is a complete reply: the dialect's end or a finish reason was seen.
    pub const fn finished(&self) -> bool {
        self.ended || !self.finish_reasons.is_empty()
    }
}

/// Why an observer stopped reading.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObserverOff {
    /// A bound was reached: a document's nesting, a compressed body's window or growth.
    Overflow,
    /// The body's compression can't be undone: of an unread kind, several at once, or corrupt.
    Encoding,
    /// Framing was lost, or three unreadable events came in a row.
    Malformed,
    /// A stream of no known dialect.
    UnknownDialect,
}

impl ObserverOff {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Encoding => "encoding",
            Self::Malformed => "malformed",
            Self::UnknownDialect => "unknown_dialect",
        }
    }
}
