//! Complete raw heads, compared for equality.

use streamgauge::observation::Outcome;

use crate::support::{Sides, World, WorldOptions};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";

async fn answered(response: Sides<'_>) -> Outcome {
    World::new(WorldOptions::default()).relay(Sides::same(GET), response).await.outcome
}

#[tokio::test(start_paused = true)]
async fn a_request_head_leaves_as_it_came() {
    let sent = "POST /v1/chat/completions?x=%20&y=a+b&z=;,/?:@ HTTP/1.1\r\n\
         x-First: 1\r\n\
         HOST: 127.0.0.1:80\r\n\
         Accept-Encoding: gzip, br;q=0.5, identity;q=0\r\n\
         authorization: Bearer sk-0123\r\n\
         X-DUPLICATE: b\r\n\
         x-duplicate: a\r\n\
         X-Duplicate: b\r\n\
         COOKIE: a=1\r\n\
         Cookie: b=2\r\n\
         X-Empty:\r\n\
         x-inner: a  b\tc , \"d\"\r\n\
         User-Agent:\r\n\
         content-LENGTH: 4\r\n\
         Expires: never\r\n\
         \r\nping";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut world = World::new(WorldOptions::default());
    let record = world.relay(Sides::same(sent), Sides::same(ok)).await;
    assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, 4));
    assert_eq!(record.path.as_deref(), Some("/v1/chat/completions"));
}

#[tokio::test(start_paused = true)]
async fn every_byte_a_header_value_may_have_goes_through() {
    let mut value: Vec<u8> = (0x21..=0x7e).chain(0x80..=0xff).collect();
    value.extend(b"\ta b");
    let head = |start: &str| {
        let mut head = start.as_bytes().to_vec();
        head.extend(b"x-all: ");
        head.extend(&value);
        head.extend(b"\r\ncontent-length: 0\r\nx-utf8: \xc3\xbc\r\n\r\n");
        head
    };
    let request = head("PUT / HTTP/1.1\r\nhost: 127.0.0.1:80\r\n");
    let response = head("HTTP/1.1 200 OK\r\n");
    let mut world = World::new(WorldOptions::default());
    world.relay(Sides::same(&request), Sides::same(&response)).await;
}

#[tokio::test(start_paused = true)]
async fn every_method_and_target_goes_through() {
    let targets = ["/", "//", "/a//b/../c/", "/%2F%41?%", "/?", "/\"[1]{2}|3\"\\^?q=[1]{2}|3`\\^", "/ü", "*"];
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "q-1"] {
        for target in targets {
            let request = format!("{method} {target} HTTP/1.1\r\nhost: 127.0.0.1:80\r\n\r\n");
            let mut world = World::new(WorldOptions::default());
            let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            let record = world.relay(Sides::same(&request), Sides::same(ok)).await;
            assert_eq!(record.outcome, Outcome::Complete, "{request}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_absolute_target_becomes_a_path() {
    let sent = "GET http://gauge.test:8080/v1/models?x HTTP/1.1\r\nHost: gauge.test:8080\r\n\r\n";
    let out = "GET /v1/models?x HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    let ok = "HTTP/1.1 204 No Content\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::changed(sent, out), Sides::same(ok)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fragment_is_cut_off() {
    let sent = "GET /v1/models?x#y HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    let out = "GET /v1/models?x HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    let ok = "HTTP/1.1 204 No Content\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::changed(sent, out), Sides::same(ok)).await;
}

#[tokio::test(start_paused = true)]
async fn the_host_is_the_upstreams_unless_preserved() {
    let preserving = || WorldOptions { upstream: |upstream| upstream.preserve_host = true, ..WorldOptions::default() };
    let ok = "HTTP/1.1 204 No Content\r\n\r\n";
    let request = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nx-a: 1\r\n{host}x-b: 2\r\n\r\n");
    let gauge = request("/", "hOsT: gauge.test:8080\r\n");
    let own = request("/", "hOsT: 127.0.0.1:80\r\n");
    World::new(WorldOptions::default()).relay(Sides::changed(&gauge, &own), Sides::same(ok)).await;
    World::new(preserving()).relay(Sides::same(&gauge), Sides::same(ok)).await;
    // The target's host stands above the header's, for routing as for the upstream.
    let absolute = request("http://target.test/", "hOsT: header.test\r\n");
    let target = request("/", "hOsT: target.test\r\n");
    World::new(preserving()).relay(Sides::changed(&absolute, &target), Sides::same(ok)).await;
    // A client of HTTP/1.1 that names no host at all is helped.
    let added = "GET / HTTP/1.1\r\nhost: 127.0.0.1:80\r\nx-a: 1\r\nx-b: 2\r\n\r\n";
    World::new(preserving()).relay(Sides::changed(&request("/", ""), added), Sides::same(ok)).await;
}

#[tokio::test(start_paused = true)]
async fn a_response_head_leaves_as_it_came() {
    let sent = "HTTP/1.1 200 OK\r\n\
         DATE: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Set-Cookie: z=1; Path=/\r\n\
         set-cookie: a=2\r\n\
         SET-COOKIE: m=3\r\n\
         Content-Type: text/event-stream; charset=utf-8\r\n\
         x-ratelimit-remaining-requests: 17\r\n\
         Retry-After: 3\r\n\
         X-Accel-Buffering: no\r\n\
         Server: \r\n\
         Content-Encoding: gzip\r\n\
         Content-Length: 3\r\n\
         openai-processing-ms: 42\r\n\
         \r\n\x1f\x08\x00";
    assert_eq!(answered(Sides::same(sent)).await, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_added_to_a_bare_response() {
    assert_eq!(answered(Sides::same("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")).await, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn every_status_and_reason_goes_through() {
    for (status, outcome) in [
        ("200 OK", Outcome::Complete),
        ("200 Everything Fine", Outcome::Complete),
        ("200 ", Outcome::Complete),
        ("201 Created", Outcome::Complete),
        ("206 Partial Content", Outcome::Complete),
        ("299 ", Outcome::Complete),
        ("302 Found", Outcome::Complete),
        ("399 <none>", Outcome::Complete),
        ("400 Bad Request", Outcome::Upstream4xx),
        ("418 I'm a teapot", Outcome::Upstream4xx),
        ("429 Slow down, please", Outcome::RateLimited),
        ("500 Internal Server Error", Outcome::Upstream5xx),
        ("529 Overloaded", Outcome::RateLimited),
        ("600 Odd", Outcome::Upstream5xx),
        ("999 Odder", Outcome::Upstream5xx),
    ] {
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nx-a: b\r\n\r\nhi");
        assert_eq!(answered(Sides::same(&response)).await, outcome, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reason_beyond_ascii_is_left_out() {
    let sent = "HTTP/1.1 299 hübsch\r\nContent-Length: 2\r\n\r\nhi";
    let out = "HTTP/1.1 299 \r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(answered(Sides::changed(sent, out)).await, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_http_1_0_is_given_in_1_1() {
    let sent = "HTTP/1.0 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi";
    let out = "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi";
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    up.send(sent).await;
    assert_eq!(client.read_to("hi").await, out);
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    // Nobody knows what else it does not know: its connection is not used again.
    up.assert_closed().await;
}

#[tokio::test(start_paused = true)]
async fn hop_by_hop_headers_stay_behind_both_ways() {
    let sent = "GET / HTTP/1.1\r\n\
         Connection: X-Mine, keep-alive\r\n\
         Host: 127.0.0.1:80\r\n\
         X-Mine: 1\r\n\
         Keep-Alive: timeout=5\r\n\
         x-a: 1\r\n\
         Proxy-Connection: keep-alive\r\n\
         connection: x-Also\r\n\
         X-ALSO: 2\r\n\
         TE: gzip\r\n\
         Upgrade: h2c\r\n\
         x-b: 2\r\n\
         Trailer: x-t\r\n\
         Proxy-Authorization: Basic abcd\r\n\
         x-c: 3\r\n\
         \r\n";
    let out = "GET / HTTP/1.1\r\n\
         Host: 127.0.0.1:80\r\n\
         x-a: 1\r\n\
         x-b: 2\r\n\
         Trailer: x-t\r\n\
         Proxy-Authorization: Basic abcd\r\n\
         x-c: 3\r\n\
         \r\n";
    let response = "HTTP/1.1 200 OK\r\n\
         X-A: 1\r\n\
         CONNECTION: keep-alive, x-hop\r\n\
         Keep-Alive: timeout=60\r\n\
         X-HOP: 1\r\n\
         X-B: 2\r\n\
         Upgrade: websocket\r\n\
         content-length: 2\r\n\
         Alt-Svc: h3\r\n\
         \r\nok";
    let left = "HTTP/1.1 200 OK\r\nX-A: 1\r\nX-B: 2\r\ncontent-length: 2\r\nAlt-Svc: h3\r\n\r\nok";
    let mut world = World::new(WorldOptions::default());
    world.relay(Sides::changed(sent, out), Sides::changed(response, left)).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_trailers_is_announced_as_one() {
    let ok = "HTTP/1.1 204 No Content\r\n\r\n";
    let request = |middle: &str| format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n{middle}\r\nx-a: 1\r\n\r\n");
    for (sent, out) in [
        ("TE: trailers\r\nConnection: TE", "TE: trailers\r\nConnection: TE"),
        ("te: gzip;q=0.5, Trailers\r\nconnection: close, te, x-b", "te: trailers\r\nconnection: te"),
        ("TE: trailers", "TE: trailers"),
    ] {
        let closing = sent.contains("close");
        let answer = if closing { "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n" } else { ok };
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        client.send(request(sent)).await;
        let mut up = world.upstream().await;
        assert_eq!(up.head().await, request(out));
        up.send(ok).await;
        assert_eq!(client.head().await, answer);
        assert_eq!(world.record().await.outcome, Outcome::Complete);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_body_keep_their_heads() {
    let head = "HEAD /file HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nETag: \"x\"\r\n\r\n";
    let record = World::new(WorldOptions::default()).relay(Sides::same(head), Sides::same(length)).await;
    assert_eq!((record.outcome, record.response_bytes), (Outcome::Complete, 0));
    for response in [
        "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 12345\r\nETag: \"x\"\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"x\"\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nCONTENT-LENGTH: 0\r\nx-a: 1\r\n\r\n",
    ] {
        let record = World::new(WorldOptions::default()).relay(Sides::same(GET), Sides::same(response)).await;
        assert_eq!(record.response_bytes, 0, "{response}");
        assert_eq!(record.timeline.first_byte, None, "{response}");
        assert!(record.timeline.delivered.is_some(), "{response}");
    }
    // Without chunks there is nothing to frame: the library leaves their header out of such an answer.
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-a: 1\r\n\r\n";
    let out = "HTTP/1.1 200 OK\r\nx-a: 1\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(head), Sides::changed(chunked, out)).await;
    let length = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nx-a: 1\r\n\r\n";
    let out = "HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(GET), Sides::changed(length, out)).await;
}

#[tokio::test(start_paused = true)]
async fn interleaved_names_are_grouped_where_the_first_stood() {
    let sent = "GET / HTTP/1.1\r\nX-A: 1\r\nHost: 127.0.0.1:80\r\nx-B: 2\r\nx-a: 3\r\nX-b: 4\r\n\r\n";
    let out = "GET / HTTP/1.1\r\nX-A: 1\r\nx-a: 3\r\nHost: 127.0.0.1:80\r\nx-B: 2\r\nX-b: 4\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::changed(sent, out), Sides::same(ok)).await;
}

#[tokio::test(start_paused = true)]
async fn space_around_values_is_made_regular() {
    let sent = "GET / HTTP/1.1\r\nHost:127.0.0.1:80\r\nX-A:   1  \r\nX-B:\t2\t\r\nX-C:\r\n\r\n";
    let out = "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nX-A: 1\r\nX-B: 2\r\nX-C:\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::changed(sent, out), Sides::same(ok)).await;
}
