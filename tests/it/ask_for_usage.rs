//! The one option that changes a body: what goes up, when, and that without it nothing does.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body::Frame;
use streamgauge::{
    config::{Config, HttpVersion},
    observation::{Limit, Observation, Outcome},
};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, Sides, World, WorldOptions, chat_delta, chat_end, chat_request, chunk, ms,
    speaker::{Said, Speaker, serve, whole},
    stages,
};

const BODY: &str = r#"{"model":"m","stream":true,"messages":[]}"#;
const ASKING: &str = r#"{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}"#;
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

fn on(config: &mut Config) {
    for route in &mut config.routes {
        route.ask_for_usage = true;
    }
}

fn asking() -> WorldOptions {
    WorldOptions { config: on, ..WorldOptions::default() }
}

/// A request with this body and these further headers, its length in the head.
fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:80\r\n{headers}Content-Length: {length}\r\nX-Last: 1\r\n\r\n{body}"
    )
}

const CHAT: &str = "/v1/chat/completions";

/// An upstream that counts tokens only for who asks; what it was sent.
async fn answer_chat(up: &mut Peer) -> String {
    let head = up.head().await;
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let body = String::from_utf8(up.read(length.expect("a length")).await).unwrap();
    let request: serde_json::Value = serde_json::from_str(&body).unwrap();
    let counts = request["stream_options"]["include_usage"] == true;
    let end = if counts { chat_end(7, 2) } else { "data: [DONE]\n\n".to_owned() };
    let stream = [chat_delta("Hi"), chat_delta(" you"), end].map(|text| chunk(&text)).concat();
    up.send([SSE_HEAD, &stream, LAST_CHUNK].concat()).await;
    body
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_token_counts_that_its_client_did_not_ask_for() {
    for (options, sent, tokens) in [(WorldOptions::default(), BODY, None), (asking(), ASKING, Some(2))] {
        let mut world = World::new(options);
        let mut client = world.client();
        client.send(post(CHAT, "", BODY)).await;
        let mut up = world.upstream().await;
        assert_eq!(answer_chat(&mut up).await, sent);
        client.read_to(LAST_CHUNK).await;
        let record = world.record().await;
        assert_eq!(record.outcome, Outcome::Complete);
        assert_eq!(record.output_tokens(), tokens);
        assert_eq!(record.request_bytes, BODY.len() as u64, "the client's");
        assert_eq!(record.flags.asked_for_usage, tokens.is_some());
        assert_eq!((record.model.as_deref(), record.load), (Some("m"), Some(1)));
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_body_and_its_length_are_changed() {
    let mut world = World::new(asking());
    for (path, body, changed) in [
        (CHAT, BODY, ASKING),
        ("/v1/completions", BODY, ASKING),
        (
            "/openai/deployments/d/chat/completions?api-version=1",
            r#" {"stream": true, "stream_options" :{ "a":1}}"#,
            r#" {"stream": true, "stream_options" :{"include_usage":true, "a":1}}"#,
        ),
        (
            CHAT,
            r#"{"stream_options":null,"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"stream":true}"#,
        ),
    ] {
        let headers = "Content-Type: application/json\r\nX-A: 1\r\n";
        let (sent, out) = (post(path, headers, body), post(path, headers, changed));
        let record = world.relay(Sides::changed(&sent, &out), Sides::same(OK)).await;
        assert!(record.flags.asked_for_usage, "{body}");
        assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, body.len() as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_meant_passes_byte_for_byte() {
    let mut world = World::new(asking());
    let json = "Content-Type: application/json\r\n";
    let large = format!(r#"{{"stream":true,"x":"{}"}}"#, "x".repeat(8 << 20));
    for (path, headers, body) in [
        (CHAT, json, ASKING),
        (CHAT, json, r#"{"stream":true,"stream_options":{"include_usage":false}}"#),
        (CHAT, json, r#"{"model":"m","stream":false,"messages":[]}"#),
        (CHAT, json, r#"{"model":"m"}"#),
        (CHAT, json, r#"{"stream":true,"stream":true}"#),
        (CHAT, json, r#"{"stream":true"#),
        (CHAT, json, ""),
        (CHAT, json, &large),
        (CHAT, "Content-Type: text/plain\r\n", BODY),
        (CHAT, "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", BODY),
        (CHAT, "Content-Type: application/json\r\nContent-Digest: sha-256=:x:\r\n", BODY),
        (CHAT, "Content-Type: application/json\r\nAuthorization: AWS4-HMAC-SHA256 Credential=x\r\n", BODY),
        ("/v1/responses", json, BODY),
        ("/v1/messages", json, BODY),
        ("/v1/projects/p/locations/l/publishers/mistralai/models/m:streamRawPredict", json, BODY),
        ("/ml/v1/text/chat_stream?version=1", json, BODY),
        ("/api/chat", json, BODY),
        ("/v1/chat/completions/x", json, BODY),
    ] {
        let request = post(path, headers, body);
        let record = world.relay(Sides::same(&request), Sides::same(OK)).await;
        assert!(!record.flags.asked_for_usage, "{path} {}", &body[..body.len().min(80)]);
        assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, body.len() as u64));
    }
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: gzip, chunked\r\n\r\n{}{LAST_CHUNK}",
        chunk(BODY)
    );
    assert!(!world.relay(Sides::same(&chunked), Sides::same(OK)).await.flags.asked_for_usage);
}

#[tokio::test(start_paused = true)]
async fn a_chunked_body_stays_chunked_with_its_trailers() {
    let mut world = World::new(asking());
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n");
    let trailers = "0\r\nx-t: 1\r\n\r\n";
    let (first, second) = BODY.split_at(10);
    let sent = [&head, chunk(first).as_str(), &chunk(second), trailers].concat();
    let (last, end) = (r#","stream_options":{"include_usage":true}"#, "}");
    let out = [&head, chunk(&BODY[..BODY.len() - 1]).as_str(), &chunk(last), &chunk(end), trailers].concat();
    let record = world.relay(Sides::changed(&sent, &out), Sides::same(OK)).await;
    assert!(record.flags.asked_for_usage);
    assert_eq!(record.request_bytes, BODY.len() as u64);

    // Trailers may vouch for it, too.
    let digest = "0\r\ncontent-digest: sha-256=:x:\r\n\r\n";
    let head_of_it = head.replace("x-t", "Content-Digest");
    let sent = [&head_of_it, chunk(first).as_str(), &chunk(second), digest].concat();
    let out = [&head_of_it, chunk(BODY).as_str(), digest].concat();
    assert!(!world.relay(Sides::changed(&sent, &out), Sides::same(OK)).await.flags.asked_for_usage);

    // One that has grown beyond the bound is let go, with all that was held in front.
    let piece = chunk(&"x".repeat(64 * 1024));
    let mut client = world.client();
    client.send([&head, chunk("{\"x\":\"").as_str()].concat()).await;
    for _ in 0..127 {
        client.send(&piece).await;
    }
    assert!(!world.has_dialled(), "it is held");
    let up = tokio::join!(async { world.upstream().await }, async {
        client.send([piece.as_str(), &piece, trailers].concat()).await;
    });
    let mut requests = serve(up.0.into_inner().0, || Response::new(Said::all(vec![])));
    let request = requests.recv().await.expect("a whole request");
    assert_eq!(request.body.len(), 6 + 129 * 64 * 1024);
    assert!(request.body.starts_with(b"{\"x\":\"x") && request.body.ends_with(b"xx"));
    assert_eq!(request.trailers["x-t"], "1");
    client.head().await;
    let record = world.record().await;
    assert!(!record.flags.asked_for_usage && !record.flags.early_response);
    assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, request.body.len() as u64));
}

/// Sends the body in two parts, 300 ms apart, to an upstream that dials for 50 ms and answers after 20 ms.
async fn slowly(config: fn(&mut Config), body: &str, at: usize) -> (Observation, bool) {
    let mut world = World::new(WorldOptions { config, tcp: ms(50), ..WorldOptions::default() });
    let mut client = world.client();
    let request = post(CHAT, "", body);
    let (first, rest) = request.split_at(request.len() - at);
    client.send(first).await;
    sleep(ms(299)).await;
    let was_held = !world.has_dialled();
    sleep(ms(1)).await;
    client.send(rest).await;
    let mut up = world.upstream().await;
    up.read_to("}").await;
    sleep(ms(20)).await;
    up.send(OK).await;
    client.read_to("{}").await;
    (world.record().await, was_held)
}

#[tokio::test(start_paused = true)]
async fn the_time_it_is_held_is_the_client_s() {
    let (record, was_held) = slowly(on, BODY, 1).await;
    assert!(was_held && record.flags.asked_for_usage && !record.flags.early_response);
    assert_eq!(stages(&record), [("tcp", 50), ("receive", 300), ("first_output_wait", 20)]);
    let marks = &record.timeline;
    let at = |mark: Option<streamgauge::clock::Stamp>| mark.map(|mark| mark.since(marks.request_head));
    assert_eq!(at(marks.request_end), Some(ms(300).into()));
    assert_eq!(at(marks.lease_wanted), Some(ms(300).into()));
    assert_eq!(at(marks.sent_last), Some(ms(350).into()));
    assert_eq!(record.overhead_request(), Some(ms(0).into()));

    // Without the option nothing is held; with it, what shows that it does not stream is let go.
    let (record, was_held) = slowly(|_| {}, BODY, 1).await;
    assert_eq!((was_held, record.flags.asked_for_usage), (false, false));
    let (record, was_held) = slowly(on, r#"{"model":"m","stream":false,"messages":[]}"#, 1).await;
    assert_eq!((was_held, record.flags.asked_for_usage), (false, false));
    assert_eq!(record.timeline.request_end.map(|end| end.since(record.timeline.request_head)), Some(ms(300).into()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_all_that_was_held_has_left_is_early() {
    let mut world = World::new(WorldOptions { upstream_pipe: Some(1024), ..asking() });
    let mut client = world.client();
    let body = format!(r#"{{"stream":true,"x":"{}"}}"#, "x".repeat(64 * 1024));
    client.send(post(CHAT, "", &body)).await;
    let mut up = world.upstream().await;
    up.head().await;
    up.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n").await;
    client.head().await;
    let record = world.record().await;
    assert!(record.flags.early_response);
    assert_eq!((record.outcome, record.request_bytes), (Outcome::Upstream4xx, body.len() as u64));
    assert_eq!(record.timeline.request_end, Some(record.timeline.request_head), "all of it had come");
    // Its connection has half a request on it.
    let mut client = world.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut other = world.upstream().await;
    assert!(other.head().await.starts_with("GET / "));
    other.send(OK).await;
    client.read_to("{}").await;
    assert_eq!(world.record().await.connection.reused, Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_it_is_held_is_gone() {
    let mut world = World::new(asking());
    let mut client = world.client();
    let request = post(CHAT, "", BODY);
    client.send(&request[..request.len() - 1]).await;
    sleep(ms(100)).await;
    drop(client);
    let record = world.record().await;
    assert_eq!((record.outcome, record.attempts), (Outcome::ClientGone, 0));
    assert_eq!(record.request_bytes, BODY.len() as u64 - 1);
    assert_eq!(stages(&record), [("receive", 100)]);
    assert!(!world.has_dialled(), "nobody was asked");
    assert_eq!(world.in_flight(), 0);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn limits_hold_while_it_is_held() {
    let mut world = World::new(WorldOptions {
        config: |config| {
            on(config);
            config.limits.max_request_body = Some(BODY.len() as u64);
        },
        upstream: |upstream| upstream.limits.total = Some(ms(500)),
        ..WorldOptions::default()
    });
    // What is put in does not count.
    let (sent, out) = (post(CHAT, "", BODY), post(CHAT, "", ASKING));
    world.relay(Sides::changed(&sent, &out), Sides::same(OK)).await;
    let mut client = world.client();
    client.send(post(CHAT, "", &format!("{BODY} "))).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 413 ") && head.contains("x-streamgauge-error: request_too_large"), "{head}");
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::ClientError, Some(Limit::RequestBody)));
    let mut client = world.client();
    client.send(&sent[..sent.len() - 1]).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::UpstreamTimeout, Some(Limit::Total)));
    assert_eq!(stages(&record), [("receive", 500)]);
    let mut client = world.client();
    client.send(format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno chunk")).await;
    assert!(client.head().await.contains("x-streamgauge-error: bad_request_body"));
    assert_eq!(world.record().await.outcome, Outcome::ClientError);
    assert!(!world.has_dialled());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_expects_a_100_is_told_to_go_on_and_the_upstream_is_asked() {
    let mut world = World::new(asking());
    let mut client = world.client();
    let request = post(CHAT, "Expect: 100-continue\r\n", BODY);
    let (head, body) = request.split_at(request.len() - BODY.len());
    client.send(head).await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(!world.has_dialled());
    client.send(body).await;
    let mut up = world.upstream().await;
    let out = post(CHAT, "Expect: 100-continue\r\n", ASKING);
    assert_eq!(up.head().await, out[..out.len() - ASKING.len()]);
    up.assert_silent().await;
    sleep(ms(49)).await;
    up.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(up.read(ASKING.len()).await, ASKING.as_bytes());
    up.send(OK).await;
    assert_eq!(client.read_to("{}").await, OK);
    let record = world.record().await;
    assert_eq!(stages(&record), [("upload", 50)]);
    assert!(record.flags.asked_for_usage && record.outcome == Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn what_has_come_has_not_left_while_the_upstream_s_100_is_awaited() {
    let mut world = World::new(WorldOptions { upstream: |upstream| upstream.limits.head = Some(ms(500)), ..asking() });
    let mut client = world.client();
    client.send(post(CHAT, "Expect: 100-continue\r\n", BODY)).await;
    let mut up = world.upstream().await;
    up.head().await;
    // The limit runs from the departure, which is a second later: this upstream knows of no 100.
    up.read(ASKING.len()).await;
    sleep(ms(400)).await;
    up.send(OK).await;
    client.read_to("{}").await;
    let record = world.record().await;
    assert_eq!((record.outcome, record.flags.early_response), (Outcome::Complete, false));
    assert_eq!(stages(&record), [("upload", 1000), ("first_output_wait", 400)]);

    // Refused by the head alone: the body was here, and never left.
    let mut client = world.client();
    client.send(post(CHAT, "Expect: 100-continue\r\n", BODY)).await;
    up.head().await;
    up.send("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await;
    client.read_to("401").await;
    let record = world.record().await;
    assert_eq!((record.outcome, record.flags.early_response), (Outcome::Upstream4xx, true));
    assert_eq!(record.request_bytes, BODY.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_changed_leaves_a_dead_connection_alone() {
    let mut world = World::new(asking());
    let mut client = world.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut up = world.upstream().await;
    up.head().await;
    up.send(OK).await;
    client.read_to("{}").await;
    world.record().await;
    client.send(post(CHAT, "", BODY)).await;
    drop(up);
    let mut up = world.upstream().await;
    assert_eq!(answer_chat(&mut up).await, ASKING);
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!((record.attempts, record.output_tokens()), (1, Some(2)));
    assert!(!record.flags.retried && record.flags.asked_for_usage);
}

#[tokio::test(start_paused = true)]
async fn either_side_may_speak_http_2() {
    for (client_version, upstream_version) in
        [(Version::HTTP_2, Version::HTTP_11), (Version::HTTP_11, Version::HTTP_2), (Version::HTTP_2, Version::HTTP_2)]
    {
        for has_length in [true, false] {
            let upstream = if upstream_version == Version::HTTP_2 {
                |upstream: &mut streamgauge::config::Upstream| upstream.http = HttpVersion::Http2
            } else {
                |_: &mut streamgauge::config::Upstream| {}
            };
            let mut world = World::new(WorldOptions { upstream, ..asking() });
            let io = world.client().into_inner().0;
            let mut client =
                if client_version == Version::HTTP_2 { Speaker::http2(io).await } else { Speaker::http1(io).await };
            let mut request =
                Request::builder().method(Method::POST).uri(format!("http://a{CHAT}")).header("trailer", "x-t");
            if has_length {
                request = request.header("content-length", BODY.len());
            }
            let trailers: HeaderMap = [("x-t".parse().unwrap(), HeaderValue::from_static("1"))].into_iter().collect();
            let (first, second) = BODY.split_at(7);
            let mut frames = vec![
                Frame::data(Bytes::from_static(first.as_bytes())),
                Frame::data(Bytes::from_static(second.as_bytes())),
            ];
            if !has_length {
                frames.push(Frame::trailers(trailers));
            }
            let request = request.body(Said::all(frames)).unwrap();
            let asked = tokio::spawn(async move {
                let (parts, body) = client.send(request).await.expect("an answer").into_parts();
                whole(parts, body).await.expect("a whole answer")
            });
            let mut requests = serve(world.upstream().await.into_inner().0, || Response::new(Said::all(vec![])));
            let request = requests.recv().await.expect("a whole request");
            let case = format!("{client_version:?} {upstream_version:?} {has_length}");
            assert_eq!(request.body, ASKING, "{case}");
            let length = request.parts.headers.get("content-length").map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(length, has_length.then(|| ASKING.len().to_string()), "{case}");
            assert_eq!(request.trailers.contains_key("x-t"), !has_length, "{case}");
            asked.await.expect("no panic");
            let record = world.record().await;
            assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, BODY.len() as u64), "{case}");
            assert!(record.flags.asked_for_usage && !record.flags.early_response, "{case}");
            assert!(record.timeline.sent_last.is_some(), "{case}");
            world.assert_no_record();
            assert_eq!(world.in_flight(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_alone_may_ask() {
    let mut world = World::new(WorldOptions {
        config: |config| {
            let mut first = config.routes[0].clone();
            first.matches = streamgauge::config::Matches::PathPrefix("/asking".to_owned());
            first.ask_for_usage = true;
            config.routes.insert(0, first);
        },
        ..WorldOptions::default()
    });
    let path = "/asking/v1/chat/completions";
    let (sent, out) = (post(path, "", BODY), post(path, "", ASKING));
    assert!(world.relay(Sides::changed(&sent, &out), Sides::same(OK)).await.flags.asked_for_usage);
    let other = chat_request("m").replace("gauge.test", "127.0.0.1:80");
    assert!(!world.relay(Sides::same(&other), Sides::same(OK)).await.flags.asked_for_usage);
}
