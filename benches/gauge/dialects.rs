//! What reading costs: each dialect's ordinary event of some 200 bytes through an `Observer` (or a `Session`, where it
//! comes over a WebSocket), and whether long bodies are linear.
//!
//! ```text
//! gauge dialects                    the table
//! gauge dialects names              the dialects in it
//! gauge dialects alike DIALECT N    N events and nothing else, for an instruction counter
//! gauge dialects walked DIALECT N   the same of events that are walked in full
//! ```
//!
//! An event that differs from the one before in nothing but its text is known again (*alike*); any other one is walked
//! in full. Both are measured: a stream whose events are all alike, and one whose events never are like the one before.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Crc;
use http::Response;
use streamgauge::{
    clock::Clock,
    dialect::{
        Dialect, Observer, Signal,
        session::{Session, Told},
    },
};

use crate::{median, words::WORDS};

const EVENTS: usize = 20_000;
const ROUNDS: usize = 9;
const MOST_WALKED: usize = 4_000;

pub(crate) fn run(arguments: &[&str]) {
    match *arguments {
        ["names"] => SPOKEN.iter().for_each(|spoken| println!("{}", spoken.dialect.as_str())),
        ["alike", name, events] => walk(name, Kind::Alike, events),
        ["walked", name, events] => walk(name, Kind::Unlike, events),
        _ => {
            per_event();
            per_byte();
        }
    }
}

fn walk(name: &str, kind: Kind, events: &str) {
    let spoken = SPOKEN.iter().find(|spoken| spoken.dialect.as_str() == name).expect("a known dialect");
    let events: usize = events.parse().expect("a number of events");
    // The same preparations however long the walk is, so that they are in no difference of two.
    assert!(events <= MOST_WALKED, "a walk of at most {MOST_WALKED} events");
    assert_eq!(Walk::begin(spoken, kind, MOST_WALKED).run(events), events, "every event is output");
}

/// One delta of each dialect as its servers send it; `{}` is the text, which differs from event to event.
struct Spoken {
    dialect: Dialect,
    framing: Framing,
    event: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Sse,
    Lines,
    /// Messages of an AWS event stream with this event type.
    Messages(&'static str),
    /// The same, and the JSON in base64 inside of `bytes`.
    Wrapped(&'static str),
    /// Messages of a WebSocket, in a turn that the client's message and the provider's began.
    Socket(&'static str, &'static str),
}

use self::Framing::{Lines, Messages, Socket, Sse, Wrapped};

const fn spoken(dialect: Dialect, framing: Framing, event: &'static str) -> Spoken {
    Spoken { dialect, framing, event }
}

const SPOKEN: [Spoken; 21] = [
    spoken(
        Dialect::OpenAiChat,
        Sse,
        r#"data: {"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion.chunk","created":1741570283,"model":"gauge-1-2025-08-07","choices":[{"index":0,"delta":{"content":"{}"},"finish_reason":null}]}"#,
    ),
    spoken(
        Dialect::OpenAiResponses,
        Sse,
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_67c9fdcf37fc8190ba82116e33fb28c5\",\"output_index\":0,\"content_index\":0,\"delta\":\"{}\",\"sequence_number\":17}",
    ),
    spoken(
        Dialect::OpenAiMedia,
        Sse,
        r#"data: {"type":"transcript.text.delta","delta":"{}","logprobs":[{"token":"river","logprob":-0.0012,"bytes":[114,105,118,101,114]}],"obfuscation":"Jk39dkwlZ0aQmPx73hdTqhZx0aXnPqk2lqk"}"#,
    ),
    spoken(
        Dialect::Anthropic,
        Sse,
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"{}, and so it flowed on to where no gauge had been set\"}              }",
    ),
    spoken(
        Dialect::Ollama,
        Lines,
        r#"{"model":"gauge3:8b-instruct-q4_K_M","created_at":"2026-03-04T12:34:56.123456789Z","message":{"role":"assistant","content":"{}","thinking":""},"done":false,"total":null,"padding":"0123456789"}"#,
    ),
    spoken(
        Dialect::Gemini,
        Sse,
        r#"data: {"candidates": [{"content": {"parts": [{"text": "{}"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 14,"candidatesTokenCount": 23,"totalTokenCount": 37},"modelVersion": "gauge-flash"}"#,
    ),
    spoken(
        Dialect::GeminiInteractions,
        Sse,
        "event: step.delta\ndata: {\"index\":1,\"delta\":{\"text\":\"{}\",\"type\":\"text\"},\"event_type\":\"step.delta\",\"event_id\":\"Cg8KCTE3NjQ1MDAwMDAQAhgBIAEoAQ==\",\"interaction_id\":\"v1_ChdaZ0tYYVlYUk9v\"}",
    ),
    spoken(
        Dialect::Cohere,
        Sse,
        "event: content-delta\ndata: {\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":{\"content\":{\"text\":\"{}, and so it flowed on to where no gauge had been set, and further on\"}}}}",
    ),
    spoken(
        Dialect::CohereV1,
        Lines,
        r#"{"is_finished":false,"event_type":"text-generation","text":"{}, and so it flowed on to where no gauge had been set, and further on, and further on, and on to the sea it went"}"#,
    ),
    spoken(
        Dialect::Tgi,
        Sse,
        r#"data:{"index":17,"token":{"id":33502,"text":"{}","logprob":-0.15478516,"special":false},"generated_text":null,"details":null,"top_tokens":[{"id":33502,"text":"x","logprob":-0.15478516,"special":false}]}"#,
    ),
    spoken(
        Dialect::Sglang,
        Sse,
        r#"data: {"text":"{}","output_ids":[33502],"meta_info":{"id":"0b8a3bcd45f14b4b8e3c3b1f","finish_reason":null,"prompt_tokens":14,"weight_version":"default","completion_tokens":#,"cached_tokens":1,"e2e_latency":0.51}}"#,
    ),
    spoken(
        Dialect::LlamaCpp,
        Sse,
        r#"data: {"index":0,"content":"{}","tokens":[33502],"stop":false,"id_slot":-1,"tokens_predicted":17,"tokens_evaluated":14,"padding":"0123456789012345678901234567890123456789012345678901234567"}"#,
    ),
    spoken(
        Dialect::LmStudio,
        Sse,
        "event: message.delta\ndata: {\"type\":\"message.delta\",\"content\":\"{}, and so it flowed on to where no gauge had been set, and further on, and further on, and on to the sea it went\"}",
    ),
    spoken(
        Dialect::Triton,
        Sse,
        r#"data: {"context_logits":0.0,"cum_log_probs":0.0,"generation_logits":0.0,"model_name":"ensemble","model_version":"1","output_log_probs":[0.0,0.0,0.0,0.0],"sequence_end":false,"sequence_id":0,"text_output":"{}"}"#,
    ),
    spoken(
        Dialect::BedrockConverse,
        Messages("contentBlockDelta"),
        r#"{"contentBlockIndex":0,"delta":{"text":"{}"},"p":"abcdefghijklmnopqrstuvwxyzABCDEF"}"#,
    ),
    spoken(
        Dialect::BedrockInvoke,
        Wrapped("chunk"),
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{}"}}"#,
    ),
    spoken(
        Dialect::DashScope,
        Sse,
        "id:17\nevent:result\n:HTTP_STATUS/200\ndata:{\"output\":{\"choices\":[{\"message\":{\"content\":\"{}\",\"role\":\"assistant\"},\"finish_reason\":\"null\"}]},\"usage\":{\"total_tokens\":37,\"output_tokens\":#,\"input_tokens\":14},\"request_id\":\"r\"}",
    ),
    spoken(
        Dialect::Watsonx,
        Sse,
        "id: 17\nevent: message\ndata: {\"model_id\":\"ibm/gauge-13b\",\"created_at\":\"2026-03-04T12:34:56.123Z\",\"results\":[{\"generated_text\":\"{}\",\"generated_token_count\":#,\"input_token_count\":0,\"stop_reason\":\"not_finished\"}]}",
    ),
    spoken(
        Dialect::Replicate,
        Sse,
        "event: output\nid: 1710284910:17\ndata: {}, and so it flowed on to where no gauge had been set, and further on, and further on, and on to the sea it went, and so it flowed on",
    ),
    spoken(
        Dialect::Realtime,
        Socket(
            r#"{"type":"response.create"}"#,
            r#"{"type":"response.created","response":{"id":"resp_C0AqjZUOhMnhkpJFHXDQk","status":"in_progress"}}"#,
        ),
        r#"{"type":"response.output_text.delta","event_id":"event_C0AqjZUOhMnhkpJFHXDQk","response_id":"resp_C0AqjZUOhMnhkpJFHXDQk","item_id":"item_C0AqjZUOhMnhkpJFHXDQk","output_index":0,"content_index":0,"delta":"{}"}"#,
    ),
    spoken(
        Dialect::GeminiLive,
        Socket(r#"{"clientContent":{"turns":[{"parts":[{"text":"Hi"}]}],"turnComplete":true}}"#, "{}"),
        r#"{"serverContent": {"modelTurn": {"parts": [{"text": "{}, and so it flowed on to where no gauge had been set, and further on, and further on, and on to the sea it went, and so it flowed on"}]}}}"#,
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Every event but for its text like the one before.
    Alike,
    /// No event like the one before.
    Unlike,
}

struct Walk {
    reader: Reader,
    events: Vec<Vec<u8>>,
    next: usize,
}

enum Reader {
    Body(Box<Observer>),
    Socket(Box<Session>),
}

impl Walk {
    /// A stream of at most so many events.
    fn begin(spoken: &Spoken, kind: Kind, events: usize) -> Self {
        // Where a count grows with each event, all of them are different.
        let distinct = if spoken.event.contains('#') { events } else { WORDS.len() };
        let events = (0..distinct).map(|place| event(spoken, kind, place)).collect();
        Self { reader: Reader::begin(spoken), events, next: 0 }
    }

    /// Reads so many events; returns how many were output.
    fn run(&mut self, events: usize) -> usize {
        let mut outputs = 0;
        for _ in 0..events {
            let event = &self.events[self.next % self.events.len()];
            self.next += 1;
            let mut count = |signal: Signal| outputs += usize::from(!signal.output.is_empty());
            match &mut self.reader {
                Reader::Body(observer) => observer.read(event, &mut count),
                Reader::Socket(session) => session.server(event, &mut |told| {
                    if let Told::Event(_, signal) = told {
                        count(signal);
                    }
                }),
            }
        }
        outputs
    }
}

impl Reader {
    fn begin(spoken: &Spoken) -> Self {
        let Socket(asks, begins) = spoken.framing else {
            return Self::Body(Box::new(observer(spoken.dialect, spoken.framing)));
        };
        let mut session = Session::new(spoken.dialect, Some("m".to_owned()), None, None);
        session.client(&frame(asks.as_bytes()), &mut |_| {});
        session.server(&frame(begins.as_bytes()), &mut |_| {});
        Self::Socket(Box::new(session))
    }
}

fn observer(dialect: Dialect, framing: Framing) -> Observer {
    let content_type = match framing {
        Sse => "text/event-stream",
        Lines => "application/x-ndjson",
        Messages(_) | Wrapped(_) | Socket(..) => "application/vnd.amazon.eventstream",
    };
    let head = Response::builder().header("content-type", content_type).body(()).expect("a response");
    Observer::new(dialect, &head.into_parts().0)
}

fn event(spoken: &Spoken, kind: Kind, place: usize) -> Vec<u8> {
    let word = WORDS[place % WORDS.len()];
    let mut text = spoken.event.replacen("{}", word, 1).replacen('#', &(place + 1).to_string(), 1);
    if kind == Kind::Unlike && place % 2 == 1 {
        // White space means nothing, but the events' shapes differ.
        match text.rfind('}') {
            Some(end) if spoken.dialect != Dialect::Replicate => text.insert_str(end, " \t"),
            _ => text = text.replacen("event: output\n", "event: output\n: \n", 1),
        }
    }
    match spoken.framing {
        Sse => text + "\n\n",
        Lines => text + "\n",
        Messages(kind) => return message(kind, text.as_bytes()),
        Wrapped(kind) => {
            return message(
                kind,
                format!(r#"{{"bytes":"{}","p":"abcdefghijkl"}}"#, BASE64_STANDARD.encode(text)).as_bytes(),
            );
        }
        Socket(..) => return frame(text.as_bytes()),
    }
    .into_bytes()
}

/// A text message of a WebSocket in one frame, without a mask.
fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a short message");
    let mut frame = vec![0x81];
    match u8::try_from(length) {
        Ok(length) if length < 126 => frame.push(length),
        _ => {
            frame.push(126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

/// A message of an AWS event stream.
fn message(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")] {
        headers.push(u8::try_from(name.len()).expect("a short name"));
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&u16::try_from(value.len()).expect("a short value").to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).expect("a short message").to_be_bytes();
    let mut message = Vec::new();
    message.extend_from_slice(&length(16 + headers.len() + payload.len()));
    message.extend_from_slice(&length(headers.len()));
    message.extend_from_slice(&crc(&message));
    message.extend_from_slice(&headers);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc(&message));
    message
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum().to_be_bytes()
}

fn per_event() {
    println!("| dialect | bytes per event | ns per event, alike | ns per event, walked | allocations in {EVENTS} |");
    println!("|---|---|---|---|---|");
    for spoken in &SPOKEN {
        let begin = |kind| Walk::begin(spoken, kind, EVENTS * (ROUNDS + 2));
        let (mut alike, mut unlike) = (begin(Kind::Alike), begin(Kind::Unlike));
        for walk in [&mut alike, &mut unlike] {
            assert_eq!(walk.run(EVENTS), EVENTS, "{}: every event is output", spoken.dialect.as_str());
        }
        let allocations = allocation_counter::measure(|| _ = unlike.run(EVENTS)).count_total;
        // Side by side, so that a busy moment of the machine meets both.
        let clock = Clock::start();
        let timed = |walk: &mut Walk| {
            let before = clock.now();
            walk.run(EVENTS);
            clock.now().since(before).0 as f64 / EVENTS as f64
        };
        let (alike, unlike) = (0..ROUNDS).map(|_| (timed(&mut alike), timed(&mut unlike))).unzip();
        let bytes = event(spoken, Kind::Alike, 0).len();
        println!(
            "| {} | {bytes} | {:.0} | {:.0} | {allocations} |",
            spoken.dialect.as_str(),
            median(alike),
            median(unlike)
        );
    }
}

/// Long bodies: the time per byte does not depend on the length.
fn per_byte() {
    println!();
    println!("| body | bytes | ns per byte |");
    println!("|---|---|---|");
    for megabytes in [1, 10] {
        let body = completed(megabytes << 20);
        let name = "one `response.completed` that repeats the answer";
        print_per_byte(name, Dialect::OpenAiResponses, &body, &format!("{megabytes} MiB"));
    }
    for events in [97, 389] {
        let body = cumulative(events);
        let name = format!("{events} events that repeat all of the text so far");
        print_per_byte(&name, Dialect::OpenAiChat, &body, &format!("{} KiB", body.len() >> 10));
    }
}

fn print_per_byte(name: &str, dialect: Dialect, body: &[u8], bytes: &str) {
    let clock = Clock::start();
    let rounds = (0..ROUNDS).map(|_| {
        let mut observer = observer(dialect, Sse);
        let before = clock.now();
        // As they come from a socket.
        for piece in body.chunks(16 << 10) {
            observer.read(piece, &mut |_| {});
        }
        let span = clock.now().since(before).0 as f64 / body.len() as f64;
        assert_eq!(observer.facts().usage.output, Some(42), "{name}: the count at its end is read");
        span
    });
    println!("| {name} | {bytes} | {:.3} |", median(rounds.collect()));
}

fn completed(text: usize) -> Vec<u8> {
    let answer = "And so it flowed on, \\\"unmeasured\\\", to where no gauge had been set.\\n".repeat(text / 71);
    format!(
        "event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{{\"output\":[{{\"content\":[{{\"text\":\"{answer}\"}}]}}],\
         \"status\":\"completed\",\"usage\":{{\"input_tokens\":7,\"output_tokens\":42}}}}}}\n\n"
    )
    .into_bytes()
}

/// As Perplexity's: each event has the new text, all of the text, and the sources again.
fn cumulative(events: usize) -> Vec<u8> {
    let sources = "{\"title\":\"On rivers\",\"url\":\"https://example.com/rivers\",\"date\":\"2026-01-02\"},".repeat(8);
    let sources = sources.trim_end_matches(',');
    let mut text = String::new();
    let mut body = String::new();
    for place in 0..events {
        let word = WORDS[place % WORDS.len()];
        text.push_str(word);
        let _ = write!(
            body,
            "data: {{\"id\":\"1\",\"model\":\"sonar\",\"created\":1,\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":42}},\
             \"search_results\":[{sources}],\"choices\":[{{\"index\":0,\"finish_reason\":null,\"message\":{{\"content\":\"{text}\"}},\
             \"delta\":{{\"content\":\"{word}\"}}}}]}}\r\n\r\n"
        );
    }
    body.into_bytes()
}
