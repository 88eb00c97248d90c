//! Forms: every split finds the same fields, a form that is right gives what was put into it, and what is held is bounded.
#![no_main]

use fuzz::{Input, alike, bounded, seed, websocket::messages};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::multipart::{Progress, Scanner, VALUE_LIMIT};

const TYPE: &[u8] = b"multipart/form-data; boundary=b";
const FIELDS: &[&str] = &["model", "stream"];

/// The choice to make the body into a form that is right: of parts that are a field, the other, or a file.
const RIGHT: u8 = 1;

/// A line of a head or a value, doubled as it grows, and the delimiter.
const HELD: usize = 4 << 10;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let parts = messages(input.body);
    // What has the delimiter in it is no part: it would end there.
    let is_right = input.choices[0] & RIGHT != 0 && !input.body.windows(3).any(|window| window == b"--b");
    let body = if is_right { form(&parts) } else { input.body.to_vec() };
    let (found, progress) = alike(&input, &body, |pieces| {
        let mut scanner = Scanner::new(TYPE, FIELDS).expect("a form");
        let mut found = Vec::new();
        pieces.for_each(|piece| scanner.read(piece, &mut |field, value| found.push((field, value.to_vec()))));
        (found, scanner.progress())
    });
    bounded(HELD, || {
        let mut scanner = Scanner::new(TYPE, FIELDS).expect("a form");
        input.pieces(&body).for_each(|piece| scanner.read(piece, &mut |_, _| ()));
    });
    if is_right {
        let fields = parts.iter().filter(|(what, value)| what % 3 < 2 && value.len() <= VALUE_LIMIT);
        assert!(found.into_iter().eq(fields.map(|(what, value)| (usize::from(what % 3), value.to_vec()))));
        assert_eq!(progress, Progress::Closed);
    }
});

fn form(parts: &[(u8, &[u8])]) -> Vec<u8> {
    let mut form = Vec::new();
    for (what, value) in parts {
        let name = ["name=\"model\"", "name=stream", "name=\"file\"; filename=\"f\"\r\nContent-Type: audio/wav"];
        let name = name[usize::from(what % 3)];
        form.extend(format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\n").into_bytes());
        form.extend_from_slice(value);
        form.extend(b"\r\n");
    }
    form.extend(b"--b--\r\n");
    form
}

fn seeds() -> Vec<Vec<u8>> {
    let parts =
        [(2, &b"RIFF\r\n-\r\n--\r\n"[..]), (0, b"m-1"), (1, b"true"), (0, b""), (2, &[b'x'; 300]), (1, &[b'y'; 300])];
    let body = fuzz::websocket::body_of(&parts);
    vec![Input::bytes([RIGHT, 0, 0, 0], &body), Input::bytes([0; 4], &form(&parts))]
}
