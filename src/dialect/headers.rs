//! What a response's head says of the answer behind it: times, and token counts of what has no body to say them.
//!
//! Of a stream every header was fixed before the first byte of the body: whatever it is called, it can tell of the queue, of
//! the prefill and of the time until the head, never of the whole. Of a plain answer the head is made when the answer is,
//! and a refusal is one, whatever content type it has.
//!
//! | header | unit | plain answer | stream |
//! |---|---|---|---|
//! | `openai-processing-ms` | ms | total | TTFT: OpenAI's own time until it answers |
//! | `x-metrics-ttft-ms` (xAI) | ms | TTFT | TTFT |
//! | `x-metrics-e2e-ms` (xAI) | ms | total | – |
//! | `fireworks-server-time-to-first-token` | s | TTFT | TTFT |
//! | `fireworks-server-processing-time` | s | total | – |
//! | `fireworks-prefill-queue-duration`, `…-prefill-duration` | s | queue, prefill | queue, prefill |
//! | `fireworks-generation-duration` | s | decode | – |
//! | `x-queue-time` (TGI, older Together) | ms | queue | queue |
//! | `x-total-time` (the same) | ms | total | – |
//! | `x-compute-time` (the same), for want of `x-total-time` | TGI s, Together ms | total | – |
//! | `x-amzn-bedrock-invocation-latency` | ms | total | – |
//! | `ms-azureml-model-time` (Azure) | ms | total | TTFT |
//! | `server-timing: gfet4t7;dur=` (Google's front end), `x-originResponse;dur=` (Anthropic's) | ms | total | TTFT |
//!
//! `x-compute-time` is the same name in two units. TGI sends `x-compute-type` with it, and seconds; Together did not, and
//! sent whole milliseconds. A fraction without a type is nobody's, and not taken. The names of TGI's other times are so
//! common that they count only beside this one.
//!
//! Not taken, since any hop on the way may send them and none says whose time it is: `x-envoy-upstream-service-time`,
//! `x-kong-upstream-latency`, `x-kong-proxy-latency`, `cmp-upstream-response-duration`, `x-litellm-…-duration-ms`, and
//! every other name in `server-timing` (`proxy`, `cdn-cache`, …). There a duration of 0 is no time either: Databricks
//! writes it beside what is only a description. Nor TGI's `x-inference-time`, which is prefill and decode in one, nor times
//! per token.

use http::{HeaderMap, StatusCode, response::Parts};

use super::{
    Facts, Usage,
    reported::{
        Phase::{self, Decode, Prefill, Queue, Total, Ttft},
        Times,
        Unit::{self, Millis, Seconds},
    },
    usage::with_cache,
};

/// What a head says, for whichever the answer turns out to be.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Head {
    /// If it is a plain answer.
    plain: Times,
    /// If it is a stream.
    stream: Times,
    /// Of a plain answer.
    usage: Usage,
}

/// What this head says; absent if that is nothing. One that changes the protocol says nothing of the answers behind it.
pub(super) fn said(head: &Parts) -> Option<Box<Head>> {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return None;
    }
    let mut said = Said::default();
    for (name, value) in &head.headers {
        said.take(name.as_str(), value.as_bytes(), &head.headers);
    }
    said.head.usage = said.usage();
    if !head.status.is_success() {
        // Gemini refuses in plain JSON under a stream's content type.
        said.head.stream = said.head.plain;
    }
    (said.head != Head::default()).then(|| Box::new(said.head))
}

impl Head {
    /// Fills in what the body does not say.
    pub(super) fn complete(&self, facts: &mut Facts, stream: bool) {
        let mut reported = if stream { &self.stream } else { &self.plain }.reported();
        reported.ttft_of_head = reported.ttft.is_some();
        facts.reported = facts.reported.or(reported);
        if stream {
            return;
        }
        let (usage, head) = (&mut facts.usage, &self.usage);
        // The input's counts belong together: cached tokens are inside of it.
        if usage.input.is_none() {
            (usage.input, usage.cached, usage.cache_write) = (head.input, head.cached, head.cache_write);
            usage.raw.extend(head.raw.iter().filter(|(name, _)| !is_of_output(name)));
        }
        if usage.output.is_none() {
            usage.output = head.output;
            usage.raw.extend(head.raw.iter().filter(|(name, _)| is_of_output(name)));
        }
    }
}

#[derive(Default)]
struct Said {
    head: Head,
    /// In the order of [`COUNTS`].
    counts: [Option<u64>; COUNTS.len()],
}

/// Headers that count tokens, of plain answers only: of a stream nothing was counted yet.
const COUNTS: [&str; 6] = [
    "x-amzn-bedrock-input-token-count",
    "x-amzn-bedrock-output-token-count",
    "x-amzn-bedrock-cache-read-input-token-count",
    "x-amzn-bedrock-cache-write-input-token-count",
    "x-prompt-tokens",
    "x-generated-tokens",
];

fn is_of_output(name: &str) -> bool {
    matches!(name, "x-amzn-bedrock-output-token-count" | "x-generated-tokens")
}

impl Said {
    fn take(&mut self, name: &str, value: &[u8], headers: &HeaderMap) {
        // Most headers are of nobody here, which their first letter tells.
        if !matches!(name.as_bytes(), [b'f' | b'm' | b'o' | b's' | b'x', ..]) {
            return;
        }
        match name {
            "openai-processing-ms" | "ms-azureml-model-time" => self.until_head(value),
            "x-metrics-ttft-ms" => self.both(Ttft, Millis, value),
            "x-metrics-e2e-ms" | "x-amzn-bedrock-invocation-latency" => self.plain(Total, Millis, value),
            "fireworks-server-time-to-first-token" => self.both(Ttft, Seconds, value),
            "fireworks-server-processing-time" => self.plain(Total, Seconds, value),
            "fireworks-prefill-queue-duration" => self.both(Queue, Seconds, value),
            "fireworks-prefill-duration" => self.both(Prefill, Seconds, value),
            "fireworks-generation-duration" => self.plain(Decode, Seconds, value),
            "x-queue-time" if headers.contains_key("x-compute-time") => self.both(Queue, Millis, value),
            "x-total-time" if headers.contains_key("x-compute-time") => self.plain(Total, Millis, value),
            "x-compute-time" if !headers.contains_key("x-total-time") => {
                if headers.contains_key("x-compute-type") {
                    self.plain(Total, Seconds, value);
                } else if value.iter().all(u8::is_ascii_digit) {
                    self.plain(Total, Millis, value);
                }
            }
            "server-timing" => {
                if let Some(span) = own_timing(value) {
                    self.until_head(span);
                }
            }
            _ => {
                if let Some(place) = COUNTS.iter().position(|count| *count == name)
                    && let Some(count) = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok())
                {
                    self.counts[place] = Some(count);
                }
            }
        }
    }

    fn plain(&mut self, phase: Phase, unit: Unit, value: &[u8]) {
        self.head.plain.state(phase, unit, value);
    }

    fn both(&mut self, phase: Phase, unit: Unit, value: &[u8]) {
        self.head.stream.state(phase, unit, value);
        self.plain(phase, unit, value);
    }

    /// Milliseconds until the head was made: with a plain answer that was all, with a stream its first token at best.
    fn until_head(&mut self, value: &[u8]) {
        self.head.stream.state(Ttft, Millis, value);
        self.plain(Total, Millis, value);
    }

    /// What is counted: Bedrock's input is without what a cache gave or took.
    fn usage(&self) -> Usage {
        let [input, output, cached, cache_write, prompt, generated] = self.counts;
        Usage {
            input: with_cache(input, cached, cache_write).or(prompt),
            output: output.or(generated),
            reasoning: None,
            cached,
            cache_write,
            raw: COUNTS.iter().zip(self.counts).filter_map(|(name, count)| Some((*name, count?))).collect(),
        }
    }
}

/// The duration that a provider's own front end gives in `server-timing`: `name;dur=12.5;desc="…", …`, in any order and
/// with spaces where they like. Quoted descriptions may have commas in them, but no entry of the two names.
fn own_timing(value: &[u8]) -> Option<&[u8]> {
    value.split(|byte| *byte == b',').find_map(|entry| {
        let mut parts = entry.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        if !matches!(parts.next()?, b"gfet4t7" | b"x-originResponse") {
            return None;
        }
        let span = parts.find_map(|part| part.strip_prefix(b"dur="))?.trim_ascii();
        // Zero is what is written where nothing was measured.
        span.iter().any(|byte| (b'1'..=b'9').contains(byte)).then_some(span)
    })
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::{clock::Nanos, dialect::Reported};

    const MS: u64 = 1_000_000;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let head = headers.iter().fold(Response::builder(), |head, (name, value)| head.header(*name, *value));
        head.body(()).unwrap().into_parts().0
    }

    /// What is left of a reply whose body says nothing: as a plain answer, as a stream.
    fn facts(headers: &[(&str, &str)]) -> [Facts; 2] {
        let said = said(&head(headers));
        [false, true].map(|stream| {
            let mut facts = Facts::default();
            if let Some(head) = &said {
                head.complete(&mut facts, stream);
            }
            facts
        })
    }

    fn reported(headers: &[(&str, &str)]) -> [Reported; 2] {
        facts(headers).map(|facts| facts.reported)
    }

    fn total(ms: u64) -> Reported {
        Reported { total: Some(Nanos(ms * MS)), ..Reported::default() }
    }

    fn ttft(ms: u64) -> Reported {
        Reported { ttft: Some(Nanos(ms * MS)), ttft_of_head: true, ..Reported::default() }
    }

    #[test]
    fn a_time_until_the_head_is_the_whole_of_a_plain_answer_and_never_of_a_stream() {
        for (name, value, ms) in [
            ("openai-processing-ms", "417", 417),
            ("ms-azureml-model-time", "33", 33),
            ("server-timing", "gfet4t7; dur=95", 95),
            ("server-timing", "cdn;desc=\"a, b\", x-originResponse;desc=o;dur=12", 12),
        ] {
            assert_eq!(reported(&[(name, value)]), [total(ms), ttft(ms)], "{name}: {value}");
        }
        for name in ["x-metrics-e2e-ms", "x-amzn-bedrock-invocation-latency"] {
            assert_eq!(reported(&[(name, "250")]), [total(250), Reported::default()], "{name}");
        }
        assert_eq!(reported(&[("fireworks-server-processing-time", "0.25")]), [total(250), Reported::default()]);
    }

    #[test]
    fn a_first_token_in_the_head_is_one_of_either() {
        for (name, value) in [("x-metrics-ttft-ms", "61.0"), ("fireworks-server-time-to-first-token", "0.061")] {
            assert_eq!(reported(&[(name, value)]), [ttft(61), ttft(61)], "{name}");
        }
        let [plain, stream] = reported(&[
            ("fireworks-prefill-queue-duration", "0.002"),
            ("fireworks-prefill-duration", "0.03"),
            ("fireworks-generation-duration", "1.5"),
        ]);
        assert_eq!((plain.ttft, plain.decode), (Some(Nanos(32 * MS)), Some(Nanos(1_500 * MS))));
        assert_eq!((stream.ttft, stream.decode), (Some(Nanos(32 * MS)), None));
        assert!(plain.ttft_of_head && stream.ttft_of_head);
    }

    #[test]
    fn one_name_is_seconds_of_one_and_milliseconds_of_another() {
        let tgi = [("x-compute-type", "gpu"), ("x-compute-time", "1.25")];
        assert_eq!(reported(&tgi)[0], total(1_250));
        assert_eq!(reported(&[("x-compute-time", "125")])[0], total(125), "Together");
        assert_eq!(reported(&[("x-compute-time", "1.25")])[0], Reported::default(), "nobody's");
        let whole =
            [&tgi[..], &[("x-total-time", "1249"), ("x-queue-time", "7"), ("x-inference-time", "1240")]].concat();
        let [plain, stream] = reported(&whole);
        assert_eq!(plain, Reported { queue: Some(Nanos(7 * MS)), ..total(1_249) });
        assert_eq!(stream, Reported { queue: Some(Nanos(7 * MS)), ..Reported::default() });
        assert_eq!(reported(&[("x-total-time", "9"), ("x-queue-time", "3")])[0], Reported::default(), "some gateway's");
    }

    #[test]
    fn hops_descriptions_and_what_is_no_number_are_no_times() {
        for (name, value) in [
            ("x-envoy-upstream-service-time", "12"),
            ("x-kong-upstream-latency", "12"),
            ("cmp-upstream-response-duration", "12"),
            ("x-litellm-response-duration-ms", "12"),
            ("server-timing", "request_id;dur=0;desc=\"r\", client_protocol;dur=0;desc=\"HTTP/1.1\""),
            ("server-timing", "intid;desc=c0ffee"),
            ("server-timing", "proxy;dur=44"),
            ("server-timing", "x-originResponse;dur="),
            ("server-timing", "gfet4t7;dur=0.0"),
            ("server-timing", "gfet4t7"),
            ("server-timing", ";;,,"),
            ("openai-processing-ms", "soon"),
            ("openai-processing-ms", "-1"),
            ("retry-after", "2"),
        ] {
            assert_eq!(reported(&[(name, value)]), [Reported::default(); 2], "{name}: {value}");
        }
        assert!(said(&head(&[("content-type", "application/json")])).is_none());
    }

    #[test]
    fn the_body_has_the_last_word() {
        let said = said(&head(&[("openai-processing-ms", "40"), ("x-prompt-tokens", "9")])).unwrap();
        let mut facts = Facts::default();
        facts.reported.ttft = Some(Nanos(55 * MS));
        facts.usage.output = Some(3);
        said.complete(&mut facts, true);
        assert_eq!((facts.reported.ttft, facts.reported.ttft_of_head), (Some(Nanos(55 * MS)), false));
        said.complete(&mut facts, false);
        assert_eq!((facts.reported.total, facts.usage.output), (Some(Nanos(40 * MS)), Some(3)));
        assert_eq!(facts.usage.input, Some(9), "which the body did not count");
    }

    #[test]
    fn tokens_are_counted_by_the_head_of_a_plain_answer_alone() {
        let [plain, stream] = facts(&[
            ("x-amzn-bedrock-input-token-count", "100"),
            ("x-amzn-bedrock-output-token-count", "20"),
            ("x-amzn-bedrock-cache-read-input-token-count", "30"),
            ("x-amzn-bedrock-cache-write-input-token-count", "0"),
        ]);
        let usage = plain.usage;
        assert_eq!(
            (usage.input, usage.output, usage.cached, usage.cache_write),
            (Some(130), Some(20), Some(30), Some(0))
        );
        assert_eq!(usage.raw[0], ("x-amzn-bedrock-input-token-count", 100));
        assert_eq!(stream.usage, Usage::default());
        let [plain, _] = facts(&[("x-prompt-tokens", "16"), ("x-generated-tokens", "x")]);
        assert_eq!((plain.usage.input, plain.usage.output), (Some(16), None), "what is no number is not counted");
    }

    #[test]
    fn a_refusal_is_no_stream() {
        let mut head = head(&[("server-timing", "gfet4t7; dur=50")]);
        head.status = StatusCode::BAD_REQUEST;
        let mut facts = Facts::default();
        said(&head).unwrap().complete(&mut facts, true);
        assert_eq!(facts.reported, total(50));
    }

    #[test]
    fn a_change_of_protocol_says_nothing_of_what_follows() {
        let mut head = head(&[("openai-processing-ms", "40")]);
        head.status = StatusCode::SWITCHING_PROTOCOLS;
        assert!(said(&head).is_none());
    }
}
