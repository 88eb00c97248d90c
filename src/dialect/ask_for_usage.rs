//! The one change to a body that the gauge knows, where a route asks for it: a chat completion that streams and does not
//! say whether it wants its usage gets `"stream_options":{"include_usage":true}`. Every other byte stays.

use std::ops::Range;

use http::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderValue},
    request::Parts,
};
use serde::de::IgnoredAny;

use super::{Dialect, Endpoint, Recognised, request::is_json};
use crate::framing::json::{blanks, is_blank};

/// What to put in the place of which bytes of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// The bytes that go: none, or those of a `null`.
    pub at: Range<usize>,
    /// The bytes that come.
    pub with: &'static str,
}

const MEMBER: &str = r#","stream_options":{"include_usage":true}"#;
const OBJECT: &str = r#"{"include_usage":true}"#;
const FIRST_INSIDE: &str = r#""include_usage":true,"#;
const ALONE_INSIDE: &str = r#""include_usage":true"#;

/// Headers that vouch for the body as it is: where one is there, nothing may be changed.
const VOUCHING: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// How such headers of clouds' own end: `x-amz-content-sha256`, `x-ms-…`, `x-acs-…`, Oracle's without more.
const VOUCHING_END: &str = "content-sha256";

/// What the schemes of `Authorization` that sign a request have in their names: `AWS4-HMAC-SHA256`, which has the body's hash
/// in the signature and (but for S3) in no header, `AWS4-ECDSA-P256-SHA256`, `TC3-HMAC-SHA256`, `Signature`.
const SIGNING: [&[u8]; 3] = [b"hmac", b"sha256", b"signature"];

/// Whether this request is one whose body may be made to ask for usage: a chat or legacy completion in OpenAI's dialect, in
/// JSON that is not compressed, and that no header vouches for and no signature covers. What the body says is seen when it is there.
pub fn may_ask_for_usage(recognised: Recognised, parts: &Parts) -> bool {
    recognised.dialect == Dialect::OpenAiChat
        && matches!(recognised.endpoint, Endpoint::Chat | Endpoint::Completions)
        // What speaks it on Vertex, and watsonx, say their usage anyway, and need not know the field.
        && ![":streamRawPredict", "/text/chat", "/text/chat_stream"].iter().any(|end| parts.uri.path().ends_with(end))
        && is_json(parts)
        && !is_vouched_for(&parts.headers)
}

/// Whether these headers or trailers vouch for the body they come with: then it must stay as it is.
pub fn is_vouched_for(headers: &HeaderMap) -> bool {
    let vouches = |name: &str| VOUCHING.contains(&name) || name.ends_with(VOUCHING_END);
    let signs = |value: &HeaderValue| {
        let scheme = value.as_bytes().trim_ascii_start().split(|byte| *byte == b' ').next().unwrap_or_default();
        SIGNING.iter().any(|word| scheme.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
    };
    headers.keys().any(|name| vouches(name.as_str())) || headers.get_all(AUTHORIZATION).iter().any(signs)
}

/// How this request body is made to ask for usage. Absent if it must stay as it is: it does not stream, it has said
/// (`include_usage` is there, with whatever value), or it is not plainly readable, which includes all that is no JSON and
/// keys that are there twice, of which nobody knows the one that holds.
pub fn ask_for_usage(body: &[u8]) -> Option<Edit> {
    serde_json::from_slice::<IgnoredAny>(body).ok()?;
    let object = Object::find(body, 0, ["stream", "stream_options"])?;
    let [stream, options] = object.values;
    if body.get(stream?)? != b"true" {
        return None;
    }
    let Some(options) = options else {
        // It has a member before: `stream`.
        return Some(Edit { at: object.end..object.end, with: MEMBER });
    };
    if body.get(options.clone())? == b"null" {
        return Some(Edit { at: options, with: OBJECT });
    }
    let inside = Object::find(body, options.start, ["include_usage"])?;
    let begin = options.start + 1;
    match inside.values {
        [Some(_)] => None,
        [None] if inside.is_empty => Some(Edit { at: begin..begin, with: ALONE_INSIDE }),
        [None] => Some(Edit { at: begin..begin, with: FIRST_INSIDE }),
    }
}

/// What is to know of one object of a document that is known to be JSON.
struct Object<const N: usize> {
    /// Where the values of the wanted keys stand.
    values: [Option<Range<usize>>; N],
    /// Where its last bracket stands.
    end: usize,
    is_empty: bool,
}

impl<const N: usize> Object<N> {
    /// The object at `at`, behind white space. Absent if the value there is none, or if a wanted key is there twice.
    fn find(body: &[u8], at: usize, keys: [&str; N]) -> Option<Self> {
        let begin = blank(body, at);
        if body.get(begin) != Some(&b'{') {
            return None;
        }
        let mut values = [const { None }; N];
        let first = blank(body, begin + 1);
        let is_empty = body.get(first)? == &b'}';
        let mut at = first;
        while body.get(at)? != &b'}' {
            let key = at..string_end(body, at)?;
            let value = blank(body, blank(body, key.end) + 1);
            let value = value..value_end(body, value)?;
            at = blank(body, value.end);
            if body.get(at)? == &b',' {
                at = blank(body, at + 1);
            }
            if let Some(place) = keys.iter().position(|wanted| is_key(&body[key.clone()], wanted))
                && values[place].replace(value).is_some()
            {
                return None;
            }
        }
        Some(Self { values, end: at, is_empty })
    }
}

/// Whether a string with its quotes, escapes undone, is this.
fn is_key(string: &[u8], wanted: &str) -> bool {
    if memchr::memchr(b'\\', string).is_none() {
        return string.get(1..string.len() - 1) == Some(wanted.as_bytes());
    }
    serde_json::from_slice::<String>(string).is_ok_and(|key| key == wanted)
}

fn blank(body: &[u8], at: usize) -> usize {
    at + blanks(body.get(at..).unwrap_or_default())
}

/// Behind the string that begins at `at`.
fn string_end(body: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', body.get(at..)?)?;
        if body[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Behind the value that begins at `at`. Within it brackets and strings are all that counts.
fn value_end(body: &[u8], at: usize) -> Option<usize> {
    match body.get(at)? {
        b'"' => string_end(body, at),
        b'{' | b'[' => {
            let (mut at, mut depth) = (at, 0_usize);
            loop {
                match body.get(at)? {
                    b'"' => at = string_end(body, at)? - 1,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let scalar = |byte: &u8| !matches!(byte, b',' | b'}' | b']') && !is_blank(*byte);
            Some(at + body[at..].iter().take_while(|byte| scalar(byte)).count())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn edited(body: &[u8]) -> Option<Vec<u8>> {
        let edit = ask_for_usage(body)?;
        Some([&body[..edit.at.start], edit.with.as_bytes(), &body[edit.at.end..]].concat())
    }

    #[track_caller]
    fn assert_edited(body: &str, expected: &str) {
        let edited = edited(body.as_bytes()).map(|body| String::from_utf8(body).unwrap());
        assert_eq!(edited.as_deref(), Some(expected));
    }

    #[test]
    fn a_stream_that_did_not_say_is_made_to_ask() {
        assert_edited(r#"{"stream":true}"#, r#"{"stream":true,"stream_options":{"include_usage":true}}"#);
        assert_edited(
            " {\r\n\t\"model\" : \"m\" , \"stream\" : true\n} \n",
            " {\r\n\t\"model\" : \"m\" , \"stream\" : true\n,\"stream_options\":{\"include_usage\":true}} \n",
        );
        assert_edited(
            r#"{"stream_options" :null , "stream":true}"#,
            r#"{"stream_options" :{"include_usage":true} , "stream":true}"#,
        );
        assert_edited(
            r#"{"stream_options":{ },"stream":true}"#,
            r#"{"stream_options":{"include_usage":true },"stream":true}"#,
        );
        assert_edited(
            r#"{"stream_options":{"chunk_include_usage":{"include_usage":1}},"stream":true}"#,
            r#"{"stream_options":{"include_usage":true,"chunk_include_usage":{"include_usage":1}},"stream":true}"#,
        );
    }

    #[test]
    fn only_the_top_counts_and_escapes_are_undone() {
        let inside = r#""a":[{"stream":false,"stream_options":{"include_usage":false}}],"b":"\"stream\":false}\\""#;
        assert_edited(
            &format!(r#"{{{inside},"str\u0065am":true}}"#),
            &format!(r#"{{{inside},"str\u0065am":true,"stream_options":{{"include_usage":true}}}}"#),
        );
        for body in [
            r#"{"stream":true,"stream\u005foptions":{"include_usage":false}}"#,
            r#"{"stream":true,"stream_options":{"include\u005fusage":null}}"#,
            r#"{"messages":[{"stream":true}]}"#,
        ] {
            assert_eq!(edited(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn what_said_or_does_not_stream_or_is_not_plain_stays() {
        let bodies: [&[u8]; 22] = [
            br#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            br#"{"stream":true,"stream_options":{"include_usage":false}}"#,
            br#"{"stream":true,"stream_options":{"include_usage":null}}"#,
            br#"{"stream":true,"stream_options":[]}"#,
            br#"{"stream":true,"stream_options":"null"}"#,
            br#"{"stream":true,"stream_options":false}"#,
            br#"{"stream":false}"#,
            br#"{"stream":null}"#,
            br#"{"stream":"true"}"#,
            br#"{"stream":1}"#,
            b"{}",
            b"[]",
            b"true",
            b"",
            br#"{"stream":true,"stream":true}"#,
            br#"{"stream":true,"stream_options":null,"stream_options":null}"#,
            br#"{"stream":true,"stream_options":{"include_usage":true},"stream_options":{}}"#,
            b"\xef\xbb\xbf{\"stream\":true}",
            br#"{"stream":true} {}"#,
            br#"{"stream":true,}"#,
            br#"{"stream":true"#,
            br#"{"stream":True}"#,
        ];
        for body in bodies {
            assert_eq!(edited(body), None, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn what_a_header_vouches_for_or_a_signature_covers_stays() {
        let may = |name: &str, value: &str| {
            let request = http::Request::post("/v1/chat/completions").header("content-type", "application/json");
            let parts = request.header(name, value).body(()).unwrap().into_parts().0;
            may_ask_for_usage(crate::dialect::recognise(&parts, None), &parts)
        };
        for value in ["Bearer sk-hmac-sha256-signature", "Basic aG1hYw==", "sk-1", "", "Token  x"] {
            assert!(may("authorization", value), "{value}");
        }
        assert!(may("x-request-id", "1"));
        for value in [
            "AWS4-HMAC-SHA256 Credential=k/20250101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=0",
            "AWS4-ECDSA-P256-SHA256 Credential=k",
            "TC3-HMAC-SHA256 Credential=k",
            "Signature version=\"1\"",
            "hmac k:0",
        ] {
            assert!(!may("authorization", value), "{value}");
        }
        for name in
            ["Content-Digest", "Repr-Digest", "Digest", "Content-MD5", "X-Amz-Content-Sha256", "X-Content-SHA256"]
        {
            assert!(!may(name, "x"), "{name}");
        }
    }

    #[test]
    fn nesting_has_no_end() {
        let deep = format!(r#"{{"a":{}{},"stream":true}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(ask_for_usage(deep.as_bytes()).unwrap().at, deep.len() - 1..deep.len() - 1);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i32>().prop_map(|number| json!(number)),
            any::<u16>().prop_map(|number| json!(f64::from(number) / 8.0)),
            r#"[a"\\{}\[\],:é\n ]{0,8}"#.prop_map(Value::String),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::vec((key(), inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("stream".to_owned()),
            Just("stream_options".to_owned()),
            Just("include_usage".to_owned()),
            r#"[a"\\,:{}]{0,3}"#,
        ]
    }

    proptest! {
        /// The edited body says the same and one thing more; taken out again, every byte is as it was.
        #[test]
        fn an_edit_adds_one_member_and_changes_no_other_byte(
            mut members in proptest::collection::btree_map(key(), value(), 0..5),
            stream in prop_oneof![8 => Just(Some(json!(true))), 1 => Just(None), 1 => value().prop_map(Some)],
            options in prop_oneof![
                2 => Just(None),
                2 => Just(Some(Value::Null)),
                2 => value().prop_map(Some),
                2 => Just(Some(json!({}))),
                2 => value().prop_map(|value| Some(json!({ "other": value }))),
            ],
            pretty in any::<bool>(),
            around in "[ \n\r\t]{0,3}",
        ) {
            members.remove("stream");
            members.remove("stream_options");
            members.extend(stream.map(|stream| ("stream".to_owned(), stream)));
            members.extend(options.map(|options| ("stream_options".to_owned(), options)));
            let mut value = Value::Object(members.into_iter().collect());
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let body = format!("{around}{}{around}", text.unwrap());

            let said = match &value["stream_options"] {
                Value::Null => false,
                Value::Object(options) => options.contains_key("include_usage"),
                _ => true,
            };
            let asks = value["stream"] == json!(true) && !said;
            let edit = ask_for_usage(body.as_bytes());
            prop_assert_eq!(edit.is_some(), asks, "{}", body);
            let Some(edit) = edit else { return Ok(()) };

            let taken = &body[edit.at.clone()];
            prop_assert!(taken.is_empty() || taken == "null");
            let edited = edited(body.as_bytes()).unwrap();
            let mut restored = edited.clone();
            restored.splice(edit.at.start..edit.at.start + edit.with.len(), taken.bytes());
            prop_assert_eq!(restored, body.as_bytes());
            if value["stream_options"].is_null() {
                value["stream_options"] = json!({});
            }
            value["stream_options"]["include_usage"] = json!(true);
            prop_assert_eq!(serde_json::from_slice::<Value>(&edited).unwrap(), value);
        }

        /// Damaged bodies are edited into JSON, if they still are JSON, or left alone; no panic.
        #[test]
        fn damage_is_left_alone(at in 0_usize..60, odd in "[{}\\[\\]\":,a1 \\\\]{0,3}", cut in 0_usize..4) {
            let whole = r#"{"stream":true,"a":["}",{"b":"\\"}],"stream_options":{"c":1}}"#;
            let (start, end) = (at.min(whole.len()), (at + cut).min(whole.len()));
            let body = format!("{}{odd}{}", &whole[..start], &whole[end..]);
            if let Some(edited) = edited(body.as_bytes()) {
                prop_assert!(serde_json::from_str::<Value>(&body).is_ok());
                let value: Value = serde_json::from_slice(&edited).unwrap();
                prop_assert_eq!(&value["stream_options"]["include_usage"], &json!(true));
            }
        }
    }
}
