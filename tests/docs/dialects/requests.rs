//! What requests are recognised by. In the backticks of a cell stand `METHOD path` (with `…` for any beginning, also none,
//! and `{…}` for any part), `header: value`, and keys of the body: any of them makes it this dialect.

use http::{Request, request::Parts};
use streamgauge::dialect::{Dialect, Recognised, RequestScan, recognise};

use super::{by_dialect, quoted, rows};
use crate::read;

/// A cell's requests, each with the keys of which its body has to have one.
fn requests(cell: &str) -> Vec<(Parts, Vec<String>)> {
    let mut requests = Vec::new();
    for part in cell.split(';') {
        let words = quoted(part);
        let is_request =
            |word: &&&str| ["GET /", "GET …", "POST /", "POST …"].iter().any(|verb| word.starts_with(verb));
        let headers: Vec<_> = words.iter().filter_map(|word| word.split_once(": ")).collect();
        let is_key = |word: &&&str| !is_request(word) && !word.contains(": ");
        let keys: Vec<_> = words.iter().filter(is_key).map(|key| (*key).to_owned()).collect();
        for request in words.iter().filter(is_request) {
            let (method, path) = request.split_once(' ').unwrap();
            for prefix in ["", "/team-7/eu"] {
                let path = filled(&path.replace('…', prefix));
                let request = Request::builder().method(method).uri(path);
                let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
                requests.push((request.body(()).unwrap().into_parts().0, keys.clone()));
            }
        }
    }
    requests
}

/// The path with something in the place of each `{…}`.
fn filled(path: &str) -> String {
    let mut parts = path.split('{');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |path, part| path + "m-1" + part.split_once('}').unwrap().1)
}

#[test]
fn requests_are_recognised() {
    let page = read("docs/dialects.md");
    let mut claims = 0;
    for (dialect, row) in by_dialect(&page, "## Requests") {
        let requests = requests(row[2]);
        assert!(!requests.is_empty() || dialect == Dialect::Plain, "{dialect:?}");
        for (parts, keys) in requests {
            let recognised = recognise(&parts, None);
            let asked = format!("{} {} {keys:?}", parts.method, parts.uri);
            if keys.is_empty() {
                assert_eq!(recognised.dialect, dialect, "{asked}");
            }
            for key in keys {
                assert_eq!(shown(recognised, &parts, &key), Some(dialect), "{asked}: {key}");
            }
            claims += 1;
        }
    }
    assert!(claims > 60, "only {claims} claims");
}

/// The dialect that a body with this key shows.
fn shown(recognised: Recognised, parts: &Parts, key: &str) -> Option<Dialect> {
    let mut scan = RequestScan::new(recognised, parts);
    let body = serde_json::json!({ key: "x" }).to_string();
    scan.read(body.as_bytes()).or_else(|| scan.finish())?.dialect
}

#[test]
fn plain_endpoints_are_recognised() {
    let page = read("docs/dialects.md");
    let mut endpoints = Vec::new();
    for row in rows(&page, "## Plain endpoints") {
        let (endpoint, dialect) = (quoted(row[0])[0], Dialect::named(quoted(row[2])[0]).unwrap());
        let requests = requests(row[1]);
        assert!(!requests.is_empty(), "{row:?}");
        for (parts, _) in requests {
            let recognised = recognise(&parts, None);
            assert_eq!((recognised.endpoint.as_str(), recognised.dialect), (endpoint, dialect), "{parts:?}");
        }
        endpoints.push(endpoint);
    }
    endpoints.dedup();
    assert_eq!(endpoints, ["embeddings", "rerank", "images", "audio", "models", "batch"]);
}

#[test]
fn every_row_of_the_recogniser_is_in_the_tables() {
    let (page, source) = (read("docs/dialects.md"), read("src/dialect/recognise.rs"));
    let (by_dialect, plain) = (by_dialect(&page, "## Requests"), rows(&page, "## Plain endpoints"));
    let mut known = 0;
    for row in source.lines().filter_map(|line| line.strip_prefix("    row(")) {
        let path: Vec<&str> = row.split('"').skip(1).step_by(2).collect();
        let after = |word: &str| row.split(word).nth(1).map(|rest| rest.split([',', ')']).next().unwrap()).unwrap();
        let (endpoint, dialect) = (after("Endpoint::"), after("Dialect::"));
        let of_endpoint = plain.iter().filter(|row| quoted(row[0])[0] == endpoint.to_lowercase()).map(|row| row[1]);
        let of_dialect = by_dialect.iter().filter(|(of, _)| format!("{of:?}") == dialect && dialect != "Plain");
        let (of_endpoint, of_dialect): (Vec<_>, Vec<_>) =
            (of_endpoint.collect(), of_dialect.map(|(_, row)| row[2]).collect());
        let ends = row.starts_with("Ends");
        for cells in [of_endpoint, of_dialect].into_iter().filter(|cells| !cells.is_empty()) {
            assert!(cells.into_iter().flat_map(quoted).any(|word| has(word, &path, ends)), "{row}");
        }
        known += 1;
    }
    assert!(known > 50, "only {known} rows");
}

/// Whether a request of the page is this one: it has these parts in their order, or ends with the one, which is all of it
/// but for what is no whole part of a path.
fn has(request: &str, parts: &[&str], ends: bool) -> bool {
    let path = request.split_once('…').map_or("", |(_, path)| path);
    if ends {
        return path == parts[0] || !parts[0].starts_with('/') && path.ends_with(parts[0]);
    }
    let mut rest = path;
    parts.iter().all(|part| rest.split_once(part).map(|(_, after)| rest = after).is_some())
}
