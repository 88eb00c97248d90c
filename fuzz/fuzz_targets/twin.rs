//! Events that are known again say the same as events that are read: a stream of one event and of what it is after each of
//! some changes, read whole and in such pieces that no event can be known again.
#![no_main]

use fuzz::{
    Cut, Input, STATE, alike, bounded, fixtures,
    observed::{choices, head, observe, pass},
    pick, seed,
};
use libfuzzer_sys::fuzz_target;
use streamgauge::dialect::{Dialect, Observer};

/// How the events are framed: what is before, between and behind them.
const FRAMES: [(&str, [&str; 3]); 5] = [
    ("text/event-stream", ["data: ", "\n\ndata: ", "\n\n"]),
    ("text/event-stream", ["event: x\r\ndata:", "\r\n\r\nevent: x\r\ndata:", "\r\n\r\n"]),
    ("text/event-stream", ["data: ", "\r\rdata: ", "\r\r"]),
    ("application/x-ndjson", ["", "\n", "\n"]),
    ("application/json", ["[", ",\n", "]"]),
];

/// Ends the event; the changes follow.
const CHANGES: u8 = 0xff;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let dialect = pick(input.choices[0], &Dialect::ALL);
    let (content_type, [begin, between, end]) = pick(input.choices[1], &FRAMES);
    let events = events(input.body);
    let stream = [begin.as_bytes(), &events.join(between.as_bytes()), end.as_bytes()].concat();
    let head = head(Some(content_type), None);
    alike(&input, &stream, |pieces| observe(dialect, &head, pieces));
    bounded(STATE - size_of::<Observer>(), || pass(dialect, &head, &mut Cut::Whole.pieces(&stream)));
});

/// The event twice, and what it is after each change: `u16` where, `u8` bytes left out, `u8` bytes put there instead,
/// and these. Every second event is the first one again if the lowest bit of where says so.
fn events(body: &[u8]) -> Vec<Vec<u8>> {
    let (event, rest) = body.split_at(body.iter().position(|&byte| byte == CHANGES).unwrap_or(body.len()));
    let mut events = vec![event.to_vec(), event.to_vec()];
    let mut changes = rest.get(1..).unwrap_or_default();
    while let Some((&[high, low, out, len], rest)) = changes.split_first_chunk() {
        let (new, rest) = rest.split_at(usize::from(len).min(rest.len()));
        let at = usize::from(u16::from_be_bytes([high & 0x7f, low])).min(event.len());
        let behind = (at + usize::from(out)).min(event.len());
        events.push([&event[..at], new, &event[behind..]].concat());
        if high & 0x80 != 0 {
            events.push(event.to_vec());
        }
        changes = rest;
    }
    events
}

/// Of each stream: its first four events, each changed into the one behind it and in single bytes.
fn seeds() -> Vec<Vec<u8>> {
    let streams = fixtures().into_iter().filter(|fixture| matches!(&*fixture.framing, "sse" | "ndjson"));
    let inputs = streams.enumerate().flat_map(|(place, fixture)| {
        let frames: u8 = if fixture.framing == "ndjson" { 3 } else { [0, 0, 1, 2, 4][place % 5] };
        let dialect = choices(&fixture).map_or(0, |(dialect, _)| dialect);
        let lines = fixture.body.split(|&byte| byte == b'\n').map(|line| line.trim_ascii());
        let events: Vec<_> = lines.map(|line| line.strip_prefix(b"data:").unwrap_or(line).trim_ascii()).collect();
        let events: Vec<_> =
            events.into_iter().filter(|event| event.starts_with(b"{")).take(5).map(<[u8]>::to_vec).collect();
        let pairs = events.windows(2).map(|pair| [&pair[0][..], &[CHANGES], &change(&pair[0], &pair[1])].concat());
        pairs.map(|body| Input::bytes([dialect, frames, 0, 0], &body)).collect::<Vec<_>>()
    });
    inputs.collect()
}

/// Changes of one event: into another, if that is short enough to be said, and at every seventh of its bytes.
fn change(one: &[u8], other: &[u8]) -> Vec<u8> {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let behind = one[same..].iter().rev().zip(other[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (out, new) = (&one[same..one.len() - behind], &other[same..other.len() - behind]);
    let mut changes = Vec::new();
    let mut add = |at: usize, out: usize, new: &[u8]| {
        if let (Ok(at), Ok(out), Ok(len)) = (u16::try_from(at), u8::try_from(out), u8::try_from(new.len())) {
            changes.extend(at.to_be_bytes());
            changes.extend([out, len]);
            changes.extend_from_slice(new);
        }
    };
    add(same, out.len(), new);
    (0..one.len()).step_by(7).for_each(|at| add(at, at % 3, &b"7x"[..at % 2 + 1]));
    changes
}
