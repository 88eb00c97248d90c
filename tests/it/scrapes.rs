//! What a scrape brings, over real sockets, when clients make models up.

use std::io::Read as _;

use flate2::read::GzDecoder;
use tokio::net::TcpStream;

use crate::support::{Live, Peer, chat_request, value};

const INVENTED: usize = 10_000;
const MAX_SERIES: usize = 32_000;
/// Names per upstream that become labels, and `_other`.
const MOST_MODELS: usize = 64 + 1;

#[tokio::test]
async fn ten_thousand_invented_models_leave_a_scrape_bounded_and_zipped() {
    let mut live = Live::start_with(None, |_| {}, |config| config.admin = Some(([127, 0, 0, 1], 0).into())).await;
    let mut client = live.client().await;
    let mut up = None;
    for number in 0..INVENTED {
        client.send(chat_request(&format!("invented-{number}"))).await;
        if up.is_none() {
            up = Some(live.upstream().await);
        }
        let up = up.as_mut().unwrap();
        up.read_to("[]}").await;
        // Every other is even answered, as providers do that take any name.
        let status = if number % 2 == 0 { "200 OK" } else { "404 Not Found" };
        up.send(format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}")).await;
        client.read_to("{}").await;
        live.record().await;
    }
    let (zipped, plain) = (scrape(&live, "gzip").await, scrape(&live, "identity").await);
    assert!(zipped.0.contains("content-encoding: gzip\r\n"), "{}", zipped.0);
    assert!(!plain.0.contains("content-encoding"), "{}", plain.0);
    let mut text = String::new();
    GzDecoder::new(zipped.1.as_slice()).read_to_string(&mut text).unwrap();
    assert!(text.ends_with("# EOF\n"), "all of it came");
    assert!(10 * zipped.1.len() < plain.1.len(), "{} bytes of {}", zipped.1.len(), plain.1.len());

    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series <= MAX_SERIES, "{series} series");
    let started = |line: &&str| line.starts_with("streamgauge_requests_started_total{");
    let models = text.lines().filter(started).count();
    assert!(models <= MOST_MODELS, "{models} models");
    assert_eq!(value(&text, r#"requests_started_total{upstream="up",model="invented-0"} "#), Some(1.0));
    let total: f64 = text.lines().filter(started).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert_eq!(total, INVENTED as f64, "what has no label of its own is counted all the same");
    assert!(value(&text, "series_overflow_total ").is_some());
    drop((client, up));
    live.finish().await;
}

/// Head and body of a scrape as Prometheus asks for it.
async fn scrape(live: &Live, coding: &str) -> (String, Vec<u8>) {
    let mut peer = Peer::new(Box::new(TcpStream::connect(live.admin.unwrap()).await.unwrap()));
    let head = format!(
        "GET /metrics HTTP/1.1\r\nhost: g\r\naccept: application/openmetrics-text;version=1.0.0\r\n\
         accept-encoding: {coding}\r\nconnection: close\r\n\r\n"
    );
    peer.send(head).await;
    let head = peer.head().await;
    (head, peer.rest().await)
}
