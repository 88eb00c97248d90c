//! One exchange as JSON: which keys, in which order, and what of the exchange each of them says.

use http::{Method, Version};

use super::object::{Key, Known, Object, key};
use crate::{
    dialect::Endpoint,
    observation::{Connection, Limit, Observation, STAGES, StampSource, input_class, load_class, output_class},
    timeline::Timeline,
};

/// The record of an exchange: one JSON object without a line break, keys in the contract's order.
pub fn record_json(observation: &Observation) -> String {
    let mut room = vec![0; ROOM];
    let len = write_record(&mut room, observation);
    room.truncate(len);
    // Nothing was put into it but whole texts.
    String::from_utf8(room).unwrap_or_default()
}

/// Writes the record of an exchange over what is there, and makes more room if that is too little. How long it is.
pub(super) fn write_record(room: &mut Vec<u8>, observation: &Observation) -> usize {
    loop {
        let mut record = Object::in_room(room);
        fill(&mut record, observation);
        if let Some(len) = record.len() {
            return len;
        }
        room.resize((2 * room.len()).max(ROOM), 0);
    }
}

/// More than nearly every record needs.
const ROOM: usize = 2048;

fn fill(record: &mut Object<'_>, o: &Observation) {
    let marks = &o.timeline;
    let usage = &o.facts.usage;
    let streamed = o.streamed();
    let spans = (o.endpoint != Endpoint::Tunnel).then_some(marks);

    record.time(key!("time"), o.time);
    record.id(key!("id"), o.id);
    record.text(key!("upstream"), o.upstream.as_deref());
    record.word(key!("endpoint"), Some(o.endpoint.as_str()));
    record.word(key!("dialect"), Some(o.dialect.as_str()));
    record.text(key!("method"), o.method.as_ref().map(Method::as_str));
    record.text(key!("path"), o.path.as_deref().map(without_query));
    record.count(key!("status"), o.status);
    record.flag(key!("stream"), Some(o.stream));
    record.flag(key!("asked_stream"), o.asked_stream);
    record.word(key!("outcome"), Some(o.outcome.as_str()));
    record.word(key!("limit"), o.limit.map(Limit::as_str));

    record.text(key!("model"), o.model.as_deref());
    record.text(key!("response_model"), o.facts.response_model.as_deref());
    record.joined(key!("finish_reason"), &o.facts.finish_reasons);

    record.seconds(key!("wall_s"), Some(o.wall()));
    record.count(key!("attempts"), Some(o.attempts));
    record.seconds(key!("request_s"), spans.and_then(Timeline::request_span));
    record.seconds(key!("ttfb_s"), spans.and_then(Timeline::ttfb));
    record.seconds(key!("first_event_s"), streamed.and_then(Timeline::first_event_time));
    record.seconds(key!("ttft_s"), streamed.and_then(Timeline::ttft));
    record.seconds(key!("answer_ttft_s"), streamed.and_then(Timeline::answer_ttft));
    record.seconds(key!("client_ttft_s"), streamed.and_then(Timeline::client_ttft));
    record.seconds(key!("duration_s"), spans.and_then(Timeline::duration));
    record.seconds(key!("client_duration_s"), spans.and_then(|_| o.client_duration()));
    record.seconds(key!("tpot_s"), o.tpot());
    record.speed(key!("output_tokens_per_second"), o.output_speed());
    record.speed(key!("end_to_end_tokens_per_second"), o.end_to_end_speed());
    record.seconds(key!("max_gap_s"), o.cadence.max_gap());
    record.seconds(key!("gap_p50_s"), o.cadence.quantile(0.5));
    record.seconds(key!("gap_p99_s"), o.cadence.quantile(0.99));

    // Without events to read there is nothing to count: no stream, or none of a dialect that is known.
    let counted = o.stream && (o.observer_off.is_none() || o.events > 0);
    record.count(key!("events"), counted.then_some(o.events));
    record.count(key!("output_events"), counted.then_some(o.output_events));
    record.count(key!("coalesced_events"), counted.then_some(o.cadence.coalesced()));
    // Of a tunnel they are not counted: zero would say that nothing came.
    record.count(key!("reads"), spans.and(Some(o.reads)));
    record.count(key!("request_bytes"), Some(o.request_bytes));
    record.count(key!("response_bytes"), Some(o.response_bytes));

    record.count(key!("input_tokens"), usage.input);
    record.count(key!("cached_tokens"), usage.cached);
    record.count(key!("cache_write_tokens"), usage.cache_write);
    record.count(key!("output_tokens"), usage.output);
    record.count(key!("reasoning_tokens"), usage.reasoning);
    record.object(key!("usage_raw"), |raw| {
        usage.raw.iter().for_each(|(name, count)| raw.count(Key::Name(name), Some(*count)));
    });

    record.object(key!("overhead_s"), |overhead| {
        overhead.seconds(key!("request"), o.overhead_request());
        overhead.seconds(key!("first_output"), streamed.and_then(Timeline::overhead_first_output));
        overhead.seconds(key!("event_mean"), o.overhead_event_mean());
        overhead.seconds(key!("event_max"), (o.event_overhead.count > 0).then_some(o.event_overhead.max));
    });
    record.object(key!("stages_s"), |stages| {
        STAGE_KEYS.iter().zip(o.stages()).for_each(|(key, span)| stages.seconds(Key::Known(key), Some(span)));
    });
    record.object(key!("server_reported_s"), |reported| {
        o.facts.reported.named().into_iter().for_each(|(name, span)| reported.seconds(Key::Name(name), span));
    });
    record.object(key!("rate_limits"), |limits| {
        for limit in &o.rate_limits {
            limits.object(Key::Name(limit.kind.as_str()), |stated| {
                stated.count(key!("limit"), limit.limit);
                stated.count(key!("remaining"), limit.remaining);
                stated.seconds(key!("reset_s"), limit.reset);
            });
        }
    });
    record.object(key!("connection"), |connection| {
        connection.flag(key!("reused"), o.connection.reused);
        connection.word(key!("client_version"), o.connection.client_version.and_then(version));
        connection.word(key!("upstream_version"), o.connection.upstream_version.and_then(version));
        let Connection { client, upstream, .. } = &o.connection;
        connection.seconds(key!("client_rtt_s"), client.rtt);
        connection.seconds(key!("client_min_rtt_s"), client.min_rtt);
        connection.count(key!("client_retransmits"), client.retransmits);
        connection.seconds(key!("upstream_rtt_s"), upstream.rtt);
        connection.seconds(key!("upstream_min_rtt_s"), upstream.min_rtt);
        connection.count(key!("upstream_retransmits"), upstream.retransmits);
    });
    record.object(key!("stamp"), |stamp| {
        stamp.word(key!("client"), Some(o.client_stamp.as_str()));
        stamp.word(key!("upstream"), o.upstream_stamp.map(StampSource::as_str));
    });
    record.names(key!("flags"), o.flags_named().into_iter().filter_map(|(name, set)| set.then_some(name)));

    record.text(key!("workload"), o.workload.as_deref());
    record.word(key!("input_class"), usage.input.map(|tokens| input_class(Some(tokens))));
    record.word(key!("output_class"), usage.output.map(|tokens| output_class(Some(tokens))));
    record.word(key!("load_class"), spans.and(o.load).map(load_class));
    record.text(key!("trace_id"), o.trace_id.as_deref());
    record.text(key!("session"), o.session.as_deref());
    record.text(key!("upstream_request_id"), o.upstream_request_id.as_deref());
    record.seconds(key!("client_sent_s"), o.client_sent);
    record.close(0);
}

/// The keys of the stages.
const STAGE_KEYS: [Known; STAGES.len()] = {
    let mut keys = [Known::of(""); STAGES.len()];
    let mut stage = 0;
    while stage < STAGES.len() {
        keys[stage] = Known::of(STAGES[stage]);
        stage += 1;
    }
    keys
};

/// A path alone.
fn without_query(path: &str) -> &str {
    path.bytes().position(|byte| byte == b'?').map_or(path, |end| &path[..end])
}

fn version(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_09 => Some("0.9"),
        Version::HTTP_10 => Some("1.0"),
        Version::HTTP_11 => Some("1.1"),
        Version::HTTP_2 => Some("2"),
        Version::HTTP_3 => Some("3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{
        clock::{Nanos, Stamp},
        dialect::{Dialect, ObserverOff, RateLimit, Reported, limits::Kind},
        observation::{EventOverhead, ExchangeId, Network, Outcome, StampSource},
        timeline::Interval,
    };

    fn at(nanos: u64) -> Stamp {
        Stamp::from_nanos(nanos).unwrap()
    }

    /// An exchange of which everything was observed.
    fn full() -> Observation {
        let mut timeline = Timeline::begin(at(1));
        timeline.request_end = Some(at(1_000));
        timeline.lease_wanted = Some(at(2_000));
        timeline.dns = Some(Interval { start: at(2_100), end: at(3_000) });
        timeline.tcp = Some(Interval { start: at(3_000), end: at(4_001) });
        timeline.tls = Some(Interval { start: at(4_001), end: at(5_000) });
        timeline.lease_got = Some(at(5_500));
        timeline.sent_first = Some(at(6_000));
        timeline.sent_last = Some(at(7_000));
        timeline.head_back = Some(at(100_000_000));
        timeline.first_byte = Some(at(100_000_001));
        timeline.first_event = Some(at(110_000_000));
        timeline.first_output = Some(at(123_463_789));
        timeline.first_answer = Some(at(200_000_000));
        timeline.last_output = Some(at(2_123_463_789));
        timeline.response_end = Some(at(2_200_000_000));
        timeline.first_output_delivered = Some(at(123_500_000));
        timeline.delivered = Some(at(2_300_000_001));
        timeline.end = timeline.delivered;
        timeline.waits.tail = Nanos(50_000_000);
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_790_000_000, 123_456_789);
        let mut o = Observation::begin(ExchangeId(0xfeed), time, timeline, Outcome::Complete);
        o.upstream = Some("openai".into());
        o.endpoint = Endpoint::Chat;
        o.dialect = Dialect::OpenAiChat;
        o.method = Some(Method::POST);
        o.path = Some("/v1/chat/completions?key=sk-secret".into());
        o.status = Some(200);
        o.stream = true;
        o.asked_stream = Some(true);
        o.limit = Some(Limit::Idle);
        o.model = Some("gpt \"5\"\n\u{2028}".into());
        o.facts.response_model = Some("gpt-5-2026".into());
        o.facts.finish_reasons = vec!["stop".into(), "length".into()];
        o.facts.usage.input = Some(1_000);
        o.facts.usage.cached = Some(600);
        o.facts.usage.cache_write = Some(5);
        o.facts.usage.output = Some(201);
        o.facts.usage.reasoning = Some(50);
        o.facts.usage.raw = vec![("prompt_tokens", 1_000), ("completion_tokens", 201)];
        o.facts.reported = Reported {
            queue: Some(Nanos(5_000_000)),
            prefill: Some(Nanos(25_000_001)),
            decode: Some(Nanos(1_900_000_000)),
            ttft: Some(Nanos(30_000_001)),
            total: Some(Nanos(1_925_000_001)),
            ..Reported::default()
        };
        let reset = Some(Nanos(17_399_999_999));
        o.rate_limits = vec![
            RateLimit { kind: Kind::Requests, limit: Some(500), remaining: Some(499), reset },
            RateLimit { kind: Kind::TokensDay, limit: None, remaining: Some(0), reset: None },
        ];
        o.reasoning_seen = true;
        o.attempts = 1;
        for stamp in [123_463_789, 1_123_463_789, 1_123_463_789, 2_123_463_789] {
            o.cadence.output(at(stamp));
        }
        (o.events, o.output_events, o.reads) = (6, 4, 5);
        (o.request_bytes, o.response_bytes) = (321, 4_321);
        o.event_overhead = EventOverhead { count: 4, sum: Nanos(100_002), max: Nanos(40_000) };
        o.connection.reused = Some(false);
        o.connection.client_version = Some(Version::HTTP_11);
        o.connection.upstream_version = Some(Version::HTTP_2);
        let network = |rtt| Network { rtt: Some(Nanos(rtt)), min_rtt: Some(Nanos(rtt - 1)), retransmits: Some(2) };
        (o.connection.client, o.connection.upstream) = (network(40_000), network(12_000_000));
        o.upstream_stamp = Some(StampSource::Kernel);
        o.flags.informational_dropped = true;
        o.load = Some(3);
        o.workload = Some("chat-1k".into());
        o.trace_id = Some("0af7651916cd43dd8448eb211c80319c".into());
        o.session = Some("s-1".into());
        o.upstream_request_id = Some("req_1".into());
        o.client_sent = Some(Nanos(1_500_000));
        o
    }

    #[test]
    fn a_full_record_has_every_key_in_the_contracts_order() {
        insta::assert_snapshot!(
            record_json(&full()).replace("],", "],\n").replace("},", "},\n").replace(",\"", ",\n\"")
        );
    }

    #[test]
    fn spans_keep_their_nanoseconds_and_the_stages_their_sum() {
        let json = record_json(&full());
        assert!(json.contains(r#""ttft_s":0.123456789,"#) && json.contains(r#""wall_s":2.3,"#), "{json}");
        let stages = json.split_once(r#""stages_s":{"#).unwrap().1.split_once('}').unwrap().0;
        let nanos = |decimal: &str| -> u64 {
            let (whole, fraction) = decimal.split_once('.').unwrap();
            format!("{whole}{fraction:0<9}").parse().unwrap()
        };
        let spans: Vec<_> = stages.split(',').map(|stage| stage.split_once(':').unwrap()).collect();
        assert_eq!(spans.len(), 13);
        assert_eq!(spans.iter().map(|(_, span)| nanos(span)).sum::<u64>(), full().wall().0);
    }

    #[test]
    fn strings_come_back_as_they_were_and_no_query_leaves() {
        let json = record_json(&full());
        assert!(json.lines().count() == 1 && !json.contains('\u{2028}'), "one line to every reader");
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["model"], *full().model.unwrap());
        assert_eq!(value["path"], "/v1/chat/completions");
        assert!(!json.contains("secret"));
    }

    #[test]
    fn what_was_not_observed_has_no_key() {
        let o = Observation::begin(ExchangeId(1), UNIX_EPOCH, Timeline::begin(at(1)), Outcome::ClientError);
        let value: Value = serde_json::from_str(&record_json(&o)).unwrap();
        let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut expected = [
            "time",
            "id",
            "endpoint",
            "dialect",
            "stream",
            "outcome",
            "wall_s",
            "attempts",
            "reads",
            "request_bytes",
            "response_bytes",
            "stages_s",
            "stamp",
            "flags",
        ];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(value["time"], "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn a_tunnel_has_no_latencies_and_an_unread_stream_no_counts() {
        let mut o = full();
        o.endpoint = Endpoint::Tunnel;
        let value: Value = serde_json::from_str(&record_json(&o)).unwrap();
        for key in ["ttfb_s", "ttft_s", "client_ttft_s", "duration_s", "tpot_s", "load_class", "reads"] {
            assert_eq!(value.get(key), None, "{key}");
        }
        let mut o = full();
        (o.observer_off, o.events) = (Some(ObserverOff::UnknownDialect), 0);
        let value: Value = serde_json::from_str(&record_json(&o)).unwrap();
        assert_eq!((value.get("events"), value.get("output_events")), (None, None));
        assert_eq!(value["flags"], serde_json::json!(["observer_off", "informational_dropped"]));
    }

    #[test]
    fn times_out_of_range_leave_the_rest_of_the_record_whole() {
        let mut o = full();
        o.time = UNIX_EPOCH - Duration::from_secs(9);
        assert!(record_json(&o).contains("1970-01-01T00:00:00.000000Z"));
        o.time = UNIX_EPOCH + Duration::from_secs(300_000_000_000);
        let value: Value = serde_json::from_str(&record_json(&o)).unwrap();
        assert_eq!((value.get("time"), &value["id"]), (None, &Value::from("000000000000feed")));
    }

    /// A text as JSON, written the slow way.
    fn naive(text: &str) -> String {
        let escaped = text.chars().map(|char| match char {
            '"' | '\\' => format!("\\{char}"),
            char if char.is_control() || char == '\u{2028}' || char == '\u{2029}' => {
                format!("\\u{:04x}", u32::from(char))
            }
            char => char.to_string(),
        });
        format!("\"{}\"", escaped.collect::<String>())
    }

    proptest! {
        #[test]
        fn texts_are_escaped_as_the_slow_way_does_and_read_back(
            texts in proptest::collection::vec(r#"([a-z"\\\x00-\x1f\x7f-\u{9f}é\u{2027}-\u{202a}🦀]|\PC){0,12}"#, 0..4),
            id in any::<u64>(),
        ) {
            let mut o = full();
            (o.id, o.facts.finish_reasons) = (ExchangeId(id), texts.clone());
            o.model = texts.first().map(|text| text.as_str().into());
            let json = record_json(&o);
            let written = format!("\"id\":\"{id:016x}\",");
            prop_assert!(json.contains(&written));
            let value: Value = serde_json::from_str(&json).unwrap();
            if let Some(model) = texts.first() {
                let joined = texts.join("|");
                for written in [format!("\"model\":{},", naive(model)), format!("\"finish_reason\":{},", naive(&joined))] {
                    prop_assert!(json.contains(&written), "{} in {}", written, json);
                }
                prop_assert_eq!(&value["finish_reason"], &Value::from(joined));
            } else {
                prop_assert_eq!(value.get("finish_reason"), None);
            }
        }
    }
}
