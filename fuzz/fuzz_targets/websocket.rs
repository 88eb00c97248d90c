//! One direction of a WebSocket: every split gives the same messages and reason to stop, frames that are right give what was
//! put into them, and nothing is held but deflate's window.
#![no_main]

use fuzz::{
    Input, Pieces, alike, bodies, bounded, seed,
    websocket::{COMPRESSED, MASKED, body_of, frames, messages},
};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::websocket::{Deflate, Framer, Lost, Piece};

/// The choices: what was agreed on, and whether the body is made into frames that are right.
const DEFLATE: u8 = 1;
const NO_TAKEOVER: u8 = 2;
const RIGHT: u8 = 4;

/// What undoing the compression takes: a window of 32 KiB and tables.
const INFLATER: usize = 48 << 10;

/// What a direction carried.
#[derive(PartialEq, Debug)]
struct Carried {
    messages: Vec<Vec<u8>>,
    /// The beginning of a message. Of one that is not compressed as it says, how much came out of it may differ.
    begun: Vec<u8>,
    close: Option<Option<u16>>,
    lost: Option<Lost>,
}

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let is = |choice: u8| input.choices[0] & choice != 0;
    let deflate = is(DEFLATE).then_some(Deflate { no_context_takeover: is(NO_TAKEOVER) });
    let sent = messages(input.body);
    let stream = match is(RIGHT) {
        true => sent.iter().flat_map(|(what, message)| frames(*what, message, deflate.is_some())).collect(),
        false => input.body.to_vec(),
    };
    let carried = alike(&input, &stream, |pieces| carried(deflate, pieces));
    if is(RIGHT) {
        assert!(carried.messages.iter().eq(sent.iter().map(|(_, message)| message)) && carried.lost.is_none());
    }
    bounded(if deflate.is_some() { INFLATER } else { 0 }, || {
        let mut framer = Framer::new(deflate);
        input.pieces(&stream).for_each(|piece| framer.read(piece, &mut |_| ()));
    });
});

fn carried(deflate: Option<Deflate>, pieces: Pieces<'_, '_>) -> Carried {
    let mut framer = Framer::new(deflate);
    let (mut messages, mut begun, mut close) = (Vec::new(), Vec::new(), None);
    for piece in pieces {
        framer.read(piece, &mut |piece| match piece {
            Piece::Data(part) => begun.extend_from_slice(part),
            Piece::End => messages.push(std::mem::take(&mut begun)),
            Piece::Close(code) => close = Some(code),
        });
    }
    if framer.lost() == Some(Lost::Corrupt) {
        begun.clear();
    }
    Carried { messages, begun, close, lost: framer.lost() }
}

fn seeds() -> Vec<Vec<u8>> {
    let bodies: Vec<_> = bodies("sse").into_iter().step_by(8).collect();
    let mut seeds = Vec::new();
    for (place, body) in bodies.iter().enumerate() {
        let what = [0, MASKED, COMPRESSED, MASKED | COMPRESSED][place % 4];
        let choices = [DEFLATE | if place % 8 < 4 { NO_TAKEOVER } else { 0 }, 0, 0, 0];
        let lines: Vec<_> = body.split(|&byte| byte == b'\n').take(6).map(|line| (what, line)).collect();
        seeds.push(Input::bytes([choices[0] | RIGHT, 0, 0, 0], &body_of(&lines)));
        let raw: Vec<u8> = lines.iter().flat_map(|(what, line)| frames(*what, line, true)).collect();
        // With a ping between, and a goodbye.
        seeds.push(Input::bytes(choices, &[&raw[..], b"\x89\x02hi\x88\x02\x03\xe8"].concat()));
    }
    seeds
}
