//! Path, method and headers → endpoint and dialect: the one table of all dialects.
//!
//! Providers put prefixes of their own before the path, so it is the end that counts.

use http::{
    Method,
    header::{ACCEPT, HeaderName, HeaderValue, UPGRADE},
    request::Parts,
};

use super::{Dialect, Endpoint};
use crate::framing::find;

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
    /// A `GET` that asks for another protocol: a WebSocket.
    Upgrade,
    Any,
}

use self::{
    Path::{Ends, Has},
    Verb::{Any, Get, Post, Upgrade},
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
    row(Ends("/responses/compact"), Post, Endpoint::Responses, Dialect::OpenAiResponses),
    row(Ends("/responses"), Upgrade, Endpoint::Responses, Dialect::OpenAiResponses),
    row(Has(&["/responses/"]), Get, Endpoint::Responses, Dialect::OpenAiResponses),
    row(Has(&["/responses/"]), Any, Endpoint::Responses, Dialect::Other),
    row(Has(&["/threads/"]), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/messages"), Post, Endpoint::Messages, Dialect::Anthropic),
    // What counts or splits tokens generates none, whoever is asked.
    row(Ends("/count_tokens"), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/count-tokens"), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/count-tokens:rawPredict"), Any, Endpoint::Other, Dialect::Other),
    row(Ends(":countTokens"), Any, Endpoint::Other, Dialect::Other),
    row(Ends(":computeTokens"), Any, Endpoint::Other, Dialect::Other),
    row(Ends("tokenize"), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/tokenization"), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/apply-template"), Any, Endpoint::Other, Dialect::Other),
    row(Ends("/complete"), Post, Endpoint::Completions, Dialect::Anthropic),
    row(Has(&["/publishers/anthropic/models/", ":streamRawPredict"]), Post, Endpoint::Messages, Dialect::Anthropic),
    row(Has(&["/publishers/anthropic/models/", ":rawPredict"]), Post, Endpoint::Messages, Dialect::Anthropic),
    // Mistral's and others' on Vertex are OpenAI's.
    row(Has(&["/publishers/", "/models/", ":streamRawPredict"]), Post, Endpoint::Chat, Dialect::OpenAiChat),
    row(Has(&["/publishers/", "/models/", ":rawPredict"]), Post, Endpoint::Chat, Dialect::OpenAiChat),
    row(Ends(":streamGenerateContent"), Post, Endpoint::Generate, Dialect::Gemini),
    row(Ends(":generateContent"), Post, Endpoint::Generate, Dialect::Gemini),
    row(Has(&["/models/", "embedding", ":predict"]), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Has(&["/publishers/", ":predict"]), Post, Endpoint::Other, Dialect::Other),
    row(Ends(":batchGenerateContent"), Post, Endpoint::Batch, Dialect::Other),
    row(Has(&["/models/", ":embedContent"]), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Has(&["/models/", ":batchEmbedContents"]), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Ends("/interactions"), Post, Endpoint::Generate, Dialect::GeminiInteractions),
    row(Has(&["/interactions/"]), Get, Endpoint::Generate, Dialect::GeminiInteractions),
    row(Ends("BidiGenerateContent"), Get, Endpoint::Realtime, Dialect::GeminiLive),
    row(Ends("BidiGenerateContentConstrained"), Get, Endpoint::Realtime, Dialect::GeminiLive),
    row(Ends("/realtime"), Get, Endpoint::Realtime, Dialect::Realtime),
    row(Ends("/realtime"), Any, Endpoint::Realtime, Dialect::Other),
    row(Has(&["/model/", "/converse"]), Post, Endpoint::Chat, Dialect::BedrockConverse),
    row(Has(&["/model/", "/invoke"]), Post, Endpoint::Generate, Dialect::BedrockInvoke),
    row(Ends("/api/chat"), Post, Endpoint::Chat, Dialect::Ollama),
    row(Ends("/api/generate"), Post, Endpoint::Generate, Dialect::Ollama),
    row(Ends("/v2/chat"), Post, Endpoint::Chat, Dialect::Cohere),
    row(Ends("/api/v1/chat"), Post, Endpoint::Chat, Dialect::LmStudio),
    // Writer's chat has this path, too: the body tells.
    row(Ends("/v1/chat"), Post, Endpoint::Chat, Dialect::CohereV1),
    row(Ends("/text/chat"), Post, Endpoint::Chat, Dialect::OpenAiChat),
    row(Ends("/text/chat_stream"), Post, Endpoint::Chat, Dialect::OpenAiChat),
    row(Ends("/chat"), Post, Endpoint::Chat, Dialect::Other),
    row(Has(&["/services/aigc/", "/generation"]), Post, Endpoint::Generate, Dialect::DashScope),
    row(Has(&["/services/embeddings/"]), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Has(&["/services/rerank/"]), Post, Endpoint::Rerank, Dialect::Plain),
    row(Has(&["/apps/", "/completion"]), Post, Endpoint::Generate, Dialect::DashScope),
    row(Has(&["/v2/models/", "/generate"]), Post, Endpoint::Generate, Dialect::Triton),
    // SGLang's has this path, too, and Cohere's older completions: the body tells.
    row(Ends("/generate"), Post, Endpoint::Generate, Dialect::Tgi),
    row(Ends("/generate_stream"), Post, Endpoint::Generate, Dialect::Tgi),
    row(Ends("/generation"), Post, Endpoint::Generate, Dialect::Watsonx),
    row(Ends("/generation_stream"), Post, Endpoint::Generate, Dialect::Watsonx),
    row(Ends("/text_stream"), Post, Endpoint::Generate, Dialect::Watsonx),
    row(Ends("/completion"), Post, Endpoint::Generate, Dialect::LlamaCpp),
    row(Ends("/infill"), Post, Endpoint::Generate, Dialect::LlamaCpp),
    row(Has(&["/v1/streams/"]), Get, Endpoint::Generate, Dialect::Replicate),
    row(Ends("/embeddings"), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Ends("/embedding"), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Ends("/embed"), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Ends("/rerank"), Post, Endpoint::Rerank, Dialect::Plain),
    row(Ends("/reranking"), Post, Endpoint::Rerank, Dialect::Plain),
    row(Ends("/images/generations"), Post, Endpoint::Images, Dialect::OpenAiMedia),
    row(Ends("/images/edits"), Post, Endpoint::Images, Dialect::OpenAiMedia),
    row(Ends("/images/variations"), Post, Endpoint::Images, Dialect::OpenAiMedia),
    row(Ends("/audio/speech"), Post, Endpoint::Audio, Dialect::OpenAiMedia),
    row(Ends("/audio/transcriptions"), Post, Endpoint::Audio, Dialect::OpenAiMedia),
    row(Ends("/audio/translations"), Post, Endpoint::Audio, Dialect::OpenAiMedia),
    row(Ends("/batches"), Any, Endpoint::Batch, Dialect::Other),
    row(Has(&["/batches/"]), Any, Endpoint::Batch, Dialect::Other),
    row(Ends("/files"), Any, Endpoint::Batch, Dialect::Other),
    row(Has(&["/files/"]), Any, Endpoint::Batch, Dialect::Other),
    row(Ends("/models"), Get, Endpoint::Models, Dialect::Other),
    row(Has(&["/models/"]), Get, Endpoint::Models, Dialect::Other),
    row(Ends("/api/tags"), Get, Endpoint::Models, Dialect::Other),
    row(Ends("/api/show"), Post, Endpoint::Models, Dialect::Other),
    row(Ends("/api/pull"), Post, Endpoint::Models, Dialect::Other),
    row(Ends("/api/push"), Post, Endpoint::Models, Dialect::Other),
    row(Ends("/api/create"), Post, Endpoint::Models, Dialect::Other),
    row(Ends("/api/copy"), Post, Endpoint::Models, Dialect::Other),
];

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Recognises a request by its method and the end of its path. `provider` is the upstream's configured hint: the dialect
/// spoken there where the path does not tell.
///
/// Where several dialects have one path, [`super::RequestScan`] tells them apart by the body.
pub fn recognise(parts: &Parts, provider: Option<Dialect>) -> Recognised {
    let path = parts.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    let upgrades = parts.method == Method::GET && parts.headers.contains_key(UPGRADE);
    let fits = |row: &&Row| row.verb.fits(&parts.method, upgrades) && row.path.fits(path);
    let row = ROWS.iter().find(fits);
    let mut recognised = row.map_or(Recognised { endpoint: Endpoint::Other, dialect: Dialect::Other }, |row| {
        Recognised { endpoint: row.endpoint, dialect: row.dialect }
    });
    if recognised.endpoint == Endpoint::Batch && find(path, "/v1/files/").is_some() && asks_for_events(parts) {
        return Recognised { endpoint: Endpoint::Generate, dialect: Dialect::Replicate };
    }
    match provider {
        Some(dialect) if row.is_none() && dialect.is_asked_by(&parts.method, upgrades) => {
            return Recognised { endpoint: dialect.endpoint(), dialect };
        }
        Some(dialect) if shares_path(recognised, path, dialect) => recognised.dialect = dialect,
        _ => {}
    }
    if parts.headers.contains_key(ANTHROPIC_VERSION) || provider == Some(Dialect::Anthropic) {
        recognised.dialect = anthropic(recognised);
    }
    recognised
}

/// Whether a file is read as a stream of events: Replicate's streams may be files.
fn asks_for_events(parts: &Parts) -> bool {
    let events = |kinds: &HeaderValue| kinds.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream");
    parts.method == Method::GET && parts.headers.get(ACCEPT).is_some_and(events)
}

/// Whether a path that several dialects have is this one's, too.
fn shares_path(recognised: Recognised, path: &str, dialect: Dialect) -> bool {
    match (recognised.endpoint, recognised.dialect) {
        (Endpoint::Chat, Dialect::Other) => dialect.endpoint() == Endpoint::Chat,
        (Endpoint::Chat, Dialect::CohereV1) => dialect == Dialect::OpenAiChat,
        // Without a version it is llama.cpp's own.
        (Endpoint::Completions, Dialect::OpenAiChat) => dialect == Dialect::LlamaCpp && path == "/completions",
        (_, Dialect::Tgi) => path.ends_with("/generate") && matches!(dialect, Dialect::Sglang | Dialect::Triton),
        _ => false,
    }
}

/// The dialect of a request that says it speaks Anthropic's: chat completions and responses are still what they are.
const fn anthropic(recognised: Recognised) -> Dialect {
    match recognised.endpoint {
        Endpoint::Messages | Endpoint::Completions => Dialect::Anthropic,
        _ => recognised.dialect,
    }
}

impl Dialect {
    /// What is asked for in this dialect by a path that is not known; [`Endpoint::Other`] if it may be several things.
    pub const fn endpoint(self) -> Endpoint {
        match self {
            Self::OpenAiChat
            | Self::Ollama
            | Self::Cohere
            | Self::CohereV1
            | Self::LmStudio
            | Self::BedrockConverse => Endpoint::Chat,
            Self::OpenAiResponses => Endpoint::Responses,
            Self::Anthropic => Endpoint::Messages,
            Self::Realtime | Self::GeminiLive => Endpoint::Realtime,
            Self::Gemini
            | Self::GeminiInteractions
            | Self::Tgi
            | Self::Sglang
            | Self::LlamaCpp
            | Self::Triton
            | Self::BedrockInvoke
            | Self::DashScope
            | Self::Watsonx
            | Self::Replicate => Endpoint::Generate,
            Self::OpenAiMedia | Self::Plain | Self::Other => Endpoint::Other,
        }
    }

    /// Whether a request of this method may ask for output: by a `POST`, of dialects over WebSockets by an upgrade.
    fn is_asked_by(self, method: &Method, upgrades: bool) -> bool {
        if self.endpoint() == Endpoint::Realtime { upgrades } else { method == Method::POST }
    }
}

impl Path {
    fn fits(&self, path: &str) -> bool {
        match self {
            Ends(end) => path.ends_with(end),
            Has(parts) => {
                let mut rest = path;
                parts.iter().all(|part| {
                    let found = find(rest, part);
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
    fn fits(self, method: &Method, upgrades: bool) -> bool {
        match self {
            Post => method == Method::POST,
            Get => method == Method::GET,
            Upgrade => upgrades,
            Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[track_caller]
    fn assert_recognised(method: &str, path: &str, endpoint: Endpoint, dialect: Dialect) {
        let parts = Request::builder().method(method).uri(path).body(()).unwrap().into_parts().0;
        assert_eq!(recognise(&parts, None), Recognised { endpoint, dialect }, "{method} {path}");
    }

    #[test]
    fn the_three_dialects_are_known_behind_any_prefix() {
        for prefix in ["", "/v1", "/openai/v1", "/api/v1", "/inference/v1", "/compatible-mode/v1", "/team-7/eu"] {
            let path = |end: &str| format!("{prefix}{end}");
            assert_recognised("POST", &path("/chat/completions"), Endpoint::Chat, Dialect::OpenAiChat);
            assert_recognised("POST", &path("/completions"), Endpoint::Completions, Dialect::OpenAiChat);
            assert_recognised("POST", &path("/responses"), Endpoint::Responses, Dialect::OpenAiResponses);
            assert_recognised("POST", &path("/messages"), Endpoint::Messages, Dialect::Anthropic);
        }
        let azure = "/openai/deployments/d/chat/completions?api-version=2024-10-21";
        assert_recognised("POST", azure, Endpoint::Chat, Dialect::OpenAiChat);
        assert_recognised("POST", "/v1/chat/completions/", Endpoint::Chat, Dialect::OpenAiChat);
        assert_recognised("GET", "/v1/responses/r1?stream=true", Endpoint::Responses, Dialect::OpenAiResponses);
        assert_recognised("POST", "/v1/responses/compact", Endpoint::Responses, Dialect::OpenAiResponses);
        assert_recognised("POST", "/v1/responses/input_tokens", Endpoint::Responses, Dialect::Other);
        assert_recognised("POST", "/v1/complete", Endpoint::Completions, Dialect::Anthropic);
        let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict";
        assert_recognised("POST", vertex, Endpoint::Messages, Dialect::Anthropic);
    }

    #[test]
    fn native_apis_are_known_by_their_paths() {
        for (path, endpoint, dialect) in [
            ("/api/chat", Endpoint::Chat, Dialect::Ollama),
            ("/ollama/api/generate", Endpoint::Generate, Dialect::Ollama),
            ("/v1beta/models/gemini:streamGenerateContent?alt=sse", Endpoint::Generate, Dialect::Gemini),
            (
                "/v1/projects/p/locations/l/publishers/google/models/g:generateContent",
                Endpoint::Generate,
                Dialect::Gemini,
            ),
            ("/v1/projects/p/locations/l/endpoints/7:generateContent", Endpoint::Generate, Dialect::Gemini),
            ("/model/anthropic.claude%3A0/converse-stream", Endpoint::Chat, Dialect::BedrockConverse),
            ("/v2/chat", Endpoint::Chat, Dialect::Cohere),
            ("/generate_stream", Endpoint::Generate, Dialect::Tgi),
            ("/generate", Endpoint::Generate, Dialect::Tgi),
            ("/v2/models/m/generate_stream", Endpoint::Generate, Dialect::Triton),
            ("/api/v1/chat", Endpoint::Chat, Dialect::LmStudio),
            ("/v1/chat", Endpoint::Chat, Dialect::CohereV1),
            ("/completion", Endpoint::Generate, Dialect::LlamaCpp),
            ("/model/amazon.nova/invoke", Endpoint::Generate, Dialect::BedrockInvoke),
            ("/ml/v1-beta/generation/text_stream?version=1", Endpoint::Generate, Dialect::Watsonx),
            ("/ml/v1/text/generation", Endpoint::Generate, Dialect::Watsonx),
            ("/ml/v1/text/chat?version=1", Endpoint::Chat, Dialect::OpenAiChat),
            ("/ml/v1/deployments/d/text/chat_stream", Endpoint::Chat, Dialect::OpenAiChat),
            ("/api/v1/services/aigc/text-generation/generation", Endpoint::Generate, Dialect::DashScope),
            ("/api/v1/apps/a/completion", Endpoint::Generate, Dialect::DashScope),
            ("/v1beta/interactions", Endpoint::Generate, Dialect::GeminiInteractions),
            ("/v1internal:streamGenerateContent?alt=sse", Endpoint::Generate, Dialect::Gemini),
            (
                "/v1/projects/p/locations/l/publishers/mistralai/models/m@1:streamRawPredict",
                Endpoint::Chat,
                Dialect::OpenAiChat,
            ),
            (
                "/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict",
                Endpoint::Chat,
                Dialect::OpenAiChat,
            ),
            ("/v1beta/models/e:batchEmbedContents", Endpoint::Embeddings, Dialect::Plain),
            ("/v1/embeddings", Endpoint::Embeddings, Dialect::Plain),
            ("/embedding", Endpoint::Embeddings, Dialect::Plain),
            (
                "/v1/projects/p/locations/l/publishers/google/models/text-embedding-5:predict",
                Endpoint::Embeddings,
                Dialect::Plain,
            ),
            ("/api/v1/services/embeddings/text-embedding/text-embedding", Endpoint::Embeddings, Dialect::Plain),
            ("/api/v1/services/rerank/text-rerank/text-rerank", Endpoint::Rerank, Dialect::Plain),
            ("/v2/rerank", Endpoint::Rerank, Dialect::Plain),
            ("/v1/images/generations", Endpoint::Images, Dialect::OpenAiMedia),
            ("/v1/audio/speech", Endpoint::Audio, Dialect::OpenAiMedia),
        ] {
            assert_recognised("POST", path, endpoint, dialect);
        }
    }

    #[test]
    fn other_requests_have_an_endpoint_where_they_have_one() {
        assert_recognised("GET", "/v1/realtime?model=x", Endpoint::Realtime, Dialect::Realtime);
        for service in [
            "google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
            "google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContentConstrained",
            "google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent",
        ] {
            assert_recognised("GET", &format!("/ws/{service}?key=x"), Endpoint::Realtime, Dialect::GeminiLive);
        }
        assert_recognised("GET", "/v1/streams/s1", Endpoint::Generate, Dialect::Replicate);
        let replay = "/v1beta/interactions/i1?stream=true";
        assert_recognised("GET", replay, Endpoint::Generate, Dialect::GeminiInteractions);
        for (method, path, endpoint) in [
            ("POST", "/v1/realtime", Endpoint::Realtime),
            ("GET", "/v1/models", Endpoint::Models),
            ("GET", "/v1/models/m", Endpoint::Models),
            ("POST", "/v1/messages/batches", Endpoint::Batch),
            ("GET", "/v1/files/f/content", Endpoint::Batch),
            ("POST", "/v1/messages/count_tokens", Endpoint::Other),
            ("POST", "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict", Endpoint::Other),
            ("POST", "/v1beta/models/m:countTokens", Endpoint::Other),
            ("POST", "/model/m/count-tokens", Endpoint::Other),
            ("POST", "/v1/detokenize", Endpoint::Other),
            ("POST", "/v1/projects/p/locations/l/publishers/google/models/imagen-4:predict", Endpoint::Other),
            ("POST", "/v1beta/models/m:batchGenerateContent", Endpoint::Batch),
            ("POST", "/api/pull", Endpoint::Models),
            ("POST", "/v1/threads/t/messages", Endpoint::Other),
            ("GET", "/v1/chat/completions", Endpoint::Other),
            ("GET", "/v1/chat/completions/c1/messages", Endpoint::Other),
            ("GET", "/", Endpoint::Other),
            ("POST", "/v1/mychat/completionsx", Endpoint::Other),
        ] {
            assert_recognised(method, path, endpoint, Dialect::Other);
        }
    }

    #[test]
    fn a_file_that_is_asked_for_as_events_is_a_stream() {
        let asked = |method: &str, accept: &str| {
            let request = Request::builder().method(method).uri("/v1/files/bcwr-a").header("accept", accept);
            recognise(&request.body(()).unwrap().into_parts().0, None)
        };
        let stream = Recognised { endpoint: Endpoint::Generate, dialect: Dialect::Replicate };
        let file = Recognised { endpoint: Endpoint::Batch, dialect: Dialect::Other };
        assert_eq!(asked("GET", "text/event-stream"), stream);
        assert_eq!(asked("GET", "Text/Event-Stream, */*"), stream);
        assert_eq!(asked("GET", "application/octet-stream"), file);
        assert_eq!(asked("DELETE", "text/event-stream"), file);
    }

    #[test]
    fn headers_and_the_provider_decide_where_the_path_does_not() {
        let upgrade = Request::get("/v1/responses").header("upgrade", "websocket").body(()).unwrap().into_parts().0;
        let socket = Recognised { endpoint: Endpoint::Responses, dialect: Dialect::OpenAiResponses };
        assert_eq!(recognise(&upgrade, None), socket);
        let legacy = Request::post("/v1/completions").body(()).unwrap().into_parts().0;
        assert_eq!(recognise(&legacy, Some(Dialect::Anthropic)).dialect, Dialect::Anthropic);
        assert_eq!(recognise(&legacy, None).dialect, Dialect::OpenAiChat);
    }

    #[test]
    fn an_unknown_path_is_read_by_the_provider_s_dialect() {
        for dialect in Dialect::ALL {
            let post = |path: &str| {
                let parts = Request::post(path).body(()).unwrap().into_parts().0;
                recognise(&parts, Some(dialect))
            };
            let socket = dialect.endpoint() == Endpoint::Realtime;
            let own = Recognised { endpoint: dialect.endpoint(), dialect };
            let none = Recognised { endpoint: Endpoint::Other, dialect: Dialect::Other };
            for path in ["/", "/score", "/v1/projects/p/locations/l/endpoints/7:streamRawPredict"] {
                assert_eq!(post(path), if socket { none } else { own }, "{dialect:?} {path}");
            }
            let upgrade = Request::get("/ws").header("upgrade", "websocket").body(()).unwrap().into_parts().0;
            assert_eq!(recognise(&upgrade, Some(dialect)), if socket { own } else { none }, "{dialect:?}");
            let get = Request::get("/health").body(()).unwrap().into_parts().0;
            assert_eq!(recognise(&get, Some(dialect)), none, "{dialect:?}");
            // What the table knows stays.
            assert_eq!(post("/v1/chat/completions").dialect, Dialect::OpenAiChat, "{dialect:?}");
            assert_eq!(post("/v1/messages/count_tokens"), none, "{dialect:?}");
            assert_eq!(post("/v1/responses").dialect, Dialect::OpenAiResponses, "{dialect:?}");
        }
    }

    #[test]
    fn of_dialects_with_one_path_the_provider_names_its_own() {
        for (path, provider, dialect) in [
            ("/generate", Dialect::Sglang, Dialect::Sglang),
            ("/generate", Dialect::Triton, Dialect::Triton),
            ("/generate", Dialect::Anthropic, Dialect::Tgi),
            ("/completions", Dialect::LlamaCpp, Dialect::LlamaCpp),
            ("/v1/completions", Dialect::LlamaCpp, Dialect::OpenAiChat),
            ("/completions", Dialect::OpenAiChat, Dialect::OpenAiChat),
            ("/generate_stream", Dialect::Sglang, Dialect::Tgi),
            ("/v1/chat", Dialect::OpenAiChat, Dialect::OpenAiChat),
            ("/v1/chat", Dialect::Cohere, Dialect::CohereV1),
            ("/chat", Dialect::Cohere, Dialect::Cohere),
            ("/chat", Dialect::Gemini, Dialect::Other),
        ] {
            let parts = Request::post(path).body(()).unwrap().into_parts().0;
            assert_eq!(recognise(&parts, Some(provider)).dialect, dialect, "{path} {provider:?}");
        }
    }
}
