//! Cohere's chat, version 2: typed events over SSE, or one plain document.
//!
//! `tool_calls` of an event is an object, of a document an array. What was billed is less than what was counted, and
//! stands in where that is not said.

use std::sync::LazyLock;

use super::{
    Usage,
    reply::{ANSWER, END, ERROR, ERROR_TYPE, Event, FINISH, MESSAGE, MODEL, OWN, REASONING, Reply, TOOL},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;

/// The counts, by their place.
const NAMES: [&str; 6] = [
    "tokens.input_tokens",
    "tokens.output_tokens",
    "tokens.reasoning_tokens",
    "cached_tokens",
    "billed_units.input_tokens",
    "billed_units.output_tokens",
];
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const THINKING: usize = 2;
const CACHED: usize = 3;
const BILLED_INPUT: usize = 4;
const BILLED_OUTPUT: usize = 5;

pub(super) static RULES: Rules =
    Rules { data: Data::Json, tree: LazyLock::new(asked), found, end: Reply::close, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("type", TYPE, Want::Value),
        ("delta.message.content.text", ANSWER, Want::Whether),
        ("delta.message.content.thinking", REASONING, Want::Whether),
        ("delta.message.tool_plan", REASONING, Want::Whether),
        ("delta.tool_plan", REASONING, Want::Whether),
        ("delta.message.tool_calls.function.name", TOOL, Want::Whether),
        ("delta.message.tool_calls.function.arguments", TOOL, Want::Whether),
        // Before the message was wrapped around them.
        ("delta.tool_call.function.name", TOOL, Want::Whether),
        ("delta.tool_call.function.arguments", TOOL, Want::Whether),
        ("delta.finish_reason", FINISH, Want::Value),
        ("delta.error", ERROR, Want::Value),
        ("finish_reason", FINISH, Want::Value),
        ("model", MODEL, Want::Value),
        ("error", ERROR, Want::Value),
        ("error_type", ERROR_TYPE, Want::Value),
        // An answer's is an object.
        ("message", MESSAGE, Want::Whether),
    ];
    tree(&fields, usage::named(&["delta.usage", "usage"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match (field, value) {
        (TYPE, Value::Text(b"message-end")) => (event.kind, event.telling) = (END, true),
        (TYPE, _) => {}
        _ => {
            event.error |= (field, value) == (FINISH, Value::Text(b"ERROR"));
            reply.take(event, field, value);
        }
    }
}

/// The arithmetic: cached tokens are inside the input's, reasoning inside the output's.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(INPUT).or_else(|| counts.at(BILLED_INPUT)),
        output: counts.at(OUTPUT).or_else(|| counts.at(BILLED_OUTPUT)),
        reasoning: counts.at(THINKING),
        cached: counts.at(CACHED),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}
