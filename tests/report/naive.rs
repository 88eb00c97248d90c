//! The figures once more, straight from the JSON, with no code of the report's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// # Panics
/// Where the report says anything else.
pub(crate) fn compare(report: &Value, records: &[Value]) {
    let requests: Vec<&Value> = records.iter().filter(|record| record["endpoint"] != "tunnel").collect();
    assert_eq!(report["scope"]["requests"], requests.len());
    let pair_of = |value: &Value| (value.get("upstream").cloned(), value.get("model").cloned());
    let pairs: BTreeSet<String> = requests.iter().map(|record| format!("{:?}", pair_of(record))).collect();
    assert_eq!(report["pairs"].as_array().unwrap().len(), pairs.len());

    for pair in report["pairs"].as_array().unwrap() {
        let own: Vec<&Value> = requests.iter().copied().filter(|record| pair_of(record) == pair_of(pair)).collect();
        let complete: Vec<&Value> = own.iter().copied().filter(|record| record["outcome"] == "complete").collect();
        assert_eq!(pair["requests"], own.len());
        for key in ["ttft_s", "answer_ttft_s", "client_ttft_s", "output_tokens_per_second", "tpot_s", "max_gap_s"] {
            spread(&pair[key], &numbers(&own, key), key);
        }
        for key in ["duration_s", "client_duration_s", "end_to_end_tokens_per_second"] {
            spread(&pair[key], &numbers(&complete, key), key);
        }
        for (outcome, n) in pair["outcomes"].as_object().unwrap() {
            let there = own.iter().filter(|record| record["outcome"] == outcome.as_str()).count();
            assert!(there > 0 && *n == there, "{outcome}");
            assert!(same(&pair["outcome_shares"][outcome], Some(there as f64 / own.len() as f64)), "{outcome}");
        }
        for (figure, key) in [("input", "input_tokens"), ("cached", "cached_tokens"), ("output", "output_tokens")] {
            let sum: u64 = own.iter().filter_map(|record| record[key].as_u64()).sum();
            assert_eq!(pair["tokens"][figure], sum, "{key}");
        }
        deadlines(pair, &own);
    }
    slices(report, &requests);
    stages(report, &requests);
    sessions(report, &requests);
    reported(report, &requests);
}

fn numbers(records: &[&Value], key: &str) -> Vec<f64> {
    records.iter().filter_map(|record| record[key].as_f64()).collect()
}

/// The same number, or absent both: but for the last bit, which reading decimals may turn over.
fn same(figure: &Value, expected: Option<f64>) -> bool {
    match (figure.as_f64(), expected) {
        (Some(figure), Some(expected)) => (figure - expected).abs() <= expected.abs() * 1e-14,
        (figure, expected) => figure.is_none() && expected.is_none(),
    }
}

/// The smallest value that so many are not above.
fn spread(figure: &Value, values: &[f64], what: &str) {
    assert_eq!(figure["n"], values.len(), "{what}");
    let quantiles = [
        ("min", 0.0, 1),
        ("p1", 0.01, 100),
        ("p10", 0.1, 10),
        ("p50", 0.5, 1),
        ("p90", 0.9, 10),
        ("p99", 0.99, 100),
        ("max", 1.0, 1),
    ];
    for (name, q, least) in quantiles {
        let reached =
            |value: &f64| values.iter().filter(|other| *other <= value).count() as f64 >= q * values.len() as f64;
        let expected = values.iter().copied().filter(reached).min_by(f64::total_cmp).filter(|_| values.len() >= least);
        assert!(same(&figure[name], expected), "{what} {name}: {} for {expected:?}", figure[name]);
    }
}

/// A failure that was answered without a stream counts as one where there are streams.
fn deadlines(pair: &Value, own: &[&Value]) {
    let any = own.iter().any(|record| record.get("asked_stream").unwrap_or(&record["stream"]) == true);
    let generates = |record: &Value| {
        ["chat", "completions", "responses", "messages", "generate", "realtime"]
            .iter()
            .any(|e| record["endpoint"] == *e)
            && record["dialect"] != "other"
    };
    for deadline in pair["deadlines"].as_array().unwrap() {
        let seconds = deadline["deadline_s"].as_f64().unwrap();
        let (mut met, mut missed, mut left) = (0, 0, 0);
        for record in own {
            let said = record.get("asked_stream").and_then(Value::as_bool);
            let streamed = record["stream"] == true;
            let assumed = any && said.is_none() && !streamed && record["outcome"] != "complete" && generates(record);
            if !said.unwrap_or(streamed) && !assumed {
                continue;
            }
            let clients = record["outcome"] == "client_gone" || record["outcome"] == "client_error";
            match record["ttft_s"].as_f64() {
                Some(ttft) if ttft <= seconds => met += 1,
                None if clients && record["stages_s"]["first_output_wait"].as_f64().unwrap() <= seconds => left += 1,
                _ => missed += 1,
            }
        }
        assert_eq!(
            (&deadline["met"], &deadline["missed"], &deadline["left"]),
            (&met.into(), &missed.into(), &left.into())
        );
    }
}

/// What class a record is of.
type Class<'a> = &'a dyn Fn(&Value) -> Option<String>;

fn slices(report: &Value, requests: &[&Value]) {
    let hour = |record: &Value| record["time"].as_str().map(|time| time[11..13].to_owned());
    let text = |record: &Value, key: &str| record[key].as_str().map(str::to_owned);
    let classes: [(&str, Class); 3] = [
        ("by_input", &|record| Some(text(record, "input_class").unwrap_or_else(|| "unknown".to_owned()))),
        ("by_load", &|record| text(record, "load_class")),
        ("by_hour", &hour),
    ];
    for (list, class) in classes {
        let slices = report[list].as_array().unwrap();
        assert_eq!(
            slices.iter().map(|slice| slice["requests"].as_u64().unwrap()).sum::<u64>(),
            requests.iter().filter(|record| class(record).is_some()).count() as u64,
            "{list}"
        );
        for slice in slices {
            let is_own = |record: &&&Value| {
                let equal = |key| record.get(key) == slice.get(key);
                equal("upstream") && equal("model") && class(record).as_deref() == slice["class"].as_str()
            };
            let own: Vec<&Value> = requests.iter().filter(is_own).copied().collect();
            assert_eq!(slice["requests"], own.len(), "{slice}");
            spread(&slice["ttft_s"], &numbers(&own, "ttft_s"), list);
            spread(&slice["output_tokens_per_second"], &numbers(&own, "output_tokens_per_second"), list);
        }
    }
}

/// The digits themselves, without arithmetic of fractions; what is smaller than they reach has an exponent.
fn nanos(value: &Value) -> u64 {
    let text = value.to_string();
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits: u64 = format!("{whole}{fraction}").parse().unwrap();
    let power = 9 + exponent.parse::<i32>().unwrap() - i32::try_from(fraction.len()).unwrap();
    digits * 10_u64.pow(u32::try_from(power).expect("no part of a nanosecond"))
}

fn stages(report: &Value, requests: &[&Value]) {
    for upstream in report["upstreams"].as_array().unwrap() {
        let own: Vec<&&Value> =
            requests.iter().filter(|record| record.get("upstream") == upstream.get("upstream")).collect();
        assert_eq!(upstream["requests"], own.len());
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for record in &own {
            let stages = record["stages_s"].as_object().unwrap();
            stages.iter().for_each(|(stage, span)| *sums.entry(stage).or_default() += nanos(span));
        }
        let wall: u64 = own.iter().map(|record| nanos(&record["wall_s"])).sum();
        assert_eq!(wall, sums.values().sum::<u64>(), "the log's stages add up");
        assert!(same(&upstream["wall_s"], Some(wall as f64 / 1e9)), "{upstream}");
        let said = upstream["stages"].as_array().unwrap();
        assert_eq!(said.len(), sums.len());
        for stage in said {
            assert_eq!(
                stage["sum_s"].as_f64().unwrap(),
                sums[stage["stage"].as_str().unwrap()] as f64 / 1e9,
                "{stage}"
            );
        }
        for (figure, key) in [("overhead_request_s", "request"), ("overhead_event_mean_s", "event_mean")] {
            let values: Vec<f64> = own.iter().filter_map(|record| record["overhead_s"][key].as_f64()).collect();
            spread(&upstream[figure], &values, key);
        }
    }
}

fn sessions(report: &Value, requests: &[&Value]) {
    let mut sessions: BTreeMap<&str, (u64, f64, u64)> = BTreeMap::new();
    for record in requests {
        if let Some(session) = record["session"].as_str() {
            let (calls, time, tokens) = sessions.entry(session).or_default();
            *calls += 1;
            *time += record["wall_s"].as_f64().unwrap();
            *tokens += record["output_tokens"].as_u64().unwrap_or(0);
        }
    }
    assert_eq!(report["sessions"]["sessions"], sessions.len());
    let longest = report["sessions"]["longest"].as_array().unwrap();
    assert_eq!(longest.len(), sessions.len().min(20));
    let mut last = f64::INFINITY;
    for said in longest {
        let (calls, time, tokens) = sessions[said["session"].as_str().unwrap()];
        assert_eq!((&said["calls"], &said["output_tokens"]), (&calls.into(), &tokens.into()));
        let said_time = said["inference_s"].as_f64().unwrap();
        assert!((said_time - time).abs() < 1e-9 && said_time <= last, "{said}");
        last = said_time;
    }
}

fn reported(report: &Value, requests: &[&Value]) {
    for said in report["server_reported"].as_array().unwrap() {
        let is_own = |record: &&&Value| {
            let flags = record["flags"].to_string();
            record.get("upstream") == said.get("upstream")
                && record.get("model") == said.get("model")
                && !["hidden_reasoning", "summarised_reasoning", "server_ttft_of_head", "server_ttft_behind_queue"]
                    .iter()
                    .any(|flag| flags.contains(flag))
        };
        let pairs: Vec<(f64, f64)> = requests
            .iter()
            .filter(is_own)
            .filter_map(|record| record["ttft_s"].as_f64().zip(record["server_reported_s"]["ttft"].as_f64()))
            .collect();
        let of = |number: fn(&(f64, f64)) -> f64| pairs.iter().map(number).collect::<Vec<_>>();
        spread(&said["gateway_ttft_s"], &of(|pair| pair.0), "gateway");
        spread(&said["server_ttft_s"], &of(|pair| pair.1), "server");
        spread(&said["outside_server_s"], &of(|pair| (pair.0 - pair.1).max(0.0)), "outside");
    }
}
