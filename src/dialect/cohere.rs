//! Cohere's chat, version 2: typed events over SSE, or one plain document.
//!
//! `tool_calls` of an event is an object, of a document an array. What was billed is less than what was counted.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{ERROR, ERROR_TYPE, Event, MODEL, OWN, Reply, is_something, name},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const ANSWER: u8 = OWN + 1;
const THINKING: u8 = OWN + 2;
const TOOL: u8 = OWN + 3;
const FINISH: u8 = OWN + 4;

/// [`Event::kind`] of the last event before the end marker.
const END: u8 = 1;

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
const REASONING: usize = 2;
const CACHED: usize = 3;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("type", TYPE, Want::Value),
        ("delta.message.content.text", ANSWER, Want::Whether),
        ("delta.message.content.thinking", THINKING, Want::Whether),
        ("delta.message.tool_plan", THINKING, Want::Whether),
        ("delta.message.tool_calls.function.name", TOOL, Want::Whether),
        ("delta.message.tool_calls.function.arguments", TOOL, Want::Whether),
        ("delta.finish_reason", FINISH, Want::Value),
        ("delta.error", ERROR, Want::Value),
        ("finish_reason", FINISH, Want::Value),
        ("model", MODEL, Want::Value),
        ("error", ERROR, Want::Value),
        ("error_type", ERROR_TYPE, Want::Value),
    ];
    tree(&fields, usage::named(&["delta.usage", "usage"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    let kinds = match field {
        ANSWER => Kinds::ANSWER,
        THINKING => Kinds::REASONING,
        TOOL => Kinds::TOOL,
        TYPE => {
            if value == Value::Text(b"message-end") {
                (event.kind, event.telling) = (END, true);
            }
            return;
        }
        FINISH => {
            if let Some(reason) = name(value) {
                event.telling = true;
                event.error |= reason == "ERROR";
                reply.finish(0, reason);
            }
            return;
        }
        _ => return reply.take(event, field, value),
    };
    if is_something(value) {
        event.output |= kinds;
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    reply.end(event, event.output, event.kind == END)
}

/// The arithmetic: cached tokens are inside the input's, reasoning inside the output's.
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
