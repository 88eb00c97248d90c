//! Sent through the whole data plane, framed and cut in many ways: the same bytes, the same first output, the same counts.
//!
//! hyper makes a frame of every chunk, or of as much of it as one read brought. So to be cut at every byte a body is sent
//! as chunks of one byte, many of them in one write: the clock need not go on in between.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use streamgauge::{clock::Nanos, config::HttpVersion, observation::Observation};
use tokio::{io::AsyncReadExt, time::sleep};

use super::{Recording, cuts::MOST_SINGLE, reading::Comparison, recordings};
use crate::support::{
    LAST_CHUNK, Peer, World, WorldOptions,
    http2::{Http2Upstream, fed},
};

/// Ways at random cuts.
const RANDOM: u64 = 2;

/// Bytes of single-byte chunks per write.
const WRITE: usize = 64 * 1024;

const MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn recorded_replies_pass_whole_and_cut_at_random() {
    replay("whole and cut at random", async |recording, compare| {
        Replay::begin(recording, HttpVersion::Auto).await.chunked([&*recording.body], compare).await;
        for seed in recording.seeds(RANDOM) {
            let right = compare.faults.len();
            Replay::begin(recording, HttpVersion::Auto).await.chunked(recording.at_random(seed), compare).await;
            if compare.faults.len() > right {
                compare.faults.push(format!("(so at the cuts of seed {seed})"));
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn recorded_replies_pass_byte_by_byte() {
    println!("byte by byte but for the middle of bodies of more than {MOST_SINGLE} bytes");
    replay("byte by byte", async |recording, compare| {
        Replay::begin(recording, HttpVersion::Auto).await.chunked(recording.byte_by_byte(), compare).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn recorded_replies_pass_event_by_event_with_exact_times() {
    replay("event by event", async |recording, compare| {
        Replay::begin(recording, HttpVersion::Auto).await.event_by_event(compare).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn recorded_replies_pass_with_a_length() {
    replay("with a length", async |recording, compare| {
        Replay::begin(recording, HttpVersion::Auto).await.with_length(compare).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn recorded_replies_pass_from_an_upstream_of_http2_with_exact_times() {
    replay("event by event over HTTP/2", async |recording, compare| {
        Replay::begin(recording, HttpVersion::Http2).await.over_http2(compare).await;
    })
    .await;
}

/// Plays all recordings, and fails at the end with all that differed.
async fn replay(way: &str, play: impl AsyncFn(&Recording, &mut Comparison)) {
    let Some(recordings) = recordings() else { return };
    let (mut compared, mut faults) = (0, Vec::new());
    for recording in &recordings {
        let mut compare = Comparison::default();
        let _named = Named(&recording.name);
        play(recording, &mut compare).await;
        compared += compare.made;
        if !compare.faults.is_empty() {
            faults.push(format!("{}: {}", recording.name, compare.faults.join("; ")));
        }
    }
    eprintln!("{} recordings through the proxy {way}, {compared} values compared", recordings.len());
    assert!(faults.is_empty(), "{} recordings differ {way}:\n{}", faults.len(), faults.join("\n"));
}

/// Says which recording it was when a play panics.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while {} was played", self.0);
        }
    }
}

/// One recording on its way through a gateway of its own: the request has been sent.
struct Replay<'a> {
    recording: &'a Recording,
    world: World,
    client: Peer,
    upstream: Peer,
}

impl<'a> Replay<'a> {
    async fn begin(recording: &'a Recording, http: HttpVersion) -> Self {
        let upstream = match http {
            HttpVersion::Http2 => |upstream: &mut streamgauge::config::Upstream| upstream.http = HttpVersion::Http2,
            _ => |_: &mut streamgauge::config::Upstream| {},
        };
        let mut world = World::new(WorldOptions { pipe: 1 << 20, upstream, ..WorldOptions::default() });
        let mut client = world.client();
        client.send(request_text(recording, "gauge.test")).await;
        let upstream = world.upstream().await;
        Self { recording, world, client, upstream }
    }

    /// Each piece a chunk, all of them in few writes.
    async fn chunked<'b>(mut self, pieces: impl IntoIterator<Item = &'b [u8]>, compare: &mut Comparison) {
        self.take_request(compare).await;
        let head = head_text(self.recording, "transfer-encoding: chunked");
        let (mut wire, mut sent) = (head.clone().into_bytes(), 0);
        for piece in pieces {
            wire.extend_from_slice(&chunk(piece));
            sent += 1;
        }
        wire.extend_from_slice(LAST_CHUNK.as_bytes());
        let send = async {
            for part in wire.chunks(WRITE) {
                self.upstream.send(part).await;
            }
        };
        let (came, ()) = tokio::join!(take_chunked(self.client), send);
        compare.check("the head", came.head, head);
        // Each was a frame of its own, or even several.
        compare.check("no chunk joined with another", came.chunks >= sent, true);
        check(self.recording, &mut self.world, &came.body, compare).await;
    }

    /// Each event a chunk, one a millisecond.
    async fn event_by_event(mut self, compare: &mut Comparison) {
        self.take_request(compare).await;
        let (pieces, places) = self.recording.by_event();
        let head = head_text(self.recording, "transfer-encoding: chunked");
        let send = async {
            self.upstream.send(&head).await;
            for piece in pieces {
                sleep(MILLISECOND).await;
                self.upstream.send(chunk(piece)).await;
            }
            self.upstream.send(LAST_CHUNK).await;
        };
        let (came, ()) = tokio::join!(take_chunked(self.client), send);
        compare.check("the head", came.head, &head);
        let record = check(self.recording, &mut self.world, &came.body, compare).await;
        check_times(self.recording, &record, &places, compare);
    }

    /// A body of a known length, cut at random, one piece a millisecond.
    async fn with_length(mut self, compare: &mut Comparison) {
        self.take_request(compare).await;
        let length = self.recording.body.len();
        let head = head_text(self.recording, &format!("content-length: {length}"));
        let send = async {
            self.upstream.send(&head).await;
            for piece in self.recording.at_random(self.recording.seeds(1).start) {
                sleep(MILLISECOND).await;
                self.upstream.send(piece).await;
            }
        };
        let take = async { (self.client.head().await, self.client.read(length).await) };
        let ((head_came, body), ()) = tokio::join!(take, send);
        compare.check("the head", head_came, &head);
        check(self.recording, &mut self.world, &body, compare).await;
        self.client.assert_silent().await;
    }

    /// Each event a frame of HTTP/2, one a millisecond.
    async fn over_http2(mut self, compare: &mut Comparison) {
        let mut upstream = Http2Upstream::new(self.upstream);
        let asked = upstream.asked().await;
        let path = asked.request.uri().path_and_query().map(ToString::to_string);
        compare.check("the path", path.unwrap_or_default(), &self.recording.request.uri);
        let mut head = Response::builder().status(self.recording.head.status);
        head.headers_mut().expect("a head").extend(self.recording.head.headers.clone());
        let (feed, body) = fed();
        assert!(asked.answer.send(head.body(body).expect("a head")).is_ok(), "the upstream is there");
        let (pieces, places) = self.recording.by_event();
        let send = async {
            for piece in pieces {
                sleep(MILLISECOND).await;
                feed.send(Bytes::copy_from_slice(piece)).await.expect("the body is read");
            }
            drop(feed);
        };
        let (came, ()) = tokio::join!(take_chunked(self.client), send);
        let record = check(self.recording, &mut self.world, &came.body, compare).await;
        check_times(self.recording, &record, &places, compare);
    }

    /// The upstream gets the request as it was sent.
    async fn take_request(&mut self, compare: &mut Comparison) {
        let sent = request_text(self.recording, "127.0.0.1:80");
        let came = self.upstream.read(sent.len()).await;
        compare.check("the request", String::from_utf8_lossy(&came), sent);
    }
}

/// The body that came, and what the record of the one exchange says, however the body was cut.
async fn check(recording: &Recording, world: &mut World, body: &[u8], compare: &mut Comparison) -> Observation {
    compare.check("same bytes", body == recording.body, true);
    let record = world.record().await;
    world.assert_no_record();
    check_read(recording, &record, compare);
    compare.check("status", format!("{:?}", record.status), format!("{:?}", Some(recording.head.status.as_u16())));
    compare.check("bytes", record.response_bytes, recording.body.len());
    compare.check("request bytes", record.request_bytes, recording.request_body.len());
    record
}

fn check_read(recording: &Recording, record: &Observation, compare: &mut Comparison) {
    compare.check("outcome", record.outcome.as_str(), recording.outcome().as_str());
    compare.check("dialect", record.dialect.as_str(), recording.dialect.as_str());
    compare.check("why it is no longer read", format!("{:?}", record.observer_off), "None");
    recording.check_facts(&record.facts, record.model.as_deref(), compare);
    if recording.streamed {
        compare.check("a stream", record.stream, true);
        compare.check("n_events", record.events, &recording.row["n_events"]);
        compare.check("gen_events", record.output_events, &recording.row["gen_events"]);
        compare.check("reasoning seen", record.reasoning_seen, !recording.row["first_reasoning"].is_empty());
    }
}

/// When the events came: piece k was sent in millisecond k + 1.
fn check_times(recording: &Recording, record: &Observation, places: &[usize], compare: &mut Comparison) {
    if !recording.streamed {
        return;
    }
    compare.check("events of the cut", places.len(), &recording.row["n_events"]);
    let at = |event: u64| {
        let place = usize::try_from(event).ok().and_then(|event| places.get(event)).expect("an event's place");
        Nanos::from(MILLISECOND * u32::try_from(place + 1).expect("few events"))
    };
    let column = |column: &str| recording.number(column).map(at);
    // The table has no last output event: it is where reading at one go has it.
    let seen = recording.read([&*recording.body]);
    let last = seen.events.iter().rposition(|signal| !signal.output.is_empty()).map(|event| at(event as u64));
    let timeline = &record.timeline;
    let last_output = timeline.last_output.zip(timeline.sent_last).map(|(last, sent)| last.since(sent));
    for (what, got, expected) in [
        ("the first event's time", timeline.first_event_time(), Some(at(0))),
        ("the first output's time", timeline.ttft(), column("first_gen")),
        ("the first answer's time", timeline.answer_ttft(), column("first_answer")),
        ("the last output's time", last_output, last),
        ("the first output's time at the client", timeline.client_ttft(), column("first_gen")),
    ] {
        compare.check(what, format!("{got:?}"), format!("{expected:?}"));
    }
}

fn request_text(recording: &Recording, host: &str) -> String {
    let request = &recording.request;
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let headers = header_lines(&request.headers);
    let body = &recording.request_body;
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    format!("{} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}{length}\r\n{body}", request.method)
}

fn head_text(recording: &Recording, framing: &str) -> String {
    let head = &recording.head;
    format!("HTTP/1.1 {}\r\n{}{framing}\r\n\r\n", head.status, header_lines(&head.headers))
}

fn header_lines(headers: &HeaderMap) -> String {
    let line = |(name, value): (_, &http::HeaderValue)| format!("{name}: {}\r\n", value.to_str().expect("text"));
    headers.iter().map(line).collect()
}

fn chunk(piece: &[u8]) -> Vec<u8> {
    assert!(!piece.is_empty(), "that would be the last chunk");
    [format!("{:X}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}

/// A chunked response as it came, whatever its chunks: a large one may leave in more than it came in.
struct Came {
    head: String,
    body: Vec<u8>,
    chunks: usize,
}

async fn take_chunked(mut client: Peer) -> Came {
    let mut came = Came { head: client.head().await, body: Vec::new(), chunks: 0 };
    let (mut io, mut wire) = client.into_inner();
    let mut at = 0;
    loop {
        // A whole chunk, or more of it.
        while let Some(len) = wire[at..].windows(2).position(|pair| pair == b"\r\n") {
            let size = std::str::from_utf8(&wire[at..at + len]).expect("a chunk's size");
            let size = usize::from_str_radix(size, 16).expect("a chunk's size");
            let start = at + len + 2;
            let Some(rest) = wire.get(start..start + size + 2) else { break };
            assert!(rest.ends_with(b"\r\n"), "a chunk's end");
            came.body.extend_from_slice(&rest[..size]);
            at = start + size + 2;
            if size == 0 {
                assert_eq!(wire.len(), at, "bytes behind the last chunk");
                return came;
            }
            came.chunks += 1;
        }
        wire.drain(..std::mem::take(&mut at));
        assert!(io.read_buf(&mut wire).await.expect("bytes") > 0, "ended within the body");
    }
}
