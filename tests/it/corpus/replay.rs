//! Replayed through the whole data plane, cut at many places: the same bytes, the same first output, the same counts.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::sleep;

use super::{REQUIRED, Recording, Row, corpus, expected};
use crate::support::{LAST_CHUNK, Peer, World, WorldOptions};

/// How a body is cut into frames, one a millisecond.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// After each event, so that the time of each is known.
    Events,
    /// Every so many bytes.
    Width(usize),
}

const CUTS: [Cut; 5] = [Cut::Events, Cut::Width(1), Cut::Width(7), Cut::Width(64), Cut::Width(usize::MAX)];

/// A quarter of a megabyte byte by byte says no more than four kilobytes do.
const MOST_FRAMES: usize = 20_000;

#[tokio::test(start_paused = true)]
async fn recorded_replies_pass_the_whole_proxy() {
    let Some(corpus) = corpus() else { return };
    let (mut recordings, mut replays) = (0, 0);
    for (table, streamed) in [("EXPECTED.tsv", true), ("EXPECTED_NONSTREAM.tsv", false)] {
        for row in expected(&corpus, table) {
            if !REQUIRED.contains(&row["dialect"].as_str()) {
                continue;
            }
            let name = format!("{}/{}", row["dialect"], row["name"]);
            // What is stored compressed is not read.
            let Some(recording) = Recording::load(&corpus, &row["dialect"], &row["name"]) else { continue };
            recordings += 1;
            for cut in CUTS {
                if let Cut::Width(width) = cut
                    && recording.body.len() / width > MOST_FRAMES
                {
                    continue;
                }
                replay(&recording, &row, streamed, cut, &name).await;
                replays += 1;
            }
        }
    }
    println!("{recordings} recordings were replayed through the proxy, {replays} times in all");
    assert!(recordings >= 73, "the required families have more recordings");
}

async fn replay(recording: &Recording, row: &Row, streamed: bool, cut: Cut, name: &str) {
    let mut world = World::new(WorldOptions { pipe: 1 << 20, ..WorldOptions::default() });
    let mut client = world.client();
    let method = &recording.request.method;
    let path = recording.request.uri.path_and_query().map_or("/", |path| path.as_str());
    let body = &recording.request_body;
    let kind = "content-type: application/json\r\nanthropic-version: 2023-06-01\r\n";
    let kind = if row["dialect"] == "anthropic" { kind } else { "content-type: application/json\r\n" };
    client
        .send(format!(
            "{method} {path} HTTP/1.1\r\nhost: gauge.test\r\n{kind}content-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;

    let mut upstream = world.upstream().await;
    upstream.head().await;
    assert_eq!(upstream.read(body.len()).await, body.as_bytes(), "{name}: the request's bytes");
    let head = head_text(recording.head.status.as_u16(), &recording.head.headers);
    upstream.send(&head).await;
    let content_type = recording.head.headers.get("content-type").and_then(|value| value.to_str().ok());
    let pieces = pieces(&recording.body, cut, content_type.unwrap_or_default());
    for piece in &pieces {
        sleep(Duration::from_millis(1)).await;
        upstream.send(format!("{:x}\r\n", piece.len())).await;
        upstream.send(piece).await;
        upstream.send("\r\n").await;
    }
    upstream.send(LAST_CHUNK).await;

    assert_eq!(client.head().await, head, "{name}: the head as it came");
    assert!(chunked_body(&mut client).await == recording.body, "{name} {cut:?}: the bytes as they came");

    let record = world.record().await;
    let number = |key: &str| row[key].parse::<u64>().ok();
    let usage = &record.facts.usage;
    let got = [usage.input, usage.output, usage.reasoning, usage.cached, usage.cache_write];
    let expected =
        ["input_total", "output_total", "reasoning_tokens", "cached_tokens", "cache_write_tokens"].map(number);
    assert_eq!(got, expected, "{name} {cut:?}: token counts");
    assert_eq!(record.response_bytes, recording.body.len() as u64, "{name} {cut:?}: bytes");
    if streamed {
        assert_eq!(Some(record.events), number("n_events"), "{name} {cut:?}: events");
        assert_eq!(Some(record.output_events), number("gen_events"), "{name} {cut:?}: output events");
        if let Cut::Events = cut {
            // Event k is whole with the frame sent in millisecond k + 1.
            let at = |key: &str| number(key).map(|event| Duration::from_millis(event + 1).into());
            assert_eq!(record.timeline.ttft(), at("first_gen"), "{name}: first output event");
            assert_eq!(record.timeline.answer_ttft(), at("first_answer"), "{name}: first answer event");
        }
    }
    world.assert_no_record();
}

/// A chunked body up to its end, whatever its chunks: a large one may leave in more than it came in.
async fn chunked_body(client: &mut Peer) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let size = client.read_to("\r\n").await;
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk's size");
        body.extend(client.read(size).await);
        client.read_to("\r\n").await;
        if size == 0 {
            return body;
        }
    }
}

/// The recorded head, its framing made anew as the body is sent anew.
fn head_text(status: u16, headers: &HeaderMap) -> String {
    let hop = ["connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding"];
    let status = http::StatusCode::from_u16(status).expect("a status");
    let kept = headers.iter().filter(|(name, _)| !hop.contains(&name.as_str()));
    let lines = kept.map(|(name, value)| format!("{name}: {}\r\n", value.to_str().expect("text")));
    format!("HTTP/1.1 {status}\r\n{}transfer-encoding: chunked\r\n\r\n", lines.collect::<Vec<_>>().concat())
}

fn pieces<'a>(body: &'a [u8], cut: Cut, content_type: &str) -> Vec<&'a [u8]> {
    match cut {
        Cut::Width(width) => body.chunks(width.min(body.len().max(1))).collect(),
        Cut::Events if content_type.contains("eventstream") => {
            let (mut pieces, mut rest) = (Vec::new(), body);
            while let Some(len) = rest.first_chunk().map(|len| u32::from_be_bytes(*len) as usize) {
                let (message, behind) = rest.split_at(len);
                pieces.push(message);
                rest = behind;
            }
            pieces
        }
        Cut::Events if content_type.contains("ndjson") => body.split_inclusive(|byte| *byte == b'\n').collect(),
        Cut::Events => {
            let mut pieces = Vec::new();
            let (mut start, mut data) = (0, false);
            let mut line = 0;
            for (at, _) in body.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                let text = body[line..at].strip_suffix(b"\r").unwrap_or(&body[line..at]);
                data |= text.starts_with(b"data");
                line = at + 1;
                // A blank line ends an event; what carries no data goes with the next one.
                if text.is_empty() && data {
                    pieces.push(&body[start..line]);
                    (start, data) = (line, false);
                }
            }
            if start < body.len() {
                pieces.push(&body[start..]);
            }
            pieces
        }
    }
}
