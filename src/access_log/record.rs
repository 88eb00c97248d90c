//! One exchange as JSON.

use std::{
    fmt::{Display, Write as _},
    time::UNIX_EPOCH,
};

use http::Version;

use crate::{
    clock::Nanos,
    dialect::Endpoint,
    observation::{
        Connection, Limit, Observation, STAGES, StampSource, input_class, load_class, output_class, push_decimal,
    },
    timeline::Timeline,
};

/// The record of an exchange: one JSON object without a line break, keys in the contract's order.
pub fn record_json(observation: &Observation) -> String {
    let o = observation;
    let marks = &o.timeline;
    let usage = &o.facts.usage;
    let streamed = o.streamed();
    let spans = (o.endpoint != Endpoint::Tunnel).then_some(marks);
    let mut record = Object::open(String::with_capacity(2048));

    // A clock before 1970 or behind the year 9999 has no such form.
    let mut time = String::with_capacity(27);
    if write!(time, "{}", humantime::format_rfc3339_micros(o.time.max(UNIX_EPOCH))).is_ok() {
        record.text("time", Some(&time));
    }
    record.text("id", Some(&o.id.to_string()));
    record.text("upstream", o.upstream.as_deref());
    record.text("endpoint", Some(o.endpoint.as_str()));
    record.text("dialect", Some(o.dialect.as_str()));
    record.text("method", o.method.as_ref().map(http::Method::as_str));
    record.text("path", o.path.as_deref().and_then(|path| path.split('?').next()));
    record.plain("status", o.status);
    record.plain("stream", Some(o.stream));
    record.plain("asked_stream", o.asked_stream);
    record.text("outcome", Some(o.outcome.as_str()));
    record.text("limit", o.limit.map(Limit::as_str));

    record.text("model", o.model.as_deref());
    record.text("response_model", o.facts.response_model.as_deref());
    let finish = (!o.facts.finish_reasons.is_empty()).then(|| o.facts.finish_reasons.join("|"));
    record.text("finish_reason", finish.as_deref());

    record.seconds("wall_s", Some(o.wall()));
    record.plain("attempts", Some(o.attempts));
    record.seconds("request_s", spans.and_then(Timeline::request_span));
    record.seconds("ttfb_s", spans.and_then(Timeline::ttfb));
    record.seconds("first_event_s", streamed.and_then(Timeline::first_event_time));
    record.seconds("ttft_s", streamed.and_then(Timeline::ttft));
    record.seconds("answer_ttft_s", streamed.and_then(Timeline::answer_ttft));
    record.seconds("client_ttft_s", streamed.and_then(Timeline::client_ttft));
    record.seconds("duration_s", spans.and_then(Timeline::duration));
    record.seconds("client_duration_s", spans.and_then(|_| o.client_duration()));
    record.seconds("tpot_s", o.tpot());
    record.speed("output_tokens_per_second", o.output_speed());
    record.speed("end_to_end_tokens_per_second", o.end_to_end_speed());
    record.seconds("max_gap_s", o.cadence.max_gap());
    record.seconds("gap_p50_s", o.cadence.quantile(0.5));
    record.seconds("gap_p99_s", o.cadence.quantile(0.99));

    // Without events to read there is nothing to count: no stream, or none of a dialect that is known.
    let counted = o.stream && (o.observer_off.is_none() || o.events > 0);
    record.plain("events", counted.then_some(o.events));
    record.plain("output_events", counted.then_some(o.output_events));
    record.plain("coalesced_events", counted.then_some(o.cadence.coalesced()));
    // Of a tunnel they are not counted: zero would say that nothing came.
    record.plain("reads", spans.and(Some(o.reads)));
    record.plain("request_bytes", Some(o.request_bytes));
    record.plain("response_bytes", Some(o.response_bytes));

    record.plain("input_tokens", usage.input);
    record.plain("cached_tokens", usage.cached);
    record.plain("cache_write_tokens", usage.cache_write);
    record.plain("output_tokens", usage.output);
    record.plain("reasoning_tokens", usage.reasoning);
    record.object("usage_raw", |raw| usage.raw.iter().for_each(|(name, count)| raw.plain(name, Some(*count))));

    record.object("overhead_s", |overhead| {
        overhead.seconds("request", o.overhead_request());
        overhead.seconds("first_output", streamed.and_then(Timeline::overhead_first_output));
        overhead.seconds("event_mean", o.overhead_event_mean());
        overhead.seconds("event_max", (o.event_overhead.count > 0).then_some(o.event_overhead.max));
    });
    record.object("stages_s", |stages| {
        STAGES.iter().zip(o.stages()).for_each(|(name, span)| stages.seconds(name, Some(span)));
    });
    record.object("server_reported_s", |reported| {
        o.facts.reported.named().into_iter().for_each(|(name, span)| reported.seconds(name, span));
    });
    record.object("rate_limits", |limits| {
        for limit in &o.rate_limits {
            limits.object(limit.kind.as_str(), |stated| {
                stated.plain("limit", limit.limit);
                stated.plain("remaining", limit.remaining);
                stated.seconds("reset_s", limit.reset);
            });
        }
    });
    record.object("connection", |connection| {
        connection.plain("reused", o.connection.reused);
        connection.text("client_version", o.connection.client_version.and_then(version));
        connection.text("upstream_version", o.connection.upstream_version.and_then(version));
        let Connection { client, upstream, .. } = &o.connection;
        connection.seconds("client_rtt_s", client.rtt);
        connection.seconds("client_min_rtt_s", client.min_rtt);
        connection.plain("client_retransmits", client.retransmits);
        connection.seconds("upstream_rtt_s", upstream.rtt);
        connection.seconds("upstream_min_rtt_s", upstream.min_rtt);
        connection.plain("upstream_retransmits", upstream.retransmits);
    });
    record.object("stamp", |stamp| {
        stamp.text("client", Some(o.client_stamp.as_str()));
        stamp.text("upstream", o.upstream_stamp.map(StampSource::as_str));
    });
    record.names("flags", o.flags_named().into_iter().filter_map(|(name, set)| set.then_some(name)));

    record.text("workload", o.workload.as_deref());
    record.text("input_class", usage.input.map(|tokens| input_class(Some(tokens))));
    record.text("output_class", usage.output.map(|tokens| output_class(Some(tokens))));
    record.text("load_class", spans.and(o.load).map(load_class));
    record.text("trace_id", o.trace_id.as_deref());
    record.text("session", o.session.as_deref());
    record.text("upstream_request_id", o.upstream_request_id.as_deref());
    record.seconds("client_sent_s", o.client_sent);
    record.close()
}

/// A JSON object in the making. Absent values leave no key; an inner object without keys leaves none either.
struct Object {
    out: String,
    empty: bool,
}

impl Object {
    fn open(mut out: String) -> Self {
        out.push('{');
        Self { out, empty: true }
    }

    fn close(mut self) -> String {
        self.out.push('}');
        self.out
    }

    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(',');
        }
        quote(&mut self.out, key);
        self.out.push(':');
    }

    fn text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.key(key);
            quote(&mut self.out, value);
        }
    }

    /// A count or a boolean.
    fn plain(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.key(key);
            let _ = write!(self.out, "{value}");
        }
    }

    fn seconds(&mut self, key: &str, span: Option<Nanos>) {
        if let Some(span) = span {
            self.key(key);
            push_decimal(&mut self.out, span.0, 9);
        }
    }

    /// Tokens per second, to the millionth: as many digits as the metrics keep.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn speed(&mut self, key: &str, speed: Option<f64>) {
        if let Some(speed) = speed.filter(|speed| speed.is_finite()) {
            self.key(key);
            push_decimal(&mut self.out, (speed * 1e6).round() as u64, 6);
        }
    }

    fn names(&mut self, key: &str, names: impl Iterator<Item = &'static str>) {
        self.key(key);
        self.out.push('[');
        for (index, name) in names.enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            quote(&mut self.out, name);
        }
        self.out.push(']');
    }

    fn object(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        let (length, was_empty) = (self.out.len(), self.empty);
        self.key(key);
        self.out.push('{');
        self.empty = true;
        fill(self);
        if self.empty {
            self.out.truncate(length);
            self.empty = was_empty;
        } else {
            self.out.push('}');
        }
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // U+2028 and U+2029 are lawful JSON, but line breaks to some readers of lines.
            control if control.is_control() || matches!(control, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
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
    use std::time::{Duration, SystemTime};

    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::{
        clock::Stamp,
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
        assert_eq!(value["model"], full().model.unwrap());
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
}
