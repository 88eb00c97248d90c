//! A look at a request as it passes: which model, whether a stream is asked for, and which dialect it is if its path leaves
//! that open. The head says it, or the body: JSON, or a form with files in it.

use std::sync::{Arc, LazyLock};

use http::{
    Method,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
    request::Parts,
};

use super::{Dialect, Endpoint, Recognised, reply::name};
use crate::framing::{
    find,
    json::{Progress, Scanner, Tree, Value, Want},
    multipart, percent_decoded, split_once,
};

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestFacts {
    /// The model's name as the client wrote it (up to 256 bytes); absent if none was found.
    pub model: Option<Arc<str>>,
    /// Whether the client asked for a stream; absent if it did not say.
    pub stream: Option<bool>,
    /// The dialect that the body shows, where the path left it open; absent if the one of the path stands.
    pub dialect: Option<Dialect>,
}

/// Reads a request body in pieces, holding nothing but the fields it looks for. Bodies of any size are walked to where
/// all is known, to the end of their object or form or to their end, whichever is first.
#[derive(Debug)]
pub struct RequestScan {
    facts: RequestFacts,
    body: Body,
    /// What the head named holds against the body.
    told: Told,
    /// What a body means that does not say whether to stream.
    unsaid: Option<bool>,
    /// The keys of a JSON body that may name the model.
    model_keys: &'static [u8],
    /// Where the path leaves the dialect open: what the body's keys may say.
    open: Option<Open>,
    /// Which of the keys that tell the dialect were there.
    keys: u16,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    model: bool,
    stream: bool,
}

#[derive(Debug)]
enum Body {
    Json(Scanner),
    Form(multipart::Scanner),
    /// There is nothing to find in it.
    Opaque,
    Given,
}

/// A path that several dialects have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Open {
    /// `/generate`: TGI's, SGLang's or Triton's.
    Generate,
    /// `/v1/generate`: one of those, or Cohere's older completions.
    GenerateV1,
    /// `/v1/chat`: Cohere's or Writer's, which is OpenAI's.
    Chat,
    /// `/`: TGI's, or nothing known.
    Root,
}

const MODEL: u8 = 0;
const STREAM: u8 = 1;
const MODEL_ID: u8 = 2;
const AGENT: u8 = 3;
/// Keys that tell the dialect, each with its bit.
const KEYS: u8 = 8;
const MESSAGE: u16 = 1;
const MESSAGES: u16 = 1 << 1;
const INPUTS: u16 = 1 << 2;
const TEXT: u16 = 1 << 3;
const TEXT_INPUT: u16 = 1 << 4;
const INPUT_IDS: u16 = 1 << 5;
const SAMPLING_PARAMS: u16 = 1 << 6;
const PROMPT: u16 = 1 << 7;

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let fields = [("model", MODEL), ("stream", STREAM), ("model_id", MODEL_ID), ("agent", AGENT)];
    Tree::new(fields.map(|(key, field)| (key, field, Want::Value)))
});

/// The same with the keys that tell the dialect.
static OPEN_TREE: LazyLock<Tree> = LazyLock::new(|| {
    let keys = ["message", "messages", "inputs", "text", "text_input", "input_ids", "sampling_params", "prompt"];
    let keys = keys.into_iter().zip(KEYS..).map(|(key, field)| (key, field, Want::Whether));
    Tree::new([("model", MODEL, Want::Value), ("stream", STREAM, Want::Value)].into_iter().chain(keys))
});

/// The fields of a form that are looked for.
const FORM: &[&str] = &["model", "stream"];

impl RequestScan {
    /// A look at the body of this request. What the head already says (path, query, headers) is taken from there.
    pub fn new(recognised: Recognised, parts: &Parts) -> Self {
        let facts = told(recognised, parts);
        let told = Told { model: facts.model.is_some(), stream: facts.stream.is_some() };
        let open = Open::of(recognised, parts);
        Self {
            body: if told.model && told.stream && open.is_none() {
                Body::Opaque
            } else if is_json(parts) {
                Body::Json(Scanner::default())
            } else {
                form(recognised, parts).map_or(Body::Opaque, Body::Form)
            },
            told,
            unsaid: (recognised.dialect == Dialect::Ollama).then_some(true),
            model_keys: model_keys(recognised, parts),
            open,
            keys: 0,
            facts,
        }
    }

    /// Reads the next piece of the body. Gives the facts as soon as all are known, once.
    pub fn read(&mut self, piece: &[u8]) -> Option<RequestFacts> {
        let Self { facts, told, model_keys, keys, open, .. } = self;
        let over = match &mut self.body {
            Body::Json(scanner) => {
                let tree = if open.is_some() { &OPEN_TREE } else { &TREE };
                scanner.read(tree, piece, &mut |field, value| match (field, value) {
                    // They would have been given by now, had the piece ended here.
                    _ if facts.is_complete(*open) => {}
                    (MODEL | MODEL_ID | AGENT, value) if model_keys.contains(&field) && !told.model => {
                        facts.model = name(value).map(Arc::from).or(facts.model.take());
                    }
                    (STREAM, Value::Bool(stream)) if !told.stream => facts.stream = Some(stream),
                    (KEYS.., value) if value != Value::Null => *keys |= 1 << (field - KEYS),
                    _ => {}
                });
                !matches!(scanner.progress(), Progress::Blank | Progress::Open)
            }
            Body::Form(scanner) => {
                scanner.read(piece, &mut |field, value| match field {
                    _ if facts.is_complete(*open) => {}
                    0 if !told.model => facts.model = name(Value::Text(value)).map(Arc::from),
                    1 if !told.stream => facts.stream = flag(value),
                    _ => {}
                });
                scanner.progress() != multipart::Progress::Open
            }
            Body::Opaque | Body::Given => true,
        };
        if facts.is_complete(*open) || over { self.finish() } else { None }
    }

    /// The body has ended: what is known by now. Absent if the facts were given already.
    pub fn finish(&mut self) -> Option<RequestFacts> {
        let body = std::mem::replace(&mut self.body, Body::Given);
        if matches!(body, Body::Given) {
            return None;
        }
        let mut facts = std::mem::take(&mut self.facts);
        // Only a body that was read to its end is known not to say it.
        if matches!(body, Body::Json(scanner) if scanner.is_whole()) && facts.stream.is_none() {
            facts.stream = self.unsaid;
        }
        facts.dialect = self.open.and_then(|open| open.shown_by(self.keys));
        Some(facts)
    }
}

impl RequestFacts {
    /// Whether nothing more can be found.
    fn is_complete(&self, open: Option<Open>) -> bool {
        self.model.is_some() && self.stream.is_some() && open.is_none()
    }
}

impl Open {
    fn of(recognised: Recognised, parts: &Parts) -> Option<Self> {
        let path = parts.uri.path();
        match (recognised.endpoint, recognised.dialect) {
            (Endpoint::Generate, Dialect::Tgi) if path.ends_with("/v1/generate") => Some(Self::GenerateV1),
            (Endpoint::Generate, Dialect::Tgi) if path.ends_with("/generate") => Some(Self::Generate),
            (Endpoint::Chat, Dialect::CohereV1) => Some(Self::Chat),
            (Endpoint::Other, Dialect::Other) if path == "/" && parts.method == Method::POST => Some(Self::Root),
            _ => None,
        }
    }

    /// The dialect whose keys these are; absent if they are none's, or those of the path's.
    fn shown_by(self, keys: u16) -> Option<Dialect> {
        let has = |key: u16| keys & key != 0;
        match self {
            Self::Generate | Self::GenerateV1 if has(SAMPLING_PARAMS | INPUT_IDS) || has(TEXT) && !has(INPUTS) => {
                Some(Dialect::Sglang)
            }
            Self::Generate | Self::GenerateV1 if has(TEXT_INPUT) => Some(Dialect::Triton),
            Self::GenerateV1 if has(PROMPT) && !has(INPUTS) => Some(Dialect::CohereV1),
            Self::Chat if has(MESSAGES) && !has(MESSAGE) => Some(Dialect::OpenAiChat),
            Self::Root if has(INPUTS) => Some(Dialect::Tgi),
            _ => None,
        }
    }
}

/// What names the model in a JSON body: for watsonx, of any of its tasks, its id; an interaction may be an agent's.
fn model_keys(recognised: Recognised, parts: &Parts) -> &'static [u8] {
    match recognised.dialect {
        _ if find(parts.uri.path(), "/ml/v1").is_some() => &[MODEL_ID],
        Dialect::Watsonx => &[MODEL_ID],
        Dialect::GeminiInteractions => &[MODEL, AGENT],
        _ => &[MODEL],
    }
}

/// Whether the body may be JSON that can be read: said so or not said, and not compressed.
pub(super) fn is_json(parts: &Parts) -> bool {
    let json = parts.headers.get(CONTENT_TYPE).is_none_or(|value| {
        let essence = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        essence.eq_ignore_ascii_case(b"application/json") || essence.to_ascii_lowercase().ends_with(b"+json")
    });
    json && !is_compressed(parts)
}

fn is_compressed(parts: &Parts) -> bool {
    parts.headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// A walk of the body, if it is a form that may name a model. Uploads of files for other purposes name none.
fn form(recognised: Recognised, parts: &Parts) -> Option<multipart::Scanner> {
    if recognised.dialect != Dialect::OpenAiMedia || is_compressed(parts) {
        return None;
    }
    multipart::Scanner::new(parts.headers.get(CONTENT_TYPE)?.as_bytes(), FORM)
}

/// What clients write into a form for yes and no.
fn flag(value: &[u8]) -> Option<bool> {
    let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
    match () {
        () if is("true") || is("1") => Some(true),
        () if is("false") || is("0") => Some(false),
        () => None,
    }
}

const DASHSCOPE_SSE: HeaderName = HeaderName::from_static("x-dashscope-sse");

/// What the head says: the path (Azure's deployment, Google's, Bedrock's and Triton's model and verb), the query (the model
/// of Realtime, a replay's `stream=true`), a header (DashScope's).
fn told(recognised: Recognised, parts: &Parts) -> RequestFacts {
    let path = parts.uri.path();
    let mut facts = RequestFacts::default();
    if let Some((_, rest)) = split_once(path, "/deployments/") {
        facts.model = rest.split('/').next().and_then(decoded_name);
    } else if let Some((_, rest)) = split_once(path, "/publishers/")
        && let Some((_, rest)) = split_once(rest, "/models/")
        && let Some((model, verb)) = rest.rsplit_once(':')
    {
        facts.model = decoded_name(model);
        // Other vendors' models on Vertex must be asked for a stream by the verb *and* by the body.
        facts.stream = Some(verb.starts_with("stream")).filter(|_| verb != "streamRawPredict");
    } else if let Some((rest, verb @ ("generateContent" | "streamGenerateContent"))) = path.rsplit_once(':') {
        // Code Assist has no model in its path, but in the body.
        facts.model = rest.rsplit('/').next().filter(|name| *name != "v1internal").and_then(decoded_name);
        facts.stream = Some(verb.starts_with("stream"));
    } else if let Some((_, rest)) = split_once(path, "/v2/models/")
        && recognised.dialect == Dialect::Triton
    {
        facts.model = rest.split('/').next().and_then(decoded_name);
    }
    if let Some((_, rest)) = split_once(path, "/model/")
        && let Some((model, verb @ ("converse" | "converse-stream" | "invoke" | "invoke-with-response-stream"))) =
            rest.rsplit_once('/')
    {
        facts.model = decoded_name(model);
        facts.stream = Some(verb.ends_with("stream"));
    }
    match recognised.dialect {
        Dialect::Tgi | Dialect::Triton if path.ends_with("/generate_stream") => facts.stream = Some(true),
        Dialect::Watsonx => facts.stream = Some(path.ends_with("_stream")),
        // watsonx's too.
        Dialect::OpenAiChat if path.ends_with("/text/chat") => facts.stream = Some(false),
        Dialect::OpenAiChat if path.ends_with("/text/chat_stream") => facts.stream = Some(true),
        Dialect::Replicate => facts.stream = Some(true),
        Dialect::DashScope => facts.stream = Some(asks_dashscope_to_stream(parts)),
        _ => {}
    }
    let mut query = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    if facts.model.is_none() {
        let named = |(key, _): &(&str, &str)| matches!(*key, "model" | "deployment");
        facts.model = query.clone().find(named).and_then(|(_, model)| decoded_name(model));
    }
    if parts.method == Method::GET && query.any(|pair| pair == ("stream", "true")) {
        facts.stream = Some(true);
    }
    facts
}

fn asks_dashscope_to_stream(parts: &Parts) -> bool {
    let said = parts.headers.get(DASHSCOPE_SSE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"enable"));
    let mut accepted =
        parts.headers.get_all(ACCEPT).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    said || accepted.any(|kind| kind.trim_ascii().to_ascii_lowercase().starts_with(b"text/event-stream"))
}

/// A name out of a path or a query.
fn decoded_name(text: &str) -> Option<Arc<str>> {
    name(Value::Text(&percent_decoded(text.as_bytes()))).map(Arc::from)
}

#[cfg(test)]
mod tests;
