//! The program itself, as a user starts it: `demo`, `sim`, and the proxy before a provider it knows nothing of.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use http::{HeaderName, HeaderValue};
use rustix::process::{Pid, Signal, kill_process};
use streamgauge::{
    clock::Clock,
    sim::{
        Protocol, Truth,
        client::{Ask, Client, Ending, Target},
    },
};

#[test]
fn the_demo_ends_by_itself_with_numbers_that_agree() {
    let output = program(&["demo", "--for", "3"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("curl -N http://127.0.0.1:"), "{text}");

    let exchanges: u64 = text
        .lines()
        .find_map(|line| line.split_once(" exchanges: /metrics and the raw records agree"))
        .and_then(|(count, _)| count.parse().ok())
        .unwrap_or_else(|| panic!("no verdict in {text}"));
    let rows: Vec<Vec<&str>> = text
        .split("The end")
        .nth(1)
        .unwrap()
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let table = rows.iter().filter(|row| row.len() == 10 && row[2].parse::<u64>().is_ok());
    let requests: u64 = table.clone().map(|row| row[2].parse::<u64>().unwrap()).sum();
    assert!(exchanges > 0 && requests == exchanges, "{text}");
    for model in ["fast-8b", "think-8b", "large-70b", "shaky-1"] {
        let row = table.clone().find(|row| row[1] == model).unwrap_or_else(|| panic!("no {model} in {text}"));
        assert!(row[3] == "0" && row[9].contains(" ok"), "all answers were read: {row:?}");
        for ttft in &row[4..6] {
            assert!(ttft.ends_with(" ms") || ttft.ends_with(" s"), "{row:?}");
        }
    }
    let agreed = rows.iter().filter(|row| row.last() == Some(&"yes")).count();
    assert_eq!(agreed, 4 * 4, "four numbers of four models: {text}");
}

#[test]
fn the_simulation_ends_on_sigterm_with_its_answers_given_and_its_log_complete() {
    let log = scratch("truth");
    let mut sim = Started::new(&["sim", "--listen", "127.0.0.1:0", "--ttft", "5ms", "--log", log.to_str().unwrap()]);
    let address = sim.sim_address();

    let asking = std::thread::spawn(move || {
        runtime().block_on(async {
            let mut client = Client::new(Clock::start());
            let quick = client.ask(&ask(address, true)).await;
            // The signal comes while this one runs.
            let slow = ask(address, true).with(HeaderName::from_static("x-sim-tps"), HeaderValue::from_static("30"));
            let mut pid = Some(sim.pid());
            let on_piece = |_: &_| {
                if let Some(pid) = pid.take() {
                    terminate(pid);
                }
            };
            let slow = client.ask_with(&slow, on_piece).await;
            (sim, [quick, slow])
        })
    });
    let (sim, answers) = asking.join().unwrap();
    for answer in answers {
        assert_eq!((answer.ending, answer.output_events), (Ending::Complete, 20));
    }
    assert!(sim.end().status.success());
    let truth: Vec<Truth> =
        fs::read_to_string(&log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(truth.iter().map(|truth| truth.output_events.len()).collect::<Vec<_>>(), [20, 20]);
    assert!(truth.iter().all(|truth| truth.left_ns.iter().all(|left| *left > 0)), "{truth:?}");
    fs::remove_file(log).unwrap();
}

#[test]
fn before_any_provider_bytes_are_the_same_and_each_exchange_is_a_line() {
    // Two of the same seed, so that what one says directly the other says through the gauge.
    let sim = || Started::new(&["sim", "--listen", "127.0.0.1:0", "--ttft", "5ms", "--tokens-per-second", "500"]);
    let (mut near, mut far) = (sim(), sim());
    let (near_address, far_address) = (near.sim_address(), far.sim_address());
    let upstream = format!("http://{far_address}");
    let mut gauge = Started::new(&[
        "--upstream",
        &upstream,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--access-log",
        "-",
    ]);
    let address: SocketAddr = gauge.said("clients connect to http://").parse().unwrap();
    let admin: SocketAddr = gauge.said("metrics at http://").trim_end_matches("/metrics").parse().unwrap();

    assert_eq!(get(address, "/v1/models").1, get(near_address, "/v1/models").1);
    for stream in [true, false] {
        let [through, direct] = [address, near_address].map(|address| {
            let mut body = Vec::new();
            let answer = runtime().block_on(
                Client::new(Clock::start()).ask_with(&ask(address, stream), |piece| body.extend_from_slice(piece)),
            );
            assert_eq!((answer.status, answer.ending), (Some(200), Ending::Complete));
            body
        });
        assert!(!direct.is_empty() && through == direct, "the same bytes");
    }

    let (status, exposition) = get(admin, "/metrics");
    assert_eq!(status, 200);
    let exposition = String::from_utf8(exposition).unwrap();
    let count = exposition.lines().find(|line| line.starts_with("streamgauge_ttft_seconds_count"));
    assert_eq!(count, Some("streamgauge_ttft_seconds_count{upstream=\"127.0.0.1\",model=\"sim-1\"} 1"));

    terminate(gauge.pid());
    let output = gauge.end();
    assert!(output.status.success());
    let records: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<_> = records
        .iter()
        .map(|record| [&record["endpoint"], &record["stream"], &record["outcome"], &record["output_tokens"]])
        .map(|fields| fields.map(ToString::to_string).join(" "))
        .collect();
    assert_eq!(
        said,
        [
            "\"models\" false \"complete\" null",
            "\"messages\" true \"complete\" 20",
            "\"messages\" false \"complete\" 20"
        ]
    );
    assert!(records[1]["ttft_s"].as_f64().unwrap() >= 0.005, "{}", records[1]);
}

/// A request for twenty tokens, in the dialect whose replies hold no time of day.
fn ask(address: SocketAddr, stream: bool) -> Ask {
    let target = Target { address, prefix: String::new(), protocol: Protocol::Messages, model: "sim-1".to_owned() };
    Ask { stream, ..Ask::streaming(target, 50, 20) }
}

/// Status and body of a plain answer.
fn get(address: SocketAddr, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer.split_off(end + 4))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// The program, with no setting from outside.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

fn terminate(pid: Pid) {
    kill_process(pid, Signal::TERM).unwrap();
}

/// A running program; killed if the test fails before its end.
struct Started {
    child: Option<Child>,
    out: BufReader<std::process::ChildStdout>,
    err: BufReader<std::process::ChildStderr>,
}

impl Started {
    fn new(arguments: &[&str]) -> Self {
        let mut child = program(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (BufReader::new(child.stdout.take().unwrap()), BufReader::new(child.stderr.take().unwrap()));
        Self { child: Some(child), out, err }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }

    /// What follows these words in the next line of its log that has them.
    fn said(&mut self, words: &str) -> String {
        after(&mut self.err, words)
    }

    fn sim_address(&mut self) -> SocketAddr {
        after(&mut self.out, "simulated provider at http://").parse().unwrap()
    }

    /// Waits for its end, and reads the rest of what it wrote.
    fn end(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.out.read_to_end(&mut stdout).unwrap();
        self.err.read_to_end(&mut stderr).unwrap();
        let status = self.child.take().unwrap().wait().unwrap();
        Output { status, stdout, stderr }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn after(source: &mut impl BufRead, words: &str) -> String {
    let line = source.lines().map(Result::unwrap).find(|line| line.contains(words)).expect("it says so");
    line.split_once(words).unwrap().1.trim().to_owned()
}
