//! Amazon Bedrock's Converse: JSON in the messages of an AWS event stream, or one plain document.
//!
//! What a message is, its fields tell; text blocks have no start. The counts come last, behind the finish.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{ERROR, Event, OWN, Reply, is_something},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const ANSWER: u8 = OWN;
const REASONING: u8 = OWN + 1;
const TOOL: u8 = OWN + 2;
const STOP: u8 = OWN + 3;
const METRICS: u8 = OWN + 4;

/// [`Event::kind`] of the message that ends a stream.
const END: u8 = 1;

/// The counts, by their place.
const NAMES: [&str; 5] =
    ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "totalTokens"];
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const CACHE_READ: usize = 2;
const CACHE_WRITE: usize = 3;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("delta.text", ANSWER, Want::Whether),
        ("delta.reasoningContent.text", REASONING, Want::Whether),
        ("delta.reasoningContent.redactedContent", REASONING, Want::Whether),
        ("delta.toolUse.input", TOOL, Want::Whether),
        ("start.toolUse.name", TOOL, Want::Whether),
        ("stopReason", STOP, Want::Value),
        ("metrics", METRICS, Want::Whether),
        ("metrics.latencyMs", time(Phase::Total, Unit::Millis), Want::Count),
        // Only errors have a message of their own; an answer's is in `output`.
        ("message", ERROR, Want::Whether),
    ];
    tree(&fields, usage::named(&["usage"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    let kinds = match field {
        ANSWER => Kinds::ANSWER,
        REASONING => Kinds::REASONING,
        TOOL => Kinds::TOOL,
        STOP => {
            reply.finish_with(event, value);
            return;
        }
        METRICS => {
            event.kind = END;
            return;
        }
        _ => return reply.take(event, field, value),
    };
    if is_something(value) {
        event.output |= kinds;
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    reply.end(event, event.output, event.kind == END)
}

/// The arithmetic: what was read from a cache or written to one comes in addition to the input's tokens.
fn arithmetic(counts: &Counts) -> Usage {
    let (cached, cache_write) = (counts.at(CACHE_READ), counts.at(CACHE_WRITE));
    let sum = |input: u64| input.saturating_add(cached.unwrap_or(0)).saturating_add(cache_write.unwrap_or(0));
    Usage {
        input: counts.at(INPUT).map(sum),
        output: counts.at(OUTPUT),
        reasoning: None,
        cached,
        cache_write,
        raw: counts.named(&NAMES),
    }
}
