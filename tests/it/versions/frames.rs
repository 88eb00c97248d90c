//! HTTP/2 cuts, frame by frame: each must look like a cut in whatever the other side speaks.

use bytes::Bytes;
use http::{Method, Request};
use http_body::Frame;
use http_body_util::BodyExt;
use streamgauge::{
    config::{HttpVersion, Upstream},
    observation::Outcome,
};
use tokio::time::sleep;

use crate::support::{
    Peer, World, WorldOptions, ms,
    speaker::{
        DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, Said, Speaker, frame, holds,
        serve,
    },
};

const GET: &str = "GET / HTTP/1.1\r\nHost: gauge.test\r\n\r\n";

/// `:status 200`.
const STATUS_200: &[u8] = &[0x88];
/// `:status 299`, which no table has.
const STATUS_299: &[u8] = &[0x08, 3, b'2', b'9', b'9'];
const NO_ERROR: &[u8] = &[0, 0, 0, 0];
const CANCEL: &[u8] = &[0, 0, 0, 8];

/// POST http://a/.
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x41, 1, b'a'];

fn http2(upstream: &mut Upstream) {
    upstream.http = HttpVersion::Http2;
}

fn world() -> World {
    World::new(WorldOptions { upstream: http2, ..WorldOptions::default() })
}

/// Reads until a frame of this kind on this stream has come.
async fn read_frame(peer: &mut Peer, seen: &mut Vec<u8>, kind: u8, stream: u32) {
    while !holds(seen, kind, stream) {
        seen.extend(peer.read(1).await);
    }
}

/// An upstream by hand that has seen the first request.
async fn upstream(world: &mut World) -> Peer {
    let mut up = world.upstream().await;
    assert_eq!(up.read(PREFACE.len()).await, PREFACE);
    up.send(frame(SETTINGS, 0, 0, &[])).await;
    read_frame(&mut up, &mut Vec::new(), HEADERS, 1).await;
    up
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_is_passed_on_as_a_cut() {
    let goaway = [&[0, 0, 0, 1][..], NO_ERROR].concat();
    for (what, cut) in [
        ("reset with CANCEL", frame(RST_STREAM, 0, 1, CANCEL)),
        ("reset with NO_ERROR", frame(RST_STREAM, 0, 1, NO_ERROR)),
        ("goodbye", frame(GOAWAY, 0, 0, &goaway)),
        ("closed", Vec::new()),
    ] {
        let mut world = world();
        let mut client = world.client();
        client.send(GET).await;
        let mut up = upstream(&mut world).await;
        up.send(frame(HEADERS, END_HEADERS, 1, STATUS_200)).await;
        up.send(frame(DATA, 0, 1, b"data: x\n\n")).await;
        let head = client.read_to("data: x\n\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), "{head}");
        sleep(ms(100)).await;
        up.send(cut).await;
        drop(up);
        client.assert_closed().await;
        let record = world.record().await;
        assert_eq!((record.outcome, record.response_bytes), (Outcome::UpstreamReset, 9), "{what}");
        assert_eq!(record.timeline.response_end, None, "{what}");
        assert_eq!(world.in_flight(), 0);
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_in_one_read_with_a_cut_leaves_before_it() {
    let head = frame(HEADERS, END_HEADERS, 1, STATUS_200);
    let event = frame(DATA, 0, 1, b"data: x\n\n");
    for cut in [frame(RST_STREAM, 0, 1, CANCEL), frame(RST_STREAM, 0, 1, NO_ERROR), Vec::new()] {
        for http2 in [false, true] {
            let mut world = world();
            let mut client = world.client();
            if http2 {
                let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, POST);
                client.send([PREFACE, &frame(SETTINGS, 0, 0, &[]), &request].concat()).await;
            } else {
                client.send(GET).await;
            }
            let mut up = upstream(&mut world).await;
            up.send([&head[..], &event, &cut].concat()).await;
            drop(up);
            if http2 {
                let mut seen = Vec::new();
                read_frame(&mut client, &mut seen, RST_STREAM, 1).await;
                assert!(holds(&seen, DATA, 1), "{cut:?}");
            } else {
                let answer = client.read_to("data: x\n\n\r\n").await;
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
                client.assert_closed().await;
            }
            let record = world.record().await;
            assert_eq!((record.outcome, record.response_bytes), (Outcome::UpstreamReset, 9), "{cut:?}");
            assert_eq!(world.in_flight(), 0);
            world.assert_no_record();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_without_a_standard_reason_gets_a_placeholder() {
    let mut world = world();
    let mut client = world.client();
    client.send(GET).await;
    let mut up = upstream(&mut world).await;
    up.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, STATUS_299)).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 299 <none>\r\n"), "{head}");
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_lets_the_stream_under_way_end() {
    let mut world = world();
    let mut client = world.client();
    client.send(GET).await;
    let mut up = upstream(&mut world).await;
    up.send(frame(HEADERS, END_HEADERS, 1, STATUS_200)).await;
    up.send(frame(GOAWAY, 0, 0, &[&[0, 0, 0, 1][..], NO_ERROR].concat())).await;
    sleep(ms(100)).await;
    up.send(frame(DATA, END_STREAM, 1, b"hi")).await;
    assert!(client.read_to("0\r\n\r\n").await.ends_with("2\r\nhi\r\n0\r\n\r\n"));
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    // The next exchange needs another connection.
    client.send(GET).await;
    let mut fresh = upstream(&mut world).await;
    fresh.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, STATUS_200)).await;
    client.head().await;
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_answer_may_wave_the_rest_of_an_upload_off() {
    let mut world = world();
    let mut client = world.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n").await;
    let mut up = upstream(&mut world).await;
    up.send(frame(HEADERS, END_HEADERS, 1, STATUS_200)).await;
    up.send(frame(DATA, END_STREAM, 1, b"enough")).await;
    up.send(frame(RST_STREAM, 0, 1, NO_ERROR)).await;
    assert!(client.read_to("0\r\n\r\n").await.ends_with("6\r\nenough\r\n0\r\n\r\n"));
    let record = world.record().await;
    assert_eq!((record.outcome, record.flags.early_response), (Outcome::Complete, true));
    assert_eq!(world.in_flight(), 0);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_begins_is_told_so() {
    for cut in [frame(RST_STREAM, 0, 1, CANCEL), b"HTTP/1.1 200 OK\r\n\r\n and more than nine bytes".to_vec()] {
        let mut world = world();
        let mut client = world.client();
        client.send(GET).await;
        let mut up = upstream(&mut world).await;
        up.send(cut).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
        assert!(head.contains("x-streamgauge-error: upstream_reset\r\n"), "{head}");
        let record = world.record().await;
        assert_eq!((record.outcome, record.attempts), (Outcome::UpstreamReset, 1));
        assert_eq!(world.in_flight(), 0);
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_cut_never_looks_finished() {
    for cut in [frame(RST_STREAM, 0, 1, CANCEL), frame(RST_STREAM, 0, 1, NO_ERROR), Vec::new()] {
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
        client.send(frame(HEADERS, END_HEADERS, 1, POST)).await;
        client.send(frame(DATA, 0, 1, b"ping")).await;
        let mut up = world.upstream().await;
        let came = up.read_to("ping\r\n").await;
        assert_eq!(came, "POST / HTTP/1.1\r\nhost: 127.0.0.1:80\r\ntransfer-encoding: chunked\r\n\r\n4\r\nping\r\n");
        if cut.is_empty() {
            drop(client);
        } else {
            client.send(cut).await;
        }
        up.assert_closed().await;
        let record = world.record().await;
        assert_eq!((record.outcome, record.request_bytes), (Outcome::ClientGone, 4));
        assert_eq!(record.timeline.request_end, None);
        assert_eq!(world.in_flight(), 0);
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_cuts_resets_the_clients_stream() {
    for cut in ["2\r\nno", "2\r\nno\r\nxyz\r\n"] {
        let mut world = World::new(WorldOptions::default());
        let mut client = Speaker::http2(world.client().into_inner().0).await;
        let asked = tokio::spawn(async move {
            let request = Request::get("http://a/").body(Said::all(vec![])).unwrap();
            let response = client.send(request).await.expect("a head");
            (response.status(), response.into_body().collect().await.map(|_| ()))
        });
        let mut up = world.upstream().await;
        up.head().await;
        up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n").await;
        sleep(ms(100)).await;
        up.send(cut).await;
        drop(up);
        let (status, body) = asked.await.expect("no panic");
        assert_eq!(status, 200);
        assert!(body.is_err(), "a reset, not an end");
        assert_eq!(world.record().await.outcome, Outcome::UpstreamReset);
        assert_eq!(world.in_flight(), 0);
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_resets_its_stream_ends_the_upstreams_work() {
    for head_came in [false, true] {
        let mut world = World::new(WorldOptions::default());
        let mut client = Speaker::http2(world.client().into_inner().0).await;
        let mut asked = Box::pin(async move {
            let request = Request::get("http://a/").body(Said::all(vec![])).unwrap();
            let response = client.send(request).await.expect("a head");
            (client, response)
        });
        let mut up = tokio::select! {
            up = world.upstream() => up,
            _ = &mut asked => panic!("no answer yet"),
        };
        // Its stream was open for a body, of which there was none.
        up.read_to("\r\n\r\n0\r\n\r\n").await;
        let before = world.clock.now();
        if head_came {
            up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n").await;
            let (kept, response) = asked.await;
            drop(response);
            up.assert_closed().await;
            drop(kept);
        } else {
            drop(asked);
            up.assert_closed().await;
        }
        let record = world.record().await;
        assert_eq!(world.clock.now(), before, "at once");
        assert_eq!((record.outcome, record.status), (Outcome::ClientGone, head_came.then_some(200)));
        assert_eq!(world.in_flight(), 0);
        world.assert_no_record();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_ends_its_stream_and_no_other() {
    let mut world = world();
    let mut leaving = world.client();
    leaving.send(GET).await;
    let mut up = upstream(&mut world).await;
    up.send(frame(HEADERS, END_HEADERS, 1, STATUS_200)).await;
    leaving.head().await;
    let mut staying = world.client();
    staying.send(GET).await;
    let mut seen = Vec::new();
    read_frame(&mut up, &mut seen, HEADERS, 3).await;
    up.send(frame(HEADERS, END_HEADERS, 3, STATUS_200)).await;
    staying.head().await;
    drop(leaving);
    read_frame(&mut up, &mut seen, RST_STREAM, 1).await;
    assert_eq!(world.record().await.outcome, Outcome::ClientGone);
    assert!(!holds(&seen, RST_STREAM, 3));
    up.send(frame(DATA, END_STREAM, 3, b"hi")).await;
    assert_eq!(staying.read_to("0\r\n\r\n").await, "2\r\nhi\r\n0\r\n\r\n");
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_leave_when_they_came_in_http_2_too() {
    let mut world = world();
    let mut client = Speaker::http2(world.client().into_inner().0).await;
    let asked = tokio::spawn(async move {
        let request = Request::get("http://a/").body(Said::all(vec![])).unwrap();
        (client.send(request).await.expect("a head"), client)
    });
    let mut up = upstream(&mut world).await;
    up.send(frame(HEADERS, END_HEADERS, 1, STATUS_200)).await;
    let (response, _client) = asked.await.expect("no panic");
    let mut body = response.into_body();
    for i in 0..8_u8 {
        sleep(ms(250)).await;
        let before = world.clock.now();
        up.send(frame(DATA, 0, 1, &[b'd', i])).await;
        let data = body.frame().await.expect("a frame").expect("no reset").into_data().expect("data");
        assert_eq!((&data[..], world.clock.now()), (&[b'd', i][..], before));
    }
    up.send(frame(DATA, END_STREAM, 1, b"")).await;
    assert!(body.frame().await.is_none_or(|frame| frame.is_ok_and(|frame| frame.into_data().unwrap().is_empty())));
    let record = world.record().await;
    assert_eq!((record.outcome, record.response_bytes), (Outcome::Complete, 16));
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn an_upload_streams_in_http_2_too() {
    let mut world = world();
    let mut client = Speaker::http2(world.client().into_inner().0).await;
    let (voice, said) = Said::channel();
    let asked = tokio::spawn(async move {
        let request = Request::builder().method(Method::POST).uri("http://a/").body(said).unwrap();
        client.send(request).await.expect("an answer").into_body().collect().await.expect("all of it").to_bytes()
    });
    let mut up = upstream(&mut world).await;
    let mut seen = Vec::new();
    for i in 0..8_u8 {
        sleep(ms(250)).await;
        let before = world.clock.now();
        voice.send(Ok(Frame::data(Bytes::from(vec![b'u', i])))).await.expect("it listens");
        read_frame(&mut up, &mut seen, DATA, 1).await;
        assert!(seen.ends_with(&[b'u', i]) && world.clock.now() == before);
        seen.clear();
    }
    drop(voice);
    read_frame(&mut up, &mut seen, DATA, 1).await;
    up.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, STATUS_200)).await;
    assert_eq!(asked.await.expect("no panic").len(), 0);
    let record = world.record().await;
    assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, 16));
    assert!(!record.flags.early_response);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_to_go_on_before_an_http_2_upstream_was_asked() {
    let mut world = world();
    let mut client = world.client();
    let before = world.clock.now();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    let mut requests = serve(world.upstream().await.into_inner().0, || http::Response::new(Said::all(vec![])));
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(world.clock.now(), before, "no time is lost to a 100 that can't be seen");
    client.send("ping").await;
    assert_eq!(&requests.recv().await.expect("a request").body[..], b"ping");
    client.head().await;
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn codings_are_not_carried_where_they_can_not_be_named() {
    let mut world = world();
    let mut client = world.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nping\r\n0\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 501 Not Implemented\r\n"), "{head}");
    assert!(head.contains("x-streamgauge-error: transfer_coding\r\n"), "{head}");
    assert_eq!(world.record().await.outcome, Outcome::ClientError);
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_side_holds_the_other_back_and_no_other_exchange() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let Speaker::Http2(client) = Speaker::http2(world.client().into_inner().0).await else { panic!("HTTP/2") };
    let ask = |body| {
        let mut client = client.clone();
        let request = Request::builder().method(Method::POST).uri("http://a/").body(body).unwrap();
        tokio::spawn(async move { client.send_request(request).await })
    };
    // One that does not read its answer …
    let answered = ask(Said::all(vec![]));
    let mut down = world.upstream().await;
    down.head().await;
    down.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let unread = answered.await.expect("no panic").expect("a head");
    let piece = crate::support::chunk(&"x".repeat(1000));
    let mut taken = 0;
    while tokio::time::timeout(ms(10_000), down.try_send(&piece)).await.is_ok() {
        taken += piece.len();
        // The client's own window holds 2 MiB.
        assert!(taken < 4_000_000, "memory must be bounded");
    }
    // … one whose upload nobody reads …
    let (voice, said) = Said::channel();
    let uploading = ask(said);
    let mut up = world.upstream().await;
    up.head().await;
    let piece = Bytes::from(vec![b'x'; 1000]);
    let mut taken = 0;
    while let Ok(sent) = tokio::time::timeout(ms(10_000), voice.send(Ok(Frame::data(piece.clone())))).await {
        sent.expect("it listens");
        taken += piece.len();
        assert!(taken < 4_000_000, "memory must be bounded");
    }
    // … and a third on the same connection, which has nothing to do with either.
    let third = ask(Said::all(vec![Frame::data(Bytes::from_static(b"ping"))]));
    let mut free = world.upstream().await;
    free.read_to("ping\r\n").await;
    free.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let body = third.await.expect("no panic").expect("a head").into_body().collect().await.expect("a body");
    assert_eq!(&body.to_bytes()[..], b"ok");
    assert_eq!(world.record().await.outcome, Outcome::Complete);
    assert_eq!(world.in_flight(), 2);
    drop((unread, voice, client));
    uploading.abort();
    for peer in [&mut down, &mut up] {
        peer.rest().await;
    }
    for _ in 0..2 {
        assert_eq!(world.record().await.outcome, Outcome::ClientGone);
    }
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}
