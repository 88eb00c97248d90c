//! Recorded WebSocket sessions, put into frames again, against their reference values.
//!
//! The reference counts all messages of the provider's, and has the usage and the finish of the last turn that said any.
//! How often tokens were counted before is checked against the recording itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;
use streamgauge::dialect::{
    Dialect, Facts, Kinds, Signal,
    session::{Asked, Session, Told},
};

use super::{Row, corpus, expected};

/// The recorded families that are sessions.
pub const FAMILIES: [(&str, Dialect); 3] = [
    ("azure-realtime", Dialect::Realtime),
    ("gemini-live", Dialect::GeminiLive),
    ("openai-realtime", Dialect::Realtime),
];

const MASK: [u8; 4] = [0x12, 0x9a, 0x5f, 0xe0];

#[test]
fn recorded_sessions_are_read_as_expected() {
    let Some(corpus) = corpus() else { return };
    let mut ran = BTreeMap::new();
    let mut faults = Vec::new();
    for row in expected(&corpus, "EXPECTED.tsv") {
        let Some((family, dialect)) = FAMILIES.iter().find(|(family, _)| row["dialect"] == *family) else { continue };
        let messages = load(&corpus, family, &row["name"]);
        for width in [usize::MAX, 1] {
            let seen = Seen::read(*dialect, &messages, width);
            let name = format!("{family}/{} at width {width}", row["name"]);
            faults.extend(
                seen.differences(*dialect, &row, &messages).into_iter().map(|fault| format!("{name}: {fault}")),
            );
        }
        *ran.entry(*family).or_insert(0) += 1;
    }
    println!("{} sessions were run whole and byte by byte: {ran:?}", ran.values().sum::<usize>());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(ran.len(), FAMILIES.len(), "each family was run");
}

/// Who sent it, and the text of a message.
pub type Message = (bool, String);

pub fn load(corpus: &Path, family: &str, name: &str) -> Vec<Message> {
    let text = fs::read_to_string(corpus.join(family).join(format!("{name}.ws.jsonl"))).expect("a session");
    let message = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a line");
        (line["dir"] == "sent", line["data"].to_string())
    };
    text.lines().map(message).collect()
}

/// A whole text message in one frame, masked if the client sends it.
fn frame(client: bool, text: &str) -> Vec<u8> {
    let mask = if client { MASK } else { [0; 4] };
    let bit = if client { 0x80 } else { 0 };
    let mut bytes = vec![0x81];
    match u16::try_from(text.len()) {
        Ok(len @ 0..126) => bytes.push(bit | len.to_be_bytes()[1]),
        Ok(len) => bytes.extend([&[bit | 0x7e][..], &len.to_be_bytes()].concat()),
        Err(_) => bytes.extend([&[bit | 0x7f][..], &(text.len() as u64).to_be_bytes()].concat()),
    }
    if client {
        bytes.extend(MASK);
    }
    bytes.extend(text.bytes().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// What a session was read as.
struct Seen {
    /// Each message of the provider's: nothing if it was no turn's.
    messages: Vec<Signal>,
    /// What each turn said.
    turns: Vec<Facts>,
    /// The model each turn asked for.
    models: Vec<Option<String>>,
    off: String,
}

impl Seen {
    fn read(dialect: Dialect, messages: &[Message], width: usize) -> Self {
        let mut session = Session::new(dialect, None, None, None);
        let mut seen = Self { messages: Vec::new(), turns: Vec::new(), models: Vec::new(), off: String::new() };
        for (client, text) in messages {
            let bytes = frame(*client, text);
            for bytes in bytes.chunks(width.min(bytes.len())) {
                if *client {
                    session.client(bytes, &mut |asked| {
                        if let Asked::Response { model } = asked {
                            seen.models.push(model);
                        }
                    });
                } else {
                    session.server(bytes, &mut |told| {
                        let signal = match told {
                            Told::Event(0, signal) => signal,
                            Told::Last(0, signal, facts) => {
                                seen.turns.push(*facts);
                                signal
                            }
                            Told::Nothing => Signal::default(),
                            _ => panic!("one response after another, each asked for: {told:?}"),
                        };
                        seen.messages.push(signal);
                    });
                }
            }
        }
        seen.off = format!("{:?}", session.off());
        seen
    }

    fn differences(&self, dialect: Dialect, row: &Row, messages: &[Message]) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |what: &str, got: String, expected: &str| {
            if got != expected {
                found.push(format!("{what} {got:?}, expected {expected:?}"));
            }
        };
        let place = |index: Option<usize>| index.map(|index| index.to_string()).unwrap_or_default();
        let first = |kinds: Kinds| place(self.messages.iter().position(|signal| signal.output.contains(kinds)));
        let is_output = |signal: &&Signal| !signal.output.is_empty();
        note("n_events", self.messages.len().to_string(), &row["n_events"]);
        note("first_gen", place(self.messages.iter().position(|signal| is_output(&signal))), &row["first_gen"]);
        note("first_reasoning", first(Kinds::REASONING), &row["first_reasoning"]);
        note("first_answer", first(Kinds::ANSWER), &row["first_answer"]);
        note("first_tool", first(Kinds::TOOL), &row["first_tool"]);
        note("gen_events", self.messages.iter().filter(is_output).count().to_string(), &row["gen_events"]);

        let usage =
            self.turns.iter().map(|facts| &facts.usage).rfind(|usage| usage.is_known()).cloned().unwrap_or_default();
        let count = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
        note("input_total", count(usage.input), &row["input_total"]);
        note("output_total", count(usage.output), &row["output_total"]);
        note("reasoning_tokens", count(usage.reasoning), &row["reasoning_tokens"]);
        note("cached_tokens", count(usage.cached), &row["cached_tokens"]);
        let finishes: BTreeSet<_> = self.turns.iter().flat_map(|facts| facts.finish_reasons.clone()).collect();
        note("finish_reason", finishes.into_iter().collect::<Vec<_>>().join("|"), &row["finish_reason"]);
        let error = self.turns.iter().filter_map(|facts| facts.error.clone()).collect::<String>();
        note("error", error, &row["in_stream_error"]);
        note("off", self.off.clone(), "None");

        // What the recording itself says, by a full parse.
        let parsed = |client: bool| {
            let of_side = messages.iter().filter(move |(by, _)| *by == client);
            of_side.map(|(_, text)| serde_json::from_str::<Value>(text).expect("JSON"))
        };
        let asks = match dialect {
            Dialect::Realtime => parsed(true).filter(|message| message["type"] == "response.create").count(),
            _ => parsed(true).filter(|message| message.get("setup").is_none()).count(),
        };
        note("turns asked", self.models.len().to_string(), &asks.to_string());
        note("turns ended", self.turns.iter().filter(|facts| facts.ended).count().to_string(), &asks.to_string());
        let spent = |message: Value| {
            let output = &message["response"]["usage"]["output_tokens"];
            let live = &message["usageMetadata"];
            let live =
                live["responseTokenCount"].as_u64().map(|n| n + live["thoughtsTokenCount"].as_u64().unwrap_or(0));
            output.as_u64().or(live)
        };
        let all: u64 = self.turns.iter().filter_map(|facts| facts.usage.output).sum();
        note("output of all turns", all.to_string(), &parsed(false).filter_map(spent).sum::<u64>().to_string());
        let model = match dialect {
            Dialect::Realtime => {
                parsed(false).find_map(|message| message["session"]["model"].as_str().map(str::to_owned))
            }
            _ => parsed(true)
                .find_map(|message| message["setup"]["model"].as_str()?.strip_prefix("models/").map(str::to_owned)),
        };
        note("models", format!("{:?}", self.models), &format!("{:?}", vec![model; asks]));
        found
    }
}
