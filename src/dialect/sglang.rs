//! SGLang's own API (`/generate`): objects over SSE, one plain document, or an array of them for a batch.
//!
//! The text of an event is all text so far, unless the server runs with incremental output; the last event may repeat it
//! with the reason why it is the last. What tells is the count of tokens.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{ERROR, ERROR_CODE, ERROR_TYPE, Event, FINISH, ITEM, OWN, Reply},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, COUNT, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TEXT: u8 = OWN;
const IDS: u8 = OWN + 1;
const INDEX: u8 = OWN + 2;

/// [`Event::filled`] flags.
const HAS_TEXT: u8 = 1;
/// There is a field of text, maybe an empty one: of a token that is half a character.
const IS_TEXT: u8 = 2;
const HAS_IDS: u8 = 4;
const HAS_COUNT: u8 = 8;

/// The counts, by their place.
const NAMES: [&str; 4] = ["prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"];
const PROMPT: usize = 0;
const COMPLETION: u8 = 1;
const CACHED: usize = 2;
const REASONING: usize = 3;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("text", TEXT, Want::Whether),
        ("output_ids[]", IDS, Want::Whether),
        ("index", INDEX, Want::Value),
        ("meta_info.finish_reason.type", FINISH, Want::Value),
        ("meta_info.e2e_latency", time(Phase::Total, Unit::Seconds), Want::Count),
        ("meta_info.queue_time", time(Phase::Queue, Unit::Seconds), Want::Count),
        ("[]", ITEM, Want::Whether),
        ("[].meta_info.finish_reason.type", FINISH, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        ("detail", ERROR, Want::Whether),
    ];
    tree(&fields, usage::named(&["meta_info", "[].meta_info"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TEXT => {
            event.fill(HAS_TEXT, value);
            event.filled |= if value == Value::Null { 0 } else { IS_TEXT };
        }
        IDS => event.fill(HAS_IDS, value),
        // The events of a batch's requests are mixed: each has a count of its own.
        INDEX => {
            reply.index_of_mixed(event, value);
            event.telling = true;
        }
        _ => {
            if field == COUNT + COMPLETION && matches!(value, Value::Number(_)) {
                event.filled |= HAS_COUNT;
            }
            event.error |= (field, value) == (FINISH, Value::Text(b"abort"));
            reply.take(event, field, value);
        }
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let something = event.has(HAS_TEXT) || event.has(HAS_IDS) && !event.has(IS_TEXT);
    let new = something && reply.grew(event, COMPLETION, event.has(HAS_COUNT), event.choice.unwrap_or(0));
    reply.end(event, if new { Kinds::ANSWER } else { Kinds::NONE }, false)
}

/// The arithmetic: cached tokens are inside the prompt's, reasoning inside the completion's.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(PROMPT),
        output: counts.at(usize::from(COMPLETION)),
        reasoning: counts.at(REASONING),
        cached: counts.at(CACHED),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}
