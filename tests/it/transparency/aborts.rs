//! A cut looks like a cut at the other side, at once; a slow side holds the other back instead of filling memory.

use streamgauge::observation::Outcome;
use tokio::time::sleep;

use crate::support::{LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chunk, ms};

const GET: &str = "GET / HTTP/1.1\r\nHost: gauge.test\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: gauge.test\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A request that has reached the upstream.
async fn under_way(world: &mut World, request: &str) -> (Peer, Peer) {
    let mut client = world.client();
    client.send(request).await;
    let mut up = world.upstream().await;
    up.head().await;
    (client, up)
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_cuts_its_body_is_passed_on_as_a_cut() {
    for (head, body, seen) in [
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n", "5\r\nhello\r\n"),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n3\r\nx", "5\r\nhello\r\n1\r\nx\r\n"),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n", "5\r\nhello\r\n"),
        ("Content-Length: 10", "hello", "hello"),
        ("Content-Length: 10", "", ""),
    ] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = under_way(&mut world, GET).await;
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
        up.send([&head, body].concat()).await;
        assert_eq!(client.read_to(&head).await, head);
        drop(up);
        assert_eq!(String::from_utf8(client.rest().await).unwrap(), seen);
        let record = world.record().await;
        assert_eq!((record.outcome, record.status), (Outcome::UpstreamReset, Some(200)), "{body:?}");
        assert_eq!((record.timeline.response_end, record.timeline.delivered), (None, None));
        assert_eq!(world.in_flight(), 0);
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_chunk_is_a_cut() {
    for garbage in ["xyz\r\n", "5\r\nhelloX", "-1\r\n", "fffffffffffffffff\r\n", "5 5\r\n", "5\nhello"] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = under_way(&mut world, GET).await;
        up.send([SSE_HEAD, &chunk("good"), garbage].concat()).await;
        let seen = String::from_utf8(client.rest().await).unwrap();
        assert!(seen.starts_with(&[SSE_HEAD, &chunk("good")].concat()), "{seen:?}");
        assert!(!seen.contains(LAST_CHUNK), "{seen:?}");
        up.assert_closed().await;
        assert_eq!(world.record().await.outcome, Outcome::UpstreamReset, "{garbage:?}");
        assert_eq!(world.in_flight(), 0);
        world.assert_no_record();
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Leaving {
    Closed,
    HalfClosed,
}

/// The client goes; the upstream must see that without any time passing.
async fn leave(world: &mut World, client: Peer, mut up: Peer, how: Leaving) -> streamgauge::observation::Observation {
    let before = world.clock.now();
    let mut kept = None;
    match how {
        Leaving::Closed => drop(client),
        Leaving::HalfClosed => kept.insert(client).shutdown().await,
    }
    up.rest().await;
    let record = world.record().await;
    assert_eq!(world.clock.now(), before, "at once");
    assert_eq!((record.outcome, record.flags.partial), (Outcome::ClientGone, true), "{how:?}");
    assert_eq!((record.timeline.delivered, record.timeline.end), (None, Some(before)));
    assert_eq!(world.in_flight(), 0);
    world.assert_no_record();
    record
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_the_head_ends_the_upstreams_work() {
    for how in [Leaving::Closed, Leaving::HalfClosed] {
        let mut world = World::new(WorldOptions::default());
        let (client, up) = under_way(&mut world, GET).await;
        sleep(ms(500)).await;
        let record = leave(&mut world, client, up, how).await;
        assert_eq!((record.status, record.timeline.head_back), (None, None));
        assert_eq!(record.wall(), ms(500).into());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_the_first_byte_ends_the_upstreams_work() {
    for how in [Leaving::Closed, Leaving::HalfClosed] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = under_way(&mut world, GET).await;
        up.send(SSE_HEAD).await;
        client.head().await;
        sleep(ms(500)).await;
        let record = leave(&mut world, client, up, how).await;
        assert_eq!((record.status, record.timeline.first_byte), (Some(200), None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_the_middle_ends_the_upstreams_work() {
    for how in [Leaving::Closed, Leaving::HalfClosed] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = under_way(&mut world, GET).await;
        up.send([SSE_HEAD, &chunk("data: x\n\n")].concat()).await;
        client.read_to("data: x\n\n\r\n").await;
        sleep(ms(500)).await;
        let record = leave(&mut world, client, up, how).await;
        assert_eq!((record.response_bytes, record.reads), (9, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_it_uploads_does_not_look_finished() {
    for (request, sent) in
        [(POST, "4\r\nping\r\n"), ("POST / HTTP/1.1\r\nHost: gauge.test\r\nContent-Length: 8\r\n\r\n", "ping")]
    {
        for how in [Leaving::Closed, Leaving::HalfClosed] {
            let mut world = World::new(WorldOptions::default());
            let (mut client, mut up) = under_way(&mut world, request).await;
            client.send(sent).await;
            assert_eq!(up.read(sent.len()).await, sent.as_bytes());
            sleep(ms(500)).await;
            let before = world.clock.now();
            if how == Leaving::HalfClosed {
                client.shutdown().await;
                up.assert_closed().await;
            } else {
                drop(client);
                up.assert_closed().await;
            }
            let record = world.record().await;
            assert_eq!(world.clock.now(), before, "at once");
            assert_eq!((record.outcome, record.request_bytes), (Outcome::ClientGone, 4), "{request} {how:?}");
            assert_eq!(record.timeline.request_end, None);
            assert_eq!(world.in_flight(), 0);
            world.assert_no_record();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_its_connection_is_made_stops_the_making() {
    let mut world = World::new(WorldOptions { tcp: ms(1000), ..WorldOptions::default() });
    let mut client = world.client();
    client.send(GET).await;
    sleep(ms(500)).await;
    drop(client);
    let record = world.record().await;
    assert_eq!((record.outcome, record.wall()), (Outcome::ClientGone, ms(500).into()));
    sleep(ms(5000)).await;
    assert!(!world.has_dialled());
    assert_eq!(world.in_flight(), 0);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_holds_the_upstream_back() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let (mut client, mut up) = under_way(&mut world, GET).await;
    up.send(SSE_HEAD).await;
    client.head().await;
    let piece = chunk(&"x".repeat(1000));
    let mut taken = 0;
    let refused = loop {
        // Once the pipes and the buffers between them are full, no byte is taken for as long as the client waits.
        match tokio::time::timeout(ms(10_000), up.try_send(&piece)).await {
            Ok(sent) => sent.expect("the gateway reads"),
            Err(_) => break taken,
        }
        taken += piece.len();
        assert!(taken < 4_000_000, "memory must be bounded");
    };
    assert!(refused < 1_000_000, "{refused} bytes were taken for a client that reads none");
    // What it holds is not lost: the client may go on.
    let seen = client.read(refused).await;
    assert!(seen.starts_with(piece.as_bytes()));
    drop(up);
    client.rest().await;
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::UpstreamReset);
    assert!(record.timeline.waits.client >= ms(10_000).into(), "the stall is the client's");
    assert_eq!(record.timeline.waits.client_stalls, 1);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stalls_and_leaves_ends_the_upstreams_work() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let (mut client, mut up) = under_way(&mut world, GET).await;
    up.send(SSE_HEAD).await;
    client.head().await;
    let piece = chunk(&"x".repeat(1000));
    while tokio::time::timeout(ms(100), up.try_send(&piece)).await.is_ok() {}
    leave(&mut world, client, up, Leaving::Closed).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_upstream_holds_the_client_back() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let (mut client, mut up) = under_way(&mut world, POST).await;
    let piece = chunk(&"x".repeat(1000));
    let mut taken = 0;
    while let Ok(sent) = tokio::time::timeout(ms(10_000), client.try_send(&piece)).await {
        sent.expect("the gateway reads");
        taken += piece.len();
        assert!(taken < 4_000_000, "memory must be bounded");
    }
    assert!(taken < 1_000_000, "{taken} bytes were taken for an upstream that reads none");
    let seen = up.read(taken).await;
    assert!(seen.starts_with(piece.as_bytes()));
    drop(client);
    up.rest().await;
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::ClientGone);
    world.assert_no_record();
}
