//! Connections to the upstream: which one serves an exchange, what it cost, and when it goes.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use streamgauge::{
    config::{HttpVersion, Upstream},
    net::{BoxIo, Socket},
    observation::{Observation, Outcome},
    upstream::{Dial, Dialling},
};
use tokio::{sync::mpsc, time::sleep};

use crate::support::{
    Peer, World, WorldOptions,
    http2::{Asked, Http2Upstream, fed, http2_client},
    ms, ms_of, stages,
    tls::{accept_tls_http2, speak_tls},
    whole_ms,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: gauge.test\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

fn limited(upstream: fn(&mut Upstream)) -> WorldOptions {
    WorldOptions { upstream, ..WorldOptions::default() }
}

/// The upstream answers the request it has.
async fn answer(up: &mut Peer) {
    up.head().await;
    up.send(OK).await;
}

/// One exchange of a fresh client, answered on this connection.
async fn exchange(world: &mut World, up: &mut Peer) -> Observation {
    let mut client = world.client();
    client.send(GET).await;
    answer(up).await;
    client.read_to("{}").await;
    world.record().await
}

/// One exchange of a fresh client, for which the gateway must dial.
async fn dialling_exchange(world: &mut World) -> (Observation, Peer) {
    let mut client = world.client();
    client.send(GET).await;
    let mut up = world.upstream().await;
    answer(&mut up).await;
    client.read_to("{}").await;
    let record = world.record().await;
    assert_eq!(record.connection.reused, Some(false));
    (record, up)
}

/// The upstream's side ends without another byte.
async fn closed(mut up: Peer) {
    assert!(up.rest().await.is_empty(), "closed, with nothing sent on it");
}

#[tokio::test(start_paused = true)]
async fn the_connection_used_last_is_used_next() {
    let mut world = World::new(WorldOptions::default());
    let (mut one, mut two) = (world.client(), world.client());
    one.send(GET).await;
    let mut older = world.upstream().await;
    two.send(GET).await;
    let mut newer = world.upstream().await;
    answer(&mut older).await;
    world.record().await;
    answer(&mut newer).await;
    world.record().await;
    for _ in 0..3 {
        let record = exchange(&mut world, &mut newer).await;
        assert_eq!(record.connection.reused, Some(true));
        let marks = &record.timeline;
        assert_eq!((marks.dns, marks.tcp, marks.tls), (None, None, None), "only who dials has dialled");
    }
    // Not used for 15 s, the other one grew old while this one served.
    sleep(ms(14_000)).await;
    exchange(&mut world, &mut newer).await;
    sleep(ms(2_000)).await;
    world.gateway.sweep();
    closed(older).await;
    exchange(&mut world, &mut newer).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_idled_too_long_is_closed_and_not_used() {
    for sweeps in [false, true] {
        let mut world = World::new(limited(|upstream| upstream.limits.idle_connection = ms(1_000)));
        let (_, mut up) = dialling_exchange(&mut world).await;
        sleep(ms(999)).await;
        world.gateway.sweep();
        exchange(&mut world, &mut up).await;
        sleep(ms(1_000)).await;
        if sweeps {
            world.gateway.sweep();
        } else {
            dialling_exchange(&mut world).await;
        }
        closed(up).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_grows_too_old_however_busy_it_is() {
    let mut world = World::new(limited(|upstream| upstream.limits.max_connection_age = ms(2_000)));
    let (_, mut up) = dialling_exchange(&mut world).await;
    for _ in 0..3 {
        sleep(ms(600)).await;
        exchange(&mut world, &mut up).await;
    }
    sleep(ms(200)).await;
    dialling_exchange(&mut world).await;
    closed(up).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_idle_is_skipped_without_an_attempt() {
    let mut world = World::new(WorldOptions::default());
    let (_, up) = dialling_exchange(&mut world).await;
    drop(up);
    tokio::task::yield_now().await;
    let (record, _) = dialling_exchange(&mut world).await;
    assert_eq!((record.attempts, record.flags.retried), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_never_sent_again_on_http_1() {
    // On the first connection ever: not again.
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send(GET).await;
    drop(world.upstream().await);
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    assert_eq!(world.record().await.attempts, 1);

    // A byte was taken: not again, though the connection was reused.
    let (_, mut up) = dialling_exchange(&mut world).await;
    let mut client = world.client();
    client.send(GET).await;
    up.read(1).await;
    drop(up);
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    let record = world.record().await;
    assert_eq!((record.attempts, record.outcome), (1, Outcome::UpstreamReset));
    assert_eq!(record.connection.reused, Some(true));

    // None could be taken: that the connection is dead is seen before it is leased, and the fresh one is the first.
    let (_, up) = dialling_exchange(&mut world).await;
    let mut client = world.client();
    client.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\n\r\nnull").await;
    drop(up);
    let mut up = world.upstream().await;
    assert!(up.read_to("null").await.starts_with("POST / "), "the request is whole");
    drop(up);
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    let record = world.record().await;
    assert_eq!((record.attempts, record.flags.retried), (1, false));
    assert_eq!((record.outcome, record.request_bytes), (Outcome::UpstreamReset, 4));
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_exchange_failed_is_closed() {
    let mut world = World::new(limited(|upstream| upstream.limits.idle = Some(ms(500))));
    for leaves in [true, false] {
        let (mut client, mut up) = world.asked(GET).await;
        up.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
        client.read_to("half").await;
        if leaves {
            drop(client);
        }
        closed(up).await;
        world.record().await;
    }
    let (_, up) = dialling_exchange(&mut world).await;
    drop(up);
}

#[tokio::test(start_paused = true)]
async fn what_the_upstream_will_close_is_not_kept() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    up.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}").await;
    client.read_to("{}").await;
    closed(up).await;
    world.record().await;
    dialling_exchange(&mut world).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_got_rid_of_its_request_is_not_waited_for() {
    let mut world = World::new(WorldOptions { upstream_pipe: Some(2048), ..WorldOptions::default() });
    let mut client = world.client();
    let body = "x".repeat(6_000);
    client.send(format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
    // Answered in full, and the rest of the request never read.
    let mut stuck = world.upstream().await;
    sleep(ms(50)).await;
    stuck.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n").await;
    client.head().await;
    assert_eq!(world.record().await.outcome, Outcome::Upstream4xx);
    let (record, _) = dialling_exchange(&mut world).await;
    assert!(whole_ms(record.wall()) <= 5, "{:?}", record.wall());
}

/// Names and addresses as a test says; counts what it was asked for.
struct Scripted {
    ends: mpsc::Sender<BoxIo>,
    addresses: Vec<SocketAddr>,
    alive: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Dial for Scripted {
    fn resolve(&self, host: &str, port: u16) -> Dialling<Vec<SocketAddr>> {
        self.asked.lock().unwrap().push(format!("{host}:{port}"));
        let addresses = self.addresses.clone();
        Box::pin(async move { Ok(addresses) })
    }

    fn connect(&self, address: SocketAddr) -> Dialling<Socket> {
        self.asked.lock().unwrap().push(address.to_string());
        let (ends, alive) = (self.ends.clone(), address == self.alive);
        Box::pin(async move {
            sleep(ms(10)).await;
            if !alive {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            ends.try_send(Box::new(theirs)).unwrap();
            Ok(Socket::Other(Box::new(ours)))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_address_is_tried_and_a_name_believed_for_its_time() {
    let (ends, dialled) = mpsc::channel(10);
    let [dead, alive] = ["192.0.2.1:80", "192.0.2.2:80"].map(|address| address.parse().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let dial = Scripted { ends, addresses: vec![dead, alive], alive, asked: Arc::clone(&asked) };
    let options = limited(|upstream| {
        upstream.host = "up.test".to_owned();
        upstream.limits.dns_ttl = ms(30_000);
        upstream.limits.idle_connection = ms(1);
    });
    let mut world = World::with_dial(options, Arc::new(dial), dialled);
    let taken = || std::mem::take(&mut *asked.lock().unwrap());
    let (record, _) = dialling_exchange(&mut world).await;
    assert_eq!(taken(), ["up.test:80", "192.0.2.1:80", "192.0.2.2:80"]);
    assert_eq!(stages(&record), [("tcp", 20)], "all addresses tried");
    sleep(ms(29_900)).await;
    let (record, _) = dialling_exchange(&mut world).await;
    assert_eq!(taken(), ["192.0.2.1:80", "192.0.2.2:80"], "still believed");
    assert_eq!(record.timeline.dns, None);
    sleep(ms(200)).await;
    dialling_exchange(&mut world).await;
    assert_eq!(taken(), ["up.test:80", "192.0.2.1:80", "192.0.2.2:80"], "asked for again");
}

// === HTTP/2 ===

fn http2(upstream: fn(&mut Upstream)) -> WorldOptions {
    WorldOptions { upstream, tcp: ms(30), ..WorldOptions::default() }
}

fn ok(asked: Asked) {
    let (feed, body) = fed();
    assert!(asked.answer.send(Response::new(body)).is_ok());
    feed.try_send("{}".into()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn exchanges_share_a_connection_and_wait_for_the_one_that_dials() {
    let mut world = World::new(http2(|upstream| {
        upstream.http = HttpVersion::Http2;
        // One connection, not one exchange.
        upstream.limits.max_connections = Some(1);
    }));
    let mut clients = [world.client(), world.client(), world.client()];
    for client in &mut clients {
        client.send(GET).await;
    }
    let mut up = Http2Upstream::new(world.upstream().await);
    let asked = [up.asked().await, up.asked().await, up.asked().await];
    for (asked, client) in asked.into_iter().zip(&mut clients) {
        ok(asked);
        client.head().await;
    }
    let mut records = [world.record().await, world.record().await, world.record().await];
    records.sort_by_key(|record| record.connection.reused);
    assert_eq!(stages(&records[0]), [("tcp", 30)]);
    assert_eq!(records[0].connection.reused, Some(false));
    for record in &records[1..] {
        assert_eq!(stages(record), [("pool_wait", 30)], "another one dialled");
        assert_eq!((record.connection.reused, record.timeline.tcp), (Some(true), None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_gets_a_second_and_a_leaving_one_is_left() {
    let mut world = World::new(http2(|upstream| {
        upstream.http = HttpVersion::Http2;
        upstream.limits.max_streams_per_connection = 2;
    }));
    let mut clients = [world.client(), world.client(), world.client()];
    for client in &mut clients {
        client.send(GET).await;
    }
    let (mut full, mut second) =
        (Http2Upstream::new(world.upstream().await), Http2Upstream::new(world.upstream().await));
    let (one, two) = (full.asked().await, full.asked().await);
    ok(second.asked().await);
    // GOAWAY: what is under way runs on, what comes goes elsewhere, and at the end the connection closes.
    full.leave();
    sleep(ms(1)).await;
    let mut next = world.client();
    next.send(GET).await;
    ok(second.asked().await);
    ok(one);
    ok(two);
    for _ in 0..4 {
        let record = world.record().await;
        assert_eq!(record.outcome, Outcome::Complete);
    }
    full.ended().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_http2_connection_is_closed_like_any_other() {
    let mut world = World::new(http2(|upstream| {
        upstream.http = HttpVersion::Http2;
        upstream.limits.idle_connection = ms(1_000);
    }));
    let mut client = world.client();
    client.send(GET).await;
    let mut up = Http2Upstream::new(world.upstream().await);
    let asked = up.asked().await;
    // Used for longer than it may idle.
    sleep(ms(1_500)).await;
    world.gateway.sweep();
    ok(asked);
    client.head().await;
    world.record().await;
    sleep(ms(999)).await;
    world.gateway.sweep();
    client.send(GET).await;
    ok(up.asked().await);
    assert_eq!(world.record().await.connection.reused, Some(true));
    sleep(ms(1_000)).await;
    world.gateway.sweep();
    up.ended().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_dial_that_hangs_waits_no_longer_than_its_own_limit() {
    let mut world = World::new(WorldOptions {
        tcp: ms(60_000),
        upstream: |upstream| {
            upstream.http = HttpVersion::Http2;
            upstream.limits.connect = ms(500);
        },
        ..WorldOptions::default()
    });
    let mut clients = [world.client(), world.client(), world.client()];
    for client in &mut clients {
        client.send(GET).await;
    }
    for client in &mut clients {
        assert!(client.head().await.starts_with("HTTP/1.1 504 "));
        let record = world.record().await;
        assert_eq!((record.outcome, whole_ms(record.wall())), (Outcome::Unreachable, 500));
        stages(&record);
    }
}

#[tokio::test(start_paused = true)]
async fn alpn_decides_and_both_sides_may_speak_http2() {
    let mut world = World::new(WorldOptions { dns: Some(ms(0)), upstream: speak_tls, ..WorldOptions::default() });
    let mut client = http2_client(world.client()).await;
    let (feed, body) = fed();
    let request = Request::builder().method(Method::POST).uri("http://gauge.test/v1/files").body(body).unwrap();
    let answer = tokio::spawn(client.send_request(request));
    let mut up = Http2Upstream::new(accept_tls_http2(world.upstream().await).await);
    let asked = up.asked().await;
    sleep(ms(100)).await;
    feed.try_send("null".into()).unwrap();
    drop(feed);
    let Asked { request, answer: answering } = asked;
    assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "null");
    sleep(ms(50)).await;
    let (feed, body) = fed();
    assert!(answering.send(Response::new(body)).is_ok());
    sleep(ms(20)).await;
    feed.try_send("{}".into()).unwrap();
    drop(feed);
    let body = answer.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "{}");
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(stages(&record), [("receive", 100), ("first_output_wait", 70)]);
    assert_eq!(ms_of(record.timeline.ttfb()), Some(70));
    assert!(record.flags.overhead_lower_bound);
}
