//! Anthropic Messages, and the legacy text completions.
//!
//! Usage comes in parts: the input's side at the start, the output's at the end, and what the end repeats of the input is
//! cumulative and overrides.

use std::{borrow::Cow, sync::LazyLock};

use super::{
    Kinds, Signal, Usage,
    reply::{ERROR, ERROR_BY_NAME, ERROR_CODE, ERROR_TYPE, Event, MODEL, OWN, Reply, name},
    rules::{Data, Rules, tree},
    usage::{self, Count, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const BLOCK_TYPE: u8 = OWN + 1;
const TEXT: u8 = OWN + 2;
const THINKING: u8 = OWN + 3;
const JSON: u8 = OWN + 4;
const COMPACTION: u8 = OWN + 5;
const NAME: u8 = OWN + 6;
const OPAQUE: u8 = OWN + 7;
const COMPLETION: u8 = OWN + 8;
const STOP: u8 = OWN + 9;
/// The model that goes on where another one declined.
const SUCCESSOR: u8 = OWN + 10;

/// [`Event::kind`]s.
const DELTA: u8 = 1;
const START: u8 = 2;
const END: u8 = 3;
const FAULT: u8 = 4;

/// [`Event::part`]s: the block that starts.
const CALL: u8 = 1;
const SPOKEN: u8 = 2;

/// [`Event::filled`] flags.
const HAS_TEXT: u8 = 1;
const HAS_THINKING: u8 = 2;
const HAS_JSON: u8 = 4;
const HAS_COMPACTION: u8 = 8;
const HAS_NAME: u8 = 16;
const HAS_OPAQUE: u8 = 32;
const HAS_COMPLETION: u8 = 64;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    tree(&fields(), usage::fields(&["message.usage", "usage"]))
}

/// The fields asked for, but for counts. Bedrock asks for them too, in its chunks.
pub(super) fn fields() -> Vec<(&'static str, u8, Want)> {
    vec![
        ("type", TYPE, Want::Value),
        ("delta.text", TEXT, Want::Whether),
        ("delta.connector_text", TEXT, Want::Whether),
        ("delta.thinking", THINKING, Want::Whether),
        ("delta.partial_json", JSON, Want::Whether),
        ("delta.content", COMPACTION, Want::Whether),
        ("delta.stop_reason", STOP, Want::Value),
        ("content_block.type", BLOCK_TYPE, Want::Value),
        ("content_block.name", NAME, Want::Whether),
        ("content_block.data", OPAQUE, Want::Whether),
        ("content_block.text", TEXT, Want::Whether),
        ("content_block.connector_text", TEXT, Want::Whether),
        ("content_block.thinking", THINKING, Want::Whether),
        ("content_block.to.model", SUCCESSOR, Want::Value),
        ("message.model", MODEL, Want::Value),
        ("message.stop_reason", STOP, Want::Value),
        ("completion", COMPLETION, Want::Whether),
        ("stop_reason", STOP, Want::Value),
        ("model", MODEL, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        // Vertex wraps what it refuses in an array.
        ("[].error", ERROR, Want::Value),
        ("[].error.code", ERROR_CODE, Want::Value),
    ]
}

/// Takes a field of the event.
#[inline]
pub(super) fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TYPE => match value {
            Value::Text(b"content_block_delta") => event.kind = DELTA,
            Value::Text(b"content_block_start") => event.kind = START,
            Value::Text(b"message_stop") => (event.kind, event.telling) = (END, true),
            Value::Text(b"error") => (event.kind, event.telling) = (FAULT, true),
            _ => {}
        },
        BLOCK_TYPE => match value {
            Value::Text(b"text" | b"thinking" | b"redacted_thinking" | b"connector_text") => event.part = SPOKEN,
            // The client's own tools, the servers' and MCP's; results have other names.
            Value::Text(kind) if kind.ends_with(b"tool_use") => event.part = CALL,
            _ => {}
        },
        TEXT => event.fill(HAS_TEXT, value),
        THINKING => event.fill(HAS_THINKING, value),
        JSON => event.fill(HAS_JSON, value),
        COMPACTION => event.fill(HAS_COMPACTION, value),
        NAME => event.fill(HAS_NAME, value),
        OPAQUE => event.fill(HAS_OPAQUE, value),
        SUCCESSOR => {
            event.telling = true;
            reply.model = name(value).map(Cow::into_owned).or(reply.model.take());
        }
        COMPLETION => event.fill(HAS_COMPLETION, value),
        STOP => reply.finish_with(event, 0, value),
        ERROR_BY_NAME => {
            event.kind = FAULT;
            reply.take(event, field, value);
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
#[inline]
pub(super) fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let output = match (event.kind, event.part) {
        (DELTA, _) => kinds(event, HAS_TEXT, HAS_THINKING | HAS_COMPACTION, HAS_JSON),
        (START, CALL) => kinds(event, 0, 0, HAS_NAME),
        (START, SPOKEN) => kinds(event, HAS_TEXT, HAS_THINKING | HAS_OPAQUE, 0),
        (START, _) => Kinds::NONE,
        _ => kinds(event, HAS_COMPLETION, 0, 0),
    };
    if event.kind == FAULT {
        event.error = true;
    }
    reply.end(event, output, event.kind == END)
}

/// The arithmetic: what was read from a cache or written to one comes in addition to the input's tokens.
fn arithmetic(counts: &Counts) -> Usage {
    let cached = counts.get(Count::CacheRead);
    let cache_write = counts.get(Count::CacheCreation);
    Usage {
        input: usage::with_cache(counts.get(Count::InputTokens), cached, cache_write),
        output: counts.get(Count::OutputTokens),
        reasoning: counts.get(Count::OutputThinking),
        cached,
        cache_write,
        raw: counts.raw(),
    }
}

#[inline]
fn kinds(event: &Event, answer: u8, reasoning: u8, tool: u8) -> Kinds {
    let mut kinds = Kinds::NONE;
    for (flags, kind) in [(answer, Kinds::ANSWER), (reasoning, Kinds::REASONING), (tool, Kinds::TOOL)] {
        if event.has(flags) {
            kinds |= kind;
        }
    }
    kinds
}
