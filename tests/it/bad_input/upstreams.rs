//! What upstreams get wrong.

use streamgauge::observation::{Limit, Outcome};
use tokio::time::sleep;

use super::{only_record, own_answer};
use crate::support::{World, WorldOptions, ms};

const GET: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test(start_paused = true)]
async fn an_upstream_that_refuses_connections_is_unreachable() {
    let mut world = World::new(WorldOptions::default());
    world.refuse();
    let mut client = world.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nping").await;
    own_answer(&mut client, "502 Bad Gateway", "upstream_unreachable").await;
    let record = only_record(&mut world, Outcome::Unreachable, Some(502)).await;
    assert_eq!((record.limit, record.attempts), (None, 1));
    assert_eq!((record.timeline.sent_last, record.timeline.head_back), (None, None));
    client.send(GET).await;
    own_answer(&mut client, "502 Bad Gateway", "upstream_unreachable").await;
    only_record(&mut world, Outcome::Unreachable, Some(502)).await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_swallows_connections_is_given_up() {
    let mut world = World::new(WorldOptions { tcp: ms(60_000), ..WorldOptions::default() });
    let mut client = world.client();
    client.send(GET).await;
    own_answer(&mut client, "504 Gateway Timeout", "upstream_unreachable").await;
    let record = only_record(&mut world, Outcome::Unreachable, Some(504)).await;
    assert_eq!((record.limit, record.wall()), (Some(Limit::Connect), ms(10_000).into()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_http_is_told_so() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{32}",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 banana\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-a: 1\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-a: \0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(GET).await;
        up.send(garbage).await;
        own_answer(&mut client, "502 Bad Gateway", "upstream_reset").await;
        up.assert_closed().await;
        let record = only_record(&mut world, Outcome::UpstreamReset, Some(502)).await;
        assert_eq!((record.attempts, record.timeline.head_back), (1, None), "{garbage:?}");
        // The client's connection is as good as before.
        client.send(GET).await;
        let mut up = world.upstream().await;
        up.head().await;
        up.send(OK).await;
        assert_eq!(client.read_to("ok").await, OK);
        only_record(&mut world, Outcome::Complete, Some(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_headers_are_read_and_no_more() {
    for count in [100, 101] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(GET).await;
        let headers = (1..count).map(|i| format!("x-{i}: {i}\r\n")).collect::<Vec<_>>().concat();
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 2\r\n\r\nok");
        up.send(&answer).await;
        if count == 100 {
            assert_eq!(client.read_to("ok").await, answer);
            only_record(&mut world, Outcome::Complete, Some(200)).await;
        } else {
            own_answer(&mut client, "502 Bad Gateway", "upstream_reset").await;
            only_record(&mut world, Outcome::UpstreamReset, Some(502)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_without_end_is_not_read_for_ever() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    up.send("HTTP/1.1 200 OK\r\nx-a: ").await;
    let piece = vec![b'x'; 10_000];
    let mut taken = 0;
    while up.try_send(&piece).await.is_ok() {
        taken += piece.len();
        assert!(taken < 2_000_000, "memory must be bounded");
        tokio::task::yield_now().await;
    }
    own_answer(&mut client, "502 Bad Gateway", "upstream_reset").await;
    only_record(&mut world, Outcome::UpstreamReset, Some(502)).await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_closes_before_its_answer_is_told_so() {
    for said in ["", "HTTP/1.1 200 OK\r\nconte", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        for half in [false, true] {
            let mut world = World::new(WorldOptions::default());
            let (mut client, mut up) = world.asked(GET).await;
            up.send(said).await;
            sleep(ms(100)).await;
            let mut kept = None;
            if half {
                kept.insert(up).shutdown().await;
            } else {
                drop(up);
            }
            own_answer(&mut client, "502 Bad Gateway", "upstream_reset").await;
            let record = only_record(&mut world, Outcome::UpstreamReset, Some(502)).await;
            assert_eq!((record.attempts, record.wall()), (1, ms(100).into()), "{said:?}");
            assert!(!world.has_dialled(), "a request that was taken is not sent twice");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_on_an_idle_connection_never_become_an_answer() {
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for (attached, waits) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(GET).await;
        up.send(if attached { [OK, poison].concat() } else { OK.to_owned() }).await;
        assert_eq!(client.read_to("ok").await, OK);
        only_record(&mut world, Outcome::Complete, Some(200)).await;
        if !attached {
            up.send(poison).await;
        }
        if waits {
            sleep(ms(10)).await;
        }
        client.send(GET).await;
        let mut fresh = world.upstream().await;
        assert_eq!(fresh.head().await, GET);
        fresh.send(OK).await;
        assert_eq!(client.read_to("ok").await, OK);
        up.assert_closed().await;
        only_record(&mut world, Outcome::Complete, Some(200)).await;
        client.assert_silent().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_an_answer_without_a_body_is_not_passed_on() {
    for head in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 304 Not Modified\r\n\r\n"] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(GET).await;
        up.send(format!("{head}surprise")).await;
        assert_eq!(client.head().await, head);
        client.assert_silent().await;
        up.assert_closed().await;
        only_record(&mut world, Outcome::Complete, Some(head[9..12].parse().unwrap())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_answer_without_a_body_no_stream_is_missing() {
    for (request, status) in [
        ("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "204 No Content"),
        ("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "304 Not Modified"),
        ("HEAD /v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"),
    ] {
        for coding in ["", "Content-Encoding: compress\r\n"] {
            let mut world = World::new(WorldOptions::default());
            let mut client = world.client();
            client.send(request).await;
            let mut up = world.upstream().await;
            up.head().await;
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\n{coding}\r\n");
            up.send(head.as_str()).await;
            assert!(client.head().await.starts_with(&format!("HTTP/1.1 {status}\r\n")));
            let record = only_record(&mut world, Outcome::Complete, Some(status[..3].parse().unwrap())).await;
            assert_eq!((record.stream, record.observer_off), (false, None), "{status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_says_it_closes_is_not_used_again() {
    for (answer, version) in [
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "1.1"),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "1.0"),
    ] {
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        for _ in 0..2 {
            client.send(GET).await;
            let mut up = world.upstream().await;
            assert_eq!(up.head().await, GET, "{version}");
            up.send(answer).await;
            assert_eq!(client.read_to("ok").await, OK);
            let record = only_record(&mut world, Outcome::Complete, Some(200)).await;
            assert_eq!((record.attempts, record.connection.reused), (1, Some(false)));
            up.assert_closed().await;
        }
    }
}
