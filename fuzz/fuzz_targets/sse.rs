//! Server-sent events: every split gives the same, what is given is what the rules say, and nothing is held.
#![no_main]

use fuzz::{Event, Input, alike, bodies, framed, framer_is_bounded, seed};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::sse::Framer;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let events = alike(&input, input.body, |pieces| framed(pieces, |_: &Framer| ()).0);
    framer_is_bounded::<Framer>(&input, input.body, 0);
    // Beyond the rules are lines that begin as an object and those of an unknown field `error`.
    if !input.body.contains(&b'{') {
        let given: Vec<_> = events.into_iter().filter(|event| event.ended == Some(true)).collect();
        let given: Vec<_> = given.into_iter().map(|Event { data, name, .. }| (data, name)).collect();
        assert_eq!(given, by_the_rules(input.body), "{:?}", input.body.escape_ascii());
    }
});

/// Data and name of each event, read off line by line from a whole body.
fn by_the_rules(body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let (mut events, mut data, mut name) = (Vec::new(), None::<Vec<u8>>, Vec::new());
    let mut rest = body;
    let mut more = true;
    while more {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let (line, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = behind.strip_prefix(b"\r\n").or(behind.get(1..)).unwrap_or_default();
        more = end.is_some();
        let colon = line.iter().position(|&byte| byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut data {
                Some(data) => data.extend([b"\n", value].concat()),
                None => data = Some(value.to_vec()),
            },
            b"event" => name.extend_from_slice(value),
            _ => {}
        }
        // The end of the body ends an event, too.
        if line.is_empty() || !more {
            events.extend(data.take().map(|data| (data, name.clone())));
            name.clear();
        }
    }
    events
}

fn seeds() -> Vec<Vec<u8>> {
    bodies("sse").iter().map(|body| Input::bytes([0; 4], body)).collect()
}
