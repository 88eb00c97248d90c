//! LM Studio's own API (`/api/v1/chat`): typed events over SSE, or one plain document.
//!
//! Loading a model and walking the prompt are told in events of their own. An error does not end a stream: the last event
//! comes anyway, with all of it again and the counts.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{END, ERROR, ERROR_CODE, ERROR_TYPE, Event, MODEL, OWN, Reply},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const CONTENT: u8 = OWN + 1;
const CALL: u8 = OWN + 2;

/// [`Event::kind`]s beside [`END`]: what the event's type makes of its fields.
const MESSAGE: u8 = 2;
const THOUGHT: u8 = 3;
const TOOL: u8 = 4;

/// [`Event::filled`] flags.
const HAS_CONTENT: u8 = 1;
const HAS_CALL: u8 = 2;

/// The counts, by their place.
const NAMES: [&str; 3] = ["input_tokens", "total_output_tokens", "reasoning_output_tokens"];
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const REASONING: usize = 2;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let first_token = time(Phase::Ttft, Unit::Seconds);
    let fields = [
        ("type", TYPE, Want::Value),
        ("content", CONTENT, Want::Whether),
        ("tool", CALL, Want::Whether),
        ("tool_name", CALL, Want::Whether),
        ("arguments", CALL, Want::Whether),
        ("model_instance_id", MODEL, Want::Value),
        ("result.model_instance_id", MODEL, Want::Value),
        ("stats.time_to_first_token_seconds", first_token, Want::Count),
        ("result.stats.time_to_first_token_seconds", first_token, Want::Count),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
    ];
    tree(&fields, usage::named(&["result.stats", "stats"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TYPE => {
            event.kind = match value {
                Value::Text(b"message.delta") => MESSAGE,
                Value::Text(b"reasoning.delta") => THOUGHT,
                Value::Text(b"tool_call.start" | b"tool_call.name" | b"tool_call.arguments") => TOOL,
                Value::Text(b"chat.end") => END,
                _ => 0,
            };
            event.telling |= event.kind == END;
        }
        CONTENT => event.fill(HAS_CONTENT, value),
        CALL => event.fill(HAS_CALL, value),
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let output = match event.kind {
        MESSAGE if event.has(HAS_CONTENT) => Kinds::ANSWER,
        THOUGHT if event.has(HAS_CONTENT) => Kinds::REASONING,
        TOOL if event.has(HAS_CALL) => Kinds::TOOL,
        _ => Kinds::NONE,
    };
    reply.end(event, output, event.kind == END)
}

/// The arithmetic: the output's count includes reasoning.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(INPUT),
        output: counts.at(OUTPUT),
        reasoning: counts.at(REASONING),
        raw: counts.named(&NAMES),
        ..Usage::default()
    }
}
