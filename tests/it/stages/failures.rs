//! Exchanges that fail, are cut or are left: what they had waited for until then keeps its name.

use streamgauge::{
    config::Upstream,
    observation::{Limit, Outcome},
};
use tokio::time::sleep;

use super::{NO_BODY, PLAIN, head_of};
use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chunk, ms, ms_of, stages,
};

fn limited(upstream: fn(&mut Upstream)) -> World {
    World::new(WorldOptions { upstream, ..WorldOptions::default() })
}

/// A stream whose first output came after 40 ms and whose second, the last one for now, 60 ms later.
async fn amid(world: &mut World) -> (Peer, Peer) {
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    up.send(SSE_HEAD).await;
    for (pause, text) in [(40, "a"), (60, "b")] {
        sleep(ms(pause)).await;
        up.send(chunk(&chat_delta(text))).await;
        client.read_to(&format!("{text:?}")).await;
    }
    (client, up)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_was_waited_for() {
    for (status, outcome) in [(429, Outcome::RateLimited), (400, Outcome::Upstream4xx), (503, Outcome::Upstream5xx)] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(chat_request("m")).await;
        sleep(ms(150)).await;
        up.send(format!("HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nnu")).await;
        sleep(ms(25)).await;
        up.send("ll").await;
        client.read_to("null").await;
        let record = world.record().await;
        assert_eq!(record.outcome, outcome);
        assert_eq!(stages(&record), [("first_output_wait", 150), ("generation", 25)], "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_before_the_head_is_a_wait_that_long() {
    let mut world = limited(|upstream| upstream.limits.head = Some(ms(700)));
    let (mut client, _up) = world.asked(chat_request("m")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 504 "));
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::UpstreamTimeout, Some(Limit::Head)));
    assert_eq!(stages(&record), [("first_output_wait", 700)]);
}

#[tokio::test(start_paused = true)]
async fn what_cuts_a_stream_leaves_its_tail() {
    // A limit; the upstream's break; its clean end without the dialect's; an error of the dialect's; our own shutdown.
    let mut world = limited(|upstream| upstream.limits.idle = Some(ms(500)));
    let (mut client, up) = amid(&mut world).await;
    client.rest().await;
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::UpstreamTimeout, Some(Limit::Idle)));
    assert_eq!(stages(&record), [("first_output_wait", 40), ("generation", 60), ("tail", 500)]);
    drop(up);

    let error = "data: {\"error\":{\"type\":\"server_error\",\"message\":\"no\"}}\n\n";
    for (end, outcome) in [
        (None, Outcome::UpstreamReset),
        (Some(LAST_CHUNK.to_owned()), Outcome::Truncated),
        (Some(chunk(error) + LAST_CHUNK), Outcome::ErrorEvent),
    ] {
        let mut world = World::new(WorldOptions::default());
        let (_client, mut up) = amid(&mut world).await;
        sleep(ms(80)).await;
        match end {
            Some(end) => up.send(end).await,
            None => drop(up),
        }
        let record = world.record().await;
        assert_eq!(record.outcome, outcome);
        assert_eq!(stages(&record), [("first_output_wait", 40), ("generation", 60), ("tail", 80)], "{outcome:?}");
    }

    let mut world = World::new(WorldOptions::default());
    let (_client, _up) = amid(&mut world).await;
    sleep(ms(90)).await;
    world.cut();
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::Drained, Some(Limit::Drain)));
    assert_eq!(stages(&record), [("first_output_wait", 40), ("generation", 60), ("tail", 90)]);
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_that_breaks_off_was_being_generated() {
    for leaves in [true, false] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(NO_BODY).await;
        sleep(ms(70)).await;
        up.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nnu").await;
        client.read_to("nu").await;
        sleep(ms(50)).await;
        let outcome = if leaves {
            drop(client);
            Outcome::ClientGone
        } else {
            drop(up);
            Outcome::UpstreamReset
        };
        let record = world.record().await;
        assert_eq!(record.outcome, outcome);
        assert_eq!(stages(&record), [("first_output_wait", 70), ("generation", 50)], "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_busy_pool_in_vain_has_waited_for_it() {
    for leaves in [true, false] {
        let mut world = limited(|upstream| {
            upstream.limits.max_connections = Some(1);
            upstream.limits.pool_wait = Some(ms(400));
        });
        let (_first, _up) = world.asked(NO_BODY).await;
        let mut second = world.client();
        second.send(chat_request("m")).await;
        let (waited, outcome, limit) = if leaves {
            sleep(ms(250)).await;
            drop(second);
            (250, Outcome::ClientGone, None)
        } else {
            assert!(second.head().await.starts_with("HTTP/1.1 504 "));
            (400, Outcome::Unreachable, Some(Limit::PoolWait))
        };
        let record = world.record().await;
        assert_eq!((record.outcome, record.limit), (outcome, limit));
        assert_eq!(stages(&record), [("pool_wait", waited)]);
        assert_eq!(record.attempts, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_amid_its_own_request_was_still_sending_it() {
    let mut world = World::new(WorldOptions::default());
    let (client, _up) = world.asked(head_of(100) + "half").await;
    sleep(ms(120)).await;
    drop(client);
    let record = world.record().await;
    assert_eq!((record.outcome, record.timeline.sent_last), (Outcome::ClientGone, None));
    assert_eq!(stages(&record), [("receive", 120)]);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_never_reads_was_uploaded_to() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let mut client = world.client();
    let body = "x".repeat(20_000);
    client.send(head_of(body.len()) + &body).await;
    let up = world.upstream().await;
    sleep(ms(350)).await;
    drop(client);
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::ClientGone);
    assert_eq!(stages(&record), [("upload", 350)]);
    assert_eq!((record.timeline.waits.upstream, record.timeline.waits.client), (ms(350).into(), ms(0).into()));
    drop(up);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_end_unread_has_stalled_it() {
    let mut world = World::new(WorldOptions { pipe: 1024, ..WorldOptions::default() });
    let mut client = world.client();
    client.send(chat_request("m")).await;
    let mut up = world.upstream().await;
    up.head().await;
    let reply = format!("{SSE_HEAD}{}{}{LAST_CHUNK}", chunk(&chat_delta(&"x".repeat(3_000))), chunk(&chat_end(1, 1)));
    up.send(reply).await;
    sleep(ms(600)).await;
    drop(client);
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete, "the dialect's end was seen before it left");
    assert_eq!(stages(&record), [("client_stall", 600)]);
    assert_eq!((record.timeline.delivered, record.client_duration()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_answers_by_itself_waited_for_nobody() {
    let mut world =
        World::new(WorldOptions { config: |config| config.limits.max_in_flight = Some(1), ..WorldOptions::default() });
    let (_client, mut up) = world.asked(NO_BODY).await;
    let mut second = world.client();
    second.send(NO_BODY).await;
    assert!(second.head().await.starts_with("HTTP/1.1 503 "));
    let record = world.record().await;
    assert_eq!((record.outcome, stages(&record)), (Outcome::Refused, vec![]));
    sleep(ms(30)).await;
    up.send(PLAIN).await;
    assert_eq!(stages(&world.record().await), [("first_output_wait", 30)]);

    // A client that is too slow with a request that is too large: its own time.
    let mut world = World::new(WorldOptions {
        config: |config| config.limits.max_request_body = Some(10),
        ..WorldOptions::default()
    });
    let (mut client, _up) =
        world.asked("POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n").await;
    sleep(ms(60)).await;
    client.send("8\r\ntoo much\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 413 "));
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit), (Outcome::ClientError, Some(Limit::RequestBody)));
    assert_eq!(stages(&record), [("receive", 60)]);
}

#[tokio::test(start_paused = true)]
async fn stalls_are_told_apart_by_side() {
    let mut world = World::new(WorldOptions { pipe: 4096, ..WorldOptions::default() });
    let mut client = world.client();
    let body = "x".repeat(100_000);
    // The upstream takes nothing for 500 ms, later the client for 400.
    let (mut up, ()) = tokio::join!(
        async {
            let mut up = world.upstream().await;
            sleep(ms(500)).await;
            up.head().await;
            up.read(body.len()).await;
            up
        },
        client.send(head_of(body.len()) + &body),
    );
    sleep(ms(100)).await;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 20000\r\n\r\n{}", "y".repeat(20_000));
    tokio::join!(up.send(answer), async {
        sleep(ms(400)).await;
        client.read_to(&"y".repeat(20_000)).await;
    });
    let record = world.record().await;
    let waits = &record.timeline.waits;
    assert_eq!([waits.upstream, waits.client].map(|wait| ms_of(Some(wait))), [Some(500), Some(400)]);
    assert_eq!((waits.upstream_stalls, waits.client_stalls), (1, 1));
    assert_eq!(stages(&record)[..2], [("upload", 500), ("first_output_wait", 100)]);
    let scrape = world.scrape();
    for (side, seconds) in [("upstream", 0.5), ("client", 0.4)] {
        let of = |family: &str| {
            let series = format!("{family}{{upstream=\"up\",model=\"_none\",side=\"{side}\"}}");
            crate::support::value(&scrape, &series)
        };
        assert_eq!((of("stalls_total"), of("stall_seconds_total")), (Some(1.0), Some(seconds)), "{side}");
    }
}
