//! Lines: every split gives the same, what is given are the lines that are not blank, and nothing is held.
#![no_main]

use fuzz::{Input, alike, bodies, framed, framer_is_bounded, seed};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::ndjson::Framer;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    // White space before a document may be left out at a cut: it is none of the document's.
    let lines = alike(&input, input.body, |pieces| {
        let (events, _) = framed(pieces, |_: &Framer| ());
        events.into_iter().map(|event| trimmed(&event.data).to_vec()).collect::<Vec<_>>()
    });
    let plain = input.body.split(|&byte| byte == b'\n').map(trimmed).filter(|line| !line.is_empty());
    assert!(lines.iter().map(Vec::as_slice).eq(plain), "{:?}", input.body.escape_ascii());
    framer_is_bounded::<Framer>(&input, input.body, 0);
});

/// Without the white space around it, as JSON has it: a form feed is none.
fn trimmed(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let begin = line.iter().take_while(|byte| is_blank(byte)).count();
    let end = line.iter().rev().take_while(|byte| is_blank(byte)).count();
    line.get(begin..line.len() - end).unwrap_or_default()
}

fn seeds() -> Vec<Vec<u8>> {
    bodies("ndjson").iter().map(|body| Input::bytes([0; 4], body)).collect()
}
