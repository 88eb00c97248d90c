//! What scrapes see of requests that wait: deadlines move when they pass, the oldest wait grows, and who leaves without a
//! token is in no histogram of those who got one.

use streamgauge::{
    config::Upstream,
    observation::{Limit, Outcome},
};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chat_role, chunk, ms, of_pair,
};

/// A world whose upstream serves the model `m`, so that its series are there from the start.
fn world(upstream: fn(&mut Upstream)) -> World {
    let mut world = World::new(WorldOptions { upstream, ..WorldOptions::default() });
    assert_eq!(Seen::now(&mut world), Seen::default());
    world
}

fn serving_m(upstream: &mut Upstream) {
    upstream.models = vec!["m".to_owned()];
}

/// What a scrape says of those who wait, and of those who waited.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Seen {
    /// For 0.3, 0.6 and 1 s.
    met: [f64; 3],
    missed: [f64; 3],
    oldest_wait: f64,
    ttfts: f64,
    abandoned: f64,
    abandoned_sum: f64,
}

impl Seen {
    fn now(world: &mut World) -> Self {
        let scrape = world.scrape();
        let of = |family: &str, labels: &str| of_pair(&scrape, family, labels).expect(family);
        let deadlines = |result: &str| {
            ["0.3", "0.6", "1"]
                .map(|deadline| of("ttft_deadline_total", &format!("deadline=\"{deadline}\",result=\"{result}\"")))
        };
        Self {
            met: deadlines("met"),
            missed: deadlines("missed"),
            oldest_wait: of("ttft_oldest_wait_seconds", ""),
            ttfts: of("ttft_seconds_count", ""),
            abandoned: of("ttft_abandoned_wait_seconds_count", ""),
            abandoned_sum: of("ttft_abandoned_wait_seconds_sum", ""),
        }
    }
}

/// Looks at these instants after `sent` and finds so many deadlines missed, none met, and the wait as old as it is.
async fn watch(world: &mut World, looks: &[(u64, [f64; 3])]) {
    let mut now = 0;
    for (at, missed) in looks {
        sleep(ms(at - now)).await;
        now = *at;
        let oldest_wait = ms(now).as_secs_f64();
        assert_eq!(Seen::now(world), Seen { missed: *missed, oldest_wait, ..Seen::default() }, "after {now} ms");
    }
}

/// A deadline is met to its last nanosecond, and missed from there on.
const LOOKS: [(u64, [f64; 3]); 8] = [
    (1, [0.0, 0.0, 0.0]),
    (300, [0.0, 0.0, 0.0]),
    (301, [1.0, 0.0, 0.0]),
    (600, [1.0, 0.0, 0.0]),
    (601, [1.0, 1.0, 0.0]),
    (1_000, [1.0, 1.0, 0.0]),
    (1_001, [1.0, 1.0, 1.0]),
    (7_000, [1.0, 1.0, 1.0]),
];

#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_misses_each_deadline_when_it_passes() {
    // Before its head, or behind it with all but output told.
    for begins in [false, true] {
        let mut world = world(serving_m);
        let (client, mut up) = world.asked(chat_request("m")).await;
        if begins {
            up.send(format!("{SSE_HEAD}{}{}", chunk(": processing\n\n"), chunk(&chat_role()))).await;
        }
        watch(&mut world, &LOOKS).await;
        drop(client);
        let record = world.record().await;
        assert_eq!((record.outcome, record.timeline.ttft()), (Outcome::ClientGone, None));
        let left = Seen { missed: [1.0; 3], abandoned: 1.0, abandoned_sum: 7.0, ..Seen::default() };
        assert_eq!(Seen::now(&mut world), left, "begins: {begins}");
        sleep(ms(5_000)).await;
        assert_eq!(Seen::now(&mut world), left, "and nothing moves any more");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_needs_to_look_for_a_deadline_to_pass() {
    let mut world = world(serving_m);
    let (client, up) = world.asked(chat_request("m")).await;
    sleep(ms(700)).await;
    drop(client);
    world.record().await;
    let left = Seen { missed: [1.0, 1.0, 0.0], abandoned: 1.0, abandoned_sum: 0.7, ..Seen::default() };
    assert_eq!(Seen::now(&mut world), left, "who leaves before a deadline counts in neither");
    drop(up);
}

#[tokio::test(start_paused = true)]
async fn a_late_output_meets_what_it_still_can() {
    let mut world = world(serving_m);
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    up.send(SSE_HEAD).await;
    watch(&mut world, &LOOKS[..4]).await;
    up.send(chunk(&chat_delta("Hello"))).await;
    client.read_to("Hello").await;
    // At once, not at the end of the stream; and the same from then on.
    let served = Seen { met: [0.0, 1.0, 1.0], missed: [1.0, 0.0, 0.0], ttfts: 1.0, ..Seen::default() };
    assert_eq!(Seen::now(&mut world), served);
    sleep(ms(60_000)).await;
    assert_eq!(Seen::now(&mut world), served);
    drop(client);
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::ClientGone);
    assert_eq!(Seen::now(&mut world), served, "who leaves with a token has abandoned no wait for one");
    drop(up);
}

#[tokio::test(start_paused = true)]
async fn an_end_without_output_misses_every_deadline_at_once() {
    type End = fn(&mut Upstream);
    let ends: [(&str, Outcome, End); 4] = [
        ("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", Outcome::Upstream5xx, serving_m),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n",
            Outcome::Truncated,
            serving_m,
        ),
        ("nonsense\r\n\r\n", Outcome::UpstreamReset, serving_m),
        ("", Outcome::UpstreamTimeout, |upstream| {
            serving_m(upstream);
            upstream.limits.head = Some(ms(200));
        }),
    ];
    for (answer, outcome, upstream) in ends {
        let mut world = world(upstream);
        let (_client, mut up) = world.asked(chat_request("m")).await;
        watch(&mut world, &[(199, [0.0; 3])]).await;
        up.send(answer).await;
        let record = world.record().await;
        assert_eq!(record.outcome, outcome);
        assert_eq!(record.limit, Some(Limit::Head).filter(|_| answer.is_empty()));
        assert_eq!(Seen::now(&mut world), Seen { missed: [1.0; 3], ..Seen::default() }, "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_wait_is_that_of_whoever_has_waited_longest() {
    let mut world = world(serving_m);
    let (mut first, mut first_up) = world.asked(chat_request("m")).await;
    sleep(ms(2_000)).await;
    let (second, second_up) = world.asked(chat_request("m")).await;
    sleep(ms(250)).await;
    assert_eq!((Seen::now(&mut world).oldest_wait, Seen::now(&mut world).missed), (2.25, [1.0; 3]));
    answer(&mut first, &mut first_up).await;
    assert_eq!(Seen::now(&mut world).oldest_wait, 0.25);
    drop(second);
    world.record().await;
    world.record().await;
    assert_eq!(Seen::now(&mut world).oldest_wait, 0.0, "nobody waits");
    drop(second_up);
}

async fn answer(client: &mut Peer, up: &mut Peer) {
    up.send(format!("{SSE_HEAD}{}{}{LAST_CHUNK}", chunk(&chat_delta("a")), chunk(&chat_end(7, 1)))).await;
    client.read_to(LAST_CHUNK).await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_no_stream_waits_for_no_token() {
    let mut world = world(serving_m);
    let (client, up) = world.asked(chat_request("m").replace("true", "null")).await;
    sleep(ms(5_000)).await;
    assert_eq!(Seen::now(&mut world), Seen::default());
    drop(client);
    world.record().await;
    assert_eq!(Seen::now(&mut world), Seen::default());
    drop(up);
}

#[tokio::test(start_paused = true)]
async fn load_time_in_flight_and_its_peak_are_of_the_moment() {
    let mut world = world(serving_m);
    let of = |world: &World, family: &str, labels: &str| of_pair(&world.scrape(), family, labels);
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(world.asked(chat_request("m")).await);
        sleep(ms(100)).await;
    }
    assert_eq!(of(&world, "in_flight", ""), Some(5.0));
    assert_eq!(of(&world, "in_flight_seconds_total", ""), Some(0.5 + 0.4 + 0.3 + 0.2 + 0.1));
    assert_eq!(of(&world, "requests_started_total", ""), Some(5.0), "before any of them has ended");
    for (client, up) in &mut open {
        answer(client, up).await;
        world.record().await;
    }
    for (load, count) in [("1", 1.0), ("2_4", 3.0), ("5_8", 1.0)] {
        assert_eq!(of(&world, "ttft_by_load_seconds_count", &format!("load=\"{load}\"")), Some(count), "{load}");
    }
    assert_eq!((of(&world, "in_flight", ""), of(&world, "in_flight_peak", "")), (Some(0.0), Some(5.0)));
    sleep(ms(58_000)).await;
    assert_eq!(of(&world, "in_flight_peak", ""), Some(5.0));
    sleep(ms(3_000)).await;
    assert_eq!(of(&world, "in_flight_peak", ""), Some(0.0), "of the last 60 s");
    assert_eq!(of(&world, "in_flight_seconds_total", ""), Some(1.5));
}

#[tokio::test(start_paused = true)]
async fn what_happens_amid_a_stream_is_observed_amid_it() {
    let mut world = world(serving_m);
    let of = |world: &World, family: &str| of_pair(&world.scrape(), family, "");
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    sleep(ms(40)).await;
    up.send(format!("{SSE_HEAD}{}", chunk(&chat_role()))).await;
    client.head().await;
    tokio::task::yield_now().await;
    assert_eq!((of(&world, "first_event_seconds_sum"), of(&world, "ttfb_seconds_sum")), (Some(0.04), Some(0.04)));
    for (index, pause) in [200, 30, 70].into_iter().enumerate() {
        sleep(ms(pause)).await;
        up.send(chunk(&chat_delta(&format!("<{index}>")))).await;
        client.read_to(&format!("<{index}>")).await;
    }
    let amid = ["ttft_seconds_sum", "answer_ttft_seconds_sum", "client_ttft_seconds_sum", "inter_event_seconds_sum"];
    assert_eq!(amid.map(|family| of(&world, family)), [Some(0.24), Some(0.24), Some(0.24), Some(0.1)]);
    let counts = ["inter_event_seconds_count", "output_events_total", "events_total", "max_gap_seconds_count"];
    assert_eq!(counts.map(|family| of(&world, family)), [Some(2.0), Some(3.0), Some(4.0), Some(0.0)]);
    world.assert_no_record();
    up.send(chunk(&chat_end(7, 3))).await;
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    world.record().await;
    let end = ["max_gap_seconds_sum", "time_per_output_token_seconds_sum", "client_duration_seconds_sum"];
    assert_eq!(end.map(|family| of(&world, family)), [Some(0.07), Some(0.05), Some(0.34)]);
}
