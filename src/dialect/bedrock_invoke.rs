//! Amazon Bedrock's InvokeModel: the vendor's own JSON, wrapped in the messages of an AWS event stream, or one plain
//! document.
//!
//! Which vendor's it is, its fields tell: Anthropic's events and OpenAI's chunks are read as they are elsewhere, the
//! others' names are all here. The last object of a stream has Bedrock's own metrics beside the vendor's fields. Their
//! counts stand in only where the vendor says none, as they may differ (of tool calls they have had 97 for 133).

use std::{ops::Range, sync::LazyLock};

use super::{
    Kinds, Signal, Usage, anthropic, openai_chat,
    reply::{ANSWER, ERROR, Event, MESSAGE, OWN, REASONING, Reply, TOOL, is_something},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

/// Behind Anthropic's own fields, which keep their numbers.
const WHOLE: u8 = OWN + 32;
const PART: u8 = WHOLE + 1;
const STOP: u8 = WHOLE + 2;
const METRICS: u8 = WHOLE + 3;
const SPEECH: u8 = WHOLE + 4;
const LAST: u8 = WHOLE + 5;

/// An [`Event::filled`] flag, behind Anthropic's.
const HAS_METRICS: u8 = 128;

/// [`Event::part`] flags, behind Anthropic's: a message, and the field beside it that only an answer has.
const HAS_MESSAGE: u8 = 64;
const IS_ANSWER: u8 = 128;

/// Of [`Reply::parts`]: Cohere's text came in parts.
const TEXT_CAME: u8 = 1;

/// The counts, by their place: Anthropic's, OpenAI's, Nova's, Titan's, Llama's, and those of the metrics.
const NAMES: [&str; 24] = [
    "input_tokens",
    "output_tokens",
    "output_tokens_details.thinking_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation.ephemeral_5m_input_tokens",
    "cache_creation.ephemeral_1h_input_tokens",
    "prompt_tokens",
    "completion_tokens",
    "completion_tokens_details.reasoning_tokens",
    "prompt_tokens_details.cached_tokens",
    "inputTokens",
    "outputTokens",
    "cacheReadInputTokens",
    "cacheWriteInputTokens",
    "cacheReadInputTokenCount",
    "cacheWriteInputTokenCount",
    "inputTokenCount",
    "outputTokenCount",
    "inputTextTokenCount",
    "totalOutputTextTokenCount",
    "prompt_token_count",
    "generation_token_count",
    "tokenCount",
];

/// Where the names of these places stand. (Nova and the metrics have the same names for the cache's.)
const PLACES: [(&str, Range<usize>); 6] = [
    ("message.usage", 0..7),
    ("usage", 0..17),
    ("metadata.usage", 11..17),
    ("amazon-bedrock-invocationMetrics", 15..19),
    ("", 19..23),
    ("results[]", 23..24),
];

/// Counts that mean the same, the vendors' before the metrics'.
const INPUTS: [usize; 5] = [0, 11, 19, 21, 17];
const OUTPUTS: [usize; 7] = [1, 8, 12, 20, 23, 22, 18];
const CACHED: [usize; 4] = [3, 10, 13, 15];
const WRITTEN: [usize; 3] = [4, 14, 16];
const REASONED: [usize; 2] = [2, 9];
/// OpenAI's input, which what was cached is inside of.
const PROMPT: usize = 7;

pub(super) static RULES: Rules =
    Rules { data: Data::Wrapped, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let mut fields = anthropic::fields();
    fields.extend(openai_chat::fields().into_iter().filter(|(path, ..)| path.starts_with("choices[]")));
    fields.extend([
        // Nova, as Converse.
        ("contentBlockStart.start.toolUse.name", TOOL, Want::Whether),
        ("contentBlockDelta.delta.text", ANSWER, Want::Whether),
        ("contentBlockDelta.delta.reasoningContent.text", REASONING, Want::Whether),
        ("contentBlockDelta.delta.reasoningContent.reasoningText.text", REASONING, Want::Whether),
        ("contentBlockDelta.delta.reasoningContent.redactedContent", REASONING, Want::Whether),
        ("contentBlockDelta.delta.toolUse.input", TOOL, Want::Whether),
        ("messageStop.stopReason", STOP, Want::Value),
        ("stopReason", STOP, Want::Value),
        // Titan.
        ("outputText", ANSWER, Want::Whether),
        ("completionReason", STOP, Want::Value),
        ("results[].completionReason", STOP, Want::Value),
        // Llama.
        ("generation", ANSWER, Want::Whether),
        // Mistral.
        ("outputs[].text", ANSWER, Want::Whether),
        ("outputs[].stop_reason", STOP, Want::Value),
        ("choices[].message.content", ANSWER, Want::Whether),
        ("choices[].message.tool_calls[].function.name", TOOL, Want::Whether),
        ("choices[].stop_reason", STOP, Want::Value),
        // Cohere.
        ("text", PART, Want::Whether),
        ("generations[].text", WHOLE, Want::Whether),
        ("tool_calls[].name", TOOL, Want::Whether),
        ("finish_reason", STOP, Want::Value),
        ("generations[].finish_reason", STOP, Want::Value),
        // AI21's older ones.
        ("completions[].finishReason.reason", STOP, Want::Value),
        // TwelveLabs, whose message is the answer.
        ("finishReason", LAST, Want::Value),
        // Bedrock's own.
        ("amazon-bedrock-invocationMetrics", METRICS, Want::Whether),
        // `firstByteLatency` is left: the first byte is no token where a start comes first, as with Anthropic and Nova.
        ("amazon-bedrock-invocationMetrics.invocationLatency", time(Phase::Total, Unit::Millis), Want::Count),
        ("message", SPEECH, Want::Whether),
        ("Message", MESSAGE, Want::Whether),
    ]);
    tree(&fields, usage::placed(&PLACES, &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        PART => {
            event.add(Kinds::ANSWER, value);
            if is_something(value) {
                reply.parts |= TEXT_CAME;
            }
        }
        WHOLE if reply.parts & TEXT_CAME == 0 => event.add(Kinds::ANSWER, value),
        // What stopped a choice may be said in addition to its finish reason.
        STOP if event.choices == 0 || reply.finish.is_empty() => reply.finish_with(event, 0, value),
        METRICS => event.fill(HAS_METRICS, value),
        // Anthropic's start has an object of this name.
        SPEECH if value == Value::Filled => event.part |= HAS_MESSAGE,
        LAST => {
            event.part |= IS_ANSWER;
            reply.finish_with(event, 0, value);
        }
        WHOLE | STOP | SPEECH => {}
        _ => anthropic::found(reply, event, field, value),
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    reply.settle(event);
    if event.part & HAS_MESSAGE != 0 {
        // Errors are a message alone.
        if event.part & IS_ANSWER == 0 {
            reply.take(event, ERROR, Value::Filled);
        } else {
            event.output |= Kinds::ANSWER;
        }
    }
    let mut signal = anthropic::end(reply, event);
    signal.output |= event.output;
    signal.end |= event.has(HAS_METRICS);
    reply.ended |= signal.end;
    signal
}

/// The arithmetic: the vendor's own counts come before the metrics. What was read from a cache or written to one comes in
/// addition to the input's tokens, but for OpenAI's.
fn arithmetic(counts: &Counts) -> Usage {
    let (cached, cache_write) = (counts.first_at(&CACHED), counts.first_at(&WRITTEN));
    let uncached = counts.first_at(&INPUTS);
    Usage {
        input: counts.at(PROMPT).or_else(|| usage::with_cache(uncached, cached, cache_write)),
        output: counts.first_at(&OUTPUTS),
        reasoning: counts.first_at(&REASONED),
        cached,
        cache_write,
        raw: counts.named(&NAMES),
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::{
        clock::Nanos,
        dialect::{Dialect, Observer, Reported},
    };

    #[test]
    fn places_are_those_of_their_names() {
        let names = |places: &[usize]| places.iter().map(|&place| NAMES[place]).collect::<Vec<_>>();
        let inputs = ["input_tokens", "inputTokens", "inputTextTokenCount", "prompt_token_count", "inputTokenCount"];
        let outputs = [
            "output_tokens",
            "completion_tokens",
            "outputTokens",
            "totalOutputTextTokenCount",
            "tokenCount",
            "generation_token_count",
            "outputTokenCount",
        ];
        let cached = [
            "cache_read_input_tokens",
            "prompt_tokens_details.cached_tokens",
            "cacheReadInputTokens",
            "cacheReadInputTokenCount",
        ];
        let written = ["cache_creation_input_tokens", "cacheWriteInputTokens", "cacheWriteInputTokenCount"];
        let reasoned = ["output_tokens_details.thinking_tokens", "completion_tokens_details.reasoning_tokens"];
        assert_eq!(names(&INPUTS), inputs);
        assert_eq!(names(&OUTPUTS), outputs);
        assert_eq!(names(&CACHED), cached);
        assert_eq!(names(&WRITTEN), written);
        assert_eq!(names(&REASONED), reasoned);
        assert_eq!(NAMES[PROMPT], "prompt_tokens");
    }

    #[test]
    fn the_first_byte_is_no_first_token() {
        let head = Response::builder().header("content-type", "application/json").body(()).unwrap().into_parts().0;
        let mut observer = Observer::new(Dialect::BedrockInvoke, &head);
        let metrics = br#"{"amazon-bedrock-invocationMetrics":{"invocationLatency":1027,"firstByteLatency":20}}"#;
        observer.read(metrics, &mut |_| {});
        assert_eq!(observer.facts().reported, Reported { total: Some(Nanos(1_027_000_000)), ..Reported::default() });
    }

    #[test]
    fn the_fields_of_others_keep_apart() {
        assert!(anthropic::fields().iter().all(|(_, field, _)| *field < WHOLE));
        let mut choices = openai_chat::fields().into_iter().filter(|(path, ..)| path.starts_with("choices[]"));
        assert!(choices.all(|(_, field, _)| field < OWN));
    }
}
