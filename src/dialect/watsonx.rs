//! IBM watsonx's text generation (`/ml/v1/text/generation`, `…_stream`): objects over SSE, or one plain document.
//!
//! The first event may be empty; it alone counts the input. Nothing but a stop reason marks the end. Its chat speaks
//! OpenAI's dialect.

use std::sync::LazyLock;

use super::{
    Usage,
    reply::{ANSWER, ERROR, ERROR_CODE, Event, FINISH, MODEL, Reply},
    rules::{Data, Rules, tree},
    usage::{self, COUNT, Counts},
};
use crate::framing::json::{Tree, Value, Want};

/// The counts, by their place.
const NAMES: [&str; 2] = ["input_token_count", "generated_token_count"];
const INPUT: u8 = 0;
const GENERATED: usize = 1;

pub(super) static RULES: Rules =
    Rules { data: Data::Json, tree: LazyLock::new(asked), found, end: Reply::close, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("results[].generated_text", ANSWER, Want::Whether),
        ("results[].stop_reason", FINISH, Want::Value),
        ("model_id", MODEL, Want::Value),
        ("errors[]", ERROR, Want::Whether),
        ("errors[].code", ERROR_CODE, Want::Value),
    ];
    tree(&fields, usage::named(&["results[]"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    const NO_INPUT: u8 = COUNT + INPUT;
    match (field, value) {
        (FINISH, Value::Text(b"not_finished" | b"NOT_FINISHED")) | (NO_INPUT, Value::Number(b"0")) => {}
        _ => {
            event.error |= (field, value) == (FINISH, Value::Text(b"error"));
            reply.take(event, field, value);
        }
    }
}

/// The arithmetic: there is none.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(usize::from(INPUT)),
        output: counts.at(GENERATED),
        raw: counts.named(&NAMES),
        ..Usage::default()
    }
}
