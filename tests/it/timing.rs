//! Times under the paused clock: exact, since nothing but the script takes any.

use streamgauge::{clock::Nanos, observation::Outcome};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chat_role, chunk, ms,
};

#[tokio::test(start_paused = true)]
async fn ttft_is_the_providers_and_the_overhead_is_zero() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    up.send(SSE_HEAD).await;
    sleep(ms(50)).await;
    up.send(chunk(&chat_role())).await;
    sleep(ms(200)).await;
    up.send(chunk(&chat_delta("Hello"))).await;
    for _ in 0..4 {
        sleep(ms(20)).await;
        up.send(chunk(&chat_delta(" again"))).await;
    }
    up.send(chunk(&chat_end(7, 5))).await;
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;

    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(record.timeline.ttft(), Some(ms(250).into()));
    assert_eq!(record.timeline.first_event_time(), Some(ms(50).into()));
    assert_eq!(record.timeline.client_ttft(), Some(ms(250).into()));
    assert_eq!(record.timeline.overhead_first_output(), Some(Nanos::ZERO));
    assert_eq!(record.event_overhead.count, 5);
    assert_eq!(record.event_overhead.max, Nanos::ZERO);
    assert_eq!(record.cadence.max_gap(), Some(ms(20).into()));
    assert_eq!(record.timeline.duration(), Some(ms(330).into()));
    assert_eq!(record.wall(), ms(330).into());
    assert_eq!((record.facts.usage.input, record.facts.usage.output), (Some(7), Some(5)));
    world.assert_no_record();
}
