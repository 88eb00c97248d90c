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

fn said(mut observer: Observer, pieces: &mut dyn Iterator<Item = &[u8]>) -> String {
    let mut events = String::new();
    for piece in pieces {
        observer.read(piece, &mut |signal| _ = write!(events, " {}", mark(signal)));
    }
    observer.end(&mut |signal| _ = write!(events, " {}", mark(signal)));
    assert_eq!(observer.off(), None);
    facts(&events, observer.skipped(), &observer.facts())
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
