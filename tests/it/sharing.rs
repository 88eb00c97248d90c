//! Streams that share a connection of HTTP/2: one that is not taken holds up no other.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use streamgauge::{config::HttpVersion, observation::Outcome};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::support::{
    Live, Peer, World, WorldOptions,
    http2::{Fed, Http2Upstream, fed, http2_client},
};

/// Nothing here takes longer, however busy the machine is.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), future).await.unwrap_or_else(|_| panic!("{what}: it never came"))
}

/// A client whose streams take 64 KiB unread each, and hold up nothing else.
async fn client(peer: Peer) -> SendRequest<Fed> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(1 << 30)
        .handshake(TokioIo::new(peer.into_inner().0))
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// The n-th event of a stream.
fn event(n: usize, bytes: usize) -> Bytes {
    format!("data: {n:0width$}\n\n", width = bytes - 8).into()
}

/// A streamed answer that has begun, and what feeds it.
async fn begin(client: &mut SendRequest<Fed>, up: &mut Http2Upstream) -> (Response<Incoming>, mpsc::Sender<Bytes>) {
    let request = Request::get("http://gauge.test/v1/events").body(fed().1).expect("a request");
    let (feed, body) = fed();
    let answer = Response::builder().header("content-type", "text/event-stream").body(body).expect("an answer");
    let answering = async { up.asked().await.answer.send(answer).map_err(|_| "gone") };
    let (response, answered) = soon("an answer", async { tokio::join!(client.send_request(request), answering) }).await;
    answered.expect("somebody waits for it");
    (response.expect("a response"), feed)
}

/// So many streams of as many events are not read, while another goes by on the same connection; then they are.
async fn unread(streams: usize, events: usize, bytes: usize) {
    let mut live = Live::start(None, |upstream| upstream.http = HttpVersion::Http2).await;
    let mut client = client(live.client().await).await;
    let first = Request::get("http://gauge.test/v1/models").body(fed().1).expect("a request");
    let (response, mut up) = tokio::join!(client.send_request(first), async {
        let mut up = Http2Upstream::new(live.upstream().await);
        up.asked().await.answer.send(Response::new(fed().1)).map_err(|_| "gone").expect("somebody waits");
        up
    });
    soon("the first answer", response.expect("a response").into_body().collect()).await.expect("a whole answer");
    let mut held = Vec::new();
    for _ in 0..streams {
        held.push(begin(&mut client, &mut up).await);
    }
    let mut feeding = Vec::new();
    let mut unread = Vec::new();
    for (response, feed) in held {
        unread.push(response);
        feeding.push(tokio::spawn(async move {
            for n in 0..events {
                feed.send(event(n, bytes)).await.expect("a stream that is not cut");
            }
            while feed.capacity() < feed.max_capacity() {
                sleep(Duration::from_millis(1)).await;
            }
        }));
    }
    for feeding in feeding {
        soon("room for all events", feeding).await.expect("all of them sent");
    }
    let (another, feed) = begin(&mut client, &mut up).await;
    feed.send(event(7, bytes)).await.expect("a reader");
    drop(feed);
    let other = soon("the other stream", another.into_body().collect()).await.expect("a whole answer");
    assert_eq!(other.to_bytes(), event(7, bytes));
    let sent: Vec<u8> = (0..events).flat_map(|n| event(n, bytes)).collect();
    for response in unread {
        let body = soon("a held stream", response.into_body().collect()).await.expect("a whole answer").to_bytes();
        assert!(body == sent, "{} of {} bytes", body.len(), sent.len());
    }
    for _ in 0..streams + 2 {
        assert_eq!(live.record().await.outcome, Outcome::Complete);
    }
    drop(client);
    live.finish().await;
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_up_no_other_of_their_connection() {
    unread(24, 256, 4096).await;
}

/// Where the library bounds what it holds in small pieces for a connection, and ends it beyond: all streams with it.
#[tokio::test]
async fn many_small_events_that_nobody_reads_cost_no_other_stream_its_connection() {
    unread(3, 16_000, 40).await;
}

#[tokio::test(start_paused = true)]
async fn uploads_that_nobody_takes_hold_up_no_other_of_their_connection() {
    let mut world = World::new(WorldOptions::narrow());
    let mut client = http2_client(world.client()).await;
    let mut held = Vec::new();
    for _ in 0..12 {
        let (feed, body) = fed();
        let request = Request::post("http://gauge.test/v1/files").body(body).expect("a request");
        let answer = tokio::spawn(client.send_request(request));
        feed.send(Bytes::from_static(b"begins")).await.expect("a reader");
        let up = world.upstream().await;
        for _ in 0..64 {
            feed.send(vec![b'x'; 16 * 1024].into()).await.expect("a reader");
        }
        held.push((feed, answer, up));
    }
    sleep(Duration::from_secs(1)).await;
    let (feed, body) = fed();
    let request = Request::post("http://gauge.test/v1/files").body(body).expect("a request");
    let answer = tokio::spawn(client.send_request(request));
    feed.send(Bytes::from_static(b"all of it")).await.expect("a reader");
    drop(feed);
    let mut up = world.upstream().await;
    soon("the other upload", up.read_to("all of it")).await;
    up.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    let answer = soon("its answer", answer).await.expect("no panic").expect("a response");
    assert_eq!(answer.into_body().collect().await.expect("a whole answer").to_bytes(), "{}");
    assert_eq!(world.record().await.outcome, Outcome::Complete);
}
