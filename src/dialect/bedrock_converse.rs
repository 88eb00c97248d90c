//! Amazon Bedrock's Converse: JSON in the messages of an AWS event stream, or one plain document.
//!
//! What a message is, its fields tell; text blocks have no start. The counts come last, behind the finish.

use std::sync::LazyLock;

use super::{
    Usage,
    reply::{ANSWER, END, Event, FINISH, MESSAGE, OWN, REASONING, Reply, TOOL},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

/// What only the message that ends a stream has.
const METRICS: u8 = OWN;

/// The counts, by their place.
const NAMES: [&str; 5] =
    ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "totalTokens"];
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const CACHE_READ: usize = 2;
const CACHE_WRITE: usize = 3;

pub(super) static RULES: Rules =
    Rules { data: Data::Json, tree: LazyLock::new(asked), found, end: Reply::close, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("delta.text", ANSWER, Want::Whether),
        ("delta.image.source.bytes", ANSWER, Want::Whether),
        ("delta.reasoningContent.text", REASONING, Want::Whether),
        ("delta.reasoningContent.redactedContent", REASONING, Want::Whether),
        ("delta.toolUse.input", TOOL, Want::Whether),
        ("start.toolUse.name", TOOL, Want::Whether),
        ("stopReason", FINISH, Want::Value),
        ("metrics", METRICS, Want::Whether),
        ("metrics.latencyMs", time(Phase::Total, Unit::Millis), Want::Count),
        // Only errors have a message of their own; an answer's is in `output`.
        ("message", MESSAGE, Want::Whether),
    ];
    tree(&fields, usage::named(&["usage"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        METRICS => event.kind = END,
        _ => reply.take(event, field, value),
    }
}

/// The arithmetic: what was read from a cache or written to one comes in addition to the input's tokens.
fn arithmetic(counts: &Counts) -> Usage {
    let (cached, cache_write) = (counts.at(CACHE_READ), counts.at(CACHE_WRITE));
    Usage {
        input: usage::with_cache(counts.at(INPUT), cached, cache_write),
        output: counts.at(OUTPUT),
        reasoning: None,
        cached,
        cache_write,
        raw: counts.named(&NAMES),
    }
}
