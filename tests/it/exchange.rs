//! The measuring machine by itself, driven with whatever order of events, of exchanges and of turns: one observation,
//! stages that add up, nothing negative, no panic.

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

use http::{Response, response::Parts};
use proptest::prelude::*;
use streamgauge::{
    clock::{Clock, Nanos, Stamp},
    dialect::{Dialect, Endpoint, Facts, Kinds, ObserverOff, RequestFacts, Signal},
    exchange::{Answered, Cause, Exchange, Sent},
    observation::{ExchangeId, Limit, Observation, Outcome},
    proxy::Gateway,
    record::{Marked, Recorder},
    tap::{Open, Shared},
    timeline::Timeline,
    upload::Upload,
    upstream::Dialled,
};

use crate::support::{chat_delta, chat_end, config, upstream};

#[tokio::test]
async fn a_listener_that_panics_leaves_nothing_in_flight() {
    let config = config(vec![Arc::new(upstream("up", "127.0.0.1"))]);
    let clock = Clock::start();
    let recorder = Recorder::new(&config, clock).expect("no file to open");
    let recorder = Arc::new(recorder.with_listener(Box::new(|_| panic!("on purpose"))));
    let shared = Shared::new(clock, Arc::clone(&recorder), 1);
    let now = clock.now();
    let seen = Observation::begin(ExchangeId(1), SystemTime::UNIX_EPOCH, Timeline::begin(now), Outcome::GatewayError);
    let exchange = Exchange::begin(seen, recorder, None, Arc::default(), Marked::default());
    let open = Open::new(exchange, Arc::clone(&shared), Gateway::downstream(0));
    assert_eq!(shared.in_flight(), 1);
    let closed = tokio::spawn(async move { open.close(Cause::Ended) }).await;
    assert!(closed.is_err_and(|error| error.is_panic()));
    assert_eq!(shared.in_flight(), 0);
}

/// Something that happens to an exchange.
#[derive(Clone, Debug)]
enum Event {
    Attempt,
    Leased(bool),
    RequestEnd,
    Started(bool),
    Sent,
    Head(u16, bool),
    Data(usize),
    Departed,
    Taint,
    ResponseEnd,
    Answer,
    Tunnel,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::Attempt),
        1 => any::<bool>().prop_map(Event::Leased),
        1 => Just(Event::RequestEnd),
        1 => any::<bool>().prop_map(Event::Started),
        1 => Just(Event::Sent),
        1 => (prop_oneof![Just(200_u16), Just(404), Just(429), Just(503)], any::<bool>())
            .prop_map(|(status, stream)| Event::Head(status, stream)),
        8 => (0_usize..6).prop_map(Event::Data),
        4 => Just(Event::Departed),
        1 => Just(Event::Taint),
        1 => Just(Event::ResponseEnd),
        1 => Just(Event::Answer),
        1 => Just(Event::Tunnel),
    ]
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        4 => Just(Cause::Ended),
        1 => Just(Cause::Reset),
        1 => Just(Cause::TimedOut(Limit::Idle)),
        1 => Just(Cause::ClientGone),
        1 => Just(Cause::Drained),
        1 => Just(Cause::Panicked),
    ]
}

fn head(status: u16, stream: bool) -> Parts {
    let kind = if stream { "text/event-stream" } else { "application/json" };
    let response = Response::builder().status(status).header("content-type", kind).body(()).expect("a head");
    response.into_parts().0
}

fn piece(which: usize) -> Vec<u8> {
    match which {
        0 => chat_delta("text").into_bytes(),
        1 => [chat_delta("two"), chat_delta("at once")].concat().into_bytes(),
        2 => chat_end(3, 9).into_bytes(),
        3 => b": a comment\n\n".to_vec(),
        4 => b"data: {\"error\":{\"type\":\"x\"}}\n\ndata: not json\n\n".to_vec(),
        _ => b"data: {\"choices\":[{\"delta\":{\"content\":\"ha".to_vec(),
    }
}

type Seen = Arc<Mutex<Vec<Observation>>>;

thread_local! {
    /// One for all cases of a test: it is dear to make.
    static RECORDER: (Arc<Recorder>, Seen) = {
        let config = config(vec![Arc::new(upstream("up", "127.0.0.1"))]);
        let seen = Seen::default();
        let told = Arc::clone(&seen);
        let recorder = Recorder::new(&config, Clock::start()).expect("no file to open");
        let listener = Box::new(move |record: &Observation| told.lock().unwrap().push(record.clone()));
        (Arc::new(recorder.with_listener(listener)), seen)
    };
}

/// A recorder, and what it was told and nobody took.
fn recorder() -> (Arc<Recorder>, Seen) {
    RECORDER.with(Clone::clone)
}

fn drive(events: &[(Event, u64)], cause: Cause, step_back: bool) -> Vec<Observation> {
    let (recorder, seen) = recorder();
    let handles = recorder.upstream(&"up".into());
    let upload = Arc::new(Upload::default());
    let mut now = Stamp::from_nanos(1_000_000).unwrap();
    let mut first =
        Observation::begin(ExchangeId(1), SystemTime::UNIX_EPOCH, Timeline::begin(now), Outcome::GatewayError);
    (first.endpoint, first.dialect) = (Endpoint::Chat, Dialect::OpenAiChat);
    let mut exchange = Exchange::begin(
        first,
        Arc::clone(&recorder),
        Some(Arc::clone(&handles)),
        Arc::clone(&upload),
        Marked::default(),
    );
    for (index, (event, step)) in events.iter().enumerate() {
        // Stamps come from several tasks: one may be older than the one before it.
        let back = step_back && index % 3 == 0;
        now = if back { now.minus(Nanos(*step)) } else { now + Nanos(*step) };
        let wait = Nanos(*step / 2);
        match event {
            Event::Attempt => exchange.attempt(now, Some(&Dialled::default())),
            Event::Leased(dialled) => exchange.leased(now, !dialled, *dialled),
            Event::RequestEnd => upload.note_end(now, now, wait),
            Event::Started(stream) => {
                let facts = RequestFacts { model: Some("m".into()), stream: Some(*stream), dialect: None };
                upload.start_with(facts, &recorder, &handles, now);
            }
            Event::Sent => {
                let last = upload.ended().map(|_| now);
                exchange.sent(Sent { first: Some(now), last, upload: wait, stalled: wait, stalls: 1 });
            }
            Event::Head(status, stream) => exchange.head(now, &head(*status, *stream), Some(Dialect::OpenAiChat)),
            Event::Data(which) => exchange.data(now, &piece(*which), wait),
            Event::Departed => exchange.departed(now, Nanos(*step)),
            Event::Taint => exchange.taint(),
            Event::ResponseEnd => exchange.response_end(now, wait),
            Event::Answer => {
                exchange.answer(now, Answered { outcome: Outcome::Refused, limit: Some(Limit::InFlight), status: 503 });
            }
            Event::Tunnel => exchange.tunnel(),
        }
    }
    exchange.finish(now, cause);
    std::mem::take(&mut *seen.lock().unwrap())
}

/// One observation, whose stages add up to its wall time, none of them longer than it; no time is longer than all of them.
fn assert_adds_up(records: &[Observation]) -> Result<(), TestCaseError> {
    prop_assert_eq!(records.len(), 1);
    let record = &records[0];
    let wall = record.wall();
    prop_assert!(record.timeline.end.is_some());
    prop_assert_eq!(record.stages().iter().map(|stage| stage.0).sum::<u64>(), wall.0);
    prop_assert!(record.stages().iter().all(|stage| *stage <= wall));
    Ok(())
}

/// Something that happens to a turn.
#[derive(Clone, Debug)]
enum TurnEvent {
    AskedAgain,
    Carried,
    /// Whether it is output.
    Told(bool),
    PassedOn,
    Said,
    LostSight,
}

fn turn_event() -> impl Strategy<Value = TurnEvent> {
    prop_oneof![
        1 => Just(TurnEvent::AskedAgain),
        2 => Just(TurnEvent::Carried),
        4 => any::<bool>().prop_map(TurnEvent::Told),
        4 => Just(TurnEvent::PassedOn),
        1 => Just(TurnEvent::Said),
        1 => Just(TurnEvent::LostSight),
    ]
}

/// `began`: the client asked, the provider heard it, or nobody knows.
fn drive_turn(events: &[(TurnEvent, u64)], began: u8, cause: Cause, step_back: bool) -> Vec<Observation> {
    let (recorder, seen) = recorder();
    let handles = recorder.upstream(&"up".into());
    let mut now = Stamp::from_nanos(100_000_000).unwrap();
    let begin =
        |at| Observation::begin(ExchangeId(1), SystemTime::UNIX_EPOCH, Timeline::begin(at), Outcome::GatewayError);
    let tunnel = Exchange::begin(begin(now), Arc::clone(&recorder), Some(handles), Arc::default(), Marked::default());
    now = now + Nanos(5_000_000);
    let facts = RequestFacts { model: Some("m".into()), stream: Some(true), dialect: Some(Dialect::Realtime) };
    let mut turn = tunnel.turn(begin(now), Endpoint::Realtime, facts);
    let sent = |now, wait| Sent { first: Some(now), last: Some(now), upload: wait, stalled: wait, stalls: 1 };
    match began {
        0 => turn.asked(sent(now + Nanos(1_000_000), Nanos(400_000))),
        1 => turn.heard(),
        _ => turn.unasked(),
    }
    for (index, (event, step)) in events.iter().enumerate() {
        let back = step_back && index % 3 == 0;
        now = if back { now.minus(Nanos(*step)) } else { now + Nanos(*step) };
        let wait = Nanos(*step / 2);
        match event {
            TurnEvent::AskedAgain => turn.asked_again(now, SystemTime::UNIX_EPOCH, sent(now, wait)),
            TurnEvent::Carried => turn.carried(now, 10),
            TurnEvent::Told(output) => {
                let output = if *output { Kinds::ANSWER } else { Kinds::NONE };
                turn.told(now, Signal { output, ..Signal::default() }, wait);
            }
            TurnEvent::PassedOn => turn.passed_on(now, Nanos(*step)),
            TurnEvent::Said => turn.said(now, Facts::default()),
            TurnEvent::LostSight => turn.lost_sight(ObserverOff::Malformed),
        }
    }
    turn.finish_turn(now, cause);
    // The tunnel is nobody's exchange here: only its turn is looked at.
    let records = std::mem::take(&mut *seen.lock().unwrap());
    drop(tunnel);
    records
}

proptest! {
    #[test]
    fn whatever_happens_to_a_turn_is_one_observation_that_adds_up(
        events in proptest::collection::vec((turn_event(), 0_u64..50_000_000), 0..30),
        began in 0_u8..3,
        cause in cause(),
        step_back in any::<bool>(),
    ) {
        let records = drive_turn(&events, began, cause, step_back);
        assert_adds_up(&records)?;
        let record = &records[0];
        prop_assert_eq!(record.status, Some(101));
        prop_assert_eq!(record.timeline.first_output.is_some(), record.output_events > 0);
        if began > 0 {
            prop_assert_eq!(record.client_duration(), None);
        }
    }

    #[test]
    fn whatever_happens_is_one_observation_that_adds_up(
        events in proptest::collection::vec((event(), 0_u64..50_000_000), 0..40),
        cause in cause(),
        step_back in any::<bool>(),
    ) {
        let records = drive(&events, cause, step_back);
        assert_adds_up(&records)?;
        let record = &records[0];
        let marks = &record.timeline;
        prop_assert!(record.output_events <= record.events);
        prop_assert!(record.cadence.gaps() + record.cadence.coalesced() <= record.output_events.max(1) + record.reads);
        prop_assert!(record.event_overhead.count <= record.output_events);
        for speed in [record.output_speed(), record.end_to_end_speed(), record.tokens_per_event()].into_iter().flatten() {
            prop_assert!(speed.is_finite() && speed >= 0.0);
        }
        if record.flags.tainted {
            prop_assert_eq!(record.tpot(), None);
        }
        prop_assert_eq!(record.limit.is_some() && record.outcome == Outcome::Complete, false);
        prop_assert_eq!(marks.first_output.is_some(), record.output_events > 0);
        prop_assert_eq!(marks.last_output.is_some(), record.output_events > 0);
        if !events.iter().any(|(event, _)| matches!(event, Event::Head(..))) {
            prop_assert_eq!(record.events, 0);
        }
    }
}
