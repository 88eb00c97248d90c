//! The record of an exchange: one JSON object per line, written by a thread of its own.
//!
//! Keys and their order are the contract's. What was not observed is left out; spans are exact decimals of their
//! nanoseconds. Content, query strings and credentials are not in an [`Observation`] and can't get here.

mod record;
mod time;

use std::{
    fs::OpenOptions,
    io::{self, Write},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use prometheus::IntCounter;

use self::record::push_record;
pub use self::record::record_json;
use crate::{config::LogTarget, observation::Observation};

/// Records that may wait for the writer: about 20 MB when the disk stands still.
const QUEUE: usize = 8192;
/// Bytes gathered before they are written although more records wait.
const BATCH: usize = 64 * 1024;
/// How long the writer rests behind a write. Records that come meanwhile wake nobody and leave with one write: under load
/// that is two wake-ups in this time, where there was one for each request.
const REST: Duration = Duration::from_millis(5);

/// The access log. Sending never waits: what finds the queue full is counted and dropped.
#[derive(Debug)]
pub struct AccessLog {
    queue: SyncSender<Message>,
    closing: Arc<Closing>,
    /// Says nothing, and is lost when the writer ends.
    ended: Mutex<Receiver<()>>,
    dropped: IntCounter,
}

/// Whether the log is closing, which ends the writer's rest.
#[derive(Debug, Default)]
struct Closing {
    closing: Mutex<bool>,
    changed: Condvar,
}

enum Message {
    Record(Arc<Observation>),
    Close,
}

impl AccessLog {
    /// Opens the target (a file is appended to) and starts the writer.
    ///
    /// # Errors
    /// If the file can't be opened or the thread not be started.
    pub fn open(target: &LogTarget, dropped: IntCounter) -> io::Result<Self> {
        let sink: Box<dyn Write + Send> = match target {
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::File(path) => Box::new(OpenOptions::new().create(true).append(true).open(path)?),
        };
        Self::to(sink, QUEUE, REST, dropped)
    }

    fn to(sink: Box<dyn Write + Send>, queue: usize, rest: Duration, dropped: IntCounter) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(queue);
        let (alive, ended) = channel::<()>();
        let closing = Arc::<Closing>::default();
        let (lost, last) = (dropped.clone(), Arc::clone(&closing));
        thread::Builder::new().name("access-log".into()).spawn(move || {
            write_all(&receiver, sink, &lost, &last, rest);
            drop(alive);
        })?;
        Ok(Self { queue: sender, closing, ended: Mutex::new(ended), dropped })
    }

    /// Hands a record to the writer, or drops and counts it if the queue is full or closed.
    pub fn send(&self, observation: Arc<Observation>) {
        if self.queue.try_send(Message::Record(observation)).is_err() {
            self.dropped.inc();
        }
    }

    /// Has what is queued written out and the writer end, and waits for that, but not longer than `patience`: whoever
    /// reads the log may have stopped reading. Whether it is done; if not, it may be called again to wait on.
    pub fn close(&self, patience: Duration) -> bool {
        self.closing.begin();
        // Wakes a writer that has nothing to do. One whose queue is full, so that this fails, looks for itself.
        let _ = self.queue.try_send(Message::Close);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Closing {
    fn begin(&self) {
        *self.state() = true;
        self.changed.notify_all();
    }

    fn has_begun(&self) -> bool {
        *self.state()
    }

    /// Waits for so long, but not beyond the closing.
    fn rest(&self, time: Duration) {
        let waited = self.changed.wait_timeout_while(self.state(), time, |closing| !*closing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes records until told to close. What is gathered leaves when no more waits, or at 64 KiB: a record that comes alone
/// at once, one that comes shortly behind a write at the end of the writer's `rest`.
fn write_all(
    queue: &Receiver<Message>,
    sink: Box<dyn Write + Send>,
    dropped: &IntCounter,
    closing: &Closing,
    rest: Duration,
) {
    let mut batch = Batch { sink, text: Vec::with_capacity(2 * BATCH), records: 0, torn: false };
    loop {
        let message = match queue.try_recv() {
            Ok(message) => Some(message),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                if batch.records > 0 {
                    batch.write(dropped);
                    closing.rest(rest);
                }
                // Meanwhile more may have come.
                if closing.has_begun() { queue.try_recv().ok() } else { queue.recv().ok() }
            }
        };
        let Some(Message::Record(observation)) = message else { break };
        push_record(&mut batch.text, &observation);
        batch.text.push(b'\n');
        batch.records += 1;
        if batch.text.len() >= BATCH {
            batch.write(dropped);
        }
    }
    batch.write(dropped);
}

struct Batch {
    sink: Box<dyn Write + Send>,
    text: Vec<u8>,
    records: u64,
    /// The last write failed, perhaps amid a line.
    torn: bool,
}

impl Batch {
    fn write(&mut self, dropped: &IntCounter) {
        if self.records == 0 {
            return;
        }
        if self.torn {
            self.text.insert(0, b'\n');
        }
        let written = self.sink.write_all(&self.text).and_then(|()| self.sink.flush());
        if let Err(error) = &written {
            dropped.inc_by(self.records);
            if !self.torn {
                tracing::warn!(%error, "the access log can't be written");
            }
        }
        self.torn = written.is_err();
        self.text.clear();
        self.records = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::Sender, time::SystemTime};

    use super::*;
    use crate::{
        clock::Stamp,
        observation::{ExchangeId, Outcome},
        timeline::Timeline,
    };

    fn observation(id: u64) -> Arc<Observation> {
        let timeline = Timeline::begin(Stamp::from_nanos(1).unwrap());
        Arc::new(Observation::begin(ExchangeId(id), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete))
    }

    /// Longer than any test may take.
    const LONG: Duration = Duration::from_secs(60);

    fn counter() -> IntCounter {
        IntCounter::new("dropped", "Dropped.").unwrap()
    }

    /// Takes writes and tells of each; waits for leave to go on where a gate is set, fails the first ones.
    struct Sink {
        written: Arc<Mutex<Vec<u8>>>,
        gate: Option<(Sender<()>, Receiver<()>)>,
        failures: usize,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some((arrived, leave)) = &self.gate {
                arrived.send(()).unwrap();
                leave.recv().unwrap();
            }
            if self.failures > 0 {
                self.failures -= 1;
                return Err(io::Error::other("full"));
            }
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ids(written: &[u8]) -> Vec<String> {
        let lines = std::str::from_utf8(written).unwrap().lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().into())
            .collect()
    }

    #[test]
    fn closing_writes_out_what_is_queued_and_later_records_are_counted_as_dropped() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let dropped = counter();
        let sink = Sink { written: written.clone(), gate: None, failures: 0 };
        let log = AccessLog::to(Box::new(sink), 1000, REST, dropped.clone()).unwrap();
        (0..500).for_each(|id| log.send(observation(id)));
        assert!(log.close(LONG));
        assert!(log.close(LONG), "it stays closed");
        let expected: Vec<_> = (0..500).map(|id| format!("{id:016x}")).collect();
        assert_eq!(ids(&written.lock().unwrap()), expected);
        log.send(observation(1));
        assert_eq!(dropped.get(), 1);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let dropped = counter();
        let (arrived, at_gate) = channel();
        let (open, leave) = channel();
        let sink = Sink { written: written.clone(), gate: Some((arrived, leave)), failures: 0 };
        let log = AccessLog::to(Box::new(sink), 4, REST, dropped.clone()).unwrap();
        log.send(observation(0));
        at_gate.recv().unwrap(); // the writer is busy with the first
        (1..=10).for_each(|id| log.send(observation(id)));
        assert_eq!(dropped.get(), 6);
        (0..11).for_each(|_| open.send(()).unwrap());
        assert!(log.close(LONG));
        let expected: Vec<_> = (0..5).map(|id| format!("{id:016x}")).collect();
        assert_eq!(ids(&written.lock().unwrap()), expected);
    }

    #[test]
    fn closing_does_not_wait_for_a_reader_that_stopped_reading() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (arrived, at_gate) = channel();
        let (open, leave) = channel();
        let sink = Sink { written: written.clone(), gate: Some((arrived, leave)), failures: 0 };
        let log = AccessLog::to(Box::new(sink), 2, REST, counter()).unwrap();
        log.send(observation(0));
        at_gate.recv().unwrap();
        (1..=2).for_each(|id| log.send(observation(id)));
        assert!(!log.close(Duration::ZERO), "the writer is stuck and its queue is full");
        // It reads on: nothing of what was queued is lost.
        (0..2).for_each(|_| open.send(()).unwrap());
        assert!(log.close(LONG));
        assert_eq!(ids(&written.lock().unwrap()), [0, 1, 2].map(|id| format!("{id:016x}")));
    }

    #[test]
    fn a_record_alone_leaves_at_once_and_those_behind_it_together() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (arrived, at_gate) = channel();
        let (open, leave) = channel();
        let sink = Sink { written: written.clone(), gate: Some((arrived, leave)), failures: 0 };
        // It rests until it is closed.
        let log = AccessLog::to(Box::new(sink), 16, 2 * LONG, counter()).unwrap();
        (0..3).for_each(|_| open.send(()).unwrap());
        log.send(observation(0));
        at_gate.recv_timeout(LONG).unwrap();
        (1..=9).for_each(|id| log.send(observation(id)));
        assert!(log.close(LONG));
        assert_eq!(at_gate.iter().count(), 1, "one write for nine");
        let expected: Vec<_> = (0..10).map(|id| format!("{id:016x}")).collect();
        assert_eq!(ids(&written.lock().unwrap()), expected);
    }

    #[test]
    fn what_a_failed_write_took_is_counted_and_the_next_line_is_whole() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let dropped = counter();
        let (arrived, at_gate) = channel();
        let (open, leave) = channel();
        let sink = Sink { written: written.clone(), gate: Some((arrived, leave)), failures: 1 };
        let log = AccessLog::to(Box::new(sink), 4, REST, dropped.clone()).unwrap();
        log.send(observation(1));
        at_gate.recv().unwrap();
        log.send(observation(2));
        (0..2).for_each(|_| open.send(()).unwrap());
        assert!(log.close(LONG));
        assert_eq!((ids(&written.lock().unwrap()), dropped.get()), (vec![format!("{:016x}", 2)], 1));
    }

    #[test]
    fn a_file_is_appended_to() {
        let path = std::env::temp_dir().join(format!("streamgauge-access-log-{}.jsonl", std::process::id()));
        for id in [1, 2] {
            let log = AccessLog::open(&LogTarget::File(path.clone()), counter()).unwrap();
            log.send(observation(id));
            assert!(log.close(LONG));
        }
        let written = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(ids(&written), [1, 2].map(|id| format!("{id:016x}")));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_at_the_start() {
        let nowhere = LogTarget::File("/nonexistent/directory/access.jsonl".into());
        assert!(AccessLog::open(&nowhere, counter()).is_err());
    }
}
