//! Read at several widths and at random cuts, and compared with the reference values.

use std::collections::BTreeMap;

use streamgauge::dialect::{Facts, Kinds, Observer, ObserverOff, Signal};

use super::{Recording, recordings};

/// Bytes per read.
const WIDTHS: [usize; 4] = [usize::MAX, 64, 7, 1];

/// Readings at random cuts.
const RANDOM: u64 = 4;

#[test]
fn recorded_replies_are_read_as_expected() {
    let Some(recordings) = recordings() else { return };
    let (mut compared, mut faults) = (0, Vec::new());
    let mut families: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for recording in &recordings {
        let mut compare = Comparison::default();
        recording.compare(&mut compare);
        compared += compare.made;
        let (ran, matched) = families.entry(&recording.family).or_default();
        *ran += 1;
        *matched += usize::from(compare.faults.is_empty());
        if !compare.faults.is_empty() {
            faults.push(format!("{}: {}", recording.name, compare.faults.join("; ")));
        }
    }
    for (family, (ran, matched)) in families {
        println!("{family:24} {matched:3} of {ran:3} match");
    }
    println!("{} recordings x {} readings, {compared} values compared", recordings.len(), WIDTHS.len() as u64 + RANDOM);
    assert!(faults.is_empty(), "{} recordings are misread:\n{}", faults.len(), faults.join("\n"));
}

/// Of a value that differs, so many characters are shown.
const MOST_SHOWN: usize = 300;

/// What was compared, and what differed.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) made: usize,
    pub(super) faults: Vec<String>,
}

impl Comparison {
    pub(super) fn check(&mut self, what: &str, got: impl ToString, expected: impl ToString) {
        let (got, expected) = (got.to_string(), expected.to_string());
        self.made += 1;
        if got != expected {
            let short = |text: &str| text.chars().take(MOST_SHOWN).collect::<String>();
            self.faults.push(format!("{what} is {:?}, expected {:?}", short(&got), short(&expected)));
        }
    }
}

impl Recording {
    /// Everything that the reference says, against what is read whole; and that against what is read in pieces.
    fn compare(&self, compare: &mut Comparison) {
        let whole = self.read([&*self.body]);
        whole.check(self, compare);
        self.check_request(compare);
        for width in &WIDTHS[1..] {
            let seen = self.read(self.body.chunks(*width));
            compare.check(&format!("what is read by {width}"), seen.unlike(&whole), "");
        }
        for seed in self.seeds(RANDOM) {
            let seen = self.read(self.at_random(seed));
            compare.check(&format!("what is read at the cuts of seed {seed}"), seen.unlike(&whole), "");
        }
    }

    /// The body read in these pieces.
    pub(super) fn read<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
        let mut observer = Observer::new(self.dialect, &self.head);
        let mut events = Vec::new();
        for piece in pieces {
            observer.read(piece, &mut |signal| events.push(signal));
        }
        observer.end(&mut |signal| events.push(signal));
        let off = observer.off().map(ObserverOff::as_str).unwrap_or_default();
        Seen { events, facts: observer.facts(), skipped: observer.skipped(), off }
    }

    /// The request's model and whether it asks for a stream, against a full parse.
    fn check_request(&self, compare: &mut Comparison) {
        let Ok(body) = serde_json::from_str::<serde_json::Value>(&self.request_body) else { return };
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        if let Some(model) = body["model"].as_str()
            && !self.request.uri.path().contains("/deployments/")
        {
            compare.check("the request's model", text(self.asked.model.as_deref()), model);
        }
        if let Some(stream) = body["stream"].as_bool() {
            compare.check("the request's stream", self.asked.stream == Some(true), stream);
        }
    }

    /// What the reply said as a whole. Also of a reply that passed the proxy.
    pub(super) fn check_facts(&self, facts: &Facts, asked: Option<&str>, compare: &mut Comparison) {
        let usage = &facts.usage;
        for (column, count) in [
            ("input_total", usage.input),
            ("output_total", usage.output),
            ("reasoning_tokens", usage.reasoning),
            ("cached_tokens", usage.cached),
            ("cache_write_tokens", usage.cache_write),
        ] {
            compare.check(column, shown(count), &self.row[column]);
        }
        compare.check("finish_reason", facts.finish_reasons.join("|"), &self.row["finish_reason"]);
        // The reference has the model that served, or that was asked for where the reply does not say.
        compare.check("model", facts.response_model.as_deref().or(asked).unwrap_or_default(), &self.row["model"]);
        self.check_error(facts, compare);
        if self.streamed {
            let array = self.body_is_array();
            // Bedrock's invocation metrics end its streams; the reference names only what the vendors end with.
            if self.family != "bedrock-invoke" || !self.row["end_marker"].is_empty() {
                compare.check("end_marker", facts.ended, !self.row["end_marker"].is_empty() || array);
            }
            compare.check("several choices", facts.multi_choice, self.row["notes"].contains("multi-choice"));
        }
    }

    /// Whether there is an error in the reply, and by which name: its type, else its code.
    fn check_error(&self, facts: &Facts, compare: &mut Comparison) {
        let expected = &self.row[if self.streamed { "in_stream_error" } else { "error" }];
        let payload = expected.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(&expected[at..]).ok());
        let named = payload.as_ref().and_then(|error| {
            let code = || error["code"].as_i64().map(|code| code.to_string());
            let text = |key: &str| error[key].as_str().map(str::to_owned);
            text("type").or(text("code")).or_else(code)
        });
        match named {
            Some(named) => compare.check("error", facts.error.as_deref().unwrap_or_default(), named),
            // The status has said so already: a text alone need not be understood as an error.
            None if self.head.status.is_client_error() => {}
            None => compare.check("error", facts.error.is_some(), !expected.is_empty()),
        }
    }

    /// Whether the body is a JSON array, whose last bracket is an end that the reference does not count as one.
    fn body_is_array(&self) -> bool {
        self.row["notes"].contains("json-array")
    }
}

/// What a body was read as.
pub(super) struct Seen {
    pub(super) events: Vec<Signal>,
    pub(super) facts: Facts,
    skipped: u32,
    off: &'static str,
}

impl Seen {
    /// The first thing in which it differs from another one; empty if there is none.
    fn unlike(&self, other: &Self) -> String {
        let event = |seen: &Self, place: usize| format!("{:?}", seen.events.get(place));
        let rest = |seen: &Self| format!("{:?} {} {}", seen.facts, seen.skipped, seen.off);
        let most = self.events.len().max(other.events.len());
        if let Some(place) = (0..most).find(|&place| self.events.get(place) != other.events.get(place)) {
            return format!("event {place} {} and not {}", event(self, place), event(other, place));
        }
        if rest(self) == rest(other) { String::new() } else { format!("{} and not {}", rest(self), rest(other)) }
    }

    fn check(&self, recording: &Recording, compare: &mut Comparison) {
        if recording.streamed {
            self.check_events(recording, compare);
        }
        recording.check_facts(&self.facts, recording.asked.model.as_deref(), compare);
        compare.check("why it is no longer read", self.off, "");
        compare.check("events that can't be read", self.skipped, 0);
    }

    fn check_events(&self, recording: &Recording, compare: &mut Comparison) {
        let row = &recording.row;
        let first = |is: &dyn Fn(&Signal) -> bool| shown(self.events.iter().position(is));
        let output = |signal: &Signal| !signal.output.is_empty();
        compare.check("n_events", self.events.len(), &row["n_events"]);
        compare.check("first_gen", first(&output), &row["first_gen"]);
        compare.check("gen_events", self.events.iter().filter(|signal| output(signal)).count(), &row["gen_events"]);
        for (column, kinds) in
            [("first_reasoning", Kinds::REASONING), ("first_answer", Kinds::ANSWER), ("first_tool", Kinds::TOOL)]
        {
            compare.check(column, first(&|signal| signal.output.contains(kinds)), &row[column]);
        }
        // An error that is no event (a bare object, a field `error`) says so behind its place.
        let (place, payload) = row["in_stream_error"].split_once(':').unwrap_or_default();
        let place = if payload.starts_with('{') { place } else { "" };
        compare.check("the event of in_stream_error", first(&|signal| signal.error), place);
    }
}

/// A number as the tables write it: nothing if there is none.
pub(super) fn shown<T: ToString>(number: Option<T>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
