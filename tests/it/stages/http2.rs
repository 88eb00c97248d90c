//! The same causes where a side speaks HTTP/2: one socket carries many exchanges, and each keeps its own times.

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use streamgauge::{
    config::{HttpVersion, Upstream},
    observation::{Observation, Outcome},
};
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};

use super::{NO_BODY, PLAIN};
use crate::support::{
    LAST_CHUNK, Peer, World, WorldOptions, chat_delta, chat_end, chat_request,
    http2::{Asked, Fed, Http2Upstream, fed},
    ms,
    speaker::{Said, Speaker},
    stages,
};

fn http2(upstream: &mut Upstream) {
    upstream.http = HttpVersion::Http2;
}

fn world() -> World {
    World::new(WorldOptions { tcp: ms(30), upstream: http2, ..WorldOptions::default() })
}

/// Answers with the head of a stream, to be fed.
fn streams(asked: Asked) -> mpsc::Sender<Bytes> {
    let (feed, body) = fed();
    let head = Response::builder().header("content-type", "text/event-stream").body(body).unwrap();
    assert!(asked.answer.send(head).is_ok());
    feed
}

/// 250 ms of thinking, 100 ms of generation, 30 ms to the end, then the end.
async fn stream(feed: mpsc::Sender<Bytes>) {
    for (pause, event) in [(250, chat_delta("Hello")), (100, chat_delta(" world")), (30, chat_end(7, 2))] {
        sleep(ms(pause)).await;
        feed.try_send(event.into()).unwrap();
    }
}

fn before(causes: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    causes.iter().copied().chain(super::STREAMED).collect()
}

fn assert_http2(record: &Observation, client: Version) {
    assert_eq!(record.connection.client_version, Some(client));
    assert_eq!(record.connection.upstream_version, Some(Version::HTTP_2));
    assert!(record.flags.overhead_lower_bound);
}

/// A client of HTTP/2 sends a body in its own time and reads the whole answer.
fn ask(world: &World, path: &'static str) -> (mpsc::Sender<Result<Frame<Bytes>, &'static str>>, JoinHandle<Bytes>) {
    let io = world.client().into_inner().0;
    let (voice, said) = Said::channel();
    let asked = tokio::spawn(async move {
        let mut client = Speaker::http2(io).await;
        let request =
            Request::builder().method(Method::POST).uri(format!("http://gauge.test{path}")).body(said).unwrap();
        client.send(request).await.expect("an answer").into_body().collect().await.expect("all of it").to_bytes()
    });
    (voice, asked)
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_generates_and_tails_off_between_any_versions() {
    for client_version in [Version::HTTP_11, Version::HTTP_2] {
        let mut world = world();
        let body = Bytes::from_static(br#"{"model":"m","stream":true,"messages":[]}"#);
        let mut http1 = world.client();
        let mut asked = None;
        if client_version == Version::HTTP_2 {
            let (voice, answer) = ask(&world, "/v1/chat/completions");
            voice.try_send(Ok(Frame::data(body))).unwrap();
            asked = Some(answer);
        } else {
            http1.send(chat_request("m")).await;
        }
        let mut up = Http2Upstream::new(world.upstream().await);
        let request = up.asked().await;
        stream(streams(request)).await;
        match asked {
            Some(answer) => assert!(answer.await.unwrap().ends_with(b"data: [DONE]\n\n")),
            None => drop(http1.read_to(LAST_CHUNK).await),
        }
        let record = world.record().await;
        assert_http2(&record, client_version);
        assert_eq!(stages(&record), before(&[("tcp", 30)]), "{client_version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_slowly_is_receive_but_for_what_the_dial_covers() {
    let mut world = world();
    let (voice, asked) = ask(&world, "/v1/chat/completions");
    let mut up = Http2Upstream::new(world.upstream().await);
    let request = up.asked().await;
    sleep(ms(300 - 30)).await;
    voice.try_send(Ok(Frame::data(Bytes::from_static(br#"{"model":"m","stream":true,"messages":[]}"#)))).unwrap();
    drop(voice);
    let Asked { request, answer } = request;
    request.into_body().collect().await.expect("the whole request");
    let (feed, body) = fed();
    let head = Response::builder().header("content-type", "text/event-stream").body(body).unwrap();
    assert!(answer.send(head).is_ok());
    stream(feed).await;
    asked.await.unwrap();
    let record = world.record().await;
    assert_http2(&record, Version::HTTP_2);
    assert_eq!(stages(&record), before(&[("tcp", 30), ("receive", 270)]));
}

#[tokio::test(start_paused = true)]
async fn whoever_shares_a_dial_has_waited_for_it() {
    let mut world = world();
    let mut clients = [world.client(), world.client()];
    for client in &mut clients {
        client.send(chat_request("m")).await;
    }
    let mut up = Http2Upstream::new(world.upstream().await);
    let (one, two) = (up.asked().await, up.asked().await);
    tokio::join!(stream(streams(one)), stream(streams(two)));
    for client in &mut clients {
        client.read_to(LAST_CHUNK).await;
    }
    let mut records = [world.record().await, world.record().await];
    records.sort_by_key(|record| record.connection.reused);
    assert_eq!(stages(&records[0]), before(&[("tcp", 30)]));
    assert_eq!(stages(&records[1]), before(&[("pool_wait", 30)]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_or_left_amid_leaves_its_tail_and_the_others_theirs() {
    for leaves in [true, false] {
        let mut world = world();
        let (mut first, mut second) = (world.client(), world.client());
        first.send(chat_request("m")).await;
        let mut up = Http2Upstream::new(world.upstream().await);
        let one = streams(up.asked().await);
        second.send(chat_request("m")).await;
        let two = streams(up.asked().await);
        for (pause, text) in [(40, "a"), (60, "b")] {
            sleep(ms(pause)).await;
            one.try_send(chat_delta(text).into()).unwrap();
            first.read_to(&format!("{text:?}")).await;
        }
        sleep(ms(80)).await;
        let outcome = if leaves {
            drop(first);
            Outcome::ClientGone
        } else {
            drop(one);
            Outcome::Truncated
        };
        let cut = world.record().await;
        assert_eq!(cut.outcome, outcome);
        let expected = [("tcp", 30), ("first_output_wait", 40), ("generation", 60), ("tail", 80)];
        assert_eq!(stages(&cut), expected, "{outcome:?}");
        two.try_send(chat_delta("c").into()).unwrap();
        two.try_send(chat_end(7, 1).into()).unwrap();
        drop(two);
        second.read_to(LAST_CHUNK).await;
        let whole = world.record().await;
        assert_eq!(whole.outcome, Outcome::Complete);
        assert_eq!(stages(&whole), [("first_output_wait", 180)]);
    }
}

/// An upstream that takes one request at a time on each connection: the others wait inside the library.
fn one_at_a_time(peer: Peer) -> (mpsc::Receiver<Request<hyper::body::Incoming>>, JoinHandle<()>) {
    let (io, _) = peer.into_inner();
    let (tell, asked) = mpsc::channel(10);
    let served = tokio::spawn(async move {
        let service = hyper::service::service_fn(move |request| {
            tell.try_send(request).expect("room for the request");
            std::future::pending::<Result<Response<Fed>, std::convert::Infallible>>()
        });
        let mut server = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
        server.max_concurrent_streams(1);
        let _ = server.serve_connection(hyper_util::rt::TokioIo::new(io), service).await;
    });
    (asked, served)
}

/// A world with a client whose request waited 145 ms in a connection that was lost then: it never left, and is under way
/// again.
async fn sent_again() -> (World, Peer) {
    let mut world = World::new(WorldOptions {
        tcp: ms(30),
        upstream: |upstream| {
            http2(upstream);
            upstream.limits.connect = ms(500);
        },
        ..WorldOptions::default()
    });
    let mut clients = [world.client(), world.client(), world.client()];
    clients[0].send(NO_BODY).await;
    let (mut asked, served) = one_at_a_time(world.upstream().await);
    asked.recv().await.expect("the first request");
    // The library has begun to send the second when it learns that there is no room, and keeps the third as it is. So
    // when the connection is lost, the third is known never to have left.
    let [mut first, mut second, mut third] = clients;
    second.send(NO_BODY).await;
    sleep(ms(5)).await;
    third.send(NO_BODY).await;
    sleep(ms(145)).await;
    served.abort();
    for client in [&mut first, &mut second] {
        assert!(client.head().await.starts_with("HTTP/1.1 502 "));
        let lost = world.record().await;
        assert_eq!((lost.outcome, lost.attempts), (Outcome::UpstreamReset, 1));
        assert_eq!(stages(&lost).last(), Some(&("first_output_wait", 150)));
    }
    (world, third)
}

#[tokio::test(start_paused = true)]
async fn what_a_first_attempt_took_is_retry() {
    let (mut world, mut client) = sent_again().await;
    let mut up = Http2Upstream::new(world.upstream().await);
    let Asked { answer, .. } = up.asked().await;
    sleep(ms(20)).await;
    let (feed, body) = fed();
    assert!(answer.send(Response::new(body)).is_ok());
    drop(feed);
    client.head().await;
    let record = world.record().await;
    assert_eq!((record.outcome, record.attempts, record.flags.retried), (Outcome::Complete, 2, true));
    assert_eq!(stages(&record), [("retry", 145), ("tcp", 30), ("first_output_wait", 20)]);
    let retried = "streamgauge_attempts_total{upstream=\"up\",result=\"retried\"} 1";
    assert!(world.scrape().lines().any(|line| line == retried));
    assert_eq!(record.overhead_request(), None, "the earlier attempt is no overhead");
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_that_reaches_nobody_has_no_mark_of_the_first() {
    for leaves in [true, false] {
        let (mut world, mut client) = sent_again().await;
        let (outcome, dialled) = if leaves {
            sleep(ms(20)).await;
            drop(client);
            (Outcome::ClientGone, 20)
        } else {
            world.refuse();
            assert!(client.head().await.starts_with("HTTP/1.1 502 "));
            (Outcome::Unreachable, 30)
        };
        let record = world.record().await;
        assert_eq!((record.outcome, record.attempts), (outcome, 2));
        assert_eq!((record.timeline.sent_first, record.timeline.sent_last), (None, None), "{outcome:?}");
        assert_eq!(stages(&record), [("retry", 145), ("tcp", dialled)], "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_1_upstream_behind_an_http_2_client_says_when_bytes_left() {
    let mut world = World::new(WorldOptions { upstream_pipe: Some(4096), ..WorldOptions::default() });
    let (voice, asked) = ask(&world, "/v1/files");
    let mut up = world.upstream().await;
    up.head().await;
    voice.try_send(Ok(Frame::data(Bytes::from(vec![b'x'; 12_000])))).unwrap();
    drop(voice);
    sleep(ms(240)).await;
    up.read_to("0\r\n\r\n").await;
    up.send(PLAIN).await;
    assert_eq!(asked.await.unwrap(), "null");
    let record = world.record().await;
    assert_eq!(record.connection.client_version, Some(Version::HTTP_2));
    assert_eq!(stages(&record), [("upload", 240)]);
    assert_eq!((record.timeline.waits.upstream_stalls, record.timeline.waits.client_stalls), (1, 0));
}
