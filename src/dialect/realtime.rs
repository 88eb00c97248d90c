//! OpenAI Realtime, also Azure's and xAI's: typed events over a WebSocket, under their old and their present names.
//!
//! A response's `*.delta`s are its output, everything else repeats them. `response.done` holds its usage and status;
//! what other events have under these names (a transcription's usage, a failed tool list's error) is not the
//! response's. [`super::session`] tells from the kind and the id of an event which response it is of.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{ERROR, ERROR_CODE, ERROR_TYPE, Event, MODEL, OWN, REASON_PLACE, Reply, STATUS_PLACE, id, name},
    rules::{Data, Rules, tree},
    usage::{self, COUNT, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const DELTA: u8 = OWN + 1;
const ITEM_TYPE: u8 = OWN + 2;
const ITEM_NAME: u8 = OWN + 3;
const STATUS: u8 = OWN + 4;
const REASON: u8 = OWN + 5;
const ID: u8 = OWN + 6;
const DETECTION: u8 = OWN + 7;
const ANSWERS: u8 = OWN + 8;
const SESSION_TYPE: u8 = OWN + 9;

/// [`Event::kind`]s.
const SILENT: u8 = 1;
const TEXT: u8 = 2;
const AUDIO: u8 = 3;
const TOOL: u8 = 4;
const ITEM: u8 = 5;
/// A response begins.
pub(super) const CREATED: u8 = 6;
/// A response has ended.
pub(super) const DONE: u8 = 7;
/// An error event.
pub(super) const FAULT: u8 = 8;
/// What holds for the session from now on.
pub(super) const SESSION: u8 = 9;
/// The client's speech has ended.
pub(super) const HEARD: u8 = 10;
/// The client's audio has become a message: behind the end of its speech, or without one being told.
pub(super) const COMMITTED: u8 = 11;

/// [`Event::part`]s of a session: it answers by itself what it hears, or it does not.
pub(super) const ANSWERING: u8 = 1;
pub(super) const WAITING: u8 = 2;

/// [`Event::filled`] flags.
const HAS_DELTA: u8 = 1;
const HAS_NAME: u8 = 2;
const IS_CALL: u8 = 4;
const HAS_RESULT: u8 = 8;
/// The error is of a message of the client's that is no `response.create`.
pub(super) const OF_OTHERS: u8 = 16;

/// The counts, by their place.
const NAMES: [&str; 9] = [
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "input_token_details.cached_tokens",
    "output_token_details.reasoning_tokens",
    "input_token_details.text_tokens",
    "input_token_details.audio_tokens",
    "output_token_details.text_tokens",
    "output_token_details.audio_tokens",
];
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const CACHED: usize = 3;
const REASONING: usize = 4;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("type", TYPE, Want::Value),
        ("delta", DELTA, Want::Whether),
        ("response_id", ID, Want::Value),
        ("item.type", ITEM_TYPE, Want::Value),
        ("item.name", ITEM_NAME, Want::Whether),
        ("response.id", ID, Want::Value),
        ("response.status", STATUS, Want::Value),
        ("response.status_details.reason", REASON, Want::Value),
        ("response.status_details.error", ERROR, Want::Value),
        ("response.status_details.error.type", ERROR_TYPE, Want::Value),
        ("response.status_details.error.code", ERROR_CODE, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        ("error.event_id", ID, Want::Value),
        ("session.model", MODEL, Want::Value),
        ("session.type", SESSION_TYPE, Want::Value),
        ("session.turn_detection", DETECTION, Want::Whether),
        ("session.turn_detection.create_response", ANSWERS, Want::Value),
        ("session.audio.input.turn_detection", DETECTION, Want::Whether),
        ("session.audio.input.turn_detection.create_response", ANSWERS, Want::Value),
    ];
    // xAI's are beside the response, whose own are empty.
    tree(&fields, usage::named(&["response.usage", "usage"], &NAMES))
}

/// Takes a field of the event.
#[inline]
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TYPE => {
            if let Value::Text(text) = value {
                event.kind = kind(text);
                if text.starts_with(b"transcription_session.") {
                    event.part = WAITING;
                }
            }
        }
        DELTA => event.fill(HAS_DELTA, value),
        ID => event.id = id(value),
        ITEM_NAME => event.fill(HAS_NAME, value),
        ITEM_TYPE => {
            if matches!(value, Value::Text(b"function_call" | b"mcp_call" | b"mcp_approval_request")) {
                event.filled |= IS_CALL;
            }
        }
        STATUS | REASON => {
            if let Some(name) = name(value) {
                event.filled |= HAS_RESULT;
                reply.finish(if field == STATUS { STATUS_PLACE } else { REASON_PLACE }, name.into_owned());
            }
        }
        DETECTION if value == Value::Null => event.part = event.part.max(WAITING),
        DETECTION => event.part = event.part.max(ANSWERING),
        ANSWERS if value == Value::Bool(false) => event.part = WAITING,
        SESSION_TYPE if value == Value::Text(b"transcription") => event.part = WAITING,
        ANSWERS | SESSION_TYPE => {}
        ERROR_CODE => {
            if let Value::Text(code) = value
                && (code.starts_with(b"input_audio_buffer_") || code.starts_with(b"response_cancel_"))
            {
                event.filled |= OF_OTHERS;
            }
            reply.take(event, field, value);
        }
        // The type stands first, or nobody knows yet.
        COUNT.. if !matches!(event.kind, 0 | DONE) => {}
        COUNT.. => {
            event.filled |= HAS_RESULT;
            reply.take(event, field, value);
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
#[inline]
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let output = match event.kind {
        TEXT if event.has(HAS_DELTA) => Kinds::ANSWER,
        AUDIO if event.has(HAS_DELTA) => Kinds::ANSWER | Kinds::AUDIO,
        TOOL if event.has(HAS_DELTA) => Kinds::TOOL,
        ITEM if event.has(IS_CALL) && event.has(HAS_NAME) => Kinds::TOOL,
        _ => Kinds::NONE,
    };
    match event.kind {
        DONE => {}
        FAULT => event.error = true,
        _ => {
            event.error = false;
            if event.has(HAS_RESULT) {
                reply.finish.clear();
                reply.counts = Counts::default();
            }
        }
    }
    reply.end(event, output, event.kind == DONE)
}

/// The arithmetic: cached tokens are inside the input's, reasoning inside the output's, audio and text inside both.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(INPUT),
        output: counts.at(OUTPUT),
        reasoning: counts.at(REASONING),
        cached: counts.at(CACHED),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}

fn kind(text: &[u8]) -> u8 {
    match text {
        b"response.output_text.delta"
        | b"response.text.delta"
        | b"response.output_audio_transcript.delta"
        | b"response.audio_transcript.delta" => TEXT,
        b"response.output_audio.delta" | b"response.audio.delta" => AUDIO,
        b"response.function_call_arguments.delta" | b"response.mcp_call_arguments.delta" => TOOL,
        b"response.output_item.added" => ITEM,
        b"response.created" => CREATED,
        b"response.done" => DONE,
        b"error" => FAULT,
        b"session.created"
        | b"session.updated"
        | b"transcription_session.created"
        | b"transcription_session.updated" => SESSION,
        b"input_audio_buffer.speech_stopped" => HEARD,
        b"input_audio_buffer.committed" => COMMITTED,
        _ => SILENT,
    }
}
