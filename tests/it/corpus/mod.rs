//! Recorded replies of real providers against their reference values.
//!
//! The recordings are not part of this repository: `STREAMGAUGE_CORPUS` names their folder. Without it nothing is run,
//! and the tests say so. All of them are read ([`reading`]) and sent through the whole proxy ([`replay`]); sessions over
//! a WebSocket have tests of their own. Every value that a reference gives must be met, but for the few references that
//! are wrong: `allowed.tsv` says which, what is right, and why.

mod cuts;
mod reading;
mod replay;
mod sessions;
mod timings;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use http::{Request, Response, request, response};
use streamgauge::{
    dialect::{Dialect, RequestFacts, RequestScan, recognise},
    observation::Outcome,
};

/// Reference values that are wrong: family, name, column, what is right, and why.
const ALLOWED: &str = include_str!("allowed.tsv");

/// Of so many recordings the reference may be wrong before it is us who are.
const MOST_ALLOWED: usize = 5;

/// The tables of reference values, and whether they are about streams.
const TABLES: [(&str, bool); 2] = [("EXPECTED.tsv", true), ("EXPECTED_NONSTREAM.tsv", false)];

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

/// The folder of recordings; absent, with a word on it, if none is named.
fn corpus() -> Option<PathBuf> {
    let corpus = std::env::var_os("STREAMGAUGE_CORPUS").map(PathBuf::from);
    if corpus.is_none() {
        eprintln!("0 recordings were run: STREAMGAUGE_CORPUS names no folder");
    }
    corpus
}

/// The reference values of one table, with what is wrong in them put right.
fn expected(corpus: &Path, table: &str) -> Vec<Row> {
    let allowed = allowed();
    let mut rows = rows(&fs::read_to_string(corpus.join(table)).expect("a table"));
    for row in &mut rows {
        for allowed in &allowed {
            if corrects(allowed, row) {
                row.insert(allowed["column"].clone(), allowed["right"].clone());
            }
        }
    }
    rows
}

fn allowed() -> Vec<Row> {
    rows(ALLOWED)
}

/// Whether this is about this recording, and the reference is not right as it is.
fn corrects(allowed: &Row, row: &Row) -> bool {
    let about = allowed["family"] == row["dialect"] && allowed["name"] == row["name"];
    about && row.get(&allowed["column"]).is_some_and(|value| *value != allowed["right"])
}

/// All recordings but those of WebSockets; absent if there are none.
fn recordings() -> Option<Vec<Recording>> {
    let corpus = corpus()?;
    let mut recordings = Vec::new();
    for (table, streamed) in TABLES {
        for row in expected(&corpus, table) {
            let place = corpus.join(&row["dialect"]).join(&row["name"]);
            if !file(&place, "ws.jsonl").exists() {
                recordings.push(Recording::load(&place, row, streamed));
            }
        }
    }
    Some(recordings)
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
        let head =
            fs::read_to_string(file(place, "response.headers")).ok().and_then(|text| head(&text)).expect("a head");
        let body = fs::read(file(place, "response.body")).expect("a body");
        let (dialect, asked) = asked(&request, &request_body);
        Self { family: row["dialect"].clone(), name, streamed, row, dialect, asked, request, request_body, head, body }
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
    (asked.dialect.unwrap_or(recognised.dialect), asked)
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
fn head(text: &str) -> Option<response::Parts> {
    let mut lines = text.lines();
    let mut head = Response::builder().status(lines.next()?.split(' ').nth(1)?);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (name, value) = (name.trim().to_lowercase(), value.trim());
        if !["connection", "keep-alive", "transfer-encoding", "content-length"].contains(&&*name) {
            head = head.header(name, value);
        }
    }
    Some(head.body(()).ok()?.into_parts().0)
}

fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split('\t').map(str::to_owned).collect();
    lines.map(|line| names.iter().cloned().zip(line.split('\t').map(str::to_owned)).collect()).collect()
}

#[test]
fn few_references_are_wrong_and_each_says_why() {
    let allowed = allowed();
    let recordings: BTreeSet<_> = allowed.iter().map(|row| (&row["family"], &row["name"])).collect();
    println!(
        "of {} recordings {} reference values are said to be wrong; of {MOST_ALLOWED} they may be",
        recordings.len(),
        allowed.len()
    );
    assert!(recordings.len() <= MOST_ALLOWED, "of {} recordings references are said to be wrong", recordings.len());
    for row in &allowed {
        assert!(row.len() == 5 && !row["why"].is_empty(), "{row:?}");
    }
    let Some(corpus) = corpus() else { return };
    let table = |(table, _): (&str, bool)| rows(&fs::read_to_string(corpus.join(table)).expect("a table"));
    let rows: Vec<_> = TABLES.into_iter().flat_map(table).collect();
    for allowed in &allowed {
        assert!(rows.iter().any(|row| corrects(allowed, row)), "this corrects nothing: {allowed:?}");
    }
}
