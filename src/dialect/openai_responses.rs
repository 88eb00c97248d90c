//! OpenAI Responses: typed events over SSE, or one plain document.
//!
//! An event's type says whether its `delta` is output; `*.done` events and the last one repeat what the deltas said. What a
//! server's tool gives back is none of the model's: search results, a command's output, images of `image_generation_call`.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{
        BY_BARE_CODE, ERROR, ERROR_BY_NAME, ERROR_CODE, ERROR_TYPE, Event, MESSAGE, MODEL, OWN, REASON_PLACE, Reply,
        STATUS_PLACE, name,
    },
    reported::{VLLM, times},
    rules::{Data, Rules, tree},
    usage::{self, Count, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const DELTA: u8 = OWN + 1;
const ITEM_TYPE: u8 = OWN + 2;
const ITEM_NAME: u8 = OWN + 3;
const STATUS: u8 = OWN + 4;
const REASON: u8 = OWN + 5;
const BARE_CODE: u8 = OWN + 6;

/// [`Event::kind`]s: what the event's type makes of its fields.
const PLAIN: u8 = 0;
const SILENT: u8 = 1;
const ANSWER: u8 = 2;
const AUDIO: u8 = 3;
const REASONING: u8 = 4;
const SUMMARY: u8 = 5;
const TOOL: u8 = 6;
const ITEM: u8 = 7;
const END: u8 = 8;
const FAILED: u8 = 9;
/// An error event.
pub(super) const FAULT: u8 = 10;

/// [`Event::part`] of an item that is a call.
const CALL: u8 = 1;

/// [`Event::filled`] flags.
const HAS_DELTA: u8 = 1;
const HAS_NAME: u8 = 2;
const HAS_STATUS: u8 = 4;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("type", TYPE, Want::Value),
        ("delta", DELTA, Want::Whether),
        ("command", DELTA, Want::Whether),
        ("item.type", ITEM_TYPE, Want::Value),
        ("item.name", ITEM_NAME, Want::Whether),
        ("response.model", MODEL, Want::Value),
        ("response.status", STATUS, Want::Value),
        ("response.incomplete_details.reason", REASON, Want::Value),
        ("response.error", ERROR, Want::Value),
        ("response.error.type", ERROR_TYPE, Want::Value),
        ("response.error.code", ERROR_CODE, Want::Value),
        ("model", MODEL, Want::Value),
        ("status", STATUS, Want::Value),
        ("incomplete_details.reason", REASON, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        ("code", BARE_CODE, Want::Value),
        // Of a gateway's refusal: an answer and its events have neither.
        ("message", MESSAGE, Want::Whether),
        ("detail", ERROR, Want::Whether),
    ];
    let mut told = usage::fields(&["response.usage", "usage"]);
    // `created_at` and `completed_at` are whole seconds: nothing to make a time of.
    told.extend(times(&["response.metrics", "metrics"], &VLLM));
    tree(&fields, told)
}

/// Takes a field of the event.
#[inline]
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TYPE => {
            if let Value::Text(text) = value {
                event.kind = kind(text);
                event.telling |= event.kind >= END;
            }
        }
        DELTA => event.fill(HAS_DELTA, value),
        ITEM_NAME => event.fill(HAS_NAME, value),
        ITEM_TYPE => {
            if matches!(
                value,
                Value::Text(b"function_call" | b"custom_tool_call" | b"mcp_call" | b"mcp_approval_request")
            ) {
                event.part = CALL;
            }
        }
        STATUS | REASON => {
            if let Some(name) = name(value) {
                event.telling = true;
                event.filled |= HAS_STATUS;
                reply.finish(if field == STATUS { STATUS_PLACE } else { REASON_PLACE }, name.into_owned());
            }
        }
        // The type may come behind it.
        BARE_CODE if matches!(event.kind, PLAIN | FAULT) => reply.hold(event, BY_BARE_CODE, value),
        BARE_CODE => {}
        ERROR_BY_NAME => {
            event.kind = FAULT;
            reply.take(event, field, value);
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
#[inline]
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let output = match event.kind {
        ANSWER if event.has(HAS_DELTA) => Kinds::ANSWER,
        AUDIO if event.has(HAS_DELTA) => Kinds::ANSWER | Kinds::AUDIO,
        REASONING | SUMMARY if event.has(HAS_DELTA) => Kinds::REASONING,
        TOOL if event.has(HAS_DELTA) => Kinds::TOOL,
        ITEM if event.part == CALL && event.has(HAS_NAME) => Kinds::TOOL,
        _ => Kinds::NONE,
    };
    reply.summarised |= event.kind == SUMMARY && !output.is_empty();
    event.error |= matches!(event.kind, FAILED | FAULT);
    // The status on the way (`in_progress`, `queued`) is no finish. The type may come behind it.
    if event.has(HAS_STATUS) && !matches!(event.kind, PLAIN | END | FAILED) && !reply.ended {
        reply.finish.clear();
    }
    reply.end(event, output, matches!(event.kind, END | FAILED))
}

/// The arithmetic: cached tokens are inside the input's, reasoning inside the output's unless the total proves it is not.
fn arithmetic(counts: &Counts) -> Usage {
    let input = counts.get(Count::InputTokens);
    let reasoning = counts.get(Count::OutputReasoning);
    Usage {
        input,
        output: counts.with_reasoning(input, counts.get(Count::OutputTokens), reasoning),
        reasoning,
        cached: counts.get(Count::InputCached),
        cache_write: counts.get(Count::InputCacheWrite),
        raw: counts.raw(),
    }
}

fn kind(text: &[u8]) -> u8 {
    let Some(name) = text.strip_prefix(b"response.") else {
        return if text == b"error" { FAULT } else { SILENT };
    };
    match name {
        b"output_text.delta"
        | b"refusal.delta"
        | b"output_audio_transcript.delta"
        | b"audio.transcript.delta"
        | b"audio_transcript.delta" => ANSWER,
        b"output_audio.delta" | b"audio.delta" => AUDIO,
        b"reasoning_text.delta" | b"reasoning.delta" => REASONING,
        b"reasoning_summary_text.delta" | b"reasoning_summary.delta" => SUMMARY,
        b"function_call_arguments.delta"
        | b"custom_tool_call_input.delta"
        | b"mcp_call_arguments.delta"
        | b"mcp_call.arguments.delta"
        | b"code_interpreter_call_code.delta"
        | b"code_interpreter_call.code.delta"
        | b"shell_call_command.added" => TOOL,
        b"output_item.added" => ITEM,
        // The last two are said by some gateways.
        b"completed" | b"incomplete" | b"cancelled" | b"done" => END,
        b"failed" => FAILED,
        b"error" => FAULT,
        _ if is_command_delta(name) => TOOL,
        _ => SILENT,
    }
}

/// Commands of a shell and patches come under names that still change (`shell_call_command.delta`,
/// `apply_patch_call_operation_diff.delta`); what they give back (`…output….delta`) is not generated.
fn is_command_delta(name: &[u8]) -> bool {
    let holds = |word: &[u8]| name.windows(word.len()).any(|window| window == word);
    name.ends_with(b".delta") && (holds(b"shell_call") || holds(b"apply_patch_call")) && !holds(b"output")
}
