//! `GET /live`: what the live page shows, as server-sent events: the exchanges that have ended since the last look, and the
//! figures of the last minutes.
//!
//! Each viewer's events are made when its connection can take them, by the very poll that takes them. So there is no task, no
//! timer and no queue while nobody looks. Who reads slowly gets fewer looks, and ones as old as what its connection has room
//! for; who reads nothing is given up with its connection, once that room is full.

use std::{
    convert::Infallible,
    fmt::Write as _,
    io::{self, Write as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::body::{Body, Frame};
use serde_json::json;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Interval, MissedTickBehavior},
};

use super::{Pages, now::Now};

/// How often there is a look.
const PERIOD: Duration = Duration::from_millis(500);
/// Records with the first look: as many as the page shows. And with each one after it.
const FIRST: usize = 500;
const EACH: usize = 100;

/// One viewer's events.
pub(super) struct Live {
    pages: Arc<Pages>,
    tick: Interval,
    /// Exchanges that had ended by the last look; absent before the first.
    seen: Option<u64>,
    zip: Option<GzEncoder<Vec<u8>>>,
    _seat: OwnedSemaphorePermit,
}

impl Live {
    /// Events for whoever has this seat. Call inside a tokio runtime.
    pub(super) fn new(pages: Arc<Pages>, seat: OwnedSemaphorePermit, zipped: bool) -> Self {
        let mut tick = tokio::time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let zip = zipped.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { pages, tick, seen: None, zip, _seat: seat }
    }

    /// The events of one look.
    fn look(&mut self) -> String {
        let pages = &self.pages;
        let recent = pages.recorder.recent();
        let pushed = recent.pushed();
        let mut events = String::new();
        if self.seen.is_none() {
            let begin = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "started": pages.started,
            });
            // Formatting into a string does not fail, here and below.
            let _ = write!(events, "event: begin\ndata: {begin}\n\n");
        }
        let most = if self.seen.is_none() { FIRST } else { EACH };
        let fresh = recent.between(self.seen.unwrap_or(0), pushed, most);
        self.seen = Some(pushed);
        if !fresh.is_empty() {
            events.push_str("event: exchanges\ndata: [");
            for (index, exchange) in fresh.iter().enumerate() {
                events.push_str(if index == 0 { "" } else { "," });
                events.push_str(&exchange.json());
            }
            events.push_str("]\n\n");
        }
        let now = Now::look(pages);
        // A value of plain fields: it can always be written.
        let now = serde_json::to_string(&now).unwrap_or_default();
        let _ = write!(events, "event: now\ndata: {now}\n\n");
        events
    }

    /// As the connection takes it.
    fn packed(&mut self, events: String) -> io::Result<Bytes> {
        let Some(zip) = &mut self.zip else { return Ok(events.into()) };
        zip.write_all(events.as_bytes())?;
        // All of it, so that the other side can read it now.
        zip.flush()?;
        Ok(std::mem::take(zip.get_mut()).into())
    }
}

impl Body for Live {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.tick.poll_tick(cx));
        let events = self.look();
        // Packing into memory does not fail; if it did, the page would ask again.
        Poll::Ready(self.packed(events).ok().map(|bytes| Ok(Frame::data(bytes))))
    }
}
