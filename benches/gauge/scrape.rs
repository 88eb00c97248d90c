//! What a scrape costs: some 20,000 series, gathered and encoded as `/metrics` does it, and a whole GET with gzip. All of it
//! runs on the admin listener's own thread: no stream waits for it.
//!
//! ```text
//! gauge scrape
//! ```

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use streamgauge::{
    admin::Admin,
    clock::{Clock, Nanos},
    config::{AdminAccess, Config, Overrides},
    dialect::{Dialect, Endpoint, RequestFacts},
    metrics::Exemplar,
    observation::{ExchangeId, Observation, Outcome},
    record::Recorder,
    timeline::Timeline,
};

use crate::median;

const UPSTREAMS: [&str; 3] = ["openai", "anthropic", "local-vllm"];
const MODELS: usize = 9;
const LEAST_SERIES: usize = 20_000;
const ROUNDS: usize = 41;

pub(crate) fn run() {
    let clock = Clock::start();
    let recorder = Arc::new(filled(clock));
    let series = recorder.encode(true, clock.now()).lines().filter(|line| !line.starts_with('#')).count();
    assert!(series >= LEAST_SERIES, "{series} series are fewer than {LEAST_SERIES}");
    println!(
        "| {series} series | bytes | ms, medians of {ROUNDS} | processor time of all threads |\n|---|---|---|---|"
    );
    for (name, openmetrics) in [("text 0.0.4", false), ("OpenMetrics", true)] {
        row(&format!("gather and encode, {name}"), clock, || recorder.encode(openmetrics, clock.now()).len());
    }
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let admin = Admin::bind(address, &AdminAccess::default(), recorder, Arc::new(AtomicBool::new(true)), clock)
        .expect("a port");
    row("GET /metrics", clock, || get(admin.address(), "identity"));
    row("GET /metrics, gzip", clock, || get(admin.address(), "gzip"));
}

fn row(name: &str, clock: Clock, mut work: impl FnMut() -> usize) {
    let bytes = work();
    let (whole, busy) = (0..ROUNDS)
        .map(|_| {
            let (before, busy) = (clock.now(), processor_ms());
            work();
            (clock.now().since(before).seconds() * 1e3, processor_ms() - busy)
        })
        .unzip();
    println!("| {name} | {bytes} | {:.2} | {:.2} |", median(whole), median(busy));
}

/// Milliseconds that this process has run, on all its threads: the machine's other work is not in it.
fn processor_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a time that has passed").as_secs_f64() * 1e3
}

/// Bytes on the wire.
fn get(address: SocketAddr, coding: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("the admin listener");
    let head = format!(
        "GET /metrics HTTP/1.1\r\nhost: {address}\r\naccept: application/openmetrics-text\r\naccept-encoding: {coding}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("the admin listener");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "an answer");
    answer.len()
}

/// Three upstreams of nine models, of which every class of prompt, output and load has been seen, with an exemplar in most buckets.
fn filled(clock: Clock) -> Recorder {
    let configured = UPSTREAMS.map(|name| {
        format!(
            "[[upstreams]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:9\"\n\
             [[routes]]\npath_prefix = \"/{name}\"\nupstream = \"{name}\"\n"
        )
    });
    let config = Config::from_toml(&configured.concat(), Path::new("bench.toml"), &Overrides::default());
    let recorder = Recorder::new(&config.expect("a valid configuration"), clock).expect("no file to open");
    for upstream in UPSTREAMS {
        for model in 0..MODELS {
            (0..400).for_each(|turn| exchange(&recorder, clock, upstream, &format!("model-{model}-instruct"), turn));
        }
    }
    recorder
}

/// An exchange that waited for 5 ms to 90 s, between the ends of most families.
fn exchange(recorder: &Recorder, clock: Clock, upstream: &str, model: &str, turn: u64) {
    let handles = recorder.upstream(&upstream.into());
    let begin = clock.now();
    let facts = RequestFacts { model: Some(model.into()), stream: Some(true), dialect: None };
    let started = recorder.started(&handles, &facts, begin);
    let ttft = Duration::from_secs_f64(0.005 * 1.025_f64.powi(i32::try_from(turn).expect("a few")) + 1.7e-7).into();
    let after = |span: Nanos| begin + span;
    let exemplar = Exemplar { id: ExchangeId(turn), trace_id: Some(format!("{turn:032x}").into()) };
    let pair = recorder.pair(&handles, Some(model), true);
    for (load, span) in [(1, ttft), (3, ttft), (6, ttft), (12, ttft), (40, ttft), (100, ttft)] {
        pair.ttft(span, load, &exemplar);
    }
    pair.answer_ttft(ttft, &exemplar);
    pair.client_ttft(ttft, &exemplar);
    pair.ttfb(ttft);
    pair.first_event(ttft);
    pair.gap(Nanos(ttft.0 / 100));
    pair.overhead_event(Nanos(ttft.0 / 1_000));
    pair.overhead_first_output(Nanos(ttft.0 / 1_000));
    pair.events(turn, turn, turn / 7);
    pair.read(turn, 211 * turn);
    started.first_output(ttft);

    let mut timeline = Timeline::begin(begin);
    (timeline.request_end, timeline.sent_last) = (Some(begin), Some(begin));
    (timeline.head_back, timeline.first_byte) = (Some(after(ttft)), Some(after(ttft)));
    timeline.first_output = Some(after(ttft));
    let last = after(ttft + ttft);
    timeline.last_output = Some(last);
    (timeline.response_end, timeline.delivered, timeline.end) = (Some(last), Some(last), Some(last));
    let outcome = Outcome::ALL[usize::try_from(turn).expect("a few") % Outcome::ALL.len()];
    let mut seen = Observation::begin(ExchangeId(turn), clock.wall(begin), timeline, outcome);
    seen.upstream = Some(upstream.into());
    seen.model = Some(model.into());
    (seen.endpoint, seen.dialect, seen.stream, seen.status) = (Endpoint::Chat, Dialect::OpenAiChat, true, Some(200));
    seen.facts.usage.input = Some(100 << (turn % 12));
    seen.facts.usage.output = Some(25 << (turn % 9));
    seen.facts.reported.queue = Some(Nanos(ttft.0 / 3));
    seen.facts.reported.ttft = Some(Nanos(ttft.0 / 2));
    seen.output_events = 2;
    seen.cadence.output(after(ttft));
    seen.cadence.output(last);
    recorder.finish(Some(&handles), Some(started), seen);
}
