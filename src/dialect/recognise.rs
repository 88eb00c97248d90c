//! Path, method and headers → endpoint and dialect: the one table of all dialects.
//!
//! Providers put prefixes of their own before the path, so it is the end that counts.

use http::{
    Method,
    header::{HeaderName, UPGRADE},
    request::Parts,
};

use super::{Dialect, Endpoint};

/// What a request was recognised as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// What it is for.
    pub endpoint: Endpoint,
    /// Its wire protocol.
    pub dialect: Dialect,
}

/// One row: a request whose path matches is for this.
struct Row {
    path: Path,
    endpoint: Endpoint,
    dialect: Dialect,
    verb: Verb,
}

enum Path {
    /// The path ends with this.
    Ends(&'static str),
    /// It has these parts, in this order, with something between them.
    Has(&'static [&'static str]),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Post,
    Get,
    Any,
}

use self::{
    Path::{Ends, Has},
    Verb::{Any, Get, Post},
};

const fn row(path: Path, verb: Verb, endpoint: Endpoint, dialect: Dialect) -> Row {
    Row { path, endpoint, dialect, verb }
}

/// The first row that fits holds.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row(Ends("/chat/completions"), Post, Endpoint::Chat, Dialect::OpenAiChat),
    row(Has(&["/chat/completions/"]), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/completions"), Post, Endpoint::Completions, Dialect::OpenAiChat),
    row(Ends("/responses"), Post, Endpoint::Responses, Dialect::OpenAiResponses),
    row(Has(&["/responses/"]), Get, Endpoint::Responses, Dialect::OpenAiResponses),
    row(Has(&["/responses/"]), Any, Endpoint::Responses, Dialect::Other),
    row(Has(&["/threads/"]), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/messages"), Post, Endpoint::Messages, Dialect::Anthropic),
    row(Ends("/messages/count_tokens"), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/complete"), Post, Endpoint::Completions, Dialect::Anthropic),
    row(Has(&["/publishers/anthropic/models/", ":streamRawPredict"]), Post, Endpoint::Messages, Dialect::Anthropic),
    row(Has(&["/publishers/anthropic/models/", ":rawPredict"]), Post, Endpoint::Messages, Dialect::Anthropic),
    row(Has(&["/models/", ":streamGenerateContent"]), Post, Endpoint::Generate, Dialect::Other),
    row(Has(&["/models/", ":generateContent"]), Post, Endpoint::Generate, Dialect::Other),
    row(Has(&["/models/", ":embedContent"]), Post, Endpoint::Embeddings, Dialect::Other),
    row(Has(&["/models/", ":batchEmbedContents"]), Post, Endpoint::Embeddings, Dialect::Other),
    row(Ends("/interactions"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("GenerativeService.BidiGenerateContent"), Get, Endpoint::Realtime, Dialect::Other),
    row(Ends("/realtime"), Any, Endpoint::Realtime, Dialect::Other),
    row(Has(&["/model/", "/converse"]), Post, Endpoint::Chat, Dialect::Other),
    row(Has(&["/model/", "/invoke"]), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/chat"), Post, Endpoint::Chat, Dialect::Other),
    row(Has(&["/services/aigc/", "/generation"]), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/generate"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/generate_stream"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/generation"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/generation_stream"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/text_stream"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/completion"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/infill"), Post, Endpoint::Generate, Dialect::Other),
    row(Ends("/embeddings"), Post, Endpoint::Embeddings, Dialect::Other),
    row(Ends("/embed"), Post, Endpoint::Embeddings, Dialect::Other),
    row(Ends("/rerank"), Post, Endpoint::Rerank, Dialect::Other),
    row(Ends("/reranking"), Post, Endpoint::Rerank, Dialect::Other),
    row(Ends("/images/generations"), Post, Endpoint::Images, Dialect::Other),
    row(Ends("/images/edits"), Post, Endpoint::Images, Dialect::Other),
    row(Ends("/images/variations"), Post, Endpoint::Images, Dialect::Other),
    row(Ends("/audio/speech"), Post, Endpoint::Audio, Dialect::Other),
    row(Ends("/audio/transcriptions"), Post, Endpoint::Audio, Dialect::Other),
    row(Ends("/audio/translations"), Post, Endpoint::Audio, Dialect::Other),
    row(Ends("/batches"), Any, Endpoint::Batch, Dialect::Other),
    row(Has(&["/batches/"]), Any, Endpoint::Batch, Dialect::Other),
    row(Ends("/files"), Any, Endpoint::Batch, Dialect::Other),
    row(Has(&["/files/"]), Any, Endpoint::Batch, Dialect::Other),
    row(Ends("/models"), Get, Endpoint::Models, Dialect::Other),
    row(Has(&["/models/"]), Get, Endpoint::Models, Dialect::Other),
    row(Ends("/api/tags"), Get, Endpoint::Models, Dialect::Other),
];

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Recognises a request by its method and the end of its path. `provider` is the upstream's configured hint: of one that
/// speaks Anthropic alone (`anthropic`) `/chat` and `/completions` mean no other.
pub fn recognise(parts: &Parts, provider: Option<&str>) -> Recognised {
    let path = parts.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    let fits = |row: &&Row| row.verb.fits(&parts.method) && row.path.fits(path);
    let mut recognised =
        ROWS.iter().find(fits).map_or(Recognised { endpoint: Endpoint::Other, dialect: Dialect::Other }, |row| {
            Recognised { endpoint: row.endpoint, dialect: row.dialect }
        });
    if parts.headers.contains_key(UPGRADE) && parts.method == Method::GET && path.ends_with("/responses") {
        recognised.endpoint = Endpoint::Realtime;
    }
    if parts.headers.contains_key(ANTHROPIC_VERSION) || provider == Some("anthropic") {
        recognised.dialect = anthropic(recognised);
    }
    recognised
}

/// A request that says it speaks Anthropic: nothing that is another dialect's by its path is taken from that one.
const fn anthropic(recognised: Recognised) -> Dialect {
    match recognised.endpoint {
        Endpoint::Messages | Endpoint::Completions => Dialect::Anthropic,
        _ => recognised.dialect,
    }
}

impl Path {
    fn fits(&self, path: &str) -> bool {
        match self {
            Ends(end) => path.ends_with(end),
            Has(parts) => {
                let mut rest = path;
                parts.iter().all(|part| {
                    let found = rest.find(part);
                    if let Some(at) = found {
                        rest = &rest[at + part.len()..];
                    }
                    found.is_some()
                })
            }
        }
    }
}

impl Verb {
    fn fits(self, method: &Method) -> bool {
        match self {
            Post => method == Method::POST,
            Get => method == Method::GET,
            Any => true,
        }
    }
}
