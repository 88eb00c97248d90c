use super::*;
use crate::clock::Stamp;

const MS: u64 = 1_000_000;

type Cause = fn(&mut Observation);

fn at(ms: u64) -> Stamp {
    Stamp::from_nanos(ms * MS).unwrap()
}

fn ms(span: u64) -> Nanos {
    Nanos(span * MS)
}

/// A stream of 101 output tokens in 20 events whose generation took 1,000 ms.
fn stream() -> Observation {
    let mut timeline = Timeline::begin(at(100));
    timeline.request_end = Some(at(110));
    timeline.lease_wanted = Some(at(112));
    timeline.lease_got = Some(at(142));
    timeline.sent_first = Some(at(142));
    timeline.sent_last = Some(at(150));
    timeline.head_back = Some(at(200));
    timeline.first_byte = Some(at(210));
    timeline.first_event = Some(at(220));
    timeline.first_output = Some(at(400));
    timeline.first_answer = Some(at(900));
    timeline.last_output = Some(at(1_400));
    timeline.response_end = Some(at(1_450));
    timeline.first_output_delivered = Some(at(405));
    timeline.delivered = Some(at(1_460));
    timeline.end = Some(at(1_460));
    let mut observation = Observation::begin(ExchangeId(7), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete);
    observation.endpoint = Endpoint::Chat;
    observation.dialect = Dialect::OpenAiChat;
    observation.stream = true;
    observation.attempts = 1;
    observation.output_events = 20;
    observation.facts.usage.input = Some(1_000);
    observation.facts.usage.output = Some(101);
    observation
}

#[test]
fn each_latency_has_its_two_ends() {
    let observation = stream();
    let marks = &observation.timeline;
    assert_eq!(marks.ttfb(), Some(ms(60)));
    assert_eq!(marks.first_event_time(), Some(ms(70)));
    assert_eq!(marks.ttft(), Some(ms(250)));
    assert_eq!(marks.answer_ttft(), Some(ms(750)));
    assert_eq!(marks.client_ttft(), Some(ms(305)));
    assert_eq!(marks.duration(), Some(ms(1_300)));
    assert_eq!(marks.generation(), Some(ms(1_000)));
    assert_eq!(observation.wall(), ms(1_360));
    assert_eq!(observation.client_duration(), Some(ms(1_360)));
}

#[test]
fn what_was_not_observed_is_absent_not_zero() {
    let timeline = Timeline::begin(at(100));
    let observation = Observation::begin(ExchangeId(7), SystemTime::UNIX_EPOCH, timeline, Outcome::Unreachable);
    let marks = &observation.timeline;
    let spans = [
        marks.ttfb(),
        marks.first_event_time(),
        marks.ttft(),
        marks.answer_ttft(),
        marks.client_ttft(),
        marks.duration(),
        marks.overhead_first_output(),
        observation.client_duration(),
        observation.tpot(),
        observation.overhead_request(),
        observation.overhead_event_mean(),
    ];
    assert_eq!(spans, [None; 11]);
    let numbers = [observation.output_speed(), observation.end_to_end_speed(), observation.tokens_per_event()];
    assert_eq!(numbers, [None; 3]);
    assert_eq!(observation.wall(), Nanos::ZERO);
    assert!(observation.flags_named().iter().all(|(_, set)| !set));
}

#[test]
fn tpot_and_speeds() {
    let observation = stream();
    assert_eq!(observation.tpot(), Some(ms(10)));
    assert_eq!(observation.output_speed(), Some(100.0));
    assert_eq!(observation.end_to_end_speed(), Some(101.0 / 1.3));
    assert_eq!(observation.tokens_per_event(), Some(101.0 / 20.0));
    assert!(!observation.burst());
}

#[test]
fn tpot_rounds_to_the_nanosecond() {
    let mut observation = stream();
    observation.facts.usage.output = Some(4);
    assert_eq!(observation.tpot(), Some(Nanos(333_333_333)));
    observation.facts.usage.output = Some(7);
    assert_eq!(observation.tpot(), Some(Nanos(166_666_667)));
}

#[test]
fn each_reason_takes_tpot_away() {
    let reasons: [(&str, Cause); 11] = [
        ("usage unknown", |o| o.facts.usage.output = None),
        ("one token", |o| o.facts.usage.output = Some(1)),
        ("one stamp", |o| o.timeline.last_output = o.timeline.first_output),
        ("hidden reasoning", |o| o.facts.usage.reasoning = Some(50)),
        ("summarised reasoning", |o| o.facts.summarised_reasoning = true),
        ("several choices", |o| o.facts.multi_choice = true),
        ("tainted", |o| o.flags.tainted = true),
        ("a running count", |o| o.outcome = Outcome::ClientGone),
        ("observer off", |o| o.observer_off = Some(ObserverOff::Overflow)),
        ("no stream", |o| o.stream = false),
        ("a tunnel", |o| o.endpoint = Endpoint::Tunnel),
    ];
    for (reason, cause) in reasons {
        let mut observation = stream();
        cause(&mut observation);
        assert_eq!(observation.tpot(), None, "{reason}");
        assert_eq!(observation.output_speed(), None, "{reason}");
    }
}

#[test]
fn a_count_that_came_with_the_finish_is_whole_whatever_the_transport_did() {
    let mut observation = stream();
    observation.outcome = Outcome::Truncated;
    assert_eq!(observation.tpot(), None);
    observation.facts.finish_reasons.push("stop".into());
    assert_eq!(observation.tpot(), Some(ms(10)));
}

#[test]
fn a_burst_has_a_tpot_but_no_speed() {
    let mut observation = stream();
    // 101 tokens: the line is at 50.5 ms.
    observation.timeline.last_output = Some(at(451));
    assert!(!observation.burst() && observation.output_speed().is_some());
    observation.timeline.last_output = Some(at(450));
    assert!(observation.burst());
    assert_eq!((observation.tpot(), observation.output_speed()), (Some(Nanos(500_000)), None));
}

#[test]
fn hidden_reasoning_is_counted_but_not_seen() {
    let mut observation = stream();
    observation.facts.usage.reasoning = Some(0);
    assert!(!observation.hidden_reasoning());
    observation.facts.usage.reasoning = Some(64);
    assert!(observation.hidden_reasoning());
    observation.reasoning_seen = true;
    assert!(!observation.hidden_reasoning());
    observation.reasoning_seen = false;
    observation.facts.summarised_reasoning = true;
    assert!(!observation.hidden_reasoning(), "a summary was seen: that is the other flag");
}

#[test]
fn request_overhead_leaves_out_the_lease_and_pending_writes() {
    let mut observation = stream();
    // 40 ms from the request's end to its departure, 30 of them for the lease.
    assert_eq!(observation.overhead_request(), Some(ms(10)));
    observation.timeline.waits.upload = Nanos(6 * MS);
    observation.timeline.waits.upload_before_request_end = Nanos(2 * MS);
    assert_eq!(observation.overhead_request(), Some(ms(6)));
    // Only the part of the lease behind the request's end is inside the interval.
    observation.timeline.request_end = Some(at(130));
    assert_eq!(observation.overhead_request(), Some(ms(4)));
    // A lease got before the request ended is not inside it at all.
    observation.timeline.request_end = Some(at(146));
    assert_eq!(observation.overhead_request(), Some(Nanos::ZERO));
}

#[test]
fn request_overhead_is_absent_where_it_means_nothing() {
    let causes: [Cause; 4] = [
        |o| o.flags.early_response = true,
        |o| o.attempts = 2,
        |o| o.flags.retried = true,
        |o| o.timeline.sent_last = None,
    ];
    for cause in causes {
        let mut observation = stream();
        cause(&mut observation);
        assert_eq!(observation.overhead_request(), None);
    }
}

#[test]
fn first_output_overhead_leaves_out_the_clients_part() {
    let mut observation = stream();
    assert_eq!(observation.timeline.overhead_first_output(), Some(ms(5)));
    observation.timeline.waits.first_output = Nanos(4 * MS);
    assert_eq!(observation.timeline.overhead_first_output(), Some(ms(1)));
}

#[test]
fn event_overhead_mean_rounds() {
    let mut observation = stream();
    observation.event_overhead = EventOverhead { count: 3, sum: Nanos(11), max: Nanos(5) };
    assert_eq!(observation.overhead_event_mean(), Some(Nanos(4)));
}

#[test]
fn published_workloads_lie_inside_a_class() {
    let classes = [100, 1_000, 10_000, 100_000, 1_000_000].map(|tokens| input_class(Some(tokens)));
    assert_eq!(classes, ["0_200", "500_2k", "5k_20k", "50k_200k", "200k_up"]);
    let bounds = [0, 199, 200, 500, 2_000, 5_000, 20_000, 50_000, 200_000].map(|tokens| input_class(Some(tokens)));
    let expected = ["0_200", "0_200", "200_500", "500_2k", "2k_5k", "5k_20k", "20k_50k", "50k_200k", "200k_up"];
    assert_eq!(bounds, expected);
    let outputs = [0, 49, 50, 200, 500, 2_000].map(|tokens| output_class(Some(tokens)));
    assert_eq!(outputs, ["0_50", "0_50", "50_200", "200_500", "500_2k", "2k_up"]);
    assert_eq!((input_class(None), output_class(None)), ("unknown", "unknown"));
    let loads = [1, 2, 4, 5, 8, 9, 16, 17, 64, 65].map(load_class);
    assert_eq!(loads, ["1", "2_4", "2_4", "5_8", "5_8", "9_16", "9_16", "17_64", "17_64", "65_up"]);
}

#[test]
fn decimals_are_exact_and_never_in_exponent_form() {
    let written = |value, digits| {
        let mut out = String::new();
        push_decimal(&mut out, value, digits);
        out
    };
    assert_eq!(written(123_456_789, 9), "0.123456789");
    assert_eq!(written(1, 9), "0.000000001");
    assert_eq!(written(0, 9), "0.0");
    assert_eq!(written(3_000_000_000, 9), "3.0");
    assert_eq!(written(10_250_000_000, 9), "10.25");
    assert_eq!(written(u64::MAX, 9), "18446744073.709551615");
    assert_eq!(written(1_500_000, 6), "1.5");
    assert_eq!(written(40, 0), "40");
}

proptest::proptest! {
    #[test]
    fn a_decimal_is_that_of_exact_long_division(value in proptest::num::u64::ANY, shift in 0_u32..64, digits in 0_u32..=18) {
        let value = value >> shift;
        let mut out = String::from("x");
        push_decimal(&mut out, value, digits);
        let unit = 10_u128.pow(digits);
        let (whole, mut rest) = (u128::from(value) / unit, u128::from(value) % unit);
        let mut naive = format!("x{whole}");
        if digits > 0 {
            naive.push('.');
            loop {
                rest *= 10;
                naive.push(char::from_digit(u32::try_from(rest / unit).unwrap(), 10).unwrap());
                rest %= unit;
                if rest == 0 {
                    break;
                }
            }
        }
        proptest::prop_assert_eq!(out, naive);
    }
}

#[test]
fn outside_server_is_what_the_provider_does_not_account_for() {
    let mut observation = stream();
    assert_eq!(observation.outside_server(), None, "it says nothing");
    observation.facts.reported.ttft = Some(ms(180));
    assert_eq!(observation.paired_ttft(), Some((ms(250), ms(180))));
    assert_eq!(observation.outside_server(), Some(ms(70)));
    observation.facts.reported.ttft = Some(ms(900));
    assert_eq!(observation.outside_server(), Some(Nanos::ZERO), "two clocks, and never negative");

    let reasons: [(&str, Cause); 6] = [
        ("hidden reasoning", |o| o.facts.usage.reasoning = Some(40)),
        ("summarised reasoning", |o| o.facts.summarised_reasoning = true),
        ("of the head", |o| o.facts.reported.ttft_of_head = true),
        ("no output", |o| o.timeline.first_output = None),
        ("not a stream", |o| o.stream = false),
        ("a tunnel", |o| o.endpoint = Endpoint::Tunnel),
    ];
    for (reason, cause) in reasons {
        let mut observation = observation.clone();
        cause(&mut observation);
        assert_eq!((observation.paired_ttft(), observation.outside_server()), (None, None), "{reason}");
    }
    observation.facts.usage.reasoning = Some(40);
    observation.reasoning_seen = true;
    assert!(observation.outside_server().is_some(), "reasoning that is seen is the first output of both");
}

#[test]
fn an_id_is_read_as_it_is_written_and_nothing_else_is_one() {
    for id in [0, 1, 0xfeed, u64::MAX] {
        assert_eq!(ExchangeId::parse(&ExchangeId(id).to_string()), Some(ExchangeId(id)));
    }
    assert_eq!(ExchangeId::parse("00000000000000AB"), Some(ExchangeId(0xab)));
    for other in ["", "1", "+000000000000001", "000000000000000g", "00000000000000001", " 00000000000001"] {
        assert_eq!(ExchangeId::parse(other), None, "{other:?}");
    }
}
