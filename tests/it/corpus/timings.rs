//! What recorded providers say of their own time: the reference's raw values, made times by a table of this test's own. And
//! of their limits: every number in a head.

use std::{collections::BTreeMap, fs};

use serde_json::{Map, Value};
use streamgauge::{
    clock::Nanos,
    dialect::{Reported, limits::rate_limits},
};

use super::{Row, TABLES, corpus, expected, file, head, recordings};

/// What becomes of a raw value, in nanoseconds per unit.
#[derive(Clone, Copy)]
enum Use {
    Queue(f64),
    Prefill(f64),
    Decode(f64),
    Ttft(f64),
    Total(f64),
    /// Of a plain answer the total, of a stream the time to its head.
    UntilHead(f64),
    /// `server-timing`, of which only Google's front end counts here.
    ServerTiming,
    /// An instant, a count, a speed, a part of another value, or the time of some hop on the way.
    Nothing,
}

const S: f64 = 1e9;
const MS: f64 = 1e6;
const NS: f64 = 1.0;

/// By the key's end. The same end means the same wherever it stands, but for `x-compute-time`.
const USES: [(&str, Use); 31] = [
    ("queue_time", Use::Queue(S)),
    ("prompt_time", Use::Prefill(S)),
    ("completion_time", Use::Decode(S)),
    ("usage.total_time", Use::Total(S)),
    ("time_info.total_time", Use::Total(S)),
    ("latency_checkpoint.service_ttft_ms", Use::Ttft(MS)),
    ("latency_checkpoint.total_duration_ms", Use::Total(MS)),
    ("metrics.latencyMs", Use::Total(MS)),
    // The first byte is of a start event, no token.
    ("invocationMetrics.firstByteLatency", Use::Nothing),
    ("invocationMetrics.invocationLatency", Use::Total(MS)),
    ("usage.time_to_first_token_ms", Use::Ttft(MS)),
    ("usage.time_to_first_token", Use::Ttft(S)),
    ("usage.total_latency", Use::Total(S)),
    ("sla_metrics.ttft_ms", Use::Ttft(MS)),
    ("timings.prompt_ms", Use::Prefill(MS)),
    ("timings.predicted_ms", Use::Decode(MS)),
    ("usage.total_prompt_time_sec", Use::Prefill(S)),
    ("usage.total_completion_time_sec", Use::Decode(S)),
    ("usage.total_time_sec", Use::Total(S)),
    ("prompt_eval_duration", Use::Prefill(NS)),
    ("total_duration", Use::Total(NS)),
    ("meta_info.e2e_latency", Use::Total(S)),
    ("meta_info.queue_time", Use::Queue(S)),
    ("header:openai-processing-ms", Use::UntilHead(MS)),
    ("header:server-timing", Use::ServerTiming),
    ("header:x-amzn-bedrock-invocation-latency", Use::Total(MS)),
    ("header:x-metrics-ttft-ms", Use::Ttft(MS)),
    ("header:x-metrics-e2e-ms", Use::Total(MS)),
    ("header:x-queue-time", Use::Queue(MS)),
    ("header:x-total-time", Use::Total(MS)),
    // Beside `x-total-time`, which says it without a doubt about the unit.
    ("header:x-compute-time", Use::Nothing),
];

#[test]
fn recorded_providers_time_themselves_as_expected() {
    let Some(recordings) = recordings() else { return };
    let mut values = 0;
    let mut tally: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for recording in recordings.iter().filter(|recording| !recording.row["timings"].is_empty()) {
        let (ran, wrong) = tally.entry(&recording.family).or_default();
        *ran += 1;
        let expected = said(&recording.row, recording.streamed);
        let found = recording.read(recording.body.chunks(7)).facts.reported;
        values += expected.named().iter().filter(|(_, span)| span.is_some()).count();
        if found != expected {
            wrong.push(format!("{}: {found:?}, expected {expected:?}", recording.name));
        }
    }
    let (mut ran, mut matching) = (0, 0);
    for (family, (all, wrong)) in &tally {
        println!("{family:24} {:3} of {all:3} time themselves as expected", all - wrong.len());
        for fault in wrong {
            println!("    {fault}");
        }
        (ran, matching) = (ran + all, matching + all - wrong.len());
    }
    println!("{ran} recordings with times were run, {matching} match, {values} times in all");
    assert_eq!(matching, ran, "every provider's times are read");
}

#[test]
fn recorded_heads_state_their_limits_and_every_number_is_taken() {
    let Some(corpus) = corpus() else { return };
    let (mut heads, mut numbers, mut resets) = (0, 0, 0);
    for (table, _) in TABLES {
        for row in expected(&corpus, table) {
            let file = file(&corpus.join(&row["dialect"]).join(&row["name"]), "response.headers");
            let Some(head) = fs::read_to_string(file).ok().and_then(|text| head(&text)) else { continue };
            let stated = head.headers.iter().filter(|(name, value)| {
                let name = name.as_str();
                let limit = name.starts_with("x-ratelimit-limit") || name.starts_with("x-ratelimit-remaining");
                let anthropic = name.starts_with("anthropic-ratelimit-") && !name.ends_with("-reset");
                (limit || anthropic) && value.to_str().is_ok_and(|text| text.parse::<u64>().is_ok())
            });
            let (stated, read) = (stated.count(), rate_limits(&head.headers));
            let taken: usize =
                read.iter().map(|one| usize::from(one.limit.is_some()) + usize::from(one.remaining.is_some())).sum();
            assert_eq!(taken, stated, "{}/{}: {read:?}", row["dialect"], row["name"]);
            heads += usize::from(!read.is_empty());
            numbers += taken;
            resets += read.iter().filter(|one| one.reset.is_some()).count();
        }
    }
    println!("{heads} recorded heads state limits: {numbers} numbers and {resets} resets were taken");
    assert!(heads > 0 && numbers > heads && resets > 0);
}

/// The reference's raw values as times: those of the body, and of the head what the body does not say.
fn said(row: &Row, streamed: bool) -> Reported {
    let raw: Map<String, Value> = serde_json::from_str(&row["timings"]).expect("an object of raw values");
    let (headers, body): (Vec<_>, Vec<_>) = raw.iter().partition(|(key, _)| key.starts_with("header:"));
    let times = |values: Vec<(&String, &Value)>| {
        let mut times = Reported::default();
        for (key, value) in values {
            take(&mut times, key, value, streamed);
        }
        times.ttft = times.ttft.or_else(|| Some(times.queue? + times.prefill?));
        times
    };
    let (body, head) = (times(body), times(headers));
    Reported {
        queue: body.queue.or(head.queue),
        prefill: body.prefill.or(head.prefill),
        decode: body.decode.or(head.decode),
        ttft: body.ttft.or(head.ttft),
        total: body.total.or(head.total),
        ttft_of_head: body.ttft.is_none() && head.ttft.is_some(),
        ttft_behind_queue: false,
    }
}

fn take(times: &mut Reported, key: &str, value: &Value, streamed: bool) {
    let header = key.starts_with("header:");
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let span = |unit: f64, text: &str| {
        let number: f64 = text.trim().parse().expect("a number");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "recorded spans are short")]
        Some(Nanos((number * unit).round() as u64))
    };
    let known = USES.iter().find(|(end, _)| key.ends_with(end)).map_or(Use::Nothing, |(_, what)| *what);
    match known {
        // Ollama's alone: the end of another key, too.
        _ if key == "eval_duration" => times.decode = span(NS, &text),
        Use::Queue(unit) => times.queue = span(unit, &text),
        Use::Prefill(unit) => times.prefill = span(unit, &text),
        Use::Decode(unit) if !(header && streamed) => times.decode = span(unit, &text),
        Use::Ttft(unit) => times.ttft = span(unit, &text),
        Use::Total(unit) if !(header && streamed) => times.total = span(unit, &text),
        Use::UntilHead(unit) if streamed => times.ttft = span(unit, &text),
        Use::UntilHead(unit) => times.total = span(unit, &text),
        Use::ServerTiming => {
            if let Some(duration) = text.strip_prefix("gfet4t7; dur=") {
                take(times, "header:openai-processing-ms", &Value::from(duration), streamed);
            }
        }
        Use::Decode(_) | Use::Total(_) | Use::Nothing => {}
    }
}
