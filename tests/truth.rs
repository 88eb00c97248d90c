//! The proof: what the gauge says of a stream is what really happened.
//!
//! Hundreds of exchanges of all dialects, whole and broken, go through the program to a simulated provider that writes
//! down what left when. Each record is joined with that ground truth: the simulation shares no code with the gauge's
//! stamps, readers and formulas.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

use std::{
    collections::HashMap,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use streamgauge::{
    app::{self, App, Stop},
    clock::{Clock, Nanos},
    config::{Config, Overrides},
    dialect::Reported,
    observation::Observation,
    record::Recorder,
    sim::{
        Log, Profile, Protocol, Sim, Truth,
        client::{Ask, Client, Target},
    },
    timeline::Timeline,
};
use tokio::task::JoinSet;

const PROTOCOLS: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Messages];

/// What requests ask the simulation for. Each row is asked in every dialect, as a stream and plainly, in every round.
const KINDS: [&[(&str, &str)]; 15] = [
    &[],
    &[("x-sim-tokens-per-event", "7")],
    &[("x-sim-reasoning", "10")],
    &[("x-sim-tool", "on")],
    &[("x-sim-usage", "off")],
    // It tells its own times in its own way.
    &[("x-sim-reports", "groq"), ("x-sim-reasoning", "10")],
    &[("x-sim-reports", "cerebras"), ("x-sim-stall", "0@40ms")],
    &[("x-sim-reports", "vllm"), ("x-sim-stall", "9@40ms")],
    // All at once: several events in one read.
    &[("x-sim-tps", "0")],
    &[("x-sim-stall", "3@60ms"), ("x-sim-early-prelude", "off")],
    &[("x-sim-fail", "error_event@5")],
    &[("x-sim-fail", "cut@6")],
    &[("x-sim-fail", "truncate@7")],
    &[("x-sim-fail", "status:429")],
    &[("x-sim-fail", "status:503")],
];
const ROUNDS: usize = 6;
/// Requests at the same time: enough to interleave, few enough for two cores to be on time.
const CLIENTS: usize = 8;

#[test]
fn every_record_agrees_with_what_really_happened() {
    let lines = Lines::default();
    let (tell, told) = mpsc::sync_channel(100_000);

    let others = app::runtime(Some(2)).unwrap();
    let profile = Profile {
        ttft: Duration::from_millis(30),
        tokens_per_second: 400.0,
        output_tokens: 24,
        jitter: 0.3,
        ..Profile::default()
    };
    let log = Log::to(lines.clone()).unwrap();
    let clock = Clock::start();
    let sim = others.block_on(async { Sim::start(anywhere(), profile, Some(log), clock) }).unwrap();

    let config = format!(
        "listen = \"127.0.0.1:0\"\nsession_header = \"x-sim-id\"\n[admin]\naddress = \"off\"\n[[upstreams]]\nname = \"sim\"\n\
         url = \"http://{}\"\n",
        sim.address()
    );
    let config = Config::from_toml(&config, Path::new("truth.toml"), &Overrides::default()).unwrap();
    // As the program does: nobody else's work delays the gauge's.
    let gauges = app::runtime(Some(2)).unwrap();
    let listener = Box::new(move |record: &Observation| tell.try_send(record.clone()).unwrap());
    let recorder = Recorder::new(&config, clock).unwrap().with_listener(listener);
    let (app, stop) = (gauges.block_on(async { App::bind_with(&config, recorder, clock) }).unwrap(), Stop::default());
    let gauge = app.addresses()[0];
    let running = gauges.spawn(app.run(stop.clone()));

    let asks = asks(gauge);
    let count = asks.len();
    others.block_on(ask_all(asks, clock));
    stop.drain();
    gauges.block_on(running).unwrap();
    others.block_on(sim.stop()).unwrap();

    let truths = lines.read();
    let records: Vec<Observation> = told.try_iter().collect();
    assert_eq!((truths.len(), records.len()), (count, count), "one truth and one record each");
    let mut late = Vec::new();
    let mut totals = Totals::default();
    let mut faults = Vec::new();
    for record in &records {
        let id = record.session.as_deref().unwrap();
        faults.extend(totals.compare(record, &truths[id], &mut late).into_iter().map(|fault| format!("{id}: {fault}")));
    }
    faults.sort_unstable();
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
    report(count, &mut late, totals);
}

/// Every kind in every dialect, each with an id of its own.
fn asks(gauge: SocketAddr) -> Vec<Ask> {
    let mut asks = Vec::new();
    for round in 0..ROUNDS {
        for (kind, headers) in KINDS.iter().enumerate() {
            for protocol in PROTOCOLS {
                for stream in [true, false] {
                    let target = Target { address: gauge, prefix: String::new(), protocol, model: "sim-1".to_owned() };
                    let id = format!("{round}-{kind}-{}-{stream}", protocol.as_str());
                    // Short and long prompts: one segment or many.
                    let ask = Ask { stream, ..Ask::streaming(target, [20, 2_000][round % 2], 1_000) };
                    let ask = ask.with(HeaderName::from_static("x-sim-id"), HeaderValue::from_str(&id).unwrap());
                    asks.push(headers.iter().fold(ask, |ask, (name, value)| {
                        ask.with(HeaderName::from_static(name), HeaderValue::from_static(value))
                    }));
                }
            }
        }
    }
    asks
}

async fn ask_all(asks: Vec<Ask>, clock: Clock) {
    let asks = Arc::new(Mutex::new(asks));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let asks = Arc::clone(&asks);
        clients.spawn(async move {
            let mut client = Client::new(clock);
            loop {
                let Some(ask) = asks.lock().unwrap().pop() else { return };
                client.ask(&ask).await;
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

#[derive(Default)]
struct Totals {
    output_events: u64,
    output_tokens: u64,
    gaps: u64,
    coalesced: u64,
    /// Records with a TTFT by the provider's own clock.
    reported: u64,
    outcomes: HashMap<&'static str, u64>,
}

impl Totals {
    /// Compares one record with its truth. How much later than the truth its TTFT is (negative: earlier) goes to `late`.
    fn compare(&mut self, record: &Observation, truth: &Truth, late: &mut Vec<i64>) -> Vec<String> {
        let mut faults = Vec::new();
        let mut equal = |what: &str, record: String, truth: String| {
            if record != truth {
                faults.push(format!("{what}: {record} in the record, {truth} in truth"));
            }
        };
        let usage = &record.facts.usage;
        equal("outcome", record.outcome.as_str().to_owned(), truth.outcome.clone());
        equal("status", format!("{:?}", record.status), format!("{:?}", truth.status));
        equal("dialect", record.dialect.as_str().to_owned(), truth.dialect.clone());
        equal("model", format!("{:?}", record.model), format!("{:?}", truth.model));
        equal("request bytes", record.request_bytes.to_string(), truth.request_bytes.to_string());
        equal("response bytes", record.response_bytes.to_string(), truth.response_bytes.to_string());
        equal("input tokens", format!("{:?}", usage.input), format!("{:?}", truth.input_tokens));
        equal("output tokens", format!("{:?}", usage.output), format!("{:?}", truth.output_tokens));
        let outputs = truth.output_events.len();
        equal("output events", record.output_events.to_string(), outputs.to_string());
        equal("client gone", "false".to_owned(), truth.client_gone.to_string());
        // Each output event after the first is a gap, or came in the same read as the one before.
        let (gaps, coalesced) = (record.cadence.gaps(), record.cadence.coalesced());
        equal("gaps and coalesced", (gaps + coalesced).to_string(), outputs.saturating_sub(1).to_string());

        let (ttft, true_ttft) = (record.streamed().and_then(Timeline::ttft), true_ttft(truth));
        equal("whether there is a TTFT", ttft.is_some().to_string(), true_ttft.is_some().to_string());
        if let (Some(ttft), Some(true_ttft)) = (ttft, true_ttft) {
            late.push(i64::try_from(ttft.0).unwrap() - i64::try_from(true_ttft).unwrap());
        }
        self.reported += u64::from(record.facts.reported.ttft.is_some());
        faults.extend(reported_between(&record.facts.reported, truth));
        self.output_events += record.output_events;
        self.output_tokens += usage.output.unwrap_or(0);
        self.gaps += gaps;
        self.coalesced += coalesced;
        *self.outcomes.entry(record.outcome.as_str()).or_default() += 1;
        faults
    }
}

/// From the arrival of the request's last byte at the provider to the first output event's departure from there.
fn true_ttft(truth: &Truth) -> Option<u64> {
    Some(truth.first_output_ns().filter(|_| truth.stream)? - truth.request_end_ns)
}

/// The provider's own times are taken where an event is handed over: not before it was due, not after it left.
fn reported_between(reported: &Reported, truth: &Truth) -> Vec<String> {
    let mut faults = Vec::new();
    let mut between = |what: &str, said: Option<Nanos>, least: Option<u64>, most: Option<u64>| {
        if let (Some(said), Some(least), Some(most)) = (said, least, most)
            && !(least..=most).contains(&said.0)
        {
            faults.push(format!("{what}: {said:?} is not within {least} to {most}"));
        }
    };
    let Some(start) = truth.start_ns else { return faults };
    let queue = start - truth.request_end_ns;
    between("queue", reported.queue, Some(queue), Some(queue));
    let outputs = [truth.output_events.first(), truth.output_events.last()];
    let [first_due, last_due] = outputs.map(|event| Some(truth.due_ns[*event? as usize]));
    let since = |from: u64, to: Option<u64>| Some(to?.saturating_sub(from));
    let (first_left, last_left) = (truth.first_output_ns(), truth.last_output_ns());
    if !reported.ttft_of_head {
        between("TTFT", reported.ttft, since(truth.request_end_ns, first_due), since(truth.request_end_ns, first_left));
    }
    between("prefill", reported.prefill, since(start, first_due), since(start, first_left));
    if let (Some(prefill), Some(decode)) = (reported.prefill, reported.decode) {
        between("prefill and decode", Some(prefill + decode), since(start, last_due), since(start, last_left));
    }
    faults
}

fn report(count: usize, late: &mut [i64], totals: Totals) {
    late.sort_unstable_by_key(|nanos| nanos.abs());
    let error = |percent: usize| Duration::from_nanos(late[(late.len() - 1) * percent / 100].unsigned_abs());
    let Totals { output_events, output_tokens, gaps, coalesced, reported, outcomes } = totals;
    println!(
        "{count} exchanges, {output_events} output events ({gaps} gaps, {coalesced} coalesced), {output_tokens} tokens: all equal"
    );
    println!("outcomes: {outcomes:?}; {reported} with the provider's own TTFT");
    assert!(reported > 0);
    println!(
        "TTFT of {} streams, gauge against truth: p50 {:?}, p90 {:?}, p99 {:?}",
        late.len(),
        error(50),
        error(90),
        error(99)
    );
    assert!(error(50) <= Duration::from_millis(1), "TTFT is off by {:?} at the median", error(50));
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// What the log wrote, shared with the test.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn read(&self) -> HashMap<String, Truth> {
        let lines = self.0.lock().unwrap();
        let truths = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        truths
            .map(|line| serde_json::from_slice(line).unwrap())
            .map(|truth: Truth| (truth.id.clone().unwrap(), truth))
            .collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
