//! A look at a request body as it passes: which model, and whether a stream is asked for.

use std::sync::LazyLock;

use http::{
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};

use super::{Recognised, reply::name};
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
    pub fn new(_recognised: Recognised, parts: &Parts) -> Self {
        let facts = told(parts);
        let complete = facts.model.is_some() && facts.stream.is_some();
        Self {
            model_told: facts.model.is_some(),
            stream_told: facts.stream.is_some(),
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

/// What the path and the query say: Azure's deployment, Vertex' model and verb, a replay's `stream=true`.
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
