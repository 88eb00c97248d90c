//! Compressed answers pass as they are and are read all the same: the same events, times and counts as plain ones.

use std::io::Write;

use brotli::CompressorWriter;
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use streamgauge::{
    dialect::ObserverOff,
    observation::{Observation, Outcome},
};
use tokio::time::sleep;
use zstd_safe::{
    CCtx, InBuffer, OutBuffer,
    zstd_sys::ZSTD_EndDirective::{ZSTD_e_end, ZSTD_e_flush},
};

use crate::support::{
    LAST_CHUNK, Sides, World, WorldOptions, chat_delta, chat_end, chat_request, chat_role, ms, ms_of,
};

fn sse_head(coding: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {coding}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    )
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:X}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The parts through an encoder that is flushed after each; the last one holds the encoder's own end too.
fn flushed<W: Write>(
    mut encoder: W,
    parts: &[String],
    taken: fn(&mut W) -> &mut Vec<u8>,
    end: fn(W) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let mut squeezed = Vec::new();
    for part in parts {
        encoder.write_all(part.as_bytes()).unwrap();
        encoder.flush().unwrap();
        squeezed.push(std::mem::take(taken(&mut encoder)));
    }
    squeezed.last_mut().unwrap().extend(end(encoder));
    squeezed
}

fn gzip(parts: &[String]) -> Vec<Vec<u8>> {
    let encoder = GzEncoder::new(Vec::new(), Compression::default());
    flushed(encoder, parts, GzEncoder::get_mut, |encoder| encoder.finish().unwrap())
}

fn zlib(parts: &[String]) -> Vec<Vec<u8>> {
    let encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    flushed(encoder, parts, ZlibEncoder::get_mut, |encoder| encoder.finish().unwrap())
}

fn bare(parts: &[String]) -> Vec<Vec<u8>> {
    let encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    flushed(encoder, parts, DeflateEncoder::get_mut, |encoder| encoder.finish().unwrap())
}

fn brotli(parts: &[String]) -> Vec<Vec<u8>> {
    let encoder = CompressorWriter::new(Vec::new(), 4096, 5, 22);
    flushed(encoder, parts, CompressorWriter::get_mut, CompressorWriter::into_inner)
}

fn zstd(parts: &[String]) -> Vec<Vec<u8>> {
    let mut encoder = CCtx::create();
    let last = parts.len() - 1;
    let squeeze = |(place, part): (usize, &String)| {
        let how = if place == last { ZSTD_e_end } else { ZSTD_e_flush };
        let mut squeezed = Vec::with_capacity(part.len() + 1024);
        let (input, output) = (&mut InBuffer::around(part.as_bytes()), &mut OutBuffer::around(&mut squeezed));
        encoder.compress_stream2(output, input, how).unwrap();
        squeezed
    };
    parts.iter().enumerate().map(squeeze).collect()
}

/// A role at 50 ms, output at 250, 290 and 320 ms, the end at 350 ms.
fn script() -> [(u64, String); 5] {
    [
        (50, chat_role()),
        (200, chat_delta("Hello")),
        (40, chat_delta(" big")),
        (30, chat_delta(" world")),
        (30, chat_end(7, 3)),
    ]
}

/// Plays the script with its parts written like this. Each is with the client when it was sent, byte for byte.
async fn play(head: &str, parts: &[Vec<u8>]) -> (Observation, String) {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    up.send(head).await;
    assert_eq!(client.head().await, head);
    for ((wait, _), part) in script().iter().zip(parts) {
        sleep(ms(*wait)).await;
        let sent = chunk(part);
        let before = world.clock.now();
        up.send(&sent).await;
        assert_eq!(client.read(sent.len()).await, sent);
        assert_eq!(world.clock.now(), before, "nothing is held back");
    }
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    world.assert_no_record();
    (record, world.scrape())
}

#[tokio::test(start_paused = true)]
async fn a_compressed_stream_passes_untouched_and_is_timed_as_a_plain_one() {
    type Squeeze = fn(&[String]) -> Vec<Vec<u8>>;
    let codings: [(&str, Squeeze); 5] =
        [("gzip", gzip), ("deflate", zlib), ("deflate", bare), ("br", brotli), ("zstd", zstd)];
    let parts = script().map(|(_, text)| text);
    for (coding, squeeze) in codings {
        let (record, _) = play(&sse_head(coding), &squeeze(&parts)).await;
        assert_eq!((record.outcome, record.observer_off), (Outcome::Complete, None), "{coding}");
        assert_eq!(ms_of(record.timeline.first_event_time()), Some(50), "{coding}");
        assert_eq!(ms_of(record.timeline.ttft()), Some(250), "{coding}");
        assert_eq!(ms_of(record.timeline.client_ttft()), Some(250), "{coding}");
        assert_eq!(ms_of(record.cadence.max_gap()), Some(40), "{coding}");
        assert_eq!((record.output_events, record.cadence.gaps()), (3, 2), "{coding}");
        assert_eq!((record.facts.usage.input, record.output_tokens()), (Some(7), Some(3)), "{coding}");
        assert_eq!(record.facts.response_model.as_deref(), Some("m-served"), "{coding}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_stream_that_ends_too_early_is_truncated() {
    let parts = script().map(|(_, text)| text);
    let (record, _) = play(&sse_head("gzip"), &gzip(&parts)[..3]).await;
    assert_eq!((record.outcome, record.observer_off), (Outcome::Truncated, None));
    assert_eq!(ms_of(record.timeline.ttft()), Some(250));
}

#[tokio::test(start_paused = true)]
async fn what_can_t_be_inflated_passes_and_is_counted() {
    let parts = script().map(|(_, text)| text.into_bytes());
    for coding in ["compress", "gzip", "gzip, br"] {
        let (record, scrape) = play(&sse_head(coding), &parts).await;
        assert_eq!(record.observer_off, Some(ObserverOff::Encoding), "{coding}");
        assert_eq!((record.outcome, record.timeline.ttft()), (Outcome::Complete, None), "{coding}");
        assert_eq!(ms_of(record.timeline.ttfb()), Some(50), "{coding}");
        let counted = scrape
            .lines()
            .find(|line| line.starts_with("streamgauge_observer_off_total") && line.contains("reason=\"encoding\""));
        assert!(counted.is_some_and(|line| line.ends_with(" 1")), "{coding}: {counted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_document_passes_untouched_and_its_tokens_are_read() {
    let document = "{\"model\":\"m-served\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"Hello\"},\
                    \"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}";
    for (coding, body) in [("gzip", gzip(&[document.to_owned()])), ("br", brotli(&[document.to_owned()]))] {
        let body = body.concat();
        let mut response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        response.extend(body);
        let request = chat_request("m").replace("gauge.test", "127.0.0.1:80");
        let mut world = World::new(WorldOptions::default());
        let record = world.relay(Sides::same(&request), Sides::same(&response)).await;
        assert_eq!((record.outcome, record.observer_off, record.stream), (Outcome::Complete, None, false), "{coding}");
        assert_eq!((record.facts.usage.input, record.output_tokens()), (Some(7), Some(3)), "{coding}");
    }
}
