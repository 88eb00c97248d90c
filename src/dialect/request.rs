//! A look at a request body as it passes: which model, and whether a stream is asked for.

use std::sync::LazyLock;

use http::{
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};

use super::{Dialect, Recognised, reply::name};
use crate::framing::json::{Progress, Scanner, Tree, Value, Want};

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestFacts {
    /// The model's name as the client wrote it (up to 256 bytes); absent if none was found.
    pub model: Option<String>,
    /// Whether the client asked for a stream; absent if it did not say.
    pub stream: Option<bool>,
}

/// Reads a request body in pieces, holding nothing but the fields it looks for. Bodies of any size are walked to where
/// both are known, to the end of their object or to their end, whichever is first.
#[derive(Debug)]
pub struct RequestScan {
    facts: RequestFacts,
    scanner: Scanner,
    state: State,
    /// The head named the model, which holds against the body's.
    model_told: bool,
    stream_told: bool,
    /// What a body means that does not say whether to stream.
    unsaid: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Reading,
    /// There is nothing to find in the body.
    Opaque,
    Given,
}

const MODEL: u8 = 0;
const STREAM: u8 = 1;

static TREE: LazyLock<Tree> =
    LazyLock::new(|| Tree::new([("model", MODEL, Want::Value), ("stream", STREAM, Want::Value)]));

impl RequestScan {
    /// A look at the body of this request. What the head already says (path, query) is taken from there.
    pub fn new(recognised: Recognised, parts: &Parts) -> Self {
        let facts = told(parts);
        let complete = facts.model.is_some() && facts.stream.is_some();
        Self {
            model_told: facts.model.is_some(),
            stream_told: facts.stream.is_some(),
            unsaid: (recognised.dialect == Dialect::Ollama).then_some(true),
            facts,
            scanner: Scanner::default(),
            state: if complete || !is_json(parts) { State::Opaque } else { State::Reading },
        }
    }

    /// Reads the next piece of the body. Gives the facts as soon as all are known, once.
    pub fn read(&mut self, piece: &[u8]) -> Option<RequestFacts> {
        if self.state != State::Reading {
            return self.finish();
        }
        let Self { facts, scanner, model_told, stream_told, .. } = self;
        scanner.read(&TREE, piece, &mut |field, value| match (field, value) {
            (MODEL, _) if !*model_told => facts.model = name(value),
            (STREAM, Value::Bool(stream)) if !*stream_told => facts.stream = Some(stream),
            _ => {}
        });
        let known = facts.model.is_some() && facts.stream.is_some();
        let over = !matches!(scanner.progress(), Progress::Blank | Progress::Open);
        if known || over { self.finish() } else { None }
    }

    /// The body has ended: what is known by now. Absent if the facts were given already.
    pub fn finish(&mut self) -> Option<RequestFacts> {
        if self.state == State::Given {
            return None;
        }
        // Only a body that was read to its end is known not to say it.
        if self.scanner.progress() == Progress::Closed && self.facts.stream.is_none() {
            self.facts.stream = self.unsaid;
        }
        self.state = State::Given;
        self.scanner = Scanner::default();
        Some(std::mem::take(&mut self.facts))
    }
}

/// Whether the body may be JSON that can be read: said so or not said, and not compressed.
fn is_json(parts: &Parts) -> bool {
    let compressed =
        parts.headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let json = parts.headers.get(CONTENT_TYPE).is_none_or(|value| {
        let essence = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        essence.eq_ignore_ascii_case(b"application/json") || essence.to_ascii_lowercase().ends_with(b"+json")
    });
    json && !compressed
}

/// What the path and the query say: Azure's deployment, Google's and Bedrock's model and verb, a replay's `stream=true`.
fn told(parts: &Parts) -> RequestFacts {
    let path = parts.uri.path();
    let mut facts = RequestFacts::default();
    if let Some((_, rest)) = path.split_once("/deployments/") {
        facts.model = rest.split('/').next().and_then(percent_decoded);
    } else if let Some((_, rest)) = path.split_once("/publishers/")
        && let Some((_, rest)) = rest.split_once("/models/")
        && let Some((model, verb)) = rest.rsplit_once(':')
    {
        facts.model = percent_decoded(model);
        facts.stream = Some(verb.starts_with("stream"));
    } else if let Some((rest, verb @ ("generateContent" | "streamGenerateContent"))) = path.rsplit_once(':') {
        facts.model = rest.rsplit('/').next().and_then(percent_decoded);
        facts.stream = Some(verb.starts_with("stream"));
    }
    if let Some((_, rest)) = path.split_once("/model/")
        && let Some((model, verb @ ("converse" | "converse-stream" | "invoke" | "invoke-with-response-stream"))) =
            rest.rsplit_once('/')
    {
        facts.model = percent_decoded(model);
        facts.stream = Some(verb.ends_with("stream"));
    }
    if path.ends_with("/generate_stream") {
        facts.stream = Some(true);
    }
    if parts.method == http::Method::GET
        && parts.uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "stream=true"))
    {
        facts.stream = Some(true);
    }
    facts
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
        RequestFacts { model: model.map(str::to_owned), stream }
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
        let mut other =
            scan(&parts("/v1/audio/transcriptions", &[("content-type", "multipart/form-data; boundary=x")]));
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
}
