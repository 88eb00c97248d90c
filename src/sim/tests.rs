//! The simulated provider over real sockets, seen by its client and by its own log.

mod times;

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::TcpStream,
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{
    client::{Answer, Ask, Client, Ending, Halt, Lane, Target, run},
    *,
};
use crate::clock::Clock;

const PROTOCOLS: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Messages];

/// What a log wrote, shared with the test.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Bench {
    sim: Sim,
    lines: Lines,
    clock: Clock,
}

impl Bench {
    fn start(profile: Profile) -> Self {
        let (lines, clock) = (Lines::default(), Clock::start());
        let log = Log::to(lines.clone()).unwrap();
        let sim = Sim::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), profile, Some(log), clock).unwrap();
        Self { sim, lines, clock }
    }

    fn ask(&self, protocol: Protocol, headers: &[(&'static str, &str)]) -> Ask {
        let target = Target { address: self.sim.address(), prefix: String::new(), protocol, model: "sim-1".to_owned() };
        let mut ask = Ask::streaming(target, 50, 1_000);
        for (name, value) in headers {
            ask = ask.with(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        ask
    }

    fn client(&self) -> Client {
        Client::new(self.clock)
    }

    /// Stops, and reads the log in order of arrival.
    async fn truth(self) -> Vec<Truth> {
        self.sim.stop().await.unwrap();
        self.lines.read()
    }
}

impl Lines {
    fn read(&self) -> Vec<Truth> {
        let lines = self.0.lock().unwrap();
        let mut truth: Vec<Truth> = lines
            .split(|byte| *byte == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect();
        truth.sort_by_key(|truth| truth.request);
        truth
    }
}

/// Fast enough for tests, with gaps that can be told apart.
fn quick() -> Profile {
    Profile { ttft: Duration::from_millis(5), tokens_per_second: 2_000.0, output_tokens: 20, ..Profile::default() }
}

#[tokio::test]
async fn each_dialect_streams_and_the_log_tells_the_same() {
    let bench = Bench::start(quick());
    let mut client = bench.client();
    let mut answers = Vec::new();
    for protocol in PROTOCOLS {
        answers
            .push(client.ask(&bench.ask(protocol, &[("x-sim-id", protocol.as_str()), ("x-sim-reasoning", "6")])).await);
    }
    let clock = bench.clock;
    let truth = bench.truth().await;
    assert_eq!(truth.len(), 3);
    for ((answer, truth), protocol) in answers.iter().zip(&truth).zip(PROTOCOLS) {
        assert_eq!((answer.status, answer.ending), (Some(200), Ending::Complete), "{protocol:?}");
        assert_eq!(answer.headers["x-sim-request"], truth.request.to_string().as_str());
        assert_eq!(truth.id.as_deref(), Some(protocol.as_str()));
        assert_eq!((truth.dialect.as_str(), truth.outcome.as_str()), (protocol.as_str(), "complete"));
        assert_eq!((truth.stream, truth.client_gone, truth.http.as_str()), (true, false, "1.1"));
        assert_eq!(truth.model.as_deref(), Some("sim-1"));
        assert_eq!((answer.events, answer.output_events), (truth.left_ns.len() as u64, 20));
        assert_eq!((truth.output_events.len(), truth.response_bytes), (20, answer.bytes));
        assert_eq!((truth.output_tokens, truth.input_tokens), (Some(20), Some(truth.request_bytes.div_ceil(4))));
        // Never early, always in order, and seen only after it left.
        assert!(truth.left_ns.is_sorted() && truth.due_ns.is_sorted());
        assert!(truth.left_ns.iter().zip(&truth.due_ns).all(|(left, due)| left >= due));
        let seen = unix_nanos(&clock, answer.first_output.unwrap());
        assert!(truth.first_output_ns().unwrap() <= seen);
        assert!(unix_nanos(&clock, answer.sent) <= truth.request_end_ns);
        assert!(truth.last_output_ns().unwrap() <= unix_nanos(&clock, answer.last_output.unwrap()));
    }
}

#[tokio::test]
async fn each_dialect_answers_plainly() {
    let bench = Bench::start(quick());
    let mut client = bench.client();
    for protocol in PROTOCOLS {
        let ask = Ask { stream: false, ..bench.ask(protocol, &[]) };
        let mut body = Vec::new();
        let answer = client.ask_with(&ask, |piece| body.extend_from_slice(piece)).await;
        assert_eq!((answer.status, answer.ending), (Some(200), Ending::Complete));
        assert_eq!(answer.headers["content-length"], body.len().to_string().as_str());
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(json["model"], "sim-1");
    }
    for truth in bench.truth().await {
        assert!(!truth.stream && truth.output_events.is_empty());
        // 5 ms to the first token, 19 more at 0.5 ms each.
        assert_eq!(truth.due_ns, [truth.request_end_ns + 14_500_000]);
        assert!(truth.left_ns[0] >= truth.due_ns[0]);
        assert_eq!(truth.output_tokens, Some(20));
    }
}

#[tokio::test]
async fn deadlines_count_from_the_request_and_do_not_drift() {
    let bench = Bench::start(Profile::default());
    let ask = bench.ask(Protocol::Chat, &[("x-sim-tokens", "300"), ("x-sim-tps", "1500"), ("x-sim-ttft-ms", "10")]);
    assert_eq!(bench.client().ask(&ask).await.output_events, 300);
    let truth = bench.truth().await.remove(0);
    let start = truth.start_ns.unwrap();
    assert_eq!(start, truth.request_end_ns);
    for (k, event) in truth.output_events.iter().enumerate() {
        let exact = start + 10_000_000 + (k as u64 * 2_000_000 + 1) / 3;
        assert!(truth.due_ns[*event as usize].abs_diff(exact) <= 1, "event {k}");
    }
}

#[tokio::test]
async fn prelude_is_early_or_with_the_first_output() {
    let bench = Bench::start(quick());
    let mut client = bench.client();
    for early in ["on", "off"] {
        client.ask(&bench.ask(Protocol::Messages, &[("x-sim-early-prelude", early)])).await;
    }
    let truth = bench.truth().await;
    let due = |truth: &Truth| truth.due_ns[0] - truth.request_end_ns;
    assert_eq!((due(&truth[0]), due(&truth[1])), (0, 5_000_000));
    assert_eq!(truth[0].output_events[0], truth[1].output_events[0]);
}

#[tokio::test]
async fn every_fault_shows_at_the_client_and_in_the_log() {
    let cases = [
        ("error_event@5", Some(200), Ending::ErrorEvent, 5, "error_event"),
        ("cut@5", Some(200), Ending::Cut, 5, "upstream_reset"),
        ("cut", Some(200), Ending::Cut, 0, "upstream_reset"),
        ("truncate@5", Some(200), Ending::Unfinished, 5, "truncated"),
        ("truncate@20", Some(200), Ending::Unfinished, 20, "truncated"),
        ("garbage@5", Some(200), Ending::Unfinished, 5, "truncated"),
        ("status:429", Some(429), Ending::Complete, 0, "rate_limited"),
        ("status:500", Some(500), Ending::Complete, 0, "upstream_5xx"),
        ("status:404", Some(404), Ending::Complete, 0, "upstream_4xx"),
        ("close_before_head", None, Ending::NoAnswer, 0, "upstream_reset"),
        ("cut@21", Some(200), Ending::Complete, 20, "complete"),
    ];
    for protocol in PROTOCOLS {
        let bench = Bench::start(quick());
        let mut client = bench.client();
        let mut answers = Vec::new();
        for (fail, ..) in cases {
            answers.push(client.ask(&bench.ask(protocol, &[("x-sim-fail", fail)])).await);
        }
        let truth = bench.truth().await;
        assert_eq!(truth.len(), cases.len());
        for ((case, answer), truth) in cases.iter().zip(&answers).zip(&truth) {
            let (fail, status, ending, outputs, outcome) = *case;
            assert_eq!((answer.status, answer.ending), (status, ending), "{protocol:?} {fail}");
            assert_eq!((truth.status, truth.outcome.as_str()), (status, outcome), "{protocol:?} {fail}");
            assert_eq!(
                (answer.output_events, truth.output_events.len() as u64),
                (outputs, outputs),
                "{protocol:?} {fail}"
            );
            assert_eq!(answer.bytes, truth.response_bytes, "{protocol:?} {fail}: what was handed over has arrived");
            assert!(!truth.client_gone, "{protocol:?} {fail}");
            assert!(truth.left_ns.iter().all(|left| *left > 0), "{protocol:?} {fail}");
        }
    }
}

#[tokio::test]
async fn faults_of_plain_answers() {
    let bench = Bench::start(quick());
    let mut client = bench.client();
    let mut body = Vec::new();
    for (fail, status, ending) in [
        ("error_event", Some(500), Ending::Complete),
        ("cut", Some(200), Ending::Cut),
        ("truncate", Some(200), Ending::Complete),
        ("garbage", Some(200), Ending::Complete),
    ] {
        let ask = Ask { stream: false, ..bench.ask(Protocol::Chat, &[("x-sim-fail", fail)]) };
        body.clear();
        let answer = client.ask_with(&ask, |piece| body.extend_from_slice(piece)).await;
        assert_eq!((answer.status, answer.ending), (status, ending), "{fail}");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).is_ok(), fail == "error_event", "{fail}");
    }
    let outcomes: Vec<String> = bench.truth().await.into_iter().map(|truth| truth.outcome).collect();
    assert_eq!(outcomes, ["upstream_5xx", "upstream_reset", "truncated", "truncated"]);
}

#[tokio::test]
async fn rate_limits_tell_when_to_come_back() {
    let bench = Bench::start(Profile { rate_limit_rate: 1.0, ..quick() });
    let mut client = bench.client();
    let chat = client.ask(&bench.ask(Protocol::Chat, &[])).await;
    assert_eq!((chat.status, &chat.headers["retry-after"]), (Some(429), &HeaderValue::from_static("1")));
    assert_eq!(chat.headers["x-ratelimit-remaining-requests"], "0");
    let messages = client.ask(&bench.ask(Protocol::Messages, &[])).await;
    assert_eq!(messages.headers["anthropic-ratelimit-requests-remaining"], "0");
    let reset = messages.headers["anthropic-ratelimit-requests-reset"].to_str().unwrap();
    assert!(humantime::parse_rfc3339(reset).is_ok());
    let spared = client.ask(&bench.ask(Protocol::Chat, &[("x-sim-fail", "none")])).await;
    assert_eq!(spared.status, Some(200));
    bench.sim.stop_now().await.unwrap();
}

#[tokio::test]
async fn requests_queue_for_slots_in_order() {
    let bench = Bench::start(Profile { concurrency: Some(1), ..quick() });
    // 5 ms + 19 × 0.5 ms each, one after the other.
    let asks: Vec<_> = (0..4).map(|_| tokio::spawn(ask_once(bench.clock, bench.ask(Protocol::Chat, &[])))).collect();
    for ask in asks {
        assert_eq!(ask.await.unwrap().ending, Ending::Complete);
    }
    let mut truth = bench.truth().await;
    truth.sort_by_key(|truth| truth.start_ns);
    assert_eq!(truth[0].start_ns, Some(truth[0].request_end_ns));
    for pair in truth.windows(2) {
        assert!(pair[1].start_ns.unwrap() >= pair[0].last_output_ns().unwrap(), "the slot was free");
        assert!(pair[1].due_ns[0] >= pair[1].start_ns.unwrap(), "time in the queue is in the TTFT");
        assert!(pair[0].request_end_ns <= pair[1].request_end_ns, "first come, first served");
    }
}

async fn ask_once(clock: Clock, ask: Ask) -> Answer {
    Client::new(clock).ask(&ask).await
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_and_frees_its_slot() {
    let bench = Bench::start(Profile { concurrency: Some(1), ..quick() });
    let mut client = bench.client();
    let endless = bench.ask(Protocol::Chat, &[("x-sim-tokens", "1000"), ("x-sim-tps", "1")]);
    let (seen, mut first) = watch::channel(false);
    tokio::select! {
        answer = client.ask_with(&endless, |_| { seen.send_replace(true); }) => panic!("ended: {answer:?}"),
        _ = first.wait_for(|seen| *seen) => {}
    }
    let next = client.ask(&bench.ask(Protocol::Chat, &[])).await;
    assert_eq!(next.ending, Ending::Complete);
    let truth = bench.truth().await;
    assert!(truth[0].client_gone && !truth[1].client_gone);
}

#[tokio::test]
async fn refusals_are_json_and_say_why() {
    let bench = Bench::start(quick());
    let mut body = Vec::new();
    let ask = bench.ask(Protocol::Chat, &[("x-sim-tps", "fast")]);
    let answer = bench.client().ask_with(&ask, |piece| body.extend_from_slice(piece)).await;
    assert_eq!(answer.status, Some(400));
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(json["error"]["message"], "x-sim-tps: not a number: fast");

    let (mut send, _run) = h2(bench.sim.address()).await;
    for (method, path, body, status) in [
        ("GET", "/v1/models", "", 200),
        ("GET", "/v1/chat/completions", "", 404),
        ("POST", "/v1/embeddings", "{}", 404),
        ("POST", "/v1/messages", "{", 400),
        ("POST", "/base/v1/messages", "{}", 200),
    ] {
        let request = Request::builder().method(method).uri(format!("http://sim{path}"));
        let response = send.send_request(request.body(Full::from(body)).unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(), "{method} {path}");
    }
    drop(send);
    assert_eq!(bench.truth().await.len(), 6);
}

type H2 = hyper::client::conn::http2::SendRequest<Full<bytes::Bytes>>;

/// An HTTP/2 connection by prior knowledge, and the task that runs it.
async fn h2(address: SocketAddr) -> (H2, JoinHandle<()>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let io = TokioIo::new(stream);
    let (send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let run = tokio::spawn(async move {
        let _ = connection.await;
    });
    (send, run)
}

fn h2_request(ask: &Ask) -> Request<Full<bytes::Bytes>> {
    let request = Request::post(format!("http://sim{}", ask.target.protocol.path()));
    let mut request = request.body(Full::from(ask.body())).unwrap();
    request.headers_mut().extend(ask.headers.clone());
    request
}

#[tokio::test]
async fn http2_streams_and_resets() {
    let bench = Bench::start(quick());
    let (mut send, _run) = h2(bench.sim.address()).await;
    let response = send.send_request(h2_request(&bench.ask(Protocol::Responses, &[]))).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b"}\n\n"));

    let cut = bench.ask(Protocol::Responses, &[("x-sim-fail", "cut@3")]);
    let mut response = send.send_request(h2_request(&cut)).await.unwrap().into_body();
    let mut outputs = 0;
    let error = loop {
        match response.frame().await.expect("no clean end") {
            Ok(frame) => {
                let data = frame.into_data().unwrap();
                outputs += memchr::memmem::find_iter(&data, b"event: response.output_text.delta").count();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(outputs, 3);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("stream error"), "{error:?}");

    let gone = bench.ask(Protocol::Responses, &[("x-sim-fail", "close_before_head")]);
    assert!(send.send_request(h2_request(&gone)).await.is_err());
    let again = send.send_request(h2_request(&bench.ask(Protocol::Responses, &[]))).await.unwrap();
    assert_eq!(again.status(), 200);
    again.into_body().collect().await.unwrap();
    drop(send);
    let truth = bench.truth().await;
    assert!(truth.iter().all(|truth| truth.http == "2" && truth.left_ns.iter().all(|left| *left > 0)));
    assert_eq!(truth[0].response_bytes, body.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_streams_at_once_all_finish() {
    let bench = Bench::start(quick());
    // The first event waits until the last request has come: all streams are open together.
    let headers = [("x-sim-ttft-ms", "400"), ("x-sim-tps", "100")];
    let mut streams = JoinSet::new();
    // Few sockets, many streams: the usual limit of 1,024 descriptors is shared with the other tests.
    for _ in 0..4 {
        let (send, _run) = h2(bench.sim.address()).await;
        for _ in 0..100 {
            let (mut send, request) = (send.clone(), h2_request(&bench.ask(Protocol::Messages, &headers)));
            streams.spawn(async move {
                let body = send.send_request(request).await.unwrap().into_body();
                let body = body.collect().await.unwrap().to_bytes();
                memchr::memmem::find_iter(&body, b"text_delta").count()
            });
        }
    }
    for _ in 0..100 {
        let (mut client, ask) = (bench.client(), bench.ask(Protocol::Chat, &headers));
        streams.spawn(async move { usize::try_from(client.ask(&ask).await.output_events).unwrap() });
    }
    while let Some(outputs) = streams.join_next().await {
        assert_eq!(outputs.unwrap(), 20);
    }
    let truth = bench.truth().await;
    assert_eq!(truth.len(), 500);
    assert!(truth.iter().all(|truth| truth.outcome == "complete" && !truth.client_gone));
    assert!(truth.iter().all(|truth| truth.left_ns.iter().zip(&truth.due_ns).all(|(left, due)| left >= due)));
}

#[tokio::test]
async fn a_graceful_stop_lets_streams_end() {
    let bench = Bench::start(quick());
    let (mut client, ask, address) = (bench.client(), bench.ask(Protocol::Chat, &[]), bench.sim.address());
    let (seen, mut first) = watch::channel(false);
    let stream = tokio::spawn(async move {
        client
            .ask_with(&ask, |_| {
                seen.send_replace(true);
            })
            .await
    });
    first.wait_for(|seen| *seen).await.unwrap();
    let truth = bench.truth().await;
    assert_eq!((truth.len(), truth[0].client_gone), (1, false));
    assert_eq!(stream.await.unwrap().ending, Ending::Complete);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_immediate_stop_cuts_streams() {
    for graceful_first in [false, true] {
        let bench = Bench::start(quick());
        let ask = bench.ask(Protocol::Chat, &[("x-sim-tokens", "1000"), ("x-sim-tps", "1")]);
        let (mut client, lines) = (bench.client(), bench.lines.clone());
        let (seen, mut first) = watch::channel(false);
        let stream = tokio::spawn(async move {
            client
                .ask_with(&ask, |_| {
                    seen.send_replace(true);
                })
                .await
        });
        first.wait_for(|seen| *seen).await.unwrap();
        if graceful_first {
            // A graceful stop that is given up.
            let stop = tokio::time::timeout(Duration::from_millis(20), bench.sim.stop());
            assert!(stop.await.is_err());
            assert_eq!(stream.await.unwrap().ending, Ending::Cut);
        } else {
            bench.sim.stop_now().await.unwrap();
            assert_eq!(stream.await.unwrap().ending, Ending::Cut);
            assert!(lines.read()[0].client_gone);
        }
    }
}

#[tokio::test]
async fn an_immediate_stop_ends_waiting_http2_requests() {
    let bench = Bench::start(Profile { concurrency: Some(2), ttft: Duration::from_secs(3_600), ..quick() });
    let (send, _run) = h2(bench.sim.address()).await;
    let mut head = send.clone().send_request(h2_request(&bench.ask(Protocol::Chat, &[]))).await.unwrap().into_body();
    // The role chunk has come: this one generates, the plain one after it waits for its end, the others for a slot.
    head.frame().await.unwrap().unwrap();
    let mut waiting = JoinSet::new();
    for stream in [false, true, true] {
        let request = h2_request(&Ask { stream, ..bench.ask(Protocol::Chat, &[]) });
        waiting.spawn(send.clone().send_request(request));
    }
    // An answer to a later request on the same connection: the ones before it have arrived.
    let probe = h2_request(&bench.ask(Protocol::Chat, &[("x-sim-fail", "status:404")]));
    assert_eq!(send.clone().send_request(probe).await.unwrap().status(), 404);
    bench.sim.stop_now().await.unwrap();
    while let Some(answer) = waiting.join_next().await {
        assert!(answer.unwrap().is_err());
    }
    assert!(head.frame().await.unwrap().is_err());
    let truth = bench.lines.read();
    assert_eq!(truth.iter().filter(|truth| truth.client_gone).count(), 4);
}

#[tokio::test]
async fn runs_repeat_with_their_seed() {
    let mut runs = Vec::new();
    for seed in [3, 3, 4] {
        let bench = Bench::start(Profile { jitter: 0.4, cut_rate: 0.3, error_rate: 0.2, seed, ..quick() });
        let mut client = bench.client();
        for _ in 0..12 {
            client.ask(&bench.ask(Protocol::Chat, &[("x-sim-tps", "0")])).await;
        }
        let truth = bench.truth().await;
        let shape = |truth: &Truth| (truth.outcome.clone(), truth.due_ns.last().map(|due| due - truth.request_end_ns));
        runs.push(truth.iter().map(shape).collect::<Vec<_>>());
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn traffic_is_bounded_by_count() {
    let bench = Bench::start(Profile { cut_rate: 0.2, rate_limit_rate: 0.2, server_error_rate: 0.1, ..quick() });
    let target = bench.ask(Protocol::Chat, &[]).target;
    let brief = |lane: Lane| Lane { pause: Duration::from_millis(2), ..lane };
    let lanes = vec![
        brief(Lane::chat(target.clone(), 2)),
        brief(Lane::long_prompts(Target { protocol: Protocol::Messages, ..target.clone() }, 1)),
        brief(Lane::agent_bursts(Target { protocol: Protocol::Responses, ..target }, 1)),
    ];
    let statuses = Arc::new(Mutex::new(Vec::new()));
    let show = Arc::clone(&statuses);
    let (_go_on, halt) = watch::channel(Halt::No);
    let shown = run(lanes, 60, 9, bench.clock, halt, move |_, answer| show.lock().unwrap().push(answer.status)).await;
    assert_eq!(shown, 60);
    let statuses = statuses.lock().unwrap().clone();
    assert!(statuses.contains(&Some(200)) && statuses.contains(&Some(429)));
    let truth = bench.truth().await;
    assert_eq!(truth.len(), 60);
    assert!(truth.iter().any(|truth| truth.request_bytes > 40_000), "long prompts were among them");
}

#[tokio::test]
async fn traffic_stops_at_once() {
    let bench = Bench::start(Profile { tokens_per_second: 0.1, ..quick() });
    let lane = Lane { pause: Duration::ZERO, ..Lane::agent_bursts(bench.ask(Protocol::Chat, &[]).target, 2) };
    let (ask_for, halt) = watch::channel(Halt::No);
    let traffic = tokio::spawn(run(vec![lane], u64::MAX, 1, bench.clock, halt, |_, answer| panic!("{answer:?}")));
    // One more request proves that the server is up; then everything that runs is dropped.
    bench.client().ask(&bench.ask(Protocol::Chat, &[("x-sim-tps", "0")])).await;
    ask_for.send_replace(Halt::Now);
    assert_eq!(traffic.await.unwrap(), 0);
    bench.sim.stop().await.unwrap();
}

#[tokio::test]
async fn traffic_ends_with_its_answers() {
    let bench = Bench::start(quick());
    // Whoever pauses pauses for good, so that only the end that was asked for can end this.
    let lane = Lane { pause: Duration::ZERO, ..Lane::chat(bench.ask(Protocol::Chat, &[]).target, 2) };
    let idle = Lane { pause: Duration::from_secs(1 << 32), ..lane.clone() };
    let (ask_for, halt) = watch::channel(Halt::No);
    let (seen, mut answers) = tokio::sync::mpsc::channel(4096);
    let show = move |_: &Lane, answer: Answer| seen.try_send(answer.ending).unwrap();
    let traffic = tokio::spawn(run(vec![lane, idle], u64::MAX, 1, bench.clock, halt, show));
    answers.recv().await.unwrap();
    ask_for.send_replace(Halt::AfterAnswers);
    let shown = traffic.await.unwrap();
    let mut endings = vec![Ending::Complete];
    while let Some(ending) = answers.recv().await {
        endings.push(ending);
    }
    assert_eq!(endings, vec![Ending::Complete; endings.len()]);
    assert_eq!((shown, bench.truth().await.len()), (endings.len() as u64, endings.len()));
}

#[tokio::test]
async fn a_graceful_stop_can_be_cut_short() {
    let bench = Bench::start(Profile { tokens_per_second: 0.001, ..quick() });
    let (mut client, ask) = (bench.client(), bench.ask(Protocol::Chat, &[]));
    let (begun, first) = tokio::sync::oneshot::channel::<()>();
    let mut begun = Some(begun);
    let answer = tokio::spawn(async move { client.ask_with(&ask, |_| drop(begun.take())).await });
    // An error is what a dropped sender gives: the stream has begun.
    assert!(first.await.is_err());
    bench.sim.stop_until(async {}).await.unwrap();
    assert_eq!(answer.await.unwrap().ending, Ending::Cut);
    assert_eq!(bench.lines.read().len(), 1);
}

#[tokio::test]
async fn nobody_listening_is_an_answer_too() {
    let clock = Clock::start();
    let bench = Bench::start(quick());
    let ask = bench.ask(Protocol::Chat, &[]);
    bench.sim.stop_now().await.unwrap();
    let answer = Client::new(clock).ask(&ask).await;
    assert_eq!((answer.status, answer.ending), (None, Ending::NoAnswer));
}
