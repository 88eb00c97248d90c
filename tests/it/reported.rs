//! What a provider says of itself, from the wire into record and metrics.

use serde_json::Value;
use streamgauge::{
    access_log::record_json,
    clock::Nanos,
    observation::{Observation, Outcome},
};
use tokio::time::sleep;

use crate::support::{LAST_CHUNK, World, WorldOptions, chat_delta, chat_request, chat_role, chunk, ms, of_pair, value};

/// Answers one request with this head and these chunks, 50 ms before each.
async fn answer(world: &mut World, head: &str, chunks: &[String]) -> Observation {
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    up.send(format!("HTTP/1.1 200 OK\r\n{head}transfer-encoding: chunked\r\n\r\n")).await;
    for piece in chunks {
        sleep(ms(50)).await;
        up.send(chunk(piece)).await;
    }
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    world.record().await
}

fn stream_of(end: &str) -> [String; 4] {
    [chat_role(), chat_delta("Hello"), chat_delta(" again"), format!("data: {end}\n\ndata: [DONE]\n\n")]
}

fn json(record: &Observation) -> Value {
    serde_json::from_str(&record_json(record)).expect("a record")
}

const SSE: &str = "content-type: text/event-stream\r\n";

#[tokio::test(start_paused = true)]
async fn a_stream_that_times_itself_is_paired_with_what_was_seen() {
    let mut world = World::new(WorldOptions::default());
    let end = "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"x_groq\":{\"usage\":{\
               \"queue_time\":0.015625,\"prompt_time\":0.0625,\"completion_time\":0.25,\"total_time\":0.3125,\
               \"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}}";
    let head = format!(
        "{SSE}x-ratelimit-limit-requests: 14400\r\nx-ratelimit-remaining-requests: 14399\r\n\
         x-ratelimit-reset-requests: 6s\r\nx-ratelimit-remaining-tokens: 17991\r\nretry-after: 3\r\n"
    );
    let record = answer(&mut world, &head, &stream_of(end)).await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(record.timeline.ttft(), Some(ms(100).into()));
    assert_eq!(record.facts.reported.ttft, Some(Nanos(78_125_000)));
    assert_eq!(record.outside_server(), Some(Nanos(21_875_000)));

    let json = json(&record);
    let said = r#"{"queue":0.015625,"prefill":0.0625,"decode":0.25,"ttft":0.078125,"total":0.3125}"#;
    assert_eq!(json["server_reported_s"], serde_json::from_str::<Value>(said).expect("JSON"));
    let limits = r#"{"requests":{"limit":14400,"remaining":14399,"reset_s":6.0},"tokens":{"remaining":17991}}"#;
    assert_eq!(json["rate_limits"], serde_json::from_str::<Value>(limits).expect("JSON"));

    let scrape = world.scrape();
    let sum = |family: &str, label: &str| of_pair(&scrape, &format!("{family}_sum"), label);
    let phases = ["queue", "prefill", "decode", "ttft", "total"];
    let spans = phases.map(|phase| sum("server_reported_seconds", &format!("phase=\"{phase}\"")));
    assert_eq!(spans, [0.015_625, 0.0625, 0.25, 0.078_125, 0.3125].map(Some));
    assert_eq!(sum("paired_ttft_seconds", "side=\"gateway\""), Some(0.1));
    assert_eq!(sum("paired_ttft_seconds", "side=\"server\""), Some(0.078_125));
    assert_eq!(of_pair(&scrape, "ratelimit_limit", "kind=\"requests\""), Some(14_400.0));
    assert_eq!(of_pair(&scrape, "ratelimit_remaining", "kind=\"requests\""), Some(14_399.0));
    assert_eq!(of_pair(&scrape, "ratelimit_remaining", "kind=\"tokens\""), Some(17_991.0));
    assert_eq!(of_pair(&scrape, "ratelimit_limit", "kind=\"tokens\""), None);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_streams_head_tells_of_itself_and_is_paired_with_nothing() {
    let mut world = World::new(WorldOptions::default());
    let head = format!("{SSE}openai-processing-ms: 64\r\nx-envoy-upstream-service-time: 70\r\n");
    let end = "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";
    let record = answer(&mut world, &head, &stream_of(end)).await;
    assert_eq!(record.outside_server(), None);
    let json = json(&record);
    assert_eq!(json["server_reported_s"], serde_json::json!({"ttft": 0.064}), "no total: it was not over");
    assert_eq!(json["flags"], serde_json::json!(["server_ttft_of_head"]));
    let scrape = world.scrape();
    assert_eq!(of_pair(&scrape, "server_reported_seconds_sum", "phase=\"ttft\""), Some(0.064));
    assert!(!scrape.contains("paired_ttft_seconds"));
}

#[tokio::test(start_paused = true)]
async fn a_plain_answers_head_tells_of_all_of_it() {
    let mut world = World::new(WorldOptions::default());
    let head = "content-type: application/json\r\nx-compute-type: gpu\r\nx-compute-time: 0.5\r\nx-queue-time: 4\r\n\
                x-prompt-tokens: 16\r\nx-generated-tokens: 3\r\n";
    let record = answer(&mut world, head, &["{\"choices\":[]}".to_owned()]).await;
    let json = json(&record);
    assert_eq!(json["server_reported_s"], serde_json::json!({"queue": 0.004, "total": 0.5}));
    assert_eq!((&json["input_tokens"], &json["output_tokens"]), (&16.into(), &3.into()));
    assert_eq!(json["usage_raw"], serde_json::json!({"x-prompt-tokens": 16, "x-generated-tokens": 3}));
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_has_no_times_no_limits_and_no_zeros() {
    let mut world = World::new(WorldOptions::default());
    let end = "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";
    let record = answer(&mut world, SSE, &stream_of(end)).await;
    let json = json(&record);
    assert_eq!((json.get("server_reported_s"), json.get("rate_limits")), (None, None));
    let scrape = world.scrape();
    for family in ["server_reported", "paired_ttft", "ratelimit"] {
        assert!(!scrape.contains(family), "{family}");
    }
}

#[tokio::test(start_paused = true)]
async fn asking_to_come_back_later_is_no_failure_of_an_answer() {
    for later in ["retry-after: 2\r\n", "retry-after-ms: 0\r\nx-ratelimit-remaining: 0\r\nx-ratelimit: false\r\n"] {
        let mut world = World::new(WorldOptions::default());
        let end = "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";
        let record = answer(&mut world, &format!("{SSE}{later}"), &stream_of(end)).await;
        assert_eq!((record.outcome, record.status), (Outcome::Complete, Some(200)), "{later}");
        let line =
            "requests_total{upstream=\"up\",model=\"m\",endpoint=\"chat\",stream=\"true\",outcome=\"rate_limited\"} ";
        assert_eq!(value(&world.scrape(), line), Some(0.0), "{later}");
    }
}
