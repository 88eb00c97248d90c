use std::io::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use http::Response;
use proptest::prelude::*;

use super::*;
use crate::dialect::Kinds;

fn observer(dialect: Dialect, headers: &[(&str, &str)]) -> Observer {
    let head = headers.iter().fold(Response::builder(), |head, (name, value)| head.header(*name, *value));
    Observer::new(dialect, &head.body(()).unwrap().into_parts().0)
}

fn stream(dialect: Dialect) -> Observer {
    observer(dialect, &[("content-type", "text/event-stream")])
}

fn signals(observer: &mut Observer, pieces: &[&[u8]]) -> Vec<Signal> {
    let mut signals = Vec::new();
    for piece in pieces {
        observer.read(piece, &mut |signal| signals.push(signal));
    }
    observer.end(&mut |signal| signals.push(signal));
    signals
}

fn chunk(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{content}}}}}]}}\n\n")
}

const OUTPUT: Signal = Signal { output: Kinds::ANSWER, end: false, error: false };
const NOTHING: Signal = Signal { output: Kinds::NONE, end: false, error: false };

#[test]
fn it_lives_in_thousands_of_streams_and_is_small() {
    assert!(size_of::<Observer>() <= 640, "{} bytes", size_of::<Observer>());
    assert!(size_of::<Twin>() <= 896, "{} bytes once there is output", size_of::<Twin>());
}

#[test]
fn the_dialects_trees_fit_their_nodes_numbers() {
    for dialect in Dialect::ALL {
        let nodes = dialect.rules().tree.len();
        assert!(nodes < 255, "{nodes} nodes of {}", dialect.as_str());
    }
}

#[test]
fn audio_is_told_from_its_transcript() {
    for (dialect, event, audio) in [
        (Dialect::OpenAiChat, r#"{"choices":[{"delta":{"audio":{"data":"UklG"}}}]}"#, true),
        (Dialect::OpenAiChat, r#"{"choices":[{"delta":{"audio":{"transcript":"Hi"}}}]}"#, false),
        (Dialect::OpenAiResponses, r#"{"type":"response.output_audio.delta","delta":"UklG"}"#, true),
        (Dialect::OpenAiResponses, r#"{"type":"response.audio.delta","delta":"UklG"}"#, true),
        (Dialect::OpenAiResponses, r#"{"type":"response.audio.transcript.delta","delta":"Hi"}"#, false),
    ] {
        let output = if audio { Kinds::ANSWER | Kinds::AUDIO } else { Kinds::ANSWER };
        let body = format!("data: {event}\n\n");
        assert_eq!(signals(&mut stream(dialect), &[body.as_bytes()]), [Signal { output, ..OUTPUT }], "{event}");
    }
}

#[test]
fn the_content_type_says_how_the_body_is_framed() {
    let cases = [
        (Some("text/event-stream"), true, true),
        (Some("Text/Event-Stream ;charset=utf-8"), true, true),
        (Some("application/json"), false, true),
        (Some("application/problem+json; charset=utf-8"), false, true),
        (Some("text/html"), false, false),
        (Some("application/octet-stream"), false, true),
        (None, false, true),
    ];
    for (content_type, is_stream, is_read) in cases {
        let header = content_type.map(|value| ("content-type", value));
        let mut observer = observer(Dialect::OpenAiChat, header.as_slice());
        assert_eq!(observer.is_stream(), is_stream, "{content_type:?}");
        assert_eq!(signals(&mut observer, &[b"\n{\"model\":\"small\"}"]), []);
        assert_eq!(observer.facts().response_model.is_some(), is_read, "{content_type:?}");
        assert_eq!(observer.off(), None, "{content_type:?}");
    }
}

#[test]
fn without_a_content_type_the_first_byte_says_it() {
    for begin in ["", ": hi\n\n", "\r\n", " ", "event: x\n", "id: 7\n", "\u{feff}"] {
        let body = begin.to_owned() + &chunk("\"a\"");
        for width in [1, body.len()] {
            let mut observer = observer(Dialect::OpenAiChat, &[]);
            let pieces: Vec<_> = body.as_bytes().chunks(width).collect();
            assert_eq!(signals(&mut observer, &pieces), [OUTPUT], "{begin:?} by {width}");
            assert!(observer.is_stream());
        }
    }
    let mut observer = observer(Dialect::OpenAiChat, &[]);
    assert_eq!(signals(&mut observer, &[b"<html>"]), []);
    assert!(!observer.is_stream());
}

#[test]
fn white_space_around_the_end_marker_means_nothing() {
    let end = Signal { end: true, ..NOTHING };
    for (content_type, body) in [
        ("text/event-stream", "data:  \t [DONE] \n\n"),
        ("text/event-stream", "data:\ndata: [DONE]\ndata:\n\n"),
        ("application/x-ndjson", " [DONE]\t\r\n"),
    ] {
        for width in [1, 4, body.len()] {
            let mut observer = observer(Dialect::OpenAiChat, &[("content-type", content_type)]);
            let pieces: Vec<_> = body.as_bytes().chunks(width).collect();
            assert_eq!(signals(&mut observer, &pieces), [end], "{body:?} by {width}");
        }
    }
    assert_eq!(signals(&mut stream(Dialect::OpenAiChat), &[b"data: [ DONE]\n\ndata: \x0c[DONE]\n\n"]), [NOTHING; 2]);
}

#[test]
fn half_a_document_is_told_from_a_whole_one_and_from_none() {
    let json = [("content-type", "application/json")];
    for (body, half) in [("", false), (" \n", false), ("{\"a\":[1", true), ("{\"a\":[1]}\n", false), ("oops", false)] {
        let mut observer = observer(Dialect::OpenAiChat, &json);
        assert_eq!(signals(&mut observer, &[body.as_bytes()]), []);
        assert_eq!(observer.is_half_read(), half, "{body:?}");
    }
    let mut events = stream(Dialect::OpenAiChat);
    signals(&mut events, &[b"data: {\"a\":[1"]);
    assert!(!events.is_half_read(), "a stream has its own end");
}

/// The parts as gzip, flushed after each, and its end.
fn gzipped(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let flush = |part: &&[u8]| {
        encoder.write_all(part).unwrap();
        encoder.flush().unwrap();
        std::mem::take(encoder.get_mut())
    };
    let mut squeezed: Vec<_> = parts.iter().map(flush).collect();
    squeezed.push(encoder.finish().unwrap());
    squeezed
}

fn squeezed(dialect: Dialect, content_type: &str, coding: &str) -> Observer {
    observer(dialect, &[("content-type", content_type), ("content-encoding", coding)])
}

#[test]
fn events_of_a_compressed_stream_are_signalled_with_the_read_that_brought_them() {
    let parts =
        [": hi\n\n".to_owned(), chunk("\"a\""), chunk("\"b\"") + &chunk("\"c\""), "data: [DONE]\n\n".to_owned()];
    let reads = gzipped(&parts.each_ref().map(String::as_bytes));
    let mut observer = squeezed(Dialect::OpenAiChat, "text/event-stream", "gzip");
    let counts: Vec<_> = reads
        .iter()
        .map(|read| {
            let mut outputs = 0;
            observer.read(read, &mut |signal| outputs += usize::from(signal.output == Kinds::ANSWER));
            outputs
        })
        .collect();
    assert_eq!(counts, [0, 1, 2, 0, 0]);
    assert!(observer.is_stream() && observer.facts().ended);
    assert_eq!((observer.off(), observer.skipped()), (None, 0));
}

#[test]
fn any_split_of_a_compressed_stream_says_what_the_plain_one_says() {
    let body = chunk("\"a\"") + "data: {\n\n" + &chunk("\"b\"") + "data: [DONE]";
    let expected = signals(&mut stream(Dialect::OpenAiChat), &[body.as_bytes()]);
    let whole = gzipped(&[body.as_bytes()]).concat();
    for split in 0..=whole.len() {
        let (head, tail) = whole.split_at(split);
        let mut observer = squeezed(Dialect::OpenAiChat, "text/event-stream", "gzip");
        assert_eq!(signals(&mut observer, &[head, tail]), expected, "{split}");
        assert_eq!((observer.off(), observer.skipped(), observer.facts().ended), (None, 1, true), "{split}");
    }
}

#[test]
fn compressed_documents_are_read_and_half_ones_told() {
    let body = b"{\"model\":\"small\",\"usage\":{\"completion_tokens\":9}}";
    let reads = gzipped(&[&body[..20], &body[20..]]);
    for content_type in [Some("application/json"), None] {
        let headers: Vec<_> = content_type
            .map(|value| ("content-type", value))
            .into_iter()
            .chain([("content-encoding", "x-gzip")])
            .collect();
        let mut observer = observer(Dialect::OpenAiChat, &headers);
        observer.read(&reads[0], &mut |_| panic!("no stream"));
        assert!(observer.is_half_read());
        signals(&mut observer, &[&reads[1], &reads[2]]);
        assert!(!observer.is_half_read());
        assert_eq!((observer.facts().usage.output, observer.off()), (Some(9), None));
    }
}

#[test]
fn codings_that_can_t_be_undone_end_the_reading() {
    let sse = "text/event-stream";
    for coding in ["compress", "gzip, br", "br,gzip", "gzip,gzip", "aws-chunked", "identity, compress"] {
        let mut observer = squeezed(Dialect::Anthropic, sse, coding);
        assert_eq!(observer.off(), Some(ObserverOff::Encoding), "{coding}");
        assert!(observer.is_stream());
        assert_eq!(signals(&mut observer, &[b"data: {}\n\n"]), []);
    }
    for coding in ["identity", "Identity", "", "gzip", " , br", "identity, deflate", "GZIP,"] {
        assert_eq!(squeezed(Dialect::Anthropic, sse, coding).off(), None, "{coding}");
    }
    let twice = [("content-type", sse), ("content-encoding", "gzip"), ("content-encoding", "br")];
    assert_eq!(observer(Dialect::Anthropic, &twice).off(), Some(ObserverOff::Encoding));
    assert_eq!(
        observer(Dialect::Other, &[("content-encoding", "compress")]).off(),
        None,
        "nothing would be read anyway"
    );
}

#[test]
fn what_is_not_as_compressed_as_it_says_ends_the_reading() {
    let body = chunk("\"a\"");
    let mut observer = squeezed(Dialect::OpenAiChat, "text/event-stream", "gzip");
    assert_eq!(signals(&mut observer, &[body.as_bytes(), body.as_bytes()]), []);
    assert_eq!(observer.off(), Some(ObserverOff::Encoding));

    let mut reads = gzipped(&[body.as_bytes(), body.as_bytes()]);
    reads.insert(1, vec![0xff; 20]);
    let mut observer = squeezed(Dialect::OpenAiChat, "text/event-stream", "gzip");
    assert_eq!(signals(&mut observer, &reads.iter().map(Vec::as_slice).collect::<Vec<_>>()), [OUTPUT]);
    assert_eq!(observer.off(), Some(ObserverOff::Encoding));

    let bomb = gzipped(&[&b"\n".repeat(32 << 20)]).concat();
    let mut observer = squeezed(Dialect::OpenAiChat, "text/event-stream", "gzip");
    assert_eq!(signals(&mut observer, &bomb.chunks(16 << 10).collect::<Vec<_>>()), []);
    assert_eq!(observer.off(), Some(ObserverOff::Overflow));
}

#[test]
fn unreadable_events_end_the_inflating_too() {
    let reads = gzipped(&[b"data: {\n\ndata: {\n\ndata: {\n\n", chunk("\"a\"").as_bytes()]);
    let mut observer = squeezed(Dialect::OpenAiChat, "text/event-stream", "gzip");
    assert_eq!(signals(&mut observer, &reads.iter().map(Vec::as_slice).collect::<Vec<_>>()), [NOTHING; 3]);
    assert_eq!(observer.off(), Some(ObserverOff::Malformed));
}

#[test]
fn what_turns_out_to_be_neither_stream_nor_document_is_not_inflated_on() {
    let mut observer = observer(Dialect::OpenAiChat, &[("content-encoding", "gzip")]);
    let reads = gzipped(&[b"<html>", b"</html>"]);
    observer.read(&reads[0], &mut |_| panic!("no stream"));
    assert!(observer.inflater.is_none());
    assert_eq!(signals(&mut observer, &[&reads[1], b"{"]), []);
    assert_eq!((observer.off(), observer.is_half_read()), (None, false));
}

#[test]
fn compressed_events_of_an_unknown_dialect_are_counted() {
    let mut observer = squeezed(Dialect::Other, "text/event-stream", "gzip");
    assert_eq!(signals(&mut observer, &[&gzipped(&[b"data: x\n\ndata: y\n\n"]).concat()]), [NOTHING; 2]);
    assert_eq!(observer.off(), Some(ObserverOff::UnknownDialect));
}

#[test]
fn events_of_an_unknown_dialect_are_counted_and_say_nothing() {
    let mut observer = stream(Dialect::Other);
    assert_eq!(observer.off(), Some(ObserverOff::UnknownDialect));
    assert_eq!(signals(&mut observer, &[b"data: x\n\n: hi\n\ndata: [DONE]\n\nevent: error\ndata: y"]), [NOTHING; 3]);
    assert_eq!(observer.off(), Some(ObserverOff::UnknownDialect));
}

#[test]
fn a_name_is_that_of_an_error_only_in_an_event_that_is_one() {
    for (dialect, output) in [
        (Dialect::LlamaCpp, r#"{"content":"a","type":"x"}"#),
        (Dialect::LlamaCpp, r#"{"content":"a","code":7}"#),
        (Dialect::Tgi, r#"{"token":{"text":"a"},"error_type":"x"}"#),
        (Dialect::OpenAiChat, r#"{"choices":[{"delta":{"content":"a"}}],"error_type":"x"}"#),
        (Dialect::OpenAiChat, r#"{"code":7,"type":"x","choices":[{"delta":{"content":"a"}}]}"#),
        (Dialect::Cohere, r#"{"type":"content-delta","delta":{"message":{"content":{"text":"a"}}},"error_type":"x"}"#),
    ] {
        let output = format!("data: {output}\n\n");
        let other = output.replace('7', "8").replace('x', "\\u0079");
        let stop = "data: {\"error\":{\"type\":\"stop\"},\"error_type\":\"stop\"}\n\n";
        for (body, error) in [
            ([&output[..], &other, &output].concat(), None),
            ([&output[..], stop, &other, &output].concat(), Some("stop")),
            ([&output[..], "data: {\"code\":9\n\n", &output].concat(), None),
        ] {
            for width in [1, 7, body.len()] {
                let mut observer = stream(dialect);
                let pieces: Vec<_> = body.as_bytes().chunks(width).collect();
                let outputs = signals(&mut observer, &pieces).iter().filter(|signal| !signal.output.is_empty()).count();
                assert!(outputs >= 2, "{dialect:?}: {body}");
                assert_eq!(observer.facts().error.as_deref(), error, "{dialect:?} by {width}: {body}");
            }
        }
    }
}

#[test]
fn the_best_name_of_an_error_stands_wherever_it_stands() {
    for (dialect, event) in [
        (Dialect::OpenAiChat, r#"{"error":{"code":7,"type":"best"}}"#),
        (Dialect::OpenAiChat, r#"{"error":{"type":"best","code":7}}"#),
        (Dialect::OpenAiChat, r#"{"code":7,"error":{"code":"best"},"type":"bare"}"#),
        (Dialect::OpenAiChat, r#"{"code":7,"error":"sorry","type":"best"}"#),
        (Dialect::OpenAiResponses, r#"{"code":"best","type":"error"}"#),
        (Dialect::OpenAiResponses, r#"{"type":"error","code":7,"error":{"type":"best"}}"#),
        (Dialect::LlamaCpp, r#"{"type":"best","code":7,"error":{}}"#),
    ] {
        for body in [format!("data: {event}\n\n"), format!("data: {event}")] {
            for width in [1, body.len()] {
                let mut observer = stream(dialect);
                let pieces: Vec<_> = body.as_bytes().chunks(width).collect();
                assert!(signals(&mut observer, &pieces)[0].error, "{event}");
                assert_eq!(observer.facts().error.as_deref(), Some("best"), "{event} by {width}");
            }
        }
    }
    // Half an error has the name it had so far.
    let mut observer = observer(Dialect::OpenAiChat, &[("content-type", "application/json")]);
    signals(&mut observer, &[br#"{"error":{"type":"best","message":"a"#]);
    assert_eq!(
        (observer.facts().error.as_deref(), observer.take_facts().error.as_deref()),
        (Some("best"), Some("best"))
    );
}

#[test]
fn three_unreadable_events_in_a_row_end_the_reading() {
    let mut observer = stream(Dialect::OpenAiChat);
    let body = "data: {\n\ndata: x\n\n".to_owned() + &chunk("\"a\"");
    assert_eq!(signals(&mut observer, &[body.as_bytes()]), [NOTHING, NOTHING, OUTPUT]);
    assert_eq!((observer.off(), observer.skipped()), (None, 2));

    let body = "data: {\n\ndata: x\n\ndata: ]\n\n".to_owned() + &chunk("\"a\"");
    assert_eq!(signals(&mut observer, &[body.as_bytes()]), [NOTHING; 3]);
    assert_eq!((observer.off(), observer.skipped()), (Some(ObserverOff::Malformed), 5));
}

#[test]
fn a_twin_between_unreadable_events_makes_no_row_of_them() {
    let mut observer = stream(Dialect::OpenAiChat);
    let body = chunk("\"a\"") + "data: {\n\ndata: {\n\n" + &chunk("\"b\"") + "data: {\n\n";
    assert_eq!(signals(&mut observer, &[body.as_bytes()]).len(), 5);
    assert_eq!(observer.off(), None);
}

/// Pieces of a body whose very first event is remembered too, since a comment came before.
fn remembered(body: &str, width: usize) -> Vec<&[u8]> {
    [&b":\n\n"[..]].into_iter().chain(body.as_bytes().chunks(width)).collect()
}

fn wrapped(event: &str) -> String {
    format!("{{\"bytes\":\"{}\"}}", BASE64_STANDARD.encode(event))
}

#[test]
fn what_varies_in_a_wrapped_event_is_not_looked_for_in_its_wrapping() {
    // As base64, "hm?" has a digit and what may follow a number.
    for (before, behind) in (0..60).flat_map(|before| (0..4).map(move |behind| (before, behind))) {
        let text = "a".repeat(before) + "hm?" + &"a".repeat(behind);
        let event = wrapped(&format!("{{\"outputText\":\"{text}\",\"totalOutputTextTokenCount\":7}}"));
        let mut observer = stream(Dialect::BedrockInvoke);
        let body = format!("data: {event}\n\n").repeat(3);
        assert_eq!(signals(&mut observer, &[body.as_bytes()]), [OUTPUT; 3]);
        assert_eq!(observer.facts().usage.output, Some(7), "{text}");
    }
}

#[test]
fn audio_alike_is_output_whatever_had_to_grow_before_it() {
    let text = r#"{"output":{"text":"a"},"usage":{"output_tokens":1}}"#;
    let audio = r#"{"output":{"audio":{"data":"UklG"}},"usage":{"output_tokens":1}}"#;
    let body = [text, audio, audio, audio].map(|event| format!("data: {event}\n\n")).concat();
    for width in [1, body.len()] {
        let pieces: Vec<_> = body.as_bytes().chunks(width).collect();
        let outputs = signals(&mut stream(Dialect::DashScope), &pieces).iter().filter(|s| !s.output.is_empty()).count();
        assert_eq!(outputs, 4, "by {width}");
    }
}

#[test]
fn a_model_that_takes_over_is_named_by_each_event_that_says_so() {
    let event = |model: &str, text: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"content_block\":{{\"type\":\"text\",\"to\":{{\"model\":\"{model}\"}},\
             \"text\":\"{text}\"}}}}\n\n"
        )
    };
    let body = event("x", "a") + &event("y", &"a".repeat(900)) + &event("x", "a");
    for width in [1, body.len()] {
        let mut observer = stream(Dialect::Anthropic);
        assert_eq!(signals(&mut observer, &remembered(&body, width)), [OUTPUT; 3]);
        assert_eq!(observer.facts().response_model.as_deref(), Some("x"), "by {width}");
    }
}

#[test]
fn a_document_that_is_none_is_said_so() {
    let json = [("content-type", "application/json")];
    for (body, off) in [
        ("{\"model\":\"x\"}", None),
        ("", None),
        ("{\"model\":", None),
        ("<html>", Some(ObserverOff::Malformed)),
        (&"[".repeat(80), Some(ObserverOff::Overflow)),
    ] {
        let mut observer = observer(Dialect::OpenAiChat, &json);
        signals(&mut observer, &[body.as_bytes()]);
        assert_eq!(observer.off(), off, "{body}");
    }
    // Whether a document is whole does not hang on what comes behind it, or when.
    for pieces in [&[&b"{\"model\":\"x\"} y"[..]][..], &[b"{\"model\":\"x\"}", b" y"]] {
        let mut observer = observer(Dialect::OpenAiChat, &json);
        signals(&mut observer, pieces);
        assert_eq!((observer.off(), observer.facts().ended), (Some(ObserverOff::Malformed), true));
    }
}

#[test]
fn long_events_are_read_without_being_held() {
    let mut observer = stream(Dialect::OpenAiResponses);
    let text = "word \\\" ".repeat(500_000);
    let body = format!(
        "data: {{\"type\":\"response.completed\",\"response\":{{\"output\":[{{\"text\":\"{text}\"}}],\
         \"usage\":{{\"input_tokens\":1,\"output_tokens\":2}}}}}}\n\n"
    );
    let pieces: Vec<_> = body.as_bytes().chunks(16384).collect();
    assert_eq!(signals(&mut observer, &pieces), [Signal { end: true, ..NOTHING }]);
    assert_eq!(observer.facts().usage.output, Some(2));
}

/// One event of a stream in which each is much like the last.
#[test]
fn a_stream_of_json_is_lines_though_its_type_ends_like_a_documents() {
    let mut lines = observer(Dialect::CohereV1, &[("content-type", "application/stream+json")]);
    assert!(lines.is_stream());
    let body = b"{\"event_type\":\"stream-start\"}\n{\"event_type\":\"text-generation\",\"text\":\"a\"}\n";
    assert_eq!(signals(&mut lines, &[body]), [NOTHING, OUTPUT]);
}

#[test]
fn what_has_no_end_of_its_own_is_complete_with_the_transport() {
    let says = |dialect, body: &str| {
        let mut observer = stream(dialect);
        signals(&mut observer, &[body.as_bytes()]);
        let facts = observer.facts();
        assert!(!facts.ended && facts.error.is_none(), "{facts:?}");
        facts.finished()
    };
    assert!(says(Dialect::Triton, "data: {\"text_output\":\"a\"}\n\n"));
    assert!(says(Dialect::OpenAiChat, "data: {\"value\":\"a\"}\n\n"));
    assert!(!says(Dialect::OpenAiChat, &chunk("\"a\"")));
}

#[test]
fn providers_state_their_times() {
    let stated = |dialect, body: &str| {
        let mut observer = observer(dialect, &[("content-type", "application/json")]);
        observer.read(body.as_bytes(), &mut |_| {});
        let times = observer.facts().reported;
        [times.queue, times.prefill, times.decode, times.ttft, times.total]
            .map(|time| time.map(|time| time.0 / 1_000_000))
    };
    let meta = r#"{"text":"a","meta_info":{"e2e_latency":1.5,"queue_time":0.25}}"#;
    assert_eq!(stated(Dialect::Sglang, meta), [Some(250), None, None, None, Some(1500)]);
    let timings = r#"{"content":"a","timings":{"prompt_ms":12.5,"predicted_ms":33}}"#;
    assert_eq!(stated(Dialect::LlamaCpp, timings), [None, Some(12), Some(33), None, None]);
    let stats = r#"{"stats":{"time_to_first_token_seconds":0.75,"model_load_time_seconds":9}}"#;
    assert_eq!(stated(Dialect::LmStudio, stats), [None, None, None, Some(750), None]);
}

fn event() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        "[a-z ]{0,12}".prop_map(|text| format!("\"{text}\"")),
        Just("null".to_owned()),
        Just("\"\\\"\"".to_owned()),
        Just("\"\\u00e9\\n\"".to_owned()),
        Just("[{\"text\":\"x\"}]".to_owned()),
    ];
    let key = prop_oneof![5 => Just("content"), 1 => Just("reasoning"), 1 => Just("refusal")];
    let number = prop_oneof![Just("7".to_owned()), "[0-9]{1,4}", Just("null".to_owned())];
    let finish = prop_oneof![5 => Just("null"), 1 => Just("\"stop\"")];
    let usage = prop_oneof![5 => Just(String::new()), 1 => "[0-9]{1,3}".prop_map(|n| format!(",\"usage\":{{\"completion_tokens\":{n}}}"))];
    let index = prop_oneof![4 => Just(0), 1 => 0..3];
    let more = prop_oneof![4 => Just(0_usize), 1 => 0..20_usize].prop_map(|n| ",\"m\":1".repeat(n));
    let padding = proptest::collection::vec(Just(' '), 0..4).prop_map(|spaces| spaces.into_iter().collect::<String>());
    let end = prop_oneof![6 => Just("\n\n"), 1 => Just("\r\n\r\n"), 1 => Just("\n: hi\n\n"), 1 => Just("\nid: 7\n\n")];
    (key, text, number, finish, usage, padding, end, index, more).prop_map(|event| {
        let (key, text, number, finish, usage, padding, end, index, more) = event;
        format!(
            "data: {{\"id\":\"i\",\"n\":{number}{more},\"choices\":[{{\"index\":{index},\"delta\":{{\"{key}\":{text}}},\
             \"finish_reason\":{finish}}}]{usage},\"p\":{text}{padding}}}{end}"
        )
    })
}

proptest! {
    /// Events that lie wholly in a read may be recognised as twins, those read byte by byte never are.
    #[test]
    fn twins_say_what_a_full_reading_says(events in proptest::collection::vec(event(), 0..12), width in 1_usize..400) {
        let body = events.concat();
        let mut by_bytes = stream(Dialect::OpenAiChat);
        let expected = signals(&mut by_bytes, &body.as_bytes().chunks(1).collect::<Vec<_>>());
        for width in [width, body.len().max(1)] {
            let mut observer = stream(Dialect::OpenAiChat);
            prop_assert_eq!(&signals(&mut observer, &body.as_bytes().chunks(width).collect::<Vec<_>>()), &expected);
            prop_assert_eq!(format!("{:?}", observer.facts()), format!("{:?}", by_bytes.facts()));
        }
    }
}
