//! How many series there can be.

use super::*;
use crate::{
    config::ClientTimings,
    dialect::{RateLimit, limits::Kind},
    metrics::family::Exposed,
};

fn lines(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

/// Switched on, so that its family has cells.
fn client_timings() -> ClientTimings {
    ClientTimings { address: ([127, 0, 0, 1], 0).into(), token_file: None, allowed_origins: Vec::new() }
}

/// Uses every cell of one pair: all classes, all outcomes at three endpoints, all kinds of answer.
pub(super) fn fill(recorder: &Recorder, upstream: &str, model: &str) {
    let handles = &recorder.upstream(&upstream.into());
    let exemplar = Exemplar { id: ExchangeId(1), trace_id: None };
    let pair = recorder.pair(handles, Some(model), true);
    pair.ttfb(ms(1));
    pair.first_event(ms(1));
    pair.answer_ttft(ms(1), &exemplar);
    pair.client_ttft(ms(1), &exemplar);
    pair.voice_first_audio(ms(1));
    pair.gap(ms(1));
    pair.read(1, 1);
    pair.events(2, 2, 1);
    pair.overhead_event(ms(1));
    pair.overhead_first_output(ms(1));
    for load in [1, 2, 5, 9, 17, 65] {
        pair.ttft(ms(1), load, &exemplar);
    }
    let windows = [
        Kind::RequestsMinute,
        Kind::RequestsHour,
        Kind::RequestsDay,
        Kind::TokensMinute,
        Kind::TokensHour,
        Kind::TokensDay,
    ];
    pair.rate_limits(&windows.map(|kind| RateLimit { kind, limit: Some(2), remaining: Some(1), reset: None }));
    for span in [ms(1), ms(5_000)] {
        let started = recorder.started(handles, &facts(model), at(1));
        started.sent(at(1));
        started.first_output(span);
    }
    let inputs = [Some(1), Some(200), Some(500), Some(2_000), Some(5_000), Some(20_000), Some(50_000), Some(200_000)];
    let outputs = [Some(10), Some(50), Some(200), Some(500), Some(2_000), None];
    for (index, input) in inputs.into_iter().chain([None]).enumerate() {
        let mut observation = stream(model);
        observation.upstream = Some(upstream.into());
        observation.facts.usage.input = input;
        observation.facts.usage.output = outputs[index % outputs.len()];
        (observation.facts.usage.cached, observation.facts.usage.cache_write) = (Some(1), Some(1));
        observation.facts.usage.reasoning = (index == 8).then_some(1);
        observation.timeline.last_output = Some(at(3_000)); // 2,000 tokens faster would be a burst
        observation.request_bytes = 1;
        let waits = &mut observation.timeline.waits;
        (waits.client, waits.upstream, waits.client_stalls, waits.upstream_stalls) = (ms(1), ms(1), 1, 1);
        (observation.connection.client.rtt, observation.connection.upstream.rtt) = (Some(ms(1)), Some(ms(1)));
        let reported = &mut observation.facts.reported;
        (reported.queue, reported.prefill, reported.decode) = (Some(ms(1)), Some(ms(1)), Some(ms(1)));
        (reported.ttft, reported.total) = (Some(ms(2)), Some(ms(3)));
        recorder.finish(Some(handles), None, observation);
        if recorder.shared.catalogue.client_reported.desc().cells > 0 {
            let newest = recorder.recent().newest(1, |_| true);
            for phase in ClientPhase::ALL {
                recorder.client_reported(&newest[0], phase, ms(1));
            }
        }
    }
    for endpoint in [Endpoint::Chat, Endpoint::Responses, Endpoint::Messages] {
        for stream in [false, true] {
            for outcome in Outcome::ALL {
                let mut observation = failed(outcome);
                observation.timeline.response_end = Some(at(1_999));
                observation.status = Some(200);
                observation.model = Some(model.into());
                (observation.endpoint, observation.stream) = (endpoint, stream);
                recorder.finish(Some(handles), None, observation);
            }
        }
    }
}

#[test]
fn three_upstreams_of_ten_models_with_every_cell_in_use_stay_under_the_bound_unfolded() {
    every_cell_in_use(32_000, None);
}

/// What clients report is 38 series more of each pair: for the same house the bound must then be raised.
#[test]
fn with_client_timings_the_same_needs_a_thousand_more() {
    every_cell_in_use(33_000, Some(client_timings()));
}

fn every_cell_in_use(max_series: usize, client_timings: Option<ClientTimings>) {
    let names: Vec<String> = (0..10).map(|model| format!("model-{model}")).collect();
    let models: Vec<&str> = names.iter().map(String::as_str).collect();
    let upstreams = ["a", "b", "c"];
    let mut config = config(upstreams.map(|name| upstream(name, &models)).to_vec());
    (config.metrics.max_series, config.client_timings) = (max_series, client_timings);
    let recorder = Recorder::new(&config, Clock::start()).unwrap();
    for upstream in upstreams {
        for model in &models {
            fill(&recorder, upstream, model);
        }
    }
    recorder.runtime_delay(Nanos(40_000));
    let text = recorder.encode(true, at(10_000));
    assert_eq!(value(&text, "streamgauge_series_overflow_total"), Some(0.0));
    for family in recorder.shared.catalogue.families() {
        let desc = family.desc();
        let sets = match desc.labels {
            labels if labels.contains(&"model") => 30,
            labels if labels.contains(&"upstream") => 3,
            _ => 1,
        };
        assert_eq!(
            family.samples().len(),
            desc.cells * sets,
            "{}: every cell the budget knows, and no other",
            desc.name
        );
    }
    let count = lines(&text);
    println!("{count} series");
    assert!(count < max_series, "{count} series");
}

#[test]
fn ten_thousand_invented_models_stay_under_the_bound_and_leave_the_configured_ones_alone() {
    let (recorder, handles) = recorder(&["m"]);
    for index in 0..10_000 {
        let model = format!("invented-{index}");
        let started = recorder.started(&handles, &facts(&model), at(1_000));
        // Half of them even get an answer.
        let mut observation = stream(&model);
        observation.status = Some(if index % 2 == 0 { 200 } else { 404 });
        recorder.finish(Some(&handles), Some(started), observation);
    }
    fill(&recorder, "u", "m");
    (0..100).for_each(|index| fill(&recorder, "u", &format!("invented-{}", 2 * index)));
    let text = recorder.encode(false, at(10_000));
    let count = lines(&text);
    assert!(count <= 32_000, "{count} series");
    let labels = text.lines().filter(|line| line.starts_with("streamgauge_requests_started_total")).count();
    assert!(labels <= 66, "{labels} models");
    assert_eq!(counter(&text, "ttft_seconds_count", ""), Some(6.0));
    assert!(value(&text, "streamgauge_series_overflow_total").unwrap() > 0.0);
}

#[test]
fn a_small_bound_is_a_bound_too() {
    let mut config = config(vec![upstream("u", &["m", "n"])]);
    for max_series in [100, 500, 2_000] {
        config.metrics.max_series = max_series;
        let recorder = Recorder::new(&config, Clock::start()).unwrap();
        fill(&recorder, "u", "m");
        fill(&recorder, "u", "o");
        let count = lines(&recorder.encode(false, at(1)));
        assert!(count <= max_series, "{count} of {max_series}");
    }
}
