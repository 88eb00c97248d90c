//! OpenAI chat completions and legacy completions, and the many that speak alike.
//!
//! All of a chunk's fields are looked at: one chunk may carry reasoning, text, a finish reason and usage. The same text
//! twice in a chunk (`text` beside `delta.content`, `reasoning` beside `reasoning_details`) is one output event, and
//! what repeats the whole answer (`choices[].message`) is none.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{
        ANSWER, AUDIO, BY_BARE_CODE, BY_BARE_TYPE, CHOICE, ERROR, ERROR_CODE, ERROR_TYPE, Event, FINISH, INDEX, MODEL,
        OWN, REASONING, Reply, SUMMARY, TOOL,
    },
    reported::{
        Phase::{Decode, Prefill, Queue, Total, Ttft},
        Stated,
        Unit::{Millis, Seconds},
        VLLM, times,
    },
    rules::{Data, Rules, tree},
    usage::{self, Count, Counts},
};
use crate::framing::json::{Tree, Value, Want};

/// The kind of the whole object; old vLLM errors say `error` here and keep type and code beside it.
const OBJECT: u8 = OWN;
const BARE_TYPE: u8 = OWN + 1;
const BARE_CODE: u8 = OWN + 2;
/// MiniMax reports errors with status 200 and a code here that is not 0.
const STATUS_CODE: u8 = OWN + 3;
/// What only an error says beside the choices: `message`, FastAPI's `detail`.
const FAULT: u8 = OWN + 4;
/// Writer's completions say nothing else, not even when they end.
const VALUE: u8 = OWN + 5;

/// [`Event::filled`] flag.
const HAS_FAULT: u8 = 1;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let mut told = usage::fields(&["usage", "x_groq.usage", "choices[].usage"]);
    told.extend(times(&["usage", "x_groq.usage", "time_info"], &GROQ));
    told.extend(times(&["usage"], &IN_USAGE));
    told.extend(times(&["latency_checkpoint", "usage.latency_checkpoint"], &AZURE));
    told.extend(times(&["perf_metrics"], &FIREWORKS));
    told.extend(times(&["metrics"], &VLLM));
    told.extend(times(&["stats"], &STATS));
    told.extend(times(&["nvext.timing"], &DYNAMO));
    told.extend(times(&["timings"], &LLAMA_CPP));
    told.extend(times(&["sla_metrics"], &NOVITA));
    tree(&fields(), told)
}

/// The fields asked for, but for counts. Bedrock asks for those of choices too, in its chunks: they mean the same in each
/// dialect's tree.
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
        ("choices[].delta.content[].summary[].text", SUMMARY, Want::Whether),
        ("choices[].delta.reasoning_content", REASONING, Want::Whether),
        ("choices[].delta.reasoning", REASONING, Want::Whether),
        ("choices[].delta.reasoning_text", REASONING, Want::Whether),
        ("choices[].delta.reasoning_details[].text", REASONING, Want::Whether),
        ("choices[].delta.reasoning_details[].summary", SUMMARY, Want::Whether),
        ("choices[].delta.reasoning_details[].data", REASONING, Want::Whether),
        ("choices[].delta.reasoning_steps[].thought", SUMMARY, Want::Whether),
        ("choices[].delta.thinking_blocks[].thinking", REASONING, Want::Whether),
        ("choices[].delta.thinking_blocks[].data", REASONING, Want::Whether),
        ("choices[].delta.refusal", ANSWER, Want::Whether),
        ("choices[].delta.tool_calls[].function.name", TOOL, Want::Whether),
        ("choices[].delta.tool_calls[].function.arguments", TOOL, Want::Whether),
        ("choices[].delta.tool_calls[].custom.name", TOOL, Want::Whether),
        ("choices[].delta.tool_calls[].custom.input", TOOL, Want::Whether),
        ("choices[].delta.function_call.name", TOOL, Want::Whether),
        ("choices[].delta.function_call.arguments", TOOL, Want::Whether),
        ("choices[].delta.audio.data", AUDIO, Want::Whether),
        ("choices[].delta.audio.transcript", ANSWER, Want::Whether),
        ("choices[].delta.images[].image_url.url", ANSWER, Want::Whether),
        ("choices[].error", ERROR, Want::Value),
        ("choices[].error.type", ERROR_TYPE, Want::Value),
        ("choices[].error.code", ERROR_CODE, Want::Value),
        ("model", MODEL, Want::Value),
        // Of watsonx, which did not always say `model` too.
        ("model_id", MODEL, Want::Value),
        ("object", OBJECT, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        ("error_type", ERROR_TYPE, Want::Value),
        ("type", BARE_TYPE, Want::Value),
        ("code", BARE_CODE, Want::Value),
        ("status_code", BARE_CODE, Want::Value),
        ("error_code", BARE_CODE, Want::Value),
        ("message", FAULT, Want::Whether),
        ("detail", FAULT, Want::Whether),
        ("detail.error", FAULT, Want::Whether),
        ("errors[]", ERROR, Want::Whether),
        ("errors[].code", ERROR_CODE, Want::Value),
        ("value", VALUE, Want::Whether),
        ("x_groq.error", ERROR, Want::Value),
        ("base_resp.status_code", STATUS_CODE, Want::Value),
    ]
}

/// Groq; Cerebras, whose total is by the wall clock and has the queue in it, and TabbyAPI, which names no queue, say it
/// alike. Groq's total is without the queue.
const GROQ: [Stated; 4] = [
    ("queue_time", Queue, Seconds),
    ("prompt_time", Prefill, Seconds),
    ("completion_time", Decode, Seconds),
    ("total_time", Total, Seconds),
];

/// SambaNova, GPUStack, mistral.rs.
const IN_USAGE: [Stated; 6] = [
    ("time_to_first_token", Ttft, Seconds),
    ("total_latency", Total, Seconds),
    ("time_to_first_token_ms", Ttft, Millis),
    ("total_prompt_time_sec", Prefill, Seconds),
    ("total_completion_time_sec", Decode, Seconds),
    ("total_time_sec", Total, Seconds),
];

/// Azure has a TTFT of the engine (without what the service does before it) and one that the user is said to see (without
/// what comes before inference): from the request's arrival there counts the service's. Its first token may be hidden
/// reasoning. What it does before inference is filtering and no queue; the engine's TTFT holds the engine's queue and
/// prefill unseparated.
const AZURE: [Stated; 2] = [("service_ttft_ms", Ttft, Millis), ("total_duration_ms", Total, Millis)];

/// The first two always, the others of dedicated deployments. Some are written as strings.
const FIREWORKS: [Stated; 5] = [
    ("server-time-to-first-token", Ttft, Seconds),
    ("server-processing-time", Total, Seconds),
    ("prefill-queue-duration", Queue, Seconds),
    ("prefill-duration", Prefill, Seconds),
    ("generation-duration", Decode, Seconds),
];

/// NIM 1, whose TTFT has the queue in it; LM Studio's older API.
const STATS: [Stated; 5] = [
    ("time_in_queue_in_ms", Queue, Millis),
    ("generation_time_in_ms", Decode, Millis),
    ("response_tokens.time_to_first_token_in_ms", Ttft, Millis),
    ("time_to_first_token", Ttft, Seconds),
    ("generation_time", Decode, Seconds),
];

const DYNAMO: [Stated; 4] = [
    ("prefill_wait_time_ms", Queue, Millis),
    ("prefill_time_ms", Prefill, Millis),
    ("ttft_ms", Ttft, Millis),
    ("total_time_ms", Total, Millis),
];

/// Of the prompt only what was not cached. The queue is not said, so there is no TTFT.
const LLAMA_CPP: [Stated; 2] = [("prompt_ms", Prefill, Millis), ("predicted_ms", Decode, Millis)];

/// In every chunk.
const NOVITA: [Stated; 1] = [("ttft_ms", Ttft, Millis)];

/// Takes a field of the event.
#[inline]
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        // What nearly every chunk has is taken here, which saves it three calls.
        CHOICE => reply.choice(event),
        INDEX => reply.index(event, value),
        ANSWER => event.add(Kinds::ANSWER, value),
        OBJECT => {
            if value == Value::Text(b"error") {
                reply.take(event, ERROR, Value::Object);
            }
        }
        // A choice may have come before: then it is none of an error, and costs nothing.
        BARE_TYPE if event.choices == 0 => reply.hold(event, BY_BARE_TYPE, value),
        BARE_CODE if event.choices == 0 => reply.hold(event, BY_BARE_CODE, value),
        FAULT if matches!(value, Value::Filled | Value::Array) => event.filled |= HAS_FAULT,
        BARE_TYPE | BARE_CODE | FAULT => {}
        VALUE => {
            event.add(Kinds::ANSWER, value);
            reply.endless = true;
        }
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
    if event.has(HAS_FAULT) && event.choices == 0 && event.output.is_empty() {
        reply.take(event, ERROR, Value::Object);
    }
    reply.end(event, event.output, false)
}

/// The arithmetic: cached tokens are inside the prompt's, reasoning inside the completion's unless the total proves it is
/// not (xAI).
fn arithmetic(counts: &Counts) -> Usage {
    let input = counts.first(&[Count::PromptTokens, Count::InputTokens]);
    let output = counts.first(&[Count::CompletionTokens, Count::OutputTokens]);
    let reasoning = counts.first(&[Count::CompletionReasoning, Count::OutputReasoning, Count::ReasoningTokens]);
    let output = counts.with_reasoning(input, output, reasoning);
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
