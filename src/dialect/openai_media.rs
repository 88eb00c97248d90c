//! OpenAI's speech, transcriptions, translations and images: typed events over SSE, or one plain document. (Speech itself
//! is audio: nothing in it is read.) Others stream a transcript under names of their own (Mistral) or as a chat's chunks
//! (vLLM).
//!
//! A transcript ends with an event that repeats it; only if nothing came before is that the output. An image's last event
//! has the finished one, which none before it was.

use std::sync::LazyLock;

use super::{
    Kinds, Signal, Usage,
    reply::{AUDIO, ERROR, ERROR_BY_NAME, ERROR_CODE, ERROR_TYPE, Event, FINISH, MODEL, OWN, Reply},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const TYPE: u8 = OWN;
const DELTA: u8 = OWN + 1;
const TEXT: u8 = OWN + 2;
const IMAGE: u8 = OWN + 3;

/// [`Event::kind`]s: what the event's type makes of its fields.
const SEGMENT: u8 = 1;
const DONE: u8 = 2;
const END: u8 = 3;
const FAULT: u8 = 4;
const PIECE: u8 = 5;

/// An [`Event::filled`] flag.
const HAS_TEXT: u8 = 1;

/// Of [`Reply::parts`]: what came of a transcript.
const DELTAS: u8 = 1;
const SEGMENTS: u8 = 2;

/// The counts, by their place. Some models are billed by the second: that is no count of tokens, but a count.
const NAMES: [&str; 14] = [
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "input_token_details.text_tokens",
    "input_token_details.audio_tokens",
    "input_token_details.cached_tokens",
    "input_tokens_details.text_tokens",
    "input_tokens_details.image_tokens",
    "input_tokens_details.cached_tokens",
    "output_tokens_details.image_tokens",
    "output_tokens_details.text_tokens",
    "seconds",
    "prompt_tokens",
    "completion_tokens",
];
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const AUDIO_CACHED: usize = 5;
const IMAGE_CACHED: usize = 8;
const PROMPT: usize = 12;
const COMPLETION: usize = 13;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("type", TYPE, Want::Value),
        ("delta", DELTA, Want::Whether),
        ("text", TEXT, Want::Whether),
        ("audio", AUDIO, Want::Whether),
        ("b64_json", IMAGE, Want::Whether),
        ("url", IMAGE, Want::Whether),
        ("choices[].delta.content", DELTA, Want::Whether),
        ("choices[].finish_reason", FINISH, Want::Value),
        ("model", MODEL, Want::Value),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
    ];
    tree(&fields, usage::named(&["usage"], &NAMES))
}

/// Takes a field of the event.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    match field {
        TYPE => {
            if let Value::Text(text) = value {
                event.kind = kind(text);
                event.telling |= !matches!(event.kind, 0 | PIECE);
            }
        }
        DELTA | IMAGE => event.add(Kinds::ANSWER, value),
        TEXT => event.fill(HAS_TEXT, value),
        ERROR_BY_NAME => {
            event.kind = FAULT;
            reply.take(event, field, value);
        }
        _ => reply.take(event, field, value),
    }
}

/// The event has ended.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    let repeats = match event.kind {
        PIECE => false,
        // Of a transcript by speakers the deltas are those of a segment that is still to come.
        SEGMENT => reply.parts & DELTAS != 0,
        DONE => reply.parts != 0,
        _ => true,
    };
    let mut output = event.output;
    if event.has(HAS_TEXT) && !repeats {
        output |= Kinds::ANSWER;
    }
    if event.kind == SEGMENT {
        reply.parts |= SEGMENTS;
    } else if output.contains(Kinds::ANSWER) {
        reply.parts |= DELTAS;
    }
    event.error |= event.kind == FAULT;
    reply.end(event, output, matches!(event.kind, DONE | END))
}

/// The arithmetic: cached tokens are inside the input's.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.at(INPUT).or_else(|| counts.at(PROMPT)),
        output: counts.at(OUTPUT).or_else(|| counts.at(COMPLETION)),
        reasoning: None,
        cached: counts.at(AUDIO_CACHED).or_else(|| counts.at(IMAGE_CACHED)),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}

fn kind(text: &[u8]) -> u8 {
    match text {
        b"transcription.text.delta" => PIECE,
        b"transcript.text.segment" | b"transcription.segment" => SEGMENT,
        b"transcript.text.done" | b"transcription.done" => DONE,
        b"speech.audio.done" | b"image_generation.completed" | b"image_edit.completed" => END,
        b"error" => FAULT,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::dialect::{Dialect, Observer};

    fn observer(content_type: &str) -> Observer {
        let head = Response::builder().header("content-type", content_type).body(()).unwrap().into_parts().0;
        Observer::new(Dialect::OpenAiMedia, &head)
    }

    fn outputs(observer: &mut Observer, body: &str) -> Vec<Kinds> {
        let mut outputs = Vec::new();
        observer.read(body.as_bytes(), &mut |signal| outputs.push(signal.output));
        outputs
    }

    #[test]
    fn audio_is_told_from_its_transcript() {
        let speech = "data: {\"type\":\"speech.audio.delta\",\"audio\":\"UklG\"}\n\n";
        let transcript = "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hi\"}\n\n";
        let mut observer = observer("text/event-stream");
        assert_eq!(outputs(&mut observer, speech), [Kinds::ANSWER | Kinds::AUDIO]);
        assert_eq!(outputs(&mut observer, transcript), [Kinds::ANSWER]);
    }

    #[test]
    fn speech_that_is_no_stream_of_events_is_not_read() {
        for content_type in ["audio/mpeg", "audio/pcm", "application/octet-stream"] {
            let mut observer = observer(content_type);
            assert_eq!(outputs(&mut observer, "data: {\"audio\":\"UklG\"}\n\n"), [], "{content_type}");
            assert!(!observer.is_stream() && observer.off().is_none(), "{content_type}");
        }
    }

    #[test]
    fn seconds_are_counted_as_what_they_are() {
        let mut observer = observer("application/json");
        outputs(&mut observer, r#"{"text":"Hi","usage":{"type":"duration","seconds":4}}"#);
        let usage = observer.facts().usage;
        assert_eq!((usage.raw.as_slice(), usage.is_known()), (&[("seconds", 4)][..], false));
    }
}
