//! The look at a request: every split finds the same, in a valid object what another reader finds, and what is held is
//! bounded.
#![no_main]

use fuzz::{
    Input, alike, bounded,
    json::{Plain, fields, is_valid, plain},
    pick, seed,
};
use http::{Request, request::Parts};
use libfuzzer_sys::fuzz_target;
use streamgauge::dialect::{RequestScan, recognise};

/// Path and content type of a request. Nothing in the first ones says what is in the body.
const HEADS: [(&str, Option<&str>); 8] = [
    ("/v1/chat/completions", Some("application/json")),
    ("/v1/messages", None),
    ("/api/chat", Some("application/json; charset=utf-8")),
    ("/openai/deployments/d/chat/completions?api-version=1", Some("application/json")),
    ("/v1/projects/p/locations/l/publishers/anthropic/models/m:streamRawPredict", Some("application/json")),
    ("/model/m%3A0/converse", None),
    ("/generate_stream", Some("application/json")),
    ("/v1/audio/transcriptions", Some("multipart/form-data; boundary=b")),
];

/// How many of [`HEADS`] leave all to the body.
const OPEN: usize = 2;

/// The longest name that is taken.
const NAME_LIMIT: usize = 256;

/// The beginning of a value that is held.
const HELD: usize = 16 << 10;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let parts = head(pick(input.choices[0], &HEADS));
    let facts = alike(&input, input.body, |pieces| {
        let mut scan = RequestScan::new(recognise(&parts, None), &parts);
        let mut given: Vec<_> = pieces.filter_map(|piece| scan.read(piece)).collect();
        given.extend(scan.finish());
        assert_eq!(given.len(), 1, "facts are given once");
        given.remove(0)
    });
    bounded(HELD, || {
        let mut scan = RequestScan::new(recognise(&parts, None), &parts);
        input.pieces(input.body).for_each(|piece| drop(scan.read(piece)));
        drop(scan.finish());
    });
    if usize::from(input.choices[0]) % HEADS.len() < OPEN
        && is_valid(input.body)
        && let Some(expected) = plainly(input.body)
    {
        assert_eq!((facts.model.map(|model| model.to_string()), facts.stream), expected, "{:?}", input.body.escape_ascii());
    }
});

/// The model and whether to stream, as another reader finds them in an object. Absent if it says something twice: then either may be right.
fn plainly(body: &[u8]) -> Option<(Option<String>, Option<bool>)> {
    let fields = fields(body)?;
    let only = |name: &str| {
        let mut named = fields.iter().filter(|(key, _)| key == name).map(|(_, raw)| plain(raw));
        (named.next(), named.next().is_none())
    };
    let ((model, one_model), (stream, one_stream)) = (only("model"), only("stream"));
    let name = |name: String| (1..=NAME_LIMIT).contains(&name.len()).then_some(name);
    let model = model.and_then(|model| match model {
        Plain::Text(text) => name(text),
        Plain::Scalar(text) if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            name(text.into())
        }
        _ => None,
    });
    let stream = stream.and_then(|stream| match stream {
        Plain::Scalar(text) => text.parse().ok(),
        _ => None,
    });
    (one_model && one_stream).then_some((model, stream))
}

fn head((path, content_type): (&str, Option<&str>)) -> Parts {
    let request = content_type.into_iter().fold(Request::post(path), |head, value| head.header("content-type", value));
    request.body(()).expect("a head that is right").into_parts().0
}

fn seeds() -> Vec<Vec<u8>> {
    let bodies = [
        &br#"{"model":"m-1","stream":true,"messages":[{"role":"user","content":"\"model\":\"x\"","stream":false}]}"#[..],
        br#"{"messages":[{"content":[{"url":"data:;base64,AAAA"}]}],"stream" : false , "mod\u0065l":"\u006d"}"#,
        br#"{"stream":null,"model":7,"model":"again","stream":true,"model":{}}"#,
        b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\nContent-Disposition: form-data; \
          name=\"stream\"\r\n\r\ntrue\r\n--b--\r\n",
    ];
    let heads = 0..u8::try_from(HEADS.len()).expect("few");
    heads.flat_map(|head| bodies.map(|body| Input::bytes([head, 0, 0, 0], body))).collect()
}
