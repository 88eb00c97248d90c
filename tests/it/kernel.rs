//! What the kernel says of real sockets: when bytes arrived, whatever this program was doing then.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use streamgauge::{
    clock::{Nanos, Stamp},
    config::{HttpVersion, Upstream},
    observation::{
        Observation,
        StampSource::{self, Kernel, User},
    },
};

use crate::support::{
    LAST_CHUNK, Live, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_role, chunk,
    speaker::{Said, Speaker, serve},
    tls,
};

const DONE: &str = "data: [DONE]\n\n";

fn ask() -> String {
    let body = "{\"model\":\"m\",\"stream\":true,\"messages\":[]}";
    format!("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// One exchange, stream and all.
async fn exchange(client: &mut Peer, up: &mut Peer) {
    up.read_to("[]}").await;
    up.send([SSE_HEAD, &chunk(&chat_role()), &chunk(&chat_delta("Hi"))].concat()).await;
    client.read_to("Hi").await;
    up.send([chunk(DONE), LAST_CHUNK.to_owned()].concat()).await;
    client.read_to(LAST_CHUNK).await;
}

fn sources(record: &Observation) -> (StampSource, Option<StampSource>) {
    (record.client_stamp, record.upstream_stamp)
}

#[tokio::test]
async fn both_sides_are_stamped_by_the_kernel() {
    let mut live = Live::start(None, |_| {}).await;
    let mut client = live.client().await;
    client.send(ask()).await;
    let mut up = live.upstream().await;
    exchange(&mut client, &mut up).await;
    assert_eq!(sources(&live.record().await), (Kernel, Some(Kernel)));
    // On kept connections, too.
    client.send(ask()).await;
    exchange(&mut client, &mut up).await;
    assert_eq!(sources(&live.record().await), (Kernel, Some(Kernel)));
    // Nothing came back, so nobody says by whom it was stamped.
    client.send(ask()).await;
    up.read_to("[]}").await;
    drop(up);
    client.head().await;
    assert_eq!(sources(&live.record().await), (Kernel, None));
    drop(client);
    live.finish().await;
}

#[tokio::test]
async fn both_sides_are_stamped_by_the_kernel_below_tls() {
    let certificate = tls::Certificate::new();
    let mut live = Live::start(Some(&certificate.pair), tls::speak_tls).await;
    let mut client = live.tls_client(&certificate, "http/1.1").await;
    client.send(ask()).await;
    let mut up = tls::accept_tls(live.upstream().await).await;
    exchange(&mut client, &mut up).await;
    assert_eq!(sources(&live.record().await), (Kernel, Some(Kernel)));
    drop(client);
    live.finish().await;
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let mut live = Live::start_with(None, |_| {}, |config| config.kernel_stamps = false).await;
    let mut client = live.client().await;
    client.send(ask()).await;
    let mut up = live.upstream().await;
    exchange(&mut client, &mut up).await;
    assert_eq!(sources(&live.record().await), (User, Some(User)));
    drop(client);
    live.finish().await;
}

/// Which stream a read of theirs belongs to nobody can say.
#[tokio::test]
async fn connections_of_many_streams_are_stamped_by_the_program() {
    let certificate = tls::Certificate::new();
    for (client_http2, by_tls, upstream_http2) in [(true, false, false), (true, true, false), (false, false, true)] {
        let change = |upstream: &mut Upstream| {
            if upstream_http2 {
                upstream.http = HttpVersion::Http2;
            }
        };
        let mut live = Live::start(Some(&certificate.pair), change).await;
        let client = if by_tls { live.tls_client(&certificate, "h2").await } else { live.client().await };
        let io = client.into_inner().0;
        let mut client = if client_http2 { Speaker::http2(io).await } else { Speaker::http1(io).await };
        for fresh in [true, false] {
            let request = Request::post("http://gauge.test/v1/embeddings").header("host", "gauge.test");
            let send = client.send(request.body(Said::all(Vec::new())).expect("a request"));
            let upstream = async {
                if fresh {
                    let answer = || Response::new(Said::all(vec![http_body::Frame::data(Bytes::from("{}"))]));
                    let _ = serve(live.upstream().await.into_inner().0, answer);
                }
            };
            let answer = tokio::join!(send, upstream).0.expect("an answer");
            assert_eq!(answer.version() == Version::HTTP_2, client_http2);
            answer.into_body().collect().await.expect("a whole answer");
            let expected = |http2| if http2 { User } else { Kernel };
            assert_eq!(
                sources(&live.record().await),
                (expected(client_http2), Some(expected(upstream_http2))),
                "client: {client_http2}, TLS: {by_tls}, upstream: {upstream_http2}, fresh: {fresh}"
            );
        }
        drop(client);
        live.finish().await;
    }
}

/// How long the only worker does something else, each time.
const BLOCKED: Duration = Duration::from_millis(300);

/// An upstream that says one thing each time it is told to, from a thread of its own.
fn upstream(listener: TcpListener, says: Vec<String>) -> (mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the gauge dials");
        socket.set_nodelay(true).expect("a socket");
        let mut seen = Vec::new();
        while !seen.ends_with(b"[]}") {
            let mut buffer = [0; 1024];
            let read = socket.read(&mut buffer).expect("a request");
            assert!(read > 0, "ended within the request");
            seen.extend_from_slice(&buffer[..read]);
        }
        for said in says {
            told.recv().expect("somebody tells");
            socket.write_all(said.as_bytes()).expect("the gauge reads");
        }
    });
    (tell, thread)
}

/// One exchange whose first and last output arrive while the only worker is blocked: the record, and when each of the
/// two blocks ended.
async fn under_a_blocked_worker(kernel_stamps: bool) -> (Observation, [Stamp; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut live = Live::start_with(
        None,
        |upstream| upstream.port = address.port(),
        |config| config.kernel_stamps = kernel_stamps,
    )
    .await;
    let begin = [SSE_HEAD, &chunk(&chat_role())].concat();
    let end = [chunk(DONE), LAST_CHUNK.to_owned()].concat();
    let says = vec![begin, chunk(&chat_delta("one")), chunk(&chat_delta("two")), end];
    let (tell, thread) = upstream(listener, says);
    let mut client = live.client().await;
    client.send(ask()).await;
    tell.send(()).expect("the upstream is there");
    client.read_to("assistant").await;
    let mut ends = Vec::new();
    for word in ["one", "two"] {
        tell.send(()).expect("the upstream is there");
        std::thread::sleep(BLOCKED);
        ends.push(live.clock.now());
        client.read_to(word).await;
    }
    tell.send(()).expect("the upstream is there");
    client.read_to(LAST_CHUNK).await;
    let record = live.record().await;
    thread.join().expect("the upstream ends well");
    drop(client);
    live.finish().await;
    (record, ends.try_into().expect("two blocks"))
}

/// What kernel stamps buy: bytes that came while the program could not look have come when they came.
#[tokio::test]
async fn a_blocked_worker_is_not_booked_on_the_provider() {
    let (kernel, kernel_ends) = under_a_blocked_worker(true).await;
    let (user, user_ends) = under_a_blocked_worker(false).await;
    assert_eq!((sources(&kernel), sources(&user)), ((Kernel, Some(Kernel)), (User, Some(User))));
    let outputs = |record: &Observation| {
        let timeline = &record.timeline;
        [timeline.first_output.expect("an output"), timeline.last_output.expect("an output")]
    };
    for (arrival, end) in outputs(&user).into_iter().zip(user_ends) {
        assert!(arrival >= end, "read once the worker was free");
    }
    for (arrival, end) in outputs(&kernel).into_iter().zip(kernel_ends) {
        let sooner = end.since(arrival);
        println!("arrived {:.1} ms before the worker was free", sooner.seconds() * 1e3);
        // Each event its own: the first one's read is not the last one's.
        assert!((Nanos(150_000_000)..Nanos(600_000_000)).contains(&sooner), "{sooner:?}");
    }
    // The time is not lost, it is our own.
    let overhead = kernel.timeline.overhead_first_output().expect("an output that left");
    assert!(overhead >= Nanos(150_000_000), "{overhead:?}");
    assert!(user.timeline.overhead_first_output().expect("an output that left") < overhead);
}

#[tokio::test]
async fn the_network_between_is_in_the_record_and_in_the_metrics() {
    let mut live = Live::start(None, |_| {}).await;
    let mut client = live.client().await;
    client.send(ask()).await;
    let mut up = live.upstream().await;
    for times in 1..=2 {
        exchange(&mut client, &mut up).await;
        let record = live.record().await;
        for (network, side) in [(record.connection.client, "client"), (record.connection.upstream, "upstream")] {
            println!("{side}: {network:?}");
            let (rtt, least) = (network.rtt.expect("a round trip"), network.min_rtt.expect("a round trip"));
            assert!(Nanos::ZERO < least && least <= rtt && rtt < Nanos(1_000_000_000), "{side}: {network:?}");
            // Loopback loses nothing, but a machine too busy may send again what it was too slow to acknowledge.
            assert!(network.retransmits.expect("a count") < 10, "{side}: {network:?}");
            let count = format!("streamgauge_{side}_rtt_seconds_count{{upstream=\"up\"}} {times}\n");
            assert!(live.scrape().contains(&count), "{count}");
        }
        if times == 1 {
            client.send(ask()).await;
        }
    }
    // The answer that is the gauge's own, for want of the upstream's: no connection was made for it.
    drop(up);
    drop(client);
    live.finish().await;
}

/// Its frames are out of the program's hands at once, so nothing awaits a departure: the look comes with the next frame.
#[tokio::test]
async fn the_network_to_an_http2_client_is_looked_at_while_it_is_there() {
    let mut live = Live::start(None, |_| {}).await;
    let mut client = Speaker::http2(live.client().await.into_inner().0).await;
    let asked = Bytes::from("{\"model\":\"m\",\"stream\":true,\"messages\":[]}");
    let request = Request::post("http://gauge.test/v1/chat/completions").header("host", "gauge.test");
    let send = client.send(request.body(Said::all(vec![http_body::Frame::data(asked)])).expect("a request"));
    let provider = async {
        let mut up = live.upstream().await;
        up.read_to("[]}").await;
        up.send([SSE_HEAD, &chunk(&chat_role()), &chunk(&chat_delta("Hi"))].concat()).await;
        up
    };
    let (answer, mut up) = tokio::join!(send, provider);
    let mut body = answer.expect("an answer").into_body();
    let mut seen = Vec::new();
    for words in ["Hi", "you"] {
        while !String::from_utf8_lossy(&seen).contains(words) {
            let frame = body.frame().await.expect("it goes on").expect("it is whole");
            seen.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
        }
        if words == "Hi" {
            up.send(chunk(&chat_delta("you"))).await;
        }
    }
    drop((body, client));
    let record = live.record().await;
    assert_eq!(record.outcome.as_str(), "client_gone");
    assert!(
        record.connection.client.rtt.is_some() && record.connection.upstream.rtt.is_some(),
        "{:?}",
        record.connection
    );
    drop(up);
    live.finish().await;
}

/// From the exposition: how many samples of this histogram are above the bound.
fn above(scrape: &str, family: &str, bound: &str) -> u64 {
    let value = |name: String| {
        let line = scrape.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |value| value.trim().parse().expect("a count"))
    };
    value(format!("{family}_count ")) - value(format!("{family}_bucket{{le=\"{bound}\"}} "))
}

#[tokio::test]
async fn a_blocked_worker_shows_as_runtime_delay() {
    const FAMILY: &str = "streamgauge_runtime_delay_seconds";
    let live = Live::start(None, |_| {}).await;
    let samples = |above_bound: &str| above(&live.scrape(), FAMILY, above_bound);
    // Not a word before the first look.
    assert!(!live.scrape().contains(FAMILY));
    let patience = tokio::time::timeout(Duration::from_secs(60), async {
        while samples("none") < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    patience.await.expect("it looks several times a second");
    let before = samples("0.1");
    // Longer than any pause between two looks, so that one is due at least 0.1 s before the worker is free again.
    std::thread::sleep(Duration::from_millis(160));
    let patience = tokio::time::timeout(Duration::from_secs(60), async {
        while samples("0.1") == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    patience.await.expect("the block is seen");
    live.finish().await;
}

/// Of a pipe in memory the kernel knows nothing: nothing is said, and nobody stamps for it.
#[tokio::test(start_paused = true)]
async fn what_is_no_socket_has_no_network() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(ask()).await;
    up.send([SSE_HEAD, &chunk(&chat_delta("Hi")), LAST_CHUNK].concat()).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!((record.connection.client, record.connection.upstream), Default::default());
    assert_eq!(sources(&record), (User, Some(User)));
}

/// A client of HTTP/2 holds its stream back without a pending write, so a frame that waits to be handed on shows it. One
/// that waited to be read does not: its arrival is the provider's doing all the same.
#[tokio::test]
async fn a_blocked_worker_does_not_taint_what_it_did_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut live = Live::start(None, |upstream| upstream.port = address.port()).await;
    let begin = [SSE_HEAD, &chunk(&chat_delta("one"))].concat();
    let (tell, thread) =
        upstream(listener, vec![begin, chunk(&chat_delta("two")), [chunk(DONE), LAST_CHUNK.to_owned()].concat()]);
    let mut client = Speaker::http2(live.client().await.into_inner().0).await;
    let body = "{\"model\":\"m\",\"stream\":true,\"messages\":[]}";
    let request = Request::post("http://gauge.test/v1/chat/completions").header("content-length", body.len());
    let request = request.body(Said::all(vec![http_body::Frame::data(Bytes::from(body))])).expect("a request");
    tell.send(()).expect("the upstream is there");
    let mut answer = client.send(request).await.expect("an answer").into_body();
    assert!(answer.frame().await.expect("a frame").expect("a proper one").is_data());
    tell.send(()).expect("the upstream is there");
    std::thread::sleep(BLOCKED);
    assert!(answer.frame().await.expect("a frame").expect("a proper one").is_data());
    tell.send(()).expect("the upstream is there");
    answer.collect().await.expect("a whole answer");
    let record = live.record().await;
    assert_eq!((record.output_events, record.flags.tainted), (2, false));
    assert_eq!(sources(&record), (User, Some(Kernel)));
    thread.join().expect("the upstream ends well");
    drop(client);
    live.finish().await;
}
