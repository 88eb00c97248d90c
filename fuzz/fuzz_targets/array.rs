//! A growing array: every split gives the same, a valid array gives its elements, and nothing is held.
#![no_main]

use fuzz::{Input, alike, bodies, framed, framer_is_bounded, json, seed};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use streamgauge::framing::array::Framer;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let (events, closed) = alike(&input, input.body, |pieces| framed(pieces, |framer: &Framer| framer.is_closed()));
    framer_is_bounded::<Framer>(&input, input.body, 0);
    if let Ok(elements) = serde_json::from_slice::<Vec<&RawValue>>(input.body)
        && json::is_valid(input.body)
    {
        let given = events.iter().map(|event| event.data.trim_ascii());
        assert!(given.eq(elements.iter().map(|element| element.get().as_bytes())), "{:?}", input.body.escape_ascii());
        assert!(closed);
    }
});

fn seeds() -> Vec<Vec<u8>> {
    let mut bodies = bodies("array");
    bodies.push(br#" [{"a":"]},{\"["} , "x,]" ,7 ,[[]], null] tail"#.to_vec());
    bodies.iter().map(|body| Input::bytes([0; 4], body)).collect()
}
