//! A thread per core: how connections fall on them, what each has of its own, and what all have together.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http::Request;
use streamgauge::{
    app::{App, Stop},
    clock::Clock,
    config::{Config, HttpVersion, Overrides, Runtime, Upstream},
    observation::Outcome,
    record::Recorder,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

use crate::support::{
    LAST_CHUNK, Live, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chunk,
    http2::{Http2Upstream, fed, http2_client},
    ms,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: gauge.test\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

fn two_cores(config: &mut Config) {
    config.runtime = Runtime::PerCore;
    config.workers = Some(2);
}

fn world(upstream: fn(&mut Upstream)) -> World {
    World::new(WorldOptions { upstream, config: two_cores, ..WorldOptions::default() })
}

async fn answer(up: &mut Peer) {
    up.head().await;
    up.send(OK).await;
}

/// An exchange of a client on this core. It takes a connection that is there, which is `up`'s, or dials.
async fn exchange(world: &mut World, core: usize, up: Option<&mut Peer>) -> Option<Peer> {
    let mut client = world.client_on(core);
    client.send(GET).await;
    let reused = up.is_some();
    let mut dialled = match up {
        Some(up) => {
            answer(up).await;
            None
        }
        None => Some(world.upstream().await),
    };
    if let Some(up) = &mut dialled {
        answer(up).await;
    }
    client.read_to("{}").await;
    assert_eq!(world.record().await.connection.reused, Some(reused), "core {core}");
    assert!(!world.has_dialled());
    dialled
}

#[tokio::test(start_paused = true)]
async fn each_core_has_connections_of_its_own() {
    let mut world = world(|_| {});
    let mut first = exchange(&mut world, 0, None).await.unwrap();
    let mut second = exchange(&mut world, 1, None).await.unwrap();
    for _ in 0..3 {
        exchange(&mut world, 0, Some(&mut first)).await;
        exchange(&mut world, 1, Some(&mut second)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_core_does_not_need_another_takes_before_it_dials() {
    let mut world = world(|_| {});
    let mut only = exchange(&mut world, 0, None).await.unwrap();
    for core in [1, 1, 0, 1] {
        sleep(ms(1100)).await;
        exchange(&mut world, core, Some(&mut only)).await;
    }
    // It goes back where it came from, and is in use there now.
    let mut fresh = exchange(&mut world, 1, None).await.unwrap();
    exchange(&mut world, 0, Some(&mut only)).await;
    exchange(&mut world, 1, Some(&mut fresh)).await;
    // Of two, core 0 gives the one that idled longer, and keeps the newer.
    let mut ups = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = world.client_on(0);
        client.send(GET).await;
        clients.push(client);
    }
    only.head().await;
    ups.push(world.upstream().await);
    ups[0].head().await;
    only.send(OK).await;
    world.record().await;
    sleep(ms(5)).await;
    ups[0].send(OK).await;
    world.record().await;
    drop(fresh);
    sleep(ms(1100)).await;
    exchange(&mut world, 1, Some(&mut only)).await;
    exchange(&mut world, 0, Some(&mut only)).await;
}

#[tokio::test(start_paused = true)]
async fn limited_connections_are_limited_over_all_cores() {
    let mut world = world(|upstream| upstream.limits.max_connections = Some(1));
    let mut only = exchange(&mut world, 0, None).await.unwrap();
    for core in [1, 0, 1] {
        exchange(&mut world, core, Some(&mut only)).await;
    }
    let (mut first, mut second) = (world.client_on(1), world.client_on(0));
    first.send(GET).await;
    only.head().await;
    second.send(GET).await;
    only.assert_silent().await;
    assert!(!world.has_dialled(), "it waits");
    only.send(OK).await;
    first.read_to("{}").await;
    answer(&mut only).await;
    second.read_to("{}").await;
    assert!(!world.has_dialled());
}

#[tokio::test(start_paused = true)]
async fn streams_of_http2_share_their_cores_connection_and_where_limited_all_the_one() {
    let unlimited: fn(&mut Upstream) = |upstream| upstream.http = HttpVersion::Http2;
    let limited: fn(&mut Upstream) = |upstream| {
        upstream.http = HttpVersion::Http2;
        upstream.limits.max_connections = Some(1);
    };
    for (upstream, connections) in [(unlimited, 2), (limited, 1)] {
        let mut world = world(upstream);
        let mut under_way = Vec::new();
        let mut ups: Vec<Http2Upstream> = Vec::new();
        for core in [0, 1, 0, 1] {
            let mut client = http2_client(world.client_on(core)).await;
            let (feed, body) = fed();
            drop(feed);
            let asked = client.send_request(Request::post("http://gauge.test/").body(body).unwrap());
            sleep(ms(10)).await;
            if world.has_dialled() {
                ups.push(Http2Upstream::new(world.upstream().await));
                sleep(ms(10)).await;
            }
            under_way.push((client, asked));
        }
        assert_eq!(ups.len(), connections);
        assert_eq!(world.in_flight(), 4);
        let mut asked = 0;
        for up in &mut ups {
            for _ in 0..4 / connections {
                up.asked().await;
                asked += 1;
            }
        }
        assert_eq!(asked, 4);
    }
}

/// Waits until this many exchanges are under way on each of two cores.
async fn under_way(gauge: &Live, each: [usize; 2]) {
    while [gauge.shared().in_flight_on(0), gauge.shared().in_flight_on(1)] != each {
        sleep(ms(1)).await;
    }
}

/// A stream that waits for its answer: its client, and the upstream that was asked.
async fn asked(gauge: &Live) -> (Peer, Peer) {
    let mut client = gauge.client().await;
    client.send(chat_request("m")).await;
    let mut up = gauge.upstream().await;
    up.read_to("[]}").await;
    (client, up)
}

#[tokio::test]
async fn connections_fall_evenly_whatever_closes() {
    let mut gauge = Live::start_with(None, |_| {}, two_cores).await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(asked(&gauge).await);
    }
    under_way(&gauge, [32, 32]).await;
    // All the clients of one core leave but two: those that come next make up for it.
    let (gone, stay): (Vec<_>, Vec<_>) = streams.into_iter().enumerate().partition(|(at, _)| at % 2 == 0 && *at > 3);
    let many = gone.len();
    drop(gone);
    for _ in 0..many {
        assert_eq!(gauge.record().await.outcome, Outcome::ClientGone);
    }
    // A record is told a moment before its exchange is counted out.
    while gauge.shared().in_flight() > 64 - many {
        sleep(Duration::from_millis(1)).await;
    }
    let left = [gauge.shared().in_flight_on(0), gauge.shared().in_flight_on(1)];
    assert_eq!((left[0].min(left[1]), left[0].max(left[1])), (32 - many, 32), "they took turns");
    let mut streams: Vec<_> = stay.into_iter().map(|(_, both)| both).collect();
    for _ in 0..many {
        streams.push(asked(&gauge).await);
    }
    under_way(&gauge, [32, 32]).await;
    for (client, up) in &mut streams {
        up.send(format!("{SSE_HEAD}{}{LAST_CHUNK}", chunk(&chat_end(1, 1)))).await;
        client.read_to(LAST_CHUNK).await;
        assert_eq!(gauge.record().await.outcome, Outcome::Complete);
    }
    gauge.finish().await;
}

/// A gauge on two cores before this upstream, whose listener panics over what is asked of `/panic`.
fn panicking(upstream: SocketAddr) -> (App, SocketAddr) {
    let overrides = Overrides {
        listen: vec!["127.0.0.1:0".to_owned()],
        upstreams: vec![format!("up=http://{upstream}")],
        admin: Some("off".to_owned()),
        workers: Some("2".to_owned()),
        runtime: Some("per-core".to_owned()),
        ..Overrides::default()
    };
    let config = Config::from_toml("", Path::new(""), &overrides).expect("a valid configuration");
    let clock = Clock::start();
    let recorder = Recorder::new(&config, clock).expect("no file to open");
    let recorder = recorder.with_listener(Box::new(|record| {
        assert_ne!(record.path.as_deref(), Some("/panic"), "as the test asks for");
    }));
    let app = App::bind_with(&config, recorder, clock).expect("free ports");
    let address = app.addresses()[0];
    (app, address)
}

#[tokio::test]
async fn a_panic_costs_one_connection_and_no_core() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (app, address) = panicking(upstream.local_addr().unwrap());
    let (stop, shared) = (Stop::default(), Arc::clone(app.shared()));
    let running = tokio::spawn(app.run(stop.clone()));
    let client = async || Peer::new(Box::new(TcpStream::connect(address).await.unwrap()));
    // More than one on each core, so that those that come later meet the cores that had one.
    for path in ["/panic", "/a", "/panic", "/b", "/panic", "/c", "/panic", "/d"] {
        let mut client = client().await;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n")).await;
        let mut up = Peer::new(Box::new(upstream.accept().await.unwrap().0));
        up.head().await;
        up.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}").await;
        drop(up);
        let seen = client.rest().await;
        assert!(path == "/panic" || seen.ends_with(b"{}"), "{path}");
    }
    while shared.in_flight() > 0 {
        sleep(ms(1)).await;
    }
    stop.drain();
    tokio::time::timeout(Duration::from_secs(60), running).await.expect("it stops").expect("it does not panic");
}

#[tokio::test]
async fn who_drops_the_program_cuts_what_runs_on_its_cores() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (app, address) = panicking(upstream.local_addr().unwrap());
    let shared = Arc::clone(app.shared());
    let running = tokio::spawn(app.run(Stop::default()));
    let mut client = Peer::new(Box::new(TcpStream::connect(address).await.unwrap()));
    client.send(chat_request("m")).await;
    let mut up = Peer::new(Box::new(upstream.accept().await.unwrap().0));
    up.read_to("[]}").await;
    up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
    client.read_to("\"a\"").await;
    assert_eq!(shared.in_flight(), 1);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!client.rest().await.ends_with(LAST_CHUNK.as_bytes()), "an abort");
    up.assert_closed().await;
    while shared.in_flight() > 0 {
        sleep(ms(1)).await;
    }
}
