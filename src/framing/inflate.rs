//! Undoes the content coding of a body, for reading: compressed bytes in, plain bytes out in small pieces, across any
//! split. The compressed bytes themselves pass by untouched.
//!
//! What a sender has flushed is there with the read that brought it: an event of a compressed stream is seen as soon as
//! its last byte has come.
//!
//! | coding | memory, once the body has begun |
//! |---|---|
//! | `gzip` (`x-gzip`), any number of members | 43 KiB: a window of 32 KiB and tables |
//! | `deflate`, in zlib's wrapping or (wrongly, and often) bare | the same |
//! | `br` | as much as the body is long, up to its window (at most 4 MiB), and tables (some 10 KiB, at worst 4 MiB) |
//! | `zstd`, any number of frames | its window (at most 8 MiB) and some 400 KiB, from the first header on |
//!
//! A brotli window above 4 MiB (the library's default; servers take less) is refused, and so is one of zstd above 8 MiB (RFC
//! 9659 allows no more in HTTP), and several codings one upon the other. zstd is undone by its own library, which is written in C:
//! the decoder in plain Rust (ruzstd) gives out nothing before a whole window is full, so that no event could be timed.

use std::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// Plain bytes are given out in pieces of at most so many.
const PIECE: usize = 4096;

/// The largest brotli window that is read, in bits: 4 MiB, the default of the library.
const BROTLI_WINDOW: u8 = 22;

/// The largest zstd window that is read, in bits: 8 MiB (RFC 9659 §3).
const ZSTD_WINDOW: u32 = 23;

/// A body that has become longer than [`BOMB_FROM`] and is more than so many times as long as it came is no answer.
/// Deflate itself ends at 1,032.
const BOMB_RATIO: u64 = 1000;
const BOMB_FROM: u64 = 16 << 20;

/// Undoes one content coding.
pub struct Inflater {
    coding: Coding,
    growth: Growth,
}

/// Why a body can't be read on. Neither is undone by more bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is not what its coding says.
    Corrupt,
    /// It needs too large a window, or grows beyond measure.
    Overflow,
}

enum Coding {
    Gzip(Box<Gzip>),
    /// Absent until the first byte says how it is wrapped.
    Deflate(Option<Decompress>),
    /// Absent until the first byte says how large its window is.
    Brotli(Option<Box<Brotli>>),
    /// Absent before the first byte. Also whether a frame has ended.
    Zstd(Option<DCtx<'static>>, bool),
    /// It has ended; what follows is nothing's.
    Over,
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

impl Inflater {
    /// What undoes a coding of this name; absent if it can't be undone. Allocates the window only at the first byte.
    pub fn of(coding: &str) -> Option<Self> {
        let coding = if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            Coding::Gzip(Box::default())
        } else if coding.eq_ignore_ascii_case("deflate") {
            Coding::Deflate(None)
        } else if coding.eq_ignore_ascii_case("br") {
            Coding::Brotli(None)
        } else if coding.eq_ignore_ascii_case("zstd") {
            Coding::Zstd(None, false)
        } else {
            return None;
        };
        Some(Self { coding, growth: Growth::new() })
    }

    /// Reads the next compressed bytes; `plain` is called with all that they hold, in order, at most 4 KiB at a time.
    ///
    /// # Errors
    ///
    /// There is nothing to be read after one. Which one it is does not hang on the split; how much was given out before
    /// it does, by up to deflate's window, and so does where exactly a body has grown beyond measure. (zstd's library
    /// looks closer at a small frame that comes in one read: one that ends early, with an empty block, is corrupt then,
    /// and else is over.)
    pub fn read(&mut self, bytes: &[u8], plain: &mut impl FnMut(&[u8])) -> Result<(), Fault> {
        let Self { coding, growth } = self;
        let mut give = |piece: &[u8], read: usize| {
            plain(piece);
            growth.give(piece, read)
        };
        let Some(&first) = bytes.first() else { return Ok(()) };
        let over = match coding {
            Coding::Gzip(gzip) => gzip.read(bytes, &mut give)?,
            Coding::Deflate(decompress) => {
                let decompress = decompress.get_or_insert_with(|| Decompress::new(is_zlib(first)));
                inflate(decompress, bytes, &mut give)?.1
            }
            Coding::Brotli(state) => {
                let state = match state {
                    Some(state) => state,
                    None if brotli_window(first) > BROTLI_WINDOW => return Err(Fault::Overflow),
                    None => state.insert(Box::new(BrotliState::new_strict(
                        StandardAlloc::default(),
                        StandardAlloc::default(),
                        StandardAlloc::default(),
                    ))),
                };
                unbrotli(state, bytes, &mut give)?
            }
            Coding::Zstd(context, ended) => {
                let context = match context {
                    Some(context) => context,
                    None => context.insert(zstd_context()?),
                };
                unzstd(context, bytes, ended, &mut give)?
            }
            Coding::Over => false,
        };
        growth.take(bytes.len());
        if over {
            *coding = Coding::Over;
        }
        Ok(())
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coding = match self.coding {
            Coding::Gzip(_) => "gzip",
            Coding::Deflate(_) => "deflate",
            Coding::Brotli(_) => "br",
            Coding::Zstd(..) => "zstd",
            Coding::Over => "over",
        };
        f.debug_struct("Inflater").field("coding", &coding).field("growth", &self.growth).finish()
    }
}

/// How much came out of how much: what grows beyond measure is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// Compressed bytes of earlier reads.
    taken: u64,
    /// Plain bytes so far.
    given: u64,
}

impl Growth {
    pub(super) const fn new() -> Self {
        Self { taken: 0, given: 0 }
    }

    /// A read of so many compressed bytes is over.
    pub(super) const fn take(&mut self, squeezed: usize) {
        self.taken += squeezed as u64;
    }

    /// Plain bytes that came of the read's first `squeezed` bytes: what stands behind these has not grown to anything, and
    /// must not make a bomb look smaller.
    pub(super) const fn give(&mut self, plain: &[u8], squeezed: usize) -> Result<(), Fault> {
        self.given += plain.len() as u64;
        let grown = self.given > BOMB_FROM && self.given / BOMB_RATIO > self.taken + squeezed as u64;
        if grown { Err(Fault::Overflow) } else { Ok(()) }
    }
}

/// A gzip file (RFC 1952): members, each a header, a bare deflate stream and a trailer.
#[derive(Default)]
struct Gzip {
    at: At,
    flags: u8,
    /// Members that have ended.
    members: u64,
    /// Allocated when the first header has ended, and kept for all members.
    decompress: Option<Decompress>,
    crc: Crc,
}

/// What the next byte of a gzip file belongs to.
#[derive(Clone, Copy)]
enum At {
    /// The ten bytes that every header has.
    Fixed(u8),
    ExtraLow,
    ExtraHigh(u8),
    Extra(u16),
    Name,
    Comment,
    /// The header's own checksum: so many of its bytes are left.
    HeaderCrc(u8),
    Deflate,
    /// The checksum and the length of what was inflated, lowest byte first.
    Trailer(u8),
}

impl Default for At {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

const HAS_HEADER_CRC: u8 = 2;
const HAS_EXTRA: u8 = 4;
const HAS_NAME: u8 = 8;
const HAS_COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

impl Gzip {
    /// Whether the file is over: what follows its last member is no other one.
    fn read(&mut self, bytes: &[u8], give: &mut impl FnMut(&[u8], usize) -> Result<(), Fault>) -> Result<bool, Fault> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if matches!(self.at, At::Deflate) {
                let Self { decompress, crc, .. } = self;
                let decompress = decompress.get_or_insert_with(|| Decompress::new(false));
                let (read, ended) = inflate(decompress, &bytes[at..], &mut |piece, read| {
                    crc.update(piece);
                    give(piece, at + read)
                })?;
                if ended {
                    self.at = At::Trailer(0);
                }
                at += read;
                continue;
            }
            match self.step(byte) {
                Some(at) => self.at = at,
                // Not the header of another member: garbage or padding, which readers of gzip pass over.
                None if self.members > 0 && matches!(self.at, At::Fixed(_)) => return Ok(true),
                None => return Err(Fault::Corrupt),
            }
            at += 1;
        }
        Ok(false)
    }

    /// Takes a byte that is not of the deflate stream. Absent if it can't stand there.
    fn step(&mut self, byte: u8) -> Option<At> {
        let next = match self.at {
            At::Fixed(index) => match (index, byte) {
                (0, 0x1f) | (1, 0x8b) | (2, 8) | (4..=8, _) => At::Fixed(index + 1),
                (3, flags) if flags & RESERVED == 0 => {
                    self.flags = flags;
                    At::Fixed(4)
                }
                (9, _) if self.flags & HAS_EXTRA != 0 => At::ExtraLow,
                (9, _) => self.after_extra(),
                _ => return None,
            },
            At::ExtraLow => At::ExtraHigh(byte),
            At::ExtraHigh(low) => match u16::from_le_bytes([low, byte]) {
                0 => self.after_extra(),
                len => At::Extra(len),
            },
            At::Extra(1) => self.after_extra(),
            At::Extra(left) => At::Extra(left - 1),
            At::Name if byte == 0 => self.after_name(),
            At::Comment if byte == 0 => self.after_comment(),
            At::HeaderCrc(2) => At::HeaderCrc(1),
            At::HeaderCrc(_) => At::Deflate,
            At::Trailer(index) => {
                let [c0, c1, c2, c3] = self.crc.sum().to_le_bytes();
                let [l0, l1, l2, l3] = self.crc.amount().to_le_bytes();
                if [c0, c1, c2, c3, l0, l1, l2, l3].get(usize::from(index)) != Some(&byte) {
                    return None;
                }
                if index == 7 { self.next_member() } else { At::Trailer(index + 1) }
            }
            here @ (At::Name | At::Comment | At::Deflate) => here,
        };
        Some(next)
    }

    fn after_extra(&self) -> At {
        if self.flags & HAS_NAME != 0 { At::Name } else { self.after_name() }
    }

    fn after_name(&self) -> At {
        if self.flags & HAS_COMMENT != 0 { At::Comment } else { self.after_comment() }
    }

    fn after_comment(&self) -> At {
        if self.flags & HAS_HEADER_CRC != 0 { At::HeaderCrc(2) } else { At::Deflate }
    }

    fn next_member(&mut self) -> At {
        self.members += 1;
        self.crc.reset();
        if let Some(decompress) = &mut self.decompress {
            decompress.reset(false);
        }
        At::Fixed(0)
    }
}

/// Inflates until the bytes or the stream end; `give` also gets how many of the bytes were read by then. Returns how many
/// were read in all, and whether the stream has ended.
pub(super) fn inflate(
    decompress: &mut Decompress,
    bytes: &[u8],
    give: &mut impl FnMut(&[u8], usize) -> Result<(), Fault>,
) -> Result<(usize, bool), Fault> {
    let mut buffer = [0; PIECE];
    let mut at = 0;
    loop {
        let (taken, given) = (decompress.total_in(), decompress.total_out());
        let status = decompress.decompress(&bytes[at..], &mut buffer, FlushDecompress::None);
        let status = status.map_err(|_| Fault::Corrupt)?;
        let read = usize::try_from(decompress.total_in() - taken).map_err(|_| Fault::Corrupt)?;
        let written = usize::try_from(decompress.total_out() - given).map_err(|_| Fault::Corrupt)?;
        at += read;
        if written > 0 {
            give(&buffer[..written], at)?;
        }
        if status == Status::StreamEnd {
            return Ok((at, true));
        }
        // A full buffer may have left something behind, even if every byte was read.
        if written < PIECE && at == bytes.len() {
            return Ok((at, false));
        }
        if read == 0 && written == 0 {
            return Err(Fault::Corrupt);
        }
    }
}

/// Whether a `deflate` body that begins so is wrapped as zlib does it (RFC 1950), as it should be. A bare one that begins
/// so would have a bit set between its first block's type and length, where every encoder leaves none.
fn is_zlib(first: u8) -> bool {
    first & 0x0f == 8 && first >> 4 <= 7
}

/// Whether the stream has ended with these bytes.
fn unbrotli(
    state: &mut Brotli,
    bytes: &[u8],
    give: &mut impl FnMut(&[u8], usize) -> Result<(), Fault>,
) -> Result<bool, Fault> {
    let mut buffer = [0; PIECE];
    let (mut left, mut at, mut total) = (bytes.len(), 0, 0);
    loop {
        let (mut room, mut written) = (PIECE, 0);
        let result =
            BrotliDecompressStream(&mut left, &mut at, bytes, &mut room, &mut written, &mut buffer, &mut total, state);
        if written > 0 {
            give(&buffer[..written], at)?;
        }
        match result {
            BrotliResult::ResultSuccess => return Ok(true),
            BrotliResult::NeedsMoreInput if written < PIECE => return Ok(false),
            // A full buffer may have left something behind, even if it asks for input.
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput if written > 0 => {}
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput | BrotliResult::ResultFailure => {
                return Err(Fault::Corrupt);
            }
        }
    }
}

/// The window that a brotli stream asks for by its first byte, in bits (RFC 7932 §9.1).
fn brotli_window(first: u8) -> u8 {
    match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, _, _) => 16,
        (_, 0, 0) => 17,
        (_, 0, more) => 8 + more,
        (_, more, _) => 17 + more,
    }
}

fn zstd_context() -> Result<DCtx<'static>, Fault> {
    let mut context = DCtx::try_create().ok_or(Fault::Overflow)?;
    context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW)).map_err(zstd_fault)?;
    Ok(context)
}

/// Whether the body is over: what follows a frame that has `ended` is no other one.
fn unzstd(
    context: &mut DCtx<'_>,
    bytes: &[u8],
    ended: &mut bool,
    give: &mut impl FnMut(&[u8], usize) -> Result<(), Fault>,
) -> Result<bool, Fault> {
    let mut buffer = [0; PIECE];
    let mut input = InBuffer::around(bytes);
    loop {
        let before = input.pos();
        let mut output = OutBuffer::around(&mut buffer[..]);
        match context.decompress_stream(&mut output, &mut input) {
            Ok(0) => *ended = true,
            Ok(_) => {}
            // Garbage or padding: passed over as behind gzip.
            Err(code) if *ended && zstd_safe::get_error_name(code) == "Unknown frame descriptor" => return Ok(true),
            Err(code) => return Err(zstd_fault(code)),
        }
        let written = output.pos();
        if written > 0 {
            give(&buffer[..written], input.pos())?;
        }
        // A full buffer may have left something behind, even if every byte was read.
        if written < PIECE && input.pos() == bytes.len() {
            return Ok(false);
        }
        if written == 0 && input.pos() == before {
            return Err(Fault::Corrupt);
        }
    }
}

fn zstd_fault(code: usize) -> Fault {
    // The library tells its errors apart by text only.
    let too_large = zstd_safe::get_error_name(code).contains("too much memory");
    if too_large { Fault::Overflow } else { Fault::Corrupt }
}

#[cfg(test)]
mod tests;
