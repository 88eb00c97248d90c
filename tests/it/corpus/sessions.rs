//! Recorded WebSocket sessions, put into frames again, against their reference values.
//!
//! The reference counts all messages of the provider's, and has the usage and the finish of the last turn that said any.
//! How often tokens were counted before is checked against the recording itself.

use std::{collections::BTreeSet, fs};

use serde_json::Value;
use streamgauge::dialect::{
    Dialect, Facts, Kinds, Signal,
    session::{Asked, Session, Told},
};

use super::{
    Row, corpus, expected, file,
    reading::{Comparison, shown},
};
use crate::turns::frames::{asks, says};

/// The recorded families that are sessions.
const FAMILIES: [(&str, Dialect); 3] = [
    ("azure-realtime", Dialect::Realtime),
    ("gemini-live", Dialect::GeminiLive),
    ("openai-realtime", Dialect::Realtime),
];

/// One recorded session.
pub(super) struct Recorded {
    pub(super) dialect: Dialect,
    /// Family and name.
    pub(super) name: String,
    /// The reference values.
    pub(super) row: Row,
    pub(super) messages: Vec<Message>,
}

/// Whether the client sent it, and the text of a message.
type Message = (bool, String);

/// All recorded sessions; absent if there are no recordings.
pub(super) fn sessions() -> Option<Vec<Recorded>> {
    let corpus = corpus()?;
    let session = |row: Row| {
        let (family, dialect) = FAMILIES.into_iter().find(|(family, _)| row["dialect"] == *family)?;
        let text = fs::read_to_string(file(&corpus.join(family).join(&row["name"]), "ws.jsonl")).expect("a session");
        let message = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("a line");
            (line["dir"] == "sent", line["data"].to_string())
        };
        let messages = text.lines().map(message).collect();
        Some(Recorded { dialect, name: format!("{family}/{}", row["name"]), row, messages })
    };
    let sessions: Vec<_> = expected(&corpus, "EXPECTED.tsv").into_iter().filter_map(session).collect();
    let families: BTreeSet<_> = sessions.iter().map(|session| &session.row["dialect"]).collect();
    assert_eq!(families.len(), FAMILIES.len(), "there are sessions of each family");
    Some(sessions)
}

#[test]
fn recorded_sessions_are_read_as_expected() {
    let Some(sessions) = sessions() else { return };
    let mut faults = Vec::new();
    for session in &sessions {
        for width in [usize::MAX, 1] {
            let mut compare = Comparison::default();
            Seen::read(session, width).check(session, &mut compare);
            faults.extend(compare.faults.iter().map(|fault| format!("{} at width {width}: {fault}", session.name)));
        }
    }
    println!("{} sessions were run whole and byte by byte", sessions.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
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
    fn read(recorded: &Recorded, width: usize) -> Self {
        let mut session = Session::new(recorded.dialect, None, None, None);
        let mut seen = Self { messages: Vec::new(), turns: Vec::new(), models: Vec::new(), off: String::new() };
        for (client, text) in &recorded.messages {
            let bytes = if *client { asks(text) } else { says(text) };
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

    fn check(&self, session: &Recorded, compare: &mut Comparison) {
        let row = &session.row;
        let first = |kinds: Kinds| shown(self.messages.iter().position(|signal| signal.output.contains(kinds)));
        let is_output = |signal: &&Signal| !signal.output.is_empty();
        compare.check("n_events", self.messages.len(), &row["n_events"]);
        compare.check(
            "first_gen",
            shown(self.messages.iter().position(|signal| is_output(&signal))),
            &row["first_gen"],
        );
        compare.check("first_reasoning", first(Kinds::REASONING), &row["first_reasoning"]);
        compare.check("first_answer", first(Kinds::ANSWER), &row["first_answer"]);
        compare.check("first_tool", first(Kinds::TOOL), &row["first_tool"]);
        compare.check("gen_events", self.messages.iter().filter(is_output).count(), &row["gen_events"]);

        let usage =
            self.turns.iter().map(|facts| &facts.usage).rfind(|usage| usage.is_known()).cloned().unwrap_or_default();
        compare.check("input_total", shown(usage.input), &row["input_total"]);
        compare.check("output_total", shown(usage.output), &row["output_total"]);
        compare.check("reasoning_tokens", shown(usage.reasoning), &row["reasoning_tokens"]);
        compare.check("cached_tokens", shown(usage.cached), &row["cached_tokens"]);
        let finishes: BTreeSet<_> = self.turns.iter().flat_map(|facts| facts.finish_reasons.clone()).collect();
        compare.check("finish_reason", finishes.into_iter().collect::<Vec<_>>().join("|"), &row["finish_reason"]);
        let error = self.turns.iter().filter_map(|facts| facts.error.clone()).collect::<String>();
        compare.check("error", error, &row["in_stream_error"]);
        compare.check("why it is no longer read", &self.off, "None");

        // What the recording itself says, by a full parse.
        let parsed = |client: bool| {
            let of_side = session.messages.iter().filter(move |(by, _)| *by == client);
            of_side.map(|(_, text)| serde_json::from_str::<Value>(text).expect("JSON"))
        };
        let asks = match session.dialect {
            Dialect::Realtime => parsed(true).filter(|message| message["type"] == "response.create").count(),
            _ => parsed(true).filter(|message| message.get("setup").is_none()).count(),
        };
        compare.check("turns asked", self.models.len(), asks);
        compare.check("turns ended", self.turns.iter().filter(|facts| facts.ended).count(), asks);
        let spent = |message: Value| {
            let output = &message["response"]["usage"]["output_tokens"];
            let live = &message["usageMetadata"];
            let live =
                live["responseTokenCount"].as_u64().map(|n| n + live["thoughtsTokenCount"].as_u64().unwrap_or(0));
            output.as_u64().or(live)
        };
        let all: u64 = self.turns.iter().filter_map(|facts| facts.usage.output).sum();
        compare.check("output of all turns", all, parsed(false).filter_map(spent).sum::<u64>());
        let model = match session.dialect {
            Dialect::Realtime => {
                parsed(false).find_map(|message| message["session"]["model"].as_str().map(str::to_owned))
            }
            _ => parsed(true)
                .find_map(|message| message["setup"]["model"].as_str()?.strip_prefix("models/").map(str::to_owned)),
        };
        compare.check("models", format!("{:?}", self.models), format!("{:?}", vec![model; asks]));
    }
}
