//! llama.cpp's own API (`/completion`, `/infill`): objects over SSE, one plain document, or an array of them.
//!
//! The last event of a stream has no text, says `stop` and counts. Older builds have no marker behind it.

use std::sync::LazyLock;

use super::{
    Usage,
    reply::{ANSWER, END, ERROR, ERROR_CODE, ERROR_TYPE, Event, FINISH, INDEX, ITEM, MODEL, OWN, PASSED, Reply},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const STOP: u8 = OWN;
/// Of which reply an event of a stream is.
const MIXED_INDEX: u8 = OWN + 1;
const STOP_TYPE: u8 = OWN + 2;
/// Older builds say why they stopped in flags.
const STOPPED_EOS: u8 = OWN + 3;
const STOPPED_WORD: u8 = OWN + 4;
const STOPPED_LIMIT: u8 = OWN + 5;

/// The counts, by their place. `tokens_cached` is what the cache holds in the end, not what was read from it.
const NAMES: [&str; 6] = [
    "tokens_evaluated",
    "tokens_predicted",
    "timings.cache_n",
    "timings.prompt_n",
    "timings.predicted_n",
    "tokens_cached",
];
const EVALUATED: usize = 0;
const PREDICTED: usize = 1;
const CACHE_N: usize = 2;
const PROMPT_N: usize = 3;
const PREDICTED_N: usize = 4;

pub(super) static RULES: Rules =
    Rules { data: Data::Json, tree: LazyLock::new(asked), found, end: Reply::close, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("content", ANSWER, Want::Whether),
        ("tokens[]", PASSED, Want::Whether),
        ("stop", STOP, Want::Value),
        ("index", MIXED_INDEX, Want::Value),
        ("stop_type", STOP_TYPE, Want::Value),
        ("stopped_eos", STOPPED_EOS, Want::Value),
        ("stopped_word", STOPPED_WORD, Want::Value),
        ("stopped_limit", STOPPED_LIMIT, Want::Value),
        ("model", MODEL, Want::Value),
        ("timings.prompt_ms", time(Phase::Prefill, Unit::Millis), Want::Count),
        ("timings.predicted_ms", time(Phase::Decode, Unit::Millis), Want::Count),
        ("[]", ITEM, Want::Whether),
        ("[].index", INDEX, Want::Value),
        ("[].stop_type", STOP_TYPE, Want::Value),
        ("[].model", MODEL, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        // The inside of an error that stands in a field of that name, not in data.
        ("type", ERROR_TYPE, Want::Value),
        ("code", ERROR_CODE, Want::Value),
    ];
    tree(&fields, usage::named(&["", "[]"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        STOP if value == Value::Bool(true) => (event.kind, event.telling) = (END, true),
        MIXED_INDEX => reply.index_of_mixed(event, value),
        STOP_TYPE if value != Value::Text(b"none") => reply.take(event, FINISH, value),
        STOPPED_EOS | STOPPED_WORD | STOPPED_LIMIT => {
            if value == Value::Bool(true) {
                let reason: &[u8] = match field {
                    STOPPED_EOS => b"eos",
                    STOPPED_WORD => b"word",
                    _ => b"limit",
                };
                reply.take(event, FINISH, Value::Text(reason));
            }
        }
        STOP | STOP_TYPE => {}
        _ => reply.take(event, field, value),
    }
}

/// The arithmetic: the evaluated tokens include the cached ones, those of the timings do not.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(EVALUATED).or_else(|| counts.sum(CACHE_N, PROMPT_N)),
        output: counts.at(PREDICTED).or_else(|| counts.at(PREDICTED_N)),
        reasoning: None,
        cached: counts.at(CACHE_N),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}
