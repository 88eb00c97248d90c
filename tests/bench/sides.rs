//! Two targets beside each other, the three clocks of one request, and a plan that repeats: with a real gauge in between.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use streamgauge::{
    app::{App, Stop, runtime},
    clock::Clock,
    config::{Config, Overrides},
    figures::{Record, Sample},
    observation::Observation,
    record::Recorder,
};
use tokio::runtime::Runtime;

use crate::{
    provider::{Provider, chat},
    support::{Started, bench, json, texts},
};

/// A gauge of the test's own process in front of one provider; what it observed is kept, so that the test knows without
/// `/exchanges`.
struct Gauge {
    address: SocketAddr,
    admin: SocketAddr,
    observed: Arc<Mutex<Vec<Observation>>>,
    /// Its tasks end with it.
    _runtime: Runtime,
}

impl Gauge {
    fn before(upstream: &str, settings: &str) -> Self {
        let toml = format!("listen = \"127.0.0.1:0\"\n{settings}");
        let overrides = Overrides { upstreams: vec![format!("up={upstream}")], ..Overrides::default() };
        let config = Config::from_toml(&toml, std::path::Path::new("test.toml"), &overrides).unwrap();
        let observed = Arc::new(Mutex::new(Vec::new()));
        let (clock, kept) = (Clock::start(), Arc::clone(&observed));
        let recorder = Recorder::new(&config, clock).unwrap();
        let recorder = recorder.with_listener(Box::new(move |seen| kept.lock().unwrap().push(seen.clone())));
        let runtime = runtime(Some(2)).unwrap();
        let inside = runtime.enter();
        let app = App::bind_with(&config, recorder, clock).unwrap();
        let (address, admin) = (app.addresses()[0], app.admin_address().unwrap());
        runtime.spawn(app.run(Stop::default()));
        drop(inside);
        Self { address, admin, observed, _runtime: runtime }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bench through it, joined with what it saw.
    fn via(&self, flags: &str) -> Command {
        let mut command = bench(&self.url(), flags);
        command.args(["--via", &self.admin.to_string()]);
        command
    }
}

const ADMIN: &str = "[admin]\naddress = \"127.0.0.1:0\"\n";

/// The row of this name in a section of the first element of `via`.
fn row<'a>(result: &'a Value, section: &str, name: &str) -> &'a Value {
    let rows = result["via"][0][section].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {rows:#?}"))
}

#[test]
fn each_request_is_joined_with_what_the_gauge_saw_of_it() {
    let sim = Started::sim("--ttft 40ms --tokens-per-second 500 --jitter 0.3");
    let gauge = Gauge::before(&sim.url(), ADMIN);
    let output = gauge.via("--output-tokens 20 --runs 120 --concurrency 4 --json -q").output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    let result = json(&output);
    let via = &result["via"][0];
    assert_eq!((&via["requests"], &via["joined"]), (&120.into(), &120.into()), "{via:#}");
    assert_eq!(via["not_joined"], Value::Array(Vec::new()));

    // The gauge's column is what its own listener was told, the warm-up left out.
    let observed = gauge.observed.lock().unwrap().clone();
    let measured: Vec<&Observation> = observed.iter().filter(|seen| seen.facts.usage.output == Some(20)).collect();
    assert_eq!(measured.len(), 120);
    let ttft: Sample = measured.iter().filter_map(|seen| Some(seen.timeline.ttft()?.seconds())).collect();
    let clocks = row(&result, "clocks", "ttft");
    assert_eq!(clocks["gauge_s"]["p50"].as_f64(), ttft.quantile(0.5));
    assert_eq!(clocks["gauge_s"]["p99"].as_f64(), ttft.quantile(0.99));
    // The client's is that of bench's own table.
    assert_eq!(clocks["client_s"]["p50"], result["cells"][0]["figures"]["ttft_s"]["p50"]);
    assert_eq!((&clocks["provider_s"]["n"], clocks["provider_s"].get("p50")), (&0.into(), None), "it says nothing");

    // Whoever is nearer sees it sooner, and the gauge's own parts are smaller than the whole.
    let time = |name: &str| row(&result, "between", name)["time_s"]["p50"].as_f64().unwrap();
    println!(
        "client TTFT {:.3} ms, gauge {:.3} ms; between {:.0} µs: way {:.0}, request {:.0}, first output {:.0} µs",
        clocks["client_s"]["p50"].as_f64().unwrap() * 1e3,
        clocks["gauge_s"]["p50"].as_f64().unwrap() * 1e3,
        time("client_less_gauge") * 1e6,
        time("way_to_gauge") * 1e6,
        time("gauge_request") * 1e6,
        time("gauge_first_output") * 1e6,
    );
    assert!(time("client_less_gauge") > 0.0 && time("client_less_gauge_total") > 0.0);
    assert!(time("gauge_request") > 0.0 && time("gauge_request") < time("client_less_gauge"));
    assert_eq!(row(&result, "between", "outside_server")["time_s"]["n"], 0);
    let waited = row(&result, "stages", "first_output_wait");
    assert!(waited["client_s"]["p50"].as_f64() > waited["gauge_s"]["p50"].as_f64());

    // In words.
    let output = gauge.via("--output-tokens 20 --runs 8 -q").output().unwrap();
    let text = texts(&output);
    println!("{text}");
    assert!(text.contains("8 of 8 requests joined") && text.contains("– The provider reports no times of its own."));
    assert!(text.contains("TTFT: request out → first output") && text.contains("gauge, first output: in → out"));
}

#[test]
fn what_the_provider_says_has_its_own_column() {
    let times =
        r#""usage":{"queue_time":0.03,"prompt_time":0.15,"completion_time":0.5,"total_time":0.65,"prompt_tokens""#;
    let answer = chat(1000, 20).replace("\"usage\":{\"prompt_tokens\"", times);
    let provider = Provider::new(move |_| (200, "text/event-stream", answer.clone()));
    let gauge = Gauge::before(&provider.url(), ADMIN);
    let output = gauge.via("--runs 10 --json -q").output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    let result = json(&output);
    for (name, seconds) in [("queue", 0.03), ("prefill", 0.15), ("ttft", 0.18), ("decode", 0.5)] {
        let said = &row(&result, "clocks", name)["provider_s"];
        assert_eq!((said["n"].as_u64(), said["p50"].as_f64()), (Some(10), Some(seconds)), "{name}");
    }
    // It answers at once, whatever it says: two clocks that contradict each other give no negative time.
    assert_eq!(row(&result, "between", "outside_server")["time_s"]["p50"], 0.0);
}

#[test]
fn a_short_memory_is_said_to_have_been_overrun() {
    let sim = Started::sim("--ttft 1ms --tokens-per-second 100000");
    let gauge = Gauge::before(&sim.url(), &format!("{ADMIN}recent = 2\n"));
    let output = gauge.via("--output-tokens 2 --runs 300 --concurrency 8 --json -q").output().unwrap();
    let result = json(&output);
    let via = &result["via"][0];
    let joined = via["joined"].as_u64().unwrap();
    assert!((1..300).contains(&joined), "{via:#}");
    assert_eq!(via["not_joined"][0]["n"].as_u64(), Some(300 - joined));
    assert!(via["not_joined"][0]["why"].as_str().unwrap().contains("raise [admin] recent"), "{via:#}");
}

#[test]
fn an_admin_address_that_is_none_is_said_before_anything_is_asked() {
    let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // A provider is no gauge either.
    let sim = Started::sim("--ttft 1ms");
    for (admin, why) in [(closed, "Connection refused"), (sim.address, "answered \"HTTP/1.0 404 Not Found\"")] {
        let output = bench(&provider.url(), "--runs 2").args(["--via", &admin.to_string()]).output().unwrap();
        let text = texts(&output);
        assert!(!output.status.success());
        assert!(text.contains(&format!("--via {admin}: ")) && text.contains(why), "{text}");
        assert!(text.contains("wanted is the admin address of a running streamgauge"), "{text}");
    }
    assert_eq!(provider.asked().len(), 0);
}

#[test]
fn two_targets_are_asked_in_turns_and_only_the_difference_between_them_shows() {
    let fast = Started::sim("--ttft 20ms --tokens-per-second 2000");
    let slow = Started::sim("--ttft 60ms --tokens-per-second 2000");
    let flags = format!("--output-tokens 10 --runs 30 -q --compare {}", fast.url());
    let output = bench(&slow.url(), &format!("{flags} --json")).output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    let result = json(&output);
    let cell = &result["compare"][0];
    assert_eq!(
        (&cell["a"]["requests"], &cell["b"]["requests"], &cell["a"]["errors"]),
        (&30.into(), &30.into(), &0.into())
    );
    let ttft = cell["numbers"].as_array().unwrap().iter().find(|row| row["number"] == "ttft_s").unwrap();
    println!("{ttft:#}");
    let value = |of: &str, end: &str| ttft[of][end].as_f64().unwrap();
    // 60 ms against 20, to which a busy machine adds to both: a ratio above 1, a difference near 40 ms.
    assert!(value("ratio_interval", "low") > 1.0, "{ttft:#}");
    for of in ["difference_interval", "paired_difference_interval"] {
        assert!(value(of, "low") > 0.0 && (0.02..0.2).contains(&value(of, "estimate")), "{of}: {ttft:#}");
    }
    assert_eq!(ttft["pairs"], 30);
    let words: Vec<&str> = cell["words"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(words[0].starts_with("A's TTFT is ") && words[0].ends_with(" longer)."), "{words:?}");

    let text = texts(&bench(&slow.url(), &flags).output().unwrap());
    println!("{text}");
    assert!(text.contains(&format!("A is {} (sim-1), B is {} (sim-1).", slow.address, fast.address)), "{text}");
    assert!(
        text.contains("A: 0 of 30 failed (0 %), 0 of them with 429 (0 % of all). B: 0 of 30 failed (0 %), "),
        "{text}"
    );
}

#[test]
fn directly_beside_through_the_gauge_shows_the_gauge() {
    let sim = Started::sim("--ttft 5ms --tokens-per-second 2000");
    let gauge = Gauge::before(&sim.url(), ADMIN);
    let flags = format!("--output-tokens 10 --runs 60 -q --json --compare {}", sim.url());
    let output = gauge.via(&flags).output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    let result = json(&output);
    let ttft =
        result["compare"][0]["numbers"].as_array().unwrap().iter().find(|row| row["number"] == "ttft_s").unwrap();
    let paired = &ttft["paired_difference_interval"];
    println!("through the gauge less directly: {paired}");
    assert!(paired["estimate"].as_f64().unwrap() > 0.0, "{ttft:#}");
    // Only one of the two leads through the gauge.
    let via = result["via"].as_array().unwrap();
    assert_eq!(via.len(), 1, "{via:#?}");
    assert_eq!((&via[0]["target"], &via[0]["joined"]), (&gauge.address.to_string().into(), &60.into()));
}

/// A GET of `/metrics`, as text.
fn metrics(address: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.") && answer.contains("text/plain; version=0.0.4"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_plan_that_repeats_serves_its_medians_survives_failures_and_ends_when_told() {
    let sim = Started::sim("--ttft 20ms --tokens-per-second 2000");
    let mut command = bench(&sim.url(), "--output-tokens 5 --runs 3 --every 1s --listen 127.0.0.1:0");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_for = |words: &str| said.find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words:?}"));
    let address = wait_for("metrics at http://");
    let address = address.split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
    let value = |text: &str, start: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(start))?;
        line.rsplit_once(' ')?.1.parse().ok()
    };
    let ok = "streamgauge_bench_runs_total{result=\"ok\"}";
    // It serves before the first run is over; what was not observed is not there.
    let text = metrics(&address);
    assert!(value(&text, ok) > Some(0.0) || !text.contains("streamgauge_bench_ttft_seconds{"), "{text}");
    for _ in 0..2 {
        wait_for("the next run begins in");
    }
    let text = metrics(&address);
    assert!(value(&text, ok) >= Some(2.0), "{text}");
    let labels = format!(r#"target="{}",model="sim-1",workload="1k_in_5_out",load="1""#, sim.address);
    for window in ["last", "72h"] {
        let ttft =
            value(&text, &format!("streamgauge_bench_ttft_seconds{{{labels},window=\"{window}\",percentile=\"p50\"}}"));
        assert!(ttft >= Some(0.02) && ttft < Some(1.0), "{window}: {text}");
    }
    assert!(value(&text, &format!("streamgauge_bench_requests_total{{{labels},outcome=\"complete\"}}")) >= Some(6.0));

    // The provider goes away: runs fail, and are counted.
    drop(sim);
    wait_for("this run failed: ");
    wait_for("the next run begins in");
    let text = metrics(&address);
    assert!(value(&text, "streamgauge_bench_runs_total{result=\"failed\"}") >= Some(1.0), "{text}");
    assert!(!text.contains("window=\"last\",percentile"), "a run that failed has no numbers: {text}");

    let pid = Pid::from_child(&child);
    let drained = thread::spawn(move || said.count());
    kill_process(pid, Signal::TERM).unwrap();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drained.join().unwrap();
    assert!(printed.matches("1k_in_5_out · one at a time").count() >= 2, "{printed}");
}

#[test]
fn a_run_longer_than_the_period_leaves_some_out() {
    let sim = Started::sim("--ttft 400ms --tokens-per-second 2000");
    let mut command = bench(&sim.url(), "--output-tokens 5 --runs 4 --warm-up 0 -q --every 1s --listen 127.0.0.1:0");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let longer = said.find(|line| line.contains("the run took longer than 1s: ")).expect("it says so");
    assert!(longer.ends_with(" left out"), "{longer}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn records_of_bench_and_gauge_have_one_trace_id_each() {
    let sim = Started::sim("--ttft 5ms --tokens-per-second 2000");
    let gauge = Gauge::before(&sim.url(), ADMIN);
    let output = gauge.via("--output-tokens 5 --runs 4 --warm-up 0 --json -q").output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    // A moment later than the client has its answer.
    for _ in 0..200 {
        if gauge.observed.lock().unwrap().len() == 4 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let page = streamgauge::health::page(gauge.admin, "/exchanges?limit=10").unwrap();
    let records: Vec<Record> = serde_json::from_str(&page).unwrap();
    let mut ids: Vec<_> = records.iter().filter_map(|record| record.trace_id.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((records.len(), ids.len()), (4, 4));
}
