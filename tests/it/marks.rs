//! Each mark stands where its definition says, also where the library looks at things late or not at all.

use http::Version;
use streamgauge::{
    clock::Stamp,
    observation::{Observation, Outcome},
};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chat_role, chunk,
    http2::{Asked, Http2Upstream, fed},
    ms, ms_of, stages,
    tls::{accept_tls, speak_tls},
    whole_ms,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: gauge.test\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Milliseconds from the request's head to a mark.
fn at(record: &Observation, mark: Option<Stamp>) -> Option<u64> {
    mark.map(|mark| whole_ms(mark.since(record.timeline.request_head)))
}

#[tokio::test(start_paused = true)]
async fn heads_that_come_in_pieces_arrive_with_their_last_byte() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let (request, rest) = GET.split_at(GET.len() - 2);
    client.send(request).await;
    sleep(ms(300)).await;
    client.send(rest).await;
    let mut up = world.upstream().await;
    up.head().await;
    let (head, rest) = OK.split_at(OK.len() - 4);
    up.send(head).await;
    sleep(ms(100)).await;
    up.send(rest).await;
    client.read_to("{}").await;
    let record = world.record().await;
    assert_eq!(whole_ms(record.wall()), 100, "the client's pause lies before the head's last byte");
    assert_eq!(at(&record, record.timeline.head_back), Some(100));
}

#[tokio::test(start_paused = true)]
async fn a_comment_is_the_first_byte_and_a_role_the_first_event_and_neither_an_output() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    sleep(ms(10)).await;
    up.send(SSE_HEAD).await;
    for piece in [": processing\n\n".to_owned(), chat_role(), chat_delta("Hi")] {
        sleep(ms(20)).await;
        up.send(chunk(&piece)).await;
    }
    sleep(ms(20)).await;
    up.send(chunk(&chat_end(7, 1))).await;
    sleep(ms(20)).await;
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    let marks = &record.timeline;
    assert_eq!(at(&record, marks.sent_first), Some(0));
    assert_eq!(at(&record, marks.sent_last), Some(0));
    assert_eq!(at(&record, marks.head_back), Some(10));
    assert_eq!(at(&record, marks.first_byte), Some(30));
    assert_eq!(at(&record, marks.first_event), Some(50));
    assert_eq!(at(&record, marks.first_output), Some(70));
    assert_eq!(at(&record, marks.last_output), Some(70));
    assert_eq!(at(&record, marks.first_output_delivered), Some(70));
    assert_eq!(at(&record, marks.response_end), Some(110));
    assert_eq!(at(&record, marks.delivered), Some(110));
    assert_eq!(ms_of(marks.ttfb()), Some(30));
    assert_eq!(record.reads, 5 - 1, "one frame each; the last chunk brings none");
}

#[tokio::test(start_paused = true)]
async fn what_one_read_brings_is_one_read_however_it_is_framed() {
    for (reads, bytes, chunks) in [(1, 27, ["data: a\n\n"; 3].map(chunk).concat()), (2, 18, chunk("data: a\n\n"))] {
        let mut world = World::new(WorldOptions::default());
        let (mut client, mut up) = world.asked(GET).await;
        up.send(SSE_HEAD).await;
        client.head().await;
        for _ in 0..reads {
            sleep(ms(10)).await;
            up.send(&chunks).await;
        }
        up.send("0\r\n\r\n").await;
        client.read_to("0\r\n\r\n").await;
        let record = world.record().await;
        assert_eq!((record.reads, record.response_bytes), (reads, bytes));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_request_s_end_is_early() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked("POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 8\r\n\r\nhalf").await;
    sleep(ms(50)).await;
    up.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n").await;
    client.head().await;
    let record = world.record().await;
    assert!(record.flags.early_response);
    assert_eq!(record.timeline.sent_last, record.timeline.sent_first);
    assert_eq!(at(&record, record.timeline.sent_last), Some(0));
    assert_eq!(record.overhead_request(), None);
    assert_eq!(stages(&record), [("first_output_wait", 50)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_while_the_request_s_end_is_stuck_is_early_too() {
    let mut world = World::new(WorldOptions { pipe: 2048, ..WorldOptions::default() });
    let mut client = world.client();
    let body = "x".repeat(4_000);
    tokio::join!(
        client.send(format!("POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n{body}", body.len())),
        async {
            let mut up = world.upstream().await;
            sleep(ms(50)).await;
            up.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n").await;
            let record = world.record().await;
            assert!(record.flags.early_response);
            assert_eq!(at(&record, record.timeline.sent_last), Some(0));
            assert_eq!(record.outcome, Outcome::Upstream4xx);
        }
    );
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_body_end_with_their_head() {
    for (method, head) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n"),
        ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ] {
        let mut world = World::new(WorldOptions::default());
        let mut client = world.client();
        let request = GET.replace("GET", method);
        for reused in [false, true] {
            client.send(&request).await;
            if reused {
                sleep(ms(30)).await;
            }
        }
        let mut up = world.upstream().await;
        up.head().await;
        sleep(ms(40)).await;
        up.send(head).await;
        client.head().await;
        let record = world.record().await;
        let marks = &record.timeline;
        assert_eq!(record.outcome, Outcome::Complete, "{method} {head}");
        assert_eq!((marks.first_byte, marks.ttfb(), record.reads), (None, None, 0));
        assert_eq!(marks.response_end, marks.head_back);
        assert_eq!(marks.delivered, marks.head_back);
        let wait = whole_ms(record.wall());
        assert_eq!(stages(&record), [("first_output_wait", wait)], "{method} {head}");
        up.head().await;
        up.send(head).await;
        let second = world.record().await;
        assert_eq!(second.connection.reused, Some(true), "nothing was left on it: {method} {head}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_request_begins_when_the_answer_ahead_has_left() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let second = "POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\n\r\nnull";
    client.send(format!("{GET}{second}")).await;
    let mut up = world.upstream().await;
    up.head().await;
    sleep(ms(100)).await;
    up.send(OK).await;
    up.read_to("null").await;
    sleep(ms(30)).await;
    up.send(OK).await;
    client.read_to("{}").await;
    client.read_to("{}").await;
    let (first, second) = (world.record().await, world.record().await);
    assert_eq!(whole_ms(first.wall()), 100);
    assert_eq!(second.timeline.request_head, first.timeline.delivered.unwrap());
    assert_eq!(second.timeline.request_end, first.timeline.delivered, "it came before, and did not begin before");
    assert_eq!(stages(&second), [("first_output_wait", 30)]);
    assert_eq!(ms_of(second.overhead_request()), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_request_pipelined_behind_a_stuck_answer_begins_when_that_has_left() {
    let mut world = World::new(WorldOptions::narrow());
    let mut client = world.client();
    client.send(format!("{GET}{GET}")).await;
    let mut up = world.upstream().await;
    let long = format!("HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n{}", "x".repeat(2_000));
    up.head().await;
    tokio::join!(
        async {
            up.send(&long).await;
            up.head().await;
            sleep(ms(50)).await;
            up.send(OK).await;
        },
        async {
            sleep(ms(400)).await;
            client.read_to("{}").await;
        }
    );
    let (first, second) = (world.record().await, world.record().await);
    assert_eq!((first.outcome, second.outcome), (Outcome::Complete, Outcome::Complete));
    assert_eq!(stages(&first), [("client_stall", 400)]);
    assert_eq!(Some(second.timeline.request_head), first.timeline.delivered, "the library takes it up no earlier");
    assert_eq!(stages(&second), [("first_output_wait", 50)]);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_framing_ends_with_its_connection() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(GET).await;
    up.send("HTTP/1.1 200 OK\r\n\r\n").await;
    sleep(ms(20)).await;
    up.send("all of it").await;
    sleep(ms(300)).await;
    drop(up);
    client.read_to("all of it").await;
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(ms_of(record.timeline.duration()), Some(320));
    assert_eq!(stages(&record), [("first_output_wait", 20), ("generation", 300)]);
}

/// The client holds the way down for 8 ms: too short for a taint, long enough for a read to be looked at late.
async fn looked_at_late(world: &mut World, client: &mut Peer, up: &mut Peer) {
    let first = chunk(&chat_delta(&"x".repeat(12_000)));
    tokio::join!(
        async {
            up.send(SSE_HEAD).await;
            up.send(&first).await;
            sleep(ms(3)).await;
            up.send(chunk(&chat_delta("b"))).await;
        },
        async {
            client.head().await;
            sleep(ms(8)).await;
            client.read_to("\"b\"").await;
        }
    );
    sleep(ms(40)).await;
    up.send(chunk(&chat_end(7, 9))).await;
    up.send(LAST_CHUNK).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!(at(&record, record.timeline.last_output), Some(3), "the read's stamp, five before it was looked at");
    assert_eq!(ms_of(record.cadence.max_gap()), Some(3));
    assert!(!record.flags.tainted);
    assert_eq!(whole_ms(record.event_overhead.max), 0);
    assert_eq!(ms_of(record.timeline.client_ttft()), Some(8));
}

#[tokio::test(start_paused = true)]
async fn a_read_keeps_its_stamp_until_it_is_looked_at() {
    let mut world = World::new(WorldOptions::narrow());
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    looked_at_late(&mut world, &mut client, &mut up).await;
}

#[tokio::test(start_paused = true)]
async fn a_read_keeps_its_stamp_through_tls() {
    let mut world = World::new(WorldOptions { upstream: speak_tls, dns: Some(ms(0)), ..WorldOptions::narrow() });
    let mut client = world.client();
    client.send(chat_request("m")).await;
    let mut up = accept_tls(world.upstream().await).await;
    up.read_to("[]}").await;
    looked_at_late(&mut world, &mut client, &mut up).await;
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_http2_connection_keep_their_own_times() {
    let mut world = World::new(WorldOptions {
        upstream: |upstream| upstream.http = streamgauge::config::HttpVersion::Http2,
        ..WorldOptions::default()
    });
    let (mut first, mut second) = (world.client(), world.client());
    first.send(chat_request("first")).await;
    let mut up = Http2Upstream::new(world.upstream().await);
    let one = up.asked().await;
    second.send(chat_request("second")).await;
    let two = up.asked().await;
    let head = || http::Response::builder().header("content-type", "text/event-stream");
    let answer = |asked: Asked| {
        let (feed, body) = fed();
        assert!(asked.answer.send(head().body(body).unwrap()).is_ok());
        feed
    };
    let (one, two) = (answer(one), answer(two));
    for (feed, text) in [(&one, "a"), (&two, "b"), (&one, "c"), (&two, "d")] {
        sleep(ms(50)).await;
        feed.try_send(chat_delta(text).into()).unwrap();
    }
    for feed in [one, two] {
        feed.try_send(chat_end(7, 2).into()).unwrap();
    }
    first.read_to(LAST_CHUNK).await;
    second.read_to(LAST_CHUNK).await;
    let mut records = [world.record().await, world.record().await];
    records.sort_by_key(|record| record.timeline.first_output);
    for (record, (ttft, reused)) in records.iter().zip([(50, false), (100, true)]) {
        assert_eq!(record.connection.upstream_version, Some(Version::HTTP_2));
        assert_eq!(record.connection.reused, Some(reused));
        assert!(record.flags.overhead_lower_bound);
        assert_eq!(ms_of(record.timeline.ttft()), Some(ttft));
        assert_eq!(ms_of(record.cadence.max_gap()), Some(100), "the other stream's frames are not this one's");
        assert_eq!(record.timeline.sent_first, record.timeline.sent_last);
        assert_eq!(at(record, record.timeline.sent_last), Some(0));
        assert_eq!(ms_of(record.overhead_request()), Some(0));
        stages(record);
    }
}

/// An HTTP/2 frame without a payload longer than 255 bytes.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[tokio::test(start_paused = true)]
async fn a_head_unpacked_from_the_compression_s_table_is_as_new_as_its_frame() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    // Written out and put into the table by the first request, taken from there by the second. Not Huffman-coded, so
    // that the table may keep the very memory of the first read.
    let first = [&[0x82, 0x86, 0x84, 0x41, 4][..], b"g.co", &[0x40, 6], b"x-note", &[4], b"text"].concat();
    let second = [0x82, 0x86, 0x84, 0xbf, 0xbe];
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    client.send([preface, frame(1, 5, 1, &first)].concat()).await;
    let mut up = world.upstream().await;
    assert!(up.head().await.contains("x-note: text"));
    up.send(OK).await;
    world.record().await;
    sleep(ms(500)).await;
    client.send(frame(1, 5, 3, &second)).await;
    assert!(up.head().await.contains("x-note: text"));
    sleep(ms(20)).await;
    up.send(OK).await;
    let record = world.record().await;
    assert_eq!(record.connection.client_version, Some(Version::HTTP_2));
    assert_eq!(stages(&record), [("first_output_wait", 20)]);
}
