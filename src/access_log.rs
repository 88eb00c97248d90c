//! The record of an exchange: one JSON object per line. Whoever ends an exchange makes its line, while all that goes into it
//! is still in the caches of its core; a thread of its own writes the lines.
//!
//! Keys and their order are the contract's. What was not observed is left out; spans are exact decimals of their
//! nanoseconds. Content, query strings and credentials are not in an [`Observation`] and can't get here.

mod object;
mod record;
mod time;

use std::{
    cell::Cell,
    fs::OpenOptions,
    io::{self, Write},
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use prometheus::IntCounter;

pub use self::record::record_json;
use self::record::write_record;
use crate::{config::LogTarget, observation::Observation};

/// Bytes of lines that may wait for the writer when the disk stands still: some ten thousand.
const MOST: usize = 16 * 1024 * 1024;
/// Room for lines that is kept although they have left: what comes in a rest under load. The rest is given back.
const KEPT: usize = 1024 * 1024;
/// How long the writer rests behind a write. Records that come meanwhile wake nobody and leave with one write: under load
/// that is two wake-ups in this time, where there was one for each request.
const REST: Duration = Duration::from_millis(5);

thread_local! {
    /// Where this thread makes its records, so that it locks only to append one.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The access log. Sending never waits for the disk: what finds no room is counted and dropped.
#[derive(Debug)]
pub struct AccessLog {
    lines: Arc<Lines>,
    /// Says nothing, and is lost when the writer ends.
    ended: Mutex<Receiver<()>>,
    dropped: IntCounter,
}

/// Lines on their way to the writer.
#[derive(Debug)]
struct Lines {
    waiting: Mutex<Waiting>,
    /// Something came to a writer that has nothing to do, or the log is closing.
    changed: Condvar,
    /// Bytes that may wait.
    most: usize,
}

#[derive(Default, Debug)]
struct Waiting {
    text: Vec<u8>,
    records: u64,
    /// The writer waits for the next one.
    idle: bool,
    closing: bool,
    /// The writer takes no more.
    closed: bool,
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
        Self::to(sink, MOST, REST, dropped)
    }

    fn to(sink: Box<dyn Write + Send>, most: usize, rest: Duration, dropped: IntCounter) -> io::Result<Self> {
        let lines = Arc::new(Lines { waiting: Mutex::default(), changed: Condvar::new(), most });
        let (alive, ended) = channel::<()>();
        let (written, lost) = (Arc::clone(&lines), dropped.clone());
        thread::Builder::new().name("access-log".into()).spawn(move || {
            write_all(&written, sink, &lost, rest);
            drop(alive);
        })?;
        Ok(Self { lines, ended: Mutex::new(ended), dropped })
    }

    /// Hands a record to the writer, or drops and counts it if too many wait or the log is closed.
    pub fn send(&self, observation: &Observation) {
        let mut room = ROOM.take();
        let len = write_record(&mut room, observation);
        if !self.lines.push(&room[..len]) {
            self.dropped.inc();
        }
        ROOM.set(room);
    }

    /// Has what waits written out and the writer end, and waits for that, but not longer than `patience`: whoever
    /// reads the log may have stopped reading. Whether it is done; if not, it may be called again to wait on.
    pub fn close(&self, patience: Duration) -> bool {
        self.lines.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Drop for AccessLog {
    /// Nobody sends any more: the writer writes what is left, and ends.
    fn drop(&mut self) {
        self.lines.close();
    }
}

impl Lines {
    /// Appends a record's line; whether there was room.
    fn push(&self, record: &[u8]) -> bool {
        let mut waiting = self.lock();
        if waiting.closed || waiting.text.len() + record.len() >= self.most {
            return false;
        }
        waiting.text.extend_from_slice(record);
        waiting.text.push(b'\n');
        waiting.records += 1;
        let idle = mem::take(&mut waiting.idle);
        drop(waiting);
        if idle {
            self.changed.notify_one();
        }
        true
    }

    fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_one();
    }

    /// Waits for lines and takes all there are into `text`, which is empty, and says how many. Absent once none are left and
    /// the log is closing.
    fn take(&self, text: &mut Vec<u8>) -> Option<u64> {
        let nothing = |waiting: &mut Waiting| {
            waiting.idle = waiting.records == 0 && !waiting.closing;
            waiting.idle
        };
        let mut waiting = self.changed.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        waiting.closed = waiting.records == 0;
        mem::swap(&mut waiting.text, text);
        Some(mem::take(&mut waiting.records)).filter(|records| *records > 0)
    }

    /// Waits for so long, but not beyond the closing.
    fn rest(&self, time: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |waiting| !waiting.closing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes lines until the log is closed: one that comes alone at once, those that come shortly behind a write together at the
/// end of the writer's `rest`.
fn write_all(lines: &Lines, sink: Box<dyn Write + Send>, dropped: &IntCounter, rest: Duration) {
    let mut batch = Batch { sink, text: Vec::new(), torn: false };
    while let Some(records) = lines.take(&mut batch.text) {
        batch.write(records, dropped);
        lines.rest(rest);
    }
}

struct Batch {
    sink: Box<dyn Write + Send>,
    text: Vec<u8>,
    /// The last write failed, perhaps amid a line.
    torn: bool,
}

impl Batch {
    fn write(&mut self, records: u64, dropped: &IntCounter) {
        if self.torn {
            self.text.insert(0, b'\n');
        }
        let written = self.sink.write_all(&self.text).and_then(|()| self.sink.flush());
        if let Err(error) = &written {
            dropped.inc_by(records);
            if !self.torn {
                tracing::warn!(%error, "the access log can't be written");
            }
        }
        self.torn = written.is_err();
        self.text.clear();
        self.text.shrink_to(KEPT);
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

    fn observation(id: u64) -> Observation {
        let timeline = Timeline::begin(Stamp::from_nanos(1).unwrap());
        Observation::begin(ExchangeId(id), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete)
    }

    /// Room for so many of these.
    fn room(records: usize) -> usize {
        records * (record_json(&observation(0)).len() + 1)
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
        let log = AccessLog::to(Box::new(sink), room(1000), REST, dropped.clone()).unwrap();
        (0..500).for_each(|id| log.send(&observation(id)));
        assert!(log.close(LONG));
        assert!(log.close(LONG), "it stays closed");
        let expected: Vec<_> = (0..500).map(|id| format!("{id:016x}")).collect();
        assert_eq!(ids(&written.lock().unwrap()), expected);
        log.send(&observation(1));
        assert_eq!(dropped.get(), 1);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let dropped = counter();
        let (arrived, at_gate) = channel();
        let (open, leave) = channel();
        let sink = Sink { written: written.clone(), gate: Some((arrived, leave)), failures: 0 };
        let log = AccessLog::to(Box::new(sink), room(4), REST, dropped.clone()).unwrap();
        log.send(&observation(0));
        at_gate.recv().unwrap(); // the writer is busy with the first
        (1..=10).for_each(|id| log.send(&observation(id)));
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
        let log = AccessLog::to(Box::new(sink), room(2), REST, counter()).unwrap();
        log.send(&observation(0));
        at_gate.recv().unwrap();
        (1..=2).for_each(|id| log.send(&observation(id)));
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
        let log = AccessLog::to(Box::new(sink), room(16), 2 * LONG, counter()).unwrap();
        (0..3).for_each(|_| open.send(()).unwrap());
        log.send(&observation(0));
        at_gate.recv_timeout(LONG).unwrap();
        (1..=9).for_each(|id| log.send(&observation(id)));
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
        let log = AccessLog::to(Box::new(sink), room(4), REST, dropped.clone()).unwrap();
        log.send(&observation(1));
        at_gate.recv().unwrap();
        log.send(&observation(2));
        (0..2).for_each(|_| open.send(()).unwrap());
        assert!(log.close(LONG));
        assert_eq!((ids(&written.lock().unwrap()), dropped.get()), (vec![format!("{:016x}", 2)], 1));
    }

    #[test]
    fn a_log_that_is_dropped_is_written_to_its_end() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink { written: written.clone(), gate: None, failures: 0 };
        let mut log = AccessLog::to(Box::new(sink), room(1000), REST, counter()).unwrap();
        (0..500).for_each(|id| log.send(&observation(id)));
        let ended = mem::replace(&mut log.ended, Mutex::new(channel().1));
        drop(log);
        assert_eq!(ended.into_inner().unwrap().recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        assert_eq!(ids(&written.lock().unwrap()).len(), 500);
    }

    #[test]
    fn a_file_is_appended_to() {
        let path = std::env::temp_dir().join(format!("streamgauge-access-log-{}.jsonl", std::process::id()));
        for id in [1, 2] {
            let log = AccessLog::open(&LogTarget::File(path.clone()), counter()).unwrap();
            log.send(&observation(id));
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
