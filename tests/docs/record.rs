//! `docs/record.md` and `docs/numbers.md`: their keys and names are the code's, in its order.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use http::{Method, Version};
use serde_json::Value;
use streamgauge::{
    access_log::record_json,
    clock::{Nanos, Stamp},
    dialect::{RateLimit, Reported, limits::Kind},
    observation::{EventOverhead, ExchangeId, Limit, Network, Observation, Outcome, STAGES, StampSource},
    timeline::{Interval, Timeline},
};

use crate::{first_cells, read, section};

/// An exchange of which everything was observed, so that its record has every key.
fn full() -> Observation {
    let at = |ms: u64| Stamp::from_nanos(ms * 1_000_000).unwrap();
    let span = |start: u64| Some(Interval { start: at(start), end: at(start + 1) });
    let mut timeline = Timeline::begin(at(10));
    timeline.request_end = Some(at(11));
    (timeline.lease_wanted, timeline.lease_got) = (Some(at(12)), Some(at(16)));
    (timeline.dns, timeline.tcp, timeline.tls) = (span(12), span(13), span(14));
    (timeline.sent_first, timeline.sent_last) = (Some(at(17)), Some(at(18)));
    (timeline.head_back, timeline.first_byte, timeline.first_event) = (Some(at(100)), Some(at(101)), Some(at(102)));
    (timeline.first_output, timeline.first_answer, timeline.last_output) =
        (Some(at(200)), Some(at(300)), Some(at(900)));
    (timeline.response_end, timeline.first_output_delivered) = (Some(at(901)), Some(at(201)));
    (timeline.delivered, timeline.end) = (Some(at(902)), Some(at(902)));
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    let mut full = Observation::begin(ExchangeId(1), time, timeline, Outcome::Complete);
    for ms in [200, 300, 900] {
        full.cadence.output(at(ms));
    }
    full.upstream = Some("openai".into());
    full.method = Some(Method::POST);
    full.path = Some("/v1/chat/completions".into());
    (full.status, full.stream, full.limit) = (Some(200), true, Some(Limit::Idle));
    full.asked_stream = Some(true);
    full.model = Some("m".into());
    full.facts.response_model = Some("m-1".into());
    full.facts.finish_reasons = vec!["stop".into()];
    let usage = &mut full.facts.usage;
    (usage.input, usage.cached, usage.cache_write) = (Some(10), Some(5), Some(1));
    (usage.output, usage.reasoning) = (Some(20), Some(2));
    usage.raw = vec![("prompt_tokens", 10)];
    full.facts.reported = Reported {
        queue: Some(Nanos(1)),
        prefill: Some(Nanos(2)),
        decode: Some(Nanos(3)),
        ttft: Some(Nanos(4)),
        total: Some(Nanos(5)),
        ..Reported::default()
    };
    let (limit, remaining, reset) = (Some(10), Some(9), Some(Nanos(6)));
    full.rate_limits = vec![RateLimit { kind: Kind::Requests, limit, remaining, reset }];
    full.reasoning_seen = true;
    full.event_overhead = EventOverhead { count: 3, sum: Nanos(300), max: Nanos(200) };
    full.connection.reused = Some(false);
    (full.connection.client_version, full.connection.upstream_version) =
        (Some(Version::HTTP_11), Some(Version::HTTP_2));
    let network = Network { rtt: Some(Nanos(2)), min_rtt: Some(Nanos(1)), retransmits: Some(0) };
    (full.connection.client, full.connection.upstream) = (network, network);
    full.upstream_stamp = Some(StampSource::User);
    full.load = Some(1);
    full.workload = Some("w".into());
    full.trace_id = Some("t".into());
    full.session = Some("s".into());
    full.upstream_request_id = Some("r".into());
    full.client_sent = Some(Nanos(1));
    full
}

#[test]
fn record_md_has_every_key_in_the_records_order() {
    let json = record_json(&full());
    let page = read("docs/record.md");
    let documented = first_cells(section(&page, "## Keys"));

    let mut rest = json.as_str();
    for key in &documented {
        let leaf = format!("\"{}\":", key.rsplit('.').next().unwrap());
        rest = rest.split_once(&leaf).unwrap_or_else(|| panic!("{key} is not in the record, or not there")).1;
    }
    let keys: BTreeSet<String> = keys(&serde_json::from_str(&json).unwrap());
    let documented: BTreeSet<String> = documented.into_iter().map(str::to_owned).collect();
    assert_eq!(documented, keys);

    // An exchange that has all keys has those that the code can write.
    let source = read("src/access_log/record.rs");
    let (writer, _) = source.split_once("\n#[cfg(test)]").unwrap();
    let written: Vec<_> = writer.split("key!(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(written.len() > 40, "they are still written so: {written:?}");
    let leaves: BTreeSet<&str> = keys.iter().flat_map(|key| key.split('.')).collect();
    let unknown: Vec<_> = written.into_iter().filter(|key| !leaves.contains(key)).collect();
    assert!(unknown.is_empty(), "never in a record here: {unknown:?}");
}

/// Every key; those of inner objects as `outer.inner`, but for the provider's own. The limits' are by kind.
fn keys(record: &Value) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (key, value) in record.as_object().unwrap() {
        match value.as_object() {
            Some(kinds) if key == "rate_limits" => {
                let inner = kinds.values().filter_map(Value::as_object).flat_map(|limit| limit.keys());
                keys.extend(inner.map(|leaf| format!("{key}.*.{leaf}")));
            }
            Some(inner) if key != "usage_raw" => keys.extend(inner.keys().map(|leaf| format!("{key}.{leaf}"))),
            _ => {
                keys.insert(key.clone());
            }
        }
    }
    keys
}

#[test]
fn numbers_md_has_every_outcome_stage_and_flag() {
    let page = read("docs/numbers.md");
    assert_eq!(first_cells(section(&page, "## Outcomes")), Outcome::ALL.map(Outcome::as_str));
    assert_eq!(first_cells(section(&page, "## Stages")), STAGES);
    assert_eq!(first_cells(section(&page, "## Flags")), full().flags_named().map(|(name, _)| name));
}
