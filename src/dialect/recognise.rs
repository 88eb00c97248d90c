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
    row(Ends(":streamGenerateContent"), Post, Endpoint::Generate, Dialect::Gemini),
    row(Ends(":generateContent"), Post, Endpoint::Generate, Dialect::Gemini),
    row(Has(&["/models/", ":embedContent"]), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Has(&["/models/", ":batchEmbedContents"]), Post, Endpoint::Embeddings, Dialect::Plain),
    row(Ends("/interactions"), Post, Endpoint::Generate, Dialect::GeminiInteractions),
    row(Ends("GenerativeService.BidiGenerateContent"), Get, Endpoint::Realtime, Dialect::GeminiLive),
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
    row(Ends("/chat"), Post, Endpoint::Chat, Dialect::Other),
    row(Has(&["/services/aigc/", "/generation"]), Post, Endpoint::Generate, Dialect::DashScope),
    row(Has(&["/v2/models/", "/generate"]), Post, Endpoint::Generate, Dialect::Triton),
    // SGLang's has this path, too: the body tells.
    row(Ends("/generate"), Post, Endpoint::Generate, Dialect::Tgi),
    row(Ends("/generate_stream"), Post, Endpoint::Generate, Dialect::Tgi),
    row(Ends("/generation"), Post, Endpoint::Generate, Dialect::Watsonx),
    row(Ends("/generation_stream"), Post, Endpoint::Generate, Dialect::Watsonx),
    row(Ends("/text_stream"), Post, Endpoint::Generate, Dialect::Watsonx),
    row(Ends("/completion"), Post, Endpoint::Generate, Dialect::LlamaCpp),
    row(Ends("/infill"), Post, Endpoint::Generate, Dialect::LlamaCpp),
    row(Has(&["/v1/streams/"]), Get, Endpoint::Generate, Dialect::Replicate),
    row(Ends("/embeddings"), Post, Endpoint::Embeddings, Dialect::Plain),
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
];

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Recognises a request by its method and the end of its path. `provider` is the upstream's configured hint: what is sent
/// to `anthropic` speaks no other dialect.
pub fn recognise(parts: &Parts, provider: Option<&str>) -> Recognised {
    let path = parts.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    let fits = |row: &&Row| row.verb.fits(&parts.method) && row.path.fits(path);
    let mut recognised =
        ROWS.iter().find(fits).map_or(Recognised { endpoint: Endpoint::Other, dialect: Dialect::Other }, |row| {
            Recognised { endpoint: row.endpoint, dialect: row.dialect }
        });
    if parts.headers.contains_key(UPGRADE) && parts.method == Method::GET && path.ends_with("/responses") {
        recognised = Recognised { endpoint: Endpoint::Responses, dialect: Dialect::OpenAiResponses };
    }
    if parts.headers.contains_key(ANTHROPIC_VERSION) || provider == Some("anthropic") {
        recognised.dialect = anthropic(recognised);
    }
    recognised
}

/// The dialect of a request that says it speaks Anthropic's: chat completions and responses are still what they are.
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
            ("/api/v1/services/aigc/text-generation/generation", Endpoint::Generate, Dialect::DashScope),
            ("/v1beta/interactions", Endpoint::Generate, Dialect::GeminiInteractions),
            ("/v1beta/models/e:batchEmbedContents", Endpoint::Embeddings, Dialect::Plain),
            ("/v1/embeddings", Endpoint::Embeddings, Dialect::Plain),
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
        assert_recognised("GET", "/v1/streams/s1", Endpoint::Generate, Dialect::Replicate);
        for (method, path, endpoint) in [
            ("POST", "/v1/realtime", Endpoint::Realtime),
            ("GET", "/v1/models", Endpoint::Models),
            ("GET", "/v1/models/m", Endpoint::Models),
            ("POST", "/v1/messages/batches", Endpoint::Batch),
            ("GET", "/v1/files/f/content", Endpoint::Batch),
            ("POST", "/v1/messages/count_tokens", Endpoint::Other),
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
    fn headers_and_the_provider_decide_where_the_path_does_not() {
        let upgrade = Request::get("/v1/responses").header("upgrade", "websocket").body(()).unwrap().into_parts().0;
        let socket = Recognised { endpoint: Endpoint::Responses, dialect: Dialect::OpenAiResponses };
        assert_eq!(recognise(&upgrade, None), socket);
        let legacy = Request::post("/v1/completions").body(()).unwrap().into_parts().0;
        assert_eq!(recognise(&legacy, Some("anthropic")).dialect, Dialect::Anthropic);
        assert_eq!(recognise(&legacy, Some("openai")).dialect, Dialect::OpenAiChat);
    }
}
