//! Bytes leave as soon as they came, and 1xx answers as far as there is a way for them. The paused clock makes every
//! time exact: nothing but the script takes any.

use bytes::Bytes;
use streamgauge::{
    clock::{Nanos, Stamp},
    observation::Outcome,
};
use tokio::time::sleep;

use crate::support::{LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chunk, ms};

const GET: &str = "GET / HTTP/1.1\r\nHost: gauge.test\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// When each of these chunks is read at the other side.
async fn arrivals(world: &World, reader: &mut Peer, pieces: &[&str]) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    for piece in pieces {
        assert_eq!(reader.read_to(&chunk(piece)).await, chunk(piece));
        stamps.push(world.clock.now());
    }
    stamps
}

fn spacing(stamps: &[Stamp]) -> Vec<Nanos> {
    stamps.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

/// Whole events, half events, a lone byte, a comment, the second half of a character.
const PIECES: [&str; 8] =
    ["data: {\"a\":1}\n\n", "data: {\"b\"", ":2}\n", "\n", ": ping\n\n", "d", "ata: ü", "\r\n\r\n"];

#[tokio::test(start_paused = true)]
async fn each_piece_of_a_response_leaves_when_it_came() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    let begin = world.clock.now();
    let speak = async {
        sleep(ms(100)).await;
        up.send(SSE_HEAD).await;
        for piece in PIECES {
            sleep(ms(250)).await;
            up.send(chunk(piece)).await;
        }
        sleep(ms(250)).await;
        up.send(LAST_CHUNK).await;
    };
    let listen = async {
        assert_eq!(client.head().await, SSE_HEAD);
        assert_eq!(world.clock.now().since(begin), ms(100).into(), "the head waits for no body");
        let stamps = arrivals(&world, &mut client, &PIECES).await;
        client.read_to(LAST_CHUNK).await;
        (stamps, world.clock.now())
    };
    let ((), (stamps, end)) = tokio::join!(speak, listen);
    assert_eq!(spacing(&stamps), vec![Nanos::from(ms(250)); PIECES.len() - 1]);
    assert_eq!(stamps[0].since(begin), ms(350).into());
    assert_eq!(end.since(begin), ms(100 + 250 * 9).into());
    let record = world.record().await;
    assert_eq!((record.outcome, record.reads), (Outcome::Complete, PIECES.len() as u64));
    assert_eq!(record.timeline.ttfb(), Some(ms(350).into()));
    assert_eq!(record.timeline.head_back, Some(begin + ms(100).into()));
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn each_piece_of_a_request_leaves_when_it_came() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) =
        world.asked("POST / HTTP/1.1\r\nHost: gauge.test\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let begin = world.clock.now();
    let speak = async {
        for piece in PIECES {
            sleep(ms(250)).await;
            client.send(chunk(piece)).await;
        }
        sleep(ms(250)).await;
        client.send(LAST_CHUNK).await;
    };
    let listen = async {
        let stamps = arrivals(&world, &mut up, &PIECES).await;
        up.read_to(LAST_CHUNK).await;
        stamps
    };
    let ((), stamps) = tokio::join!(speak, listen);
    assert_eq!(spacing(&stamps), vec![Nanos::from(ms(250)); PIECES.len() - 1]);
    assert_eq!(stamps[0].since(begin), ms(250).into());
    up.send(OK).await;
    client.read_to("ok").await;
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(record.timeline.request_end, Some(begin + ms(250 * 9).into()));
    assert_eq!(record.timeline.sent_last, Some(begin + ms(250 * 9).into()));
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn both_ways_flow_at_the_same_time() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) =
        world.asked("POST / HTTP/1.1\r\nHost: gauge.test\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    up.send(SSE_HEAD).await;
    client.head().await;
    for piece in PIECES {
        let before = world.clock.now();
        client.send(chunk(piece)).await;
        up.read_to(&chunk(piece)).await;
        up.send(chunk(piece)).await;
        client.read_to(&chunk(piece)).await;
        assert_eq!(world.clock.now(), before);
        sleep(ms(10)).await;
    }
    client.send(LAST_CHUNK).await;
    up.read_to(LAST_CHUNK).await;
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert!(record.flags.early_response);
    assert_eq!(record.request_bytes, record.response_bytes);
    world.assert_no_record();
}

// === 1xx ===

const EXPECT: &str = "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nExpect: 100-Continue\r\nContent-Length: 4\r\n\r\n";
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_100_reaches_the_client_when_the_upstream_sent_it() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send(EXPECT).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, EXPECT);
    for _ in 0..3 {
        sleep(ms(200)).await;
        client.assert_silent().await;
    }
    let before = world.clock.now();
    up.send("HTTP/1.1 100 Go On\r\nX-A: 1\r\n\r\n").await;
    assert_eq!(client.head().await, CONTINUE);
    assert_eq!(world.clock.now(), before);
    client.send("ping").await;
    assert_eq!(up.read(4).await, b"ping");
    up.send(OK).await;
    assert_eq!(client.read_to("ok").await, OK);
    let record = world.record().await;
    assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, 4));
    assert!(!record.flags.informational_dropped && !record.flags.early_response);
    assert_eq!(record.timeline.waits.upload, ms(603).into(), "the wait for the 100 is the upload's");
    client.assert_silent().await;
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_100_that_never_comes_is_waited_for_one_second() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(EXPECT).await;
    let before = world.clock.now();
    assert_eq!(client.head().await, CONTINUE);
    assert_eq!(world.clock.now().since(before), ms(1000).into());
    client.send("ping").await;
    assert_eq!(up.read(4).await, b"ping");
    up.send(OK).await;
    assert_eq!(client.read_to("ok").await, OK);
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_body_sent_without_waiting_waits_for_the_100_here() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send([EXPECT, "ping"].concat()).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, EXPECT);
    up.assert_silent().await;
    up.send(CONTINUE).await;
    assert_eq!(up.read(4).await, b"ping");
    up.send(OK).await;
    // The library tells even this client to go on.
    assert_eq!(client.read_to("ok").await, [CONTINUE, OK].concat());
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_final_answer_without_a_100_is_all_the_client_gets() {
    let refusal = "HTTP/1.1 417 Expectation Failed\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n";
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(EXPECT).await;
    up.send(refusal).await;
    assert_eq!(client.read(refusal.len()).await, refusal.as_bytes());
    // Longer than the patience with a 100: none may come into the middle of the answer.
    sleep(ms(3000)).await;
    client.assert_silent().await;
    up.send(LAST_CHUNK).await;
    assert_eq!(client.read_to(LAST_CHUNK).await, LAST_CHUNK);
    let record = world.record().await;
    assert_eq!((record.outcome, record.request_bytes), (Outcome::Upstream4xx, 0));
    assert!(record.flags.early_response);
    // A client that keeps its body to itself goes; so does the request that waited for it.
    drop(client);
    up.assert_closed().await;
    assert_eq!(world.in_flight(), 0);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn other_1xx_answers_are_dropped_and_noted() {
    for early in ["103 Early Hints\r\nLink: </a>", "102 Processing", "199 Odd"] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(GET).await;
        up.send(format!("HTTP/1.1 {early}\r\n\r\n")).await;
        sleep(ms(100)).await;
        up.send(format!("HTTP/1.1 {early}\r\n\r\n{OK}")).await;
        assert_eq!(client.read_to("ok").await, OK);
        let record = world.record().await;
        assert_eq!(record.outcome, Outcome::Complete);
        assert!(record.flags.informational_dropped);
        assert_eq!(record.timeline.duration(), Some(ms(100).into()));
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn a_100_nobody_asked_for_changes_nothing() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    up.send([CONTINUE, OK].concat()).await;
    assert_eq!(client.read_to("ok").await, OK);
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert!(!record.flags.informational_dropped);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_read_and_comes_whole() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    let all: String = PIECES.iter().map(|piece| chunk(piece)).collect();
    up.send(Bytes::from([SSE_HEAD, &all, LAST_CHUNK].concat())).await;
    assert_eq!(client.read_to(LAST_CHUNK).await, [SSE_HEAD, &all, LAST_CHUNK].concat());
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
}
