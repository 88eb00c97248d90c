//! An observer of any dialect and framing: every split gives the same events, facts and reason to stop, compressed or not,
//! and what it holds is bounded.
#![no_main]

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use fuzz::{
    Input, STATE, alike, bodies, bounded, choice, fixtures,
    messages::{body_of, messages},
    observed::{CONTENT_TYPES, choices, head, observe, pass},
    pick, seed, wrap,
};
use libfuzzer_sys::fuzz_target;
use streamgauge::dialect::{Dialect, Observer};

/// What the choices are of: the dialect, the content type, and these.
const HOW: usize = 2;
/// The body is made into messages with lengths and checks that are right.
const MESSAGES: u8 = 1;
/// The body comes compressed.
const GZIP: u8 = 2;
/// What is in the messages is wrapped as Bedrock's chunks are.
const WRAPPED: u8 = 4;

/// What undoing the compression takes: a window of 32 KiB and tables.
const INFLATER: usize = 48 << 10;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let dialect = pick(input.choices[0], &Dialect::ALL);
    let (_, content_type) = pick(input.choices[1], &CONTENT_TYPES);
    let is = |how: u8| input.choices[HOW] & how == how;
    let body = match (is(MESSAGES), is(WRAPPED)) {
        (true, true) => messages(input.body, wrap),
        (true, false) => messages(input.body, <[u8]>::to_vec),
        (false, _) => input.body.to_vec(),
    };
    let plain = head(content_type, None);
    let observed = alike(&input, &body, |pieces| observe(dialect, &plain, pieces));
    let most = STATE - size_of::<Observer>();
    bounded(most, || pass(dialect, &plain, &mut input.pieces(&body)));
    if is(GZIP) {
        let (squeezed, compressed) = (squeezed(&body), head(content_type, Some("gzip")));
        assert_eq!(observed, alike(&input, &squeezed, |pieces| observe(dialect, &compressed, pieces)));
        bounded(most + INFLATER, || pass(dialect, &compressed, &mut input.pieces(&squeezed)));
    }
});

fn squeezed(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).and_then(|()| encoder.finish()).expect("memory")
}

fn seeds() -> Vec<Vec<u8>> {
    let inputs = fixtures().into_iter().enumerate().filter_map(|(place, fixture)| {
        let (dialect, content_type) = choices(&fixture)?;
        let gzip = if place % 4 == 0 { GZIP } else { 0 };
        Some(if fixture.framing == "eventstream" {
            Input::bytes([dialect, content_type, MESSAGES | gzip, 0], &body_of(&fixture.body))
        } else {
            Input::bytes([dialect, content_type, gzip, 0], &fixture.body)
        })
    });
    // Bedrock's chunks wrap the events of other dialects.
    let (invoke, messages) =
        (choice(&Dialect::BedrockInvoke, &Dialect::ALL), choice(&CONTENT_TYPES[4], &CONTENT_TYPES));
    let wrapped = bodies("sse").into_iter().step_by(5).map(|body| {
        let events = body.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
        let body = events.flat_map(|event| {
            let len = u16::try_from(event.len()).expect("a short event").to_be_bytes();
            [&[0][..], &len, event].concat()
        });
        Input::bytes([invoke, messages, MESSAGES | WRAPPED, 0], &body.collect::<Vec<_>>())
    });
    inputs.chain(wrapped).collect()
}
