//! Strings that are not read at one go: they end in a later piece, or have escapes.

use super::{Mode, NONE, Scanner, Tree, VALUE_LIMIT, Value, quote_or_escape};
use crate::framing::bytes::quote;

/// What a string that was not read at one go is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Key,
    Pass,
    Whether,
    Take,
}

/// How far into an escape a string that is held was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Escape {
    None,
    Begun,
    /// `\u`, so many of its digits, the unit so far, and the high surrogate before it (0 if there was none).
    Unit {
        digits: u8,
        unit: u16,
        high: u16,
    },
    /// A high surrogate was read and, if so, the `\` behind it.
    High {
        high: u16,
        begun: bool,
    },
}

impl Scanner {
    /// The string at `at` ends beyond these bytes or has an escape: go through it step by step.
    pub(super) fn begin_string(&mut self, purpose: Purpose, at: usize) -> usize {
        self.string = purpose;
        self.escape = Escape::None;
        self.long = false;
        self.held.clear();
        self.mode = Mode::String;
        at + 1
    }

    pub(super) fn string(
        &mut self,
        tree: &Tree,
        bytes: &[u8],
        at: usize,
        found: &mut impl FnMut(u8, Value<'_>),
    ) -> usize {
        match self.string {
            Purpose::Pass => self.pass_string(bytes, at),
            Purpose::Whether if bytes[at] == b'"' => {
                self.give(tree, Value::Text(b""), found);
                self.mode = Mode::Next;
                at + 1
            }
            Purpose::Whether => {
                self.give(tree, Value::Filled, found);
                self.string = Purpose::Pass;
                at
            }
            Purpose::Key | Purpose::Take => self.hold_string(tree, bytes, at, found),
        }
    }

    /// On to the string's end, or to that of the bytes.
    pub(super) fn pass_string(&mut self, bytes: &[u8], mut at: usize) -> usize {
        if self.escape == Escape::Begun {
            self.escape = Escape::None;
            at += 1;
        }
        match string_end(&bytes[at..]) {
            Ok(len) => {
                self.mode = if self.passing == 0 { Mode::Next } else { Mode::Pass };
                at + len
            }
            Err(escape) => {
                self.escape = escape;
                bytes.len()
            }
        }
    }

    /// As [`Self::pass_string`], keeping what it says.
    fn hold_string(
        &mut self,
        tree: &Tree,
        bytes: &[u8],
        mut at: usize,
        found: &mut impl FnMut(u8, Value<'_>),
    ) -> usize {
        while let Some(&byte) = bytes.get(at) {
            if self.escape != Escape::None {
                at += usize::from(self.unescape(byte));
                if self.mode == Mode::Malformed {
                    return at;
                }
                continue;
            }
            let rest = &bytes[at..];
            let len = quote_or_escape(rest).unwrap_or(rest.len());
            self.hold(&rest[..len]);
            at += len + 1;
            match rest.get(len) {
                None => return bytes.len(),
                Some(b'"') => {
                    self.end_held_string(tree, found);
                    return at;
                }
                Some(_) => self.escape = Escape::Begun,
            }
        }
        at
    }

    fn end_held_string(&mut self, tree: &Tree, found: &mut impl FnMut(u8, Value<'_>)) {
        if self.string == Purpose::Key {
            self.target = if self.long { NONE } else { tree.child(self.node, &self.held, self.held.len()) };
            self.mode = Mode::Colon;
            return;
        }
        let held = std::mem::take(&mut self.held);
        self.give(tree, if self.long { Value::TooLong } else { Value::Text(&held) }, found);
        self.held = held;
        self.mode = Mode::Next;
    }

    /// One byte of an escape; whether it was taken. Unpaired surrogates become U+FFFD.
    fn unescape(&mut self, byte: u8) -> bool {
        match self.escape {
            Escape::None => return false,
            Escape::Begun => {
                self.escape = Escape::None;
                match byte {
                    b'u' => self.escape = Escape::Unit { digits: 0, unit: 0, high: 0 },
                    b'n' => self.hold(b"\n"),
                    b't' => self.hold(b"\t"),
                    b'r' => self.hold(b"\r"),
                    b'b' => self.hold(b"\x08"),
                    b'f' => self.hold(b"\x0c"),
                    _ => self.hold(&[byte]),
                }
            }
            Escape::Unit { digits, unit, high } => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    self.mode = Mode::Malformed;
                    self.escape = Escape::None;
                    return true;
                };
                #[expect(clippy::cast_possible_truncation, reason = "a hexadecimal digit")]
                let unit = unit << 4 | digit as u16;
                self.escape = Escape::Unit { digits: digits + 1, unit, high };
                if digits == 3 {
                    self.end_unit(unit, high);
                }
            }
            Escape::High { high, begun: false } if byte == b'\\' => self.escape = Escape::High { high, begun: true },
            Escape::High { high, begun: true } if byte == b'u' => {
                self.escape = Escape::Unit { digits: 0, unit: 0, high };
            }
            Escape::High { begun, .. } => {
                self.hold_char(char::REPLACEMENT_CHARACTER);
                self.escape = if begun { Escape::Begun } else { Escape::None };
                return false;
            }
        }
        true
    }

    fn end_unit(&mut self, unit: u16, high: u16) {
        self.escape = Escape::None;
        if high != 0 {
            if let Some(Ok(pair)) = char::decode_utf16([high, unit]).next() {
                return self.hold_char(pair);
            }
            self.hold_char(char::REPLACEMENT_CHARACTER);
        }
        if (0xd800..0xdc00).contains(&unit) {
            self.escape = Escape::High { high: unit, begun: false };
        } else {
            self.hold_char(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    fn hold_char(&mut self, char: char) {
        self.hold(char.encode_utf8(&mut [0; 4]).as_bytes());
    }

    pub(super) fn hold(&mut self, part: &[u8]) {
        if self.held.len() + part.len() > VALUE_LIMIT {
            self.long = true;
        } else {
            self.held.extend_from_slice(part);
        }
    }
}

/// Behind the quote that ends the string whose rest this is. Fails if it is not here, with how the bytes end. Only quotes are
/// looked for: one behind an odd number of backslashes is a part of the string.
#[inline]
pub(super) fn string_end(bytes: &[u8]) -> Result<usize, Escape> {
    let mut from = 0;
    while let Some(len) = quote(&bytes[from..]) {
        let escaped = ends_in_escape(&bytes[from..from + len]);
        from += len + 1;
        if !escaped {
            return Ok(from);
        }
    }
    Err(if ends_in_escape(&bytes[from..]) { Escape::Begun } else { Escape::None })
}

#[inline]
fn ends_in_escape(part: &[u8]) -> bool {
    part.last() == Some(&b'\\') && part.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}
