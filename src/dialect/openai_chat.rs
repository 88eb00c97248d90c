//! OpenAI chat completions and legacy completions, and the many that speak alike.
//!
//! All of a chunk's fields are looked at: one chunk may carry reasoning, text, a finish reason and usage. The same text
//! twice in a chunk (`text` beside `delta.content`, `reasoning` beside `reasoning_details`) is one output event, and
//! what repeats the whole answer (`choices[].message`) is none.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{ERROR, ERROR_BY_NAME, ERROR_CODE, ERROR_TYPE, Event, MODEL, OWN, Reply, is_something, name},
    rules::{Data, Rules, tree},
    usage::{self, Count, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const ANSWER: u8 = OWN;
const REASONING: u8 = OWN + 1;
const SUMMARY: u8 = OWN + 2;
const TOOL: u8 = OWN + 3;
const CHOICE: u8 = OWN + 4;
const INDEX: u8 = OWN + 5;
const FINISH: u8 = OWN + 6;
/// The kind of the whole object; old vLLM errors say `error` here and keep type and code beside it.
const OBJECT: u8 = OWN + 7;
const BARE_TYPE: u8 = OWN + 8;
const BARE_CODE: u8 = OWN + 9;
/// MiniMax reports errors with status 200 and a code here that is not 0.
const STATUS_CODE: u8 = OWN + 10;

/// [`Event::kind`] of an object that is an error itself.
const BARE_ERROR: u8 = 1;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    tree(&fields(), usage::fields(&["usage", "x_groq.usage", "choices[].usage"]))
}

/// The fields asked for, but for counts. Bedrock asks for those of choices too, in its chunks.
pub(super) fn fields() -> Vec<(&'static str, u8, Want)> {
    vec![
        ("choices[]", CHOICE, Want::Whether),
        ("choices[].index", INDEX, Want::Value),
        ("choices[].finish_reason", FINISH, Want::Value),
        ("choices[].text", ANSWER, Want::Whether),
        ("choices[].delta.content", ANSWER, Want::Whether),
        ("choices[].delta.content[].text", ANSWER, Want::Whether),
        ("choices[].delta.content[].thinking", REASONING, Want::Whether),
        ("choices[].delta.content[].thinking[].text", REASONING, Want::Whether),
        ("choices[].delta.reasoning_content", REASONING, Want::Whether),
        ("choices[].delta.reasoning", REASONING, Want::Whether),
        ("choices[].delta.reasoning_details[].text", REASONING, Want::Whether),
        ("choices[].delta.reasoning_details[].summary", SUMMARY, Want::Whether),
        ("choices[].delta.reasoning_details[].data", REASONING, Want::Whether),
        ("choices[].delta.refusal", ANSWER, Want::Whether),
        ("choices[].delta.tool_calls[].function.name", TOOL, Want::Whether),
        ("choices[].delta.tool_calls[].function.arguments", TOOL, Want::Whether),
        ("choices[].delta.tool_calls[].custom.name", TOOL, Want::Whether),
        ("choices[].delta.tool_calls[].custom.input", TOOL, Want::Whether),
        ("choices[].delta.function_call.name", TOOL, Want::Whether),
        ("choices[].delta.function_call.arguments", TOOL, Want::Whether),
        ("choices[].delta.audio.data", ANSWER, Want::Whether),
        ("choices[].delta.audio.transcript", ANSWER, Want::Whether),
        ("choices[].delta.images[].image_url.url", ANSWER, Want::Whether),
        ("model", MODEL, Want::Value),
        ("object", OBJECT, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        ("error_type", ERROR_TYPE, Want::Value),
        ("type", BARE_TYPE, Want::Value),
        ("code", BARE_CODE, Want::Value),
        ("x_groq.error", ERROR, Want::Value),
        ("base_resp.status_code", STATUS_CODE, Want::Value),
    ]
}

/// Takes a field of the event.
#[inline]
pub(super) fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        ANSWER => event.add(Kinds::ANSWER, value),
        REASONING => event.add(Kinds::REASONING, value),
        TOOL => event.add(Kinds::TOOL, value),
        SUMMARY => {
            event.add(Kinds::REASONING, value);
            reply.summarised |= is_something(value);
        }
        CHOICE => reply.choice(event),
        INDEX => reply.index(event, value),
        FINISH => {
            if let Some(reason) = name(value) {
                event.telling = true;
                reply.choice_finish(event, reason);
            }
        }
        ERROR_BY_NAME => {
            // Type and code may stand in it as in an error object.
            event.kind = BARE_ERROR;
            reply.take(event, field, value);
        }
        OBJECT => {
            if value == Value::Text(b"error") {
                event.kind = BARE_ERROR;
                reply.take(event, ERROR, Value::Object);
            }
        }
        BARE_TYPE if event.kind == BARE_ERROR => reply.take(event, ERROR_TYPE, value),
        BARE_CODE if event.kind == BARE_ERROR => reply.take(event, ERROR_CODE, value),
        BARE_TYPE | BARE_CODE => {}
        STATUS_CODE => {
            if matches!(value, Value::Number(code) if code != b"0") {
                reply.take(event, ERROR, Value::Object);
                reply.take(event, ERROR_CODE, value);
            }
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
#[inline]
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    reply.settle(event);
    reply.end(event, event.output, false)
}

/// The arithmetic: cached tokens are inside the prompt's, reasoning inside the completion's unless the total proves it is
/// not (xAI).
fn arithmetic(counts: &Counts) -> Usage {
    let input = counts.first(&[Count::PromptTokens, Count::InputTokens]);
    let mut output = counts.first(&[Count::CompletionTokens, Count::OutputTokens]);
    let reasoning = counts.first(&[Count::CompletionReasoning, Count::OutputReasoning, Count::ReasoningTokens]);
    if let (Some(input), Some(visible), Some(hidden), Some(total)) =
        (input, output, reasoning, counts.get(Count::TotalTokens))
        && hidden > 0
        && input.checked_add(visible).and_then(|sum| sum.checked_add(hidden)) == Some(total)
    {
        output = Some(visible + hidden);
    }
    Usage {
        input,
        output,
        reasoning,
        cached: counts.first(&[
            Count::PromptCached,
            Count::InputCached,
            Count::CachedTokens,
            Count::PromptCacheHit,
            Count::CacheRead,
        ]),
        cache_write: counts.first(&[Count::PromptCacheWrite, Count::InputCacheWrite, Count::CacheCreation]),
        raw: counts.raw(),
    }
}
