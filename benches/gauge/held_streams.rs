//! Memory of a stream that is open and idle: the program itself as a process, a simulated provider, and so many clients
//! over HTTP/1.1 without TLS that each hold one stream.
//!
//! ```text
//! cargo bench -- held_streams         2,000 streams
//! cargo bench -- held_streams 5000    another number
//! ```
//!
//! Prints the process's proportional set size before and while the streams are held, and the difference per stream. The
//! kernel's socket buffers are not in it.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use streamgauge::{
    app,
    clock::Clock,
    sim::{
        Profile, Protocol, Sim,
        client::{Ask, Client, Target},
    },
};

pub(crate) fn run(streams: Option<&str>) {
    let streams = streams.map_or(2_000, |streams| streams.parse().expect("a number of streams"));
    app::raise_descriptors();
    let runtime = app::runtime(None).expect("a runtime");
    runtime.block_on(measure(streams));
}

async fn measure(streams: usize) {
    let clock = Clock::start();
    let slow =
        Profile { ttft: Duration::from_millis(10), tokens_per_second: 1.0, output_tokens: 600, ..Profile::default() };
    let sim = Sim::start(SocketAddr::from(([127, 0, 0, 1], 0)), slow, None, clock).expect("a simulated provider");
    let gauge = Gauge::start(sim.address());
    let target = Target { address: gauge.address, prefix: String::new(), protocol: Protocol::Chat, model: "m".into() };
    let ask = Ask::streaming(target, 50, 600);

    // One short stream first: what is made once is not a stream's.
    let short = Ask { max_tokens: 2, ..ask.clone() };
    Client::new(clock).ask(&short).await;
    let before = gauge.memory();

    let begun = Arc::new(AtomicUsize::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..streams {
        let (ask, begun) = (ask.clone(), Arc::clone(&begun));
        clients.spawn(async move {
            let mut first = true;
            let note = |_: &_| {
                if std::mem::take(&mut first) {
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            };
            Client::new(clock).ask_with(&ask, note).await
        });
    }
    let deadline = clock.now() + Duration::from_secs(60).into();
    while begun.load(Ordering::Relaxed) < streams && clock.now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Some events each, so that every buffer a stream needs is there.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let held = gauge.memory();
    let open = begun.load(Ordering::Relaxed);
    clients.shutdown().await;
    println!(
        "{open} streams held: {before} KiB before, {held} KiB with them, {:.1} KiB per stream",
        held.saturating_sub(before) as f64 / open as f64
    );
}

struct Gauge {
    process: Child,
    address: SocketAddr,
}

impl Gauge {
    fn start(upstream: SocketAddr) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_streamgauge"))
            .args(["--listen", "127.0.0.1:0", "--admin", "off", "--upstream", &format!("sim=http://{upstream}")])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(process.stderr.take().expect("its messages")).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.rsplit_once("clients connect to http://")?.1.trim().parse().ok())
            .expect("it says where it listens");
        Self { process, address }
    }

    /// Proportional set size in KiB.
    fn memory(&self) -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process.id())).expect("Linux");
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("a size");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
