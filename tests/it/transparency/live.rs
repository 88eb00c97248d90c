//! What only real sockets show: the kernel's ends and resets.

use streamgauge::observation::Outcome;

use crate::support::{LAST_CHUNK, Live, SSE_HEAD, chunk};

const GET: &str = "GET / HTTP/1.1\r\nHost: gauge.test\r\n\r\n";

#[tokio::test]
async fn a_client_that_goes_closes_the_upstreams_socket() {
    let mut live = Live::start(None, |_| {}).await;
    // With bytes unread its kernel says so by a reset, otherwise by an end.
    for reads in [true, false] {
        let mut client = live.client().await;
        client.send(GET).await;
        let mut up = live.upstream().await;
        up.head().await;
        up.send([SSE_HEAD, &chunk("x")].concat()).await;
        client.head().await;
        if reads {
            client.read_to("x\r\n").await;
        }
        drop(client);
        up.assert_closed().await;
        assert_eq!(live.record().await.outcome, Outcome::ClientGone);
    }
    let mut client = live.client().await;
    client.send(GET).await;
    let mut up = live.upstream().await;
    up.head().await;
    drop(client);
    up.assert_closed().await;
    let record = live.record().await;
    assert_eq!((record.outcome, record.status), (Outcome::ClientGone, None));
    live.finish().await;
}

#[tokio::test]
async fn an_upstream_that_goes_cuts_the_client_off() {
    let mut live = Live::start(None, |_| {}).await;
    let upload = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000));
    // With bytes unread its kernel says so by a reset, otherwise by an end.
    for request in [GET, &upload] {
        let mut client = live.client().await;
        let mut up = tokio::join!(client.send(request), live.upstream()).1;
        up.head().await;
        up.send([SSE_HEAD, &chunk("x")].concat()).await;
        client.read_to("x\r\n").await;
        drop(up);
        client.assert_closed().await;
        assert_eq!(live.record().await.outcome, Outcome::UpstreamReset);
    }
    live.finish().await;
}

#[tokio::test]
async fn an_upload_that_nobody_takes_does_not_drown_its_answer() {
    let mut live = Live::start(None, |upstream| {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        upstream.port = free.local_addr().expect("an address").port();
    })
    .await;
    let mut client = live.client().await;
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n{}", "x".repeat(900_000));
    for _ in 0..3 {
        client.send(&request).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
        client.read_to("\"code\":\"upstream_unreachable\"").await;
        client.read_to("}}").await;
        assert_eq!(live.record().await.outcome, Outcome::Unreachable);
    }
    drop(client);
    live.finish().await;
}

#[tokio::test]
async fn a_stream_under_way_outlives_the_stop() {
    let live = Live::start(None, |_| {}).await;
    let mut client = live.client().await;
    client.send(GET).await;
    let mut up = live.upstream().await;
    up.head().await;
    up.send([SSE_HEAD, &chunk("x")].concat()).await;
    client.read_to("x\r\n").await;
    let address = live.address;
    let (record, ()) = tokio::join!(live.drained(), async {
        // The listener is closed first.
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        up.send([&chunk("y"), LAST_CHUNK].concat()).await;
        client.read_to(LAST_CHUNK).await;
    });
    assert_eq!((record.outcome, record.response_bytes), (Outcome::Complete, 2));
}
