//! Chunks wrapped in base64: every split gives the same, what was wrapped is given back, and nothing is held.
#![no_main]

use fuzz::{
    Input, alike, bounded,
    json::{Plain, fields, is_valid, plain},
    seed, wrap,
};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::wrapped::Unwrapper;

/// The choice to wrap the body first.
const WRAP: u8 = 1;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let is_wrapped = input.choices[0] & WRAP != 0;
    let chunk = if is_wrapped { wrap(input.body) } else { input.body.to_vec() };
    let (inner, is_sound) = alike(&input, &chunk, |pieces| {
        let (mut unwrapper, mut inner) = (Unwrapper::default(), Vec::new());
        pieces.for_each(|piece| unwrapper.read(piece, &mut |part| inner.extend_from_slice(part)));
        // What comes before the place where it breaks may be given out or not.
        if !unwrapper.is_sound() {
            inner.clear();
        }
        (inner, unwrapper.is_sound())
    });
    bounded(0, || {
        let mut unwrapper = Unwrapper::default();
        input.pieces(&chunk).for_each(|piece| unwrapper.read(piece, &mut |_| ()));
    });
    if is_wrapped {
        assert_eq!((inner.as_slice(), is_sound), (input.body, true));
    } else if is_valid(&chunk) && fields(&chunk).is_some_and(|fields| fields.iter().all(|(key, _)| key != "bytes")) {
        assert_eq!((inner, is_sound), (Vec::new(), true), "nothing is wrapped in it");
    } else if is_sound
        && is_valid(&chunk)
        && let Some(fields) = fields(&chunk)
        && let [(_, wrapped)] = fields.iter().filter(|(key, _)| key == "bytes").collect::<Vec<_>>()[..]
        && !matches!(plain(wrapped), Plain::Text(_))
    {
        assert!(inner.is_empty(), "only a string wraps anything");
    }
});

fn seeds() -> Vec<Vec<u8>> {
    let inner = br#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}"#;
    let bodies =
        [&wrap(inner)[..], br#"{"p":"ab\"c","o":{"bytes":"eA=="},"bytes":"eHl6","q":[1]}"#, br#"{"message":"x"}"#];
    let raw = bodies.map(|body| Input::bytes([0; 4], body));
    raw.into_iter().chain([Input::bytes([WRAP, 0, 0, 0], inner)]).collect()
}
