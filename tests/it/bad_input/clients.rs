//! What clients get wrong.

use streamgauge::{
    config::Matches,
    observation::{Limit, Outcome},
};

use super::{only_record, own_answer};
use crate::support::{Peer, World, WorldOptions, ms};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A request that never gets as far as an upstream, and what the library answers.
async fn refused(options: WorldOptions, request: impl AsRef<[u8]>, status: &str) {
    let mut world = World::new(options);
    let mut client = world.client();
    // It may have answered and gone before all of it was sent.
    let _ = client.try_send(&request).await;
    let answer = String::from_utf8(client.rest().await).unwrap();
    let shown = String::from_utf8_lossy(&request.as_ref()[..request.as_ref().len().min(200)]).into_owned();
    assert_eq!(answer, format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"), "{shown:?}");
    let record = only_record(&mut world, Outcome::ClientError, status[..3].parse().ok()).await;
    assert_eq!((record.upstream, record.method, record.path), (None, None, None));
    assert!(!world.has_dialled());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_no_http_is_refused() {
    for request in [
        "hello\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/3.0\r\n\r\n",
        "GET / HTTP/1.1 x\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET x HTTP/1.1\r\n/\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nspace : 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: nameless\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nx-a: 1\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nx-a: 1\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nx-a: 1\rx-b: 2\r\n\r\n",
        "\u{16}\u{3}\u{1}\0\u{5}hello\r\n\r\n",
        "GET /<a> HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a>b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a`b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /?\"a\" HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /?<a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /?a> HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        refused(WorldOptions::default(), request, "400 Bad Request").await;
    }
    for request in [&b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"[..], b"GET /?\xc3( HTTP/1.1\r\nHost: a\r\n\r\n"] {
        refused(WorldOptions::default(), request, "400 Bad Request").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unclear_length_is_refused() {
    for framing in [
        "Content-Length: -1",
        "Content-Length: +5",
        "Content-Length: 5 5",
        "Content-Length: 5, 6",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: x",
        "Content-Length: ",
        "Content-Length: 18446744073709551616",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\nhello");
        refused(WorldOptions::default(), request, "400 Bad Request").await;
    }
    let old = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    refused(WorldOptions::default(), old, "400 Bad Request").await;
}

#[tokio::test(start_paused = true)]
async fn a_head_over_a_limit_is_refused() {
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nx-a: {}\r\n\r\n", "x".repeat(70_000));
    refused(WorldOptions::default(), large, "431 Request Header Fields Too Large").await;
    let endless = format!("GET /{}", "x".repeat(70_000));
    refused(WorldOptions::default(), endless, "431 Request Header Fields Too Large").await;
    let many = |count: usize| {
        let headers = (0..count).map(|i| format!("x-{i}: {i}\r\n")).collect::<Vec<_>>().concat();
        format!("GET / HTTP/1.1\r\n{headers}\r\n")
    };
    refused(WorldOptions::default(), many(101), "431 Request Header Fields Too Large").await;
    let few = || WorldOptions { config: |config| config.limits.max_headers = 10, ..WorldOptions::default() };
    refused(few(), many(11), "431 Request Header Fields Too Large").await;
    let roomy = || WorldOptions { config: |config| config.limits.max_head_bytes = 1 << 20, ..WorldOptions::default() };
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(66_000));
    refused(roomy(), long, "414 URI Too Long").await;

    // What is just within them goes through.
    for (options, request) in [(WorldOptions::default(), many(100)), (few(), many(10))] {
        let mut world = World::new(options);
        let mut client = world.client();
        client.send(&request).await;
        let mut up = world.upstream().await;
        assert_eq!(up.head().await.matches(": ").count(), request.matches(": ").count() + 1, "and the host");
        up.send(OK).await;
        client.read_to("ok").await;
        only_record(&mut world, Outcome::Complete, Some(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_framing_are_made_one() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let te = "Transfer-Encoding: chunked\r\n";
    let cl = "Content-Length: 6\r\n";
    for framing in [[te, cl].concat(), [cl, te].concat(), [cl, te, cl].concat()] {
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        let head = format!("POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n{framing}\r\n");
        client.send(format!("{head}0\r\n\r\n{smuggled}")).await;
        let mut up = world.upstream().await;
        let out = format!("POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n{te}\r\n0\r\n\r\n");
        assert_eq!(up.read_to("0\r\n\r\n").await, out);
        up.assert_silent().await;
        up.send(OK).await;
        // Nobody can tell where the next request would begin, so there is none.
        let closing = OK.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        assert_eq!(String::from_utf8(client.rest().await).unwrap(), closing);
        only_record(&mut world, Outcome::Complete, Some(200)).await;
        up.assert_silent().await;
        assert!(!world.has_dialled());
    }
}

#[tokio::test(start_paused = true)]
async fn what_two_servers_may_read_in_two_ways_is_refused() {
    let chunked = |framing: &str| format!("POST /a HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n0\r\n\r\n");
    let cases = [
        ("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), Some("/a")),
        ("GET host HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), None),
        ("OPTIONS host:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), None),
        (chunked("Transfer-Encoding: chunked, chunked"), Some("/a")),
        (chunked("Transfer-Encoding: Chunked\r\nTransfer-Encoding: chunked"), Some("/a")),
        (chunked("Transfer-Encoding: chunked, gzip, chunked"), Some("/a")),
    ];
    for (request, path) in cases {
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        client.send(&request).await;
        let answer = client.read_to("}}").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        assert!(answer.contains("\r\nx-streamgauge-error: bad_request\r\n"), "{request:?}: {answer}");
        let record = only_record(&mut world, Outcome::ClientError, Some(400)).await;
        assert_eq!(record.path.as_deref(), path, "{request:?}");
        assert!(!world.has_dialled());
    }
}

#[tokio::test(start_paused = true)]
async fn a_length_said_twice_alike_is_said_once() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send("POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nping").await;
    let mut up = world.upstream().await;
    let out = "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: 4\r\n\r\nping";
    assert_eq!(up.read_to("ping").await, out);
    up.send(OK).await;
    client.read_to("ok").await;
    only_record(&mut world, Outcome::Complete, Some(200)).await;
}

#[tokio::test(start_paused = true)]
async fn a_malformed_chunk_never_looks_like_the_requests_end() {
    for garbage in ["xyz\r\n", "4\r\npingX", "-1\r\n", "fffffffffffffffff\r\n", "0\r\nx y\r\n\r\n"] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world
            .asked("POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n")
            .await;
        client.send(garbage).await;
        let rest = String::from_utf8(up.rest().await).unwrap();
        assert!(!rest.contains("0\r\n"), "{garbage:?} became {rest:?}");
        own_answer(&mut client, "400 Bad Request", "bad_request_body").await;
        client.assert_closed().await;
        only_record(&mut world, Outcome::ClientError, Some(400)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn several_hosts_are_refused() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n").await;
    own_answer(&mut client, "400 Bad Request", "bad_request").await;
    only_record(&mut world, Outcome::ClientError, Some(400)).await;
    client.assert_silent().await;
    assert!(!world.has_dialled());
}

fn only_path(options: WorldOptions) -> WorldOptions {
    let config = |config: &mut streamgauge::config::Config| {
        config.routes[0].matches = Matches::PathPrefix("/openai".to_owned());
    };
    WorldOptions { config, ..options }
}

/// The last exchanges stay in memory, and anybody may send long paths.
#[tokio::test(start_paused = true)]
async fn of_a_long_path_the_record_keeps_the_beginning() {
    let mut world = World::new(only_path(WorldOptions::default()));
    let mut client = world.client();
    client.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(5000))).await;
    own_answer(&mut client, "404 Not Found", "no_route").await;
    let record = only_record(&mut world, Outcome::ClientError, Some(404)).await;
    assert_eq!(record.path, Some(format!("/{}", "x".repeat(1023))));
}

#[tokio::test(start_paused = true)]
async fn a_path_without_a_route_is_told_so() {
    let mut world = World::new(only_path(WorldOptions::default()));
    let mut client = world.client();
    client.send("GET /v1/models?key=secret HTTP/1.1\r\nHost: a\r\n\r\n").await;
    own_answer(&mut client, "404 Not Found", "no_route").await;
    let record = only_record(&mut world, Outcome::ClientError, Some(404)).await;
    assert_eq!((record.upstream, record.path.as_deref()), (None, Some("/v1/models")));
    assert_eq!((record.attempts, record.timeline.lease_wanted), (0, None));
    // The connection is as good as before.
    client.send("GET /openai HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut up = world.upstream().await;
    up.head().await;
    up.send(OK).await;
    client.read_to("ok").await;
    only_record(&mut world, Outcome::Complete, Some(200)).await;
    // HEAD: the head is the same, the body stays away.
    client.send("HEAD /v1/models HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n") && head.contains("x-streamgauge-error: no_route\r\n"));
    client.assert_silent().await;
    only_record(&mut world, Outcome::ClientError, Some(404)).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_upstream_takes_the_upload_off_the_connection() {
    for framed in [
        format!("Content-Length: 500000\r\n\r\n{}", "x".repeat(500_000)),
        format!("Transfer-Encoding: chunked\r\n\r\n{:X}\r\n{}\r\n0\r\n\r\n", 500_000, "x".repeat(500_000)),
    ] {
        let mut world = World::new(only_path(WorldOptions::default()));
        let mut client = world.client();
        client.send(format!("POST /v1 HTTP/1.1\r\nHost: a\r\n{framed}")).await;
        own_answer(&mut client, "404 Not Found", "no_route").await;
        client.send("GET /v1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        own_answer(&mut client, "404 Not Found", "no_route").await;
        for _ in 0..2 {
            assert_eq!(world.record().await.outcome, Outcome::ClientError);
        }
        world.assert_no_record();
        assert_eq!(world.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_without_end_is_not_taken_off_for_ever() {
    let mut world = World::new(only_path(WorldOptions::default()));
    let mut client = world.client();
    client.send("POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000000\r\n\r\n").await;
    own_answer(&mut client, "404 Not Found", "no_route").await;
    only_record(&mut world, Outcome::ClientError, Some(404)).await;
    let piece = vec![b'x'; 100_000];
    let mut taken = 0;
    while client.try_send(&piece).await.is_ok() {
        taken += piece.len();
        assert!(taken < 4_000_000, "it must close");
    }
    // One that sends nothing is not waited for either.
    let mut silent = world.client();
    silent.send("POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n").await;
    own_answer(&mut silent, "404 Not Found", "no_route").await;
    silent.assert_closed().await;
    only_record(&mut world, Outcome::ClientError, Some(404)).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_to_go_on_with_a_refused_body() {
    let mut world = World::new(only_path(WorldOptions::default()));
    let mut client = world.client();
    client.send("POST /v1 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    own_answer(&mut client, "404 Not Found", "no_route").await;
    only_record(&mut world, Outcome::ClientError, Some(404)).await;
    client.assert_closed().await;
}

#[tokio::test(start_paused = true)]
async fn connect_is_refused() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n").await;
    own_answer(&mut client, "405 Method Not Allowed", "method_not_allowed").await;
    only_record(&mut world, Outcome::ClientError, Some(405)).await;
    assert!(!world.has_dialled());
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused() {
    for framing in ["Content-Length: 2000", "Transfer-Encoding: chunked"] {
        let config = |config: &mut streamgauge::config::Config| config.limits.max_request_body = Some(1000);
        let mut world = World::new(WorldOptions { config, ..WorldOptions::default() });
        let (mut client, mut up) = world.asked(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")).await;
        let body = "x".repeat(2000);
        let _ = client.try_send(if framing.starts_with('C') { body } else { format!("7D0\r\n{body}\r\n") }).await;
        own_answer(&mut client, "413 Payload Too Large", "request_too_large").await;
        up.assert_closed().await;
        let record = only_record(&mut world, Outcome::ClientError, Some(413)).await;
        assert_eq!(record.limit, Some(Limit::RequestBody));
    }
}

#[tokio::test(start_paused = true)]
async fn above_the_most_in_flight_the_gateway_refuses() {
    let config = |config: &mut streamgauge::config::Config| config.limits.max_in_flight = Some(1);
    let mut world = World::new(WorldOptions { config, ..WorldOptions::default() });
    let mut first = world.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut up = world.upstream().await;
    up.head().await;
    let mut second = world.client();
    second.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nping").await;
    own_answer(&mut second, "503 Service Unavailable", "overloaded").await;
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::Refused, Some(Limit::InFlight)));
    up.send(OK).await;
    first.read_to("ok").await;
    only_record(&mut world, Outcome::Complete, Some(200)).await;
}

#[tokio::test(start_paused = true)]
async fn connections_that_never_become_a_request_leave_no_record() {
    let mut world = World::new(WorldOptions::default());
    let closed = |bytes: &'static str| {
        let mut client = world.client();
        async move {
            client.send(bytes).await;
            client
        }
    };
    for bytes in ["", "GET / HT", "PRI * HT", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        let mut client: Peer = closed(bytes).await;
        client.shutdown().await;
        client.assert_closed().await;
    }
    // And those that stay silent are not kept for ever.
    let before = world.clock.now();
    for bytes in ["", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        let mut client: Peer = closed(bytes).await;
        client.assert_closed().await;
    }
    assert!(world.clock.now().since(before) <= ms(61_000).into());
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}
