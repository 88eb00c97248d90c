//! Upgrades: after a 101 bytes go both ways untouched until both sides have ended.

use streamgauge::{
    dialect::Endpoint,
    observation::{Observation, Outcome},
};
use tokio::time::sleep;

use crate::support::{LAST_CHUNK, Peer, World, WorldOptions, chunk, ms};

const REQUEST: &str = "GET /v1/realtime?model=m HTTP/1.1\r\n\
     Host: 127.0.0.1:80\r\n\
     Upgrade: websocket\r\n\
     Connection: Upgrade\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
     Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.sk-1\r\n\
     Sec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\n\
     Upgrade: websocket\r\n\
     Connection: Upgrade\r\n\
     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
     Sec-WebSocket-Protocol: realtime\r\n\r\n";

/// Bytes that are no text and no HTTP.
const UP: &[u8] = b"\x81\x85\x01\x02\x03\x04hello\0\xff";
const DOWN: &[u8] = b"\x82\x7e\x00\x03\xff\xfe\xfdHTTP/1.1 200 OK\r\n\r\n";

async fn upgraded(world: &mut World) -> (Peer, Peer) {
    let mut client = world.client();
    client.send(REQUEST).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, REQUEST);
    up.send(SWITCH).await;
    assert_eq!(client.head().await, SWITCH);
    (client, up)
}

async fn ended(world: &mut World, outcome: Outcome) -> Observation {
    let record = world.record().await;
    assert_eq!((record.outcome, record.status, record.endpoint), (outcome, Some(101), Endpoint::Tunnel));
    assert!(!record.stream);
    assert_eq!((record.timeline.ttft(), record.timeline.first_output), (None, None));
    assert_eq!(world.in_flight(), 0);
    world.assert_no_record();
    record
}

#[tokio::test(start_paused = true)]
async fn bytes_go_both_ways_when_they_come() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = upgraded(&mut world).await;
    for _ in 0..5 {
        sleep(ms(250)).await;
        let before = world.clock.now();
        client.send(UP).await;
        assert_eq!(up.read(UP.len()).await, UP);
        up.send(DOWN).await;
        assert_eq!(client.read(DOWN.len()).await, DOWN);
        assert_eq!(world.clock.now(), before);
    }
    client.shutdown().await;
    up.assert_closed().await;
    up.shutdown().await;
    client.assert_closed().await;
    let record = ended(&mut world, Outcome::Complete).await;
    assert_eq!((record.request_bytes, record.response_bytes), (5 * UP.len() as u64, 5 * DOWN.len() as u64));
    let scrape = world.scrape();
    for (direction, bytes) in [("request", 5 * UP.len()), ("response", 5 * DOWN.len())] {
        let line = format!("direction=\"{direction}\"}} {bytes}");
        assert!(scrape.lines().any(|it| it.starts_with("streamgauge_bytes_total") && it.ends_with(&line)), "{line}");
    }
    assert_eq!(record.wall(), ms(1250).into());
}

#[tokio::test(start_paused = true)]
async fn what_comes_with_the_heads_is_not_lost() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send([REQUEST.as_bytes(), UP].concat()).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, REQUEST);
    up.send([SWITCH.as_bytes(), DOWN].concat()).await;
    assert_eq!(client.read(SWITCH.len() + DOWN.len()).await, [SWITCH.as_bytes(), DOWN].concat());
    assert_eq!(up.read(UP.len()).await, UP);
    drop((client, up));
    world.record().await;
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn megabytes_pass_a_tunnel() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let (mut client, mut up) = upgraded(&mut world).await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
    let (came, ()) = tokio::join!(up.read(body.len()), client.send(&body));
    assert!(came == body);
    let (came, ()) = tokio::join!(client.read(body.len()), up.send(&body));
    assert!(came == body);
    up.shutdown().await;
    client.assert_closed().await;
    client.shutdown().await;
    let record = ended(&mut world, Outcome::Complete).await;
    assert_eq!((record.request_bytes, record.response_bytes), (3_000_000, 3_000_000));
}

#[tokio::test(start_paused = true)]
async fn each_side_may_end_first_and_still_be_spoken_to() {
    for client_first in [true, false] {
        let mut world = World::new(WorldOptions::default());
        let (client, up) = upgraded(&mut world).await;
        let (mut first, mut second) = if client_first { (client, up) } else { (up, client) };
        first.send("bye").await;
        first.shutdown().await;
        assert_eq!(second.rest().await, b"bye");
        sleep(ms(100)).await;
        second.send("one more thing").await;
        assert_eq!(first.read(14).await, b"one more thing");
        second.shutdown().await;
        first.assert_closed().await;
        let record = ended(&mut world, Outcome::Complete).await;
        assert_eq!(record.wall(), ms(100).into());
        let bytes = if client_first { (3, 14) } else { (14, 3) };
        assert_eq!((record.request_bytes, record.response_bytes), bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_side_that_vanishes_ends_the_tunnel() {
    for client_goes in [true, false] {
        let mut world = World::new(WorldOptions::default());
        let (client, up) = upgraded(&mut world).await;
        let (gone, mut left) = if client_goes { (client, up) } else { (up, client) };
        drop(gone);
        left.assert_closed().await;
        // Its end was seen; what is still said to it finds nobody.
        while left.try_send("anybody?").await.is_ok() {
            tokio::task::yield_now().await;
        }
        let outcome = if client_goes { Outcome::ClientGone } else { Outcome::UpstreamReset };
        ended(&mut world, outcome).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_end_holds_the_other_back() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let (mut client, up) = upgraded(&mut world).await;
    let piece = vec![b'x'; 1000];
    let mut taken = 0;
    while tokio::time::timeout(ms(10_000), client.try_send(&piece)).await.is_ok() {
        taken += piece.len();
        assert!(taken < 200_000, "memory must be bounded");
    }
    drop((client, up));
    world.record().await;
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_upgrade_is_an_ordinary_answer() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send(REQUEST).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, REQUEST);
    let refusal = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 4\r\n\r\nnope";
    up.send(refusal).await;
    assert_eq!(client.read_to("nope").await, refusal);
    let record = world.record().await;
    assert_eq!((record.outcome, record.status), (Outcome::Upstream4xx, Some(401)));
    assert_ne!(record.endpoint, Endpoint::Tunnel);
    // Both connections are as good as before.
    let plain = "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    client.send(plain).await;
    assert_eq!(up.head().await, plain);
    let ok = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}{LAST_CHUNK}", chunk("ok"));
    up.send(&ok).await;
    assert_eq!(client.read_to(LAST_CHUNK).await, ok);
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_switch_nobody_asked_for_is_no_answer() {
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMA\r\n\r\n",
    ] {
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        client.send(request).await;
        let mut up = world.upstream().await;
        assert_eq!(up.head().await, "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n");
        up.send(SWITCH).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
        assert!(head.contains("x-streamgauge-error: upstream_reset\r\n"), "{head}");
        up.assert_closed().await;
        assert_eq!(world.record().await.outcome, Outcome::UpstreamReset);
        world.assert_no_record();
        assert_eq!(world.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_takes_a_connection_that_idles_or_a_fresh_one_and_gives_none_back() {
    let mut world = World::new(WorldOptions::default());
    let mut plain = world.client();
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut first = world.upstream().await;
    first.head().await;
    first.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    plain.read_to("ok").await;
    world.record().await;
    let mut client = world.client();
    client.send(REQUEST).await;
    assert_eq!(first.head().await, REQUEST);
    first.send(SWITCH).await;
    client.head().await;
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut second = world.upstream().await;
    second.head().await;
    second.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    plain.read_to("ok").await;
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    client.shutdown().await;
    first.assert_closed().await;
    first.shutdown().await;
    client.assert_closed().await;
    ended(&mut world, Outcome::Complete).await;
}

#[tokio::test(start_paused = true)]
async fn the_spelling_of_an_upgrade_stays() {
    let request = REQUEST
        .replace("Connection: Upgrade", "connection: keep-alive, x-hop, UPGRADE\r\nX-HOP: 1")
        .replace("Upgrade: websocket", "UPGRADE: WebSocket, h2c");
    let out = REQUEST
        .replace("Connection: Upgrade", "connection: UPGRADE")
        .replace("Upgrade: websocket", "UPGRADE: WebSocket, h2c");
    let switch = SWITCH.replace("Connection: Upgrade", "connection: upgrade");
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send(request).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, out);
    up.send(&switch).await;
    assert_eq!(client.head().await, switch);
    drop((client, up));
    world.record().await;
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}
