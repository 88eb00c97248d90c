//! Ollama's own API (`/api/chat`, `/api/generate`): a JSON object per line, or one plain document.
//!
//! There is no line without content but the last one, which says `done` and counts; a tool call comes whole.

use std::sync::LazyLock;

use super::{
    Facts, Kinds, Signal, Usage,
    reply::{ERROR, Event, MODEL, OWN, Reply, is_something, name},
    usage,
};
use crate::framing::json::{Tree, Value, Want};

const ANSWER: u8 = OWN;
const THINKING: u8 = OWN + 1;
const TOOL: u8 = OWN + 2;
const DONE: u8 = OWN + 3;
const REASON: u8 = OWN + 4;

/// [`Event::kind`] of the last line.
const END: u8 = 1;

/// The counts, by their place.
const NAMES: [&str; 2] = ["prompt_eval_count", "eval_count"];
const PROMPT: usize = 0;
const EVAL: usize = 1;

pub(super) static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let fields = [
        ("message.content", ANSWER, Want::Whether),
        ("message.thinking", THINKING, Want::Whether),
        ("message.tool_calls[].function.name", TOOL, Want::Whether),
        ("response", ANSWER, Want::Whether),
        ("thinking", THINKING, Want::Whether),
        ("done", DONE, Want::Value),
        ("done_reason", REASON, Want::Value),
        ("model", MODEL, Want::Value),
        ("error", ERROR, Want::Value),
    ];
    let counts = usage::named(&[""], &NAMES);
    Tree::new(fields.into_iter().map(|(path, field, want)| (path.to_owned(), field, want)).chain(counts))
});

/// Takes a field of the event.
pub(super) fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    let kinds = match field {
        ANSWER => Kinds::ANSWER,
        THINKING => Kinds::REASONING,
        TOOL => Kinds::TOOL,
        DONE => {
            if value == Value::Bool(true) {
                (event.kind, event.telling) = (END, true);
            }
            return;
        }
        REASON => {
            if let Some(reason) = name(value) {
                event.telling = true;
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
pub(super) fn end(reply: &mut Reply, event: &Event) -> Signal {
    reply.end(event, event.output, event.kind == END)
}

/// The arithmetic: the output's count includes thinking; an input that was wholly cached has none.
pub(super) fn facts(reply: &Reply) -> Facts {
    let counts = &reply.counts;
    reply.facts(Usage {
        input: counts.at(PROMPT),
        output: counts.at(EVAL),
        raw: counts.named(&NAMES),
        ..Usage::default()
    })
}
