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
        events.into_iter().map(|event| event.data.trim_ascii().to_vec()).collect::<Vec<_>>()
    });
    let plain = input.body.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    assert!(lines.iter().map(Vec::as_slice).eq(plain), "{:?}", input.body.escape_ascii());
    framer_is_bounded::<Framer>(&input, input.body, 0);
});

fn seeds() -> Vec<Vec<u8>> {
    bodies("ndjson").iter().map(|body| Input::bytes([0; 4], body)).collect()
}
