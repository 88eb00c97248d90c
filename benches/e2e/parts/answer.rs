//! One answer, read as it comes: HTTP/1.1 framing unless it came by HTTP/2, server-sent events, and every byte held against
//! what was sent.

use crc32fast::Hasher;
use memchr::memmem;

use super::wire::{DONE, FINISH, Play, REQUEST_CHECK, ROLE, Token, header, plain, usage};

/// What both sides know of an answer before it comes.
pub(crate) struct Expected {
    play: Play,
    token: Token,
    plain: String,
}

impl Expected {
    pub(crate) fn of(play: Play) -> Self {
        let plain = if play.stream { String::new() } else { plain(play.tokens) };
        Self { play, token: Token::of(play.event_bytes), plain }
    }
}

pub(crate) struct Answer {
    at: At,
    /// A head, or a piece of an event, that is not whole yet.
    piece: Vec<u8>,
    /// So much of the piece has been searched for its end.
    searched: usize,
    size: usize,
    events: u64,
    crc: Hasher,
    pub(crate) request_check: Option<String>,
}

enum At {
    Head,
    Size,
    Chunk(usize),
    AfterChunk,
    Trailer {
        line: usize,
    },
    Length(usize),
    /// HTTP/2 says where it ends.
    Frames,
    End,
}

impl Answer {
    pub(crate) fn new() -> Self {
        Self {
            at: At::Head,
            piece: Vec::new(),
            searched: 0,
            size: 0,
            events: 0,
            crc: Hasher::new(),
            request_check: None,
        }
    }

    /// The number of token events until now.
    pub(crate) fn tokens(&self, expected: &Expected) -> u64 {
        self.events.saturating_sub(1).min(expected.play.tokens)
    }

    /// Takes what a read brought; pushes the stamp of each token's event that became whole. True at the end.
    ///
    /// # Errors
    /// What is not as it was sent.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        expected: &Expected,
        stamps: &mut Vec<u64>,
    ) -> Result<bool, String> {
        loop {
            match self.at {
                At::End if bytes.is_empty() => return Ok(true),
                At::End | At::Frames => return Err("bytes behind the end".into()),
                _ if bytes.is_empty() => return Ok(false),
                At::Head => {
                    let before = self.piece.len();
                    self.piece.extend_from_slice(bytes);
                    let Some(end) = memmem::find(&self.piece, b"\r\n\r\n") else { return Ok(false) };
                    bytes = &bytes[end + 4 - before..];
                    let head = std::mem::take(&mut self.piece);
                    self.read_head(&head[..end])?;
                }
                At::Size => {
                    let (byte, rest) = (bytes[0], &bytes[1..]);
                    bytes = rest;
                    match (char::from(byte).to_digit(16), byte) {
                        (Some(digit), _) => self.size = self.size * 16 + digit as usize,
                        (None, b'\n') if self.size == 0 => self.at = At::Trailer { line: 0 },
                        (None, b'\n') => self.at = At::Chunk(std::mem::take(&mut self.size)),
                        (None, b'\r') => {}
                        _ => return Err("not a chunk's size".into()),
                    }
                }
                At::Chunk(left) => {
                    let (now, rest) = bytes.split_at(left.min(bytes.len()));
                    bytes = rest;
                    self.at = if now.len() == left { At::AfterChunk } else { At::Chunk(left - now.len()) };
                    self.read_events(now, expected, stamps)?;
                }
                At::AfterChunk => {
                    match bytes[0] {
                        b'\r' => {}
                        b'\n' => self.at = At::Size,
                        _ => return Err("a chunk is longer than its size".into()),
                    }
                    bytes = &bytes[1..];
                }
                At::Trailer { line } => {
                    match bytes[0] {
                        b'\n' if line == 0 => self.end(expected)?,
                        b'\n' => self.at = At::Trailer { line: 0 },
                        b'\r' => {}
                        _ => self.at = At::Trailer { line: line + 1 },
                    }
                    bytes = &bytes[1..];
                }
                At::Length(left) => {
                    let (now, rest) = bytes.split_at(left.min(bytes.len()));
                    bytes = rest;
                    self.piece.extend_from_slice(now);
                    self.at = At::Length(left - now.len());
                    if now.len() == left {
                        self.end(expected)?;
                    }
                }
            }
        }
    }

    /// The head of an answer by HTTP/2.
    ///
    /// # Errors
    /// If the provider did not send it.
    pub(crate) fn take_head(&mut self, status: u16, check: Option<String>) -> Result<(), String> {
        self.request_check = check;
        self.at = At::Frames;
        if status == 200 { Ok(()) } else { Err(format!("status {status}")) }
    }

    /// More of an answer by HTTP/2, as `take`.
    ///
    /// # Errors
    /// What is not as it was sent.
    pub(crate) fn take_frames(
        &mut self,
        bytes: &[u8],
        ended: bool,
        expected: &Expected,
        stamps: &mut Vec<u64>,
    ) -> Result<bool, String> {
        if expected.play.stream {
            self.read_events(bytes, expected, stamps)?;
        } else {
            self.piece.extend_from_slice(bytes);
        }
        if ended {
            self.end(expected)?;
        }
        Ok(ended)
    }

    fn read_head(&mut self, head: &[u8]) -> Result<(), String> {
        let head = std::str::from_utf8(head).map_err(|_| "a head that is no text")?;
        if !head.starts_with("HTTP/1.1 200") {
            return Err(head.lines().next().unwrap_or_default().to_owned());
        }
        self.request_check = header(head, REQUEST_CHECK).map(str::to_owned);
        self.at = match (header(head, "transfer-encoding"), header(head, "content-length")) {
            (Some("chunked"), _) => At::Size,
            (None, Some(length)) => At::Length(length.parse().map_err(|_| "a length that is no number")?),
            _ => return Err("neither chunks nor a length".into()),
        };
        Ok(())
    }

    fn read_events(&mut self, bytes: &[u8], expected: &Expected, stamps: &mut Vec<u64>) -> Result<(), String> {
        let mut bytes = bytes;
        if !self.piece.is_empty() {
            self.piece.extend_from_slice(bytes);
            let from = self.searched.saturating_sub(1);
            let Some(end) = memmem::find(&self.piece[from..], b"\n\n") else {
                self.searched = self.piece.len();
                return Ok(());
            };
            let end = from + end + 2;
            bytes = &bytes[bytes.len() - (self.piece.len() - end)..];
            let mut event = std::mem::take(&mut self.piece);
            event.truncate(end);
            self.read_event(&event, expected, stamps)?;
        }
        while let Some(end) = memmem::find(bytes, b"\n\n") {
            self.read_event(&bytes[..end + 2], expected, stamps)?;
            bytes = &bytes[end + 2..];
        }
        self.piece.extend_from_slice(bytes);
        self.searched = bytes.len();
        Ok(())
    }

    fn read_event(&mut self, event: &[u8], expected: &Expected, stamps: &mut Vec<u64>) -> Result<(), String> {
        let at = self.events;
        self.events += 1;
        let tokens = expected.play.tokens;
        let right = if at == 0 {
            event == ROLE.as_bytes()
        } else if at <= tokens {
            let stamp = expected.token.stamp(event);
            stamps.extend(stamp);
            stamp.is_some()
        } else if at == tokens + 1 {
            event == FINISH.as_bytes()
        } else if at == tokens + 2 {
            event == usage(tokens, self.crc.clone().finalize()).as_bytes()
        } else {
            at == tokens + 3 && event == DONE.as_bytes()
        };
        if at <= tokens + 1 {
            self.crc.update(event);
        }
        if right { Ok(()) } else { Err(format!("event {at} is not what was sent")) }
    }

    fn end(&mut self, expected: &Expected) -> Result<(), String> {
        self.at = At::End;
        let whole = if expected.play.stream {
            self.piece.is_empty() && self.events == expected.play.tokens + 4
        } else {
            self.piece == expected.plain.as_bytes()
        };
        if whole { Ok(()) } else { Err("the body is not what was sent".into()) }
    }
}
