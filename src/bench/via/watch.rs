//! Reads the gauge's memory of its last exchanges before it forgets them.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{figures::Record, health};

/// How often the thread looks whether there is something to fetch.
const TICK: Duration = Duration::from_millis(250);

/// It fetches what is outstanding in every fourth tick, and at once where this many are: the memory has room for 512 if
/// nothing is said.
const MANY: usize = 64;

/// A gauge books an exchange when its last byte is out, about when the client has it: what is missing after so many
/// fetches does not come.
const TRIES: u32 = 4;

/// All that is remembered; the gauge bounds it.
const EVERYTHING: &str = "/exchanges?limit=1000000";

/// Watches a gauge while requests run through it.
#[derive(Debug)]
pub(in crate::bench) struct Watch {
    over: Sender<String>,
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// The gauge's records of the requests it was asked about.
#[derive(Default, Debug)]
pub(in crate::bench) struct Seen {
    /// By trace id.
    pub(super) records: HashMap<String, Record>,
    /// The gauge forgot more between two fetches than it remembers.
    pub(super) overrun: bool,
    /// Why the last fetch failed, if it did.
    pub(super) fault: Option<String>,
    /// The newest record of the last fetch.
    newest: Option<String>,
}

impl Watch {
    /// Asks the gauge once, and then watches it on a thread of its own. Blocks a few seconds at most.
    ///
    /// # Errors
    /// If nothing answers there, or what answers does not serve exchanges: nothing should be asked of the provider then.
    pub(in crate::bench) fn begin(admin: SocketAddr) -> io::Result<Self> {
        let mut seen = Seen::default();
        let none = &mut HashMap::new();
        seen.fetch(admin, none).map_err(|error| {
            let hint = "wanted is the admin address of a running streamgauge (`[admin] address`, `--admin`) that serves /exchanges";
            io::Error::new(error.kind(), format!("--via {admin}: {error}; {hint}"))
        })?;
        let ((over, outstanding), (stop, stopped)) = (channel(), channel());
        let gather = move || seen.gather(admin, &outstanding, &stopped);
        let thread = thread::Builder::new().name("bench-via".to_owned()).spawn(gather)?;
        Ok(Self { over, stop, thread })
    }

    /// A request with this trace id is over: its record is wanted.
    pub(in crate::bench) fn over(&self, trace_id: &str) {
        // The thread lives until `stop` is dropped.
        let _ = self.over.send(trace_id.to_owned());
    }

    /// Fetches what is left; blocks for a second or so, and longer only if the gauge no longer answers.
    pub(in crate::bench) fn end(self) -> Seen {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

impl Seen {
    fn gather(mut self, admin: SocketAddr, over: &Receiver<String>, stopped: &Receiver<()>) -> Self {
        let mut wanted = HashMap::new();
        for tick in 1.. {
            let ended = stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout);
            wanted.extend(over.try_iter().map(|trace_id| (trace_id, 0)));
            if ended {
                break;
            }
            if wanted.len() >= MANY || tick % 4 == 0 && !wanted.is_empty() {
                self.fetch_or_say_why(admin, &mut wanted);
            }
        }
        while !wanted.is_empty() {
            self.fetch_or_say_why(admin, &mut wanted);
            if !wanted.is_empty() {
                thread::sleep(TICK);
            }
        }
        self
    }

    fn fetch_or_say_why(&mut self, admin: SocketAddr, wanted: &mut HashMap<String, u32>) {
        self.fault = self.fetch(admin, wanted).err().map(|error| error.to_string());
        wanted.retain(|_, tries| {
            *tries += 1;
            *tries < TRIES
        });
    }

    /// Keeps what is wanted of what the gauge remembers now.
    fn fetch(&mut self, admin: SocketAddr, wanted: &mut HashMap<String, u32>) -> io::Result<()> {
        let page = health::page(admin, EVERYTHING)?;
        self.keep(serde_json::from_str(&page).map_err(io::Error::other)?, wanted);
        Ok(())
    }

    /// The same of these records, newest first.
    fn keep(&mut self, records: Vec<Record>, wanted: &mut HashMap<String, u32>) {
        let Some(newest) = records.first().map(|record| record.id.clone()) else { return };
        if let Some(before) = self.newest.replace(newest) {
            self.overrun |= !records.iter().any(|record| record.id == before);
        }
        for record in records {
            if let Some((trace_id, _)) = record.trace_id.as_ref().and_then(|trace_id| wanted.remove_entry(trace_id)) {
                self.records.insert(trace_id, record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn record(id: u32) -> Record {
        Record { id: format!("{id:016x}"), trace_id: Some(format!("{id:032x}")), ..Record::default() }
    }

    #[test]
    fn what_is_wanted_is_kept_and_an_overrun_is_seen() {
        let (mut seen, mut wanted) = (Seen::default(), HashMap::new());
        wanted.extend([1, 3, 9].map(|id| (format!("{id:032x}"), 0)));
        seen.keep([2, 1].map(record).into(), &mut wanted);
        assert_eq!((seen.records.len(), wanted.len(), seen.overrun), (1, 2, false));
        seen.keep([3, 2].map(record).into(), &mut wanted);
        assert_eq!((seen.records.len(), wanted.len(), seen.overrun), (2, 1, false));
        seen.keep(Vec::new(), &mut wanted);
        assert!(!seen.overrun);
        seen.keep([5, 4].map(record).into(), &mut wanted);
        assert!(seen.overrun, "3 is gone, and who knows what else");
        assert_eq!(wanted.into_keys().collect::<Vec<_>>(), [format!("{:032x}", 9)]);
    }

    #[test]
    fn an_address_without_a_gauge_is_refused_before_anything_is_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = Watch::begin(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let text = error.to_string();
        assert!(text.starts_with(&format!("--via {address}: no answer from http://{address}/exchanges")), "{text}");
        assert!(text.contains("admin address of a running streamgauge"), "{text}");
    }
}
