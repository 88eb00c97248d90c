//! Recorded replies of real providers against their reference values.
//!
//! The recordings are not part of this repository: `STREAMGAUGE_CORPUS` names their folder. Without it nothing is run,
//! and the tests say so.

mod reading;
mod replay;
mod sessions;
mod turns;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use http::{Request, Response, request, response};
use streamgauge::dialect::{Dialect, recognise};

/// Families that must match in full.
const REQUIRED: [&str; 9] = [
    "anthropic",
    "bedrock-converse",
    "cohere",
    "gemini",
    "ollama",
    "openai-chat",
    "openai-responses",
    "tgi",
    "vertex-gemini",
];

/// Reference values that are wrong: family, name, column and what is right.
const CORRECTED: [[&str; 4]; 1] = [
    // The body says `tokens.reasoning_tokens`, the reference is empty.
    ["cohere", "command-a-reasoning-08-2025-nonstream-reasoning", "reasoning_tokens", "38"],
];

type Row = BTreeMap<String, String>;

/// The folder of recordings; absent, with a word on it, if none is named.
fn corpus() -> Option<PathBuf> {
    let corpus = std::env::var_os("STREAMGAUGE_CORPUS").map(PathBuf::from);
    if corpus.is_none() {
        eprintln!("0 recordings were run: STREAMGAUGE_CORPUS names no folder");
    }
    corpus
}

/// One recorded exchange.
struct Recording {
    dialect: Dialect,
    request: request::Parts,
    request_body: String,
    head: response::Parts,
    body: Vec<u8>,
}

impl Recording {
    /// A recording of a dialect that is read, if it was not stored compressed.
    fn load(corpus: &Path, family: &str, name: &str) -> Option<Self> {
        let file = |kind: &str| corpus.join(family).join(format!("{name}.{kind}"));
        let request: serde_json::Value = serde_json::from_slice(&fs::read(file("request.json")).ok()?).ok()?;
        let mut parts = Request::builder().method(request["method"].as_str()?).uri(request["path"].as_str()?);
        if let Some(headers) = request["headers"].as_object() {
            for (name, value) in headers {
                if let Some(value) = value.as_str() {
                    parts = parts.header(name, value);
                }
            }
        }
        let (request_parts, ()) = parts.body(()).ok()?.into_parts();
        let dialect = recognise(&request_parts, None).dialect;
        let head = head(&fs::read_to_string(file("response.headers")).ok()?)?;
        if dialect == Dialect::Other || head.headers.contains_key("content-encoding") {
            return None;
        }
        Some(Self {
            dialect,
            request: request_parts,
            request_body: request["body_text"].as_str().unwrap_or_default().to_owned(),
            head,
            body: fs::read(file("response.body")).ok()?,
        })
    }
}

fn head(text: &str) -> Option<response::Parts> {
    let mut lines = text.lines();
    let mut head = Response::builder().status(lines.next()?.split(' ').nth(1)?);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        head = head.header(name.trim(), value.trim());
    }
    Some(head.body(()).ok()?.into_parts().0)
}

/// The reference values of one table.
fn expected(corpus: &Path, table: &str) -> Vec<Row> {
    let mut rows = rows(&fs::read_to_string(corpus.join(table)).expect("a table"));
    for row in &mut rows {
        for [family, name, column, right] in CORRECTED {
            if row["dialect"] == family && row["name"] == name {
                eprintln!("corrected: {family}/{name}: {column} is {right}");
                row.insert(column.to_owned(), right.to_owned());
            }
        }
    }
    rows
}

fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split('\t').map(str::to_owned).collect();
    lines.map(|line| names.iter().cloned().zip(line.split('\t').map(str::to_owned)).collect()).collect()
}
