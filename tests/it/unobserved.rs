//! `observe = "off"`: passed on and enforced as ever, counted once, and otherwise nowhere to be seen.

use std::collections::BTreeMap;

use http::{Request, Response};
use http_body_util::BodyExt;
use streamgauge::{
    config::{Config, HttpVersion, Matches},
    observation::Outcome,
};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, Live, Peer, SSE_HEAD, World, WorldOptions, assert_same, chat_delta, chat_end, chat_request, chunk,
    http2::{Http2Upstream, fed, http2_client},
    ms, refuses,
};

const COUNTER: &str = "streamgauge_unobserved_requests_total{upstream=\"up\"}";

fn off(config: &mut Config) {
    config.routes[0].observe = false;
}

fn unobserved() -> World {
    World::new(WorldOptions { config: off, ..WorldOptions::default() })
}

/// Every sample of the exposition but the process's own.
fn samples(world: &World) -> BTreeMap<String, String> {
    let scrape = world.scrape();
    let samples =
        scrape.lines().filter(|line| line.starts_with("streamgauge_")).filter_map(|line| line.rsplit_once(' '));
    samples.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// All that `requests` left behind: that many in the one counter. No other sample has moved or come, no record, nothing in
/// flight, nothing among the last exchanges or those that run.
async fn left_only_a_count(world: &mut World, before: &BTreeMap<String, String>, requests: usize) {
    sleep(ms(1)).await;
    let mut wanted = before.clone();
    let counted: usize = wanted[COUNTER].parse().unwrap();
    wanted.insert(COUNTER.to_owned(), (counted + requests).to_string());
    assert_eq!(samples(world), wanted);
    world.assert_no_record();
    assert!(world.recorder.running().is_empty());
    assert_eq!(world.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_as_they_come_and_only_a_count_remains() {
    let mut world = unobserved();
    let [first, rest] = [chat_delta("Hi"), chat_delta(" you") + &chat_end(7, 2)].map(|text| chunk(&text));
    let chat = chat_request("m").replace("gauge.test", "127.0.0.1:80");
    let get = |method: &str| format!("{method} /v1/models HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n");
    let put = "PUT /f HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for (request, response) in [
        (chat.clone(), [SSE_HEAD, &first, &rest, LAST_CHUNK]),
        (
            chat,
            [
                "HTTP/1.1 429 Too Many Requests\r\nX-RateLimit-Limit-Requests: 7\r\nContent-Length: 2\r\n\r\n",
                "{",
                "}",
                "",
            ],
        ),
        (get("GET"), ["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", "\0\x01", "ab", "c"]),
        (get("HEAD"), ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "", "", ""]),
        (get("GET"), ["HTTP/1.1 204 No Content\r\n\r\n", "", "", ""]),
        (put.to_owned(), ["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", "", ""]),
    ] {
        let before = samples(&world);
        let mut client = world.client();
        client.send(&request).await;
        let mut up = world.upstream().await;
        assert_same(&up.read(request.len()).await, request.as_bytes());
        up.assert_silent().await;
        for piece in response {
            sleep(ms(100)).await;
            let now = world.clock.now();
            up.send(piece).await;
            assert_same(&client.read(piece.len()).await, piece.as_bytes());
            assert_eq!(world.clock.now(), now, "nothing waits");
        }
        client.assert_silent().await;
        left_only_a_count(&mut world, &before, 1).await;
        drop(up);
        sleep(ms(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn connections_are_kept_on_both_sides_and_a_dead_one_is_replaced() {
    let mut world = unobserved();
    let before = samples(&world);
    let get = "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let mut client = world.client();
    client.send(get).await;
    let mut up = world.upstream().await;
    for _ in 0..2 {
        assert_eq!(up.head().await, get);
        up.send(answer).await;
        assert_eq!(client.read(answer.len()).await, answer.as_bytes());
        sleep(ms(1)).await;
        assert!(!world.has_dialled());
        client.send(get).await;
    }
    // It takes the third and dies without an answer: that one was taken, and is not sent again.
    assert_eq!(up.head().await, get);
    drop(up);
    assert!(client.head().await.contains("x-streamgauge-error: upstream_reset"));
    client.read_to("}").await;
    left_only_a_count(&mut world, &before, 3).await;
}

#[tokio::test(start_paused = true)]
async fn limits_are_kept_and_ends_look_like_what_they_are() {
    fn limited(config: &mut Config) {
        off(config);
        config.limits.max_request_body = Some(4);
        config.limits.max_in_flight = Some(1);
    }
    let upstream = |upstream: &mut streamgauge::config::Upstream| {
        upstream.limits.head = Some(ms(300));
        upstream.limits.idle = Some(ms(200));
    };
    let mut world = World::new(WorldOptions { config: limited, upstream, ..WorldOptions::default() });
    let before = samples(&world);
    let get = "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    let own = async |client: &mut Peer, error: &str| {
        let head = client.head().await;
        assert!(head.contains(&format!("x-streamgauge-error: {error}\r\n")), "{head}");
    };

    // One is in flight; another one is refused meanwhile.
    let (mut client, mut up) = world.asked(get).await;
    assert_eq!(world.in_flight(), 1);
    let mut second = world.client();
    second.send(get).await;
    own(&mut second, "overloaded").await;
    sleep(ms(1)).await;
    assert_eq!(world.in_flight(), 1);
    // The first goes silent behind its first event, and is cut.
    up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
    client.read_to("\"a\"").await;
    assert!(!client.rest().await.ends_with(LAST_CHUNK.as_bytes()), "an abort");
    up.assert_closed().await;

    // No head in time, and a body too large.
    let (mut client, _up) = world.asked(get).await;
    own(&mut client, "upstream_timeout").await;
    let mut client = world.client();
    client.send("POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n").await;
    let _up = world.upstream().await;
    own(&mut client, "request_too_large").await;

    // The client leaves, and the upstream's request ends.
    let (client, mut up) = world.asked(get).await;
    drop(client);
    up.assert_closed().await;
    // The upstream breaks off amid the body.
    let (mut client, mut up) = world.asked(get).await;
    up.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").await;
    drop(up);
    assert!(client.rest().await.ends_with(b"\r\n\r\nabc"));
    left_only_a_count(&mut world, &before, 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_carries_bytes_and_is_not_read() {
    let mut world = unobserved();
    let before = samples(&world);
    let request = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: 127.0.0.1:80\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let mut client = world.client();
    client.send(request).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, request);
    up.send(switch).await;
    assert_eq!(client.head().await, switch);
    client.send(b"\x81\x85\x01\x02\x03\x04hello").await;
    assert_eq!(up.read(11).await, b"\x81\x85\x01\x02\x03\x04hello");
    up.send(b"\x81\x02{}").await;
    assert_eq!(client.read(4).await, b"\x81\x02{}");
    assert_eq!(world.in_flight(), 1);
    client.shutdown().await;
    up.assert_closed().await;
    up.shutdown().await;
    client.assert_closed().await;
    left_only_a_count(&mut world, &before, 1).await;
}

#[tokio::test(start_paused = true)]
async fn streams_of_http2_pass_and_a_reset_stays_one() {
    let upstream = |upstream: &mut streamgauge::config::Upstream| upstream.http = HttpVersion::Http2;
    let mut world = World::new(WorldOptions { config: off, upstream, ..WorldOptions::default() });
    let before = samples(&world);
    let mut client = http2_client(world.client()).await;
    let ask = |client: &mut hyper::client::conn::http2::SendRequest<_>| {
        let (_, body) = fed();
        client.send_request(Request::post("http://gauge.test/v1/chat/completions").body(body).unwrap())
    };
    let whole = ask(&mut client);
    let mut up = Http2Upstream::new(world.upstream().await);
    let asked = up.asked().await;
    let (feed, body) = fed();
    asked.answer.send(Response::new(body)).ok().unwrap();
    feed.send("data: 1\n\n".into()).await.unwrap();
    drop(feed);
    let whole = whole.await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&whole[..], b"data: 1\n\n");

    let cut = ask(&mut client);
    let asked = up.asked().await;
    assert_eq!(world.in_flight(), 1);
    drop(asked.answer);
    assert_eq!(cut.await.unwrap().status(), 502);
    left_only_a_count(&mut world, &before, 2).await;
}

#[tokio::test(start_paused = true)]
async fn other_routes_are_measured_on_the_same_connections() {
    fn both(config: &mut Config) {
        let mut quiet = config.routes[0].clone();
        quiet.matches = Matches::PathPrefix("/quiet".to_owned());
        quiet.observe = false;
        config.routes.insert(0, quiet);
    }
    let mut world = World::new(WorldOptions { config: both, ..WorldOptions::default() });
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let mut client = world.client();
    // Sent in one go: the second does not begin before the first has been answered, measured or not.
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n");
    client.send(ask("/quiet/a") + &ask("/v1/b")).await;
    let mut up = world.upstream().await;
    up.head().await;
    sleep(ms(500)).await;
    up.send(answer).await;
    client.read(answer.len()).await;
    assert!(up.head().await.starts_with("GET /v1/b "));
    sleep(ms(70)).await;
    up.send(answer).await;
    client.read(answer.len()).await;
    let record = world.record().await;
    assert_eq!((record.path.as_deref(), record.outcome), (Some("/v1/b"), Outcome::Complete));
    assert_eq!((record.wall(), record.connection.reused), (ms(70).into(), Some(true)));
    world.assert_no_record();
    assert_eq!(samples(&world)[COUNTER], "1");
}

#[tokio::test]
async fn a_stop_waits_for_what_is_not_measured_too() {
    let gauge = Live::start_with(None, |_| {}, off).await;
    let mut client = gauge.client().await;
    client.send(chat_request("m")).await;
    let mut up = gauge.upstream().await;
    up.read_to("[]}").await;
    up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
    client.read_to("\"a\"").await;
    assert!(gauge.scrape().contains(&format!("{COUNTER} 1\n")));
    gauge.drain();
    refuses(gauge.address).await;
    up.send(format!("{}{LAST_CHUNK}", chunk(&chat_end(1, 1)))).await;
    client.read_to(LAST_CHUNK).await;
    gauge.finish().await;
}
