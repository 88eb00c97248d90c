//! Provider dialects: what a request asks for, and which events of a reply carry output, usage and the end.
//!
//! Pure functions of bytes. A dialect is one file with its rules (`rules.rs`), its name in [`Dialect`], one row in [`recognise()`], one
//! folder of fixtures (`tests/dialects`), and a row in `docs/dialects.md`.
//! Framers ([`crate::framing`]) cut the body into pieces of events, the reader says what each event was ([`Signal`])
//! and keeps what the whole exchange said ([`Facts`]). [`observer::Observer`] joins the two for one response.

mod anthropic;
pub mod ask_for_usage;
mod bedrock_converse;
mod bedrock_invoke;
mod cohere;
mod cohere_v1;
mod dashscope;
mod gemini;
mod gemini_interactions;
mod gemini_live;
mod headers;
pub mod limits;
mod llama_cpp;
mod lm_studio;
pub mod observer;
mod ollama;
mod openai_chat;
mod openai_media;
mod openai_responses;
mod other;
mod plain;
mod reader;
mod realtime;
pub mod recognise;
mod replicate;
mod reply;
pub mod reported;
pub mod request;
mod rules;
pub mod session;
mod sglang;
mod tgi;
mod triton;
pub mod usage;
mod watsonx;

use std::ops::{BitOr, BitOrAssign};

use self::rules::Rules;

pub use self::{
    ask_for_usage::{ask_for_usage, is_vouched_for, may_ask_for_usage},
    limits::RateLimit,
    observer::Observer,
    recognise::{Recognised, recognise},
    reported::Reported,
    request::{RequestFacts, RequestScan},
    usage::Usage,
};

/// The wire protocol of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// OpenAI chat and legacy completions, and the many compatible ones.
    OpenAiChat,
    /// OpenAI Responses, over SSE or a WebSocket.
    OpenAiResponses,
    /// OpenAI's speech, transcriptions and images.
    OpenAiMedia,
    /// OpenAI Realtime, over a WebSocket.
    Realtime,
    /// Anthropic Messages, also on Vertex.
    Anthropic,
    /// Ollama's own API.
    Ollama,
    /// Google's `generateContent`, of the Gemini API and of Vertex.
    Gemini,
    /// Google's Interactions.
    GeminiInteractions,
    /// Google's Live, over a WebSocket.
    GeminiLive,
    /// Cohere's chat, version 2.
    Cohere,
    /// Cohere's chat, version 1.
    CohereV1,
    /// Text Generation Inference's own API.
    Tgi,
    /// SGLang's own API.
    Sglang,
    /// llama.cpp's own API.
    LlamaCpp,
    /// LM Studio's own API.
    LmStudio,
    /// Triton's generate extension.
    Triton,
    /// Amazon Bedrock's Converse.
    BedrockConverse,
    /// Amazon Bedrock's InvokeModel, of any vendor.
    BedrockInvoke,
    /// DashScope's own API.
    DashScope,
    /// IBM watsonx's text generation.
    Watsonx,
    /// Replicate's streams.
    Replicate,
    /// One document with counts and no generated text: embeddings, rerank, batches.
    Plain,
    /// Any other: passed and timed by bytes.
    Other,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 23] = [
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::OpenAiMedia,
        Self::Realtime,
        Self::Anthropic,
        Self::Ollama,
        Self::Gemini,
        Self::GeminiInteractions,
        Self::GeminiLive,
        Self::Cohere,
        Self::CohereV1,
        Self::Tgi,
        Self::Sglang,
        Self::LlamaCpp,
        Self::LmStudio,
        Self::Triton,
        Self::BedrockConverse,
        Self::BedrockInvoke,
        Self::DashScope,
        Self::Watsonx,
        Self::Replicate,
        Self::Plain,
        Self::Other,
    ];

    /// Its name in records and in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai_chat",
            Self::OpenAiResponses => "openai_responses",
            Self::OpenAiMedia => "openai_media",
            Self::Realtime => "realtime",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
            Self::Gemini => "gemini",
            Self::GeminiInteractions => "gemini_interactions",
            Self::GeminiLive => "gemini_live",
            Self::Cohere => "cohere",
            Self::CohereV1 => "cohere_v1",
            Self::Tgi => "tgi",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llama_cpp",
            Self::LmStudio => "lm_studio",
            Self::Triton => "triton",
            Self::BedrockConverse => "bedrock_converse",
            Self::BedrockInvoke => "bedrock_invoke",
            Self::DashScope => "dashscope",
            Self::Watsonx => "watsonx",
            Self::Replicate => "replicate",
            Self::Plain => "plain",
            Self::Other => "other",
        }
    }

    /// The dialect of this name; absent if none has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.as_str() == name)
    }

    /// The fields that are asked for in its events and plain documents, as paths (`choices[].delta.content`). Everything
    /// else is passed over.
    pub fn fields(self) -> Vec<String> {
        self.rules().tree.paths()
    }

    /// How its events are read.
    fn rules(self) -> &'static Rules {
        match self {
            Self::OpenAiChat => &openai_chat::RULES,
            Self::OpenAiResponses => &openai_responses::RULES,
            Self::OpenAiMedia => &openai_media::RULES,
            Self::Realtime => &realtime::RULES,
            Self::Anthropic => &anthropic::RULES,
            Self::Ollama => &ollama::RULES,
            Self::Gemini => &gemini::RULES,
            Self::GeminiInteractions => &gemini_interactions::RULES,
            Self::GeminiLive => &gemini_live::RULES,
            Self::Cohere => &cohere::RULES,
            Self::CohereV1 => &cohere_v1::RULES,
            Self::Tgi => &tgi::RULES,
            Self::Sglang => &sglang::RULES,
            Self::LlamaCpp => &llama_cpp::RULES,
            Self::LmStudio => &lm_studio::RULES,
            Self::Triton => &triton::RULES,
            Self::BedrockConverse => &bedrock_converse::RULES,
            Self::BedrockInvoke => &bedrock_invoke::RULES,
            Self::DashScope => &dashscope::RULES,
            Self::Watsonx => &watsonx::RULES,
            Self::Replicate => &replicate::RULES,
            Self::Plain => &plain::RULES,
            Self::Other => &other::RULES,
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
    /// Audio itself, not its transcript. Always with [`Self::ANSWER`].
    pub const AUDIO: Self = Self(8);

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
    /// What the provider says of its own time.
    pub reported: Reported,
    /// An error inside the reply: its type or code (`error` if it has neither), never its message. Also set by errors
    /// that are no event: a field `error`, a bare object between events.
    pub error: Option<String>,
    /// More than one choice was seen.
    pub multi_choice: bool,
    /// A summary of the reasoning was seen, not the reasoning itself.
    pub summarised_reasoning: bool,
    /// The dialect has no end of its own: only the transport's end says that there is no more.
    pub endless: bool,
}

impl Facts {
    /// Whether a clean end of the transport is a complete reply: the dialect's end or a finish reason was seen, or there
    /// is none to be seen.
    pub const fn finished(&self) -> bool {
        self.ended || self.endless || !self.finish_reasons.is_empty()
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
