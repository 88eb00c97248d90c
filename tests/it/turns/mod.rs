//! Turns of WebSocket sessions: each is an exchange with marks of its own, and not a byte is touched for it.

mod ends;
pub mod frames;
mod live;
mod reading;
mod voice;

use streamgauge::{
    config::Upstream,
    dialect::{Dialect, Endpoint},
    observation::Outcome,
};
use tokio::time::sleep;

use self::frames::{Session, asks, sample, says};
use crate::support::{World, WorldOptions, assert_same, ms, ms_of, stages};

const PATH: &str = "/v1/responses";
pub const CREATE: &str = r#"{"type":"response.create","model":"m","input":[]}"#;
pub const CREATED: &str = r#"{"type":"response.created","response":{"model":"m-1","status":"in_progress"}}"#;
pub const DELTA: &str = r#"{"type":"response.output_text.delta","delta":"Hi"}"#;
pub const COMPLETED: &str = r#"{"type":"response.completed","response":{"model":"m-1","status":"completed","usage":{"input_tokens":9,"output_tokens":7}}}"#;

/// A world whose upstream serves the models `m` and `n`.
fn options() -> WorldOptions {
    let models = |upstream: &mut Upstream| upstream.models = vec!["m".to_owned(), "n".to_owned()];
    WorldOptions { upstream: models, ..WorldOptions::default() }
}

fn world() -> World {
    World::new(options())
}

/// How often the histogram with this name has observed anything, over all models.
fn count(scrape: &str, family: &str) -> u64 {
    let name = format!("streamgauge_{family}_count{{");
    scrape
        .lines()
        .filter(|line| line.starts_with(&name))
        .map(|line| line.rsplit(' ').next().unwrap())
        .fold(0, |sum, it| sum + it.parse::<u64>().unwrap())
}

#[tokio::test(start_paused = true)]
async fn two_turns_on_one_socket_have_their_own_marks() {
    let world = World::new(WorldOptions {
        config: |config| config.session_header = Some("x-session".parse().unwrap()),
        ..options()
    });
    let headers = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX-Session: s-1\r\n";
    let mut session = Session::open_with(world, "/v1/responses?key=secret", headers, "").await;
    sleep(ms(5_000)).await;
    for (model, wait) in [("m", 120), ("n", 340)] {
        let ask = asks(&CREATE.replace(r#""m""#, &format!("{model:?}")));
        let events = [CREATED, DELTA, DELTA, COMPLETED].map(says);
        session.up(&ask).await;
        for (event, pause) in events.iter().zip([30, wait, 50, 20]) {
            sleep(ms(pause)).await;
            session.down(event).await;
        }
        let turn = session.turn().await;
        let marks = &turn.timeline;
        assert_eq!(
            (turn.endpoint, turn.dialect, turn.outcome),
            (Endpoint::Responses, Dialect::OpenAiResponses, Outcome::Complete)
        );
        assert_eq!((turn.model.as_deref(), turn.facts.response_model.as_deref()), (Some(model), Some("m-1")));
        assert_eq!((turn.path.as_deref(), turn.session.as_deref()), (Some("/v1/responses"), Some("s-1")));
        assert_eq!(turn.trace_id.as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
        assert!(turn.stream && turn.load == Some(1), "the tunnel is no load");
        assert_eq!((turn.facts.usage.input, turn.output_tokens()), (Some(9), Some(7)));
        assert_eq!((turn.events, turn.output_events, turn.reads, turn.cadence.coalesced()), (4, 2, 4, 0));
        assert_eq!((turn.request_bytes, turn.response_bytes), (ask.len() as u64, events.concat().len() as u64));
        assert_eq!((marks.request_end, marks.sent_last), (Some(marks.request_head), Some(marks.request_head)));
        assert_eq!((marks.lease_wanted, marks.head_back, marks.ttfb()), (None, None, None));
        assert_eq!(ms_of(marks.first_event_time()), Some(30));
        assert_eq!([marks.ttft(), marks.answer_ttft(), marks.client_ttft()].map(ms_of), [Some(30 + wait); 3]);
        assert_eq!([marks.duration(), turn.client_duration()].map(ms_of), [Some(100 + wait); 2]);
        assert_eq!((ms_of(turn.cadence.max_gap()), ms_of(turn.overhead_request())), (Some(50), Some(0)));
        assert_eq!(stages(&turn), [("first_output_wait", 30 + wait), ("generation", 50), ("tail", 20)]);
        sleep(ms(1_000)).await;
    }

    let scrape = session.world.scrape();
    assert_eq!(count(&scrape, "ttft_seconds"), 2);
    for family in
        ["client_ttft_seconds", "first_event_seconds", "client_duration_seconds", "time_per_output_token_seconds"]
    {
        assert_eq!(count(&scrape, family), 2, "{family}");
    }
    for (family, sum) in [("ttft_seconds_sum", "0.37"), ("client_ttft_seconds_sum", "0.37")] {
        assert_eq!(
            sample(&scrape, &format!("streamgauge_{family}"), &["model=\"n\""]).as_deref(),
            Some(sum),
            "{family}"
        );
    }
    assert_eq!(count(&scrape, "voice_first_audio_seconds"), 0, "the client asked");
    let turns = ["model=\"m\"", "endpoint=\"responses\"", "stream=\"true\"", "outcome=\"complete\""];
    assert_eq!(sample(&scrape, "streamgauge_requests_total", &turns).as_deref(), Some("1"));
    let met = ["model=\"m\"", "deadline=\"0.3\"", "result=\"met\""];
    assert_eq!(sample(&scrape, "streamgauge_ttft_deadline_total", &met).as_deref(), Some("1"));
    let tunnel = session.end().await;
    assert_eq!((tunnel.request_bytes, tunnel.response_bytes, tunnel.observer_off), (0, 0, None));
    assert_eq!((ms_of(Some(tunnel.wall())), tunnel.load), (Some(5_000 + 2 * 1_100 + 120 + 340), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_turn_asked_for_while_another_runs_waits_for_it() {
    let mut session = Session::open(world(), PATH).await;
    session.up(asks(CREATE)).await;
    session.down(says(CREATED)).await;
    sleep(ms(100)).await;
    session.up(asks(CREATE)).await;
    sleep(ms(200)).await;
    session.down([DELTA, COMPLETED, CREATED].map(says).concat()).await;
    sleep(ms(50)).await;
    session.down([DELTA, COMPLETED].map(says).concat()).await;
    let (first, second) = (session.turn().await, session.turn().await);
    assert_eq!([&first, &second].map(|turn| ms_of(turn.timeline.ttft())), [Some(300), Some(250)]);
    assert_eq!([&first, &second].map(|turn| turn.load), [Some(1), Some(2)]);
    assert_eq!(second.timeline.first_event_time(), Some(ms(200).into()));
    assert_eq!(stages(&second), [("first_output_wait", 250)]);
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_before_there_is_a_tunnel_has_asked_when_there_is() {
    let mut world = world();
    let mut client = world.client();
    let head = "GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:80\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let ask = asks(CREATE);
    client.send([head.as_bytes(), &ask].concat()).await;
    let mut up = world.upstream().await;
    assert_eq!(up.head().await, head);
    sleep(ms(200)).await;
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\r\n";
    up.send(answer).await;
    assert_eq!(client.head().await, answer);
    assert_same(&up.read(ask.len()).await, &ask);
    sleep(ms(100)).await;
    let mut session = Session { world, client, up };
    session.down([DELTA, COMPLETED].map(says).concat()).await;
    let turn = session.turn().await;
    assert_eq!([turn.timeline.ttft(), turn.timeline.client_ttft()].map(ms_of), [Some(100); 2]);
    assert_eq!(stages(&turn), [("first_output_wait", 100)]);
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_tunnel_has_the_bytes_of_no_turn() {
    let mut session = Session::open(world(), "/v1/realtime?model=m").await;
    let greeting = says(r#"{"type":"session.created","session":{"model":"m","turn_detection":null}}"#);
    let append = asks(r#"{"type":"input_audio_buffer.append","audio":"AAAA"}"#);
    let ask = asks(r#"{"type":"response.create"}"#);
    let events = [
        says(r#"{"type":"response.created","response":{"id":"a"}}"#),
        says(r#"{"type":"response.done","response":{"id":"a","status":"completed"}}"#),
    ];
    let late = says(r#"{"type":"rate_limits.updated"}"#);
    session.down(&greeting).await;
    session.up(&append).await;
    session.up(&ask).await;
    session.down(events.concat()).await;
    session.up(&append).await;
    session.down(&late).await;
    let turn = session.turn().await;
    assert_eq!((turn.model.as_deref(), turn.endpoint), (Some("m"), Endpoint::Realtime));
    let bytes = ((append.len() + ask.len()) as u64, events.concat().len() as u64);
    assert_eq!((turn.request_bytes, turn.response_bytes), bytes);
    let Session { mut world, client, up } = session;
    drop((client, up));
    let tunnel = world.record().await;
    assert_eq!(
        (tunnel.request_bytes, tunnel.response_bytes),
        (append.len() as u64, (greeting.len() + late.len()) as u64)
    );
    let passed = [append.len() * 2 + ask.len(), greeting.len() + events.concat().len() + late.len()];
    for (direction, bytes) in ["request", "response"].into_iter().zip(passed) {
        let label = format!("direction=\"{direction}\"");
        let scrape = world.scrape();
        let lines = scrape.lines().filter(|line| line.starts_with("streamgauge_bytes_total{") && line.contains(&label));
        let counted: usize = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!(counted, bytes, "{direction}: each byte once");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_take_the_ask_is_upload() {
    let mut session = Session::open(World::new(WorldOptions { upstream_pipe: Some(512), ..options() }), PATH).await;
    let ask = asks(&CREATE.replace("[]", &format!("{:?}", "x".repeat(1_000))));
    session.client.send(&ask).await;
    sleep(ms(300)).await;
    assert_same(&session.up.read(ask.len()).await, &ask);
    sleep(ms(100)).await;
    session.down([DELTA, COMPLETED].map(says).concat()).await;
    let turn = session.turn().await;
    let (marks, waits) = (&turn.timeline, &turn.timeline.waits);
    assert_eq!(
        [marks.ttft(), marks.client_ttft(), turn.overhead_request()].map(ms_of),
        [Some(100), Some(400), Some(0)]
    );
    assert_eq!(stages(&turn), [("upload", 300), ("first_output_wait", 100)]);
    assert_eq!((waits.upstream, waits.upstream_stalls), (ms(300).into(), 1));
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_the_end_is_client_stall() {
    let options = WorldOptions { pipe: 512, upstream_pipe: Some(64 * 1024), ..options() };
    let mut session = Session::open(World::new(options), PATH).await;
    session.up(asks(CREATE)).await;
    sleep(ms(100)).await;
    session.down(says(DELTA)).await;
    let end = says(&COMPLETED.replace("m-1", &"x".repeat(1_000)));
    session.up.send(&end).await;
    sleep(ms(400)).await;
    // It is booked as soon as it has left.
    session.world.assert_no_record();
    assert_same(&session.client.read(end.len()).await, &end);
    let turn = session.turn().await;
    assert_eq!(stages(&turn), [("first_output_wait", 100), ("client_stall", 400)]);
    assert_eq!([turn.timeline.duration(), turn.client_duration()].map(ms_of), [Some(100), Some(500)]);
    let waits = &turn.timeline.waits;
    assert_eq!((waits.client, waits.client_stalls), (ms(400).into(), 1));
    let tunnel = session.end().await;
    let waits = &tunnel.timeline.waits;
    assert_eq!((waits.client, waits.client_stalls), (ms(0).into(), 0), "the turn has it");
}

#[tokio::test(start_paused = true)]
async fn a_first_output_is_observed_when_it_comes_however_slow_the_client_is() {
    let options = WorldOptions { pipe: 512, upstream_pipe: Some(64 * 1024), ..options() };
    let mut session = Session::open(World::new(options), PATH).await;
    session.up(asks(CREATE)).await;
    sleep(ms(200)).await;
    let down = [&CREATED.replace("m-1", &"x".repeat(600)), DELTA].map(says).concat();
    session.up.send(&down).await;
    sleep(ms(5_000)).await;
    let scrape = session.world.scrape();
    assert_eq!((count(&scrape, "ttft_seconds"), count(&scrape, "client_ttft_seconds")), (1, 0));
    let deadline = |result| {
        let labels = ["model=\"m\"", "deadline=\"1\"", &format!("result=\"{result}\"")];
        sample(&scrape, "streamgauge_ttft_deadline_total", &labels)
    };
    assert_eq!([deadline("met"), deadline("missed")].map(Option::unwrap), ["1", "0"]);
    assert_same(&session.client.read(down.len()).await, &down);
    session.down(says(COMPLETED)).await;
    let turn = session.turn().await;
    let marks = &turn.timeline;
    assert_eq!(
        [marks.ttft(), marks.client_ttft(), marks.overhead_first_output()].map(ms_of),
        [Some(200), Some(5_200), Some(0)]
    );
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_told_while_the_client_takes_nothing_is_not_timed_by_the_provider() {
    let options = WorldOptions { pipe: 512, upstream_pipe: Some(64 * 1024), ..options() };
    let mut session = Session::open(World::new(options), PATH).await;
    session.up(asks(CREATE)).await;
    sleep(ms(100)).await;
    session.down(says(DELTA)).await;
    sleep(ms(100)).await;
    session.down(says(DELTA)).await;
    let long = says(&DELTA.replace("Hi", &"x".repeat(20_000)));
    session.up.send(&long).await;
    sleep(ms(700)).await;
    session.world.assert_no_record();
    assert_same(&session.client.read(long.len()).await, &long);
    session.down([DELTA, COMPLETED].map(says).concat()).await;
    let turn = session.turn().await;
    assert_eq!((turn.flags.tainted, turn.output_events, turn.tpot()), (true, 4, None));
    assert_eq!(ms_of(turn.cadence.max_gap()), Some(100), "gaps before it stand");
    session.end().await;
}
