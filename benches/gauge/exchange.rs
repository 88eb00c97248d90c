//! A whole plain exchange of some 300 bytes each way but for HTTP, sockets and clocks: recognised, read on its way up,
//! aimed, answered, read on its way down, booked in every family, and its record written.
//!
//! ```text
//! gauge exchange             nanoseconds and allocations of each
//! gauge exchange walk N      N exchanges and nothing else, for an instruction counter
//! gauge exchange heads N     their heads alone, as HTTP would have made them: to subtract
//! gauge exchange record N    N records of such an exchange
//! ```

use std::{hint::black_box, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version, request, response, uri::PathAndQuery};
use streamgauge::{
    access_log::record_json,
    clock::{Clock, Nanos, Stamp},
    config::{Config, Upstream},
    dialect::{Recognised, RequestScan, recognise},
    exchange::{Cause, Exchange, Sent},
    forward, http1,
    observation::{ExchangeId, Observation, Outcome},
    record::{Marked, Recorder, UpstreamHandles},
    timeline::Timeline,
    upload::Upload,
};

use crate::median;

const WARM_UP: usize = 64;
const ROUNDS: usize = 9;
const EXCHANGES: usize = 20_000;

const PATH: &str = "/v1/chat/completions";
const ASKED: &[u8] = br#"{"model":"gauge-1","messages":[{"role":"system","content":"You are a gauge beside a river."},{"role":"user","content":"How high does the water stand today, and how high will it stand tomorrow?"}],"temperature":0.2,"max_tokens":64,"stream":false}"#;
const ANSWERED: &[u8] = br#"{"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion","created":1741570283,"model":"gauge-1-2025-08-07","choices":[{"index":0,"message":{"role":"assistant","content":"Three feet and four inches."},"finish_reason":"stop"}],"usage":{"prompt_tokens":35,"completion_tokens":16,"total_tokens":51}}"#;
const REQUEST: [(&str, &str); 7] = [
    ("host", "127.0.0.1:8080"),
    ("accept", "application/json"),
    ("content-type", "application/json"),
    ("user-agent", "bench/1.0"),
    ("authorization", "Bearer sk-none"),
    ("x-stainless-lang", "rust"),
    ("content-length", "251"),
];
const RESPONSE: [(&str, &str); 8] = [
    ("date", "Mon, 30 Nov 2026 23:50:22 GMT"),
    ("content-type", "application/json"),
    ("content-length", "311"),
    ("x-request-id", "req_0b845c645c931bf1"),
    ("openai-processing-ms", "417"),
    ("x-ratelimit-limit-requests", "500"),
    ("x-ratelimit-remaining-requests", "499"),
    ("x-ratelimit-reset-requests", "120ms"),
];

pub(crate) fn run(arguments: &[&str]) {
    let number = |text: &str| text.parse::<usize>().expect("a number of exchanges");
    match *arguments {
        ["walk", exchanges] => Bench::begin().walk(WARM_UP + number(exchanges)),
        ["heads", exchanges] => heads(WARM_UP + number(exchanges)),
        ["record", records] => Bench::begin().records(number(records)),
        _ => report(),
    }
}

fn report() {
    let bench = Bench::begin();
    bench.walk(WARM_UP);
    let allocations = |work: &dyn Fn(usize)| allocation_counter::measure(|| work(1_000)).count_total as f64 / 1_000.0;
    let clock = Clock::start();
    let timed = |work: &dyn Fn(usize)| {
        let before = clock.now();
        work(EXCHANGES);
        clock.now().since(before).0 as f64 / EXCHANGES as f64
    };
    let walks: [(&str, &dyn Fn(usize)); 3] = [
        ("exchange", &|exchanges| bench.walk(exchanges)),
        ("of it its heads, which are HTTP's", &heads),
        ("of it its record", &|records| bench.records(records)),
    ];
    println!("| what | ns (median of {ROUNDS}) | allocations |");
    println!("|---|---|---|");
    let mut spans = vec![Vec::new(); walks.len()];
    for _ in 0..ROUNDS {
        // Side by side, so that a busy moment of the machine meets all of them.
        spans.iter_mut().zip(&walks).for_each(|(spans, (_, work))| spans.push(timed(work)));
    }
    for ((name, work), spans) in walks.iter().zip(spans) {
        println!("| {name} | {:.0} | {:.1} |", median(spans), allocations(work));
    }
}

struct Bench {
    recorder: Arc<Recorder>,
    handles: Arc<UpstreamHandles>,
    upstream: Arc<Upstream>,
    path: PathAndQuery,
    clock: Clock,
}

impl Bench {
    fn begin() -> Self {
        let clock = Clock::start();
        let config = Config::from_toml(
            "[[upstreams]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\nmodels = [\"gauge-1\"]\n",
            std::path::Path::new("bench.toml"),
            &streamgauge::config::Overrides::default(),
        )
        .expect("a valid configuration");
        let recorder = Recorder::new(&config, clock).expect("no file to open");
        // What the access log's thread does.
        let written = |seen: &Observation| {
            black_box(record_json(seen));
        };
        let recorder = Arc::new(recorder.with_listener(Box::new(written)));
        let handles = recorder.upstream(&"u".into());
        let upstream = Arc::clone(&config.upstreams[0]);
        Self { recorder, handles, upstream, path: PathAndQuery::from_static(PATH), clock }
    }

    fn walk(&self, exchanges: usize) {
        let head = self.clock.now();
        (0..exchanges).for_each(|number| self.exchange(head, number));
    }

    /// As the proxy does it, with made stamps.
    fn exchange(&self, head: Stamp, number: usize) {
        let at =
            |micros: u64| Stamp::from_nanos(head.nanos() + number as u64 * 1_000_003 + micros * 1_001).unwrap_or(head);
        let mut parts = asked();
        let recognised = recognise(&parts, None);
        let (exchange, upload) = self.begun(at(0), number, recognised, &parts);
        let mut exchange = exchange;
        black_box((forward::ambiguity(&parts), forward::is_upgrade(&parts), http1::expects_continue(&parts.headers)));

        let mut scan = RequestScan::new(recognised, &parts);
        exchange.attempt(at(20), None);
        exchange.leased(at(30), true, false);
        forward::aim(&mut parts, &self.path, &self.upstream, Version::HTTP_11);
        black_box(parts);
        upload.add(ASKED.len() as u64);
        if let Some(facts) = scan.read(ASKED) {
            upload.start_with(facts, &self.recorder, &self.handles, at(0));
        }
        upload.note_end(at(0), at(31), Nanos::ZERO);
        exchange.sent(Sent {
            first: Some(at(32)),
            last: Some(at(40)),
            upload: Nanos::ZERO,
            stalled: Nanos::ZERO,
            stalls: 0,
        });
        self.handles.attempt("ok");

        let mut parts = answered();
        exchange.head(at(900), &parts, Some(recognised.dialect));
        exchange.seen().upstream_request_id = forward::upstream_request_id(&parts.headers);
        forward::answer_head(&mut parts, Version::HTTP_11);
        black_box(parts);
        exchange.data(at(900), ANSWERED, Nanos::ZERO);
        exchange.response_end(at(900), Nanos::ZERO);
        exchange.departed(at(940), Nanos::ZERO);
        exchange.finish(at(940), Cause::Ended);
    }

    fn begun(
        &self,
        head: Stamp,
        number: usize,
        recognised: Recognised,
        parts: &request::Parts,
    ) -> (Box<Exchange>, Arc<Upload>) {
        let timeline = Timeline::begin(head);
        let id = ExchangeId((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut seen = Observation::begin(id, self.clock.wall(head), timeline, Outcome::GatewayError);
        (seen.endpoint, seen.dialect) = (recognised.endpoint, recognised.dialect);
        seen.method = Some(parts.method.clone());
        seen.path = Some(parts.uri.path().to_owned());
        seen.connection.client_version = Some(parts.version);
        let told = forward::told(&parts.headers, seen.time);
        (seen.trace_id, seen.client_sent) = (told.trace_id, told.client_sent);
        seen.upstream = Some(Arc::clone(&self.upstream.name));
        let upload = Arc::new(Upload::default());
        let (recorder, handles) = (Arc::clone(&self.recorder), Some(Arc::clone(&self.handles)));
        (Exchange::begin(seen, recorder, handles, Arc::clone(&upload), Marked::default()), upload)
    }

    fn records(&self, records: usize) {
        self.exchange(self.clock.now(), 0);
        let last = self.recorder.recent().newest(1, |_| true);
        let seen = &last.first().expect("the exchange just finished").observation;
        (0..records).for_each(|_| {
            black_box(record_json(seen));
        });
    }
}

fn heads(exchanges: usize) {
    (0..exchanges).for_each(|_| {
        black_box((asked(), answered()));
    });
}

fn asked() -> request::Parts {
    let (mut parts, ()) = Request::post(PATH).body(()).expect("a request").into_parts();
    parts.headers = headers(&REQUEST);
    parts
}

fn answered() -> response::Parts {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.headers = headers(&RESPONSE);
    parts
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}
