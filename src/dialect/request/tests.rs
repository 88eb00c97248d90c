use http::Request;

use super::*;
use crate::dialect::recognise;

fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request = headers.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap().into_parts().0
}

fn scan(parts: &Parts) -> RequestScan {
    RequestScan::new(recognise(parts, None), parts)
}

fn facts(model: Option<&str>, stream: Option<bool>) -> RequestFacts {
    RequestFacts { model: model.map(Arc::from), stream, dialect: None }
}

const PATH: &str = "/v1/chat/completions";

#[track_caller]
fn assert_facts(uri: &str, headers: &[(&str, &str)], body: &str, expected: &RequestFacts) {
    for width in [1, 3, body.len().max(1)] {
        let mut scan = scan(&parts(uri, headers));
        let mut given: Vec<_> = body.as_bytes().chunks(width).filter_map(|piece| scan.read(piece)).collect();
        given.extend(scan.finish());
        assert_eq!(given, std::slice::from_ref(expected), "{body} by {width}");
    }
}

#[test]
fn both_are_found_in_any_order() {
    for body in [
        r#"{"model":"m","stream":true,"messages":[{"model":"x","stream":false}]}"#,
        r#"{"stream" : true , "model" : "m"}"#,
        r#"{"messages":[{"content":"\"model\":\"x\""}],"stream":true,"model":"m"}"#,
        r#" {"mod\u0065l":"\u006d","stream":true}"#,
        r#"{"model":"m","stream":true,"model":"x"}"#,
    ] {
        assert_facts(PATH, &[("content-type", "application/json; charset=utf-8")], body, &facts(Some("m"), Some(true)));
    }
}

#[test]
fn what_is_not_said_is_absent() {
    assert_facts(PATH, &[], r#"{"model":"m"}"#, &facts(Some("m"), None));
    assert_facts(PATH, &[], r#"{"stream":false}"#, &facts(None, Some(false)));
    assert_facts(PATH, &[], r#"{"stream":null,"model":7}"#, &facts(Some("7"), None));
    assert_facts(PATH, &[], "", &facts(None, None));
    assert_facts(PATH, &[], "model=m&stream=true", &facts(None, None));
    assert_facts(PATH, &[], r#"{"model":"m","messages":["#, &facts(Some("m"), None));
    let long = format!(r#"{{"model":"{}","stream":true}}"#, "x".repeat(257));
    assert_facts(PATH, &[], &long, &facts(None, Some(true)));
}

#[test]
fn ollama_streams_unless_told_not_to() {
    assert_facts("/api/chat", &[], r#"{"model":"m"}"#, &facts(Some("m"), Some(true)));
    assert_facts("/api/chat", &[], r#"{"model":"m","stream":false}"#, &facts(Some("m"), Some(false)));
    assert_facts("/api/generate", &[], r#"{"model":"m","stream":null}"#, &facts(Some("m"), Some(true)));
    assert_facts("/api/generate", &[], r#"{"model":"m""#, &facts(Some("m"), None));
    assert_facts("/api/generate", &[], r#"{"model":"m"} {}"#, &facts(Some("m"), Some(true)));
}

#[test]
fn facts_come_as_soon_as_they_are_known() {
    let mut early = scan(&parts(PATH, &[]));
    assert_eq!(early.read(br#"{"model":"m","#), None);
    assert_eq!(early.read(br#""stream":true,"messages":["#), Some(facts(Some("m"), Some(true))));
    assert_eq!((early.read(b"1]}"), early.finish()), (None, None));
    let mut closed = scan(&parts(PATH, &[]));
    assert_eq!(closed.read(br#"{"model":"m"}"#), Some(facts(Some("m"), None)));
    let mut other = scan(&parts("/v1/files", &[("content-type", "multipart/form-data; boundary=x")]));
    assert_eq!(other.read(b"--x"), Some(facts(None, None)));
    assert_eq!(other.finish(), None);
}

#[test]
fn a_large_image_before_the_model_hides_nothing_and_is_not_held() {
    let body =
        format!(r#"{{"messages":[{{"url":"data:;base64,{}"}}],"model":"m","stream":true}}"#, "A".repeat(2 << 20));
    let mut scan = scan(&parts(PATH, &[]));
    let given: Vec<_> = body.as_bytes().chunks(16 << 10).filter_map(|piece| scan.read(piece)).collect();
    assert_eq!(given, [facts(Some("m"), Some(true))]);
}

#[test]
fn the_path_names_the_model_where_it_does() {
    let azure = "/openai/deployments/my%20gpt/chat/completions?api-version=1";
    assert_facts(azure, &[], r#"{"model":"x","stream":true}"#, &facts(Some("my gpt"), Some(true)));
    let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict";
    assert_facts(vertex, &[], r#"{"stream":true}"#, &facts(Some("claude@1"), Some(true)));
    let plain = vertex.replace("streamRawPredict", "rawPredict");
    assert_facts(&plain, &[("content-encoding", "gzip")], "x", &facts(Some("claude@1"), Some(false)));
    assert_facts(vertex, &[], r#"{"messages":[]}"#, &facts(Some("claude@1"), None));
    assert_facts(vertex, &[], r#"{"stream":false}"#, &facts(Some("claude@1"), Some(false)));
    let google = vertex.replace("anthropic", "google").replace("streamRawPredict", "streamGenerateContent");
    assert_facts(&google, &[], "{}", &facts(Some("claude@1"), Some(true)));
    assert_facts("/v2/models/llama/generate_stream", &[], r#"{"text_input":"x"}"#, &facts(Some("llama"), Some(true)));
    for (verb, stream) in [("generateContent", false), ("streamGenerateContent?alt=sse", true)] {
        let gemini = format!("/v1beta/models/gem%2Bini-1:{verb}");
        assert_facts(&gemini, &[], r#"{"contents":[]}"#, &facts(Some("gem+ini-1"), Some(stream)));
    }
    assert_facts("/generate_stream", &[], r#"{"inputs":"x"}"#, &facts(None, Some(true)));
    let assist = "/v1internal:streamGenerateContent?alt=sse";
    assert_facts(assist, &[], r#"{"model":"gemini-1","request":{"model":"x"}}"#, &facts(Some("gemini-1"), Some(true)));
    let mistral = vertex.replace("anthropic", "mistralai");
    assert_facts(&mistral, &[], r#"{"model":"x","stream":true}"#, &facts(Some("claude@1"), Some(true)));
    for body in [r#"{"agent":"deep-1","stream":true}"#, r#"{"agent":"deep-1","model":null,"stream":true}"#] {
        assert_facts("/v1beta/interactions", &[], body, &facts(Some("deep-1"), Some(true)));
    }
    assert_facts(PATH, &[], r#"{"agent":"x"}"#, &facts(None, None));
    let arn = "/model/arn%3Aaws%3Abedrock%3Ax%3A1%3Aprofile%2Fp/converse-stream";
    assert_facts(arn, &[], "{}", &facts(Some("arn:aws:bedrock:x:1:profile/p"), Some(true)));
    assert_facts("/model/a:0/invoke", &[], "{}", &facts(Some("a:0"), Some(false)));
    let replay = Request::get("/v1/responses/r1?starting_after=3&stream=true").body(()).unwrap().into_parts().0;
    assert_eq!(scan(&replay).finish(), Some(facts(None, Some(true))));
    assert_eq!(decoded_name("a%3Ab%2Fc%zz%4").as_deref(), Some("a:b/c%zz%4"));
}

#[test]
fn the_query_names_the_model_where_it_does() {
    let get = |uri: &str| Request::get(uri).body(()).unwrap().into_parts().0;
    for uri in ["/v1/realtime?model=gpt%2Drealtime", "/openai/realtime?api-version=1&deployment=gpt-realtime&x"] {
        assert_eq!(scan(&get(uri)).finish(), Some(facts(Some("gpt-realtime"), None)), "{uri}");
    }
    assert_eq!(scan(&get("/v1/realtime?xmodel=a&model=")).finish(), Some(facts(None, None)));
    assert_facts("/v1/embeddings?stream=true", &[], r#"{"model":"m"}"#, &facts(Some("m"), None));
}

#[test]
fn a_header_or_the_path_says_whether_to_stream_where_it_does() {
    let dashscope = "/api/v1/services/aigc/text-generation/generation";
    for (headers, stream) in [
        (&[][..], false),
        (&[("X-DashScope-SSE", "Enable")], true),
        (&[("X-DashScope-SSE", "disable")], false),
        (&[("accept", "application/json, Text/Event-Stream;q=0.9")], true),
    ] {
        let expected = facts(Some("qwen"), Some(stream));
        assert_facts(dashscope, headers, r#"{"input":{},"model":"qwen","stream":true}"#, &expected);
    }
    let body = r#"{"model":"x","model_id":"granite","stream":true}"#;
    assert_facts("/ml/v1/text/generation_stream?version=1", &[], body, &facts(Some("granite"), Some(true)));
    assert_facts("/ml/v1/text/generation", &[], body, &facts(Some("granite"), Some(false)));
    assert_facts("/ml/v1/text/chat_stream?version=1", &[], body, &facts(Some("granite"), Some(true)));
    assert_facts("/ml/v1/text/chat", &[], body, &facts(Some("granite"), Some(false)));
    assert_facts("/ml/v1/deployments/d/text/chat_stream", &[], "{}", &facts(Some("d"), Some(true)));
    assert_facts("/ml/v1/text/embeddings", &[], body, &facts(Some("granite"), Some(true)));
    assert_facts(PATH, &[], r#"{"model_id":"x"}"#, &facts(None, None));
    let replicate = Request::get("/v1/streams/s1").body(()).unwrap().into_parts().0;
    assert_eq!(scan(&replicate).finish(), Some(facts(None, Some(true))));
}

#[test]
fn a_form_names_model_and_stream_beside_its_files() {
    let form = [("content-type", "multipart/form-data; boundary=\"b 1\"")];
    let file = format!(
        "--b 1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n",
        "\r\n".repeat(3000)
    );
    let field = |name: &str, value: &str| {
        format!("--b 1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    for (stream, expected) in [("true", Some(true)), ("False", Some(false)), ("1", Some(true)), ("yes", None)] {
        let body = [file.clone(), field("stream", stream), field("model", "whisper-1"), "--b 1--\r\n".to_owned()];
        let expected = facts(Some("whisper-1"), expected);
        for path in ["/v1/audio/transcriptions", "/v1/images/edits"] {
            assert_facts(path, &form, &body.concat(), &expected);
        }
    }
    let long = [field("model", &"m".repeat(257)), "--b 1--".to_owned()].concat();
    assert_facts("/v1/audio/transcriptions", &form, &long, &facts(None, None));
    assert_facts("/v1/audio/transcriptions", &form, "--b 1\nno form", &facts(None, None));
    let compressed = [form[0], ("content-encoding", "gzip")];
    assert_facts("/v1/audio/transcriptions", &compressed, &field("model", "m"), &facts(None, None));
}

#[test]
fn the_body_shows_the_dialect_where_the_path_leaves_it_open() {
    use Dialect::{CohereV1, OpenAiChat, Sglang, Tgi, Triton};
    for (path, body, expected) in [
        ("/generate", r#"{"stream":true,"model":"m","inputs":"x"}"#, None),
        ("/generate", r#"{"stream":true,"model":"m","text":"x"}"#, Some(Sglang)),
        ("/generate", r#"{"stream":true,"model":"m","input_ids":[1]}"#, Some(Sglang)),
        ("/generate", r#"{"stream":true,"model":"m","inputs":"x","sampling_params":{}}"#, Some(Sglang)),
        ("/generate", r#"{"stream":true,"model":"m","inputs":"x","text":"x"}"#, None),
        ("/generate", r#"{"stream":true,"model":"m","text":null}"#, None),
        ("/generate", r#"{"stream":true,"model":"m","parameters":{"text":"x"}}"#, None),
        ("/generate", r#"{"stream":true,"model":"m","text_input":"x"}"#, Some(Triton)),
        ("/generate", r#"{"stream":true,"model":"m","prompt":"x"}"#, None),
        ("/v1/generate", r#"{"stream":true,"model":"m","prompt":"x"}"#, Some(CohereV1)),
        ("/v1/generate", r#"{"stream":true,"model":"m","prompt":"x","inputs":"x"}"#, None),
        ("/v1/generate", r#"{"stream":true,"model":"m","text":"x"}"#, Some(Sglang)),
        ("/v1/chat", r#"{"stream":true,"model":"m","messages":[{"message":1}]}"#, Some(OpenAiChat)),
        ("/v1/chat", r#"{"stream":true,"model":"m","message":"x"}"#, None),
        ("/v1/chat", r#"{"stream":true,"model":"m","message":"x","messages":[]}"#, None),
        ("/", r#"{"stream":true,"model":"m","inputs":"x"}"#, Some(Tgi)),
        ("/", r#"{"stream":true,"model":"m","text":"x"}"#, None),
        ("/v1/chat/completions", r#"{"stream":true,"model":"m","text":"x"}"#, None),
    ] {
        assert_facts(path, &[], body, &RequestFacts { dialect: expected, ..facts(Some("m"), Some(true)) });
    }
    // Known only at the end, though model and stream are known before.
    let mut late = scan(&parts("/generate", &[]));
    assert_eq!(late.read(br#"{"model":"m","stream":true,"#), None);
    let expected = RequestFacts { dialect: Some(Sglang), ..facts(Some("m"), Some(true)) };
    assert_eq!(late.read(br#""sampling_params":{}}"#), Some(expected));
}

#[test]
fn a_scan_is_small() {
    assert!(size_of::<RequestScan>() <= 320, "{} bytes", size_of::<RequestScan>());
}
