//! The live page's events.

use std::{io::Read, net::SocketAddr, time::Duration};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use streamgauge::clock::Nanos;
use tokio::net::TcpStream;

use super::{gauge, stream};
use crate::support::{LAST_CHUNK, Peer, SSE_HEAD, chat_delta, chat_end, chat_request, chunk};

/// Somebody who looks at the page.
struct Viewer(Peer);

impl Viewer {
    /// Asks for the events; gives back the answer's head, too.
    async fn of(admin: SocketAddr, lines: &str) -> (String, Self) {
        let mut peer = Peer::new(Box::new(TcpStream::connect(admin).await.unwrap()));
        peer.send(format!("GET /live HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")).await;
        (peer.head().await, Self(peer))
    }

    /// The bytes of one look: a chunk.
    async fn chunk(&mut self) -> Vec<u8> {
        let size = self.0.read_to("\r\n").await;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let chunk = self.0.read(size).await;
        self.0.read_to("\r\n").await;
        chunk
    }

    /// The events of one look, by name.
    async fn look(&mut self) -> Value {
        let text = String::from_utf8(self.chunk().await).unwrap();
        let events = text.split_terminator("\n\n").map(|event| {
            let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
            (name.to_owned(), serde_json::from_str::<Value>(data).unwrap())
        });
        events.collect::<serde_json::Map<_, _>>().into()
    }

    /// Looks until this is so.
    async fn until(&mut self, so: impl Fn(&Value) -> bool) -> Value {
        let looking = async {
            loop {
                let look = self.look().await;
                if so(&look) {
                    return look;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), looking).await.expect("it comes to be so")
    }
}

#[tokio::test]
async fn an_exchange_shows_while_it_runs_and_then_as_its_record() {
    let mut live = gauge().await;
    let (head, mut viewer) = Viewer::of(live.admin.unwrap(), "").await;
    assert!(
        head.contains("content-type: text/event-stream\r\n") && head.contains("cache-control: no-store\r\n"),
        "{head}"
    );
    let first = viewer.look().await;
    assert_eq!(first["now"]["running"], json!([]));
    assert_eq!(first.get("exchanges"), None, "nothing has ended");

    // Whatever a client calls its model, it ends no event.
    let model = r"<b>x</b>\n\nevent: now";
    let mut client = live.client().await;
    client.send(chat_request(model)).await;
    let mut up = live.upstream().await;
    up.read_to("[]}").await;
    let waiting = viewer.until(|look| look["now"]["running"][0]["doing"] == "waiting").await;
    let [pair, running] = [&waiting["now"]["pairs"][0], &waiting["now"]["running"][0]];
    assert_eq!(
        (&pair["in_flight"], &running["model"], &running["upstream"]),
        (&json!(1), &json!("<b>x</b>\n\nevent: now"), &json!("up"))
    );
    assert!(
        pair["oldest_wait_s"].as_f64() > Some(0.0) && running["age_s"].as_f64() >= running["sent_s"].as_f64(),
        "{waiting}"
    );
    assert_eq!(running.get("ttft_s"), None);

    up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
    client.read_to("\"a\"").await;
    let streaming = viewer.until(|look| look["now"]["running"][0]["doing"] == "streaming").await;
    let ttft = streaming["now"]["running"][0]["ttft_s"].as_f64().unwrap();
    assert_eq!(streaming["now"]["oldest_wait_s"], Value::Null, "nobody waits any more");

    up.send(format!("{}{LAST_CHUNK}", chunk(&chat_end(3, 1)))).await;
    client.read_to(LAST_CHUNK).await;
    let record = live.record().await;
    assert_eq!(record.timeline.ttft().map(Nanos::seconds), Some(ttft), "what ran and what has ended are one");
    let ended = viewer.until(|look| look.get("exchanges").is_some()).await;
    assert_eq!(ended["exchanges"][0]["id"], record.id.to_string());
    let now = viewer.until(|look| look["now"]["in_flight"] == 0).await["now"].take();
    let pair = &now["pairs"][0];
    assert_eq!(
        (&pair["ttft_s"]["n"], &pair["ttft_s"]["p50"], &pair["outcomes"]),
        (&json!(1), &json!(ttft), &json!({ "complete": 1 }))
    );
    assert_eq!((&now["ready"], &now["exchanges"], &now["forgotten"]), (&json!(true), &json!(1), &json!(false)));
    assert_eq!(viewer.look().await.get("exchanges"), None, "once");
    live.finish().await;
}

#[tokio::test]
async fn who_comes_later_gets_what_is_remembered_compressed_if_wanted() {
    let mut live = gauge().await;
    let mut up = None;
    for _ in 0..3 {
        stream(&live, &mut up, "m", "").await;
        live.record().await;
    }
    let (head, mut viewer) = Viewer::of(live.admin.unwrap(), "Accept-Encoding: br, gzip\r\n").await;
    assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
    let zipped = viewer.chunk().await;
    let mut text = vec![0; 64 * 1024];
    let mut decoder = GzDecoder::new(&*zipped);
    let mut read = 0;
    // As much as one look has; the compressed stream goes on behind it.
    while let Ok(more @ 1..) = decoder.read(&mut text[read..]) {
        read += more;
    }
    let text = String::from_utf8_lossy(&text[..read]).into_owned();
    assert!(text.starts_with("event: begin\n") && text.ends_with("\n\n"), "{text}");
    assert_eq!(text.matches("\"outcome\":\"complete\"").count(), 3, "{text}");
    assert!(zipped.len() < text.len() / 3, "{} of {}", zipped.len(), text.len());
    live.finish().await;
}

#[tokio::test]
async fn eight_may_look_and_a_ninth_when_one_has_left() {
    let live = gauge().await;
    let admin = live.admin.unwrap();
    let mut viewers = Vec::new();
    for _ in 0..8 {
        let (head, viewer) = Viewer::of(admin, "").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        viewers.push(viewer);
    }
    assert!(Viewer::of(admin, "").await.0.starts_with("HTTP/1.1 503 "));
    viewers.pop();
    tokio::time::timeout(Duration::from_secs(30), async {
        while !Viewer::of(admin, "").await.0.starts_with("HTTP/1.1 200 ") {}
    })
    .await
    .expect("the seat is free again");
    live.finish().await;
}

#[tokio::test]
async fn a_viewer_sees_the_drain_and_does_not_hold_it_up() {
    let mut live = gauge().await;
    let mut client = live.client().await;
    client.send(chat_request("m")).await;
    let mut up = live.upstream().await;
    up.read_to("[]}").await;
    let (_, mut viewer) = Viewer::of(live.admin.unwrap(), "").await;
    viewer.until(|look| look["now"]["ready"] == true && look["now"]["in_flight"] == 1).await;
    live.drain();
    viewer.until(|look| look["now"]["ready"] == false && look["now"]["in_flight"] == 1).await;
    up.send(format!("{SSE_HEAD}{}{}{LAST_CHUNK}", chunk(&chat_delta("a")), chunk(&chat_end(3, 1)))).await;
    client.read_to(LAST_CHUNK).await;
    live.record().await;
    live.finish().await;
    // The connection ends with the program, wherever in its events.
    viewer.0.rest().await;
}
