//! Every way an exchange can end: one record each, with the right outcome, limit and answer, and nothing left in flight.

use std::{io, net::SocketAddr, sync::Arc};

use streamgauge::{
    config::{Matches, Upstream},
    net::Socket,
    observation::{Limit, Observation, Outcome},
    upstream::{Dial, Dialling},
};
use tokio::{sync::mpsc, time::sleep};

use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chunk, ms, stages,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: gauge.test\r\n\r\n";

impl World {
    /// The record of the one exchange there was, with nothing left behind.
    async fn only_record(&mut self) -> Observation {
        let record = self.record().await;
        stages(&record);
        assert_eq!(self.gateway.shared().in_flight(), 0);
        self.assert_no_record();
        record
    }
}

fn limited(upstream: fn(&mut Upstream)) -> WorldOptions {
    WorldOptions { upstream, ..WorldOptions::default() }
}

/// A stream is asked for and the upstream has the request.
async fn asked(options: WorldOptions) -> (World, Peer, Peer) {
    let mut world = World::new(options);
    let (client, up) = world.asked(chat_request("m")).await;
    (world, client, up)
}

/// The same, and one output event has reached the client.
async fn streaming(options: WorldOptions) -> (World, Peer, Peer) {
    let (world, mut client, mut up) = asked(options).await;
    up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
    client.read_to("\"a\"").await;
    (world, client, up)
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_as_its_dialect_and_its_transport_say() {
    let (end, error) =
        (chat_end(1, 1), "data: {\"error\":{\"type\":\"server_error\",\"message\":\"no\"}}\n\n".to_owned());
    let finished = end.split("data: [DONE]").next().unwrap().to_owned();
    for (rest, cut, outcome) in [
        (end.clone(), false, Outcome::Complete),
        (end, true, Outcome::Complete),
        (finished.clone(), false, Outcome::Complete),
        (finished, true, Outcome::UpstreamReset),
        (chat_delta("b"), false, Outcome::Truncated),
        (chat_delta("b"), true, Outcome::UpstreamReset),
        (error.clone(), false, Outcome::ErrorEvent),
        (error, true, Outcome::ErrorEvent),
    ] {
        let (mut world, mut client, mut up) = streaming(WorldOptions::default()).await;
        up.send(chunk(&rest)).await;
        if cut {
            drop(up);
            let seen = client.rest().await;
            assert!(!seen.ends_with(LAST_CHUNK.as_bytes()), "a cut looks like one: {rest}");
        } else {
            up.send(LAST_CHUNK).await;
            client.read_to(LAST_CHUNK).await;
        }
        let record = world.only_record().await;
        assert_eq!(record.outcome, outcome, "{rest}, cut: {cut}");
        assert_eq!((record.status, record.limit), (Some(200), None));
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_are_outcomes() {
    for (status, outcome) in [
        (200, Outcome::Complete),
        (301, Outcome::Complete),
        (400, Outcome::Upstream4xx),
        (404, Outcome::Upstream4xx),
        (429, Outcome::RateLimited),
        (500, Outcome::Upstream5xx),
        (503, Outcome::Upstream5xx),
        (529, Outcome::RateLimited),
    ] {
        let (mut world, mut client, mut up) = asked(WorldOptions::default()).await;
        up.send(format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\n{{}}")).await;
        client.read_to("{}").await;
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.status), (outcome, Some(status)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_says_when_to_retry_is_a_success() {
    let (mut world, mut client, mut up) = asked(WorldOptions::default()).await;
    let head = SSE_HEAD.replace("\r\n\r\n", "\r\nretry-after: 7\r\nx-should-retry: false\r\n\r\n");
    up.send(format!("{head}{}{LAST_CHUNK}", chunk(&format!("{}{}", chat_delta("a"), chat_end(1, 1))))).await;
    assert_eq!(client.head().await, head);
    client.read_to(LAST_CHUNK).await;
    let record = world.only_record().await;
    assert_eq!((record.outcome, record.attempts, record.output_events), (Outcome::Complete, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_breaks_off_or_speaks_garbage_before_its_head_is_a_502() {
    for said in ["", "HTTP/1.1 200 OK\r\ncont", "SSH-2.0-OpenSSH_9.6\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"] {
        let (mut world, mut client, mut up) = asked(WorldOptions::default()).await;
        up.send(said).await;
        drop(up);
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{said:?}: {head}");
        assert!(head.contains("x-streamgauge-error: upstream_reset"), "{head}");
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.status), (Outcome::UpstreamReset, Some(502)), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_frame_amid_a_body_is_an_abort() {
    let (mut world, mut client, mut up) = streaming(WorldOptions::default()).await;
    up.send("not a chunk's length\r\n").await;
    assert!(!client.rest().await.ends_with(LAST_CHUNK.as_bytes()));
    assert_eq!(world.only_record().await.outcome, Outcome::UpstreamReset);

    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send(GET).await;
    let mut up = world.upstream().await;
    up.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
    drop(up);
    assert!(client.rest().await.ends_with(b"half"));
    assert_eq!(world.only_record().await.outcome, Outcome::UpstreamReset);
}

#[tokio::test(start_paused = true)]
async fn limits_before_the_head_are_a_504_that_names_them() {
    let head: fn(&mut Upstream) = |upstream| upstream.limits.head = Some(ms(700));
    let total: fn(&mut Upstream) = |upstream| upstream.limits.total = Some(ms(700));
    for (limits, limit) in [(head, Limit::Head), (total, Limit::Total)] {
        let (mut world, mut client, mut up) = asked(limited(limits)).await;
        assert!(client.head().await.starts_with("HTTP/1.1 504 "));
        assert!(client.read_to("}}").await.contains(limit.as_str()));
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.limit), (Outcome::UpstreamTimeout, Some(limit)));
        assert_eq!(record.status, Some(504));
        assert_eq!(stages(&record), [("first_output_wait", 700)]);
        assert!(up.rest().await.is_empty(), "the connection is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_s_limit_does_not_run_while_the_request_is_still_on_its_way() {
    let mut world = World::new(limited(|upstream| upstream.limits.head = Some(ms(300))));
    let mut client = world.client();
    client.send("POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\n\r\n").await;
    let mut up = world.upstream().await;
    sleep(ms(1_000)).await;
    client.send("null").await;
    up.read_to("null").await;
    sleep(ms(299)).await;
    up.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    client.read_to("{}").await;
    let record = world.only_record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(stages(&record), [("receive", 1_000), ("first_output_wait", 299)]);
}

#[tokio::test(start_paused = true)]
async fn limits_behind_the_head_are_an_abort() {
    let first_byte: fn(&mut Upstream) = |upstream| upstream.limits.first_byte = Some(ms(700));
    let total: fn(&mut Upstream) = |upstream| upstream.limits.total = Some(ms(700));
    for (limits, limit) in [(first_byte, Limit::FirstByte), (total, Limit::Total)] {
        let (mut world, mut client, mut up) = asked(limited(limits)).await;
        up.send(SSE_HEAD).await;
        client.head().await;
        assert!(client.rest().await.is_empty(), "aborted, not ended");
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.limit), (Outcome::UpstreamTimeout, Some(limit)));
        assert_eq!(record.status, Some(200));
        assert_eq!(stages(&record), [("first_output_wait", 700)]);
        assert!(up.rest().await.is_empty(), "the connection is closed");
    }
    let idle: fn(&mut Upstream) = |upstream| upstream.limits.idle = Some(ms(700));
    let (mut world, mut client, mut up) = streaming(limited(idle)).await;
    sleep(ms(600)).await;
    up.send(chunk(&chat_delta("b"))).await;
    client.rest().await;
    let record = world.only_record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::UpstreamTimeout, Some(Limit::Idle)));
    assert_eq!(stages(&record), [("generation", 600), ("tail", 700)]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_stays_busy_is_a_504() {
    let mut world = World::new(limited(|upstream| {
        upstream.limits.max_connections = Some(1);
        upstream.limits.pool_wait = Some(ms(200));
    }));
    let (mut first, mut second) = (world.client(), world.client());
    first.send(GET).await;
    let up = world.upstream().await;
    second.send(GET).await;
    assert!(second.head().await.starts_with("HTTP/1.1 504 "));
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::Unreachable, Some(Limit::PoolWait)));
    assert_eq!(stages(&record), [("pool_wait", 200)]);
    drop((first, up));
    assert_eq!(world.only_record().await.outcome, Outcome::ClientGone);
}

#[tokio::test(start_paused = true)]
async fn more_than_may_be_in_flight_is_refused() {
    let mut world =
        World::new(WorldOptions { config: |config| config.limits.max_in_flight = Some(1), ..WorldOptions::default() });
    let (mut first, mut second) = (world.client(), world.client());
    first.send(GET).await;
    let mut up = world.upstream().await;
    up.head().await;
    second.send(GET).await;
    let head = second.head().await;
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: 1"), "{head}");
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::Refused, Some(Limit::InFlight)));
    assert_eq!((record.status, record.attempts), (Some(503), 0));
    up.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    first.read_to("{}").await;
    assert_eq!(world.only_record().await.outcome, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_does_not_take_is_the_client_s_error() {
    let cases = [
        ("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\n0123456789", 413, Some(Limit::RequestBody)),
        ("POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n", 400, None),
        ("CONNECT g:80 HTTP/1.1\r\nHost: g\r\n\r\n", 405, None),
        ("GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n", 404, None),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, None),
    ];
    for (said, status, limit) in cases {
        let mut world = World::new(WorldOptions {
            config: |config| {
                config.limits.max_request_body = Some(5);
                config.routes[0].matches = Matches::Host("g".to_owned());
            },
            ..WorldOptions::default()
        });
        let mut client = world.client();
        client.send(said).await;
        let head = client.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{said:?}: {head}");
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.limit), (Outcome::ClientError, limit), "{said:?}");
        assert_eq!(record.status, Some(status));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_may_leave_at_any_time() {
    /// Until where the exchange gets before the client leaves.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Until {
        Dns,
        Tcp,
        Upload,
        Head,
        FirstByte,
        Stream,
    }
    for until in [Until::Dns, Until::Tcp, Until::Upload, Until::Head, Until::FirstByte, Until::Stream] {
        let mut world = World::new(WorldOptions { dns: Some(ms(40)), tcp: ms(30), ..WorldOptions::default() });
        let mut client = world.client();
        let request = chat_request("m");
        client.send(if until == Until::Upload { &request[..request.len() - 5] } else { &request[..] }).await;
        let mut up = None;
        match until {
            Until::Dns => sleep(ms(20)).await,
            Until::Tcp => sleep(ms(50)).await,
            _ => {
                let up = up.insert(world.upstream().await);
                up.head().await;
                if matches!(until, Until::FirstByte | Until::Stream) {
                    up.send(SSE_HEAD).await;
                    client.head().await;
                }
                if until == Until::Stream {
                    up.send(chunk(&chat_delta("a"))).await;
                    client.read_to("\"a\"").await;
                }
                sleep(ms(15)).await;
            }
        }
        let left = world.clock.now();
        drop(client);
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.limit), (Outcome::ClientGone, None), "{until:?}");
        assert!(record.flags.partial, "{until:?}");
        assert_eq!(record.timeline.end, Some(left), "at once: {until:?}");
        if let Some(mut up) = up {
            up.rest().await;
            assert_eq!(world.clock.now(), left, "the upstream is let go at once: {until:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_close_is_leaving() {
    let (mut world, mut client, _up) = asked(WorldOptions::default()).await;
    client.shutdown().await;
    assert_eq!(world.only_record().await.outcome, Outcome::ClientGone);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_as_an_event_comes_is_noticed_with_it() {
    for before in [0, 1, 3] {
        let (mut world, mut client, mut up) = asked(WorldOptions::default()).await;
        up.send(SSE_HEAD).await;
        client.head().await;
        for at in 0..before {
            up.send(chunk(&chat_delta(&format!("t{at}")))).await;
            client.read_to(&format!("\"t{at}\"")).await;
        }
        // Both, before the gauge runs again: one wake-up has two reasons.
        tokio::join!(up.send(chunk(&chat_delta("last"))), client.shutdown());
        let left = world.clock.now();
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.output_events), (Outcome::ClientGone, before + 1));
        assert_eq!(record.timeline.end, Some(left), "at once, not with the next event");
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_behind_the_dialect_s_end_has_it_all() {
    let (mut world, mut client, mut up) = streaming(WorldOptions::default()).await;
    up.send(chunk(&chat_end(1, 1))).await;
    client.read_to("[DONE]").await;
    drop(client);
    let record = world.only_record().await;
    assert_eq!((record.outcome, record.flags.partial), (Outcome::Complete, false));
    assert_eq!(record.output_tokens(), Some(1));
}

/// An upstream that can't be reached, in this way.
struct Failing(fn() -> io::Result<Socket>);

impl Dial for Failing {
    fn resolve(&self, _host: &str, port: u16) -> Dialling<Vec<SocketAddr>> {
        let nothing = self.0;
        Box::pin(async move {
            if port == 80 { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) } else { nothing().map(|_| Vec::new()) }
        })
    }

    fn connect(&self, _address: SocketAddr) -> Dialling<Socket> {
        let connect = self.0;
        Box::pin(async move {
            sleep(ms(30)).await;
            connect()
        })
    }
}

fn refused() -> io::Result<Socket> {
    Err(io::ErrorKind::ConnectionRefused.into())
}

#[expect(clippy::panic, reason = "the fault under test")]
fn panicking() -> io::Result<Socket> {
    panic!("a fault of our own, on purpose");
}

#[tokio::test(start_paused = true)]
async fn who_can_t_be_reached_is_a_502() {
    let by_name: fn(&mut Upstream) = |upstream| upstream.host = "up.test".to_owned();
    let without_name: fn(&mut Upstream) = |upstream| {
        upstream.host = "up.test".to_owned();
        upstream.port = 81;
    };
    for (upstream, expected) in [(by_name, vec![("tcp", 30)]), (without_name, vec![])] {
        let (_ends, dialled) = mpsc::channel(1);
        let mut world = World::with_dial(limited(upstream), Arc::new(Failing(refused)), dialled);
        let mut client = world.client();
        client.send(GET).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("upstream_unreachable"), "{head}");
        let record = world.only_record().await;
        assert_eq!((record.outcome, record.limit), (Outcome::Unreachable, None));
        assert_eq!(stages(&record), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_our_own_is_booked_and_costs_one_connection() {
    let (_ends, dialled) = mpsc::channel(1);
    let mut world = World::with_dial(WorldOptions::default(), Arc::new(Failing(panicking)), dialled);
    let mut client = world.client();
    client.send(GET).await;
    assert!(client.rest().await.is_empty(), "closed without an answer");
    let record = world.only_record().await;
    assert_eq!(record.outcome, Outcome::GatewayError);
    assert_eq!(stages(&record), [("tcp", 30)]);
    let mut next = world.client();
    next.send("CONNECT g:80 HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert!(next.head().await.starts_with("HTTP/1.1 405 "), "the others go on");
}
