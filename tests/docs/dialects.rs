//! `docs/dialects.md`: what its tables say is put to the code, both ways: what they claim happens, and what happens they
//! claim.
//!
//! A cell is a list, its parts divided by `;`. In its backticks stand
//!
//! * `a.b[].c`: a field of an event,
//! * `a.b=c`: a field with this value (`…`: with any, or any beginning) that the event has besides; two of one field are
//!   either of them. A part of output that has nothing but `a.b=…` is some by that field alone, whatever its value,
//! * "the same in `a`": all that the cell says before, inside of this field,
//! * `event: name`: the event's own name; `data` is then all of its data,
//! * a dialect's name: all that the same cell of that dialect says and this one reads too.

mod counts;
mod requests;

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::Response;
use serde_json::{Value, json};
use streamgauge::dialect::{Dialect, Facts, Kinds, Observer, Signal};

use crate::{path, read, section};

const KINDS: [(usize, Kinds); 3] = [(1, Kinds::ANSWER), (2, Kinds::REASONING), (3, Kinds::TOOL)];
const NO_OUTPUT: usize = 4;
const END: usize = 5;
const FIXTURE: usize = 6;

/// The rows of the tables of a section, without their heads.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let lines: Vec<&str> = section(page, heading).lines().collect();
    let is_body =
        |at: &usize| lines[*at].starts_with("| ") && !lines.get(at + 1).is_some_and(|next| next.starts_with("|--"));
    let cells = |at: usize| {
        let row = lines[at].strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        row.unwrap_or_else(|| panic!("{}", lines[at])).split('|').map(str::trim).collect()
    };
    (0..lines.len()).filter(is_body).map(cells).collect()
}

/// The rows of a table that has one per dialect.
fn by_dialect<'a>(page: &'a str, heading: &str) -> Vec<(Dialect, Vec<&'a str>)> {
    let named =
        |row: Vec<&'a str>| (Dialect::named(row[0].trim_matches('`')).unwrap_or_else(|| panic!("{row:?}")), row);
    let rows: Vec<_> = rows(page, heading).into_iter().map(named).collect();
    let names: Vec<_> = rows.iter().map(|(dialect, _)| *dialect).collect();
    assert_eq!(names, Dialect::ALL[..Dialect::ALL.len() - 1], "{heading}: one row each, in their order");
    assert_eq!(Dialect::ALL.last(), Some(&Dialect::Other), "which has no row");
    rows
}

/// What stands in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// One part of a cell.
#[derive(Clone, Debug)]
struct Part {
    text: String,
    /// The fields it names.
    fields: Vec<String>,
    /// What may stand beside them: at least an empty event.
    besides: Vec<Event>,
    /// The fields of that, and their values.
    keys: Vec<(String, Vec<String>)>,
}

/// An event: its own name, and its fields.
#[derive(Clone, Default, Debug)]
struct Event {
    name: Option<String>,
    data: Value,
    /// Its data as it is, where that is no JSON.
    raw: Option<String>,
}

/// The parts of a dialect's cell; `cells` are the same cells of all dialects.
fn parts(dialect: Dialect, cells: &[(Dialect, &str)]) -> Vec<Part> {
    let (_, cell) = cells.iter().find(|(of, _)| *of == dialect).unwrap();
    let mut parts = Vec::new();
    for text in cell.split(';') {
        let words = quoted(text);
        if text.contains("the same in ") {
            let inside = words.iter().flat_map(|place| parts.iter().map(move |part: &Part| part.inside(place)));
            parts.extend(inside.collect::<Vec<_>>());
            continue;
        }
        let others: Vec<_> = words.iter().filter_map(|word| Dialect::named(word)).collect();
        if others.is_empty() {
            parts.push(part(text, &words));
            continue;
        }
        let asked = dialect.fields();
        for mut part in others.into_iter().flat_map(|other| self::parts(other, cells)) {
            part.fields.retain(|field| asked.contains(field));
            parts.extend((!part.fields.is_empty()).then_some(part));
        }
    }
    parts
}

fn part(text: &str, words: &[&str]) -> Part {
    let mut fields = Vec::new();
    // What else the event has: of each key one of these values.
    let mut keys: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in words {
        let (key, value) = match (word.strip_prefix("event: "), word.split_once('=')) {
            (Some(name), _) => ("event: ", name),
            (None, Some(pair)) => pair,
            (None, None) => {
                fields.push((*word).to_owned());
                continue;
            }
        };
        match keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => keys.push((key, vec![value])),
        }
    }
    let mut besides = vec![Event::default()];
    for (key, values) in &keys {
        let each = besides.iter().flat_map(|event| values.iter().map(|value| event.beside(key, value)));
        besides = each.collect();
    }
    let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
    let keys = keys.into_iter().map(|(key, values)| (key.to_owned(), owned(values))).collect();
    Part { text: text.trim().to_owned(), fields, besides, keys }
}

impl Part {
    /// The same one level deeper.
    fn inside(&self, place: &str) -> Self {
        let at = |path: &String| format!("{place}.{path}");
        let besides = self.besides.iter().cloned().map(|event| match event.data {
            Value::Null => event,
            data => Event { data: json!({ place: data }), ..event },
        });
        Self {
            text: self.text.clone(),
            fields: self.fields.iter().map(at).collect(),
            besides: besides.collect(),
            keys: self.keys.iter().map(|(key, values)| (at(key), values.clone())).collect(),
        }
    }

    /// In a column of output: the field that is some whatever its value.
    fn whole(&self) -> Option<&String> {
        let (key, values) = self.keys.first().filter(|_| self.fields.is_empty())?;
        assert!(self.keys.len() == 1 && values == &["…"], "{:?} names no field", self.text);
        Some(key)
    }

    /// What it says stands beside this field has another value, or where any will do, none.
    fn without(&self, event: &Event, key: &str) -> Event {
        let (_, values) = self.keys.iter().find(|(of, _)| of == key).unwrap();
        let mut event = event.clone();
        if values == &["…"] {
            event.data.as_object_mut().unwrap().remove(key).unwrap();
            return event;
        }
        event.without(key)
    }
}

fn value_of(word: &str) -> Value {
    let word = word.replace('…', "x");
    serde_json::from_str(&word).unwrap_or_else(|_| json!(word))
}

/// Sets a field, in the first element of each array on its way.
fn set(at: &mut Value, path: &str, leaf: Value) {
    let inside = |rest: &'_ str| rest.strip_prefix('.').unwrap_or(rest).to_owned();
    if let Some(rest) = path.strip_prefix("[]") {
        if !at.is_array() {
            *at = json!([null]);
        }
        set(&mut at[0], &inside(rest), leaf);
    } else if path.is_empty() {
        *at = leaf;
    } else {
        let (key, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
        if !at.is_object() {
            *at = json!({});
        }
        set(&mut at[key], &inside(rest), leaf);
    }
}

/// Whether any value at this path has something in it.
fn is_filled(at: &Value, path: &str) -> bool {
    let inside = |rest: &'_ str| rest.strip_prefix('.').unwrap_or(rest).to_owned();
    if let Some(rest) = path.strip_prefix("[]") {
        return at.as_array().is_some_and(|all| all.iter().any(|each| is_filled(each, &inside(rest))));
    }
    if path.is_empty() {
        return !matches!(at, Value::Null | Value::Bool(false)) && at.as_str() != Some("");
    }
    let (key, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
    is_filled(&at[key], &inside(rest))
}

impl Event {
    /// The same with what a part says stands beside its fields.
    fn beside(&self, key: &str, value: &str) -> Self {
        if key == "event: " {
            return Self { name: Some(value.to_owned()), ..self.clone() };
        }
        self.with(key, value_of(value))
    }

    /// The same without this.
    fn without(&self, key: &str) -> Self {
        if key == "event: " {
            Self { name: Some("other".to_owned()), ..self.clone() }
        } else {
            self.with(key, Value::Null)
        }
    }

    /// The same with this field set.
    fn with(&self, field: &str, value: Value) -> Self {
        let mut event = self.clone();
        if field == "data" && event.name.is_some() {
            event.raw = Some(value.as_str().unwrap().to_owned());
        } else {
            set(&mut event.data, field, value);
        }
        event
    }

    /// What it says, alone in a stream.
    fn read(&self, dialect: Dialect) -> (Signal, Facts) {
        let data = match (&self.raw, &self.data) {
            (Some(raw), _) => raw.clone(),
            (None, Value::Null) => "{}".to_owned(),
            (None, data) => data.to_string(),
        };
        let data = match dialect {
            Dialect::BedrockInvoke => json!({ "bytes": BASE64_STANDARD.encode(data) }).to_string(),
            _ => data,
        };
        let name = self.name.as_ref().map(|name| format!("event: {name}\n")).unwrap_or_default();
        let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap().into_parts().0;
        let mut observer = Observer::new(dialect, &head);
        let mut signals = Vec::new();
        observer.read(format!("{name}data: {data}\n\n").as_bytes(), &mut |signal| signals.push(signal));
        assert_eq!((signals.len(), observer.skipped()), (1, 0), "{self:?}");
        (signals[0], observer.facts())
    }
}

/// The same column of all rows.
fn column<'a>(rows: &[(Dialect, Vec<&'a str>)], column: usize) -> Vec<(Dialect, &'a str)> {
    rows.iter().map(|(dialect, row)| (*dialect, row[column])).collect()
}

#[test]
fn what_is_output_is_output_of_its_kind() {
    let page = read("docs/dialects.md");
    let rows = by_dialect(&page, "## Output");
    let mut claims = 0;
    for (dialect, _) in &rows {
        let asked = dialect.fields();
        for (place, kind) in KINDS {
            for part in parts(*dialect, &column(&rows, place)) {
                if let Some(field) = part.whole() {
                    assert!(asked.contains(field), "{dialect:?} does not ask for {field}");
                    for value in [json!("x"), json!(""), json!(0), json!(false), json!(null)] {
                        let event = Event::default().with(field, value);
                        assert_eq!(event.read(*dialect).0.output, kind, "{dialect:?}: {event:?}");
                        claims += 1;
                    }
                }
                for field in &part.fields {
                    for event in &part.besides {
                        let (full, empty) = (event.with(field, json!("x")), event.with(field, json!("")));
                        assert!(full.raw.is_some() || asked.contains(field), "{dialect:?} does not ask for {field}");
                        let output = full.read(*dialect).0.output;
                        assert!(output.contains(kind), "{dialect:?}: {field} is no {kind:?} in {event:?}");
                        let audio = output.contains(Kinds::AUDIO);
                        assert_eq!(audio, part.text.starts_with("audio"), "{dialect:?}: {field} in {event:?}");
                        let output = empty.read(*dialect).0.output;
                        assert!(output.is_empty(), "{dialect:?}: {field} without anything in it");
                        for (key, _) in &part.keys {
                            let output = part.without(&full, key).read(*dialect).0.output;
                            assert!(!output.contains(kind), "{dialect:?}: {field} is {kind:?} without {key}, too");
                        }
                        claims += 1;
                    }
                }
            }
        }
    }
    assert!(claims > 150, "only {claims} claims");
}

#[test]
fn what_is_read_as_output_is_in_the_table() {
    let page = read("docs/dialects.md");
    let rows = by_dialect(&page, "## Output");
    for (dialect, _) in &rows {
        let parts_of = |place: &usize| parts(*dialect, &column(&rows, *place));
        let (wholes, outputs): (Vec<_>, Vec<_>) =
            KINDS.iter().flat_map(|(place, _)| parts_of(place)).partition(|part| part.whole().is_some());
        let told: Vec<_> =
            wholes.iter().filter_map(Part::whole).chain(outputs.iter().flat_map(|part| &part.fields)).collect();
        let besides = outputs.iter().cloned().chain(parts_of(&NO_OUTPUT)).flat_map(|part| part.besides);
        let besides: Vec<_> = besides.chain([Event::default()]).collect();
        // What is named by its event is all that is in it.
        let is_told = |field: &String| told.contains(&field) || told.iter().any(|told| *told == "data");
        for field in dialect.fields().iter().filter(|field| !is_told(field)) {
            for event in &besides {
                let output = event.with(field, json!("x")).read(*dialect).0.output;
                assert!(output.is_empty(), "{dialect:?}: {field} is output, too ({event:?})");
            }
        }
    }
}

#[test]
fn what_is_no_output_is_none() {
    let page = read("docs/dialects.md");
    for (dialect, row) in by_dialect(&page, "## Output") {
        for part in parts(dialect, &[(dialect, row[NO_OUTPUT])]) {
            for event in &part.besides {
                let events = part.fields.iter().map(|field| event.with(field, json!("x"))).chain([event.clone()]);
                for event in events {
                    assert!(event.read(dialect).0.output.is_empty(), "{dialect:?}: {event:?} is output");
                }
            }
        }
    }
}

#[test]
fn what_ends_a_reply_does() {
    let page = read("docs/dialects.md");
    let rows = by_dialect(&page, "## Output");
    for (dialect, row) in &rows {
        let mut ends = 0;
        for part in parts(*dialect, &column(&rows, END)) {
            for event in &part.besides {
                for field in &part.fields {
                    let done = field == "[DONE]";
                    let event = if done {
                        Event { raw: Some(field.clone()), ..event.clone() }
                    } else {
                        event.with(field, json!("x"))
                    };
                    let (signal, facts) = event.read(*dialect);
                    let is_end = if done { signal.end } else { facts.finish_reasons.contains(&"x".to_owned()) };
                    assert!(is_end, "{dialect:?}: {event:?} is no end");
                    ends += 1;
                }
                if part.fields.is_empty() && (event.name.is_some() || !event.data.is_null()) {
                    assert!(event.read(*dialect).0.end, "{dialect:?}: {event:?} is no end");
                    ends += 1;
                }
            }
        }
        let parts = parts(*dialect, &column(&rows, END));
        let besides = parts.iter().flat_map(|part| &part.besides).cloned().chain([Event::default()]);
        for event in besides {
            for field in dialect.fields() {
                let facts = event.with(&field, json!("x")).read(*dialect).1;
                let told = parts.iter().any(|part| part.fields.contains(&field));
                assert!(told || !facts.finish_reasons.contains(&"x".to_owned()), "{dialect:?}: {field} is an end, too");
            }
        }
        let words = words_of(*dialect).into_iter().map(Value::from).chain([json!(true)]);
        for (field, word) in words.flat_map(|word| dialect.fields().into_iter().map(move |field| (field, word.clone())))
        {
            let is_end = Event::default().with(&field, word.clone()).read(*dialect).0.end;
            let is_it = |value: &String| *value == "…" || value_of(value) == word;
            let keys = parts.iter().flat_map(|part| &part.keys);
            let told = keys
                .filter(|(key, _)| field == *key || field.starts_with(&format!("{key}.")))
                .flat_map(|(_, values)| values)
                .any(is_it);
            assert!(told || !is_end, "{dialect:?}: {field}={word} is an end, too");
        }
        let endless = Event::default().read(*dialect).1.endless;
        assert_eq!(endless, row[END].contains("the connection's"), "{dialect:?}");
        assert!(ends > 0 || *dialect == Dialect::Plain, "{dialect:?}: nothing is said of its end");
    }
}

#[test]
fn the_first_output_of_the_named_fixture_has_a_named_field() {
    let page = read("docs/dialects.md");
    let rows = by_dialect(&page, "## Output");
    for (dialect, row) in &rows {
        let name = quoted(row[FIXTURE])[0];
        if !name.starts_with(dialect.as_str()) {
            assert!(path(name).exists(), "{name}");
            continue;
        }
        let expected = read(&format!("tests/dialects/{name}.expected"));
        let marks = expected.lines().next().unwrap().trim_start_matches("events:").split_whitespace();
        let Some(first) = marks.into_iter().position(|mark| mark.contains(['r', 'a', 't'])) else {
            assert_eq!(*dialect, Dialect::Plain, "{name} has no output");
            continue;
        };
        let Some(data) = events(name).and_then(|events| events.into_iter().nth(first)) else { continue };
        let named = KINDS.iter().flat_map(|(place, _)| parts(*dialect, &column(&rows, *place)));
        let fields: Vec<_> = named.flat_map(|part| part.fields).collect();
        let has = |field: &String| field == "data" || is_filled(&data, field);
        assert!(fields.iter().any(has), "{name}: {data} has none of {fields:?}");
    }
}

/// The events of a fixture that is text; absent of one that is not.
fn events(name: &str) -> Option<Vec<Value>> {
    let text = |ending: &str| fs::read_to_string(path(&format!("tests/dialects/{name}.{ending}"))).ok();
    let value = |data: &str| serde_json::from_str(data).unwrap_or_else(|_| json!(data));
    let lines = |text: String| text.lines().map(value).collect();
    let data = |text: String| {
        let events = text.replace('\r', "");
        let data = |event: &str| event.lines().find_map(|line| Some(value(line.strip_prefix("data:")?.trim_start())));
        events.split("\n\n").filter_map(data).collect()
    };
    text("sse").map(data).or_else(|| text("ndjson").map(lines)).or_else(|| text("chunks").map(lines))
}

#[test]
fn what_is_an_error_is_one_and_in_the_table() {
    let page = read("docs/dialects.md");
    let mut told: Vec<(Dialect, Part)> = Vec::new();
    for row in rows(&page, "## Errors behind a status of 2xx") {
        let dialects = quoted(row[0]).into_iter().map(|name| Dialect::named(name).unwrap());
        let parts = || row[1].split(';').map(|text| part(text, &quoted(text)));
        told.extend(dialects.flat_map(|dialect| parts().map(move |part| (dialect, part))));
    }
    let mut errors = 0;
    for (dialect, part) in &told {
        for event in &part.besides {
            let with = part.fields.iter().map(|field| event.with(field, json!("x")));
            let events: Vec<_> = if part.fields.is_empty() { vec![event.clone()] } else { with.collect() };
            for event in events {
                let (signal, facts) = event.read(*dialect);
                assert!(signal.error && facts.error.is_some(), "{dialect:?}: {event:?} is no error");
                errors += 1;
            }
        }
    }
    assert!(errors > 30, "only {errors} errors");
    for dialect in Dialect::ALL {
        for field in dialect.fields() {
            let is_error = Event::default().with(&field, json!("x")).read(dialect).0.error;
            // What lies in an error makes one of it, too.
            let is_told = |told: &String| field == *told || field.starts_with(&format!("{told}."));
            let parts = || told.iter().filter(|(of, _)| *of == dialect).map(|(_, part)| part);
            let is_in_one = parts().any(|part| part.fields.iter().any(is_told));
            assert!(is_in_one || !is_error, "{dialect:?}: {field} is an error");
            for word in words_of(dialect) {
                let is_error = Event::default().with(&field, json!(word)).read(dialect).0.error;
                let is_it = |(key, values): &(String, Vec<String>)| *key == field && values.contains(&word);
                let is_told = is_in_one || parts().any(|part| part.keys.iter().any(is_it));
                assert!(is_told || !is_error, "{dialect:?}: {field}={word} is an error");
            }
        }
    }
}

/// What the rules compare with: types of events.
fn words_of(dialect: Dialect) -> Vec<String> {
    let source = read(&format!("src/dialect/{}.rs", dialect.as_str()));
    let rules = source.split("#[cfg(test)]").next().unwrap();
    let words: Vec<_> = rules.split("b\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    words.iter().flat_map(|word| [(*word).to_owned(), format!("response.{word}")]).collect()
}

#[test]
fn every_type_of_output_is_in_the_table() {
    let page = read("docs/dialects.md");
    let rows = by_dialect(&page, "## Output");
    let mut tried = 0;
    for (dialect, _) in &rows {
        let words = words_of(*dialect);
        let parts: Vec<_> = KINDS.iter().flat_map(|(place, _)| parts(*dialect, &column(&rows, *place))).collect();
        for part in &parts {
            for (key, _) in part.keys.iter().filter(|(key, _)| key.ends_with("type")) {
                let is_it = |value: &String, word: &String| {
                    let end = value.strip_prefix('…').filter(|end| !end.is_empty());
                    value == word || end.is_some_and(|end| word.ends_with(end))
                };
                let values = || parts.iter().flat_map(|part| &part.keys).flat_map(|(_, values)| values);
                let told = |word: &String| values().any(|value| is_it(value, word));
                for word in words.iter().filter(|word| !told(word)) {
                    for event in part.besides.iter().map(|event| event.with(key, json!(word))) {
                        let is_output =
                            |field: &String| !event.with(field, json!("x")).read(*dialect).0.output.is_empty();
                        assert!(!part.fields.iter().any(is_output), "{dialect:?}: {key}={word} is output, too");
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 100, "only {tried} words");
}

#[test]
fn the_record_has_every_dialect() {
    let page = read("docs/record.md");
    let row = page.lines().find(|line| line.starts_with("| `dialect` |")).unwrap();
    assert_eq!(quoted(row)[1..], Dialect::ALL.map(Dialect::as_str));
}
