//! What is counted and timed. A count's cell says what it is made of: fields added up (`a` + `b`), or else others ("or").
//! A time's says the phase, its fields and their unit; "in `place`:" says where the fields of this and of the following
//! parts stand.

use std::collections::BTreeSet;

use serde_json::json;
use streamgauge::{
    clock::Nanos,
    dialect::{Dialect, Facts, Usage},
};

use super::{Event, by_dialect, part, quoted, rows};
use crate::{read, section};

const PLACES: usize = 1;
const COUNTS: [usize; 5] = [2, 3, 4, 5, 6];
const TIMES: usize = 7;

fn counted(usage: &Usage) -> [Option<u64>; 5] {
    [usage.input, usage.output, usage.reasoning, usage.cached, usage.cache_write]
}

/// Where a dialect's counts stand, and the sums that each of the five may be, in their order.
struct Claims {
    places: Vec<String>,
    besides: Event,
    sums: [Vec<Vec<String>>; 5],
}

impl Claims {
    fn of(row: &[&str]) -> Self {
        let place = part(row[PLACES], &quoted(row[PLACES]));
        let top = row[PLACES].contains("top level").then(String::new);
        Self {
            places: place.fields.into_iter().chain(top).collect(),
            besides: place.besides[0].clone(),
            sums: COUNTS.map(|count| sums(row[count])),
        }
    }

    /// The places at which all of these counts are asked for.
    fn places_of(&self, names: &[String], asked: &[String]) -> Vec<&str> {
        let is_asked = |place: &str| names.iter().all(|name| asked.contains(&at(place, name)));
        self.places.iter().map(String::as_str).filter(|place| is_asked(place)).collect()
    }

    /// An event with these counts: powers of two, so that each sum is made of its own.
    fn event(&self, place: &str, names: &[String]) -> Event {
        let set = |event: Event, (power, name): (u32, &String)| event.with(&at(place, name), json!(1_u64 << power));
        (4..).zip(names).fold(self.besides.clone(), set)
    }
}

/// The sums of a cell.
fn sums(cell: &str) -> Vec<Vec<String>> {
    let names = |sum: &str| quoted(sum).into_iter().map(str::to_owned).collect::<Vec<_>>();
    cell.split(" or ").map(names).filter(|sum| !sum.is_empty()).collect()
}

fn at(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// What this sum comes to in [`Claims::event`] of these names.
fn sum(of: &[String], names: &[String]) -> u64 {
    of.iter().map(|name| 1_u64 << (4 + names.iter().position(|other| other == name).unwrap())).sum()
}

#[test]
fn counts_are_made_of_what_the_table_says() {
    let page = read("docs/dialects.md");
    let mut claims = 0;
    for (dialect, row) in by_dialect(&page, "## Usage and times") {
        let (row, asked) = (Claims::of(&row), dialect.fields());
        // All at once: what lies inside of another is not added to it.
        let mut all: Vec<String> = row.sums.iter().filter_map(|sums| sums.first()).flatten().cloned().collect();
        all.sort();
        all.dedup();
        if !all.is_empty() {
            let places = row.places_of(&all, &asked);
            assert!(!places.is_empty(), "{dialect:?}: {all:?} stand nowhere together");
            for place in places {
                let usage = row.event(place, &all).read(dialect).1.usage;
                let expected = row.sums.clone().map(|sums| sums.first().map(|of| sum(of, &all)));
                assert_eq!(counted(&usage), expected, "{dialect:?}: {all:?} at {place:?}");
            }
        }
        // Each alone.
        for (count, sums) in row.sums.iter().enumerate() {
            for of in sums {
                let places = row.places_of(of, &asked);
                assert!(!places.is_empty(), "{dialect:?}: {of:?} stand nowhere");
                for place in places {
                    let usage = row.event(place, of).read(dialect).1.usage;
                    assert_eq!(counted(&usage)[count], Some(sum(of, of)), "{dialect:?}: {of:?} at {place:?}");
                    claims += 1;
                }
            }
        }
        for place in &row.places {
            let names = row.sums.iter().flatten().flatten();
            assert!(names.into_iter().any(|name| asked.contains(&at(place, name))), "{dialect:?}: nothing at {place}");
        }
    }
    assert!(claims > 80, "only {claims} claims");
}

#[test]
fn what_is_counted_is_in_the_table() {
    let page = read("docs/dialects.md");
    for (dialect, row) in by_dialect(&page, "## Usage and times") {
        let row = Claims::of(&row);
        for field in dialect.fields() {
            let usage = row.besides.with(&field, json!(7)).read(dialect).1.usage;
            for (sums, count) in row.sums.iter().zip(counted(&usage)) {
                let is_told = |place: &String| sums.iter().flatten().any(|name| at(place, name) == field);
                assert!(count.is_none() || row.places.iter().any(is_told), "{dialect:?} counts {field}");
            }
        }
    }
}

/// A stated time: its phase, its fields, and what one of its unit is in nanoseconds.
struct Time {
    phase: String,
    fields: Vec<String>,
    unit: u64,
}

/// The times of a cell.
fn times(cell: &str) -> Vec<Time> {
    let mut times = Vec::new();
    let mut places = vec![""];
    for text in cell.split(';').map(str::trim).filter(|text| text.contains('`')) {
        let mut text = text;
        if let Some((place, rest)) = text.strip_prefix("in ").and_then(|text| text.split_once(": ")) {
            (places, text) = (quoted(place), rest);
        }
        let (phase, unit) = (text.split(' ').next().unwrap(), text.rsplit(' ').next().unwrap());
        let unit = match unit {
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "ns" => 1,
            _ => panic!("{text:?} has no unit"),
        };
        for place in &places {
            let fields = quoted(text).into_iter().map(|name| at(place, name)).collect();
            times.push(Time { phase: phase.to_owned(), fields, unit });
        }
    }
    times
}

/// The times of every dialect: of those of OpenAI's chat by provider.
fn all_times(page: &str) -> Vec<(Dialect, Vec<Time>)> {
    let providers = rows(page, "## Who speaks OpenAI's chat");
    let of = |(dialect, row): (Dialect, Vec<&str>)| {
        let chat = providers.iter().filter(|_| dialect == Dialect::OpenAiChat).flat_map(|provider| times(provider[4]));
        (dialect, times(row[TIMES]).into_iter().chain(chat).collect())
    };
    by_dialect(page, "## Usage and times").into_iter().map(of).collect()
}

fn reported(facts: &Facts, phase: &str) -> Option<Nanos> {
    facts.reported.named().into_iter().find(|(name, _)| *name == phase).unwrap_or_else(|| panic!("no {phase:?}")).1
}

#[test]
fn times_become_what_the_table_says() {
    let page = read("docs/dialects.md");
    let mut claims = 0;
    for (dialect, times) in all_times(&page) {
        for Time { phase, fields, unit } in times {
            let set = |event: Event, (power, field): (u32, &String)| event.with(field, json!(1_u64 << power));
            let event = (0..).zip(&fields).fold(Event::default(), set);
            let expected = ((1_u64 << fields.len()) - 1) * unit;
            let facts = event.read(dialect).1;
            assert_eq!(reported(&facts, &phase), Some(Nanos(expected)), "{dialect:?}: {phase} of {fields:?}");
            claims += 1;
        }
    }
    assert!(claims > 50, "only {claims} claims");
}

#[test]
fn what_is_timed_is_in_the_tables() {
    let (page, numbers) = (read("docs/dialects.md"), read("docs/numbers.md"));
    let numbers = quoted(section(&numbers, "## What the provider says of itself"));
    for (dialect, times) in all_times(&page) {
        for field in dialect.fields() {
            let facts = Event::default().with(&field, json!(7)).read(dialect).1;
            if facts.reported.named().iter().any(|(_, time)| time.is_some()) {
                assert!(times.iter().any(|time| time.fields.contains(&field)), "{dialect:?} takes {field}");
                let name = field.rsplit('.').next().unwrap();
                let is_it = |word: &&str| word.rsplit('.').next() == Some(name);
                assert!(numbers.iter().any(is_it), "{dialect:?} takes {field}: docs/numbers.md does not say so");
            }
        }
    }
}

#[test]
fn providers_reasoning_is_read() {
    let page = read("docs/dialects.md");
    for row in rows(&page, "## Who speaks OpenAI's chat") {
        for field in quoted(row[1]) {
            let event = Event::default().with(&format!("choices[].delta.{field}"), json!("x"));
            let output = event.read(Dialect::OpenAiChat).0.output;
            assert!(output.contains(streamgauge::dialect::Kinds::REASONING), "{}: {field}", row[0]);
        }
    }
}

/// The phases that a cell names.
fn phases(cell: &str) -> BTreeSet<&str> {
    let words = cell.split(|char: char| !char.is_ascii_alphabetic());
    words.filter(|word| ["queue", "prefill", "decode", "ttft", "total"].contains(word)).collect()
}

#[test]
fn the_list_by_provider_says_what_the_tables_say() {
    let page = read("docs/dialects.md");
    let (list, chats) = (rows(&page, "## By provider"), rows(&page, "## Who speaks OpenAI's chat"));
    let (requests, counts) = (by_dialect(&page, "## Requests"), by_dialect(&page, "## Usage and times"));
    // Without what is added to tell its APIs apart.
    let name = |cell: &str| cell.split([',', '\'', '(']).next().unwrap().trim().to_owned();
    let speaks = |row: &[&str], chat: &[&str]| row[1].contains("`openai_chat`") && row[0].contains(&name(chat[0]));

    for row in &list {
        let dialects: Vec<_> = quoted(row[1]).into_iter().map(|name| Dialect::named(name).unwrap()).collect();
        let mut known = BTreeSet::new();
        for dialect in &dialects {
            let row_of = |rows: &[(Dialect, Vec<&str>)]| rows.iter().position(|(of, _)| of == dialect).unwrap();
            known.extend(phases(counts[row_of(&counts)].1[TIMES]));
            let spoken_by = requests[row_of(&requests)].1[1];
            let everyones = [Dialect::OpenAiChat, Dialect::OpenAiMedia, Dialect::Plain].contains(dialect);
            assert!(everyones || spoken_by.contains(&name(row[0])), "{} does not speak {dialect:?}", row[0]);
        }
        let chats: Vec<_> = chats.iter().filter(|chat| speaks(row, chat)).collect();
        known.extend(chats.iter().flat_map(|chat| phases(chat[4])));
        if known.contains("queue") && known.contains("prefill") {
            known.insert("ttft"); // The one sum that is made of what a provider says.
        }
        assert!(phases(row[3]).is_subset(&known), "{}: {}", row[0], row[3]);
        for chat in chats {
            assert_eq!(chat[2].starts_with("if asked"), row[2].contains("if asked"), "{}: {}", row[0], row[2]);
            assert!(phases(chat[4]).is_subset(&phases(row[3])), "{}: {}", row[0], row[3]);
        }
    }
    let named: BTreeSet<_> = list.iter().flat_map(|row| quoted(row[1])).collect();
    assert!(Dialect::ALL.iter().all(|dialect| *dialect == Dialect::Other || named.contains(dialect.as_str())));
    for chat in &chats {
        assert!(list.iter().any(|row| speaks(row, chat)), "{} is not in the list", chat[0]);
    }
}
