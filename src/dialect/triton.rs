//! Triton's generate extension (`/v2/models/{model}/generate_stream`): objects over SSE, or one plain document.
//!
//! Nothing is counted, and nothing marks the end.

use std::sync::LazyLock;

use super::{
    Signal, Usage,
    reply::{ANSWER, ERROR, Event, FINISH, MODEL, Reply},
    rules::{Data, Rules, tree},
};
use crate::framing::json::{Tree, Want};

pub(super) static RULES: Rules =
    Rules { data: Data::Json, tree: LazyLock::new(asked), found: Reply::take, end, usage: |_| Usage::default() };

fn asked() -> Tree {
    let fields = [
        ("text_output", ANSWER, Want::Whether),
        ("text_output[]", ANSWER, Want::Whether),
        ("finish_reason", FINISH, Want::Value),
        ("model_name", MODEL, Want::Value),
        ("error", ERROR, Want::Whether),
    ];
    tree(&fields, Vec::new())
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    reply.endless = true;
    reply.end(event, event.output, false)
}
