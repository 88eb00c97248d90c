//! What the fuzz targets share. A target is one file: how its input is read, its seeds, and what must hold.
//!
//! An input is four bytes of choices, which mean what the target says, four widths of the pieces that its body is cut
//! into (over and over), and the body. What holds of every target: however the body is cut, what is read is the same
//! ([`alike`]), and what is held meanwhile is bounded ([`bounded`]).

use std::{
    env,
    fmt::Debug,
    fs, iter,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use streamgauge::framing::{Framed, sse::Piece};

pub mod json;
pub mod messages;
pub mod observed;
pub mod websocket;

/// What an observer may hold, whatever it reads: the project's own bound.
pub const STATE: usize = 64 << 10;

const CHOICES: usize = 4;
const WIDTHS: usize = 4;

/// One input.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub choices: [u8; CHOICES],
    widths: [u8; WIDTHS],
    pub body: &'a [u8],
}

impl<'a> Input<'a> {
    /// Absent if too short to choose anything.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (choices, rest) = bytes.split_first_chunk()?;
        let (widths, body) = rest.split_first_chunk()?;
        Some(Self { choices: *choices, widths: *widths, body })
    }

    /// The bytes that are this input: a seed. The widths are of no matter: each body is also read whole and by bytes.
    pub fn bytes(choices: [u8; CHOICES], body: &[u8]) -> Vec<u8> {
        [&choices[..], &[6, 0, 30, 90], body].concat()
    }

    /// The body, or what was made of it, cut by the widths.
    pub fn pieces<'b>(&self, body: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        Cut::Widths(self.widths).pieces(body)
    }
}

/// How bytes are cut before they are read.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    Whole,
    Bytes,
    /// Pieces of so many bytes and one more, over and over.
    Widths([u8; WIDTHS]),
}

impl Cut {
    /// Nothing is cut into nothing.
    pub fn pieces(self, mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        let mut place = 0;
        iter::from_fn(move || {
            let width = match self {
                Self::Whole => bytes.len(),
                Self::Bytes => 1,
                Self::Widths(widths) => usize::from(widths[place % WIDTHS]) + 1,
            };
            place += 1;
            let (piece, rest) = bytes.split_at(width.min(bytes.len()));
            bytes = rest;
            (!piece.is_empty()).then_some(piece)
        })
    }
}

/// Picks by a byte of an input.
pub fn pick<T: Copy>(choice: u8, from: &[T]) -> T {
    from[usize::from(choice) % from.len()]
}

/// The choice that picks `wanted`.
pub fn choice<T: PartialEq>(wanted: &T, from: &[T]) -> u8 {
    from.iter().position(|one| one == wanted).and_then(|place| place.try_into().ok()).expect("one of them")
}

/// Pieces of a body, in order.
pub type Pieces<'p, 'b> = &'p mut dyn Iterator<Item = &'b [u8]>;

/// Reads the body whole, by bytes and cut by the input's widths. All must come to the same, which is returned.
#[track_caller]
pub fn alike<T: PartialEq + Debug>(input: &Input<'_>, body: &[u8], read: impl Fn(Pieces<'_, '_>) -> T) -> T {
    alike_by(input, |cut| read(&mut cut.pieces(body)))
}

/// As [`alike`], of what is more than one body: `read` cuts it itself.
#[track_caller]
pub fn alike_by<T: PartialEq + Debug>(input: &Input<'_>, read: impl Fn(Cut) -> T) -> T {
    let whole = read(Cut::Whole);
    for cut in [Cut::Widths(input.widths), Cut::Bytes] {
        assert_eq!(whole, read(cut), "read whole, and cut by {cut:?}");
    }
    whole
}

/// Runs it and counts what it allocates: at no time more than `most` bytes, and in the end all is given back. Run it once
/// before, so that what is made once and for all is not counted.
#[track_caller]
pub fn bounded(most: usize, run: impl FnMut()) {
    static PEAK: AtomicU64 = AtomicU64::new(0);
    let used = allocation_counter::measure(run);
    assert!(used.bytes_max <= most as u64, "{} bytes were held at once, more than {most}", used.bytes_max);
    assert_eq!(used.bytes_current, 0, "bytes are held that nobody owns");
    if used.bytes_max > PEAK.fetch_max(used.bytes_max, Ordering::Relaxed) {
        // For the line that `fuzz/run` prints.
        eprintln!("heap: {}", used.bytes_max);
    }
}

/// Everything that a framer gave out for one event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    pub data: Vec<u8>,
    pub name: Vec<u8>,
    pub bare: Vec<u8>,
    pub error: Vec<u8>,
    pub exception: Option<Vec<u8>>,
    /// Whether it had data, once it has ended.
    pub ended: Option<bool>,
}

impl Event {
    fn take(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Data(part, _) => self.data.extend_from_slice(part),
            Piece::Name(part) => self.name.extend_from_slice(part),
            Piece::Bare(part) => self.bare.extend_from_slice(part),
            Piece::Error(part) => self.error.extend_from_slice(part),
            Piece::Exception(name) => self.exception = Some(name.to_vec()),
            Piece::End { data } => self.ended = Some(data),
        }
    }
}

/// The events of a body, and what `state` says of the framer when the body has ended.
pub fn framed<F: Framed + Default, S>(pieces: Pieces<'_, '_>, state: impl Fn(&F) -> S) -> (Vec<Event>, S) {
    let (mut framer, mut events) = (F::default(), vec![Event::default()]);
    let mut take = |piece: Piece<'_>| {
        let Some(event) = events.last_mut() else { return };
        event.take(piece);
        if event.ended.is_some() {
            events.push(Event::default());
        }
    };
    drive(&mut framer, pieces, &mut take);
    let state = state(&framer);
    framer.end(&mut take);
    // What is begun and not ended is compared, too; what is not even begun is nothing.
    if events.last() == Some(&Event::default()) {
        events.pop();
    }
    (events, state)
}

/// Hands the pieces to a framer as they come.
pub fn drive<F: Framed>(framer: &mut F, pieces: Pieces<'_, '_>, take: &mut impl FnMut(Piece<'_>)) {
    for mut piece in pieces {
        while !piece.is_empty() {
            let taken = framer.read(piece, take);
            assert!((1..=piece.len()).contains(&taken), "{taken} of {} bytes taken", piece.len());
            piece = &piece[taken..];
        }
    }
}

/// Holds at most `most` bytes while it frames the body, in the input's pieces.
#[track_caller]
pub fn framer_is_bounded<F: Framed + Default>(input: &Input<'_>, body: &[u8], most: usize) {
    bounded(most, || {
        let mut framer = F::default();
        drive(&mut framer, &mut input.pieces(body), &mut |_| ());
        framer.end(&mut |_| ());
    });
}

/// Wraps bytes as Amazon Bedrock wraps its chunks.
pub fn wrap(inner: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut wrapped = br#"{"bytes":""#.to_vec();
    for group in inner.chunks(3) {
        let byte = |place: usize| usize::from(group.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digits = [18, 12, 6, 0].map(|shift| DIGITS[bits >> shift & 63]);
        wrapped.extend(&digits[..=group.len()]);
        wrapped.extend(&b"=="[..3 - group.len()]);
    }
    wrapped.extend(br#"","p":"abc"}"#);
    wrapped
}

/// A reply of the project's own fixtures.
pub struct Fixture {
    /// The folder's name.
    pub dialect: String,
    /// The ending of the file's name: how the body is framed.
    pub framing: String,
    pub body: Vec<u8>,
}

/// All replies of the project's fixtures.
pub fn fixtures() -> Vec<Fixture> {
    let files = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        paths
    };
    let name = |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).unwrap_or_default().to_owned();
    let folders = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/dialects"));
    let paths = folders
        .iter()
        .flat_map(|folder| files(folder))
        .filter(|path| path.extension().is_some_and(|ending| ending != "expected"));
    paths
        .filter_map(|path| {
            let dialect = name(path.parent().and_then(Path::file_name));
            Some(Fixture { dialect, framing: name(path.extension()), body: fs::read(&path).ok()? })
        })
        .collect()
}

/// The bodies of the fixtures that are framed like this.
pub fn bodies(framing: &str) -> Vec<Vec<u8>> {
    fixtures().into_iter().filter(|fixture| fixture.framing == framing).map(|fixture| fixture.body).collect()
}

/// Writes the seeds into the folder that the environment's `SEEDS` names, if it does: `fuzz/run` fills its corpus so, with
/// inputs that always are as the target reads them.
pub fn seed(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(folder) = env::var_os("SEEDS").map(PathBuf::from) else { return };
    let seeds = seeds();
    assert!(!seeds.is_empty(), "a target without a seed begins with nothing");
    for (place, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("seed-{place:03}")), seed).expect("a folder for seeds that can be written to");
    }
}
