mod reported;
mod series;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, uri::Authority};

use super::*;
use crate::{
    config::{HttpVersion, Metrics, Roots, Upstream, UpstreamLimits},
    dialect::{Dialect, Endpoint, ObserverOff},
    metrics::family::OTHER,
    observation::{ExchangeId, Limit, STAGES},
    timeline::Timeline,
};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Stamp {
    Stamp::from_nanos(ms * MS).unwrap()
}

fn ms(span: u64) -> Nanos {
    Nanos(span * MS)
}

fn upstream(name: &str, models: &[&str]) -> Arc<Upstream> {
    Arc::new(Upstream {
        name: name.into(),
        tls: false,
        authority: Authority::from_static("127.0.0.1:1"),
        host: "127.0.0.1".into(),
        port: 1,
        base_path: String::new(),
        provider: None,
        ca_file: None,
        roots: Roots::Webpki,
        client_certificate: None,
        http: HttpVersion::Auto,
        preserve_host: false,
        models: models.iter().map(|&model| model.into()).collect(),
        limits: UpstreamLimits::default(),
    })
}

fn config(upstreams: Vec<Arc<Upstream>>) -> Config {
    Config {
        listeners: Vec::new(),
        recent: 512,
        admin: None,
        admin_access: crate::config::AdminAccess::default(),
        client_timings: None,
        workers: None,
        runtime: crate::config::Runtime::MultiThread,
        kernel_stamps: true,
        upstreams,
        routes: Vec::new(),
        metrics: Metrics::default(),
        limits: crate::config::Limits::default(),
        access_log: None,
        log_level: "info".into(),
        session_header: None,
    }
}

fn recorder(models: &[&str]) -> (Recorder, Arc<UpstreamHandles>) {
    let recorder = Recorder::new(&config(vec![upstream("u", models)]), Clock::start()).unwrap();
    let handles = recorder.upstream(&"u".into());
    (recorder, handles)
}

fn facts(model: &str) -> RequestFacts {
    RequestFacts { model: Some(model.into()), stream: Some(true), dialect: None }
}

/// A whole stream: request at 1,000 ms, sent at 1,001, first output at 1,251, over at 2,000; 101 tokens.
fn stream(model: &str) -> Observation {
    let mut timeline = Timeline::begin(at(1_000));
    timeline.request_end = Some(at(1_000));
    timeline.sent_last = Some(at(1_001));
    timeline.head_back = Some(at(1_100));
    timeline.first_byte = Some(at(1_100));
    timeline.first_output = Some(at(1_251));
    timeline.last_output = Some(at(1_951));
    timeline.response_end = Some(at(1_999));
    timeline.delivered = Some(at(2_000));
    timeline.end = Some(at(2_000));
    let mut observation = Observation::begin(ExchangeId(1), UNIX_EPOCH, timeline, Outcome::Complete);
    observation.upstream = Some("u".into());
    observation.endpoint = Endpoint::Chat;
    observation.dialect = Dialect::OpenAiChat;
    observation.status = Some(200);
    observation.stream = true;
    observation.model = Some(model.into());
    observation.facts.usage.input = Some(1_000);
    observation.facts.usage.output = Some(101);
    observation.output_events = 2;
    observation.cadence.output(at(1_251));
    observation.cadence.output(at(1_951));
    observation
}

fn failed(outcome: Outcome) -> Observation {
    let mut observation = stream("m");
    observation.outcome = outcome;
    observation.status = None;
    observation.facts = crate::dialect::Facts::default();
    observation.output_events = 0;
    let marks = &mut observation.timeline;
    (marks.first_output, marks.last_output, marks.delivered, marks.response_end) = (None, None, None, None);
    observation
}

/// The value of one line of the exposition; absent if it is not there.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

const P: &str = r#"upstream="u",model="m""#;

fn counter(text: &str, name: &str, more: &str) -> Option<f64> {
    value(text, &format!("streamgauge_{name}{{{P}{more}}}"))
}

#[test]
fn configured_pairs_exist_at_zero_and_latencies_of_others_do_not() {
    let (recorder, _) = recorder(&["m"]);
    let text = recorder.encode(false, at(1));
    for (name, more) in [
        ("requests_started_total", ""),
        ("requests_total", r#",endpoint="chat",stream="true",outcome="complete""#),
        ("ttft_seconds_count", ""),
        ("inter_event_seconds_count", ""),
        ("ttft_deadline_total", r#",deadline="0.3",result="missed""#),
        ("tokens_total", r#",type="output""#),
        ("stage_seconds_total", r#",stage="gateway_request""#),
        ("in_flight", ""),
        ("ttft_oldest_wait_seconds", ""),
    ] {
        assert_eq!(counter(&text, name, more), Some(0.0), "{name}");
    }
    assert!(!text.contains(r#"model="_"#), "neither _other nor _none");
    for name in ["config_last_reload_successful", "build_info{version=\"0.1.0\"}"] {
        assert_eq!(value(&text, &format!("streamgauge_{name}")), Some(1.0), "{name}");
    }
    assert_eq!(value(&text, "streamgauge_overhead_seconds_count{upstream=\"u\",phase=\"event\"}"), Some(0.0));
    assert_eq!(value(&text, "streamgauge_series_overflow_total"), Some(0.0));
    assert!(!cfg!(target_os = "linux") || value(&text, "process_resident_memory_bytes").unwrap() > 0.0);
}

#[test]
fn an_exchange_is_booked_once_in_every_family_it_belongs_to() {
    let (recorder, handles) = recorder(&["m"]);
    handles.attempt("ok");
    handles.lease(false, Some(ms(1)), Some(ms(2)), None, Some(ms(3)));
    let started = recorder.started(&handles, &facts("m"), at(1_000));
    started.sent(at(1_001));
    let pair = recorder.pair(&handles, Some("m"), true);
    let exemplar = Exemplar { id: ExchangeId(1), trace_id: None };
    pair.read(1, 100);
    pair.events(3, 2, 1);
    pair.ttfb(ms(99));
    pair.first_event(ms(99));
    pair.ttft(ms(250), started.load(), &exemplar);
    started.first_output(ms(250));
    pair.answer_ttft(ms(250), &exemplar);
    pair.client_ttft(ms(252), &exemplar);
    pair.gap(ms(700));
    pair.overhead_first_output(Nanos(20_000));
    pair.overhead_event(Nanos(30_000));
    let mut observation = stream("m");
    observation.request_bytes = 50;
    observation.timeline.waits.client = ms(40);
    observation.timeline.waits.client_stalls = 2;
    recorder.finish(Some(&handles), Some(started), observation);

    let text = recorder.encode(false, at(3_000));
    let expected = [
        ("requests_total", r#",endpoint="chat",stream="true",outcome="complete""#, 1.0),
        ("requests_total", r#",endpoint="chat",stream="true",outcome="upstream_5xx""#, 0.0),
        ("requests_started_total", "", 1.0),
        ("in_flight", "", 0.0),
        ("in_flight_seconds_total", "", 1.0),
        ("in_flight_peak", "", 1.0),
        ("ttft_seconds_count", "", 1.0),
        ("ttft_seconds_sum", "", 0.25),
        (r"ttft_seconds_bucket", r#",le="0.25""#, 1.0),
        (r"ttft_seconds_bucket", r#",le="0.2""#, 0.0),
        ("ttft_by_load_seconds_count", r#",load="1""#, 1.0),
        ("ttft_by_input_seconds_count", r#",input="500_2k""#, 1.0),
        ("ttft_deadline_total", r#",deadline="0.3",result="met""#, 1.0),
        ("ttft_deadline_total", r#",deadline="1",result="missed""#, 0.0),
        ("answer_ttft_seconds_count", "", 1.0),
        ("client_ttft_seconds_sum", "", 0.252),
        ("ttfb_seconds_sum", "", 0.099),
        ("first_event_seconds_count", "", 1.0),
        ("inter_event_seconds_sum", "", 0.7),
        ("time_per_output_token_seconds_sum", "", 0.007),
        ("max_gap_seconds_sum", "", 0.7),
        ("output_tokens_per_second_sum", r#",output="50_200""#, 142.857_143),
        ("request_duration_seconds_sum", r#",result="ok""#, 0.998),
        ("request_duration_seconds_count", r#",result="not_ok""#, 0.0),
        ("client_duration_seconds_sum", "", 1.0),
        ("tokens_total", r#",type="input""#, 1_000.0),
        ("tokens_total", r#",type="output""#, 101.0),
        ("events_total", "", 3.0),
        ("output_events_total", "", 2.0),
        ("coalesced_events_total", "", 1.0),
        ("reads_total", "", 1.0),
        ("bytes_total", r#",direction="request""#, 50.0),
        ("bytes_total", r#",direction="response""#, 100.0),
        ("stalls_total", r#",side="client""#, 2.0),
        ("stall_seconds_total", r#",side="client""#, 0.04),
        ("no_usage_total", "", 0.0),
        ("no_output_total", "", 0.0),
        ("hidden_reasoning_total", "", 0.0),
    ];
    for (name, more, number) in expected {
        assert_eq!(counter(&text, name, more), Some(number), "{name} {more}");
    }
    let stages: f64 =
        STAGES.iter().map(|stage| counter(&text, "stage_seconds_total", &format!(",stage=\"{stage}\"")).unwrap()).sum();
    assert!((stages - 1.0).abs() < 1e-9, "{stages}");
    for (series, number) in [
        (r#"overhead_seconds_sum{upstream="u",phase="request"}"#, 0.001),
        (r#"overhead_seconds_sum{upstream="u",phase="first_output"}"#, 0.000_02),
        (r#"overhead_seconds_sum{upstream="u",phase="event"}"#, 0.000_03),
        (r#"connections_total{upstream="u",reused="false"}"#, 1.0),
        (r#"connect_seconds_sum{upstream="u",phase="tcp"}"#, 0.002),
        (r#"connect_seconds_count{upstream="u",phase="tls"}"#, 0.0),
        (r#"pool_wait_seconds_sum{upstream="u"}"#, 0.003),
        (r#"attempts_total{upstream="u",result="ok"}"#, 1.0),
    ] {
        assert_eq!(value(&text, &format!("streamgauge_{series}")), Some(number), "{series}");
    }
}

#[test]
fn what_went_missing_is_counted() {
    let (recorder, handles) = recorder(&["m"]);
    let mut no_usage = stream("m");
    no_usage.facts.usage = crate::dialect::Usage::default();
    recorder.finish(Some(&handles), None, no_usage);
    let mut no_output = stream("m");
    no_output.output_events = 0;
    recorder.finish(Some(&handles), None, no_output);
    let mut hidden = stream("m");
    hidden.facts.usage.reasoning = Some(20);
    recorder.finish(Some(&handles), None, hidden);
    let mut off = stream("m");
    off.observer_off = Some(ObserverOff::Malformed);
    recorder.finish(Some(&handles), None, off);
    let text = recorder.encode(false, at(3_000));
    for name in ["no_usage_total", "no_output_total", "hidden_reasoning_total"] {
        assert_eq!(counter(&text, name, ""), Some(1.0), "{name}");
    }
    let off = |reason| value(&text, &format!("streamgauge_observer_off_total{{upstream=\"u\",reason=\"{reason}\"}}"));
    assert_eq!((off("malformed"), off("overflow")), (Some(1.0), Some(0.0)));
}

#[test]
fn a_tunnel_is_counted_but_in_no_latency() {
    let (recorder, handles) = recorder(&["m"]);
    let mut tunnel = stream("m");
    tunnel.endpoint = Endpoint::Tunnel;
    recorder.finish(Some(&handles), None, tunnel);
    let text = recorder.encode(false, at(3_000));
    assert_eq!(counter(&text, "requests_total", r#",endpoint="tunnel",stream="true",outcome="complete""#), Some(1.0));
    let counted = text.lines().filter(|line| line.contains("_seconds_count{") && !line.ends_with(" 0"));
    assert_eq!(counted.collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(counter(&text, "stage_seconds_total", r#",stage="generation""#), Some(0.0));
}

#[test]
fn a_tunnel_is_in_flight_but_nobodys_load() {
    let (recorder, handles) = recorder(&["m"]);
    let tunnel = recorder.started(&handles, &facts("m"), at(1));
    tunnel.tunnelled();
    tunnel.tunnelled();
    let turn = recorder.started(&handles, &facts("m"), at(2));
    assert_eq!((turn.load(), recorder.started(&handles, &facts("m"), at(3)).load()), (1, 2));
    assert_eq!(counter(&recorder.encode(false, at(4)), "in_flight", ""), Some(2.0));
    drop(tunnel);
    assert_eq!(counter(&recorder.encode(false, at(5)), "in_flight", ""), Some(1.0));
    assert_eq!(recorder.started(&handles, &facts("m"), at(6)).load(), 2);
}

#[test]
fn an_exchange_without_an_upstream_is_none() {
    let (recorder, _) = recorder(&["m"]);
    let mut observation = failed(Outcome::ClientError);
    (observation.upstream, observation.model, observation.endpoint) = (None, None, Endpoint::Other);
    recorder.finish(None, None, observation);
    let series = r#"streamgauge_requests_total{upstream="_none",model="_none",endpoint="other",stream="true",outcome="client_error"}"#;
    assert_eq!(value(&recorder.encode(false, at(3_000)), series), Some(1.0));
}

#[test]
fn a_model_becomes_a_label_by_configuration_or_by_an_answer() {
    let (recorder, handles) = recorder(&["m"]);
    let labels = |recorder: &Recorder| -> Vec<String> {
        let text = recorder.encode(false, at(1));
        let started = text.lines().filter_map(|line| line.strip_prefix("streamgauge_in_flight{upstream=\"u\",model="));
        started.map(|rest| rest.split('"').nth(1).unwrap().to_owned()).collect()
    };
    drop(recorder.started(&handles, &facts("new"), at(1)));
    recorder.pair(&handles, Some("new"), false);
    assert_eq!(labels(&recorder), [OTHER, "m"]);
    recorder.pair(&handles, Some("new"), true);
    drop(recorder.started(&handles, &RequestFacts::default(), at(1)));
    assert_eq!(labels(&recorder), [NONE, OTHER, "m", "new"]);
    for unfit in ["", "_none", "_other", "a\nb", "a\u{202e}b", &"x".repeat(129)] {
        recorder.pair(&handles, Some(unfit), true);
    }
    assert_eq!(labels(&recorder), [NONE, OTHER, "m", "new"]);
    recorder.pair(&handles, Some(&"y".repeat(128)), true);
    recorder.pair(&handles, Some("通义 千问"), true);
    assert_eq!(labels(&recorder).len(), 6);
}

#[test]
fn one_that_is_dropped_leaves_without_being_counted_twice() {
    let (recorder, handles) = recorder(&["m"]);
    let first = recorder.started(&handles, &facts("m"), at(1));
    let second = recorder.started(&handles, &facts("m"), at(1));
    assert_eq!((first.load(), second.load()), (1, 2));
    second.sent(at(2));
    let text = recorder.encode(false, at(102));
    assert_eq!(counter(&text, "in_flight", ""), Some(2.0));
    assert_eq!(counter(&text, "ttft_oldest_wait_seconds", ""), Some(0.1));
    drop(first);
    recorder.finish(Some(&handles), Some(second), failed(Outcome::UpstreamReset));
    let text = recorder.encode(false, at(2_000));
    assert_eq!(counter(&text, "in_flight", ""), Some(0.0));
    assert_eq!(counter(&text, "ttft_oldest_wait_seconds", ""), Some(0.0));
    assert_eq!(counter(&text, "requests_started_total", ""), Some(2.0));
    assert_eq!(counter(&text, "in_flight_peak", ""), Some(2.0));
}

#[test]
fn the_time_in_flight_never_steps_back() {
    let (recorder, handles) = recorder(&["m"]);
    let started = recorder.started(&handles, &facts("m"), at(1_000));
    assert_eq!(counter(&recorder.encode(false, at(2_500)), "in_flight_seconds_total", ""), Some(1.5));
    // It ended at 2,000, which was booked only after the scrape.
    recorder.finish(Some(&handles), Some(started), stream("m"));
    assert_eq!(counter(&recorder.encode(false, at(2_600)), "in_flight_seconds_total", ""), Some(1.5));
}

/// Met and missed of the deadlines 0.3, 0.6 and 1 s.
fn deadlines(recorder: &Recorder, now: u64) -> [(f64, f64); 3] {
    let text = recorder.encode(false, at(now));
    ["0.3", "0.6", "1"].map(|deadline| {
        let count = |result| {
            let labels = format!(",deadline=\"{deadline}\",result=\"{result}\"");
            counter(&text, "ttft_deadline_total", &labels).unwrap()
        };
        (count("met"), count("missed"))
    })
}

#[test]
fn a_deadline_is_missed_when_it_passes_not_when_the_output_comes() {
    let (recorder, handles) = recorder(&["m"]);
    let started = recorder.started(&handles, &facts("m"), at(900));
    assert_eq!(deadlines(&recorder, 5_000), [(0.0, 0.0); 3], "not sent yet");
    started.sent(at(1_000));
    assert_eq!(deadlines(&recorder, 1_300), [(0.0, 0.0); 3]);
    assert_eq!(deadlines(&recorder, 1_301), [(0.0, 1.0), (0.0, 0.0), (0.0, 0.0)]);
    assert_eq!(deadlines(&recorder, 1_650), [(0.0, 1.0), (0.0, 1.0), (0.0, 0.0)]);
    started.first_output(ms(700));
    started.first_output(ms(9_000));
    let all = [(0.0, 1.0), (0.0, 1.0), (1.0, 0.0)];
    assert_eq!(deadlines(&recorder, 9_000), all);
    recorder.finish(Some(&handles), Some(started), stream("m"));
    assert_eq!(deadlines(&recorder, 9_000), all);
}

#[test]
fn without_a_scrape_between_the_deadlines_come_out_the_same() {
    let (recorder, handles) = recorder(&["m"]);
    let started = recorder.started(&handles, &facts("m"), at(900));
    started.sent(at(1_000));
    started.first_output(ms(700));
    drop(started);
    assert_eq!(deadlines(&recorder, 9_000), [(0.0, 1.0), (0.0, 1.0), (1.0, 0.0)]);
}

#[test]
fn an_end_without_output_misses_unless_the_client_left_before() {
    // The exchange lasts from 1,001 to 2,000 ms: longer than 0.3 and 0.6 s, not than 1 s.
    let missed = [(0.0, 1.0); 3];
    let left = [(0.0, 1.0), (0.0, 1.0), (0.0, 0.0)];
    for (outcome, expected) in [
        (Outcome::Complete, missed),
        (Outcome::UpstreamReset, missed),
        (Outcome::Upstream5xx, missed),
        (Outcome::ClientGone, left),
        (Outcome::ClientError, left),
    ] {
        let (recorder, handles) = recorder(&["m"]);
        let started = recorder.started(&handles, &facts("m"), at(1_000));
        started.sent(at(1_001));
        recorder.finish(Some(&handles), Some(started), failed(outcome));
        assert_eq!(deadlines(&recorder, 9_000), expected, "{outcome:?}");
    }
}

#[test]
fn deadlines_are_for_requests_that_ask_for_a_stream() {
    let (recorder, handles) = recorder(&["m"]);
    for stream in [None, Some(false)] {
        let facts = RequestFacts { stream, ..facts("m") };
        let started = recorder.started(&handles, &facts, at(1_000));
        started.sent(at(1_001));
        recorder.finish(Some(&handles), Some(started), failed(Outcome::Upstream5xx));
    }
    assert_eq!(deadlines(&recorder, 9_000), [(0.0, 0.0); 3]);
}

#[test]
fn an_unreachable_provider_misses_every_deadline() {
    let (recorder, handles) = recorder(&["m"]);
    let started = recorder.started(&handles, &facts("m"), at(1_000));
    let mut observation = failed(Outcome::Unreachable);
    observation.timeline.sent_last = None;
    observation.limit = Some(Limit::Connect);
    recorder.finish(Some(&handles), Some(started), observation);
    assert_eq!(deadlines(&recorder, 9_000), [(0.0, 1.0); 3]);
}

#[test]
fn those_who_left_without_output_leave_their_wait() {
    let (recorder, handles) = recorder(&["m"]);
    recorder.finish(Some(&handles), None, failed(Outcome::ClientGone));
    recorder.finish(Some(&handles), None, failed(Outcome::UpstreamReset));
    let mut after_output = stream("m");
    after_output.outcome = Outcome::ClientGone;
    recorder.finish(Some(&handles), None, after_output);
    let text = recorder.encode(false, at(3_000));
    assert_eq!(counter(&text, "ttft_abandoned_wait_seconds_count", ""), Some(1.0));
    assert_eq!(counter(&text, "ttft_abandoned_wait_seconds_sum", ""), Some(0.999));
}

#[test]
fn declared_workloads_are_found_by_tokens_and_header() {
    let mut config = config(vec![upstream("u", &["m"])]);
    let header = (HeaderName::from_static("x-workload"), HeaderValue::from_static("bench"));
    let workload = |name: &str, header| Workload {
        name: name.into(),
        input_tokens: (900, 1_000),
        output_tokens: (101, 200),
        header,
    };
    config.metrics.workloads = vec![workload("marked", Some(header.clone())), workload("any", None)];
    let recorder = Recorder::new(&config, Clock::start()).unwrap();
    let handles = recorder.upstream(&"u".into());
    let headers = HeaderMap::from_iter([header]);
    let name = |marked: &Marked, input, output| recorder.workload(marked, input, output).map(|name| name.to_string());
    let marked = recorder.marked(&headers);
    assert_eq!(name(&marked, Some(900), Some(200)).as_deref(), Some("marked"));
    assert_eq!(name(&recorder.marked(&HeaderMap::new()), Some(900), Some(200)).as_deref(), Some("any"));
    for (input, output) in [(Some(899), Some(101)), (Some(1_001), Some(101)), (Some(900), Some(100)), (None, Some(101))]
    {
        assert_eq!(name(&marked, input, output), None);
    }

    let declared = |mut observation: Observation| {
        let (input, output) = (observation.facts.usage.input, observation.output_tokens());
        observation.workload = recorder.workload(&Marked::default(), input, output);
        observation
    };
    recorder.finish(Some(&handles), None, declared(stream("m")));
    let mut broken = stream("m");
    broken.outcome = Outcome::UpstreamReset;
    broken.facts.finish_reasons = vec!["stop".into()];
    recorder.finish(Some(&handles), None, declared(broken));
    let text = recorder.encode(false, at(3_000));
    for family in ["workload_ttft_seconds", "workload_output_tokens_per_second", "workload_duration_seconds"] {
        assert_eq!(counter(&text, &format!("{family}_count"), ",workload=\"any\""), Some(1.0), "{family}");
    }
}

#[test]
fn what_is_no_finite_number_is_counted_and_dropped() {
    let dropped = IntCounter::new("dropped", "Dropped.").unwrap();
    let seen = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 83.25].map(|v| cells::finite(v, &dropped));
    assert_eq!(seen, [None, None, None, Some(0), Some(0), Some(83_250_000)]);
    assert_eq!(dropped.get(), 3);
}

#[test]
fn a_failed_reload_shows_and_keeps_the_time_of_the_last_good_one() {
    let (recorder, _) = recorder(&[]);
    recorder.reloaded(true, UNIX_EPOCH + Duration::from_millis(1_500));
    recorder.reloaded(false, UNIX_EPOCH + Duration::from_secs(9));
    recorder.runtime_delay(Nanos(40_000));
    let text = recorder.encode(false, at(1));
    assert_eq!(value(&text, "streamgauge_config_last_reload_successful"), Some(0.0));
    assert_eq!(value(&text, "streamgauge_config_last_reload_timestamp_seconds"), Some(1.5));
    assert_eq!(value(&text, "streamgauge_runtime_delay_seconds_sum"), Some(0.000_04));
}

#[test]
fn both_formats_say_the_same_numbers() {
    let (recorder, _) = recorder(&["m"]);
    series::fill(&recorder, "u", "m");
    // Process metrics move between two scrapes.
    let samples = |text: &str| -> Vec<String> {
        let ours = text.lines().filter(|line| line.starts_with("streamgauge_"));
        ours.map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
    };
    let (text, open) = (recorder.encode(false, at(10_000)), recorder.encode(true, at(10_000)));
    assert_eq!(samples(&text), samples(&open));
    assert!(open.ends_with("# EOF\n") && open.contains(" # {exchange_id=\"0000000000000001\"} 0.001\n"));
    assert!(!text.contains("EOF") && !text.contains("exchange_id"));
}

#[test]
fn the_log_gets_what_the_recorder_filled_in() {
    let mut config = config(vec![upstream("u", &["m"])]);
    let path = std::env::temp_dir().join(format!("streamgauge-record-{}.jsonl", std::process::id()));
    config.access_log = Some(crate::config::LogTarget::File(path.clone()));
    let recorder = Recorder::new(&config, Clock::start()).unwrap();
    let handles = recorder.upstream(&"u".into());
    let started = recorder.started(&handles, &facts("m"), at(1_000));
    recorder.finish(Some(&handles), Some(started), stream("m"));
    assert!(recorder.close(Duration::from_secs(60)));
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let record: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&record["load_class"], &record["ttft_s"]), (&"1".into(), &0.25.into()));
}
