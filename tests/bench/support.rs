//! The program, started and read.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use streamgauge::figures::Record;

/// The program, with no setting from outside.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// `bench` of this URL with these flags, not started yet.
pub(crate) fn bench(url: &str, flags: &str) -> Command {
    let mut command = program(&["bench", "--url", url, "--model", "sim-1"]);
    command.args(flags.split_whitespace());
    command
}

/// What a run with `--json` printed.
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", texts(output)))
}

/// Both outputs as text.
pub(crate) fn texts(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A running program; killed if the test ends before it.
pub(crate) struct Started {
    child: Option<Child>,
    /// What it said of its address.
    pub(crate) address: SocketAddr,
}

impl Started {
    /// A simulated provider with these flags.
    pub(crate) fn sim(flags: &str) -> Self {
        let mut command = program(&["sim", "--listen", "127.0.0.1:0"]);
        let mut child = command.args(flags.split_whitespace()).stdout(Stdio::piped()).spawn().unwrap();
        let address = after(BufReader::new(child.stdout.take().unwrap()), "simulated provider at http://");
        Self { child: Some(child), address: address.parse().unwrap() }
    }

    /// A gauge with these flags; its address is the first that clients connect to by this scheme.
    pub(crate) fn gauge(flags: &str, scheme: &str) -> Self {
        let mut command = program(&["run", "--admin", "off"]);
        let mut child = command.args(flags.split_whitespace()).stderr(Stdio::piped()).spawn().unwrap();
        let words = format!("clients connect to {scheme}://");
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let address = after(&mut said, &words);
        // What it says later must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { child: Some(child), address: address.parse().unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
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

fn after(source: impl BufRead, words: &str) -> String {
    let line = source.lines().map(Result::unwrap).find(|line| line.contains(words)).expect("it says so");
    line.split_once(words).unwrap().1.trim().to_owned()
}

/// A file for records, gone with the value.
pub(crate) struct Records(PathBuf);

impl Records {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bench-{}-{}.jsonl", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Those that are there by now.
    pub(crate) fn read(&self) -> Vec<Record> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let whole = text.lines().take(text.matches('\n').count());
        whole.map(|line| Record::parse(line).unwrap()).collect()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
