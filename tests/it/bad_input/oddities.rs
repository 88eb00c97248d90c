//! Legal, but rare: old clients, pipelined requests, answers before their request has ended.

use streamgauge::observation::Outcome;

use super::only_record;
use crate::support::{LAST_CHUNK, SSE_HEAD, World, WorldOptions, chunk};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test(start_paused = true)]
async fn an_http_1_0_client_gets_what_it_understands() {
    let request = "GET / HTTP/1.0\r\nUser-Agent: ab\r\n\r\n";
    for (answer, came, cut) in [
        (OK.to_owned(), "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
        (
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-a: 1\r\n\r\n{}{LAST_CHUNK}", chunk("ok")),
            "HTTP/1.0 200 OK\r\nx-a: 1\r\n\r\nok",
            false,
        ),
        ("HTTP/1.1 200 OK\r\nx-a: 1\r\n\r\nok".to_owned(), "HTTP/1.0 200 OK\r\nx-a: 1\r\n\r\nok", true),
    ] {
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        client.send(request).await;
        let mut up = world.upstream().await;
        assert_eq!(up.head().await, "GET / HTTP/1.1\r\nhost: 127.0.0.1:80\r\nUser-Agent: ab\r\n\r\n");
        up.send(answer).await;
        if cut {
            up.shutdown().await;
        }
        assert_eq!(String::from_utf8(client.rest().await).unwrap(), came);
        only_record(&mut world, Outcome::Complete, Some(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_1_0_client_may_keep_its_connection() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let mut upstream = None;
    for _ in 0..3 {
        client.send("POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nping").await;
        let up = match &mut upstream {
            None => upstream.insert(world.upstream().await),
            Some(up) => up,
        };
        let out = "POST / HTTP/1.1\r\nhost: 127.0.0.1:80\r\nContent-Length: 4\r\n\r\nping";
        assert_eq!(up.read_to("ping").await, out);
        up.send(OK).await;
        let came = "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nconnection: keep-alive\r\n\r\nok";
        assert_eq!(client.read_to("ok").await, came);
        only_record(&mut world, Outcome::Complete, Some(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_1_0_client_is_not_given_codings_it_can_not_undo() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked("GET / HTTP/1.0\r\n\r\n").await;
    up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n").await;
    let answer = String::from_utf8(client.rest().await).unwrap();
    assert!(answer.starts_with("HTTP/1.0 502 Bad Gateway\r\n"), "{answer}");
    assert!(answer.contains("x-streamgauge-error: transfer_coding\r\n"), "{answer}");
    up.assert_closed().await;
    only_record(&mut world, Outcome::UpstreamReset, Some(502)).await;
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let request = |i: u32| format!("POST /{i} HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: 4\r\n\r\nping");
    client.send([request(0), request(1), request(2)].concat()).await;
    let mut up = world.upstream().await;
    for i in 0..3 {
        assert_eq!(up.read_to("ping").await, request(i));
        up.assert_silent().await;
        up.send(OK).await;
        assert_eq!(client.read_to("ok").await, OK);
        let record = world.record().await;
        assert_eq!((record.outcome, record.path), (Outcome::Complete, Some(format!("/{i}"))));
    }
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
    assert!(!world.has_dialled());
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_come_before_the_request_has_ended() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.send(chunk("one")).await;
    up.read_to("one\r\n").await;
    up.send(OK).await;
    assert_eq!(client.read_to("ok").await, OK);
    let record = only_record(&mut world, Outcome::Complete, Some(200)).await;
    assert!(record.flags.early_response);
    assert_eq!((record.timeline.request_end, record.timeline.sent_last), (None, record.timeline.sent_first));
    // The upstream may still want the rest …
    client.send(chunk("two")).await;
    up.read_to("two\r\n").await;
    client.send(LAST_CHUNK).await;
    up.read_to(LAST_CHUNK).await;
    // … but is not used again: what it says next might be meant for this one.
    up.assert_closed().await;
    // The client's connection is as good as before.
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut up = world.upstream().await;
    up.head().await;
    up.send(OK).await;
    assert_eq!(client.read_to("ok").await, OK);
    only_record(&mut world, Outcome::Complete, Some(200)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_hangs_up_on_an_upload_reaches_the_client() {
    for closes in [false, true] {
        let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
        let (mut client, mut up) =
            world.asked("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        // The client is stuck: nobody reads what it sends.
        let piece = chunk(&"x".repeat(1000));
        while let Ok(sent) = tokio::time::timeout(crate::support::ms(100), client.try_send(&piece)).await {
            sent.expect("the gateway reads");
        }
        let refusal = "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 5\r\n\r\nlarge";
        up.send(refusal).await;
        if closes {
            drop(up);
        }
        let closing = refusal.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        assert_eq!(client.read_to("large").await, if closes { closing } else { refusal.to_owned() });
        only_record(&mut world, Outcome::Upstream4xx, Some(413)).await;
        if closes {
            client.assert_closed().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_connection_ends_with_its_exchange() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let mut idle = world.client();
    client.send("GET /0 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut up = world.upstream().await;
    up.head().await;
    up.send([SSE_HEAD, &chunk("x")].concat()).await;
    client.read_to("x\r\n").await;
    world.drain();
    idle.assert_closed().await;
    up.send([&chunk("y"), LAST_CHUNK].concat()).await;
    assert_eq!(String::from_utf8(client.rest().await).unwrap(), [&chunk("y"), LAST_CHUNK].concat());
    only_record(&mut world, Outcome::Complete, Some(200)).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_a_pipeline_leaves_all_of_it() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked("GET /0 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    up.send([SSE_HEAD, &chunk("x")].concat()).await;
    client.read_to("x\r\n").await;
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    drop(client);
    // Behind a request that waits its end can't be seen, but the next byte finds out.
    let piece = chunk("y");
    while up.try_send(&piece).await.is_ok() {
        tokio::task::yield_now().await;
    }
    only_record(&mut world, Outcome::ClientGone, Some(200)).await;
}
