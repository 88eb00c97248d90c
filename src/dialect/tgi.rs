//! Text Generation Inference's own API (`/generate_stream`, `/generate`): an event per token over SSE, or one document,
//! which may be an array of them.
//!
//! The last event repeats the whole text; special tokens are none of it.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{END, ERROR, ERROR_TYPE, Event, FINISH, ITEM, OWN, Reply, is_something},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TEXT: u8 = OWN;
const SPECIAL: u8 = OWN + 1;
const WHOLE: u8 = OWN + 2;

/// [`Event::filled`] flags.
const HAS_TEXT: u8 = 1;
const IS_SPECIAL: u8 = 2;

/// The counts, by their place.
const NAMES: [&str; 2] = ["input_length", "generated_tokens"];
const INPUT: usize = 0;
const OUTPUT: usize = 1;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("token.text", TEXT, Want::Whether),
        ("token.special", SPECIAL, Want::Value),
        ("generated_text", WHOLE, Want::Whether),
        ("details.finish_reason", FINISH, Want::Value),
        ("[]", ITEM, Want::Whether),
        ("[].details.finish_reason", FINISH, Want::Value),
        ("error", ERROR, Want::Value),
        ("error_type", ERROR_TYPE, Want::Value),
    ];
    tree(&fields, usage::named(&["details", "[].details"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TEXT => event.fill(HAS_TEXT, value),
        SPECIAL => event.fill(IS_SPECIAL, value),
        WHOLE => {
            // The text may be empty: `null` says that more is to come.
            if is_something(value) || matches!(value, Value::Text(_)) {
                (event.kind, event.telling) = (END, true);
            }
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let output = if event.has(HAS_TEXT) && !event.has(IS_SPECIAL) { Kinds::ANSWER } else { Kinds::NONE };
    reply.end(event, output, event.kind == END)
}

/// The arithmetic: there is none, and without `details` nothing is counted.
fn arithmetic(counts: &Counts) -> Usage {
    Usage { input: counts.at(INPUT), output: counts.at(OUTPUT), raw: counts.named(&NAMES), ..Usage::default() }
}
