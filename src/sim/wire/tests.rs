use serde_json::Value;

use super::*;
use crate::dialect::{Dialect, Observer, Reported};

fn reply() -> Reply {
    Reply {
        number: 7,
        created: 1_700_000_000,
        model: r#""sim \"quoted\"""#.to_owned(),
        input_tokens: 33,
        output_tokens: 40,
        reasoning_tokens: 0,
        usage: true,
        reports: Reports::default(),
        times: None,
        wants_usage: true,
        early_prelude: true,
        tool_call: false,
        name_tokens: 1,
        finish: Finish::Stop,
    }
}

/// One piece per token, as a script without batching makes them.
fn pieces(reply: &Reply) -> Vec<Piece> {
    (0..reply.output_tokens)
        .map(|first| {
            let reasons = first < reply.reasoning_tokens;
            let kind = match () {
                () if reasons => Kind::Reasoning,
                () if !reply.tool_call => Kind::Text,
                () if first == reply.reasoning_tokens => Kind::ToolName,
                () => Kind::ToolArguments,
            };
            let end = if reasons { reply.reasoning_tokens } else { reply.output_tokens };
            Piece { kind, first, tokens: 1, last_of_kind: first + 1 == end }
        })
        .collect()
}

struct Read {
    /// The `event:` line; empty without one.
    name: String,
    /// Null for `[DONE]`.
    json: Value,
    output: bool,
    usage: Option<(u64, u32)>,
}

fn drain(events: &mut Events) -> Vec<Read> {
    std::iter::from_fn(|| events.pop())
        .map(|event| {
            let text = std::str::from_utf8(&event.bytes).unwrap();
            let text = text.strip_suffix("\n\n").expect("an event ends with an empty line");
            assert!(!text.contains("\n\n"), "one event in a frame: {text}");
            let (name, data) = match text.strip_prefix("event: ") {
                Some(rest) => rest.split_once("\ndata: ").unwrap(),
                None => ("", text.strip_prefix("data: ").unwrap()),
            };
            let json = if data == "[DONE]" { Value::Null } else { serde_json::from_str(data).expect(data) };
            Read { name: name.to_owned(), json, output: event.output, usage: event.usage }
        })
        .collect()
}

fn stream(protocol: Protocol, reply: &Reply) -> Vec<Read> {
    let (mut wire, mut events) = (Wire::new(protocol, reply.clone()), Events::default());
    wire.prelude(&mut events);
    let mut all = drain(&mut events);
    for piece in pieces(reply) {
        wire.piece(&piece, &mut events);
        let read = drain(&mut events);
        assert_eq!(read.iter().filter(|event| event.output).count(), 1, "one output event a piece");
        all.extend(read);
    }
    wire.closing(None, &mut events);
    all.extend(drain(&mut events));
    all
}

fn whole(protocol: Protocol, reply: &Reply) -> Value {
    serde_json::from_slice(&plain(protocol, reply)).unwrap()
}

/// All strings at this pointer, joined.
fn joined(events: &[Read], pointer: &str) -> String {
    events.iter().filter_map(|event| event.json.pointer(pointer)?.as_str()).collect()
}

fn names(events: &[Read]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    names.dedup();
    names
}

#[test]
fn a_chat_stream_has_role_text_finish_usage_and_done() {
    let events = stream(Protocol::Chat, &reply());
    assert_eq!(events.len(), 1 + 40 + 3);
    let first = &events[0].json;
    assert_eq!(
        (&first["choices"][0]["delta"]["role"], &first["choices"][0]["delta"]["content"]),
        (&"assistant".into(), &"".into())
    );
    for event in &events[..43] {
        assert_eq!(event.json["object"], "chat.completion.chunk");
        assert_eq!(event.json["id"], first["id"]);
        assert_eq!(event.json["model"], r#"sim "quoted""#);
        assert!(event.json.get("usage").is_some(), "asked for usage, every chunk has the key");
    }
    assert_eq!(events[41].json["choices"][0]["finish_reason"], "stop");
    assert_eq!(events[42].json["choices"], serde_json::json!([]));
    assert_eq!(events[42].json["usage"]["completion_tokens"], 40);
    assert_eq!(events[42].json["usage"]["total_tokens"], 73);
    assert_eq!(events[42].usage, Some((33, 40)));
    assert!(events[43].json.is_null());
    let text = whole(Protocol::Chat, &reply());
    assert_eq!(text["choices"][0]["message"]["content"], joined(&events, "/choices/0/delta/content"));
    assert_eq!(text["usage"], events[42].json["usage"]);
}

#[test]
fn a_chat_stream_that_did_not_ask_has_no_usage_at_all() {
    let events = stream(Protocol::Chat, &Reply { wants_usage: false, ..reply() });
    assert_eq!(events.len(), 1 + 40 + 2);
    assert!(events.iter().all(|event| event.json.get("usage").is_none() && event.usage.is_none()));
}

#[test]
fn a_late_role_shares_the_first_output() {
    let events = stream(Protocol::Chat, &Reply { early_prelude: false, ..reply() });
    assert!(events[0].output);
    assert_eq!(events[0].json["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[0].json["choices"][0]["delta"]["content"], " the");
    let tool = stream(Protocol::Chat, &Reply { early_prelude: false, tool_call: true, ..reply() });
    assert!(tool[0].output);
    assert_eq!(tool[0].json["choices"][0]["delta"]["content"], Value::Null);
    assert_eq!(tool[0].json["choices"][0]["delta"]["tool_calls"][0]["function"]["name"], "look_up");
}

#[test]
fn chat_reasoning_comes_before_the_text() {
    let reply = Reply { reasoning_tokens: 15, ..reply() };
    let events = stream(Protocol::Chat, &reply);
    let text = whole(Protocol::Chat, &reply);
    let message = &text["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], joined(&events, "/choices/0/delta/reasoning_content"));
    assert_eq!(message["content"], joined(&events, "/choices/0/delta/content"));
    assert!(events[15].json.pointer("/choices/0/delta/reasoning_content").is_some());
    assert!(events[16].json.pointer("/choices/0/delta/content").is_some());
    assert_eq!(text["usage"]["completion_tokens_details"]["reasoning_tokens"], 15);
}

#[test]
fn a_responses_stream_runs_through_its_items() {
    let reply = Reply { reasoning_tokens: 15, ..reply() };
    let events = stream(Protocol::Responses, &reply);
    assert_eq!(
        names(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.json["sequence_number"], number);
        assert_eq!(event.json["type"], event.name);
    }
    let last = events.last().unwrap();
    assert_eq!(last.json["response"]["usage"]["output_tokens"], 40);
    assert_eq!(last.json["response"]["usage"]["output_tokens_details"]["reasoning_tokens"], 15);
    assert_eq!(last.usage, Some((33, 40)));
    assert_eq!(last.json["response"], whole(Protocol::Responses, &reply));
    let texts: String = events
        .iter()
        .filter(|event| event.name == "response.output_text.delta")
        .filter_map(|event| event.json["delta"].as_str())
        .collect();
    assert_eq!(last.json["response"]["output"][1]["content"][0]["text"], texts);
    assert_eq!(
        last.json["response"]["output"][1]["id"],
        events.iter().find(|e| e.output && e.name.contains("text.delta") && e.json["output_index"] == 1).unwrap().json
            ["item_id"]
    );
}

#[test]
fn a_bounded_response_is_incomplete() {
    let events = stream(Protocol::Responses, &Reply { finish: Finish::Length, ..reply() });
    let last = &events.last().unwrap().json;
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
}

#[test]
fn an_anthropic_stream_runs_through_its_blocks() {
    let reply = Reply { reasoning_tokens: 15, ..reply() };
    let events = stream(Protocol::Messages, &reply);
    assert_eq!(
        names(&events),
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    assert!(events.iter().all(|event| event.json["type"] == event.name));
    assert_eq!(events[0].json["message"]["usage"]["output_tokens"], 1);
    assert_eq!(events[0].usage, Some((33, 1)));
    let delta = &events[events.len() - 2];
    assert_eq!((&delta.json["usage"]["input_tokens"], &delta.json["usage"]["output_tokens"]), (&33.into(), &40.into()));
    assert_eq!(delta.json["delta"]["stop_reason"], "end_turn");
    assert_eq!(delta.usage, Some((33, 40)));
    let text = whole(Protocol::Messages, &reply);
    assert_eq!(text["content"][0]["thinking"], joined(&events, "/delta/thinking"));
    assert_eq!(text["content"][1]["text"], joined(&events, "/delta/text"));
    assert_eq!(text["usage"]["output_tokens_details"]["thinking_tokens"], 15);
    let signature = events.iter().find(|event| event.json.pointer("/delta/signature").is_some()).unwrap();
    assert!(!signature.output);
}

#[test]
fn tool_arguments_are_json_in_every_dialect() {
    for name_tokens in [1, 40] {
        let reply = Reply { tool_call: true, finish: Finish::Tool, name_tokens, output_tokens: 40, ..reply() };
        let pieces = if name_tokens == 40 {
            vec![Piece { kind: Kind::ToolName, first: 0, tokens: 40, last_of_kind: true }]
        } else {
            pieces(&reply)
        };
        for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Messages] {
            let (mut wire, mut events) = (Wire::new(protocol, reply.clone()), Events::default());
            wire.prelude(&mut events);
            for piece in &pieces {
                wire.piece(piece, &mut events);
            }
            wire.closing(None, &mut events);
            let events = drain(&mut events);
            assert_eq!(events.iter().filter(|event| event.output).count(), pieces.len());
            let text = whole(protocol, &reply);
            let (streamed, told) = match protocol {
                Protocol::Chat => (
                    joined(&events, "/choices/0/delta/tool_calls/0/function/arguments"),
                    &text["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
                ),
                Protocol::Responses => (joined(&events, "/arguments"), &text["output"][0]["arguments"]),
                Protocol::Messages => (joined(&events, "/delta/partial_json"), &text["content"][0]["input"]),
            };
            let told: Value = told.as_str().map_or_else(|| told.clone(), |text| serde_json::from_str(text).unwrap());
            assert!(told.is_object());
            // An Anthropic tool without arguments streams none at all.
            if !(protocol == Protocol::Messages && name_tokens == 40) {
                assert_eq!(serde_json::from_str::<Value>(&streamed).expect(&streamed), told);
            }
        }
    }
}

#[test]
fn errors_have_the_shape_of_their_dialect() {
    for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Messages] {
        let (mut wire, mut events) = (Wire::new(protocol, reply()), Events::default());
        wire.error(&mut events);
        let events = drain(&mut events);
        let error = &events[0].json;
        match protocol {
            Protocol::Chat => assert_eq!(error["error"]["type"], "server_error"),
            Protocol::Responses => {
                assert_eq!((&error["type"], &error["code"]), (&"error".into(), &"server_error".into()));
            }
            Protocol::Messages => assert_eq!(error["error"]["type"], "overloaded_error"),
        }
        for status in [400, 404, 429, 500, 529] {
            let body: Value = serde_json::from_slice(&refusal(Some(protocol), status, "say \"why\"")).unwrap();
            assert_eq!(body["error"]["message"], "say \"why\"");
            assert_eq!(body["type"] == "error", protocol == Protocol::Messages);
        }
    }
}

#[test]
fn usage_can_be_off_in_every_dialect() {
    for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Messages] {
        let reply = Reply { usage: false, ..reply() };
        let events = stream(protocol, &reply);
        assert!(events.iter().all(|event| event.usage.is_none()));
        assert!(!whole(protocol, &reply)["usage"].is_object());
    }
}

#[test]
fn protocols_are_known_by_the_end_of_the_path() {
    assert_eq!(Protocol::of_path("/openai/v1/chat/completions"), Some(Protocol::Chat));
    assert_eq!(Protocol::of_path("/v1/responses"), Some(Protocol::Responses));
    assert_eq!(Protocol::of_path("/v1/messages"), Some(Protocol::Messages));
    assert_eq!(Protocol::of_path("/v1/completions"), None);
    assert_eq!(Protocol::of_path("/v1/models"), None);
}

/// What the gauge's own reader finds: in the stream, and in the plain answer.
fn read_back(dialect: Dialect, protocol: Protocol, reply: &Reply, times: Times) -> [Reported; 2] {
    let (mut wire, mut events) = (Wire::new(protocol, reply.clone()), Events::default());
    wire.prelude(&mut events);
    for piece in pieces(reply) {
        wire.piece(&piece, &mut events);
    }
    wire.closing(Some(times), &mut events);
    let stream: Vec<u8> = std::iter::from_fn(|| events.pop()).flat_map(|event| event.bytes).collect();
    let whole = plain(protocol, &Reply { times: Some(times), ..reply.clone() });
    [("text/event-stream", &stream[..]), ("application/json", &whole[..])].map(|(content_type, body)| {
        let head = http::Response::builder().header("content-type", content_type).body(()).unwrap().into_parts().0;
        let mut observer = Observer::new(dialect, &head);
        observer.read(body, &mut |_| {});
        observer.end(&mut |_| {});
        assert_eq!((observer.off(), observer.skipped()), (None, 0), "{}", String::from_utf8_lossy(body));
        assert_eq!((observer.facts().usage.input, observer.facts().usage.output), (Some(33), Some(40)));
        observer.facts().reported
    })
}

#[test]
fn times_are_told_as_each_style_has_them() {
    let ms = |millis: u64| Some(Nanos(millis * 1_000_000));
    let times = Times {
        queue: Nanos(40_000_000),
        prompt: Nanos(70_000_000),
        completion: Nanos(390_000_000),
        total: Nanos(501_000_000),
    };
    let said = |prefill, total| Reported {
        queue: ms(40),
        prefill,
        decode: ms(390),
        ttft: ms(110),
        total,
        ..Reported::default()
    };
    let cases = [
        (Reports::Groq, Protocol::Chat, said(ms(70), ms(460))),
        (Reports::Cerebras, Protocol::Chat, said(ms(70), ms(501))),
        (Reports::Vllm, Protocol::Chat, said(None, None)),
        (Reports::Vllm, Protocol::Responses, said(None, None)),
        (Reports::Headers, Protocol::Chat, Reported::default()),
        (Reports::None, Protocol::Responses, Reported::default()),
        (Reports::Groq, Protocol::Messages, Reported::default()),
    ];
    for (reports, protocol, expected) in cases {
        let dialect = match protocol {
            Protocol::Chat => Dialect::OpenAiChat,
            Protocol::Responses => Dialect::OpenAiResponses,
            Protocol::Messages => Dialect::Anthropic,
        };
        for reasoning_tokens in [0, 10] {
            let reply = Reply { reasoning_tokens, reports, ..reply() };
            assert_eq!(read_back(dialect, protocol, &reply, times), [expected, expected], "{reports:?} {protocol:?}");
        }
        assert_eq!(reports.in_body(protocol), expected != Reported::default(), "{reports:?} {protocol:?}");
    }
}

#[test]
fn groq_and_cerebras_finish_with_usage_and_times() {
    let times = Some(Times { prompt: Nanos(1_500_000), ..Times::default() });
    let closing = |reports, wants_usage| {
        let reply = Reply { reports, wants_usage, ..reply() };
        let (mut wire, mut events) = (Wire::new(Protocol::Chat, reply), Events::default());
        wire.closing(times, &mut events);
        drain(&mut events)
    };
    let groq = closing(Reports::Groq, false);
    assert_eq!(groq.len(), 2, "the chunk that finishes, [DONE]");
    assert_eq!(groq[0].json["x_groq"]["usage"]["prompt_time"], 0.0015);
    assert_eq!((groq[0].usage, groq[0].json.get("usage")), (Some((33, 40)), None));
    let asked = closing(Reports::Groq, true);
    assert_eq!((asked.len(), &asked[1].json["usage"]), (3, &asked[0].json["x_groq"]["usage"]));
    let cerebras = closing(Reports::Cerebras, true);
    assert_eq!(cerebras.len(), 1, "nothing follows the chunk that finishes");
    assert_eq!(cerebras[0].json["choices"][0]["finish_reason"], "stop");
    assert_eq!((cerebras[0].usage, &cerebras[0].json["time_info"]["prompt_time"]), (Some((33, 40)), &0.0015.into()));
}
