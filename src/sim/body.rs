//! The bodies a simulated provider answers with: events at their deadlines, each in a frame of its own.

use std::{
    fmt,
    iter::Peekable,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    log::{Departures, Ledger, unix_nanos},
    reports::Watch,
    script::{Beat, Beats, Fail},
    timer::Alarm,
    wire::{self, Event, Events, Piece, Wire},
};
use crate::clock::{Clock, Nanos, Stamp};

/// Tells the HTTP library to break the connection.
#[derive(Debug)]
pub(super) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut, as scripted")
    }
}

impl std::error::Error for Cut {}

/// Where a body's events are booked.
#[derive(Clone, Debug)]
pub(super) struct Books {
    pub(super) clock: Clock,
    pub(super) ledger: Arc<Ledger>,
    pub(super) departures: Arc<Departures>,
}

/// A body, its entry in the log, and the slot it holds while generating.
pub(super) struct SimBody {
    content: Content,
    books: Option<Books>,
    /// Given back when the body is gone: the next request in the queue starts then.
    _slot: Option<OwnedSemaphorePermit>,
    /// All that was meant to be handed over has been.
    finished: bool,
}

pub(super) enum Content {
    Whole(Whole),
    Stream(Box<Stream>),
}

impl SimBody {
    pub(super) fn new(content: Content, books: Option<Books>, slot: Option<OwnedSemaphorePermit>) -> Self {
        Self { content, books, _slot: slot, finished: false }
    }

    /// A small answer made on the spot.
    pub(super) fn whole(bytes: Bytes, due: Stamp, books: Option<Books>) -> Self {
        Self::new(Content::Whole(Whole::new(bytes, due)), books, None)
    }

    fn book(&self, event: &Event, due: Stamp) {
        let Some(books) = &self.books else { return };
        let mut truth = books.ledger.lock();
        let index = truth.due_ns.len();
        truth.due_ns.push(unix_nanos(&books.clock, due));
        truth.left_ns.push(0);
        truth.response_bytes += event.bytes.len() as u64;
        if event.output {
            truth.output_events.extend(u32::try_from(index));
        }
        if let Some((input, output)) = event.usage {
            truth.input_tokens = Some(input);
            truth.output_tokens = Some(output.into());
        }
        drop(truth);
        books.departures.handed_over(&books.ledger, index);
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let (step, due) = match &mut self.content {
            Content::Whole(whole) => (ready!(whole.poll(cx)), whole.due),
            Content::Stream(stream) => (ready!(stream.poll(cx)), stream.due),
        };
        let event = match step {
            Some(Ok(event)) => event,
            end => {
                self.finished = true;
                return Poll::Ready(end.map(|result| result.map(|event| Frame::data(event.bytes))));
            }
        };
        self.book(&event, due);
        self.finished = self.is_end_stream();
        Poll::Ready(Some(Ok(Frame::data(event.bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(whole) => whole.bytes.is_empty() && !whole.cut,
            Content::Stream(stream) => matches!(stream.phase, Phase::Ended) && stream.events.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(whole) => whole.size.map_or_else(SizeHint::default, SizeHint::with_exact),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

impl Drop for SimBody {
    fn drop(&mut self) {
        if let Some(books) = &self.books
            && !self.finished
        {
            books.ledger.lock().client_gone = true;
        }
    }
}

/// Bytes that leave at once.
pub(super) struct Whole {
    bytes: Bytes,
    due: Stamp,
    /// The size told in the head; absent for a body that does not tell it.
    size: Option<u64>,
    cut: bool,
    flushed: bool,
    usage: Option<(u64, u32)>,
}

impl Whole {
    pub(super) fn new(bytes: Bytes, due: Stamp) -> Self {
        let size = Some(bytes.len() as u64);
        Self { bytes, due, size, cut: false, flushed: false, usage: None }
    }

    /// It reports these counts.
    pub(super) fn with_usage(mut self, usage: Option<(u64, u32)>) -> Self {
        self.usage = usage;
        self
    }

    /// Half of it is sent, then the connection breaks.
    pub(super) fn cut_in_half(mut self) -> Self {
        self.cut = true;
        self.halve()
    }

    /// Half of it is sent, and ends like a whole one.
    pub(super) fn truncated(mut self) -> Self {
        self.size = None;
        self.halve()
    }

    fn halve(mut self) -> Self {
        self.bytes.truncate(self.bytes.len() / 2);
        self.usage = None;
        self
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, Cut>>> {
        if !self.bytes.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            return Poll::Ready(Some(Ok(Event { bytes, output: false, usage: self.usage.take() })));
        }
        if !self.cut {
            return Poll::Ready(None);
        }
        ready!(flush_first(&mut self.flushed, cx));
        Poll::Ready(Some(Err(Cut)))
    }
}

/// Events at their deadlines. A deadline counts from the start of generation, never from the event before, so that
/// nothing adds up; events that are due together are handed over one after the other.
pub(super) struct Stream {
    wire: Wire,
    beats: Peekable<Beats>,
    fail: Option<Fail>,
    early_prelude: bool,
    start: Stamp,
    /// Only where the events tell of it.
    watch: Option<Watch>,
    alarm: Alarm,
    phase: Phase,
    events: Events,
    /// Output events made.
    outputs: u32,
    /// When the events now leaving were due.
    due: Stamp,
}

enum Phase {
    Prelude,
    Output,
    Garbage,
    /// Everything before the cut is to be flushed, then it comes.
    Cut {
        flushed: bool,
    },
    Ended,
}

impl Stream {
    pub(super) fn new(
        wire: Wire,
        beats: Beats,
        fail: Option<Fail>,
        early_prelude: bool,
        start: Stamp,
        watch: Option<Watch>,
        alarm: Alarm,
    ) -> Self {
        Self {
            wire,
            beats: beats.peekable(),
            fail,
            early_prelude,
            start,
            watch,
            alarm,
            phase: Phase::Prelude,
            events: Events::default(),
            outputs: 0,
            due: start,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, Cut>>> {
        loop {
            if let Some(event) = self.events.pop() {
                if event.output
                    && let Some(watch) = &mut self.watch
                {
                    watch.output();
                }
                return Poll::Ready(Some(Ok(event)));
            }
            match &mut self.phase {
                Phase::Prelude => {
                    let first = self.beats.peek().map_or(Nanos::ZERO, |beat| beat.due);
                    let due = if self.early_prelude { self.start } else { self.start + first };
                    ready!(self.alarm.poll(due, cx));
                    self.due = due;
                    self.wire.prelude(&mut self.events);
                    self.phase = Phase::Output;
                }
                Phase::Output => ready!(self.poll_output(cx)),
                Phase::Garbage => {
                    let Some(beat) = ready!(self.poll_beat(cx)) else {
                        self.phase = Phase::Ended;
                        continue;
                    };
                    self.events.plain(|out| wire::garbage(beat.first, out));
                }
                Phase::Cut { flushed } => {
                    ready!(flush_first(flushed, cx));
                    return Poll::Ready(Some(Err(Cut)));
                }
                Phase::Ended => return Poll::Ready(None),
            }
        }
    }

    /// The next output event, what closes the stream, or the fault that comes instead of it.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let fault = self.fail.filter(|fail| fail.after() == Some(self.outputs));
        if let Some(Fail::Garbage(_)) = fault {
            self.phase = Phase::Garbage;
            return Poll::Ready(());
        }
        let beat = ready!(self.poll_beat(cx));
        match (fault, beat) {
            (Some(Fail::Cut(_)), _) => self.phase = Phase::Cut { flushed: false },
            (Some(Fail::Truncate(_)), _) => self.phase = Phase::Ended,
            (Some(Fail::ErrorEvent(_)), _) => {
                self.wire.error(&mut self.events);
                self.phase = Phase::Ended;
            }
            (_, Some(Beat { kind, first, tokens, last_of_kind, .. })) => {
                self.outputs += 1;
                self.wire.piece(&Piece { kind, first, tokens, last_of_kind }, &mut self.events);
            }
            (_, None) => {
                self.wire.closing(self.watch.map(|watch| watch.times()), &mut self.events);
                self.phase = Phase::Ended;
            }
        }
        Poll::Ready(())
    }

    /// Waits for the next beat and takes it; at once `None` after the last.
    fn poll_beat(&mut self, cx: &mut Context<'_>) -> Poll<Option<Beat>> {
        let Some(beat) = self.beats.peek() else { return Poll::Ready(None) };
        let due = self.start + beat.due;
        ready!(self.alarm.poll(due, cx));
        self.due = due;
        Poll::Ready(self.beats.next())
    }
}

/// Pending once: the HTTP library flushes when a body has nothing, and an error would take what is buffered with it.
fn flush_first(flushed: &mut bool, cx: &mut Context<'_>) -> Poll<()> {
    if std::mem::replace(flushed, true) {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}
