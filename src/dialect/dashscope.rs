//! DashScope's own API (`/services/aigc/…/generation`, `/apps/…/completion`): objects over SSE, or one plain document.
//!
//! The text of an event is all text so far, unless the request asked for increments: what tells is the output's count. A
//! finish reason is the word `null` until there is one, and nothing else marks the end.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{
        ANSWER, AUDIO, CHOICE, ERROR, ERROR_CODE, Event, FINISH, INDEX, MODEL, OWN, REASONING, Reply, TOOL,
        is_something,
    },
    rules::{Data, Rules, tree},
    usage::{self, COUNT, Counts},
};
use crate::framing::json::{Tree, Value, Want};

/// Only errors have a code.
const CODE: u8 = OWN;

/// [`Event::filled`] flag.
const HAS_COUNT: u8 = 1;

/// The counts, by their place.
const NAMES: [&str; 7] = [
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "output_tokens_details.reasoning_tokens",
    "input_tokens_details.cached_tokens",
    "prompt_tokens_details.cached_tokens",
    "prompt_tokens_details.cache_creation_input_tokens",
];
const INPUT: usize = 0;
const OUTPUT: u8 = 1;
const THINKING: usize = 3;
const CACHED: usize = 4;
const PROMPT_CACHED: usize = 5;
const CACHE_WRITE: usize = 6;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("output.text", ANSWER, Want::Whether),
        ("output.workflow_message.message.content", ANSWER, Want::Whether),
        ("output.finish_reason", FINISH, Want::Value),
        ("output.choices[]", CHOICE, Want::Whether),
        ("output.choices[].index", INDEX, Want::Value),
        ("output.choices[].finish_reason", FINISH, Want::Value),
        ("output.choices[].message.content", ANSWER, Want::Whether),
        ("output.choices[].message.content[].text", ANSWER, Want::Whether),
        ("output.choices[].message.content[].image", ANSWER, Want::Whether),
        ("output.audio.data", AUDIO, Want::Whether),
        ("output.choices[].message.reasoning_content", REASONING, Want::Whether),
        ("output.choices[].message.tool_calls[].function.name", TOOL, Want::Whether),
        ("output.choices[].message.tool_calls[].function.arguments", TOOL, Want::Whether),
        ("model", MODEL, Want::Value),
        ("usage.models[].model_id", MODEL, Want::Value),
        ("code", CODE, Want::Value),
    ];
    tree(&fields, usage::named(&["usage", "usage.models[]"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        FINISH if value == Value::Text(b"null") => {}
        CODE if is_something(value) => {
            reply.take(event, ERROR, value);
            reply.take(event, ERROR_CODE, value);
        }
        _ => {
            if field == COUNT + OUTPUT && matches!(value, Value::Number(_)) {
                event.filled |= HAS_COUNT;
            }
            reply.take(event, field, value);
        }
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    // Audio never repeats itself, whatever is counted beside it.
    let audio = event.output.contains(Kinds::AUDIO);
    let new = audio || !event.output.is_empty() && reply.grew(event, OUTPUT, event.has(HAS_COUNT), 0);
    reply.end(event, if new { event.output } else { Kinds::NONE }, false)
}

/// The arithmetic: cached tokens are inside the input's, reasoning inside the output's.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(INPUT),
        output: counts.at(usize::from(OUTPUT)),
        reasoning: counts.at(THINKING),
        cached: counts.at(CACHED).or_else(|| counts.at(PROMPT_CACHED)),
        cache_write: counts.at(CACHE_WRITE),
        raw: counts.named(&NAMES),
    }
}
