//! What clients measured themselves, sent in: who is let in, what is taken, and where it shows.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use streamgauge::{
    config::{ClientTimings, Config},
    observation::{Observation, Outcome},
};
use tokio::net::TcpStream;

use crate::support::{LAST_CHUNK, Live, Peer, SSE_HEAD, chat_delta, chat_end, chat_request, chunk};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// A running gauge that takes timings, and its upstream once it was dialled.
struct Gauge {
    live: Live,
    at: SocketAddr,
    up: Option<Peer>,
}

impl Gauge {
    async fn start(change: impl FnOnce(&mut Config, &mut ClientTimings)) -> Self {
        let live = Live::start_with(
            None,
            |_| {},
            |config| {
                let address = (LOOPBACK, 0).into();
                let mut timings = ClientTimings { address, token_file: None, allowed_origins: Vec::new() };
                config.admin = Some((LOOPBACK, 0).into());
                change(config, &mut timings);
                config.client_timings = Some(timings);
            },
        );
        let live = live.await;
        let at = live.client_timings.unwrap();
        Self { live, at, up: None }
    }

    /// One stream of a chat to its end, with this line in its head.
    async fn stream(&mut self, line: &str) -> Observation {
        let mut client = self.live.client().await;
        client.send(chat_request("m").replacen("\r\n", &format!("\r\n{line}"), 1)).await;
        if self.up.is_none() {
            self.up = Some(self.live.upstream().await);
        }
        let up = self.up.as_mut().unwrap();
        up.read_to("[]}").await;
        up.send(format!("{SSE_HEAD}{}{}{LAST_CHUNK}", chunk(&chat_delta("a")), chunk(&chat_end(3, 1)))).await;
        client.read_to(LAST_CHUNK).await;
        let record = self.live.record().await;
        assert_eq!(record.outcome, Outcome::Complete);
        record
    }

    async fn traced(&mut self) -> Observation {
        self.stream(&format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n")).await
    }

    /// What a report is answered with, which must be taken as one.
    async fn report(&self, report: &Value) -> Value {
        let (head, body) = self.post("", report.to_string()).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn post(&self, lines: &str, body: impl AsRef<[u8]>) -> (String, String) {
        let body = body.as_ref();
        let head = format!("POST /client-timings HTTP/1.1\r\nHost: g\r\n{lines}Content-Length: {}\r\n\r\n", body.len());
        send(self.at, [head.as_bytes(), body].concat()).await
    }

    async fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        send(self.live.admin.unwrap(), request).await.1
    }

    /// How many reports of this phase are counted, and their sum in seconds.
    async fn reported(&self, phase: &str) -> (String, String) {
        let metrics = self.get("/metrics").await;
        let value = |kind: &str| {
            let line =
                format!("streamgauge_client_reported_seconds_{kind}{{upstream=\"up\",model=\"m\",phase=\"{phase}\"}} ");
            metrics.lines().find_map(|found| found.strip_prefix(&line)).unwrap_or("-").to_owned()
        };
        (value("count"), value("sum"))
    }
}

/// Head and body of the answer to these bytes.
async fn send(at: SocketAddr, request: impl AsRef<[u8]>) -> (String, String) {
    let mut peer = Peer::new(Box::new(TcpStream::connect(at).await.unwrap()));
    peer.send(request).await;
    let head = peer.head().await;
    (head, String::from_utf8(peer.rest().await).unwrap())
}

fn why(answer: &Value) -> Vec<&str> {
    answer["refused"].as_array().unwrap().iter().map(|refused| refused["why"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_a_client_measured_stands_beside_the_record_and_in_the_metrics() {
    let mut gauge = Gauge::start(|_, _| {}).await;
    assert!(!gauge.get("/metrics").await.contains("client_reported"), "nothing was reported");
    let first = gauge.stream("").await.id.to_string();
    let second = gauge.traced().await.id.to_string();

    let taken = json!({ "accepted": 1, "refused": [] });
    assert_eq!(gauge.report(&json!({ "id": first, "ttft_s": 0.25, "total_s": 2.5 })).await, taken);
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    // Each phase once, but not both at once.
    assert_eq!(gauge.report(&json!({ "traceparent": traceparent, "ttft_s": 0.5 })).await, taken);
    assert_eq!(gauge.report(&json!([{ "trace_id": TRACE.to_uppercase(), "ttft_s": null, "total_s": 3 }])).await, taken);

    assert_eq!(gauge.reported("ttft").await, ("2".to_owned(), "0.75".to_owned()));
    assert_eq!(gauge.reported("total").await, ("2".to_owned(), "5.5".to_owned()));
    let shown: Vec<Value> = serde_json::from_str(&gauge.get("/exchanges").await).unwrap();
    let said: Vec<_> = shown.iter().map(|record| (&record["id"], &record["client_reported_s"])).collect();
    let wanted =
        [(json!(second), json!({ "ttft": 0.5, "total": 3.0 })), (json!(first), json!({ "ttft": 0.25, "total": 2.5 }))];
    assert_eq!(said, [(&wanted[0].0, &wanted[0].1), (&wanted[1].0, &wanted[1].1)]);
    gauge.live.finish().await;
}

#[tokio::test]
async fn what_can_not_be_so_is_refused_one_by_one_and_nothing_of_it_kept() {
    let mut gauge = Gauge::start(|config, _| config.recent = 3).await;
    let gone = gauge.stream("").await.id.to_string();
    let id = gauge.stream("").await.id.to_string();
    gauge.traced().await;
    gauge.traced().await;
    let answer = gauge
        .report(&json!([
            { "id": id, "ttft_s": 0.25 },
            { "id": id, "ttft_s": 0.3, "total_s": 1 },
            { "id": gone, "ttft_s": 0.25 },
            { "id": "00000000000000aa", "total_s": 1 },
            { "id": "aa", "total_s": 1 },
            { "trace_id": TRACE, "total_s": 1 },
            { "traceparent": "00-abc-01", "total_s": 1 },
            { "id": id, "total_s": -0.1 },
            { "id": id, "total_s": 3700 },
            { "id": id, "total_s": 1e300 },
            { "id": id, "total_s": "1" },
            { "id": id, "ttft_s": 2, "total_s": 1 },
            { "id": id },
            { "total_s": 1 },
            { "id": id, "total": 1 },
            17,
            { "id": id, "total_s": 0 },
        ]))
        .await;
    assert_eq!(answer["accepted"], 2, "the first and the last: {answer:#}");
    let indices: Vec<_> = answer["refused"].as_array().unwrap().iter().map(|r| r["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, (1..=15).collect::<Vec<_>>());
    let wanted = [
        "`ttft_s` of this exchange was reported before",
        "no exchange that is remembered fits",
        "no exchange that is remembered fits",
        "`id` has 16 hexadecimal digits",
        "2 exchanges have this trace id: give `id`",
        "`traceparent` is not as W3C has it",
        "`total_s` must be a number of seconds, 0 or more",
        "`total_s` is over an hour more than the exchange took",
        "`total_s` must be a number of seconds",
        "invalid type: string",
        "`ttft_s` is more than `total_s`",
        "nothing is reported",
        "of which exchange?",
        "unknown field `total`",
        "invalid type: integer",
    ];
    for (why, wanted) in why(&answer).into_iter().zip(wanted) {
        assert!(why.starts_with(wanted), "{why}, not {wanted}");
    }
    assert_eq!(gauge.reported("ttft").await.0, "1");
    assert_eq!(gauge.reported("total").await, ("1".to_owned(), "0.0".to_owned()));
    gauge.live.finish().await;
}

#[tokio::test]
async fn bodies_that_are_no_reports_are_told_so() {
    let gauge = Gauge::start(|_, _| {}).await;
    let many = json!(vec![json!({ "id": "0000000000000001", "total_s": 1 }); 101]).to_string();
    let deep = "[".repeat(60_000);
    for (body, status, said) in [
        ("", "400", "this is no JSON"),
        ("{", "400", "this is no JSON"),
        ("\u{0}", "400", "this is no JSON"),
        ("{\"id\":\"0000000000000001\",\"total_s\":1e999}", "400", "this is no JSON"),
        ("3", "400", "wanted is a JSON object"),
        (many.as_str(), "400", "101 reports; at most 100"),
        (deep.as_str(), "400", "this is no JSON: recursion limit"),
    ] {
        let (head, answer) = gauge.post("", body).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && answer.starts_with(said), "{head}{answer}");
    }
    let (head, _) = send(gauge.at, "POST /client-timings HTTP/1.1\r\nHost: g\r\nContent-Length: 65537\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    // Of a length that is not said. The answer may come before all of it is taken.
    let mut peer = Peer::new(Box::new(TcpStream::connect(gauge.at).await.unwrap()));
    peer.send("POST /client-timings HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    peer.send(chunk(&"[".repeat(65_537))).await;
    assert!(peer.head().await.starts_with("HTTP/1.1 413 "));
    let (head, _) = send(gauge.at, "GET /client-timings HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    let (head, _) = send(gauge.at, "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    gauge.live.finish().await;
}

#[tokio::test]
async fn with_a_token_who_has_none_is_not_let_in() {
    let file = std::env::temp_dir().join(format!("streamgauge-token-{}", std::process::id()));
    std::fs::write(&file, "s3cret-0123456789\n").unwrap();
    let path: PathBuf = file.clone();
    let mut gauge = Gauge::start(move |_, timings| timings.token_file = Some(path)).await;
    std::fs::remove_file(&file).unwrap();
    let id = gauge.stream("").await.id.to_string();
    let report = json!({ "id": id, "total_s": 1 }).to_string();
    let wrong = [
        "",
        "Bearer ",
        "Bearer s3cret-0123456788",
        "Bearer s3cret-01234567890",
        "Basic s3cret-0123456789",
        "s3cret-0123456789",
    ];
    for wrong in wrong {
        let line = if wrong.is_empty() { String::new() } else { format!("Authorization: {wrong}\r\n") };
        let (head, _) = gauge.post(&line, &report).await;
        assert!(
            head.starts_with("HTTP/1.1 401 ") && head.contains("www-authenticate: Bearer\r\n"),
            "{wrong:?}: {head}"
        );
    }
    let (head, body) = gauge.post("authorization: bearer s3cret-0123456789\r\n", &report).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "{\"accepted\":1,\"refused\":[]}", "{head}{body}");
    gauge.live.finish().await;
}

#[tokio::test]
async fn pages_of_allowed_origins_are_let_in_and_no_others() {
    const PAGE: &str = "https://app.example";
    let mut gauge = Gauge::start(|_, timings| timings.allowed_origins = vec![PAGE.to_owned()]).await;
    let id = gauge.stream("").await.id.to_string();
    // As a beacon sends it: text, without a question before it.
    let report = json!({ "id": id, "total_s": 1 }).to_string();
    let beacon = |origin: &str| format!("Origin: {origin}\r\nContent-Type: text/plain;charset=UTF-8\r\n");
    for origin in ["https://evil.example", "null", "http://app.example", "https://app.example:8443"] {
        let (head, _) = gauge.post(&beacon(origin), &report).await;
        assert!(head.starts_with("HTTP/1.1 403 ") && !head.contains("access-control"), "{origin}: {head}");
    }
    let (head, body) = gauge.post(&beacon(PAGE), &report).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body.starts_with("{\"accepted\":1"), "{head}{body}");
    assert!(
        head.contains(&format!("access-control-allow-origin: {PAGE}\r\n")) && head.contains("vary: origin\r\n"),
        "{head}"
    );

    let asks = |origin: &str| {
        format!(
            "OPTIONS /client-timings HTTP/1.1\r\nHost: g\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n\
             Access-Control-Request-Headers: content-type\r\n\r\n"
        )
    };
    let (head, _) = send(gauge.at, asks(PAGE)).await;
    assert!(head.starts_with("HTTP/1.1 204 ") && head.contains("access-control-allow-methods: POST\r\n"), "{head}");
    assert!(head.contains("access-control-allow-headers: authorization, content-type\r\n"), "{head}");
    let (head, _) = send(gauge.at, asks("https://evil.example")).await;
    assert!(head.starts_with("HTTP/1.1 403 ") && !head.contains("access-control"), "{head}");
    gauge.live.finish().await;
}

#[tokio::test]
async fn callers_that_hold_connections_are_closed_above_a_bound_and_never_hold_up_traffic() {
    let mut gauge = Gauge::start(|_, _| {}).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut peer = Peer::new(Box::new(TcpStream::connect(gauge.at).await.unwrap()));
        peer.send("POST /client-timings HTTP/1.1\r\nHost").await;
        held.push(peer);
    }
    // They are taken in their order, so the next is the 65th.
    let mut refused = Peer::new(Box::new(TcpStream::connect(gauge.at).await.unwrap()));
    refused.assert_closed().await;
    let id = gauge.stream("").await.id.to_string();
    // Those that hold on say no more, and are closed for it: then there is room again.
    for mut peer in held {
        peer.rest().await;
    }
    let taken = tokio::time::timeout(Duration::from_secs(60), gauge.report(&json!({ "id": id, "total_s": 1 }))).await;
    assert_eq!(taken.unwrap()["accepted"], 1);
    gauge.live.finish().await;
}

#[tokio::test]
async fn it_needs_no_admin_listener_and_is_not_there_unless_set() {
    let mut gauge = Gauge::start(|config, _| config.admin = None).await;
    assert!(gauge.live.admin.is_none());
    let id = gauge.stream("").await.id.to_string();
    assert_eq!(gauge.report(&json!({ "id": id, "total_s": 1 })).await["accepted"], 1);
    gauge.live.finish().await;

    let off = Live::start_with(None, |_| {}, |config| config.admin = Some((LOOPBACK, 0).into())).await;
    assert!(off.client_timings.is_none());
    let request = "GET /metrics HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n";
    assert!(!send(off.admin.unwrap(), request).await.1.contains("client_reported"));
    off.finish().await;
}
