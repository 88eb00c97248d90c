//! The times it tells of itself, against its log.

use serde_json::Value;

use super::*;

/// Asks, and reads the JSON of every event, or of the whole answer.
async fn told(client: &mut Client, ask: &Ask) -> (Answer, Vec<Value>) {
    let mut body = Vec::new();
    let answer = client.ask_with(ask, |piece| body.extend_from_slice(piece)).await;
    let text = String::from_utf8(body).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).ok());
    (answer, lines.collect())
}

/// Seconds at this pointer, in the only event that has it, as nanoseconds.
fn nanos(events: &[Value], pointer: &str) -> u64 {
    let found: Vec<f64> = events.iter().filter_map(|event| event.pointer(pointer)?.as_f64()).collect();
    assert_eq!(found.len(), 1, "{pointer}: {found:?}");
    let nanos = Duration::from_secs_f64(found[0]).as_nanos();
    u64::try_from(nanos).unwrap()
}

#[tokio::test]
async fn a_queue_is_told_apart_from_the_prompt() {
    let bench = Bench::start(Profile { concurrency: Some(1), reports: Reports::Cerebras, ..quick() });
    let headers = [("x-sim-stall", "0@100ms")];
    let asks: Vec<_> = (0..3).map(|_| (bench.client(), bench.ask(Protocol::Chat, &headers))).collect();
    let asks = asks.into_iter().map(|(mut client, ask)| tokio::spawn(async move { told(&mut client, &ask).await }));
    let mut answers = Vec::new();
    for ask in asks.collect::<Vec<_>>() {
        answers.push(ask.await.unwrap());
    }
    let truth = bench.truth().await;
    let mut queued = 0;
    for (answer, events) in &answers {
        assert_eq!(answer.ending, Ending::Complete);
        let number: u64 = answer.headers["x-sim-request"].to_str().unwrap().parse().unwrap();
        let truth = truth.iter().find(|truth| truth.request == number).unwrap();
        let time = |name: &str| nanos(events, &format!("/time_info/{name}"));
        let (start, end) = (truth.start_ns.unwrap(), truth.request_end_ns);
        assert_eq!(time("queue_time"), start - end);
        // An event is handed over after it was due, and leaves after it was handed over.
        let first = *truth.output_events.first().unwrap() as usize;
        let last = *truth.output_events.last().unwrap() as usize;
        let within = |span: u64, event: usize| (truth.due_ns[event]..=truth.left_ns[event]).contains(&(start + span));
        assert!(within(time("prompt_time"), first) && time("prompt_time") >= 105_000_000, "{truth:?} {events:?}");
        assert!(within(time("prompt_time") + time("completion_time"), last), "{truth:?} {events:?}");
        assert!(time("total_time") >= time("queue_time") + time("prompt_time") + time("completion_time"));
        queued += usize::from(start > end);
    }
    assert!(queued > 0, "one slot, three requests");
}

#[tokio::test]
async fn a_plain_answer_tells_them_too() {
    let bench = Bench::start(Profile { reports: Reports::Groq, ..quick() });
    let ask = Ask { stream: false, ..bench.ask(Protocol::Chat, &[]) };
    let (_, events) = told(&mut bench.client(), &ask).await;
    let time = |name: &str| nanos(&events, &format!("/usage/{name}"));
    let truth = bench.truth().await.remove(0);
    assert_eq!(time("queue_time"), 0);
    assert!(time("prompt_time") >= 5_000_000, "the first token");
    let all = truth.request_end_ns + time("prompt_time") + time("completion_time");
    assert!((truth.due_ns[0]..=truth.left_ns[0]).contains(&all), "the last one: {all} {truth:?}");
    assert_eq!(time("total_time"), time("prompt_time") + time("completion_time"));
}

#[tokio::test]
async fn a_head_tells_what_it_knows_where_a_body_does_not() {
    let bench = Bench::start(quick());
    let mut client = bench.client();
    for (protocol, reports, expected) in [
        (Protocol::Chat, "headers", Some("openai-processing-ms")),
        (Protocol::Responses, "groq", Some("openai-processing-ms")),
        (Protocol::Messages, "vllm", Some("server-timing")),
        (Protocol::Chat, "groq", None),
        (Protocol::Responses, "vllm", None),
        (Protocol::Messages, "none", None),
    ] {
        let ask = Ask { stream: false, ..bench.ask(protocol, &[("x-sim-reports", reports)]) };
        let answer = client.ask(&ask).await;
        let found =
            ["openai-processing-ms", "server-timing"].into_iter().find(|name| answer.headers.contains_key(*name));
        assert_eq!(found, expected, "{protocol:?} {reports}");
        let Some(name) = found else { continue };
        let value = answer.headers[name].to_str().unwrap();
        let millis: u64 = value.strip_prefix("x-originResponse;dur=").unwrap_or(value).parse().unwrap();
        assert!(millis >= 14, "all of the answer, which takes 14.5 ms: {value}");
    }
    bench.sim.stop().await.unwrap();
}
