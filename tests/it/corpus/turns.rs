//! Recorded WebSocket sessions, played by both sides through the whole data plane, a message a millisecond: the same bytes,
//! and a record for each turn with its own times and counts.

use serde_json::Value;
use streamgauge::{
    dialect::{Dialect, Endpoint},
    observation::Outcome,
};
use tokio::time::sleep;

use super::sessions::sessions;
use crate::{
    support::{World, WorldOptions, ms, whole_ms},
    turns::frames::{Session, asks, says},
};

#[tokio::test(start_paused = true)]
async fn recorded_sessions_pass_the_whole_proxy() {
    let Some(sessions) = sessions() else { return };
    let mut turns = 0;
    for recorded in &sessions {
        let name = &recorded.name;
        let target = match recorded.dialect {
            Dialect::GeminiLive => "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
            _ => "/v1/realtime?model=m",
        };
        let world = World::new(WorldOptions { pipe: 1 << 20, ..WorldOptions::default() });
        let mut session = Session::open(world, target).await;
        let (mut asked, mut output, mut events) = (Vec::new(), 0, 0);
        let mut now = 0;
        for (client, text) in &recorded.messages {
            sleep(ms(1)).await;
            now += 1;
            if *client {
                let message: Value = serde_json::from_str(text).expect("JSON");
                if message["type"] == "response.create" || message["type"].is_null() && message.get("setup").is_none() {
                    asked.push(now);
                }
                session.up(asks(text)).await;
            } else {
                session.down(says(text)).await;
            }
        }
        let mut first = None;
        for asked in &asked {
            let turn = session.turn().await;
            assert_eq!((turn.endpoint, turn.outcome), (Endpoint::Realtime, Outcome::Complete), "{name}");
            let marks = &turn.timeline;
            let ttft = marks.ttft().map(whole_ms);
            assert_eq!(marks.client_ttft().map(whole_ms), ttft, "{name}: nothing waits in memory");
            first = first.or(ttft.map(|ttft| asked + ttft));
            output += turn.facts.usage.output.unwrap_or(0);
            events += turn.output_events;
        }
        let number = |key: &str| recorded.row[key].parse::<u64>().ok();
        assert_eq!(Some(events), number("gen_events"), "{name}: output events of all turns");
        // The reference counts the provider's messages alone; the clients' take their millisecond as well.
        let of_provider = recorded.messages.iter().enumerate().filter(|(_, (client, _))| !client);
        let times: Vec<u64> = of_provider.map(|(index, _)| index as u64 + 1).collect();
        let expected_first = number("first_gen").map(|index| times[usize::try_from(index).expect("a place")]);
        assert_eq!(first, expected_first, "{name}: the first output event");
        if asked.len() == 1 {
            assert_eq!(Some(output), number("output_total"), "{name}: output tokens");
        }
        let tunnel = session.end().await;
        assert_eq!(tunnel.observer_off, None, "{name}");
        turns += asked.len();
    }
    println!("{} sessions of {turns} turns were played through the proxy", sessions.len());
}
