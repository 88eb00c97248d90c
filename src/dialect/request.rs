//! A look at a request as it passes: which model, whether a stream is asked for, and which dialect it is if its path leaves
//! that open. The head says it, or the body: JSON, or a form with files in it.

use std::sync::LazyLock;

use http::{
    Method,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
    request::Parts,
};

use super::{Dialect, Endpoint, Recognised, reply::name};
use crate::framing::{
    json::{Progress, Scanner, Tree, Value, Want},
    multipart,
};

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestFacts {
    /// The model's name as the client wrote it (up to 256 bytes); absent if none was found.
    pub model: Option<String>,
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
    /// The key of a JSON body that names the model.
    model_key: u8,
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
    /// `/v1/chat`: Cohere's or Writer's, which is OpenAI's.
    Chat,
    /// `/`: TGI's, or nothing known.
    Root,
}

const MODEL: u8 = 0;
const STREAM: u8 = 1;
const MODEL_ID: u8 = 2;
/// Keys that tell the dialect, each with its bit.
const KEYS: u8 = 8;
const MESSAGE: u16 = 1;
const MESSAGES: u16 = 1 << 1;
const INPUTS: u16 = 1 << 2;
const TEXT: u16 = 1 << 3;
const TEXT_INPUT: u16 = 1 << 4;
const INPUT_IDS: u16 = 1 << 5;
const SAMPLING_PARAMS: u16 = 1 << 6;

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    Tree::new([("model", MODEL, Want::Value), ("stream", STREAM, Want::Value), ("model_id", MODEL_ID, Want::Value)])
});

/// The same with the keys that tell the dialect.
static OPEN_TREE: LazyLock<Tree> = LazyLock::new(|| {
    let keys = ["message", "messages", "inputs", "text", "text_input", "input_ids", "sampling_params"];
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
            model_key: if recognised.dialect == Dialect::Watsonx { MODEL_ID } else { MODEL },
            open,
            keys: 0,
            facts,
        }
    }

    /// Reads the next piece of the body. Gives the facts as soon as all are known, once.
    pub fn read(&mut self, piece: &[u8]) -> Option<RequestFacts> {
        let Self { facts, told, model_key, keys, open, .. } = self;
        let over = match &mut self.body {
            Body::Json(scanner) => {
                let tree = if open.is_some() { &OPEN_TREE } else { &TREE };
                scanner.read(tree, piece, &mut |field, value| match (field, value) {
                    (MODEL | MODEL_ID, _) if field == *model_key && !told.model => facts.model = name(value),
                    (STREAM, Value::Bool(stream)) if !told.stream => facts.stream = Some(stream),
                    (KEYS.., value) if value != Value::Null => *keys |= 1 << (field - KEYS),
                    _ => {}
                });
                !matches!(scanner.progress(), Progress::Blank | Progress::Open)
            }
            Body::Form(scanner) => {
                scanner.read(piece, &mut |field, value| match field {
                    0 if !told.model => facts.model = name(Value::Text(value)),
                    1 if !told.stream => facts.stream = flag(value),
                    _ => {}
                });
                scanner.progress() != multipart::Progress::Open
            }
            Body::Opaque | Body::Given => true,
        };
        let known = facts.model.is_some() && facts.stream.is_some() && open.is_none();
        if known || over { self.finish() } else { None }
    }

    /// The body has ended: what is known by now. Absent if the facts were given already.
    pub fn finish(&mut self) -> Option<RequestFacts> {
        let body = std::mem::replace(&mut self.body, Body::Given);
        if matches!(body, Body::Given) {
            return None;
        }
        let mut facts = std::mem::take(&mut self.facts);
        // Only a body that was read to its end is known not to say it.
        if matches!(body, Body::Json(scanner) if scanner.progress() == Progress::Closed) && facts.stream.is_none() {
            facts.stream = self.unsaid;
        }
        facts.dialect = self.open.and_then(|open| open.shown_by(self.keys));
        Some(facts)
    }
}

impl Open {
    fn of(recognised: Recognised, parts: &Parts) -> Option<Self> {
        let path = parts.uri.path();
        match (recognised.endpoint, recognised.dialect) {
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
            Self::Generate if has(SAMPLING_PARAMS | INPUT_IDS) || has(TEXT) && !has(INPUTS) => Some(Dialect::Sglang),
            Self::Generate if has(TEXT_INPUT) => Some(Dialect::Triton),
            Self::Chat if has(MESSAGES) && !has(MESSAGE) => Some(Dialect::OpenAiChat),
            Self::Root if has(INPUTS) => Some(Dialect::Tgi),
            _ => None,
        }
    }
}

/// Whether the body may be JSON that can be read: said so or not said, and not compressed.
pub fn is_json(parts: &Parts) -> bool {
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
    if let Some((_, rest)) = path.split_once("/deployments/") {
        facts.model = rest.split('/').next().and_then(percent_decoded);
    } else if let Some((_, rest)) = path.split_once("/publishers/")
        && let Some((_, rest)) = rest.split_once("/models/")
        && let Some((model, verb)) = rest.rsplit_once(':')
    {
        facts.model = percent_decoded(model);
        // Other vendors' models on Vertex must be asked for a stream by the verb *and* by the body.
        facts.stream = Some(verb.starts_with("stream")).filter(|_| verb != "streamRawPredict");
    } else if let Some((rest, verb @ ("generateContent" | "streamGenerateContent"))) = path.rsplit_once(':') {
        facts.model = rest.rsplit('/').next().and_then(percent_decoded);
        facts.stream = Some(verb.starts_with("stream"));
    } else if let Some((_, rest)) = path.split_once("/v2/models/")
        && recognised.dialect == Dialect::Triton
    {
        facts.model = rest.split('/').next().and_then(percent_decoded);
    }
    if let Some((_, rest)) = path.split_once("/model/")
        && let Some((model, verb @ ("converse" | "converse-stream" | "invoke" | "invoke-with-response-stream"))) =
            rest.rsplit_once('/')
    {
        facts.model = percent_decoded(model);
        facts.stream = Some(verb.ends_with("stream"));
    }
    match recognised.dialect {
        Dialect::Tgi | Dialect::Triton if path.ends_with("/generate_stream") => facts.stream = Some(true),
        Dialect::Watsonx => facts.stream = Some(path.ends_with("_stream")),
        Dialect::Replicate => facts.stream = Some(true),
        Dialect::DashScope => facts.stream = Some(asks_dashscope_to_stream(parts)),
        _ => {}
    }
    let mut query = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    if facts.model.is_none() {
        let named = |(key, _): &(&str, &str)| matches!(*key, "model" | "deployment");
        facts.model = query.clone().find(named).and_then(|(_, model)| percent_decoded(model));
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

fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let escaped = match (byte, tail) {
            (b'%', [high, low, ..]) => char::from(*high).to_digit(16).zip(char::from(*low).to_digit(16)),
            _ => None,
        };
        let code = escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        decoded.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    name(Value::Text(&decoded))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::dialect::recognise;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn scan(parts: &Parts) -> RequestScan {
        RequestScan::new(recognise(parts, None), parts)
    }

    fn facts(model: Option<&str>, stream: Option<bool>) -> RequestFacts {
        RequestFacts { model: model.map(str::to_owned), stream, dialect: None }
    }

    const PATH: &str = "/v1/chat/completions";

    #[track_caller]
    fn assert_facts(uri: &str, headers: &[(&str, &str)], body: &str, expected: &RequestFacts) {
        for width in [1, 3, body.len().max(1)] {
            let mut scan = scan(&parts(uri, headers));
            let mut given: Vec<_> = body.as_bytes().chunks(width).filter_map(|piece| scan.read(piece)).collect();
            given.extend(scan.finish());
            assert_eq!(given, std::slice::from_ref(expected), "{body} by {width}");
        }
    }

    #[test]
    fn both_are_found_in_any_order() {
        for body in [
            r#"{"model":"m","stream":true,"messages":[{"model":"x","stream":false}]}"#,
            r#"{"stream" : true , "model" : "m"}"#,
            r#"{"messages":[{"content":"\"model\":\"x\""}],"stream":true,"model":"m"}"#,
            r#" {"mod\u0065l":"\u006d","stream":true}"#,
        ] {
            assert_facts(
                PATH,
                &[("content-type", "application/json; charset=utf-8")],
                body,
                &facts(Some("m"), Some(true)),
            );
        }
    }

    #[test]
    fn what_is_not_said_is_absent() {
        assert_facts(PATH, &[], r#"{"model":"m"}"#, &facts(Some("m"), None));
        assert_facts(PATH, &[], r#"{"stream":false}"#, &facts(None, Some(false)));
        assert_facts(PATH, &[], r#"{"stream":null,"model":7}"#, &facts(Some("7"), None));
        assert_facts(PATH, &[], "", &facts(None, None));
        assert_facts(PATH, &[], "model=m&stream=true", &facts(None, None));
        assert_facts(PATH, &[], r#"{"model":"m","messages":["#, &facts(Some("m"), None));
        let long = format!(r#"{{"model":"{}","stream":true}}"#, "x".repeat(257));
        assert_facts(PATH, &[], &long, &facts(None, Some(true)));
    }

    #[test]
    fn ollama_streams_unless_told_not_to() {
        assert_facts("/api/chat", &[], r#"{"model":"m"}"#, &facts(Some("m"), Some(true)));
        assert_facts("/api/chat", &[], r#"{"model":"m","stream":false}"#, &facts(Some("m"), Some(false)));
        assert_facts("/api/generate", &[], r#"{"model":"m","stream":null}"#, &facts(Some("m"), Some(true)));
        assert_facts("/api/generate", &[], r#"{"model":"m""#, &facts(Some("m"), None));
    }

    #[test]
    fn facts_come_as_soon_as_they_are_known() {
        let mut early = scan(&parts(PATH, &[]));
        assert_eq!(early.read(br#"{"model":"m","#), None);
        assert_eq!(early.read(br#""stream":true,"messages":["#), Some(facts(Some("m"), Some(true))));
        assert_eq!((early.read(b"1]}"), early.finish()), (None, None));
        let mut closed = scan(&parts(PATH, &[]));
        assert_eq!(closed.read(br#"{"model":"m"}"#), Some(facts(Some("m"), None)));
        let mut other = scan(&parts("/v1/files", &[("content-type", "multipart/form-data; boundary=x")]));
        assert_eq!(other.read(b"--x"), Some(facts(None, None)));
        assert_eq!(other.finish(), None);
    }

    #[test]
    fn a_large_image_before_the_model_hides_nothing_and_is_not_held() {
        let body =
            format!(r#"{{"messages":[{{"url":"data:;base64,{}"}}],"model":"m","stream":true}}"#, "A".repeat(2 << 20));
        let mut scan = scan(&parts(PATH, &[]));
        let given: Vec<_> = body.as_bytes().chunks(16 << 10).filter_map(|piece| scan.read(piece)).collect();
        assert_eq!(given, [facts(Some("m"), Some(true))]);
    }

    #[test]
    fn the_path_names_the_model_where_it_does() {
        let azure = "/openai/deployments/my%20gpt/chat/completions?api-version=1";
        assert_facts(azure, &[], r#"{"model":"x","stream":true}"#, &facts(Some("my gpt"), Some(true)));
        let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict";
        assert_facts(vertex, &[], r#"{"stream":true}"#, &facts(Some("claude@1"), Some(true)));
        let plain = vertex.replace("streamRawPredict", "rawPredict");
        assert_facts(&plain, &[("content-encoding", "gzip")], "x", &facts(Some("claude@1"), Some(false)));
        assert_facts(vertex, &[], r#"{"messages":[]}"#, &facts(Some("claude@1"), None));
        assert_facts(vertex, &[], r#"{"stream":false}"#, &facts(Some("claude@1"), Some(false)));
        let google = vertex.replace("anthropic", "google").replace("streamRawPredict", "streamGenerateContent");
        assert_facts(&google, &[], "{}", &facts(Some("claude@1"), Some(true)));
        assert_facts(
            "/v2/models/llama/generate_stream",
            &[],
            r#"{"text_input":"x"}"#,
            &facts(Some("llama"), Some(true)),
        );
        for (verb, stream) in [("generateContent", false), ("streamGenerateContent?alt=sse", true)] {
            let gemini = format!("/v1beta/models/gem%2Bini-1:{verb}");
            assert_facts(&gemini, &[], r#"{"contents":[]}"#, &facts(Some("gem+ini-1"), Some(stream)));
        }
        assert_facts("/generate_stream", &[], r#"{"inputs":"x"}"#, &facts(None, Some(true)));
        let arn = "/model/arn%3Aaws%3Abedrock%3Ax%3A1%3Aprofile%2Fp/converse-stream";
        assert_facts(arn, &[], "{}", &facts(Some("arn:aws:bedrock:x:1:profile/p"), Some(true)));
        assert_facts("/model/a:0/invoke", &[], "{}", &facts(Some("a:0"), Some(false)));
        let replay = Request::get("/v1/responses/r1?starting_after=3&stream=true").body(()).unwrap().into_parts().0;
        assert_eq!(scan(&replay).finish(), Some(facts(None, Some(true))));
        assert_eq!(percent_decoded("a%3Ab%2Fc%zz%4").as_deref(), Some("a:b/c%zz%4"));
    }

    #[test]
    fn the_query_names_the_model_where_it_does() {
        let get = |uri: &str| Request::get(uri).body(()).unwrap().into_parts().0;
        for uri in ["/v1/realtime?model=gpt%2Drealtime", "/openai/realtime?api-version=1&deployment=gpt-realtime&x"] {
            assert_eq!(scan(&get(uri)).finish(), Some(facts(Some("gpt-realtime"), None)), "{uri}");
        }
        assert_eq!(scan(&get("/v1/realtime?xmodel=a&model=")).finish(), Some(facts(None, None)));
        assert_facts("/v1/embeddings?stream=true", &[], r#"{"model":"m"}"#, &facts(Some("m"), None));
    }

    #[test]
    fn a_header_or_the_path_says_whether_to_stream_where_it_does() {
        let dashscope = "/api/v1/services/aigc/text-generation/generation";
        for (headers, stream) in [
            (&[][..], false),
            (&[("X-DashScope-SSE", "Enable")], true),
            (&[("X-DashScope-SSE", "disable")], false),
            (&[("accept", "application/json, Text/Event-Stream;q=0.9")], true),
        ] {
            let expected = facts(Some("qwen"), Some(stream));
            assert_facts(dashscope, headers, r#"{"input":{},"model":"qwen","stream":true}"#, &expected);
        }
        let body = r#"{"model":"x","model_id":"granite","stream":true}"#;
        assert_facts("/ml/v1/text/generation_stream?version=1", &[], body, &facts(Some("granite"), Some(true)));
        assert_facts("/ml/v1/text/generation", &[], body, &facts(Some("granite"), Some(false)));
        assert_facts(PATH, &[], r#"{"model_id":"x"}"#, &facts(None, None));
        let replicate = Request::get("/v1/streams/s1").body(()).unwrap().into_parts().0;
        assert_eq!(scan(&replicate).finish(), Some(facts(None, Some(true))));
    }

    #[test]
    fn a_form_names_model_and_stream_beside_its_files() {
        let form = [("content-type", "multipart/form-data; boundary=\"b 1\"")];
        let file = format!(
            "--b 1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n",
            "\r\n".repeat(3000)
        );
        let field = |name: &str, value: &str| {
            format!("--b 1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        for (stream, expected) in [("true", Some(true)), ("False", Some(false)), ("1", Some(true)), ("yes", None)] {
            let body = [file.clone(), field("stream", stream), field("model", "whisper-1"), "--b 1--\r\n".to_owned()];
            let expected = facts(Some("whisper-1"), expected);
            for path in ["/v1/audio/transcriptions", "/v1/images/edits"] {
                assert_facts(path, &form, &body.concat(), &expected);
            }
        }
        let long = [field("model", &"m".repeat(257)), "--b 1--".to_owned()].concat();
        assert_facts("/v1/audio/transcriptions", &form, &long, &facts(None, None));
        assert_facts("/v1/audio/transcriptions", &form, "--b 1\nno form", &facts(None, None));
        let compressed = [form[0], ("content-encoding", "gzip")];
        assert_facts("/v1/audio/transcriptions", &compressed, &field("model", "m"), &facts(None, None));
    }

    #[test]
    fn the_body_shows_the_dialect_where_the_path_leaves_it_open() {
        use Dialect::{OpenAiChat, Sglang, Tgi, Triton};
        for (path, body, expected) in [
            ("/generate", r#"{"stream":true,"model":"m","inputs":"x"}"#, None),
            ("/generate", r#"{"stream":true,"model":"m","text":"x"}"#, Some(Sglang)),
            ("/generate", r#"{"stream":true,"model":"m","input_ids":[1]}"#, Some(Sglang)),
            ("/generate", r#"{"stream":true,"model":"m","inputs":"x","sampling_params":{}}"#, Some(Sglang)),
            ("/generate", r#"{"stream":true,"model":"m","inputs":"x","text":"x"}"#, None),
            ("/generate", r#"{"stream":true,"model":"m","text":null}"#, None),
            ("/generate", r#"{"stream":true,"model":"m","parameters":{"text":"x"}}"#, None),
            ("/generate", r#"{"stream":true,"model":"m","text_input":"x"}"#, Some(Triton)),
            ("/generate", r#"{"stream":true,"model":"m","prompt":"x"}"#, None),
            ("/v1/chat", r#"{"stream":true,"model":"m","messages":[{"message":1}]}"#, Some(OpenAiChat)),
            ("/v1/chat", r#"{"stream":true,"model":"m","message":"x"}"#, None),
            ("/v1/chat", r#"{"stream":true,"model":"m","message":"x","messages":[]}"#, None),
            ("/", r#"{"stream":true,"model":"m","inputs":"x"}"#, Some(Tgi)),
            ("/", r#"{"stream":true,"model":"m","text":"x"}"#, None),
            ("/v1/chat/completions", r#"{"stream":true,"model":"m","text":"x"}"#, None),
        ] {
            assert_facts(path, &[], body, &RequestFacts { dialect: expected, ..facts(Some("m"), Some(true)) });
        }
        // Known only at the end, though model and stream are known before.
        let mut late = scan(&parts("/generate", &[]));
        assert_eq!(late.read(br#"{"model":"m","stream":true,"#), None);
        let expected = RequestFacts { dialect: Some(Sglang), ..facts(Some("m"), Some(true)) };
        assert_eq!(late.read(br#""sampling_params":{}}"#), Some(expected));
    }

    #[test]
    fn a_scan_is_small() {
        assert!(size_of::<RequestScan>() <= 320, "{} bytes", size_of::<RequestScan>());
    }
}
