//! The AWS event stream: every split gives the same, messages that are right give their payloads, and no payload is held.
#![no_main]

use fuzz::{
    Event, Input, alike, bodies, framed, framer_is_bounded,
    messages::{body_of, messages},
    seed,
};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::messages::Framer;

/// Whether the body is made into messages that are right ([`messages`]), or read as it is.
const RIGHT: u8 = 1;
/// Whether so many of the right bytes are left out at the end.
const CUT: usize = 1;

/// The beginning of the headers.
const HELD: usize = 2 << 10;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let is_right = input.choices[0] & RIGHT == RIGHT;
    let mut stream = if is_right { messages(input.body, <[u8]>::to_vec) } else { input.body.to_vec() };
    let whole = stream.len();
    stream.truncate(whole.saturating_sub(usize::from(input.choices[CUT])));
    let (events, lost) = alike(&input, &stream, |pieces| framed(pieces, Framer::is_lost));
    framer_is_bounded::<Framer>(&input, &stream, HELD);
    if is_right {
        assert!(!lost);
        let payloads: Vec<_> = payloads(input.body);
        let given: Vec<_> = events.iter().filter(|event| event.ended == Some(true)).collect();
        assert!(given.iter().zip(&payloads).all(|(Event { data, .. }, payload)| data == payload));
        assert!(stream.len() < whole || given.len() == payloads.len());
    }
});

/// The payloads of the messages that are made of this body.
fn payloads(mut body: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    while let Some((&[headers, high, low], rest)) = body.split_first_chunk() {
        let rest = &rest[usize::from(headers).min(rest.len())..];
        let (payload, rest) = rest.split_at(usize::from(u16::from_be_bytes([high, low])).min(rest.len()));
        payloads.push(payload);
        body = rest;
    }
    payloads
}

fn seeds() -> Vec<Vec<u8>> {
    let streams = bodies("eventstream");
    let right = streams.iter().map(|stream| Input::bytes([RIGHT, 0, 0, 0], &body_of(stream)));
    right.chain(streams.iter().map(|stream| Input::bytes([0; 4], stream))).collect()
}
