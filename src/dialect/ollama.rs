//! Ollama's own API (`/api/chat`, `/api/generate`): a JSON object per line, or one plain document.
//!
//! There is no line without content but the last one, which says `done` and counts; a tool call comes whole.

use std::sync::LazyLock;

use super::{
    Usage,
    reply::{ANSWER, END, ERROR, Event, FINISH, MODEL, OWN, REASONING, Reply, TOOL},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const DONE: u8 = OWN;

/// The counts, by their place.
const NAMES: [&str; 2] = ["prompt_eval_count", "eval_count"];
const PROMPT: usize = 0;
const EVAL: usize = 1;

pub(super) static RULES: Rules =
    Rules { data: Data::Json, tree: LazyLock::new(asked), found, end: Reply::close, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("message.content", ANSWER, Want::Whether),
        ("message.thinking", REASONING, Want::Whether),
        ("message.tool_calls[].function.name", TOOL, Want::Whether),
        ("message.images[]", ANSWER, Want::Whether),
        ("response", ANSWER, Want::Whether),
        ("image", ANSWER, Want::Whether),
        ("thinking", REASONING, Want::Whether),
        ("done", DONE, Want::Value),
        ("done_reason", FINISH, Want::Value),
        ("model", MODEL, Want::Value),
        ("error", ERROR, Want::Value),
        ("total_duration", time(Phase::Total, Unit::Nanos), Want::Count),
        ("prompt_eval_duration", time(Phase::Prefill, Unit::Nanos), Want::Count),
        ("eval_duration", time(Phase::Decode, Unit::Nanos), Want::Count),
    ];
    tree(&fields, usage::named(&[""], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        DONE if value == Value::Bool(true) => (event.kind, event.telling) = (END, true),
        DONE => {}
        _ => reply.take(event, field, value),
    }
}

/// The arithmetic: the output's count includes thinking; an input that was wholly cached has none.
fn arithmetic(counts: &Counts) -> Usage {
    Usage { input: counts.at(PROMPT), output: counts.at(EVAL), raw: counts.named(&NAMES), ..Usage::default() }
}
