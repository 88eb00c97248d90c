//! Each provider's own way of saying it, as plain answers and as the last chunk of a stream.

use http::Response;

use super::Reported;
use crate::{
    clock::Nanos,
    dialect::{Dialect, Observer},
};

fn reported(dialect: Dialect, content_type: &str, body: &str) -> Reported {
    let head = Response::builder().header("content-type", content_type).body(()).unwrap().into_parts().0;
    let mut observer = Observer::new(dialect, &head);
    observer.read(body.as_bytes(), &mut |_| {});
    observer.end(&mut |_| {});
    assert_eq!((observer.off(), observer.skipped()), (None, 0), "{body}");
    observer.facts().reported
}

fn us(micros: [Option<u64>; 5]) -> Reported {
    let [queue, prefill, decode, ttft, total] = micros.map(|micros| Some(Nanos(micros? * 1_000)));
    Reported { queue, prefill, decode, ttft, total, ..Reported::default() }
}

/// Fields of a chat completion; queue, prefill, decode, TTFT and total in microseconds.
type Shape = (&'static str, [Option<u64>; 5]);

const CHAT: [Shape; 18] = [
    // Groq: the total is without the queue, and stands as it is said.
    (
        r#""x_groq":{"usage":{"queue_time":0.25,"prompt_time":0.5,"completion_time":1.5,"total_time":2.0}}"#,
        [Some(250_000), Some(500_000), Some(1_500_000), Some(750_000), Some(2_000_000)],
    ),
    (
        r#""usage":{"queue_time":0.25,"prompt_time":0.5,"prompt_tokens":3}"#,
        [Some(250_000), Some(500_000), None, Some(750_000), None],
    ),
    // Cerebras: `created` is an instant.
    (
        r#""time_info":{"queue_time":0.001,"prompt_time":0.002,"completion_time":0.25,"total_time":0.3,"created":1790000000.5}"#,
        [Some(1_000), Some(2_000), Some(250_000), Some(3_000), Some(300_000)],
    ),
    // TabbyAPI names no queue: no TTFT follows.
    (
        r#""usage":{"prompt_time":0.5,"completion_time":1.5,"total_time":2}"#,
        [None, Some(500_000), Some(1_500_000), None, Some(2_000_000)],
    ),
    // SambaNova: start and end are instants.
    (
        r#""usage":{"time_to_first_token":0.125,"total_latency":0.75,"start_time":1790000000.25,"end_time":1790000001.0}"#,
        [None, None, None, Some(125_000), Some(750_000)],
    ),
    // Fireworks: numbers, or strings that are ones; with the phases of dedicated deployments.
    (
        r#""perf_metrics":{"server-time-to-first-token":"0.0625","server-processing-time":0.5,"prompt-tokens":9}"#,
        [None, None, None, Some(62_500), Some(500_000)],
    ),
    (
        r#""perf_metrics":{"tokenizer-duration":0.001,"prefill-queue-duration":0.002,"prefill-duration":"0.03","generation-queue-duration":0.5,"generation-duration":0.25,"server-time-to-first-token":0.035}"#,
        [Some(2_000), Some(30_000), Some(250_000), Some(35_000), None],
    ),
    // Azure: at the top of a stream's chunk, inside a plain answer's usage.
    (
        r#""latency_checkpoint":{"engine_ttft_ms":50,"engine_ttlt_ms":200,"pre_inference_ms":70,"service_ttft_ms":300,"service_ttlt_ms":460,"total_duration_ms":440,"user_visible_ttft_ms":230}"#,
        [None, None, None, Some(300_000), Some(440_000)],
    ),
    (
        r#""usage":{"latency_checkpoint":{"service_ttft_ms":300,"total_duration_ms":440}}"#,
        [None, None, None, Some(300_000), Some(440_000)],
    ),
    // vLLM: from scheduling on, so the queue comes before it.
    (
        r#""metrics":{"time_to_first_token_ms":85.5,"queue_time_ms":12.25,"generation_time_ms":1240.5,"mean_itl_ms":9}"#,
        [Some(12_250), None, Some(1_240_500), Some(97_750), None],
    ),
    (r#""metrics":null"#, [None; 5]),
    // NIM: its TTFT has the queue in it.
    (
        r#""stats":{"time_in_queue_in_ms":10.0,"generation_time_in_ms":800,"response_tokens":{"time_to_first_token_in_ms":110.5,"token_to_token_time_in_ms":12}}"#,
        [Some(10_000), None, Some(800_000), Some(110_500), None],
    ),
    // LM Studio before its version 1.
    (
        r#""stats":{"tokens_per_second":50,"time_to_first_token":0.125,"generation_time":1.5,"stop_reason":"eosFound"}"#,
        [None, None, Some(1_500_000), Some(125_000), None],
    ),
    // Dynamo: the request's receipt is an instant.
    (
        r#""nvext":{"timing":{"request_received_ms":1790000000000,"prefill_wait_time_ms":4,"prefill_time_ms":20.5,"ttft_ms":26,"total_time_ms":300}}"#,
        [Some(4_000), Some(20_500), None, Some(26_000), Some(300_000)],
    ),
    // llama.cpp: no queue, no TTFT.
    (
        r#""timings":{"cache_n":9,"prompt_n":1,"prompt_ms":8.5,"prompt_per_token_ms":8.5,"predicted_n":3,"predicted_ms":400.25}"#,
        [None, Some(8_500), Some(400_250), None, None],
    ),
    // GPUStack.
    (
        r#""usage":{"time_to_first_token_ms":38.5,"time_per_output_token_ms":16.5}"#,
        [None, None, None, Some(38_500), None],
    ),
    // mistral.rs.
    (
        r#""usage":{"total_time_sec":2.75,"total_prompt_time_sec":1.25,"total_completion_time_sec":1.5,"avg_tok_per_sec":20}"#,
        [None, Some(1_250_000), Some(1_500_000), None, Some(2_750_000)],
    ),
    // Novita: when it was said is an instant.
    (r#""sla_metrics":{"ttft_ms":274,"ts_us":1790000000000000}"#, [None, None, None, Some(274_000), None]),
];

#[test]
fn a_chat_completion_says_it_in_the_providers_own_words() {
    for (fields, expected) in CHAT {
        let plain = format!("{{\"object\":\"chat.completion\",\"choices\":[],{fields}}}");
        assert_eq!(reported(Dialect::OpenAiChat, "application/json", &plain), us(expected), "{fields}");
        let stream = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}\n\n\
             data: {{\"choices\":[],{fields}}}\n\ndata: [DONE]\n\n"
        );
        assert_eq!(reported(Dialect::OpenAiChat, "text/event-stream", &stream), us(expected), "{fields}");
    }
}

#[test]
fn a_ttft_behind_a_queue_that_is_not_said_is_marked() {
    let fields = r#""metrics":{"time_to_first_token_ms":85.5,"queue_time_ms":null}"#;
    let plain = format!("{{\"object\":\"chat.completion\",\"choices\":[],{fields}}}");
    let expected = Reported { ttft_behind_queue: true, ..us([None, None, None, Some(85_500), None]) };
    assert_eq!(reported(Dialect::OpenAiChat, "application/json", &plain), expected);
}

#[test]
fn what_every_chunk_says_counts_as_the_last_one_says_it() {
    let chunk = |ttft: u64, at: u64| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}}}}],\
             \"sla_metrics\":{{\"ttft_ms\":{ttft},\"ts_us\":{at}}}}}\n\n"
        )
    };
    let stream: String = [(274, 1), (274, 2), (275, 3), (275, 4)].map(|(ttft, at)| chunk(ttft, at)).concat();
    assert_eq!(
        reported(Dialect::OpenAiChat, "text/event-stream", &stream),
        us([None, None, None, Some(275_000), None])
    );
}

#[test]
fn a_response_and_converse_say_it_where_their_usage_is() {
    let vllm = r#""metrics":{"time_to_first_token_ms":85.5,"queue_time_ms":12.25,"generation_time_ms":1240.5}"#;
    let expected = us([Some(12_250), None, Some(1_240_500), Some(97_750), None]);
    let whole = "\"created_at\":1790000000,\"completed_at\":1790000009,\"status\":\"completed\"";
    let plain = format!("{{\"object\":\"response\",{whole},{vllm}}}");
    assert_eq!(reported(Dialect::OpenAiResponses, "application/json", &plain), expected);
    let stream = format!("data: {{\"type\":\"response.completed\",\"response\":{{{whole},{vllm}}}}}\n\n");
    assert_eq!(reported(Dialect::OpenAiResponses, "text/event-stream", &stream), expected);
    let without = format!("{{\"object\":\"response\",{whole}}}");
    assert_eq!(reported(Dialect::OpenAiResponses, "application/json", &without), Reported::default());

    let converse = r#"{"output":{},"stopReason":"end_turn","usage":{"inputTokens":1},"metrics":{"latencyMs":257}}"#;
    let expected = us([None, None, None, None, Some(257_000)]);
    assert_eq!(reported(Dialect::BedrockConverse, "application/json", converse), expected);
}
