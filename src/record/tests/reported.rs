//! What the provider says of itself, in the metrics.

use super::*;
use crate::dialect::{RateLimit, limits::Kind};

fn sum(text: &str, family: &str, label: &str) -> Option<f64> {
    counter(text, &format!("{family}_sum"), &format!(",{label}"))
}

#[test]
fn server_times_are_by_phase_and_what_was_not_said_is_not_there() {
    let (recorder, handles) = recorder(&["m"]);
    let mut observation = stream("m");
    let reported = &mut observation.facts.reported;
    (reported.queue, reported.prefill, reported.ttft) = (Some(Nanos::ZERO), Some(ms(40)), Some(ms(40)));
    recorder.finish(Some(&handles), None, observation);
    let text = recorder.encode(false, at(3_000));
    let phase = |phase: &str| sum(&text, "server_reported_seconds", &format!("phase=\"{phase}\""));
    assert_eq!(["queue", "prefill", "ttft"].map(phase), [Some(0.0), Some(0.04), Some(0.04)], "zero was said");
    assert_eq!(["decode", "total"].map(phase), [None; 2], "nothing was said");
}

#[test]
fn both_sides_of_a_ttft_are_paired_or_neither() {
    let (recorder, handles) = recorder(&["m"]);
    let paired = |recorder: &Recorder, side: &str| {
        let text = recorder.encode(false, at(3_000));
        let label = format!(",side=\"{side}\"");
        let count = counter(&text, "paired_ttft_seconds_count", &label);
        count.zip(counter(&text, "paired_ttft_seconds_sum", &label))
    };
    let spoilt: [fn(&mut Observation); 6] = [
        |observation| observation.facts.reported.ttft = None,
        |observation| observation.facts.reported.ttft_of_head = true,
        |observation| observation.facts.reported.ttft_behind_queue = true,
        |observation| observation.facts.usage.reasoning = Some(9),
        |observation| observation.timeline.first_output = None,
        |observation| observation.stream = false,
    ];
    let with_ttft = || {
        let mut observation = stream("m");
        observation.facts.reported.ttft = Some(ms(200));
        observation
    };
    for spoil in spoilt {
        let mut observation = with_ttft();
        spoil(&mut observation);
        recorder.finish(Some(&handles), None, observation);
    }
    assert_eq!(["gateway", "server"].map(|side| paired(&recorder, side)), [None; 2]);
    recorder.finish(Some(&handles), None, with_ttft());
    assert_eq!(paired(&recorder, "gateway"), Some((1.0, 0.25)));
    assert_eq!(paired(&recorder, "server"), Some((1.0, 0.2)));
}

#[test]
fn the_time_of_a_refusal_is_no_server_time() {
    let (recorder, handles) = recorder(&["m"]);
    for status in [None, Some(400), Some(429), Some(500)] {
        let mut observation = failed(Outcome::Upstream4xx);
        observation.status = status;
        observation.facts.reported.total = Some(ms(9));
        recorder.finish(Some(&handles), None, observation);
    }
    assert!(!recorder.encode(false, at(3_000)).contains("server_reported_seconds"));
}

#[test]
fn a_ttft_behind_an_unknown_queue_is_no_server_ttft() {
    let (recorder, handles) = recorder(&["m"]);
    let mut observation = stream("m");
    let reported = &mut observation.facts.reported;
    (reported.ttft, reported.ttft_behind_queue, reported.decode) = (Some(ms(80)), true, Some(ms(700)));
    recorder.finish(Some(&handles), None, observation);
    let text = recorder.encode(false, at(3_000));
    let phase = |phase: &str| sum(&text, "server_reported_seconds", &format!("phase=\"{phase}\""));
    assert_eq!((phase("ttft"), phase("decode")), (None, Some(0.7)));
}

#[test]
fn a_limit_is_absent_until_stated_and_then_the_newest() {
    let (recorder, handles) = recorder(&["m"]);
    let pair = recorder.pair(&handles, Some("m"), true);
    let gauge = |name: &str, kind: &str| {
        counter(&recorder.encode(false, at(1)), &format!("ratelimit_{name}"), &format!(",kind=\"{kind}\""))
    };
    pair.rate_limits(&[]);
    assert!(!recorder.encode(false, at(1)).contains("ratelimit"));
    let stated = |kind, limit, remaining| RateLimit { kind, limit, remaining, reset: None };
    pair.rate_limits(&[
        stated(Kind::Requests, Some(500), Some(1)),
        stated(Kind::TokensDay, None, Some(9_223_372_036_854_767_616)),
        stated(Kind::TokensMonth, None, Some(u64::MAX)),
    ]);
    pair.rate_limits(&[stated(Kind::Requests, None, Some(0))]);
    assert_eq!((gauge("limit", "requests"), gauge("remaining", "requests")), (Some(500.0), Some(0.0)));
    assert_eq!(gauge("limit", "tokens_day"), None);
    assert_eq!(gauge("remaining", "tokens_day"), Some(9.223_372_036_854_768e18));
    assert_eq!(gauge("remaining", "tokens_month"), Some(9.223_372_036_854_776e18), "as large as a gauge gets");
}
