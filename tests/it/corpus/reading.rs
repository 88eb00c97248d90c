//! Read at several widths and compared with the reference values.

use std::collections::BTreeMap;

use streamgauge::dialect::{Facts, Kinds, Observer, RequestScan, Signal, recognise};

use super::{REQUIRED, Recording, Row, corpus, expected};

/// How many of the other recordings that speak a dialect that is read are known to match.
const OTHERS_KNOWN: usize = 144;

/// Bytes per read; 0 is all at once.
const WIDTHS: [usize; 4] = [0, 64, 7, 1];

#[test]
fn recorded_replies_are_read_as_expected() {
    let Some(corpus) = corpus() else { return };
    let mut faults = Vec::new();
    let mut tally: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for (table, streamed) in [("EXPECTED.tsv", true), ("EXPECTED_NONSTREAM.tsv", false)] {
        for row in expected(&corpus, table) {
            let (family, name) = (&row["dialect"], &row["name"]);
            let Some(recording) = Recording::load(&corpus, family, name) else { continue };
            let found = recording.compare(&row, streamed);
            let (ran, wrong) = tally.entry(family.clone()).or_default();
            *ran += 1;
            if !found.is_empty() {
                wrong.push(name.clone());
                faults.push((family.clone(), format!("{family}/{name}: {}", found.join("; "))));
            }
        }
    }
    for (family, (ran, wrong)) in &tally {
        println!("{family:24} {:3} of {ran:3} match", ran - wrong.len());
    }
    for (_, fault) in &faults {
        println!("{fault}");
    }
    let ran: usize = tally.values().map(|(ran, _)| ran).sum();
    println!("{ran} recordings were run at {} widths, {} match", WIDTHS.len(), ran - faults.len());
    for family in REQUIRED {
        assert!(tally.get(family).is_some_and(|(ran, wrong)| *ran > 0 && wrong.is_empty()), "{family} must match");
    }
    let others = |family: &String| !REQUIRED.contains(&family.as_str());
    let matching: usize =
        tally.iter().filter(|(family, _)| others(family)).map(|(_, (ran, wrong))| ran - wrong.len()).sum();
    assert!(matching >= OTHERS_KNOWN, "{matching} of the others match, {OTHERS_KNOWN} did before");
}

impl Recording {
    /// What differs from the reference values.
    fn compare(&self, row: &Row, streamed: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut first = None;
        for width in WIDTHS {
            let seen = self.read(width);
            let mut note = |what: &str, got: String| {
                if first.is_none() && row[what] != got {
                    found.push(format!("{what} {got:?}, expected {:?}", row[what]));
                }
            };
            if streamed {
                seen.check_events(&mut note);
            }
            seen.check_facts(&mut note);
            seen.check_error(row, streamed, &mut found);
            match &first {
                None => first = Some(seen),
                Some(first) if first.says() != seen.says() => found.push(format!("another result at width {width}")),
                Some(_) => {}
            }
        }
        self.check_request(&mut found);
        found
    }

    fn read(&self, width: usize) -> Seen {
        let mut observer = Observer::new(self.dialect, &self.head);
        let mut events = Vec::new();
        let width = if width == 0 { self.body.len().max(1) } else { width };
        for piece in self.body.chunks(width) {
            observer.read(piece, &mut |signal| events.push(signal));
        }
        observer.end(&mut |signal| events.push(signal));
        Seen { events, facts: observer.facts(), off: format!("{:?}", observer.off()) }
    }

    /// The request's model and whether it asks for a stream, against a full parse.
    fn check_request(&self, found: &mut Vec<String>) {
        let Ok(body) = serde_json::from_str::<serde_json::Value>(&self.request_body) else { return };
        let mut scan = RequestScan::new(recognise(&self.request, None), &self.request);
        let mut facts = None;
        for piece in self.request_body.as_bytes().chunks(7) {
            facts = facts.or(scan.read(piece));
        }
        let facts = facts.or(scan.finish()).unwrap_or_default();
        let model = body["model"].as_str().map(str::to_owned);
        if model.is_some() && !self.request.uri.path().contains("/deployments/") && facts.model != model {
            found.push(format!("request model {:?}, expected {model:?}", facts.model));
        }
        if body["stream"].as_bool().is_some() && facts.stream != body["stream"].as_bool() {
            found.push(format!("request stream {:?}", facts.stream));
        }
    }
}

struct Seen {
    events: Vec<Signal>,
    facts: Facts,
    off: String,
}

impl Seen {
    fn says(&self) -> String {
        format!("{:?} {:?} {}", self.events, self.facts, self.off)
    }

    fn check_events(&self, note: &mut impl FnMut(&str, String)) {
        let first = |kinds: Kinds| {
            let place = self.events.iter().position(|event| event.output.contains(kinds));
            place.map(|index| index.to_string()).unwrap_or_default()
        };
        let any = self.events.iter().position(|event| !event.output.is_empty());
        let count = self.events.iter().filter(|event| !event.output.is_empty()).count();
        note("n_events", self.events.len().to_string());
        note("first_gen", any.map(|index| index.to_string()).unwrap_or_default());
        note("first_reasoning", first(Kinds::REASONING));
        note("first_answer", first(Kinds::ANSWER));
        note("first_tool", first(Kinds::TOOL));
        note("gen_events", count.to_string());
    }

    fn check_facts(&self, note: &mut impl FnMut(&str, String)) {
        let usage = &self.facts.usage;
        let number = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
        note("input_total", number(usage.input));
        note("output_total", number(usage.output));
        note("reasoning_tokens", number(usage.reasoning));
        note("cached_tokens", number(usage.cached));
        note("cache_write_tokens", number(usage.cache_write));
        note("finish_reason", self.facts.finish_reasons.join("|"));
    }

    fn check_error(&self, row: &Row, streamed: bool, found: &mut Vec<String>) {
        let expected = if streamed { &row["in_stream_error"] } else { &row["error"] };
        if streamed && !row["end_marker"].is_empty() && !self.facts.ended {
            found.push(format!("its end {:?} was not seen", row["end_marker"]));
        }
        let payload = expected.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(&expected[at..]).ok());
        let named = payload.as_ref().and_then(|error| {
            let name =
                |key: &str| error[key].as_str().map(str::to_owned).or(error[key].as_i64().map(|n| n.to_string()));
            name("type").or(name("code"))
        });
        let right = match (&self.facts.error, named) {
            (Some(seen), Some(named)) => *seen == named,
            (seen, None) => seen.is_some() != expected.is_empty(),
            (None, Some(_)) => false,
        };
        if !right {
            found.push(format!("error {:?}, expected {:.80}", self.facts.error, expected));
        }
    }
}
