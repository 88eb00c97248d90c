//! One document with counts and no generated text: embeddings, rerank. Who counts what under which name differs more than
//! it does among chats, so all names are asked for.
//!
//! The numbers that are the answer, megabytes of them, are passed over by their brackets.

use std::{ops::Range, sync::LazyLock};

use super::{
    Signal, Usage,
    reply::{ERROR, ERROR_CODE, ERROR_TYPE, Event, MODEL, OWN, Reply, is_something},
    reported::{Phase, Unit, time},
    rules::{Data, Rules, tree},
    usage::{self, Counts},
};
use crate::framing::json::{Tree, Value, Want};

const ANSWER: u8 = OWN;
const MESSAGE: u8 = OWN + 1;
const PREDICTION: u8 = OWN + 2;

/// [`Event::filled`] flags.
const HAS_ANSWER: u8 = 1;
const HAS_MESSAGE: u8 = 2;

/// The counts, by their place: those at the top (Ollama's, Titan's, watsonx's), in `usage`, in Cohere's `meta` and in
/// Google's; on Vertex each input has its own.
const NAMES: [&str; 16] = [
    "prompt_eval_count",
    "inputTextTokenCount",
    "input_token_count",
    "prompt_tokens",
    "input_tokens",
    "completion_tokens",
    "output_tokens",
    "total_tokens",
    "prompt_tokens_details.cached_tokens",
    "tokens.input_tokens",
    "tokens.output_tokens",
    "billed_units.input_tokens",
    "billed_units.output_tokens",
    "billed_units.search_units",
    "promptTokenCount",
    "embeddings.statistics.token_count",
];

/// Where the names of these places stand.
const PLACES: [(&str, Range<usize>); 5] =
    [("", 0..3), ("usage", 3..9), ("meta", 9..14), ("usageMetadata", 14..15), ("predictions[]", 15..16)];

/// Counts that mean the same, what was counted before what is billed. A total alone is the input's: nothing is generated.
const INPUTS: [usize; 10] = [3, 4, 9, 11, 14, 15, 0, 1, 2, 7];
const OUTPUTS: [usize; 4] = [5, 6, 10, 12];
const CACHED: usize = 8;

pub(super) static RULES: Rules = Rules { data: Data::Json, tree: LazyLock::new(asked), found, end, usage: arithmetic };

fn asked() -> Tree {
    let fields = [
        ("data", ANSWER, Want::Whether),
        ("results", ANSWER, Want::Whether),
        ("embedding", ANSWER, Want::Whether),
        ("embeddings", ANSWER, Want::Whether),
        ("output", ANSWER, Want::Whether),
        ("predictions", ANSWER, Want::Whether),
        ("predictions[]", PREDICTION, Want::Whether),
        ("model", MODEL, Want::Value),
        ("model_id", MODEL, Want::Value),
        ("message", MESSAGE, Want::Whether),
        ("detail", MESSAGE, Want::Whether),
        ("error", ERROR, Want::Value),
        ("error.type", ERROR_TYPE, Want::Value),
        ("error.code", ERROR_CODE, Want::Value),
        ("error_type", ERROR_TYPE, Want::Value),
        ("code", ERROR_CODE, Want::Value),
        ("total_duration", time(Phase::Total, Unit::Nanos), Want::Count),
    ];
    tree(&fields, usage::placed(&PLACES, &NAMES))
}

/// Takes a field of the document.
fn found(reply: &mut Reply, event: &mut Event, field: u8, value: Value<'_>) {
    let there = is_something(value) || value == Value::Array;
    match field {
        ANSWER if there => event.filled |= HAS_ANSWER,
        MESSAGE if there => event.filled |= HAS_MESSAGE,
        PREDICTION => reply.counts.another(),
        ANSWER | MESSAGE => {}
        _ => reply.take(event, field, value),
    }
}

/// The document has ended. Some say `message` and `code` of a success, too: without an answer they are an error.
fn end(reply: &mut Reply, event: &mut Event) -> Signal {
    event.error |= event.has(HAS_MESSAGE) && !event.has(HAS_ANSWER);
    reply.end(event, event.output, false)
}

/// The arithmetic: there is none.
fn arithmetic(counts: &Counts) -> Usage {
    Usage {
        input: counts.first_at(&INPUTS),
        output: counts.first_at(&OUTPUTS),
        reasoning: None,
        cached: counts.at(CACHED),
        cache_write: None,
        raw: counts.named(&NAMES),
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::{
        clock::Nanos,
        dialect::{Dialect, Observer},
    };

    #[test]
    fn places_are_those_of_their_names() {
        let names = |places: &[usize]| places.iter().map(|&place| NAMES[place]).collect::<Vec<_>>();
        let inputs = [
            "prompt_tokens",
            "input_tokens",
            "tokens.input_tokens",
            "billed_units.input_tokens",
            "promptTokenCount",
            "embeddings.statistics.token_count",
            "prompt_eval_count",
            "inputTextTokenCount",
            "input_token_count",
            "total_tokens",
        ];
        let outputs = ["completion_tokens", "output_tokens", "tokens.output_tokens", "billed_units.output_tokens"];
        assert_eq!(names(&INPUTS), inputs);
        assert_eq!(names(&OUTPUTS), outputs);
        assert_eq!(NAMES[CACHED], "prompt_tokens_details.cached_tokens");
    }

    #[test]
    fn what_ollama_took_is_said() {
        let head = Response::builder().header("content-type", "application/json").body(()).unwrap().into_parts().0;
        let mut observer = Observer::new(Dialect::Plain, &head);
        observer.read(br#"{"embeddings":[[0.1]],"total_duration":14143917,"prompt_eval_count":8}"#, &mut |_| {});
        assert_eq!(observer.facts().reported.total, Some(Nanos(14_143_917)));
    }

    #[test]
    fn megabytes_of_numbers_are_walked_and_not_held() {
        let numbers = vec!["-0.0123456789,[1e-7,2]"; 200_000].join(",");
        let body =
            format!(r#"{{"data":[{{"embedding":[{numbers}],"index":0}}],"model":"m","usage":{{"prompt_tokens":8}}}}"#);
        let head = Response::builder().header("content-type", "application/json").body(()).unwrap().into_parts().0;
        let mut observer = Observer::new(Dialect::Plain, &head);
        let allocated = allocation_counter::measure(|| {
            for piece in body.as_bytes().chunks(16 << 10) {
                observer.read(piece, &mut |_| {});
            }
        });
        let facts = observer.facts();
        assert_eq!((facts.usage.input, facts.ended), (Some(8), true));
        assert!(allocated.bytes_max < 16 << 10, "{allocated:?}");
    }
}
