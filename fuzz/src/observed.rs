//! What an observer makes of a body, so that two readings can be compared.

use http::{Response, response::Parts};
use streamgauge::dialect::{Dialect, Observer, ObserverOff, Signal};

use crate::{Fixture, Pieces};

/// How bodies are framed: the endings of the fixtures' names, and what the head says of them. The rest has no fixtures.
pub const CONTENT_TYPES: [(&str, Option<&str>); 9] = [
    ("sse", Some("text/event-stream")),
    ("ndjson", Some("application/x-ndjson")),
    ("array", Some("application/json")),
    ("json", Some("application/json")),
    ("eventstream", Some("application/vnd.amazon.eventstream")),
    ("", None),
    ("", Some("application/octet-stream")),
    ("", Some("text/plain")),
    ("", Some("audio/mpeg")),
];

/// All that an observer says of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    pub signals: Vec<Signal>,
    pub off: Option<ObserverOff>,
    skipped: u32,
    is_stream: bool,
    is_half_read: bool,
    facts: String,
}

/// The head of a reply.
pub fn head(content_type: Option<&str>, coding: Option<&str>) -> Parts {
    let named = [("content-type", content_type), ("content-encoding", coding)];
    let headers = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let head = headers.fold(Response::builder(), |head, (name, value)| head.header(name, value));
    head.body(()).expect("headers that are right").into_parts().0
}

/// Reads a reply to its end.
pub fn observe(dialect: Dialect, head: &Parts, pieces: Pieces<'_, '_>) -> Observed {
    let (mut observer, mut signals) = (Observer::new(dialect, head), Vec::new());
    for piece in pieces {
        observer.read(piece, &mut |signal| signals.push(signal));
    }
    let is_half_read = observer.is_half_read();
    observer.end(&mut |signal| signals.push(signal));
    Observed {
        signals,
        off: observer.off(),
        skipped: observer.skipped(),
        is_stream: observer.is_stream(),
        is_half_read,
        facts: format!("{:?}", observer.facts()),
    }
}

/// As [`observe`], with nothing kept but what the observer keeps itself.
pub fn pass(dialect: Dialect, head: &Parts, pieces: Pieces<'_, '_>) {
    let mut observer = Observer::new(dialect, head);
    for piece in pieces {
        observer.read(piece, &mut |_| ());
    }
    observer.end(&mut |_| ());
    drop(observer.facts());
}

/// The choices that pick a fixture's dialect and content type.
pub fn choices(fixture: &Fixture) -> Option<(u8, u8)> {
    let dialect = Dialect::ALL.iter().position(|dialect| dialect.as_str() == fixture.dialect)?;
    let content_type = CONTENT_TYPES.iter().position(|(ending, _)| *ending == fixture.framing)?;
    Some((u8::try_from(dialect).ok()?, u8::try_from(content_type).ok()?))
}
