//! Google's Interactions (`/v1beta/interactions`): typed events over SSE, or one plain document.
//!
//! What a delta is, its own type tells; a call's name comes with the start of its step. The counts grow on the way, and
//! the thoughts' are not in the output's.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{END, ERROR, ERROR_CODE, Event, FINISH, MODEL, OWN, Reply},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const PART_TYPE: u8 = OWN + 1;
const CONTENT: u8 = OWN + 2;
const STATUS: u8 = OWN + 3;

/// [`Event::part`]s: what the type of the delta or step makes of its content.
const SILENT: u8 = 0;
const TEXT: u8 = 1;
const AUDIO: u8 = 2;
const THOUGHTS: u8 = 3;
const CALL: u8 = 4;

/// [`Event::filled`] flag.
const HAS_CONTENT: u8 = 1;

/// The counts, by their place.
const NAMES: [&str; 6] = [
    "total_input_tokens",
    "total_tool_use_tokens",
    "total_cached_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_tokens",
];
const INPUT: usize = 0;
const TOOL_INPUT: usize = 1;
const CACHED: usize = 2;
const OUTPUT: usize = 3;
const THOUGHT: usize = 4;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("event_type", TYPE, Want::Value),
        ("delta.type", PART_TYPE, Want::Value),
        ("delta.text", CONTENT, Want::Whether),
        ("delta.content.text", CONTENT, Want::Whether),
        ("delta.content.data", CONTENT, Want::Whether),
        ("delta.thought", CONTENT, Want::Whether),
        ("delta.data", CONTENT, Want::Whether),
        ("delta.uri", CONTENT, Want::Whether),
        ("delta.name", CONTENT, Want::Whether),
        ("delta.arguments", CONTENT, Want::Whether),
        ("delta.partial_arguments", CONTENT, Want::Whether),
        ("step.type", PART_TYPE, Want::Value),
        ("step.name", CONTENT, Want::Whether),
        ("interaction.model", MODEL, Want::Value),
        ("interaction.agent", MODEL, Want::Value),
        ("interaction.status", STATUS, Want::Value),
        ("model", MODEL, Want::Value),
        ("agent", MODEL, Want::Value),
        ("status", STATUS, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
    ];
    tree(&fields, usage::named(&["interaction.usage", "metadata.usage", "metadata.total_usage", "usage"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match (field, value) {
        // The names before steps were brought in, and since.
        (TYPE, Value::Text(b"interaction.completed" | b"interaction.complete")) => {
            (event.kind, event.telling) = (END, true);
        }
        (PART_TYPE, Value::Text(text)) => event.part = part(text),
        (CONTENT, _) => event.fill(HAS_CONTENT, value),
        (STATUS, Value::Text(b"in_progress" | b"queued")) | (TYPE | PART_TYPE, _) => {}
        (STATUS, _) => {
            event.error |= value == Value::Text(b"failed");
            reply.take(event, FINISH, value);
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended. A step's content beside its type is a call's name only: text comes in deltas.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let output = match event.part {
        _ if !event.has(HAS_CONTENT) => Kinds::NONE,
        TEXT => Kinds::ANSWER,
        AUDIO => Kinds::ANSWER | Kinds::AUDIO,
        THOUGHTS => Kinds::REASONING,
        CALL => Kinds::TOOL,
        _ => Kinds::NONE,
    };
    reply.summarised |= output == Kinds::REASONING;
    reply.end(event, output, event.kind == END)
}

/// The arithmetic: as of `generateContent`: cached tokens are inside the input's, the results of tools beside it, and
/// thoughts come in addition to the output's tokens.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.sum(INPUT, TOOL_INPUT),
        output: counts.sum(OUTPUT, THOUGHT),
        reasoning: counts.at(THOUGHT),
        cached: counts.at(CACHED),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}

/// What servers' own tools do (`google_search_call`, `*_result`) is not generated.
fn part(text: &[u8]) -> u8 {
    match text {
        b"text" | b"image" | b"video" | b"document" => TEXT,
        b"audio" => AUDIO,
        b"thought_summary" | b"thought" => THOUGHTS,
        b"function_call" | b"arguments_delta" | b"code_execution_call" | b"mcp_server_tool_call" => CALL,
        _ => SILENT,
    }
}
