//! The hot path: one frame with one event of some 200 bytes through `ResponseTap` and `Exchange`, as it is between
//! hyper's read and hyper's write.
//!
//! ```text
//! gauge hot_path                   nanoseconds and allocations per event
//! gauge hot_path walk DIALECT N    N events and nothing else, for an instruction counter
//! gauge hot_path sockets N         the same body without the tap: what it and the sockets' stamps cost
//! ```
//!
//! `benches/run` counts instructions with callgrind: the difference between two lengths of the same walk, so that
//! start-up and the first events are not in it, less the same difference of the sockets alone.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use streamgauge::{
    clock::{Clock, Nanos},
    config::Config,
    dialect::{Dialect, Endpoint, RequestFacts},
    exchange::{Exchange, Sent},
    net::{ConnStats, MeteredIo, Socket, StampWrites},
    observation::{ExchangeId, Observation, Outcome},
    proxy::Gateway,
    record::{Marked, Recorder},
    tap::{Open, ResponseTap, Shared},
    timeline::Timeline,
    upload::Upload,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::words::WORDS;

const WARM_UP: usize = 64;

pub(crate) fn run(arguments: &[&str]) {
    match *arguments {
        ["walk", dialect, events] => {
            let dialect = DIALECTS.iter().find(|(name, ..)| *name == dialect).expect("a known dialect");
            Walk::begin(dialect).run(WARM_UP + events.parse::<usize>().expect("a number of events"), true);
        }
        ["sockets", events] => {
            Walk::begin(&DIALECTS[0]).run(WARM_UP + events.parse::<usize>().expect("a number of events"), false);
        }
        _ => report(),
    }
}

fn report() {
    println!(
        "| dialect | bytes per event (about) | ns per event (median of 9) | of it the sockets | allocations in 10,000 events |"
    );
    println!("|---|---|---|---|---|");
    for dialect in &DIALECTS {
        let mut walk = Walk::begin(dialect);
        walk.run(WARM_UP, true);
        let allocations = allocation_counter::measure(|| walk.run(10_000, true)).count_total;
        // Side by side, so that a busy moment of the machine meets both.
        let (mut whole, mut sockets): (Vec<f64>, Vec<f64>) =
            (0..9).map(|_| (walk.timed(200_000, true), walk.timed(200_000, false))).unzip();
        whole.sort_by(f64::total_cmp);
        sockets.sort_by(f64::total_cmp);
        let bytes = dialect.3.len() + 4;
        println!("| {} | {bytes} | {:.0} | {:.0} | {allocations} |", dialect.0, whole[4], sockets[4]);
    }
}

type Spoken = (&'static str, Dialect, Endpoint, &'static str);

/// A delta of each dialect as its servers send it; `{}` is the text, which differs from event to event.
const DIALECTS: [Spoken; 3] = [
    (
        "openai_chat",
        Dialect::OpenAiChat,
        Endpoint::Chat,
        "data: {\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\"created\":1741570283,\"model\":\"gauge-1-2025-08-07\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"{}\"},\"finish_reason\":null}]}\n\n",
    ),
    (
        "openai_responses",
        Dialect::OpenAiResponses,
        Endpoint::Responses,
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_67c9fdcf37fc8190ba82116e33fb28c5\",\"output_index\":0,\"content_index\":0,\"delta\":\"{}\",\"sequence_number\":17}\n\n",
    ),
    (
        "anthropic",
        Dialect::Anthropic,
        Endpoint::Messages,
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"{}, and so it flowed on to where no gauge had been set\"}              }\n\n",
    ),
];

/// A stream without end through one tap, and a socket that takes everything at once.
struct Walk {
    tap: ResponseTap<Endless>,
    upstream: MeteredIo,
    client: MeteredIo,
    clock: Clock,
    stats: Arc<ConnStats>,
    events: [Bytes; 16],
    next: usize,
    untapped: Endless,
}

impl Walk {
    fn begin((_, dialect, endpoint, event): &Spoken) -> Self {
        let clock = Clock::start();
        let config = Config::from_toml(
            "[[upstreams]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\nmodels = [\"m\"]\n",
            std::path::Path::new("bench.toml"),
            &streamgauge::config::Overrides::default(),
        )
        .expect("a valid configuration");
        let recorder = Arc::new(Recorder::new(&config, clock).expect("no file to open"));
        let handles = recorder.upstream(&"u".into());
        let shared = Shared::new(clock, Arc::clone(&recorder), 1);
        let downstream = Gateway::downstream(0);
        let head = clock.now();
        let mut seen =
            Observation::begin(ExchangeId(1), clock.wall(head), Timeline::begin(head), Outcome::GatewayError);
        (seen.dialect, seen.endpoint) = (*dialect, *endpoint);
        let upload = Arc::new(Upload::default());
        let facts = RequestFacts { model: Some("m".into()), stream: Some(true), dialect: None };
        upload.start_with(facts, &recorder, &handles, head);
        let mut exchange = Exchange::begin(seen, recorder, Some(handles), upload, Marked::default());
        exchange.sent(Sent {
            first: Some(head),
            last: Some(head),
            upload: Nanos::ZERO,
            stalled: Nanos::ZERO,
            stalls: 0,
        });
        let response = Response::builder().header("content-type", "text/event-stream").body(()).expect("a response");
        exchange.head(clock.now(), &response.into_parts().0, Some(*dialect));
        let client =
            MeteredIo::new(Socket::Other(Box::new(Sink)), Arc::clone(&downstream.stats), clock, StampWrites::After);
        let upstream = Arc::new(ConnStats::default());
        let source = MeteredIo::new(Socket::Other(Box::new(Sink)), Arc::clone(&upstream), clock, StampWrites::Before);
        let events = WORDS.map(|word| Bytes::from(event.replacen("{}", word, 1)));
        let open = Open::new(exchange, shared, downstream);
        let endless = Endless { events: events.clone(), next: 0 };
        let untapped = Endless { events: events.clone(), next: 0 };
        let tap = ResponseTap::new(endless, open, Arc::clone(&upstream), None, None);
        Self { tap, upstream: source, client, clock, stats: upstream, events, next: 0, untapped }
    }

    /// As hyper does it: a read, a frame from the tap, written and flushed, before the next one is asked for.
    fn run(&mut self, events: usize, tapped: bool) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut byte = [0];
        for _ in 0..events {
            let _ = Pin::new(&mut self.upstream).poll_read(&mut cx, &mut ReadBuf::new(&mut byte));
            // The read put the event where it lies.
            let event = &self.events[self.next % self.events.len()];
            self.stats.reads().push(event, self.stats.last_read());
            self.next += usize::from(tapped);
            let polled = if tapped {
                Pin::new(&mut self.tap).poll_frame(&mut cx)
            } else {
                Pin::new(&mut self.untapped).poll_frame(&mut cx).map_err(Into::into)
            };
            let Poll::Ready(Some(Ok(frame))) = polled else { return };
            let bytes = frame.into_data().unwrap_or_default();
            let _ = Pin::new(&mut self.client).poll_write(&mut cx, &bytes);
            let _ = Pin::new(&mut self.client).poll_flush(&mut cx);
        }
    }

    fn timed(&mut self, events: usize, tapped: bool) -> f64 {
        let before = self.clock.now();
        self.run(events, tapped);
        self.clock.now().since(before).0 as f64 / events as f64
    }
}

struct Endless {
    events: [Bytes; 16],
    next: usize,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let event = self.events[self.next % self.events.len()].clone();
        self.next += 1;
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

/// Takes every write, has one byte for every read.
struct Sink;

impl AsyncRead for Sink {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buf.put_slice(b"x");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sink {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
