//! `report`: its figures against those of a naive reader of the same log, a log that the gauge writes in this very test; and
//! whatever a log may hold, a report that is whole.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

#[path = "report"]
mod support {
    pub(crate) mod naive;
    pub(crate) mod page;
    pub(crate) mod traffic;
}

use std::{
    fs,
    io::{BufRead as _, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use streamgauge::{
    cli::{ReportArgs, ReportFormat},
    report::make,
};

use self::support::{naive, page, traffic};

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/report/exchanges.jsonl");

#[test]
fn the_figures_of_a_real_log_are_those_a_naive_reader_finds() {
    let log = Scratch::new("real");
    let asked = traffic::write_log(&log.0);
    let records: Vec<Value> =
        fs::read_to_string(&log.0).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), asked, "one record each");
    let report: Value = serde_json::from_str(&report(&log.0, ReportFormat::Json)).unwrap();
    naive::compare(&report, &records);
    page::check(&self::report(&log.0, ReportFormat::Html));
}

#[test]
fn the_figures_of_the_kept_log_are_those_a_naive_reader_finds() {
    let records: Vec<Value> =
        fs::read_to_string(KEPT).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    naive::compare(&serde_json::from_str(&report(Path::new(KEPT), ReportFormat::Json)).unwrap(), &records);
}

#[test]
fn the_text_of_the_kept_log() {
    let text = make(&arguments(Path::new(KEPT), ReportFormat::Text), Some(100)).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    insta::assert_snapshot!(text.replace(KEPT, "exchanges.jsonl"));
}

#[test]
fn names_are_text_and_nothing_else() {
    let evil = "<script>alert(1)</script>\"'><img src=https://evil.example/x onerror=alert(1)>&amp;\u{1b}[2J\u{202e}";
    let line = json!({
        "time": "2026-01-31T12:00:00Z", "id": evil, "upstream": evil, "model": evil, "session": evil, "workload": evil,
        "endpoint": "chat", "dialect": evil, "outcome": evil, "load_class": evil, "limit": evil, "flags": [evil],
        "stamp": {"client": evil, "upstream": evil}, "stages_s": {evil: 1.0, "generation": 0.5}, "wall_s": 1.5, "stream": true,
        "ttft_s": 0.2, "input_tokens": 100, "output_tokens": 10, "output_tokens_per_second": 20.0,
    });
    let log = Scratch::with("evil", format!("{line}\n{{\"outcome\": \"{evil}\u{1b}[2J\n").as_bytes());
    let html = report(&log.0, ReportFormat::Html);
    page::check(&html);
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "it is shown");
    let text = report(&log.0, ReportFormat::Text);
    assert!(text.contains("<script>") && !text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    let json: Value = serde_json::from_str(&report(&log.0, ReportFormat::Json)).unwrap();
    assert_eq!(json["pairs"][0]["model"], evil, "whole, as it came");
}

#[test]
fn a_page_is_bounded_however_long_the_log() {
    let mut log = String::new();
    for index in 0..30_000_u64 {
        let (model, session, second) = (index % 150, index % 2_000, index % 86_400);
        let ttft = 0.05 + (index.wrapping_mul(2_654_435_761) % 1_000) as f64 / 500.0;
        let load = ["1", "2_4", "65_up"][usize::try_from(index % 3).unwrap()];
        let line = json!({
            "time": format!("2026-01-{:02}T{:02}:{:02}:{:02}Z", 1 + index % 28, second / 3_600, second / 60 % 60, second % 60),
            "upstream": "u", "model": format!("model-with-a-long-name-{model}"), "session": format!("session-{session}"),
            "endpoint": "chat", "outcome": if index % 9 == 0 { "truncated" } else { "complete" }, "wall_s": ttft * 2.0,
            "stream": true, "ttft_s": ttft, "output_tokens_per_second": 50.0 + ttft, "input_tokens": 1 + index * 7 % 90_000,
            "stages_s": {"first_output_wait": ttft, "generation": ttft}, "load_class": load,
        });
        log += &line.to_string();
        log.push('\n');
    }
    let log = Scratch::with("long", log.as_bytes());
    let html = report(&log.0, ReportFormat::Html);
    page::check(&html);
    assert!(html.len() < 1 << 20, "{} bytes", html.len());
}

#[test]
fn the_program_reads_files_and_standard_input_packed_or_not() {
    let plain = fs::read(KEPT).unwrap();
    let lines = plain.lines().count();
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(&plain).unwrap();
    let packed = Scratch::with("packed.gz", &packer.finish().unwrap());
    let says = |output: &Output| -> Value {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let both = says(&program(&["--format", "json", KEPT, packed.0.to_str().unwrap()], b""));
    assert_eq!(both["scope"]["requests"], 2 * lines);
    let piped = says(&program(&["--format", "json", "-"], &plain));
    assert_eq!(piped["scope"]["requests"], lines);
    let one = says(&program(&["--format", "json", "--upstream", "gpu", "--model", "large-70b", "-"], &plain));
    assert_eq!(one["pairs"].as_array().unwrap().len(), 1);
    let scope = &one["scope"];
    assert_eq!(scope["requests"].as_u64().unwrap() + scope["filtered"].as_u64().unwrap(), lines as u64);
}

#[test]
fn what_goes_wrong_is_said() {
    let fails = |arguments: &[&str], why: &str| {
        let output = program(arguments, b"");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
    };
    fails(&["no-such-file.jsonl"], "can't read no-such-file.jsonl");
    fails(&["."], "it is a directory");
    fails(&["--since", "yesterday", KEPT], "--since \"yesterday\": write it in UTC, like 2026-01-31T12:00:00Z");
    let log = Scratch::with("log", b"{\"outcome\":\"complete\"}\n");
    let path = log.0.to_str().unwrap();
    fails(&["--output", path, path], "is one of the logs");
    assert!(fs::read(&log.0).unwrap().starts_with(b"{"), "it is still there");

    let empty = String::from_utf8(program(&["-"], b"").stdout).unwrap();
    assert!(empty.contains("no requests: the log is empty"), "{empty}");
    let torn = program(&["-"], b"{\"outcome\":\"complete\",\"wall_s\":1.0}\nnonsense\n{\"outcome\":\"comp");
    let torn_text = String::from_utf8(torn.stdout).unwrap();
    assert!(torn.status.success() && torn_text.contains("2 of 3 lines are no records"), "{torn_text}");
    assert!(torn_text.contains("standard input line 2: ") || torn_text.contains("- line 2: "), "{torn_text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_log_holds_the_report_is_whole(lines in prop::collection::vec(line(), 0..40), width in 20_u16..200) {
        let log = Scratch::with("any", lines.join("\n").as_bytes());
        let text = make(&arguments(&log.0, ReportFormat::Text), Some(width)).unwrap();
        prop_assert!(!text.chars().any(|char| char.is_control() && char != '\n'));
        page::check(&report(&log.0, ReportFormat::Html));

        let json: Value = serde_json::from_str(&report(&log.0, ReportFormat::Json)).unwrap();
        let scope = &json["scope"];
        let n = |value: &Value| value.as_u64().unwrap();
        let parts = ["blank", "unreadable", "filtered", "tunnels", "requests"].map(|part| n(&scope[part]));
        prop_assert_eq!(n(&scope["lines"]), parts.iter().sum::<u64>());
        let sum = |list: &Value, key: &str| list.as_array().unwrap().iter().map(|item| n(&item[key])).sum::<u64>();
        prop_assert_eq!(sum(&json["pairs"], "requests"), n(&scope["requests"]));
        prop_assert_eq!(sum(&json["by_input"], "requests"), n(&scope["requests"]));
        for pair in json["pairs"].as_array().unwrap() {
            let outcomes: u64 = pair["outcomes"].as_object().unwrap().values().map(n).sum();
            prop_assert_eq!(outcomes, n(&pair["requests"]));
            for deadline in pair["deadlines"].as_array().unwrap() {
                prop_assert_eq!(n(&deadline["met"]) + n(&deadline["missed"]) + n(&deadline["left"]), n(&pair["streams"]));
            }
            for figure in ["ttft_s", "client_ttft_s", "output_tokens_per_second", "max_gap_s"] {
                let spread = &pair[figure];
                prop_assert!(n(&spread["n"]) <= n(&pair["requests"]));
                prop_assert_eq!(n(&spread["n"]) > 0, spread.get("p50").is_some());
                let quantiles = ["min", "p1", "p10", "p50", "p90", "p99", "max"];
                let rising: Vec<_> = quantiles.iter().filter_map(|quantile| spread[quantile].as_f64()).collect();
                prop_assert!(rising.is_sorted(), "{:?}", rising);
            }
        }
    }
}

/// Keys whose values are numbers.
const NUMBERS: [&str; 16] = [
    "wall_s",
    "ttft_s",
    "answer_ttft_s",
    "client_ttft_s",
    "duration_s",
    "client_duration_s",
    "tpot_s",
    "output_tokens_per_second",
    "max_gap_s",
    "overhead_s.request",
    "overhead_s.event_mean",
    "stages_s.first_output_wait",
    "stages_s.generation",
    "server_reported_s.ttft",
    "server_reported_s.queue",
    "connection.upstream_rtt_s",
];

/// A line of a log: mostly records, of few names and of any numbers.
fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        4 => "[ab]",
        1 => "\\PC{0,60}",
        1 => Just("</title><script src=//x></script>\u{1b}[31m".to_owned()),
    ];
    let number = prop_oneof![4 => 0.0..10.0_f64, 1 => Just(0.0), 1 => Just(1e300), 1 => Just(-1.0), 1 => Just(5e-324)];
    let outcome = prop_oneof![3 => Just("complete".to_owned()), 1 => Just("client_gone".to_owned()), 1 => Just("rate_limited".to_owned()), 1 => name.clone()];
    let time = prop_oneof![
        3 => (0..28_u32, 0..24_u32).prop_map(|(day, hour)| format!("2026-01-{:02}T{hour:02}:00:00Z", day + 1)),
        1 => Just("9999-12-31T23:59:59Z".to_owned()),
        1 => Just("1970-01-01T00:00:00Z".to_owned()),
        1 => name.clone(),
    ];
    let endpoint = prop_oneof![6 => Just("chat"), 1 => Just("tunnel"), 1 => Just("models")];
    let numbers = prop::collection::vec(prop::option::of(number), 16);
    let tokens = prop::collection::vec(prop::option::of(prop_oneof![Just(0), 1..100_000_u64, Just(u64::MAX)]), 4);
    let names = prop::collection::vec(prop::option::of(name), 6);
    let record = (time, endpoint, outcome, any::<bool>(), numbers, tokens, names).prop_map(
        |(time, endpoint, outcome, stream, numbers, tokens, names)| {
            let mut record = Map::new();
            for (key, value) in [
                ("time", json!(time)),
                ("endpoint", json!(endpoint)),
                ("outcome", json!(outcome)),
                ("stream", json!(stream)),
            ] {
                record.insert(key.to_owned(), value);
            }
            let mut put = |key: &str, value: Option<Value>| {
                if let Some(value) = value {
                    let (outer, inner) = key.split_once('.').unwrap_or((key, ""));
                    if inner.is_empty() {
                        record.insert(outer.to_owned(), value);
                    } else {
                        record.entry(outer).or_insert_with(|| json!({}))[inner] = value;
                    }
                }
            };
            NUMBERS.iter().zip(numbers).for_each(|(key, number)| put(key, number.map(|number| json!(number))));
            let counts = ["input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"];
            counts.iter().zip(tokens).for_each(|(key, count)| put(key, count.map(|count| json!(count))));
            let texts = ["upstream", "model", "session", "workload", "load_class", "stamp.client"];
            texts.iter().zip(names).for_each(|(key, text)| put(key, text.map(|text| json!(text))));
            Value::Object(record).to_string()
        },
    );
    prop_oneof![12 => record, 1 => "\\PC{0,40}", 1 => Just(String::new())]
}

fn arguments(log: &Path, format: ReportFormat) -> ReportArgs {
    let files = vec![log.to_owned()];
    ReportArgs { files, format, output: None, upstream: None, model: None, since: None, until: None }
}

fn report(log: &Path, format: ReportFormat) -> String {
    make(&arguments(log, format), None).unwrap()
}

fn program(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_streamgauge"))
        .arg("report")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who fails before reading does not want it.
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    child.wait_with_output().unwrap()
}

/// A file of this test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        Self(std::env::temp_dir().join(format!("streamgauge-report-{}-{thread}-{name}", std::process::id())))
    }

    fn with(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::new(name);
        fs::write(&scratch.0, bytes).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
