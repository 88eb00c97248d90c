//! Each stage carries its scripted cause, and nothing else does. Whatever happens, the stages add up to the wall time.

mod failures;
mod http2;
mod random;

use streamgauge::observation::{Limit, Outcome};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chat_role, chunk, ms, stages,
    tls::{accept_tls, speak_tls},
    whole_ms,
};

/// A plain request with a body of this many bytes, of which none is there yet.
fn head_of(length: usize) -> String {
    format!("POST /v1/files HTTP/1.1\r\nHost: gauge.test\r\nContent-Length: {length}\r\n\r\n")
}

const NO_BODY: &str = "GET /v1/models HTTP/1.1\r\nHost: gauge.test\r\n\r\n";
const PLAIN: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nnull";

/// Answers with a stream: 250 ms of thinking, 100 ms of generation, 30 ms to the end.
async fn stream(up: &mut Peer) {
    up.send(SSE_HEAD).await;
    up.send(chunk(&chat_role())).await;
    sleep(ms(250)).await;
    up.send(chunk(&chat_delta("Hello"))).await;
    sleep(ms(100)).await;
    up.send(chunk(&chat_delta(" world"))).await;
    sleep(ms(30)).await;
    up.send(chunk(&chat_end(7, 2))).await;
    up.send(LAST_CHUNK).await;
}

const STREAMED: [(&str, u64); 3] = [("first_output_wait", 250), ("generation", 100), ("tail", 30)];

fn before(causes: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    causes.iter().copied().chain(STREAMED).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_generates_and_tails_off() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    stream(&mut up).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!(stages(&record), STREAMED);
    assert_eq!(whole_ms(record.overhead_request().unwrap()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_is_waited_for_to_its_first_byte_and_generated_to_its_end() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(NO_BODY).await;
    sleep(ms(70)).await;
    up.send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await;
    sleep(ms(20)).await;
    up.send("nu").await;
    sleep(ms(50)).await;
    up.send("ll").await;
    client.read_to("null").await;
    assert_eq!(stages(&world.record().await), [("first_output_wait", 90), ("generation", 50)]);
}

#[tokio::test(start_paused = true)]
async fn dialling_is_told_phase_by_phase() {
    let mut world =
        World::new(WorldOptions { dns: Some(ms(40)), tcp: ms(30), upstream: speak_tls, ..WorldOptions::default() });
    let mut client = world.client();
    client.send(chat_request("m")).await;
    let up = world.upstream().await;
    sleep(ms(60)).await;
    let mut up = accept_tls(up).await;
    up.read_to("[]}").await;
    stream(&mut up).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!(stages(&record), before(&[("dns", 40), ("tcp", 30), ("tls", 60)]));
    assert_eq!(record.overhead_request().map(whole_ms), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_slowly_is_receive_but_for_what_the_dial_covers() {
    let mut world = World::new(WorldOptions { dns: Some(ms(40)), ..WorldOptions::default() });
    let mut client = world.client();
    let request = chat_request("m");
    let (first, second) = request.split_at(request.len() - 10);
    client.send(first).await;
    sleep(ms(300)).await;
    client.send(second).await;
    let mut up = world.upstream().await;
    up.read_to("[]}").await;
    stream(&mut up).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!(stages(&record), before(&[("dns", 40), ("receive", 260)]));
    assert_eq!(record.overhead_request().map(whole_ms), Some(0));
    assert_eq!(record.timeline.ttft().map(whole_ms), Some(250));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_read_is_upload() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let mut client = world.client();
    let body = "x".repeat(100_000);
    let (mut up, ()) = tokio::join!(
        async {
            let mut up = world.upstream().await;
            sleep(ms(500)).await;
            up.head().await;
            up.read(body.len()).await;
            up
        },
        client.send(head_of(body.len()) + &body),
    );
    up.send(PLAIN).await;
    client.read_to("null").await;
    let record = world.record().await;
    assert_eq!(stages(&record), [("upload", 500)]);
    assert_eq!(record.timeline.waits.upstream, ms(500).into());
    assert_eq!(record.timeline.waits.upstream_stalls, 1);
    assert_eq!(record.overhead_request().map(whole_ms), Some(0));
    assert!(!record.flags.early_response);
}

#[tokio::test(start_paused = true)]
async fn upload_and_receive_are_told_apart_when_both_are_slow() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let (mut client, mut up) = world.asked(head_of(10_000)).await;
    // 100 ms the client is slow, then the upstream's pipe is full for 200 ms. The last bytes come 50 ms into that and
    // are looked at when it is over: they had arrived before.
    sleep(ms(100)).await;
    client.send("x".repeat(6_000)).await;
    sleep(ms(50)).await;
    client.send("x".repeat(4_000)).await;
    sleep(ms(150)).await;
    up.read(10_000).await;
    up.send(PLAIN).await;
    client.read_to("null").await;
    let record = world.record().await;
    assert_eq!(stages(&record), [("upload", 200), ("receive", 100)]);
    assert_eq!(record.timeline.request_end.map(|end| whole_ms(end.since(record.timeline.request_head))), Some(150));
    assert_eq!(record.timeline.waits.upload_before_request_end, ms(50).into());
    assert_eq!(record.overhead_request().map(whole_ms), Some(0));
}

#[tokio::test(start_paused = true)]
async fn an_awaited_100_is_upload_and_the_body_behind_it_receive() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) =
        world.asked("POST /v1/files HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    sleep(ms(200)).await;
    up.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 100 "));
    sleep(ms(300)).await;
    client.send("true").await;
    up.read_to("true").await;
    sleep(ms(20)).await;
    up.send(PLAIN).await;
    client.read_to("null").await;
    let record = world.record().await;
    assert_eq!(stages(&record), [("upload", 200), ("receive", 300), ("first_output_wait", 20)]);
    assert!(!record.flags.early_response);
}

#[tokio::test(start_paused = true)]
async fn a_100_that_never_came_was_awaited_to_the_answer() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) =
        world.asked("POST /v1/files HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    sleep(ms(200)).await;
    up.send("HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 417 "));
    let record = world.record().await;
    // The departure is the head's: the body never left. So the wait lies behind it and in front of the answer.
    assert!(record.flags.early_response);
    assert_eq!(record.outcome, Outcome::Upstream4xx);
    assert_eq!(stages(&record), [("first_output_wait", 200)]);
}

#[tokio::test(start_paused = true)]
async fn a_busy_pool_is_pool_wait_for_the_one_who_waits() {
    let mut world = World::new(WorldOptions {
        upstream: |upstream| upstream.limits.max_connections = Some(1),
        ..WorldOptions::default()
    });
    let (mut first, mut second) = (world.client(), world.client());
    first.send(NO_BODY).await;
    let mut up = world.upstream().await;
    up.head().await;
    second.send(chat_request("m")).await;
    sleep(ms(200)).await;
    up.send(PLAIN).await;
    up.read_to("[]}").await;
    stream(&mut up).await;
    second.read_to(LAST_CHUNK).await;
    assert_eq!(stages(&world.record().await), [("first_output_wait", 200)]);
    let waited = world.record().await;
    assert_eq!(stages(&waited), before(&[("pool_wait", 200)]));
    assert_eq!(waited.connection.reused, Some(true));
    assert_eq!(waited.overhead_request().map(whole_ms), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_the_end_is_client_stall() {
    for streams in [true, false] {
        let mut world = World::new(WorldOptions { pipe: 1024, ..WorldOptions::default() });
        let mut client = world.client();
        client.send(if streams { chat_request("m") } else { NO_BODY.to_owned() }).await;
        let mut up = world.upstream().await;
        up.head().await;
        let long = "x".repeat(3_000);
        let (reply, end) = if streams {
            (format!("{SSE_HEAD}{}{}{LAST_CHUNK}", chunk(&chat_delta(&long)), chunk(&chat_end(1, 1))), LAST_CHUNK)
        } else {
            (format!("HTTP/1.1 200 OK\r\ncontent-length: 3004\r\n\r\n{long}null"), "null")
        };
        tokio::join!(up.send(reply), async {
            sleep(ms(400)).await;
            client.read_to(end).await;
        });
        let record = world.record().await;
        assert_eq!(record.outcome, Outcome::Complete);
        assert_eq!(stages(&record), [("client_stall", 400)], "streams: {streams}");
        assert_eq!(record.timeline.waits.client_stalls, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_on_a_fresh_connection_where_the_old_one_has_died_has_one_attempt() {
    let mut world = World::new(WorldOptions { tcp: ms(30), ..WorldOptions::default() });
    let (mut client, mut up) = world.asked(NO_BODY).await;
    up.send(PLAIN).await;
    client.read_to("null").await;
    world.record().await;
    client.send(NO_BODY).await;
    drop(up);
    let mut up = world.upstream().await;
    up.head().await;
    up.send(PLAIN).await;
    client.read_to("null").await;
    let record = world.record().await;
    assert_eq!((record.attempts, record.flags.retried, record.connection.reused), (1, false, Some(false)));
    assert_eq!(stages(&record), [("tcp", 30)]);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_head_has_waited_for_the_provider() {
    let mut world = World::new(WorldOptions::default());
    let (client, mut up) = world.asked(chat_request("m")).await;
    sleep(ms(300)).await;
    drop(client);
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::ClientGone);
    assert_eq!(stages(&record), [("first_output_wait", 300)]);
    assert!(up.rest().await.is_empty(), "the upstream is let go at once");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_amid_a_stream_leaves_a_tail() {
    let mut world = World::new(WorldOptions::default());
    let (client, mut up) = world.asked(chat_request("m")).await;
    up.send(SSE_HEAD).await;
    sleep(ms(40)).await;
    up.send(chunk(&chat_delta("a"))).await;
    sleep(ms(60)).await;
    up.send(chunk(&chat_delta("b"))).await;
    sleep(ms(80)).await;
    drop(client);
    let record = world.record().await;
    assert_eq!(stages(&record), [("first_output_wait", 40), ("generation", 60), ("tail", 80)]);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_breaks_off_was_waited_for() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, up) = world.asked(NO_BODY).await;
    sleep(ms(200)).await;
    drop(up);
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::UpstreamReset);
    assert_eq!(stages(&record), [("first_output_wait", 200)]);
}

#[tokio::test(start_paused = true)]
async fn a_dial_that_hangs_carries_its_limit() {
    let mut world = World::new(WorldOptions {
        dns: Some(ms(40)),
        tcp: ms(60_000),
        upstream: |upstream| upstream.limits.connect = ms(500),
        ..WorldOptions::default()
    });
    let mut client = world.client();
    client.send(NO_BODY).await;
    assert!(client.head().await.starts_with("HTTP/1.1 504 "));
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::Unreachable, Some(Limit::Connect)));
    assert_eq!(stages(&record), [("dns", 40), ("tcp", 460)]);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_hangs_carries_its_limit_and_a_client_that_leaves_it_its_wait() {
    for leaves in [false, true] {
        let mut world = World::new(WorldOptions {
            dns: Some(ms(40)),
            tcp: ms(30),
            upstream: |upstream| {
                speak_tls(upstream);
                upstream.limits.connect = ms(500);
            },
            ..WorldOptions::default()
        });
        let mut client = world.client();
        client.send(NO_BODY).await;
        let up = world.upstream().await;
        let outcome = if leaves {
            sleep(ms(100)).await;
            drop(client);
            Outcome::ClientGone
        } else {
            assert!(client.head().await.starts_with("HTTP/1.1 504 "));
            Outcome::Unreachable
        };
        let record = world.record().await;
        assert_eq!(record.outcome, outcome);
        assert_eq!(stages(&record), [("dns", 40), ("tcp", 30), ("tls", if leaves { 100 } else { 430 })]);
        drop(up);
    }
}
