//! Google's `generateContent`, of the Gemini API and of Vertex: objects over SSE or in a growing array, or a plain one.
//!
//! A stream is a sequence of equal objects without a begin or an end: it is complete once a finish reason was seen, or
//! the array's bracket. What a part is may be told before or behind its text.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{CHOICE, ERROR, ERROR_CODE, Event, FINISH, INDEX, MODEL, OWN, Reply},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const PART: u8 = OWN;
const TEXT: u8 = OWN + 1;
const THOUGHT: u8 = OWN + 2;
const TOOL: u8 = OWN + 3;
const BLOCKED: u8 = OWN + 4;
const ARGUMENT: u8 = OWN + 5;

/// [`Event::filled`] flags of the present part.
pub(super) const HAS_TEXT: u8 = 1;
pub(super) const IS_THOUGHT: u8 = 2;
const HAS_TOOL: u8 = 4;

/// The counts, by their place.
const NAMES: [&str; 6] = [
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
];
const PROMPT: usize = 0;
const TOOL_PROMPT: usize = 1;
const CACHED: usize = 2;
const CANDIDATES: usize = 3;
const THOUGHTS: usize = 4;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let mut fields: Vec<(String, u8, Want)> = Vec::new();
    for place in PLACES {
        fields.extend(FIELDS.iter().map(|(path, field, want)| (format!("{place}{path}"), *field, *want)));
        fields.extend(usage::named(&[&format!("{place}usageMetadata")], &NAMES));
    }
    tree(&[("error", ERROR, Want::Value), ("error.code", ERROR_CODE, Want::Value)], fields)
}

/// Where an answer stands: alone, or as Code Assist wraps it.
const PLACES: [&str; 2] = ["", "response."];

const FIELDS: [(&str, u8, Want); 16] = [
    ("candidates[]", CHOICE, Want::Whether),
    ("candidates[].index", INDEX, Want::Value),
    ("candidates[].finishReason", FINISH, Want::Value),
    ("candidates[].content.parts[]", PART, Want::Whether),
    ("candidates[].content.parts[].text", TEXT, Want::Whether),
    ("candidates[].content.parts[].thought", THOUGHT, Want::Value),
    ("candidates[].content.parts[].inlineData.data", TEXT, Want::Whether),
    ("candidates[].content.parts[].fileData.fileUri", TEXT, Want::Whether),
    ("candidates[].content.parts[].functionCall.name", TOOL, Want::Whether),
    ("candidates[].content.parts[].functionCall.partialArgs[].stringValue", TOOL, Want::Whether),
    ("candidates[].content.parts[].functionCall.partialArgs[].numberValue", ARGUMENT, Want::Whether),
    ("candidates[].content.parts[].functionCall.partialArgs[].boolValue", ARGUMENT, Want::Whether),
    ("candidates[].content.parts[].functionCall.partialArgs[].nullValue", ARGUMENT, Want::Whether),
    ("candidates[].content.parts[].executableCode.code", TOOL, Want::Whether),
    ("promptFeedback.blockReason", BLOCKED, Want::Value),
    ("modelVersion", MODEL, Want::Value),
];

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        PART => end_part(reply, event),
        TEXT => event.fill(HAS_TEXT, value),
        // An empty string says that the one before it was all; any other value is one.
        TOOL => event.fill(HAS_TOOL, value),
        ARGUMENT => event.filled |= HAS_TOOL,
        THOUGHT => event.fill(IS_THOUGHT, value),
        FINISH | BLOCKED if is_unspecified(value) => {}
        BLOCKED => reply.finish_with(event, 0, value),
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    end_part(reply, event);
    reply.end(event, event.output, false)
}

/// The arithmetic: cached tokens are inside the prompt's, the results of tools beside it; thoughts come in addition to the
/// candidates' tokens.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.sum(PROMPT, TOOL_PROMPT),
        output: counts.sum(CANDIDATES, THOUGHTS),
        reasoning: counts.at(THOUGHTS),
        cached: counts.at(CACHED),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}

/// The name, or number, of no reason.
fn is_unspecified(value: Value<'_>) -> bool {
    match value {
        Value::Text(reason) => reason.ends_with(b"_UNSPECIFIED"),
        value => value == Value::Number(b"0"),
    }
}

/// The present part has ended, of a reply or a Live message. What thoughts say is a summary of them.
pub(super) fn end_part(reply: &mut Reply, event: &mut Event) {
    if event.has(HAS_TEXT) {
        let thought = event.has(IS_THOUGHT);
        event.output |= if thought { Kinds::REASONING } else { Kinds::ANSWER };
        reply.summarised |= thought;
    }
    if event.has(HAS_TOOL) {
        event.output |= Kinds::TOOL;
    }
    event.filled = 0;
}
