//! From files to rows, line by line.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, BufRead, BufReader, IsTerminal as _, Read, Write as _},
    path::Path,
    rc::Rc,
};

use flate2::read::MultiGzDecoder;
use serde::Serialize;

use super::rows::{Log, time};
use crate::{cli::ReportArgs, figures::Record};

/// A record is a few kilobytes. What is longer is skipped up to its end, so that no line costs more memory.
const LONGEST_LINE: u64 = 1 << 20;
/// Unreadable lines that are named; the others are counted.
const NAMED: usize = 5;
/// Bytes between two words on progress.
const STEP: u64 = 32 << 20;

/// What became of the lines: `lines` is the sum of `blank`, `unreadable`, `filtered`, `tunnels` and `requests`.
#[derive(Clone, Default, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "each is a key of the JSON")]
pub(super) struct Lines {
    pub(super) lines: u64,
    pub(super) blank: u64,
    /// No record: torn, or something else.
    pub(super) unreadable: u64,
    /// Not asked for by the filter.
    pub(super) filtered: u64,
    /// Connections that became tunnels: they have no latency. Their turns have records of their own.
    pub(super) tunnels: u64,
    /// What every figure is made of.
    pub(super) requests: u64,
    /// The first unreadable lines, and files that broke off.
    pub(super) faults: Vec<Fault>,
}

/// What could not be read.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fault {
    pub(super) file: String,
    /// Counted from 1; where a file broke off, the last line that came.
    pub(super) line: u64,
    pub(super) why: String,
}

/// Which requests are asked for.
#[derive(Clone, Default, Debug)]
pub(super) struct Filter {
    upstream: Option<String>,
    model: Option<String>,
    since: Option<f64>,
    until: Option<f64>,
}

impl Filter {
    /// The filter the flags ask for.
    ///
    /// # Errors
    /// If a time is none.
    pub(super) fn of(arguments: &ReportArgs) -> io::Result<Self> {
        let instant = |flag: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => instant(text).map(Some).ok_or_else(|| {
                let why = format!("{flag} {text:?}: write it in UTC, like 2026-01-31T12:00:00Z or 2026-01-31");
                io::Error::new(io::ErrorKind::InvalidInput, why)
            }),
        };
        Ok(Self {
            upstream: arguments.upstream.clone(),
            model: arguments.model.clone(),
            since: instant("--since", &arguments.since)?,
            until: instant("--until", &arguments.until)?,
        })
    }

    fn takes(&self, record: &Record) -> bool {
        let is = |wanted: &Option<String>, there: &Option<String>| wanted.is_none() || wanted == there;
        let in_time = || match (self.since, self.until) {
            (None, None) => true,
            (since, until) => time(&record.time)
                .is_some_and(|time| since.is_none_or(|since| time >= since) && until.is_none_or(|until| time < until)),
        };
        is(&self.upstream, &record.upstream) && is(&self.model, &record.model) && in_time()
    }
}

/// An instant in seconds since 1970; a day alone is its beginning.
fn instant(text: &str) -> Option<f64> {
    time(text).or_else(|| time(&format!("{text}T00:00:00Z")))
}

/// Reads all files, one after the other.
///
/// # Errors
/// If a file can't be opened. What can't be read of an open one is in [`Lines::faults`].
pub(super) fn read(files: &[impl AsRef<Path>], filter: &Filter) -> io::Result<(Log, Lines)> {
    let (mut log, mut lines) = (Log::default(), Lines::default());
    let mut progress = Progress::of(files);
    for file in files {
        let file = file.as_ref();
        let name = file.display().to_string();
        let plain: Box<dyn Read> = if file == Path::new("-") { Box::new(io::stdin().lock()) } else { open(file)? };
        let counted = Counted { inner: plain, bytes: Rc::clone(&progress.bytes) };
        match unpacked(counted) {
            Ok(reader) => read_lines(reader, &name, filter, &mut log, &mut lines, &mut progress),
            Err(error) => lines.fault(&name, 0, error.to_string()),
        }
    }
    progress.done();
    Ok((log, lines))
}

fn open(file: &Path) -> io::Result<Box<dyn Read>> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("can't read {}: {error}", file.display()));
    if fs::metadata(file).map_err(named)?.is_dir() {
        return Err(named(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")));
    }
    Ok(Box::new(File::open(file).map_err(named)?))
}

/// Unpacks what begins like gzip, whatever its name: standard input has none.
fn unpacked<R: Read + 'static>(mut reader: R) -> io::Result<Box<dyn BufRead>> {
    let mut begin = Vec::with_capacity(2);
    reader.by_ref().take(2).read_to_end(&mut begin)?;
    let packed = begin == [0x1f, 0x8b];
    let whole = io::Cursor::new(begin).chain(reader);
    if packed {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(BufReader::new(whole)))));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, whole)))
}

fn read_lines(
    mut reader: impl BufRead,
    name: &str,
    filter: &Filter,
    log: &mut Log,
    lines: &mut Lines,
    progress: &mut Progress,
) {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let ended = match reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => line.ends_with(b"\n") || (line.len() as u64) < LONGEST_LINE,
            // What came of this line is lost with the rest.
            Err(error) => return lines.fault(name, number - 1, format!("the file broke off: {error}")),
        };
        lines.lines += 1;
        progress.step(lines.lines);
        if !ended {
            lines.unreadable += 1;
            lines.fault(name, number, format!("longer than {LONGEST_LINE} bytes"));
            if let Err(error) = skip_line(&mut reader) {
                return lines.fault(name, number, format!("the file broke off: {error}"));
            }
            continue;
        }
        take(&line, name, number, filter, log, lines);
    }
}

fn take(line: &[u8], name: &str, number: u64, filter: &Filter, log: &mut Log, lines: &mut Lines) {
    if line.trim_ascii().is_empty() {
        lines.blank += 1;
        return;
    }
    let record =
        std::str::from_utf8(line).map_err(|error| error.to_string()).and_then(|line| Record::parse(line).map_err(why));
    match record {
        // Any object of JSON has the form of a record; each record has an outcome.
        Ok(record) if record.outcome.is_empty() => {
            lines.unreadable += 1;
            lines.fault(name, number, "no record: it has no outcome".to_owned());
        }
        Ok(record) if !filter.takes(&record) => lines.filtered += 1,
        Ok(record) if record.endpoint == "tunnel" => lines.tunnels += 1,
        Ok(record) => {
            lines.requests += 1;
            log.add(&record);
        }
        Err(why) => {
            lines.unreadable += 1;
            lines.fault(name, number, why);
        }
    }
}

/// What is wrong, without the place: it is always line 1 of one line.
fn why(error: serde_json::Error) -> String {
    let text = error.to_string();
    let column = error.column();
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(what, _)| format!("{what}, column {column}"))
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let there = reader.fill_buf()?;
        if there.is_empty() {
            return Ok(());
        }
        let end = memchr::memchr(b'\n', there);
        let used = end.map_or(there.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

impl Lines {
    fn fault(&mut self, file: &str, line: u64, why: String) {
        if self.faults.len() < NAMED {
            self.faults.push(Fault { file: file.to_owned(), line, why });
        }
    }
}

/// Counts the bytes that come from a file, packed or not.
struct Counted<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// A line on standard error that says how far it is: on a terminal, and only for what takes a while.
struct Progress {
    bytes: Rc<Cell<u64>>,
    /// Of all files; absent if one's size is unknown.
    total: Option<u64>,
    next: u64,
    shows: bool,
}

impl Progress {
    fn of(files: &[impl AsRef<Path>]) -> Self {
        let size = |file: &Path| fs::metadata(file).ok().filter(fs::Metadata::is_file).map(|facts| facts.len());
        let total = files.iter().map(|file| size(file.as_ref())).sum();
        Self { bytes: Rc::default(), total, next: STEP, shows: io::stderr().is_terminal() }
    }

    fn step(&mut self, lines: u64) {
        let bytes = self.bytes.get();
        if !self.shows || bytes < self.next {
            return;
        }
        self.next = bytes + STEP;
        let share =
            self.total.filter(|total| *total > 0).map(|total| format!("{:.0} %", bytes as f64 / total as f64 * 100.0));
        let share = share.unwrap_or_else(|| format!("{} MiB", bytes >> 20));
        // Nothing depends on it.
        let _ = write!(io::stderr(), "\rreading: {share}, {lines} lines\x1b[K");
    }

    fn done(&self) {
        if self.shows && self.next > STEP {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str =
        r#"{"time":"2026-01-31T12:00:00Z","upstream":"u","model":"m","endpoint":"chat","outcome":"complete"}"#;

    fn lines_of(text: &[u8], filter: &Filter) -> (Log, Lines) {
        let (mut log, mut lines) = (Log::default(), Lines::default());
        let mut progress = Progress::of(&[] as &[&Path]);
        let reader = unpacked(io::Cursor::new(text.to_vec())).unwrap();
        read_lines(reader, "f", filter, &mut log, &mut lines, &mut progress);
        (log, lines)
    }

    fn adds_up(lines: &Lines) -> bool {
        lines.lines == lines.blank + lines.unreadable + lines.filtered + lines.tunnels + lines.requests
    }

    #[test]
    fn each_line_is_counted_once_whatever_it_is() {
        let tunnel = RECORD.replace("chat", "tunnel");
        let long = "x".repeat(3 << 20);
        let text = format!("{RECORD}\n\n{tunnel}\n{long}\n{{\"a\":1}}\nnot json\n{RECORD}\n{}", &RECORD[..20]);
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(b"\n\xff\xfe\n");
        bytes.extend_from_slice(RECORD.as_bytes());
        let (log, lines) = lines_of(&bytes, &Filter::default());
        assert_eq!((lines.lines, lines.blank, lines.tunnels, lines.requests), (10, 1, 1, 3));
        assert_eq!((lines.unreadable, log.rows.len()), (5, 3));
        assert!(adds_up(&lines));
        let named: Vec<_> = lines.faults.iter().map(|fault| fault.line).collect();
        assert_eq!(named, [4, 5, 6, 8, 9]);
        assert_eq!(lines.faults[2].why, "expected ident, column 2");
    }

    #[test]
    fn the_last_line_needs_no_end_and_nothing_is_fine() {
        assert_eq!(lines_of(RECORD.as_bytes(), &Filter::default()).1.requests, 1);
        assert_eq!(lines_of(b"", &Filter::default()).1.lines, 0);
    }

    #[test]
    fn gzip_is_seen_by_its_first_bytes_and_one_that_broke_off_gives_what_it_has() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        for _ in 0..2_000 {
            packer.write_all(format!("{RECORD}\n").as_bytes()).unwrap();
        }
        let packed = packer.finish().unwrap();
        assert_eq!(lines_of(&packed, &Filter::default()).1.requests, 2_000);
        let twice = [packed.clone(), packed.clone()].concat();
        assert_eq!(lines_of(&twice, &Filter::default()).1.requests, 4_000, "rotated logs put together");
        let (_, torn) = lines_of(&packed[..packed.len() / 2], &Filter::default());
        assert!(torn.requests > 0 && torn.requests < 2_000 && torn.faults[0].why.contains("broke off"), "{torn:?}");
        assert!(adds_up(&torn));
    }

    #[test]
    fn filters_take_what_they_name() {
        let filter = |since: Option<&str>, until: Option<&str>, model: Option<&str>| Filter {
            since: since.map(|text| instant(text).unwrap()),
            until: until.map(|text| instant(text).unwrap()),
            model: model.map(str::to_owned),
            ..Filter::default()
        };
        let takes = |filter: Filter| filter.takes(&Record::parse(RECORD).unwrap());
        assert!(takes(filter(Some("2026-01-31T12:00:00Z"), None, None)), "from then on");
        assert!(!takes(filter(None, Some("2026-01-31T12:00:00Z"), None)), "before it");
        assert!(takes(filter(Some("2026-01-31"), Some("2026-02-01"), Some("m"))));
        assert!(!takes(filter(None, None, Some("n"))));
        let timeless = Record { outcome: "complete".into(), ..Record::default() };
        assert!(!filter(Some("2026-01-31"), None, None).takes(&timeless));
        for wrong in ["yesterday", "2026-13-01", "2026-01-31T12:00", "2026-01-31T12:00:00+01:00"] {
            assert_eq!(instant(wrong), None, "{wrong}");
        }
    }
}
