//! What is printed is what the simulated provider's script says, and what the records say.

use std::{collections::HashSet, io::Write, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use streamgauge::figures::{Record, Sample};

use crate::{
    provider::{Provider, chat},
    support::{Records, Started, bench, json, texts},
};

/// One number of a record.
type Read = fn(&Record) -> Option<f64>;

#[test]
fn figures_are_those_of_the_script_and_of_the_records() {
    let sim = Started::sim("--ttft 60ms --tokens-per-second 250");
    let records = Records::new();
    let flags = "--input-tokens 1000 --output-tokens 50 --concurrency 1,3 --runs 10 --json";
    let output = bench(&sim.url(), flags).args(["--records", records.path()]).output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    let result = json(&output);
    let lines = records.read();
    assert_eq!(lines.len(), 20, "warm-ups are not measured");
    assert_eq!(lines.iter().map(|record| &record.trace_id).collect::<HashSet<_>>().len(), 20);
    for (cell, (load, lines)) in [1, 3].into_iter().zip(lines.chunks(10)).enumerate() {
        let cell = &result["cells"][cell];
        assert_eq!((&cell["workload"], &cell["load"]["concurrency"]), (&"1k_in_50_out".into(), &load.into()));
        assert_eq!(
            (&cell["n"], &cell["complete"], &cell["outcomes"]["complete"]),
            (&10.into(), &10.into(), &10.into())
        );
        let numbers: [(&str, Read); 4] = [
            ("ttft_s", |record| record.ttft_s),
            ("client_ttft_s", |record| record.client_ttft_s),
            ("duration_s", |record| record.duration_s),
            ("output_tokens_per_second", |record| record.output_tokens_per_second),
        ];
        for (key, of) in numbers {
            let sample: Sample = lines.iter().filter_map(of).collect();
            let figure = &cell["figures"][key];
            let n = figure["n"].as_u64().unwrap();
            assert_eq!((n, figure["p50"].as_f64()), (sample.count() as u64, sample.quantile(0.5)), "{key}");
            // A machine that stood still for a fifth of a second has seen a burst, which has no speed.
            assert!(n == 10 || (n > 0 && key == "output_tokens_per_second"), "{key}: {n}");
            assert_eq!(figure["max"].as_f64(), sample.quantile(1.0), "{key}");
        }
        let figure = |key: &str, of: &str| cell["figures"][key][of].as_f64().unwrap();
        // No token leaves before its time, on whatever machine; 49 of them take 196 ms.
        assert!(figure("ttft_s", "min") >= 0.060 && figure("ttft_s", "p50") < 0.6, "{cell:#}");
        assert!(figure("client_ttft_s", "p50") > figure("ttft_s", "p50"));
        assert!(figure("duration_s", "min") >= 0.256, "{cell:#}");
        assert!((100.0..270.0).contains(&figure("output_tokens_per_second", "p50")), "{cell:#}");
        assert_eq!((figure("output_tokens", "min"), figure("output_tokens", "max")), (50.0, 50.0));
        // The first guess is a quarter off.
        assert!((900.0..1_100.0).contains(&figure("input_tokens", "p50")), "{cell:#}");
        let span = cell["span_s"].as_f64().unwrap();
        assert!((cell["requests_per_second"].as_f64().unwrap() - 10.0 / span).abs() < 1e-9);
        assert!((cell["total_tokens_per_second"].as_f64().unwrap() - 500.0 / span).abs() < 1e-6);
    }
    // Three at a time take a third of the time, unless the machine stands still.
    let span = |cell: usize| result["cells"][cell]["span_s"].as_f64().unwrap();
    assert!(span(1) < span(0), "{result:#}");
}

#[test]
fn the_stages_of_each_record_add_up_and_no_client_stalls() {
    let sim = Started::sim("--ttft 10ms --tokens-per-second 1000");
    let records = Records::new();
    let output =
        bench(&sim.url(), "--output-tokens 20 --runs 8 -q").args(["--records", records.path()]).output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    for record in records.read() {
        let sum: f64 = record.stages_s.values().sum();
        assert!((sum - record.wall_s).abs() < 1e-9, "{record:?}");
        assert_eq!((record.stages_s["client_stall"], record.stages_s["receive"]), (0.0, 0.0));
        assert_eq!(record.workload.as_deref(), Some("1k_in_20_out"));
        assert_eq!(record.client_duration_s, Some(record.wall_s));
        assert_eq!(record.stamp["client"], "user", "nobody's socket is on that side");
        // Its own delay is not in the provider's number.
        assert!(record.client_ttft_s.unwrap() >= record.ttft_s.unwrap() + record.overhead_s["first_output"]);
    }
}

#[test]
fn a_table_says_n_and_what_is_missing() {
    let sim = Started::sim("--ttft 10ms --tokens-per-second 1000 --no-usage");
    let output = bench(&sim.url(), "--output-tokens 20 --runs 4 --concurrency 1,2").output().unwrap();
    let text = texts(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("\n1k_in_20_out · one at a time\n") && text.contains("\n1k_in_20_out · 2 at a time\n"),
        "{text}"
    );
    let row = text.lines().find(|line| line.starts_with(" TTFT ")).unwrap();
    assert!(row.split_whitespace().nth(1) == Some("4"), "{row}");
    let row = text.lines().find(|line| line.starts_with(" tokens/s ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["tokens/s", "0", "–", "–", "–", "–", "–"]);
    assert!(text.contains("4 of 4 complete answers came without token counts: no tokens/s of them"), "{text}");
    assert!(text.contains("8 requests, behind 1 to warm up: some 9000 input and up to 176 output tokens"), "{text}");
    let output = bench(&sim.url(), "--output-tokens 20 --runs 4 --json").output().unwrap();
    let result = json(&output);
    assert_eq!(result["cells"][0]["without_usage"], 4);
    assert_eq!(result["cells"][0].get("total_tokens_per_second"), None);
    assert_eq!(result["cells"][0]["figures"]["output_tokens"], serde_json::json!({"n": 0}));
}

#[test]
fn two_providers_are_asked_in_turns() {
    let (near, far) = (Started::sim("--ttft 5ms"), Started::sim("--ttft 5ms"));
    let records = Records::new();
    let output = bench(&near.url(), "--output-tokens 2 --runs 6 --json")
        .args(["--compare", &far.url(), "--records", records.path()])
        .output()
        .unwrap();
    let result = json(&output);
    let names: Vec<String> = records.read().into_iter().map(|record| record.upstream.unwrap()).collect();
    let (a, b) = (near.address.to_string(), far.address.to_string());
    assert_eq!(names, [&a, &b, &b, &a, &a, &b, &b, &a, &a, &b, &b, &a].map(String::clone));
    for (cell, name) in [a, b].into_iter().enumerate() {
        assert_eq!((&result["cells"][cell]["target"], &result["cells"][cell]["n"]), (&name.into(), &6.into()));
    }
}

#[test]
fn by_tls_and_http2_through_a_gauge() {
    let sim = Started::sim("--ttft 20ms --tokens-per-second 500");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = |name: &str, text: String| {
        let path = folder.join(format!("bench-{}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (cert, key) = (file("cert.pem", made.cert.pem()), file("key.pem", made.signing_key.serialize_pem()));
    let flags = format!("--upstream {} --tls-listen 127.0.0.1:0 --tls-cert {cert} --tls-key {key}", sim.url());
    let gauge = Started::gauge(&flags, "https");
    let url = format!("https://localhost:{}", gauge.address.port());
    let records = Records::new();
    let output = bench(&url, "--output-tokens 20 --runs 4 --concurrency 2 --json")
        .args(["--ca-file", &cert, "--records", records.path()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    let records = records.read();
    assert_eq!(records.len(), 4);
    for record in &records {
        assert!(record.flags.iter().any(|flag| flag == "overhead_lower_bound"), "it is HTTP/2: {record:?}");
        assert!(record.ttft_s.unwrap() >= 0.020 && record.output_tokens == Some(20), "{record:?}");
    }
    // Nobody vouches for it unless told to.
    let output = bench(&url, "--runs 1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).contains("no connection: tls: "), "{}", texts(&output));
    let _ = (std::fs::remove_file(cert), std::fs::remove_file(key));
}

#[test]
fn ctrl_c_lets_answers_end_and_prints_what_there_is() {
    let sim = Started::sim("--ttft 30ms");
    let records = Records::new();
    let mut command = bench(&sim.url(), "--output-tokens 3 --runs 100000 --concurrency 2");
    let child = command.args(["--records", records.path()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    while records.read().len() < 4 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = texts(&output);
    assert!(output.status.success() && text.contains("Stopped early"), "{text}");
    assert!(text.contains("No more requests: those under way run to their end"), "it says what the signal did: {text}");
    let records = records.read();
    assert!(records.iter().all(|record| record.outcome == "complete"), "what was under way has ended");
    assert!(text.contains(&format!("{0} of {0} complete", records.len())), "{text}");
}

#[test]
fn a_duration_ends_it_whatever_the_runs() {
    let sim = Started::sim("--ttft 5ms");
    let output =
        bench(&sim.url(), "--output-tokens 2 --duration 1s --rate 30 --arrivals even --json -q").output().unwrap();
    let result = json(&output);
    assert_eq!(result["cells"][0]["n"], 30, "as many as are due before it is over");
    assert_eq!(result["cells"][0]["load"], serde_json::json!({"rate": 30.0, "arrivals": "even"}));
}

#[test]
fn what_is_announced_is_what_is_sent() {
    for flags in [
        "--rate 60 --duration 1s --seed 5",
        "--rate 60 --duration 1s --runs 9",
        "--runs 3 --concurrency 1,2 --warm-up 2",
    ] {
        let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
        let text = texts(&bench(&provider.url(), flags).output().unwrap());
        let number = |before: &str| -> usize {
            let line =
                text.lines().find(|line| line.contains(" to warm up: some ")).unwrap_or_else(|| panic!("{text}"));
            let mut words = line.split(before).next().unwrap().rsplit(' ');
            words.next().unwrap().parse().unwrap()
        };
        let announced = number(" requests,") + number(" to warm up");
        assert_eq!(provider.asked().len(), announced, "{flags}: {text}");
        assert!(text.contains("warming up, to size the prompts: not measured, requests: "), "{text}");
    }
    // How many fit, nobody knows before: what one costs is said, and no sum that would frighten.
    let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    let text = texts(&bench(&provider.url(), "--duration 1s --warm-up 0").output().unwrap());
    let expected =
        "as many requests as fit into 1s in each, 100000 at most: of some 1000 input and up to 200 output tokens each";
    assert!(text.contains(expected) && !text.contains("warming up"), "{text}");
}

#[test]
fn an_open_loop_says_how_late_it_was_itself_and_whose_prompts_have_no_size() {
    let sim = Started::sim("--ttft 20ms");
    let result = json(&bench(&sim.url(), "--output-tokens 2 --runs 20 --rate 100 --json").output().unwrap());
    let cell = &result["cells"][0];
    let lag = &cell["schedule_lag_s"];
    assert_eq!((&lag["n"], &cell["sized"], &cell["without_output"]), (&20.into(), &true.into(), &0.into()), "{cell:#}");
    // A timer fires behind its time, and what it is late by is part of what counts from due.
    let (late, share) = (lag["mean"].as_f64().unwrap(), cell["schedule_lag_share"].as_f64().unwrap());
    let waited = cell["figures"]["client_ttft_s"]["mean"].as_f64().unwrap();
    assert!(late > 0.0 && (share - late / waited).abs() < 1e-9, "{cell:#}");

    let text = texts(&bench(&sim.url(), "--output-tokens 2 --runs 2 --rate 100 --warm-up 0").output().unwrap());
    assert!(text.contains("begun late by this program itself: p50 "), "{text}");
    assert!(text.contains("prompts not made to size: no warm-up came back with"), "{text}");
    let uncounted = Started::sim("--ttft 1ms --no-usage");
    let result = json(&bench(&uncounted.url(), "--output-tokens 2 --runs 2 --json").output().unwrap());
    assert_eq!((&result["cells"][0]["sized"], result["cells"][0].get("schedule_lag_s")), (&false.into(), None));
}
