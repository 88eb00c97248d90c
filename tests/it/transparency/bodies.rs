//! Bodies of every kind and size, both ways.

use streamgauge::observation::Outcome;

use crate::support::{Sides, World, WorldOptions, assert_same};

const GET: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn with_length(start: &str, body: &[u8]) -> Vec<u8> {
    [format!("{start}\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// Bytes without any pattern that a codec could fold away.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn bodies_with_a_length_pass_untouched() {
    let bodies: [&[u8]; 6] = [
        b"x",
        b"\0\xff\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"{\"a\":1}\n{\"b\":2}\n",
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0",
        b"data: x\r\ndata:y\r\rdata: z\n\n",
        &noise(300_000),
    ];
    for body in bodies {
        let request = with_length("POST / HTTP/1.1\r\nHost: 127.0.0.1:80", body);
        let response = with_length("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson", body);
        let record = World::new(WorldOptions::default()).relay(Sides::same(&request), Sides::same(&response)).await;
        assert_eq!(record.outcome, Outcome::Complete);
        assert_eq!((record.request_bytes, record.response_bytes), (body.len() as u64, body.len() as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn ten_megabytes_pass_each_way() {
    let body = noise(10_000_000);
    let request = with_length("POST / HTTP/1.1\r\nHost: 127.0.0.1:80", &body);
    let response = with_length("HTTP/1.1 200 OK", &body);
    let record = World::new(WorldOptions::default()).relay(Sides::same(&request), Sides::same(&response)).await;
    assert_eq!((record.request_bytes, record.response_bytes), (10_000_000, 10_000_000));
}

#[tokio::test(start_paused = true)]
async fn chunked_bodies_stay_chunked() {
    let request = "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTRANSFER-encoding: chunked\r\nx-a: 1\r\n\r\n\
         4\r\nping\r\n0\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\nx-a: 1\r\n\r\n4\r\npong\r\n0\r\n\r\n";
    let record = World::new(WorldOptions::default()).relay(Sides::same(request), Sides::same(response)).await;
    assert_eq!((record.request_bytes, record.response_bytes), (4, 4));
    let empty = "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(empty), Sides::same(response)).await;
}

#[tokio::test(start_paused = true)]
async fn chunk_extensions_and_sizes_are_the_hops_own() {
    let sent =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0004;x=\"1\"\r\npong\r\nA\r\n0123456789\r\n000\r\n\r\n";
    let out = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\nA\r\n0123456789\r\n0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(GET), Sides::changed(sent, out)).await;
}

#[tokio::test(start_paused = true)]
async fn other_transfer_codings_keep_their_header() {
    let request =
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nping\r\n0\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\npong\r\n0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(request), Sides::same(response)).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_up_to_the_connections_end_is_chunked_for_the_client() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    up.send("HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nhello").await;
    assert_eq!(
        client.read_to("hello\r\n").await,
        "HTTP/1.1 200 OK\r\nX-A: 1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    );
    up.shutdown().await;
    assert_eq!(client.read_to("0\r\n\r\n").await, "0\r\n\r\n");
    let record = world.record().await;
    assert_eq!((record.outcome, record.response_bytes), (Outcome::Complete, 5));
    client.assert_silent().await;
    world.assert_no_record();
}

#[tokio::test(start_paused = true)]
async fn trailers_pass_both_ways_where_they_were_announced() {
    let request = "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTE: trailers\r\nTrailer: x-sum, X-Two\r\n\
         Transfer-Encoding: chunked\r\n\r\n4\r\nping\r\n0\r\nx-sum: 1\r\nx-two: a\r\nx-two: b\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\npong\r\n0\r\nx-sum: 2\r\n\r\n";
    let record = World::new(WorldOptions::default()).relay(Sides::same(request), Sides::same(response)).await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert!(record.timeline.response_end.is_some() && record.timeline.request_end.is_some());
}

#[tokio::test(start_paused = true)]
async fn trailers_nobody_announced_or_asked_for_stay_behind() {
    let te = "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTE: trailers\r\n\r\n";
    let unannounced = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\n0\r\nx-sum: 2\r\n\r\n";
    let out = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\n0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(te), Sides::changed(unannounced, out)).await;
    let announced = "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\npong\r\n0\r\nx-sum: 2\r\n\r\n";
    let out = "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\n0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(GET), Sides::changed(announced, out)).await;
    let request = "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\nping\r\n0\r\nx-sum: 1\r\n\r\n";
    let out = "POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::changed(request, out), Sides::same(OK)).await;
}

#[tokio::test(start_paused = true)]
async fn a_get_may_have_a_body() {
    let length = with_length("GET /search HTTP/1.1\r\nHost: 127.0.0.1:80", b"query");
    World::new(WorldOptions::default()).relay(Sides::same(&length), Sides::same(OK)).await;
    let chunked =
        "GET /search HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nquery\r\n0\r\n\r\n";
    World::new(WorldOptions::default()).relay(Sides::same(chunked), Sides::same(OK)).await;
}

#[tokio::test(start_paused = true)]
async fn one_connection_serves_many_exchanges_on_both_sides() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let mut upstream = None;
    for i in 0..20 {
        let request = with_length(&format!("POST /{i} HTTP/1.1\r\nHost: 127.0.0.1:80"), &noise(i * 100));
        let response = with_length("HTTP/1.1 200 OK", &noise(i * 37));
        client.send(&request).await;
        let up = match &mut upstream {
            None => upstream.insert(world.upstream().await),
            Some(up) => up,
        };
        assert_same(&up.read(request.len()).await, &request);
        up.send(&response).await;
        assert_same(&client.read(response.len()).await, &response);
        let record = world.record().await;
        assert_eq!((record.outcome, record.connection.reused), (Outcome::Complete, Some(i > 0)));
    }
    assert!(!world.has_dialled());
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}
