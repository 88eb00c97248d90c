//! Google's Live: one object per message over a WebSocket, of the Gemini API and of Vertex.
//!
//! What the model says comes as parts, its audio's transcript beside them. Usage may stand in any message. The end of
//! a turn is `turnComplete`, also of one that was interrupted; what a message of tool calls ends, [`super::session`]
//! knows.

use std::sync::LazyLock;

use super::{
    Signal, Usage,
    gemini::{HAS_TEXT, IS_THOUGHT, end_part},
    reply::{ANSWER, AUDIO, Event, OWN, Reply, TOOL, name},
    rules::{Data, Rules, tree},
    usage::{self, COUNT, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const CONTENT: u8 = OWN;
const PART: u8 = OWN + 1;
const TEXT: u8 = OWN + 2;
const THOUGHT: u8 = OWN + 3;
const COMPLETE: u8 = OWN + 4;
const REASON: u8 = OWN + 5;
const INTERRUPTED: u8 = OWN + 6;
const CALL: u8 = OWN + 7;
const CANCELLED: u8 = OWN + 8;
const VOICE: u8 = OWN + 9;

/// [`Event::kind`] flags: what the message is of a turn.
pub(super) const OF_TURN: u8 = 1;
/// The turn is over.
pub(super) const IS_LAST: u8 = 2;
/// The client broke in.
pub(super) const IS_INTERRUPTED: u8 = 4;
/// Tools are called: so many as [`Event::choices`] says.
pub(super) const IS_CALL: u8 = 8;
/// So many calls need no answer any more.
pub(super) const IS_CANCELLED: u8 = 16;
/// The client's speech has ended.
pub(super) const IS_HEARD: u8 = 32;

/// The counts, by their place.
const NAMES: [&str; 6] = [
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "responseTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
];
const PROMPT: usize = 0;
const TOOL_PROMPT: usize = 1;
const CACHED: usize = 2;
const RESPONSE: usize = 3;
const THOUGHTS: usize = 4;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("serverContent", CONTENT, Want::Whether),
        ("serverContent.modelTurn.parts[]", PART, Want::Whether),
        ("serverContent.modelTurn.parts[].text", TEXT, Want::Whether),
        ("serverContent.modelTurn.parts[].thought", THOUGHT, Want::Value),
        ("serverContent.modelTurn.parts[].inlineData.data", AUDIO, Want::Whether),
        ("serverContent.modelTurn.parts[].executableCode.code", TOOL, Want::Whether),
        ("serverContent.outputTranscription.text", ANSWER, Want::Whether),
        ("serverContent.turnComplete", COMPLETE, Want::Value),
        ("serverContent.turnCompleteReason", REASON, Want::Value),
        ("serverContent.interrupted", INTERRUPTED, Want::Value),
        ("toolCall.functionCalls[]", CALL, Want::Whether),
        ("toolCall.functionCalls[].name", TOOL, Want::Whether),
        ("toolCallCancellation.ids[]", CANCELLED, Want::Whether),
        ("voiceActivity.voiceActivityType", VOICE, Want::Value),
        ("voiceActivityDetectionSignal.vadSignalType", VOICE, Want::Value),
    ];
    tree(&fields, usage::named(&["usageMetadata"], &NAMES))
}

/// Takes a field of the message.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        CONTENT => event.kind |= OF_TURN,
        PART => end_part(reply, event),
        TEXT => event.fill(HAS_TEXT, value),
        THOUGHT => event.fill(IS_THOUGHT, value),
        COMPLETE if value == Value::Bool(true) => event.kind |= IS_LAST,
        INTERRUPTED if value == Value::Bool(true) => {
            event.kind |= IS_INTERRUPTED;
            reply.finish(0, "interrupted".to_owned());
        }
        REASON => {
            if let Some(reason) = name(value) {
                reply.finish(1, reason.into_owned());
            }
        }
        CALL => {
            event.kind |= OF_TURN | IS_CALL;
            event.choices = event.choices.saturating_add(1);
        }
        CANCELLED => {
            event.kind |= IS_CANCELLED;
            event.choices = event.choices.saturating_add(1);
        }
        VOICE if matches!(value, Value::Text(b"ACTIVITY_END" | b"VAD_SIGNAL_TYPE_EOS")) => event.kind |= IS_HEARD,
        COMPLETE | INTERRUPTED | VOICE => {}
        COUNT.. => {
            event.kind |= OF_TURN;
            reply.take(event, field, value);
        }
        _ => reply.take(event, field, value),
    }
}

/// The message has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    end_part(reply, event);
    reply.end(event, event.output, event.kind & IS_LAST != 0)
}

/// The arithmetic: cached tokens are inside the prompt's, the results of tools beside it; thoughts come in addition
/// to the response's tokens.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.sum(PROMPT, TOOL_PROMPT),
        output: counts.sum(RESPONSE, THOUGHTS),
        reasoning: counts.at(THOUGHTS),
        cached: counts.at(CACHED),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}
