//! WebSocket messages (RFC 6455) of one direction, in pieces: unmasked, defragmented, inflated (RFC 7692).
//!
//! Nothing of a message is held: what a read brings is given out with it, unmasked through a buffer on the stack. The
//! frames themselves pass by untouched. Pings and pongs are passed over. Whether a direction has to mask is not
//! checked: the peers do that.
//!
//! A compressed direction costs 43 KiB (a window of 32 KiB and tables) from its first compressed message on; one that
//! compresses each message by itself, only within such a message.

use std::fmt;

use flate2::Decompress;

use super::inflate::{Fault, Growth, inflate};

/// Masked bytes are given out in pieces of at most so many.
const PIECE: usize = 4096;

/// Cut from the end of each compressed message by its sender (RFC 7692 §7.2.1).
const TAIL: &[u8] = &[0, 0, 0xff, 0xff];

const FIN: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x30;
const OPCODE: u8 = 0x0f;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The longest payload of a control frame.
const CONTROL_LIMIT: u8 = 125;

/// The longest head: two bytes, a length of eight, a mask of four.
const HEAD: usize = 14;

/// A piece of what one direction carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// The next part of a text or binary message, unmasked and inflated.
    Data(&'a [u8]),
    /// The message has ended.
    End,
    /// The side says goodbye, with its status code if it gives one.
    Close(Option<u16>),
}

/// How a direction compresses its messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Deflate {
    /// Each message is compressed by itself, without reference to earlier ones.
    pub no_context_takeover: bool,
}

/// Why what follows can't be read. Nothing undoes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// A frame that can't be, or one of an extension that was not agreed on.
    Malformed,
    /// A message is not compressed as it says.
    Corrupt,
    /// Messages grow beyond measure when inflated.
    Overflow,
}

/// An extension, or a parameter of one, that is not known: what the frames hold is not, either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownExtension;

impl fmt::Display for UnknownExtension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown WebSocket extension")
    }
}

impl std::error::Error for UnknownExtension {}

/// What a response's `Sec-WebSocket-Extensions` (several lines joined by commas) means for the client's and the
/// server's messages, in this order. Nothing is compressed without it.
///
/// # Errors
///
/// Any extension but one `permessage-deflate`, and parameters of it that RFC 7692 §7.1 does not have.
pub fn agreed(extensions: &str) -> Result<(Option<Deflate>, Option<Deflate>), UnknownExtension> {
    let mut found = (None, None);
    for extension in extensions.split(',').map(str::trim).filter(|extension| !extension.is_empty()) {
        let mut parts = extension.split(';').map(str::trim);
        let known = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("permessage-deflate"));
        if !known || found.0.is_some() {
            return Err(UnknownExtension);
        }
        let (mut client, mut server) = (Deflate::default(), Deflate::default());
        for parameter in parts {
            let (name, value) =
                parameter.split_once('=').map_or((parameter, None), |(name, value)| (name, Some(value)));
            match (name.trim_end().to_ascii_lowercase().as_str(), value) {
                ("client_no_context_takeover", None) => client.no_context_takeover = true,
                ("server_no_context_takeover", None) => server.no_context_takeover = true,
                // A smaller window than the reader's, which holds any: it is only of use to the peers.
                ("client_max_window_bits" | "server_max_window_bits", _) => {}
                _ => return Err(UnknownExtension),
            }
        }
        found = (Some(client), Some(server));
    }
    Ok(found)
}

/// Cuts the bytes of one direction into messages, whatever reads they come in.
pub struct Framer {
    deflate: Option<Deflate>,
    /// Allocated at the first compressed message.
    window: Option<Decompress>,
    growth: Growth,
    /// The head of the present frame, until it is whole.
    head: [u8; HEAD],
    have: u8,
    /// The frame's first byte.
    first: u8,
    /// The mask of the next four bytes; zero if there is none.
    mask: [u8; 4],
    /// Bytes of the payload that have not come yet; meaningless while the head is read.
    left: u64,
    message: Message,
    /// The status code of a close, as far as it was read.
    code: [u8; 2],
    code_len: u8,
    /// The side has said goodbye: nothing follows.
    closed: bool,
    lost: Option<Lost>,
}

/// What was begun and not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    None,
    Plain,
    Compressed,
}

impl fmt::Debug for Framer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Framer")
            .field("deflate", &self.deflate)
            .field("message", &self.message)
            .field("left", &self.left)
            .field("growth", &self.growth)
            .field("closed", &self.closed)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl Framer {
    /// A reader of one direction, which compresses its messages so (or never).
    pub const fn new(deflate: Option<Deflate>) -> Self {
        Self {
            deflate,
            window: None,
            growth: Growth::new(),
            head: [0; HEAD],
            have: 0,
            first: 0,
            mask: [0; 4],
            left: 0,
            message: Message::None,
            code: [0; 2],
            code_len: 0,
            closed: false,
            lost: None,
        }
    }

    /// Reads the next bytes; `piece` is called for all that they hold, in order. Behind a close, and once
    /// [`Self::lost`], nothing more is given.
    pub fn read(&mut self, mut bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) {
        while !bytes.is_empty() && !self.closed && self.lost.is_none() {
            let read = self.step(bytes, piece);
            match read {
                Ok(read) => bytes = &bytes[read..],
                Err(lost) => {
                    self.lost = Some(lost);
                    self.window = None;
                }
            }
        }
    }

    /// Why it no longer reads, if so.
    pub const fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Reads some bytes, at least one, of a head or of a payload. Returns how many.
    fn step(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Result<usize, Lost> {
        let read = if usize::from(self.have) < self.head_len() {
            self.head[usize::from(self.have)] = bytes[0];
            self.have += 1;
            if self.have == 2 {
                self.check()?;
            }
            if usize::from(self.have) < self.head_len() {
                return Ok(1);
            }
            self.begin()?;
            1
        } else {
            let read = usize::try_from(self.left).map_or(bytes.len(), |left| bytes.len().min(left));
            self.payload(&bytes[..read], piece)?;
            self.left -= read as u64;
            read
        };
        if self.left == 0 {
            self.have = 0;
            self.end(piece)?;
        }
        Ok(read)
    }

    /// How long the present head is, as far as it says so by now.
    fn head_len(&self) -> usize {
        if self.have < 2 {
            return 2;
        }
        let length = match self.head[1] & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.head[1] & MASKED == 0 { 0 } else { 4 }
    }

    /// Whether a frame may begin with these two bytes.
    fn check(&mut self) -> Result<(), Lost> {
        let [first, second, ..] = self.head;
        let (fin, compressed) = (first & FIN != 0, first & COMPRESSED != 0);
        let fits = match first & OPCODE {
            CONTINUATION => self.message != Message::None && !compressed,
            TEXT | BINARY => self.message == Message::None && (!compressed || self.deflate.is_some()),
            CLOSE | PING | PONG => fin && !compressed && second & !MASKED <= CONTROL_LIMIT,
            _ => false,
        };
        if fits && first & RESERVED == 0 { Ok(()) } else { Err(Lost::Malformed) }
    }

    /// The head is whole.
    fn begin(&mut self) -> Result<(), Lost> {
        let [first, second, ..] = self.head;
        self.first = first;
        self.left = match second & !MASKED {
            126 => self.head[2..4].iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
            127 => self.head[2..10].iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
            len => u64::from(len),
        };
        if self.left >> 63 != 0 {
            return Err(Lost::Malformed);
        }
        self.mask = [0; 4];
        if second & MASKED != 0 {
            let at = self.head_len() - 4;
            self.mask.copy_from_slice(&self.head[at..at + 4]);
        }
        match first & OPCODE {
            TEXT | BINARY if first & COMPRESSED != 0 => self.message = Message::Compressed,
            TEXT | BINARY => self.message = Message::Plain,
            CLOSE => self.code_len = 0,
            _ => {}
        }
        Ok(())
    }

    /// The next part of the frame's payload.
    fn payload(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Result<(), Lost> {
        if matches!(self.first & OPCODE, PING | PONG) {
            return Ok(());
        }
        if self.mask == [0; 4] {
            return self.unmasked(bytes, piece);
        }
        let mut buffer = [0; PIECE];
        for part in bytes.chunks(PIECE) {
            let buffer = &mut buffer[..part.len()];
            unmask(part, self.mask, buffer);
            self.mask.rotate_left(part.len() % 4);
            self.unmasked(buffer, piece)?;
        }
        Ok(())
    }

    fn unmasked(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Result<(), Lost> {
        if self.first & CONTROL != 0 {
            for byte in bytes {
                if let Some(slot) = self.code.get_mut(usize::from(self.code_len)) {
                    *slot = *byte;
                    self.code_len += 1;
                }
            }
            return Ok(());
        }
        if self.message == Message::Compressed {
            return self.inflate(bytes, piece);
        }
        piece(Piece::Data(bytes));
        Ok(())
    }

    /// The frame has ended.
    fn end(&mut self, piece: &mut impl FnMut(Piece<'_>)) -> Result<(), Lost> {
        match self.first & OPCODE {
            PING | PONG => {}
            CLOSE => {
                self.closed = true;
                self.window = None;
                piece(Piece::Close((self.code_len == 2).then_some(u16::from_be_bytes(self.code))));
            }
            _ if self.first & FIN == 0 => {}
            _ => {
                if self.message == Message::Compressed {
                    self.inflate(TAIL, piece)?;
                    if self.deflate.is_some_and(|deflate| deflate.no_context_takeover) {
                        self.window = None;
                    }
                }
                self.message = Message::None;
                piece(Piece::End);
            }
        }
        Ok(())
    }

    fn inflate(&mut self, mut bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Result<(), Lost> {
        let Self { window, growth, .. } = self;
        let decompress = window.get_or_insert_with(|| Decompress::new(false));
        while !bytes.is_empty() {
            let read = inflate(decompress, bytes, &mut |plain, read| {
                piece(Piece::Data(plain));
                growth.give(plain, read)
            });
            let (read, ended) = read.map_err(|fault| match fault {
                Fault::Corrupt => Lost::Corrupt,
                Fault::Overflow => Lost::Overflow,
            })?;
            // A sender may end the stream within a message, and begin another one (RFC 7692 §7.2.3.4).
            if ended {
                decompress.reset(false);
            }
            growth.take(read);
            bytes = &bytes[read..];
        }
        Ok(())
    }
}

/// Undoes the mask, whose first byte is that of the first byte, into a buffer of the same length.
fn unmask(bytes: &[u8], mask: [u8; 4], plain: &mut [u8]) {
    let (words, rest) = bytes.as_chunks::<4>();
    let (plain_words, plain_rest) = plain.as_chunks_mut::<4>();
    for (plain, word) in plain_words.iter_mut().zip(words) {
        *plain = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
    }
    for ((plain, byte), mask) in plain_rest.iter_mut().zip(rest).zip(mask) {
        *plain = byte ^ mask;
    }
}

#[cfg(test)]
mod tests;
