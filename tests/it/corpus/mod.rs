//! Recorded replies of real providers against their reference values.
//!
//! The recordings are not part of this repository: `STREAMGAUGE_CORPUS` names their folder. Without it nothing is run,
//! and the tests say so. All of them are read ([`reading`]) and sent through the whole proxy ([`replay`]); sessions over
//! a WebSocket have tests of their own. Every value that a reference gives must be met, but for the few references that
//! are wrong: `allowed.tsv` says which, what is right, and why.

mod cuts;
mod reading;
mod replay;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use http::{Request, Response, request, response};
use streamgauge::{
    dialect::{Dialect, RequestFacts, RequestScan, recognise},
    observation::Outcome,
};

/// Families, or recordings of one, that speak a dialect not read yet. To shrink to nothing: what all match must leave.
const NOT_READ_YET: [&str; 8] = [
    "bedrock-invoke",
    "gemini-interactions",
    "openai-audio",
    "replicate",
    "sglang",
    "tgi/nonstream",
    "watsonx",
    "writer",
];

/// Reference values that are wrong: family, name, column, what is right, and why.
const ALLOWED: &str = include_str!("allowed.tsv");

/// So many references may be wrong before it is us who are.
const MOST_ALLOWED: usize = 5;

type Row = BTreeMap<String, String>;

/// One recorded exchange, and what it must be read as.
struct Recording {
    family: String,
    /// Family and name.
    name: String,
    streamed: bool,
    /// The reference values: what is wrong in them is corrected.
    row: Row,
    dialect: Dialect,
    asked: RequestFacts,
    request: request::Parts,
    request_body: String,
    head: response::Parts,
    body: Vec<u8>,
}

/// All recordings but those of WebSockets; absent, with a word on it, if no folder of recordings is named.
fn recordings() -> Option<Vec<Recording>> {
    let Some(corpus) = std::env::var_os("STREAMGAUGE_CORPUS").map(PathBuf::from) else {
        eprintln!("0 recordings were run: STREAMGAUGE_CORPUS names no folder");
        return None;
    };
    let mut allowed = rows(ALLOWED);
    let mut recordings = Vec::new();
    for (table, streamed) in [("EXPECTED.tsv", true), ("EXPECTED_NONSTREAM.tsv", false)] {
        for mut row in rows(&fs::read_to_string(corpus.join(table)).expect("a table")) {
            let place = corpus.join(&row["dialect"]).join(&row["name"]);
            if file(&place, "ws.jsonl").exists() {
                continue;
            }
            allowed.retain(|allowed| !corrects(allowed, &mut row));
            recordings.push(Recording::load(&place, row, streamed));
        }
    }
    assert!(allowed.is_empty(), "of allowed.tsv these correct nothing: {allowed:?}");
    Some(recordings)
}

/// Puts what is right for what is wrong, if this is about this recording and it is wrong.
fn corrects(allowed: &Row, row: &mut Row) -> bool {
    let (column, right) = (&allowed["column"], &allowed["right"]);
    let about = allowed["family"] == row["dialect"] && allowed["name"] == row["name"];
    about && row.insert(column.clone(), right.clone()).is_some_and(|wrong| wrong != *right)
}

/// The file of this kind that belongs to a recording.
fn file(place: &Path, kind: &str) -> PathBuf {
    // Names have dots of their own, so an extension can't be set.
    let mut file = place.as_os_str().to_owned();
    file.push(format!(".{kind}"));
    file.into()
}

impl Recording {
    fn load(place: &Path, row: Row, streamed: bool) -> Self {
        let name = format!("{}/{}", row["dialect"], row["name"]);
        let request = fs::read(file(place, "request.json")).expect("a request");
        let request: serde_json::Value = serde_json::from_slice(&request).expect("a request in JSON");
        let request_body = request["body_text"].as_str().unwrap_or_default().to_owned();
        let request = request_parts(&request);
        let head = head(&fs::read_to_string(file(place, "response.headers")).expect("a head"));
        let body = fs::read(file(place, "response.body")).expect("a body");
        let (dialect, asked) = asked(&request, &request_body);
        Self { family: row["dialect"].clone(), name, streamed, row, dialect, asked, request, request_body, head, body }
    }

    /// The entry of [`NOT_READ_YET`] it falls under, if any.
    fn not_read_yet(&self) -> Option<&'static str> {
        NOT_READ_YET.into_iter().find(|entry| *entry == self.family || *entry == self.name)
    }

    /// A reference value that is a number.
    fn number(&self, column: &str) -> Option<u64> {
        self.row[column].parse().ok()
    }

    /// How the exchange must end when it passes undisturbed, by its reference values alone.
    fn outcome(&self) -> Outcome {
        let said = |column: &str| !self.row[column].is_empty();
        match self.head.status.as_u16() {
            429 | 529 => Outcome::RateLimited,
            400..=499 => Outcome::Upstream4xx,
            500.. => Outcome::Upstream5xx,
            _ if said(if self.streamed { "in_stream_error" } else { "error" }) => Outcome::ErrorEvent,
            _ if self.streamed && !said("end_marker") && !said("finish_reason") => Outcome::Truncated,
            _ => Outcome::Complete,
        }
    }
}

/// What a request is recognised as, by its head and its body, and what it asks for.
fn asked(request: &request::Parts, body: &str) -> (Dialect, RequestFacts) {
    let recognised = recognise(request, None);
    let mut scan = RequestScan::new(recognised, request);
    let mut asked = None;
    for piece in body.as_bytes().chunks(7) {
        asked = asked.or(scan.read(piece));
    }
    let asked = asked.or(scan.finish()).unwrap_or_default();
    (recognised.dialect, asked)
}

/// The recorded request's head, without what belongs to its connection.
fn request_parts(request: &serde_json::Value) -> request::Parts {
    let text = |key: &str| request[key].as_str().expect("text");
    // Recorders put `<NAME>` for what they hide, which no URI may hold.
    let mut parts = Request::builder().method(text("method")).uri(text("path").replace(['<', '>'], ""));
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        if !["host", "connection", "content-length", "transfer-encoding"].contains(&&*name.to_lowercase()) {
            parts = parts.header(name, value.as_str().expect("text"));
        }
    }
    parts.body(()).expect("a request's head").into_parts().0
}

/// The recorded response's head, without what belongs to its connection.
fn head(text: &str) -> response::Parts {
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let mut head = Response::builder().status(status);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (name, value) = (name.trim().to_lowercase(), value.trim());
        if !["connection", "keep-alive", "transfer-encoding", "content-length"].contains(&&*name) {
            head = head.header(name, value);
        }
    }
    head.body(()).expect("a response's head").into_parts().0
}

fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split('\t').map(str::to_owned).collect();
    lines.map(|line| names.iter().cloned().zip(line.split('\t').map(str::to_owned)).collect()).collect()
}

#[test]
fn few_references_are_wrong_and_each_says_why() {
    let allowed = rows(ALLOWED);
    assert!(allowed.len() <= MOST_ALLOWED, "{} references are said to be wrong", allowed.len());
    for row in &allowed {
        assert!(row.len() == 5 && !row["why"].is_empty(), "{row:?}");
    }
    println!("{} reference values are said to be wrong, {MOST_ALLOWED} may be", allowed.len());
}
