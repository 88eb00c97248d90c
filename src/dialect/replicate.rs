//! Replicate's streams (`GET /v1/streams/…`): named events of plain text over SSE.
//!
//! Only events named `output` are generated; nothing is counted. The last one, `done`, may say why it is.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{BY_BARE_TYPE, END, Event, NAME, OWN, Reply, TEXT},
    rules::{Data, Rules, tree},
};
use crate::framing::json::{Tree, Value, Want};

const REASON: u8 = OWN;

/// [`Event::kind`] of generated text, beside [`END`].
const OUTPUT: u8 = 2;

/// [`Event::filled`] flag.
const HAS_TEXT: u8 = 1;

pub(super) static RULES: Rules =
    Rules { data: Data::Text, tree: LazyLock::new(asked), found, end, usage: |_| Usage::default() };

fn asked() -> Tree {
    tree(&[("reason", REASON, Want::Value)], Vec::new())
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TEXT => event.fill(HAS_TEXT, value),
        // An answer may be such an object too: the name tells in the end.
        REASON => reply.hold(event, BY_BARE_TYPE, value),
        NAME => {
            event.kind = match value {
                Value::Text(b"output") => OUTPUT,
                Value::Text(b"done") => END,
                _ => 0,
            };
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let held = reply.held.take();
    if event.kind == END {
        let reason = held.as_deref().unwrap_or("done");
        event.error |= reason == "error";
        reply.finish(0, reason.to_owned());
    }
    let output = if event.kind == OUTPUT && event.has(HAS_TEXT) { Kinds::ANSWER } else { Kinds::NONE };
    reply.end(event, output, event.kind == END)
}
