//! How turns end: by an error, by either side's leaving, by the shutdown.

use streamgauge::observation::{Limit, Observation, Outcome};
use tokio::time::sleep;

use super::{
    COMPLETED, CREATE, CREATED, DELTA, PATH,
    frames::{CLOSE, FIN, Session, asks, frame, masked, sample, says, tunnel},
    options, world,
};
use crate::support::{World, WorldOptions, ms, ms_of, stages, tls};

/// A session amid its turn, whose first output came after 100 ms, 50 ms ago.
async fn amid(world: World) -> Session {
    let mut session = Session::open(world, PATH).await;
    amid_turn(&mut session).await;
    session
}

async fn amid_turn(session: &mut Session) {
    session.up(asks(CREATE)).await;
    sleep(ms(100)).await;
    session.down([CREATED, DELTA].map(says).concat()).await;
    sleep(ms(50)).await;
}

/// What every turn that was begun like this has, however it ended.
#[track_caller]
fn assert_cut(turn: &Observation, outcome: Outcome) {
    assert_eq!(turn.outcome, outcome);
    assert_eq!([turn.timeline.ttft(), turn.timeline.client_ttft()].map(ms_of), [Some(100); 2]);
    assert_eq!(stages(turn), [("first_output_wait", 100), ("tail", 50)]);
    assert_eq!((turn.output_events, turn.output_tokens()), (1, None));
}

#[tokio::test(start_paused = true)]
async fn an_error_ends_its_turn_and_not_the_session() {
    let mut session = amid(world()).await;
    session.down(says(r#"{"type":"error","status":500,"error":{"type":"server_error","code":"broken"}}"#)).await;
    let turn = session.turn().await;
    assert_cut(&turn, Outcome::ErrorEvent);
    assert_eq!(turn.facts.error.as_deref(), Some("server_error"));
    assert_eq!((ms_of(turn.timeline.duration()), ms_of(turn.client_duration())), (Some(150), Some(150)));

    // One that was refused had no output, and its model is nobody's.
    session.up(asks(&CREATE.replace(r#""m""#, r#""nonsense""#))).await;
    sleep(ms(700)).await;
    session.down(says(r#"{"type":"error","status":400,"error":{"code":"model_not_found"}}"#)).await;
    let refused = session.turn().await;
    assert_eq!((refused.outcome, refused.timeline.ttft()), (Outcome::ErrorEvent, None));
    assert_eq!(stages(&refused), [("first_output_wait", 700)]);
    let scrape = session.world.scrape();
    assert!(!scrape.contains("nonsense"), "{scrape}");
    let failed = ["model=\"_other\"", "endpoint=\"responses\"", "outcome=\"error_event\""];
    assert_eq!(sample(&scrape, "streamgauge_requests_total", &failed).as_deref(), Some("1"));
    for (deadline, missed) in [("0.3", "1"), ("0.6", "1"), ("1", "1")] {
        let labels = ["model=\"_other\"", "result=\"missed\"", &format!("deadline=\"{deadline}\"")];
        assert_eq!(sample(&scrape, "streamgauge_ttft_deadline_total", &labels).as_deref(), Some(missed), "{deadline}");
    }

    amid_turn(&mut session).await;
    session.down(says(COMPLETED)).await;
    assert_eq!(session.turn().await.outcome, Outcome::Complete);
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_was_gone() {
    let Session { mut world, client, mut up } = amid(world()).await;
    drop(client);
    up.assert_closed().await;
    // Its end was seen; what is still said to it finds nobody.
    while up.try_send(says(DELTA)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let turn = world.record().await;
    assert_eq!((turn.outcome, turn.flags.partial), (Outcome::ClientGone, true));
    assert_eq!(ms_of(turn.timeline.ttft()), Some(100));
    assert_eq!((turn.timeline.response_end, turn.timeline.delivered), (None, None));
    tunnel(&mut world, Outcome::ClientGone).await;
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_on_a_client_that_said_goodbye_breaks_nothing_off() {
    for goodbye in [true, false] {
        let mut session = amid(world()).await;
        if goodbye {
            session.up(masked(FIN | CLOSE, &1000_u16.to_be_bytes())).await;
            session.down(frame(FIN | CLOSE, &1000_u16.to_be_bytes())).await;
        } else {
            session.client.shutdown().await;
            session.up.assert_closed().await;
            session.up.shutdown().await;
        }
        assert_cut(&session.turn().await, Outcome::ClientGone);
        session.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_ended_its_side_still_gets_its_answer() {
    let mut session = amid(world()).await;
    session.client.shutdown().await;
    session.up.assert_closed().await;
    session.down(says(COMPLETED)).await;
    assert_eq!(session.turn().await.outcome, Outcome::Complete);
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_closes_amid_a_turn_truncates_it() {
    for goodbye in [true, false] {
        let mut session = amid(world()).await;
        if goodbye {
            session.down(frame(FIN | CLOSE, &1011_u16.to_be_bytes())).await;
        } else {
            session.up.shutdown().await;
        }
        let turn = session.turn().await;
        assert_cut(&turn, Outcome::Truncated);
        assert_eq!(ms_of(turn.timeline.duration()), Some(150));
        session.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_breaks_amid_a_turn_resets_it() {
    // Over TLS an end without a goodbye is a break.
    let options = WorldOptions { dns: Some(ms(0)), upstream: tls::speak_tls, ..options() };
    let mut world = World::new(options);
    let mut client = world.client();
    let head = "GET /v1/responses HTTP/1.1\r\nHost: up.test:80\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    client.send(head).await;
    let mut up = tls::accept_tls(world.upstream().await).await;
    assert_eq!(up.head().await, head);
    up.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n").await;
    client.head().await;
    let mut session = Session { world, client, up };
    amid_turn(&mut session).await;
    let Session { mut world, mut client, up } = session;
    drop(up);
    client.assert_closed().await;
    assert_cut(&world.record().await, Outcome::UpstreamReset);
    tunnel(&mut world, Outcome::UpstreamReset).await;
}

#[tokio::test(start_paused = true)]
async fn the_shutdowns_deadline_cuts_turn_and_tunnel() {
    let Session { mut world, mut client, mut up } = amid(world()).await;
    world.cut();
    let turn = world.record().await;
    assert_cut(&turn, Outcome::Drained);
    assert_eq!((turn.limit, turn.flags.partial), (Some(Limit::Drain), true));
    let tunnel = tunnel(&mut world, Outcome::Drained).await;
    assert_eq!((tunnel.limit, tunnel.request_bytes), (Some(Limit::Drain), 0));
    client.assert_closed().await;
    up.assert_closed().await;
}
