//! What the admin listener serves, over real sockets.

mod live;
mod page;

use std::net::SocketAddr;

use serde_json::Value;
use tokio::net::TcpStream;

use crate::support::{LAST_CHUNK, Live, Peer, SSE_HEAD, chat_delta, chat_end, chat_request, chunk};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Head and body of what the admin listener answers.
async fn get(admin: SocketAddr, path: &str) -> (String, String) {
    get_with(admin, path, "Host: localhost\r\n").await
}

/// The same of a request with these header lines.
async fn get_with(admin: SocketAddr, path: &str, lines: &str) -> (String, String) {
    let mut peer = Peer::new(Box::new(TcpStream::connect(admin).await.unwrap()));
    peer.send(format!("GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")).await;
    let head = peer.head().await;
    (head, String::from_utf8(peer.rest().await).unwrap())
}

/// A gauge with an admin listener.
async fn gauge() -> Live {
    Live::start_with(None, |_| {}, |config| config.admin = Some(([127, 0, 0, 1], 0).into())).await
}

/// One stream of a chat to its end.
async fn stream(live: &Live, up: &mut Option<Peer>, model: &str, header: &str) {
    let mut client = live.client().await;
    client.send(chat_request(model).replacen("\r\n", &format!("\r\n{header}"), 1)).await;
    if up.is_none() {
        *up = Some(live.upstream().await);
    }
    let up = up.as_mut().unwrap();
    up.read_to("[]}").await;
    up.send(format!("{SSE_HEAD}{}{}{LAST_CHUNK}", chunk(&chat_delta("a")), chunk(&chat_end(3, 1)))).await;
    client.read_to(LAST_CHUNK).await;
}

#[tokio::test]
async fn the_last_exchanges_are_served_newest_first_by_trace_id_or_whatever_is_asked() {
    let mut live = gauge().await;
    let admin = live.admin.unwrap();
    let (head, body) = get(admin, "/exchanges").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "[]", "{head}{body}");
    assert!(
        head.contains("content-type: application/json\r\n") && head.contains("cache-control: no-store\r\n"),
        "{head}"
    );

    let mut up = None;
    stream(&live, &mut up, "m", "").await;
    let first = live.record().await;
    stream(&live, &mut up, "n", &format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n")).await;
    let second = live.record().await;

    let records = async |query: &str| -> Vec<Value> {
        let (head, body) = get(admin, &format!("/exchanges{query}")).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
        serde_json::from_str(&body).unwrap()
    };
    let all = records("").await;
    let ids: Vec<_> = all.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, [second.id.to_string(), first.id.to_string()]);
    assert_eq!((&all[0]["model"], &all[0]["trace_id"]), (&"n".into(), &TRACE.into()));
    assert_eq!(all[0]["ttft_s"].as_f64(), second.timeline.ttft().map(|ttft| ttft.0 as f64 / 1e9));
    assert_eq!(records(&format!("?trace_id={TRACE}")).await, all[..1]);
    assert_eq!(records("?model=m&limit=5").await, all[1..]);
    assert!(records("?outcome=rate_limited").await.is_empty());

    let (head, body) = get(admin, "/exchanges?trace=1").await;
    assert!(head.starts_with("HTTP/1.1 400 ") && body.starts_with("`trace` is no parameter"), "{head}{body}");
    for index in ["/", "/help"] {
        assert!(get(admin, index).await.1.contains("/exchanges"), "the index names it");
    }
    live.finish().await;
}
