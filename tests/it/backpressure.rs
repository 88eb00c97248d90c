//! Who does not take what is ready for it holds up the other side, and nobody's numbers but its own.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use streamgauge::{clock::Nanos, observation::Outcome};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chunk, ms, ms_of, stages,
    whole_ms,
};

/// An event larger than pipe and library take without being drained.
fn large_event() -> String {
    chunk(&chat_delta(&"x".repeat(20_000)))
}

async fn asked(world: &mut World, client: &mut Peer) -> Peer {
    client.send(chat_request("m")).await;
    let mut up = world.upstream().await;
    up.read_to("[]}").await;
    up.send(SSE_HEAD).await;
    client.head().await;
    up
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_stops_the_upstream_and_taints_the_gaps_behind_it() {
    let mut world = World::new(WorldOptions::narrow());
    let mut client = world.client();
    let mut up = asked(&mut world, &mut client).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let upstream = tokio::spawn(async move {
        for _ in 0..50 {
            sleep(ms(20)).await;
            up.send(large_event()).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
        up.send(chunk(&chat_end(7, 51))).await;
        up.send(LAST_CHUNK).await;
        up
    });
    for _ in 0..3 {
        client.read_to("null}]}\n\n\r\n").await;
    }
    sleep(ms(2_000)).await;
    let held = sent.load(Ordering::Relaxed);
    assert!(held < 12, "{held} of 50 events went on: three were read, a few more lie in pipes and buffers");
    client.read_to(LAST_CHUNK).await;
    upstream.await.unwrap();

    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(record.output_events, 50);
    assert!(record.flags.tainted);
    assert_eq!((record.tpot(), record.output_speed()), (None, None));
    // The fourth event came 20 ms after the third, and its write was pending until the client read on.
    assert_eq!(whole_ms(record.timeline.waits.client), 1_980);
    assert_eq!(record.timeline.waits.client_stalls, 1);
    assert_eq!(ms_of(record.cadence.max_gap()), Some(20), "no gap across the stall or behind it");
    assert!(record.cadence.gaps() < 5, "{} gaps", record.cadence.gaps());
    assert_eq!(record.event_overhead.max, Nanos::ZERO, "waiting for the client is no overhead");
    assert_eq!(record.event_overhead.count, 50);
    let generation: u64 = stages(&record).iter().filter(|(stage, _)| *stage == "generation").map(|(_, ms)| ms).sum();
    assert!(generation >= 2_000, "a stall amid the generation stays there: {generation}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_merely_slow_taints_nothing() {
    let mut world = World::new(WorldOptions::narrow());
    let mut client = world.client();
    let mut up = asked(&mut world, &mut client).await;
    let upstream = tokio::spawn(async move {
        for _ in 0..5 {
            up.send(chunk(&chat_delta(&"x".repeat(3_000)))).await;
            sleep(ms(50)).await;
        }
        up.send(chunk(&chat_end(7, 11))).await;
        up.send(LAST_CHUNK).await;
    });
    let (mut pipe, mut seen) = client.into_inner();
    while !seen.ends_with(LAST_CHUNK.as_bytes()) {
        let mut piece = [0; 1024];
        let count = tokio::io::AsyncReadExt::read(&mut pipe, &mut piece).await.unwrap();
        seen.extend_from_slice(&piece[..count]);
        sleep(ms(5)).await;
    }
    upstream.await.unwrap();
    let record = world.record().await;
    assert!(record.timeline.waits.client > Nanos::ZERO);
    assert_eq!((record.timeline.waits.client_stalls, record.flags.tainted), (0, false));
    assert_eq!(ms_of(record.cadence.max_gap()), Some(50));
    assert_eq!(record.cadence.gaps(), 4);
    assert_eq!(ms_of(record.tpot()), Some(20));
    assert_eq!(record.event_overhead.max, Nanos::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stall_in_which_the_provider_was_silent_taints_nothing() {
    let mut world = World::new(WorldOptions::narrow());
    let mut client = world.client();
    let mut up = asked(&mut world, &mut client).await;
    let first = chunk(&chat_delta(&"x".repeat(3_000)));
    tokio::join!(up.send(&first), async {
        sleep(ms(500)).await;
        client.read_to("null}]}\n\n\r\n").await;
    });
    sleep(ms(100)).await;
    up.send(chunk(&chat_delta("b"))).await;
    up.send(chunk(&chat_end(7, 4))).await;
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!((record.timeline.waits.client_stalls, record.flags.tainted), (1, false));
    assert_eq!(whole_ms(record.timeline.waits.client), 500);
    assert_eq!(record.cadence.gaps(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_output_s_overhead_leaves_out_what_the_client_made_it_wait() {
    let mut world = World::new(WorldOptions::narrow());
    let mut client = world.client();
    let mut up = asked(&mut world, &mut client).await;
    // A comment fills everything on the way down; 100 ms later the first output arrives behind it, is read, and waits for
    // another 300.
    let comment = chunk(&format!(": {}\n\n", "x".repeat(12_000)));
    let ((), ()) = tokio::join!(
        async {
            up.send(comment).await;
            sleep(ms(100)).await;
            up.send(chunk(&chat_delta("Hello"))).await;
        },
        async {
            sleep(ms(400)).await;
            client.read_to("Hello").await;
        }
    );
    up.send(chunk(&chat_end(7, 1))).await;
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!(ms_of(record.timeline.ttft()), Some(100), "the arrival is the read's");
    assert_eq!(ms_of(record.timeline.client_ttft()), Some(400));
    assert_eq!(ms_of(record.timeline.overhead_first_output()), Some(0));
    assert_eq!(whole_ms(record.timeline.waits.first_output), 300);
    assert_eq!(whole_ms(record.timeline.waits.client), 400);
    assert_eq!(record.event_overhead.max, Nanos::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_is_not_held() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let mut up = asked(&mut world, &mut client).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let upstream = tokio::spawn(async move {
        let event = large_event();
        while up.try_send(&event).await.is_ok() {
            counted.fetch_add(event.len(), Ordering::Relaxed);
        }
    });
    sleep(ms(60_000)).await;
    let held = sent.load(Ordering::Relaxed);
    assert!(held < 1 << 20, "{held} bytes lie between the upstream and a client that does not read");
    drop(client);
    upstream.await.unwrap();
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::ClientGone);
    assert_eq!(record.timeline.waits.client, record.wall(), "all of it, and still pending when it left");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_read_holds_up_the_client() {
    let mut world = World::new(WorldOptions::default());
    let client = world.client();
    let up = {
        let mut client = client;
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let sending = tokio::spawn(async move {
            client.send("POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 100000000\r\n\r\n").await;
            while client.try_send(vec![b'x'; 10_000]).await.is_ok() {
                counted.fetch_add(10_000, Ordering::Relaxed);
            }
        });
        let up = world.upstream().await;
        sleep(ms(5_000)).await;
        let held = sent.load(Ordering::Relaxed);
        assert!(held < 1 << 20, "{held} bytes lie between the client and an upstream that does not read");
        drop(up);
        sending.abort();
        sending.await
    };
    assert!(up.is_err(), "it was still sending");
    let record = world.record().await;
    assert_eq!(record.timeline.waits.upstream_stalls, 1);
    assert_eq!(stages(&record), [("upload", 5_000)]);
}
