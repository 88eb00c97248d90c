//! The ground truth: what really left, and when, one JSON object per request.
//!
//! Shares no code with the gauge's own socket stamps and formulas on purpose: it is what they are checked against.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::{AtomicStamp, Clock, Stamp};

/// What happened to one request. Times are nanoseconds since the Unix epoch, taken from a monotonic clock whose wall-clock
/// anchor was read at the start, so that processes of one machine can be compared.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Truth {
    /// Counted from 1 in order of arrival; the answer's header `x-sim-request` has it too.
    pub request: u64,
    /// The request's header `x-sim-id`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// `openai_chat`, `openai_responses`, `anthropic` or `other`.
    pub dialect: String,
    /// The request's path, without the query.
    pub path: String,
    /// The model as requested; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The answer was a stream of events.
    pub stream: bool,
    /// `1.1` or `2`.
    pub http: String,
    /// The status sent; absent if no head was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    /// What the script intended, in the contract's words: `complete`, `truncated`, `error_event`, `upstream_reset`,
    /// `rate_limited`, `upstream_4xx`, `upstream_5xx`.
    pub outcome: String,
    /// The client left before everything was handed over; what is below is then what it could have seen.
    pub client_gone: bool,
    /// Body bytes of the request.
    pub request_bytes: u64,
    /// When the read returned that brought the request's last byte.
    pub request_end_ns: u64,
    /// When generation started: `request_end_ns`, or later if the request queued for a slot. Absent if it never did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub start_ns: Option<u64>,
    /// When each event was due (one entry per event with data, or one for a plain answer's body).
    pub due_ns: Vec<u64>,
    /// When each event left: the clock just before the first socket write after it was handed to the HTTP library.
    /// 0 if it never did. What back-pressure then held in the socket or, on HTTP/2, behind flow control is not in it.
    pub left_ns: Vec<u64>,
    /// Which of these events carry generated content (empty for plain answers).
    pub output_events: Vec<u32>,
    /// Input tokens of the last usage handed over; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input_tokens: Option<u64>,
    /// Output tokens of the last usage handed over.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_tokens: Option<u64>,
    /// Body bytes of the answer handed over.
    pub response_bytes: u64,
}

impl Truth {
    /// When the first output event left; absent without one.
    pub fn first_output_ns(&self) -> Option<u64> {
        self.left_of(*self.output_events.first()?)
    }

    /// When the last output event left; absent without one.
    pub fn last_output_ns(&self) -> Option<u64> {
        self.left_of(*self.output_events.last()?)
    }

    fn left_of(&self, event: u32) -> Option<u64> {
        self.left_ns.get(event as usize).copied().filter(|left| *left != 0)
    }
}

/// Where the truth goes. Nothing is dropped: when the writer can't keep up, the simulation waits for it.
#[derive(Debug)]
pub struct Log {
    sender: SyncSender<Truth>,
    written: oneshot::Receiver<io::Result<()>>,
}

impl Log {
    /// Requests that may wait for the writer.
    const BACKLOG: usize = 1024;

    /// A log that replaces this file.
    ///
    /// # Errors
    /// If the file can't be created or the writer's thread not started.
    pub fn file(path: &Path) -> io::Result<Self> {
        Self::to(File::create(path)?)
    }

    /// A log that is written here, line by line.
    ///
    /// # Errors
    /// If the writer's thread can't be started.
    pub fn to(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(Self::BACKLOG);
        let (done, written) = oneshot::channel();
        thread::Builder::new().name("sim-log".to_owned()).spawn(move || {
            // Whoever waits may be gone; then nobody wants to know.
            let _ = done.send(write_all(&receiver, BufWriter::new(writer)));
        })?;
        Ok(Self { sender, written })
    }

    pub(super) fn sender(&self) -> SyncSender<Truth> {
        self.sender.clone()
    }

    /// Waits until everything is written. Only ends once all ledgers are gone.
    pub(super) async fn close(self) -> io::Result<()> {
        drop(self.sender);
        self.written.await.unwrap_or_else(|_| Err(io::Error::other("the log's writer died")))
    }
}

fn write_all(receiver: &Receiver<Truth>, mut writer: impl Write) -> io::Result<()> {
    loop {
        let truth = match receiver.try_recv() {
            Ok(truth) => truth,
            Err(TryRecvError::Disconnected) => return writer.flush(),
            Err(TryRecvError::Empty) => {
                // Whoever follows the file sees whole lines as soon as there is time for it.
                writer.flush()?;
                let Ok(truth) = receiver.recv() else { return Ok(()) };
                truth
            }
        };
        serde_json::to_writer(&mut writer, &truth)?;
        writer.write_all(b"\n")?;
    }
}

/// The truth of one request while it happens; goes to the log when its last holder lets go of it: the body, or the
/// connection once it has written the last event.
#[derive(Debug)]
pub(super) struct Ledger {
    truth: Mutex<Truth>,
    sender: SyncSender<Truth>,
}

impl Ledger {
    pub(super) fn open(truth: Truth, sender: SyncSender<Truth>) -> Arc<Self> {
        Arc::new(Self { truth: Mutex::new(truth), sender })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let truth = std::mem::take(self.truth.get_mut().unwrap_or_else(PoisonError::into_inner));
        // Fails only if the writer died; `Log::close` reports that.
        let _ = self.sender.send(truth);
    }
}

/// What one connection knows of its socket: when the last read returned, and which events wait for a write.
#[derive(Debug)]
pub(super) struct Departures {
    clock: Clock,
    last_read: AtomicStamp,
    waiting: Mutex<Vec<(Arc<Ledger>, usize)>>,
}

impl Departures {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, last_read: AtomicStamp::absent(), waiting: Mutex::default() }
    }

    /// A read of the socket has returned with bytes.
    pub(super) fn read(&self) {
        self.last_read.store(Some(self.clock.now()));
    }

    /// When the last read returned that brought bytes.
    pub(super) fn last_read(&self) -> Stamp {
        self.last_read.load().unwrap_or_else(|| self.clock.now())
    }

    /// The HTTP library has been given this event (its index in the ledger).
    pub(super) fn handed_over(&self, ledger: &Arc<Ledger>, event: usize) {
        self.waiting().push((Arc::clone(ledger), event));
    }

    /// To be called just before a write: how many events wait for it, and the clock. On HTTP/2 other tasks may hand over
    /// more while it runs; those wait for the next.
    pub(super) fn before_write(&self) -> (usize, Stamp) {
        let waiting = self.waiting().len();
        (waiting, self.clock.now())
    }

    /// That write took bytes.
    pub(super) fn wrote(&self, (waiting, before): (usize, Stamp)) {
        let left = unix_nanos(&self.clock, before);
        for (ledger, event) in self.waiting().drain(..waiting) {
            if let Some(slot) = ledger.lock().left_ns.get_mut(event) {
                *slot = left;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Arc<Ledger>, usize)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stamp as nanoseconds since the Unix epoch.
pub fn unix_nanos(clock: &Clock, stamp: Stamp) -> u64 {
    let since = clock.wall(stamp).duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_stamped_by_the_first_write_after_it() {
        let clock = Clock::start();
        let departures = Departures::new(clock);
        let (sender, receiver) = sync_channel(1);
        let ledger = Ledger::open(Truth { left_ns: vec![0, 0], ..Truth::default() }, sender);
        departures.handed_over(&ledger, 0);
        let first = departures.before_write();
        // While that write runs.
        departures.handed_over(&ledger, 1);
        departures.wrote(first);
        drop(ledger);
        assert!(receiver.try_recv().is_err(), "the second event still waits");
        let second = departures.before_write();
        departures.wrote(second);
        assert_eq!(receiver.try_recv().unwrap().left_ns, [first.1, second.1].map(|stamp| unix_nanos(&clock, stamp)));
    }

    #[test]
    fn events_of_a_lost_connection_never_left() {
        let departures = Departures::new(Clock::start());
        let (sender, receiver) = sync_channel(1);
        departures.handed_over(&Ledger::open(Truth { left_ns: vec![0], ..Truth::default() }, sender), 0);
        drop(departures);
        assert_eq!(receiver.try_recv().unwrap().left_ns, [0]);
    }
}
