//! Small self-made replies of each dialect with the signals and facts they must give, cut at every place.
//!
//! A reply is `tests/dialects/<dialect>/<name>` with the ending `.sse`, `.ndjson`, `.array` or `.eventstream` (streams by their
//! framing), `.chunks` (Bedrock's, written as [`messages`] says), `.json` (a plain document) or `.octets` (what says nothing of
//! itself). Its `.expected` says of each event what it was (`r` reasoning, `a` answer, `t` tool, `E`
//! end, `!` error, `-` none of these), and what the reply said as a whole; a line that is not there means that it said nothing of the kind.

use std::{fmt::Write, fs, path::Path};

use base64::prelude::{BASE64_STANDARD, Engine};
use http::Response;
use streamgauge::dialect::{Dialect, Facts, Kinds, Observer, Signal};

#[test]
fn replies_are_read_alike_wherever_they_are_cut() {
    let mut replies = 0;
    for dialect in Dialect::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialects").join(dialect.as_str());
        let Ok(files) = fs::read_dir(&folder) else { continue };
        for file in files {
            let path = file.unwrap().path();
            let content_type = match path.extension().unwrap().to_str().unwrap() {
                "sse" => "text/event-stream; charset=utf-8",
                "ndjson" => "application/x-ndjson",
                "eventstream" | "chunks" => "application/vnd.amazon.eventstream",
                "json" | "array" => "application/json",
                "octets" => "application/octet-stream",
                _ => continue,
            };
            let mut body = fs::read(&path).unwrap();
            if path.extension().unwrap() == "chunks" {
                body = messages(&String::from_utf8(body).unwrap());
            }
            let expected = fs::read_to_string(path.with_extension("expected")).unwrap();
            let head = Response::builder().header("content-type", content_type).body(()).unwrap().into_parts().0;
            let read = |pieces: &mut dyn Iterator<Item = &[u8]>| said(Observer::new(dialect, &head), pieces);
            let name = path.display();
            assert_eq!(read(&mut [body.as_slice()].into_iter()), expected, "{name}");
            for width in [1, 2, 7, 64] {
                assert_eq!(read(&mut body.chunks(width)), expected, "{name} by {width}");
            }
            for cut in 0..body.len() {
                let (head, tail) = body.split_at(cut);
                assert_eq!(read(&mut [head, tail].into_iter()), expected, "{name} cut at {cut}");
            }
            replies += 1;
        }
    }
    assert!(replies >= 200, "only {replies} replies found");
}

/// Events alike to one before are not read again (`framing::twin`), unless they come in pieces. So what an event says must not hang
/// on others in a way that this misses: events of a dialect's replies, in any order, again and again, some with another number
/// in them or too long to be remembered.
#[test]
fn replies_mixed_of_any_events_are_read_alike_wherever_they_are_cut() {
    let mut mixed = 0;
    for dialect in Dialect::ALL {
        for (ending, content_type, between) in
            [("sse", "text/event-stream", "\n\n"), ("ndjson", "application/x-ndjson", "\n")]
        {
            let events = events(dialect, ending, between);
            if events.is_empty() {
                continue;
            }
            let head = Response::builder().header("content-type", content_type).body(()).unwrap().into_parts().0;
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..100 {
                let few: Vec<_> = (0..4).map(|_| varied(&events[random.usize(..events.len())], &mut random)).collect();
                let drawn: Vec<_> = (0..12).map(|_| few[random.usize(..few.len())].clone() + between).collect();
                let body = drawn.concat();
                let by_bytes = said_of(Observer::new(dialect, &head), &mut body.as_bytes().chunks(1));
                let by_events = said_of(Observer::new(dialect, &head), &mut drawn.iter().map(String::as_bytes));
                let whole = said_of(Observer::new(dialect, &head), &mut [body.as_bytes()].into_iter());
                let name = dialect.as_str();
                assert_eq!(whole, by_bytes, "{name}, whole and by bytes:\n{body}");
                assert_eq!(by_events, by_bytes, "{name}, by events and by bytes:\n{body}");
                mixed += 1;
            }
        }
    }
    assert!(mixed >= 1_800, "only {mixed} replies were mixed");
}

/// All events of a dialect's replies in this framing.
fn events(dialect: Dialect, ending: &str, between: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialects").join(dialect.as_str());
    let Ok(files) = fs::read_dir(&folder) else { return Vec::new() };
    let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|own| own == ending));
    paths.sort();
    let bodies = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
    let split = |body: String| -> Vec<String> {
        body.replace("\r\n", "\n").split(between).filter(|event| !event.is_empty()).map(str::to_owned).collect()
    };
    bodies.flat_map(split).collect()
}

/// The event as it is, with another digit somewhere, or with so many spaces before its last bracket that nobody remembers it.
fn varied(event: &str, random: &mut fastrand::Rng) -> String {
    let digits: Vec<_> = event.match_indices(|char: char| char.is_ascii_digit()).map(|(at, _)| at).collect();
    match random.u8(..4) {
        0 if !digits.is_empty() => {
            let (at, mut event) = (digits[random.usize(..digits.len())], event.to_owned());
            event.replace_range(at..=at, &random.u8(..10).to_string());
            event
        }
        1 => event
            .rfind('}')
            .map_or_else(|| event.to_owned(), |at| event[..at].to_owned() + &" ".repeat(800) + &event[at..]),
        _ => event.to_owned(),
    }
}

/// An AWS event stream of a message per line. A line is what a chunk's `bytes` hold; or behind `raw` the payload itself; or
/// behind `exception` the exception's name and the payload.
#[expect(clippy::unwrap_used, reason = "a fixture that is none fails its test")]
fn messages(lines: &str) -> Vec<u8> {
    let header = |key: &str, value: &str| {
        let mut header = vec![u8::try_from(key.len()).unwrap()];
        header.extend(key.as_bytes());
        // A string.
        header.push(7);
        header.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        header.extend(value.as_bytes());
        header
    };
    let checked = |mut bytes: Vec<u8>| {
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        bytes.extend(crc.sum().to_be_bytes());
        bytes
    };
    let message = |line: &str| {
        let (kind, name, payload) = match line.split_once(' ') {
            Some(("raw", payload)) => ("event", "chunk", payload.to_owned()),
            Some(("exception", rest)) => {
                let (name, payload) = rest.split_once(' ').unwrap();
                ("exception", name, payload.to_owned())
            }
            _ => ("event", "chunk", format!(r#"{{"bytes":"{}","p":"abcdef"}}"#, BASE64_STANDARD.encode(line))),
        };
        let name_of_it = header(&format!(":{kind}-type"), name);
        let headers = [name_of_it, header(":content-type", "application/json"), header(":message-type", kind)].concat();
        let len = u32::try_from(16 + headers.len() + payload.len()).unwrap();
        let headers_len = u32::try_from(headers.len()).unwrap();
        let prelude = checked([len.to_be_bytes(), headers_len.to_be_bytes()].concat());
        checked([prelude, headers, payload.into_bytes()].concat())
    };
    lines.lines().flat_map(message).collect()
}

#[test]
fn every_trap_has_fixtures_that_are_there() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(here.join("tests/dialects/README.md")).unwrap();
    let mut traps = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let Some((what, named)) = row.trim_end_matches(" |").rsplit_once('|') else { panic!("{row}") };
        if named.contains("fixtures") {
            continue;
        }
        traps += usize::from(what.starts_with(&format!("| {} |", traps + 1)));
        let names: Vec<_> = named.split('`').filter(|name| !name.trim().is_empty()).collect();
        assert!(!names.is_empty(), "nothing is named for {what}");
        for name in names {
            let fixture = here.join("tests/dialects").join(format!("{name}.expected"));
            assert!(fixture.is_file() || here.join(name).is_file(), "{name} is not there");
        }
    }
    assert_eq!(traps, 27, "traps in their order");
}

fn said(observer: Observer, pieces: &mut dyn Iterator<Item = &[u8]>) -> String {
    let said = said_of(observer, pieces);
    assert!(!said.contains("\noff "), "{said}");
    said
}

/// The same of a reply that may end the reading.
fn said_of(mut observer: Observer, pieces: &mut dyn Iterator<Item = &[u8]>) -> String {
    let mut events = String::new();
    for piece in pieces {
        observer.read(piece, &mut |signal| _ = write!(events, " {}", mark(signal)));
    }
    observer.end(&mut |signal| _ = write!(events, " {}", mark(signal)));
    let off = observer.off().map_or_else(String::new, |off| format!("\noff {}\n", off.as_str()));
    facts(&events, observer.skipped(), &observer.facts()) + &off
}

fn mark(signal: Signal) -> String {
    let marks = [
        (signal.output.contains(Kinds::REASONING), 'r'),
        (signal.output.contains(Kinds::ANSWER), 'a'),
        (signal.output.contains(Kinds::TOOL), 't'),
        (signal.end, 'E'),
        (signal.error, '!'),
    ];
    let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| mark).collect();
    if marks.is_empty() { "-".to_owned() } else { marks }
}

fn facts(events: &str, skipped: u32, facts: &Facts) -> String {
    let mut said = format!("events:{events}\n");
    let mut line = |key: &str, value: &str| {
        if !value.is_empty() {
            _ = writeln!(said, "{key}: {value}");
        }
    };
    line("skipped", &if skipped > 0 { skipped.to_string() } else { String::new() });
    line("model", facts.response_model.as_deref().unwrap_or_default());
    line("finish", &facts.finish_reasons.join("|"));
    let usage = &facts.usage;
    let counts = [
        ("input", usage.input),
        ("output", usage.output),
        ("reasoning", usage.reasoning),
        ("cached", usage.cached),
        ("write", usage.cache_write),
    ];
    let counts: Vec<_> = counts.iter().filter_map(|(name, count)| Some(format!("{name} {}", (*count)?))).collect();
    line("usage", &counts.join(" "));
    line("error", facts.error.as_deref().unwrap_or_default());
    line("ended", if facts.ended { "yes" } else { "" });
    line("choices", if facts.multi_choice { "several" } else { "" });
    line("summarised", if facts.summarised_reasoning { "yes" } else { "" });
    said
}
