//! What a scrape brings, over real sockets, when clients make models up.

use std::{collections::HashSet, io::Read as _};

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
    // Before its first answer a model has no label of its own.
    let finished: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("streamgauge_requests_total{")).collect();
    let model = |line: &str| line.split_once("model=\"")?.1.split_once('"').map(|(name, _)| name.to_owned());
    let models: HashSet<_> = finished.iter().filter_map(|line| model(line)).collect();
    assert!(models.contains("invented-0") && models.len() <= MOST_MODELS, "{models:?}");
    let counts = finished.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    assert_eq!(counts.sum::<f64>(), INVENTED as f64, "what has no label of its own is counted all the same");
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
