use std::{path::Path, sync::Mutex};

use proptest::prelude::*;

use super::*;
use crate::{
    clock::Clock,
    config::{Config, Overrides},
    dialect::{Dialect, Kinds},
    observation::{Observation, Outcome},
    record::{Marked, Recorder},
};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Stamp {
    Stamp::from_nanos(ms * MS).unwrap()
}

fn ms(span: u64) -> Nanos {
    Nanos(span * MS)
}

/// Left at `ms` without any waiting.
fn sent(ms: u64) -> Sent {
    let departure = Some(at(ms));
    Sent { first: departure, last: departure, upload: Nanos::ZERO, stalled: Nanos::ZERO, stalls: 0 }
}

fn ask(model: &str) -> Asked {
    Asked::Response { model: Some(model.to_owned()) }
}

fn event(place: usize, output: Kinds) -> Told {
    Told::Event(place, Signal { output, ..Signal::default() })
}

fn last(place: usize) -> Told {
    Told::Last(place, Signal { end: true, ..Signal::default() }, Box::default())
}

fn config() -> Config {
    let file = "[[upstreams]]\nname = \"u\"\nurl = \"http://127.0.0.1:1\"\n";
    Config::from_toml(file, Path::new("f.toml"), &Overrides::default()).unwrap()
}

/// What a tunnel's turns left behind.
struct Left {
    records: Vec<Observation>,
    scrape: String,
}

/// Runs `work` on the turns of a tunnel that began at 1 ms. Those it leaves open are dropped.
fn tunnel(work: impl FnOnce(&mut Turns<'_>)) -> Left {
    let clock = Clock::start();
    let records: Arc<Mutex<Vec<Observation>>> = Arc::default();
    let listener = Arc::clone(&records);
    let recorder = Recorder::new(&config(), clock).unwrap();
    let recorder = recorder.with_listener(Box::new(move |record| listener.lock().unwrap().push(record.clone())));
    let recorder = Arc::new(recorder);
    let shared = Shared::new(clock, Arc::clone(&recorder), 1);
    let mut seen = shared.begin(at(1));
    (seen.dialect, seen.trace_id) = (Dialect::Realtime, Some("trace".into()));
    let handles = recorder.upstream(&"u".into());
    let exchange = Exchange::begin(seen, Arc::clone(&recorder), Some(handles), Arc::default(), Marked::default());
    work(&mut Turns::new(&exchange, &shared, Endpoint::Realtime, Default::default(), None));
    let records = std::mem::take(&mut *records.lock().unwrap());
    Left { records, scrape: recorder.encode(false, at(100_000)) }
}

#[test]
fn a_turn_has_the_marks_of_its_messages() {
    let left = tunnel(|turns| {
        turns.up(100);
        turns.asked(ask("m"), at(1_000), sent(1_003));
        turns.down(50, at(1_100));
        turns.told(event(0, Kinds::NONE), at(1_100)).unwrap();
        turns.departed(at(1_101));
        turns.down(60, at(1_250));
        turns.told(event(0, Kinds::REASONING), at(1_250)).unwrap();
        turns.departed(at(1_252));
        turns.down(70, at(1_400));
        turns.told(event(0, Kinds::ANSWER), at(1_400)).unwrap();
        turns.told(event(0, Kinds::ANSWER), at(1_400)).unwrap();
        turns.told(last(0), at(1_400)).unwrap();
        assert_eq!(turns.had(), Had { up: 100, down: 180, ..Had::default() });
        turns.departed(at(1_405));
    });
    let [record] = &left.records[..] else { panic!("one record") };
    let marks = &record.timeline;
    assert_eq!((record.outcome, record.status, record.endpoint), (Outcome::Complete, Some(101), Endpoint::Realtime));
    assert_eq!((record.model.as_deref(), record.trace_id.as_deref()), (Some("m"), Some("trace")));
    assert_eq!((record.events, record.output_events, record.cadence.coalesced(), record.reads), (5, 3, 1, 3));
    assert_eq!((record.request_bytes, record.response_bytes, record.load), (100, 180, Some(1)));
    assert_eq!(
        (marks.request_end, marks.lease_wanted, marks.head_back, marks.first_byte),
        (Some(at(1_000)), None, None, None)
    );
    assert_eq!(
        (marks.first_event_time(), marks.ttft(), marks.answer_ttft()),
        (Some(ms(97)), Some(ms(247)), Some(ms(397)))
    );
    assert_eq!(
        (marks.client_ttft(), marks.duration(), record.client_duration()),
        (Some(ms(252)), Some(ms(397)), Some(ms(405)))
    );
    assert_eq!((record.overhead_request(), marks.overhead_first_output()), (Some(ms(3)), Some(ms(2))));
    assert_eq!(record.cadence.max_gap(), Some(ms(150)));
    let stages: Vec<_> = record.stages().iter().map(|stage| stage.0 / MS).filter(|stage| *stage > 0).collect();
    assert_eq!(stages, [3, 247, 150, 5], "gateway, wait, generation, gateway");
}

#[test]
fn one_that_waits_for_its_turn_keeps_its_own_marks() {
    let left = tunnel(|turns| {
        turns.asked(ask("m"), at(1_000), sent(1_001));
        turns.asked(Asked::Response { model: None }, at(1_500), sent(1_502));
        turns.down(10, at(2_000));
        turns.told(event(0, Kinds::ANSWER), at(2_000)).unwrap();
        turns.told(last(0), at(2_000)).unwrap();
        turns.told(event(0, Kinds::ANSWER), at(2_000)).unwrap();
        turns.departed(at(2_001));
        turns.down(10, at(2_500));
        turns.told(last(0), at(2_500)).unwrap();
        turns.departed(at(2_501));
    });
    let told: Vec<_> = left
        .records
        .iter()
        .map(|it| (it.model.as_deref(), it.timeline.ttft(), it.wall(), it.load, it.response_bytes))
        .collect();
    let expected =
        [(Some("m"), Some(ms(999)), ms(1_001), Some(1), 10), (Some("m"), Some(ms(498)), ms(1_001), Some(2), 10)];
    assert_eq!(told, expected);
}

#[test]
fn a_turn_that_was_heard_has_no_marks_of_the_clients() {
    let left = tunnel(|turns| {
        turns.up(500);
        turns.told(Told::Heard, at(1_000)).unwrap();
        turns.departed(at(1_001));
        turns.down(10, at(1_200));
        turns.told(event(0, Kinds::ANSWER), at(1_200)).unwrap();
        turns.departed(at(1_201));
        turns.told(event(0, Kinds::ANSWER | Kinds::AUDIO), at(1_300)).unwrap();
        turns.told(last(0), at(1_400)).unwrap();
        turns.departed(at(1_402));
    });
    let [record] = &left.records[..] else { panic!("one record") };
    let marks = &record.timeline;
    assert_eq!((marks.request_head, marks.sent_last, marks.request_end), (at(1_000), Some(at(1_000)), None));
    assert_eq!(
        (marks.ttft(), marks.voice_first_audio(), marks.duration()),
        (Some(ms(200)), Some(ms(300)), Some(ms(400)))
    );
    assert_eq!((marks.client_ttft(), record.client_duration(), record.overhead_request()), (None, None, None));
    assert_eq!((marks.overhead_first_output(), record.overhead_event_mean()), (None, None));
    assert_eq!((record.outcome, record.wall(), record.request_bytes), (Outcome::Complete, ms(402), 500));
    let line = "streamgauge_voice_first_audio_seconds_sum{upstream=\"u\",model=\"_none\"} 0.3";
    assert!(left.scrape.lines().any(|it| it == line), "{}", left.scrape);
}

#[test]
fn speech_that_nobody_answers_is_no_exchange() {
    let left = tunnel(|turns| {
        turns.told(Told::Heard, at(1_000)).unwrap();
        turns.close(Cause::Ended);
    });
    assert!(left.records.is_empty());
    assert!(!left.scrape.contains("streamgauge_requests_started_total{"), "{}", left.scrape);
}

#[test]
fn what_nobody_asked_for_is_counted_and_not_timed() {
    let facts = Facts { usage: crate::dialect::Usage { output: Some(7), ..Default::default() }, ..Facts::default() };
    let left = tunnel(|turns| {
        turns.down(10, at(1_000));
        turns.told(Told::Unasked(Box::new(facts)), at(1_000)).unwrap();
        turns.departed(at(1_003));
    });
    let [record] = &left.records[..] else { panic!("one record") };
    assert_eq!((record.outcome, record.output_tokens(), record.stream), (Outcome::Complete, Some(7), false));
    let marks = &record.timeline;
    assert_eq!((marks.ttft(), marks.duration(), record.client_duration()), (None, None, None));
    assert_eq!(record.stages().iter().map(|stage| stage.0).sum::<u64>(), record.wall().0);
    assert!(!left.scrape.contains("ttft_seconds_count{"), "{}", left.scrape);
}

/// What ends a tunnel amid a turn, and what becomes of the turn.
type Ending = (fn(&mut Turns<'_>), Outcome);

#[test]
fn a_turn_ends_as_its_tunnel_does() {
    let open = |turns: &mut Turns<'_>| {
        turns.asked(ask("m"), at(1_000), sent(1_000));
        turns.told(event(0, Kinds::ANSWER), at(1_100)).unwrap();
    };
    let endings: [Ending; 10] = [
        (
            |turns| {
                turns.told(Told::Goodbye, at(1_200)).unwrap();
                turns.departed(at(1_201));
            },
            Outcome::Truncated,
        ),
        (
            |turns| {
                turns.asked(Asked::Goodbye, at(1_150), sent(1_150));
                turns.told(Told::Goodbye, at(1_200)).unwrap();
            },
            Outcome::ClientGone,
        ),
        (
            |turns| {
                turns.upstream_ended(at(1_200));
                turns.departed(at(1_200));
            },
            Outcome::Truncated,
        ),
        (|turns| turns.close(Cause::Reset), Outcome::UpstreamReset),
        (|turns| turns.close(Cause::ClientGone), Outcome::ClientGone),
        (|turns| turns.close(Cause::Drained), Outcome::Drained),
        (
            |turns| {
                turns.client_left();
                turns.upstream_ended(at(1_200));
            },
            Outcome::ClientGone,
        ),
        (
            |turns| {
                turns.client_left();
                turns.close(Cause::Reset);
            },
            Outcome::ClientGone,
        ),
        (|turns| turns.lost_sight(ObserverOff::Malformed), Outcome::Complete),
        (|_| (), Outcome::ClientGone),
    ];
    for (end, outcome) in endings {
        let left = tunnel(|turns| {
            open(turns);
            end(turns);
        });
        let outcomes: Vec<_> = left.records.iter().map(|record| record.outcome).collect();
        assert_eq!(outcomes, [outcome]);
    }
}

#[test]
fn a_session_that_is_no_longer_read_says_so_on_the_turn_it_lost() {
    let left = tunnel(|turns| {
        turns.asked(ask("m"), at(1_000), sent(1_000));
        turns.down(10, at(1_100));
        turns.told(last(0), at(1_100)).unwrap();
        turns.asked(ask("m"), at(1_100), sent(1_100));
        turns.lost_sight(ObserverOff::Encoding);
        turns.departed(at(1_101));
    });
    let told: Vec<_> = left
        .records
        .iter()
        .map(|it| (it.observer_off, it.outcome, it.timeline.duration(), it.client_duration()))
        .collect();
    let expected = [
        (Some(ObserverOff::Encoding), Outcome::Complete, None, None),
        (None, Outcome::Complete, Some(ms(100)), Some(ms(101))),
    ];
    assert_eq!(told, expected);
}

#[test]
fn who_asks_again_or_is_heard_again_before_an_answer_begins_again() {
    let answered = |turns: &mut Turns<'_>| {
        turns.told(event(0, Kinds::ANSWER), at(2_000)).unwrap();
        turns.told(last(0), at(2_500)).unwrap();
        turns.departed(at(2_500));
    };
    let again = |turns: &mut Turns<'_>| {
        turns.up(7);
        turns.asked(Asked::Again, at(1_500), sent(1_502));
    };
    let begins: [fn(&mut Turns<'_>); 2] =
        [|turns| turns.asked(ask("m"), at(1_000), sent(1_001)), |turns| turns.told(Told::Heard, at(1_000)).unwrap()];
    for begin in begins {
        let left = tunnel(|turns| {
            begin(turns);
            again(turns);
            answered(turns);
        });
        let [record] = &left.records[..] else { panic!("one record") };
        let marks = &record.timeline;
        assert_eq!(
            (marks.request_head, marks.request_end, marks.sent_last),
            (at(1_500), Some(at(1_500)), Some(at(1_502)))
        );
        assert_eq!((marks.ttft(), marks.client_ttft(), marks.speech_stopped), (Some(ms(498)), Some(ms(1_000)), None));
        assert_eq!((record.request_bytes, record.wall(), record.overhead_request()), (7, ms(1_000), Some(ms(2))));
    }
    let left = tunnel(|turns| {
        turns.told(Told::Heard, at(1_000)).unwrap();
        turns.told(Told::HeardAgain, at(1_800)).unwrap();
        answered(turns);
    });
    assert_eq!(left.records[0].timeline.ttft(), Some(ms(200)));
}

#[test]
fn more_turns_at_once_than_a_session_has_are_too_many() {
    let left = tunnel(|turns| {
        for _ in 0..MOST {
            turns.told(Told::Unasked(Box::default()), at(3_000)).unwrap();
        }
        assert_eq!(turns.told(Told::Unasked(Box::default()), at(3_000)), Err(ObserverOff::Overflow));
        turns.departed(at(3_001));
    });
    assert_eq!(left.records.len(), MOST);
}

/// Something that happens in a session, and how long after the last thing.
#[derive(Clone, Debug)]
enum Step {
    Asked(Asked, u64),
    Told(Told),
    Departed,
    ClientLeft,
    UpstreamEnded,
    Lost,
    Close(Cause),
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = prop_oneof![
        Just(Kinds::NONE),
        Just(Kinds::REASONING),
        Just(Kinds::ANSWER),
        Just(Kinds::ANSWER | Kinds::AUDIO),
        Just(Kinds::TOOL),
    ];
    let signal = (kinds, any::<bool>()).prop_map(|(output, error)| Signal { output, end: false, error });
    let ended = prop_oneof![Just(Cause::Ended), Just(Cause::Reset), Just(Cause::ClientGone), Just(Cause::Drained)];
    prop_oneof![
        4 => (0_u64..5).prop_map(|took| Step::Asked(ask("m"), took)),
        1 => (0_u64..5).prop_map(|took| Step::Asked(Asked::Again, took)),
        1 => Just(Step::Asked(Asked::Goodbye, 0)),
        1 => prop_oneof![Just(Told::HeardAgain), Just(Told::Goodbye)].prop_map(Step::Told),
        2 => Just(Step::Told(Told::Heard)),
        8 => (0_usize..3, signal.clone()).prop_map(|(place, signal)| Step::Told(Told::Event(place, signal))),
        4 => (0_usize..3, signal).prop_map(|(place, signal)| Step::Told(Told::Last(place, signal, Box::default()))),
        1 => Just(Step::Told(Told::Unasked(Box::default()))),
        6 => Just(Step::Departed),
        1 => Just(Step::ClientLeft),
        1 => Just(Step::UpstreamEnded),
        1 => Just(Step::Lost),
        1 => ended.prop_map(Step::Close),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_each_turn_is_booked_once_and_adds_up(
        steps in proptest::collection::vec((step(), 0_u64..300), 0..40),
    ) {
        let mut had = Had::default();
        let left = tunnel(|turns| {
            let mut now = 1_000;
            for (step, pause) in steps {
                now += pause;
                match step {
                    Step::Asked(asked, took) => {
                        turns.up(3);
                        turns.asked(asked, at(now), sent(now + took));
                        now += took;
                    }
                    Step::Told(told) => {
                        turns.down(5, at(now));
                        let _ = turns.told(told, at(now));
                    }
                    Step::Departed => turns.departed(at(now)),
                    Step::ClientLeft => turns.client_left(),
                    Step::UpstreamEnded => turns.upstream_ended(at(now)),
                    Step::Lost => turns.lost_sight(ObserverOff::Malformed),
                    Step::Close(cause) => turns.close(cause),
                }
            }
            had = turns.had();
        });
        let mut ids: Vec<_> = left.records.iter().map(|record| record.id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), left.records.len());
        for record in &left.records {
            prop_assert_eq!(record.stages().iter().map(|stage| stage.0).sum::<u64>(), record.wall().0);
            prop_assert!(record.outcome != Outcome::GatewayError);
        }
        prop_assert_eq!(had.up, left.records.iter().map(|record| record.request_bytes).sum::<u64>());
        prop_assert_eq!(had.down, left.records.iter().map(|record| record.response_bytes).sum::<u64>());
        let count = |name: &str| -> u64 {
            let lines = left.scrape.lines().filter(|line| line.starts_with(name));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        let records = left.records.len() as u64;
        prop_assert_eq!(count("streamgauge_requests_total{"), records);
        prop_assert_eq!(count("streamgauge_requests_started_total{"), records);
        prop_assert_eq!(count("streamgauge_in_flight{"), 0);
        let timed = left.records.iter().filter(|record| record.timeline.ttft().is_some()).count() as u64;
        prop_assert_eq!(count("streamgauge_ttft_seconds_count{"), timed);
    }
}
