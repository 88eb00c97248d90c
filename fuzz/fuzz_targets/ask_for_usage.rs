//! The one edit of a request: what comes of it says all that the body said, asks for usage, and needs no other edit.
#![no_main]

use fuzz::{Input, json::fields, seed};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use streamgauge::dialect::ask_for_usage::ask_for_usage;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let Some(edit) = ask_for_usage(input.body) else { return };
    let edited = [&input.body[..edit.at.start], edit.with.as_bytes(), &input.body[edit.at.end..]].concat();
    assert_eq!(ask_for_usage(&edited), None, "it has been said");
    // What serde_json does not take as a value (numbers beyond its own, half characters) may pass all the same.
    let Ok(Value::Object(mut before)) = serde_json::from_slice(input.body) else { return };
    let after: Value = serde_json::from_slice(&edited).expect("JSON that was edited to be still JSON");
    assert_eq!(before["stream"], true);
    let options = before.entry("stream_options").or_insert(Value::Null);
    if options.is_null() {
        *options = json!({});
    }
    assert_eq!(options["include_usage"], Value::Null);
    options["include_usage"] = true.into();
    assert_eq!(Value::Object(before), after);
    let count = |body: &[u8]| fields(body).map_or(0, |fields| fields.len());
    assert!(count(&edited) - count(input.body) <= 1, "no other member");
});

fn seeds() -> Vec<Vec<u8>> {
    let bodies = [
        &br#"{"model":"m","stream":true,"messages":[{"role":"user","content":"\"stream\":false}"}]}"#[..],
        br#"{"stream" : true , "stream_options" : { } }"#,
        br#"{"stream":true,"stream_options":null,"n":1e3}"#,
        br#"{"stream_options":{"include_obfuscation":false,"x":[{}]},"\u0073tream":true}"#,
        br#"{"stream":true,"stream_options":{"include_usage":false}}"#,
        br#"{"stream":true,"stream":true}"#,
        br#"{"stream":false}"#,
    ];
    bodies.iter().map(|body| Input::bytes([0; 4], body)).collect()
}
