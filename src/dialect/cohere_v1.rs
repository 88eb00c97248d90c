//! Cohere's chat, version 1 (`/v1/chat`), and its older completions (`/v1/generate`): typed objects, a line each or over
//! SSE, or one plain document.
//!
//! The last event repeats the whole reply. Calls come in chunks and then again as a whole, or only as a whole. What was
//! billed is less than what was counted, and stands in where that is not said.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{END, Event, FINISH, MESSAGE, OWN, Reply},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const TEXT: u8 = OWN + 1;
const CALL: u8 = OWN + 2;
const CHOICE: u8 = OWN + 3;
const IS_FINISHED: u8 = OWN + 4;

/// [`Event::kind`]s beside [`END`]: what the event's type makes of its fields.
const ANSWER: u8 = 2;
const CHUNK: u8 = 3;
const CALLS: u8 = 4;

/// [`Event::filled`] flags.
const HAS_TEXT: u8 = 1;
const HAS_CALL: u8 = 2;
/// The oldest completions have no types: only this tells what an event is.
const IS_TYPED: u8 = 4;
const IS_LAST: u8 = 8;

/// The counts, by their place.
const NAMES: [&str; 7] = [
    "meta.tokens.input_tokens",
    "meta.tokens.output_tokens",
    "meta.cached_tokens",
    "meta.billed_units.input_tokens",
    "meta.billed_units.output_tokens",
    "token_count.prompt_tokens",
    "token_count.response_tokens",
];
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const CACHED: usize = 2;
const BILLED_INPUT: usize = 3;
const BILLED_OUTPUT: usize = 4;
const OLD_INPUT: usize = 5;
const OLD_OUTPUT: usize = 6;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("event_type", TYPE, Want::Value),
        ("is_finished", IS_FINISHED, Want::Value),
        ("text", TEXT, Want::Whether),
        ("tool_call_delta.name", CALL, Want::Whether),
        ("tool_call_delta.parameters", CALL, Want::Whether),
        ("tool_calls[].name", CALL, Want::Whether),
        ("finish_reason", FINISH, Want::Value),
        ("generations[]", CHOICE, Want::Whether),
        ("generations[].finish_reason", FINISH, Want::Value),
        ("message", MESSAGE, Want::Whether),
    ];
    tree(&fields, usage::named(&["response", ""], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TYPE => {
            event.kind = match value {
                Value::Text(b"text-generation") => ANSWER,
                Value::Text(b"tool-calls-chunk") => CHUNK,
                Value::Text(b"tool-calls-generation") => CALLS,
                Value::Text(b"stream-end") => END,
                _ => 0,
            };
            // What calls say hangs on what was said before: another one alike need not say the same.
            event.telling |= matches!(event.kind, END | CALLS);
            event.filled |= IS_TYPED;
        }
        IS_FINISHED if value == Value::Bool(true) => {
            event.telling = true;
            event.filled |= IS_LAST;
        }
        CHOICE => reply.choice(event),
        TEXT => event.fill(HAS_TEXT, value),
        CALL => event.fill(HAS_CALL, value),
        IS_FINISHED => {}
        _ => {
            event.error |= field == FINISH && matches!(value, Value::Text(b"ERROR" | b"ERROR_TOXIC"));
            reply.take(event, field, value);
        }
    }
}

/// The event has ended. The text of a chunk says what the model is going to call.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let last = event.kind == END || event.has(IS_LAST);
    let output = match event.kind {
        _ if last => Kinds::NONE,
        0 if event.has(HAS_TEXT) && !event.has(IS_TYPED) => Kinds::ANSWER,
        ANSWER if event.has(HAS_TEXT) => Kinds::ANSWER,
        CHUNK if event.has(HAS_CALL) => Kinds::TOOL,
        CHUNK if event.has(HAS_TEXT) => Kinds::REASONING,
        CALLS if event.has(HAS_CALL) && !reply.seen.contains(Kinds::TOOL) => Kinds::TOOL,
        _ => Kinds::NONE,
    };
    reply.end(event, output, last)
}

/// The arithmetic: there is none.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(INPUT).or_else(|| counts.at(OLD_INPUT)).or_else(|| counts.at(BILLED_INPUT)),
        output: counts.at(OUTPUT).or_else(|| counts.at(OLD_OUTPUT)).or_else(|| counts.at(BILLED_OUTPUT)),
        cached: counts.at(CACHED),
        raw: counts.named(&NAMES),
        ..Usage::default()
    }
}
