//! Where a recorded body can be cut: behind each event, at random, everywhere.
//!
//! The events are told here by means of this file's own, so that the program's framers are not judged by themselves.

use std::{io::Write, ops::Range};

use flate2::write::GzDecoder;

use super::Recording;

/// Most bytes of a body that are sent one by one.
pub(super) const MOST_SINGLE: usize = if cfg!(debug_assertions) { 16 * 1024 } else { usize::MAX };

impl Recording {
    /// The body cut behind each event, and for each event the piece that completes it. What follows the last event is a
    /// piece too. A compressed body is cut where its bytes so far hold the event.
    pub(super) fn by_event(&self) -> (Vec<&[u8]>, Vec<usize>) {
        let mut places = self.event_ends(&self.body);
        if self.head.headers.contains_key("content-encoding") {
            let (plain, held) = inflated(&self.body);
            places = self.event_ends(&plain).iter().map(|end| held.partition_point(|len| len < end) + 1).collect();
        }
        let mut ends = places.clone();
        ends.push(self.body.len());
        ends.dedup();
        let pieces = ends.iter().scan(0, |start, &end| Some(&self.body[std::mem::replace(start, end)..end])).collect();
        (pieces, places.iter().map(|place| ends.partition_point(|end| end < place)).collect())
    }

    /// The body cut into pieces of random lengths, from single bytes to thousands. The same for the same seed.
    pub(super) fn at_random(&self, seed: u64) -> Vec<&[u8]> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pieces = Vec::new();
        let mut rest = &*self.body;
        while !rest.is_empty() {
            let most = [3, 40, 700, 9000][random.usize(..4)];
            let (piece, behind) = rest.split_at(random.usize(1..=most).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces
    }

    /// The body byte by byte. Without optimisation a frame costs 10 us, so that only what is at most [`MOST_SINGLE`] long
    /// is cut so everywhere; of the rest the middle comes in larger pieces.
    pub(super) fn byte_by_byte(&self) -> Vec<&[u8]> {
        let single = self.body.len().min(MOST_SINGLE);
        let (begin, rest) = self.body.split_at(single - single / 4);
        let (middle, end) = rest.split_at(rest.len() - single / 4);
        begin.chunks(1).chain(middle.chunks(64)).chain(end.chunks(1)).collect()
    }

    /// A recording's own seeds.
    pub(super) fn seeds(&self, count: u64) -> Range<u64> {
        let seed = self.name.bytes().fold(0_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        u64::from(seed)..u64::from(seed) + count
    }

    /// Where the events of the plain body end.
    fn event_ends(&self, body: &[u8]) -> Vec<usize> {
        let told = self.head.headers.get("content-type").map(|value| value.to_str().expect("text"));
        match told.unwrap_or("text/event-stream") {
            told if told.contains("eventstream") => message_ends(body),
            told if told.contains("ndjson") => line_ends(body),
            told if told.contains("json") => element_ends(body),
            _ => block_ends(body),
        }
    }
}

/// What a gzip body holds, and how much of it after each of its bytes.
fn inflated(body: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut decoder = GzDecoder::new(Vec::new());
    let after = |byte: &u8| {
        decoder.write_all(&[*byte]).expect("a gzip body");
        decoder.flush().expect("a gzip body");
        decoder.get_ref().len()
    };
    let held = body.iter().map(after).collect();
    (decoder.finish().expect("a gzip body"), held)
}

/// SSE: a blank line ends a block; one without a line of data is no event.
fn block_ends(body: &[u8]) -> Vec<usize> {
    let (mut ends, mut data, mut at) = (Vec::new(), false, 0);
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        data |= line.starts_with(b"data");
        if line.trim_ascii().is_empty() && std::mem::take(&mut data) {
            ends.push(at);
        }
    }
    if data {
        ends.push(at);
    }
    ends
}

/// NDJSON: every line that is not blank.
fn line_ends(body: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let lines = body.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
        at += line.len();
        (!line.trim_ascii().is_empty()).then_some(at)
    });
    lines.collect()
}

/// AWS event stream: every message begins with its length.
fn message_ends(body: &[u8]) -> Vec<usize> {
    let (mut ends, mut at) = (Vec::new(), 0);
    while let Some(len) = body[at..].first_chunk().map(|len| u32::from_be_bytes(*len) as usize) {
        at += len;
        ends.push(at);
    }
    ends
}

/// A JSON array of objects: each closing brace of the outermost ones.
fn element_ends(body: &[u8]) -> Vec<usize> {
    let (mut ends, mut depth, mut text, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in body.iter().enumerate() {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' => escaped = text,
            b'"' => text = !text,
            b'{' if !text => depth += 1,
            b'}' if !text => {
                depth -= 1;
                if depth == 0 {
                    ends.push(at + 1);
                }
            }
            _ => {}
        }
    }
    ends
}
