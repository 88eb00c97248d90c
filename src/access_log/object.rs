//! A JSON object in the making, in room that is there: each part is copied without asking for more. Nothing is formatted by
//! `core::fmt` but what is rare: that took eight times as long.

use std::time::SystemTime;

use super::time::rfc3339;
use crate::{
    clock::Nanos,
    framing::is_plain,
    observation::{Decimal, ExchangeId, decimal},
};

/// A key of an object.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// One that is known here: see [`key!`].
    Known(&'static Known),
    /// Its name.
    Name(&'static str),
}

/// A key whose name is known here.
macro_rules! key {
    ($name:literal) => {
        Key::Known(const { &Known::of($name) })
    };
}
pub(super) use key;

/// A key with its comma, quotes and colon, and what does not matter behind it: copied without asking how long it is.
#[derive(Clone, Copy)]
pub(super) struct Known {
    room: [u8; 32],
    len: usize,
}

impl Known {
    /// The key of this name, of 28 bytes at most.
    pub(super) const fn of(name: &str) -> Self {
        let mut room = [0; 32];
        (room[0], room[1]) = (b',', b'"');
        let mut len = 2;
        while len < name.len() + 2 {
            room[len] = name.as_bytes()[len - 2];
            len += 1;
        }
        (room[len], room[len + 1]) = (b'"', b':');
        Self { room, len: len + 2 }
    }
}

/// Each key comes with a comma before it, the first of which becomes the bracket. Absent values leave no key; an inner object
/// without keys leaves none either.
pub(super) struct Object<'a> {
    room: &'a mut [u8],
    len: usize,
    /// The room was too little: what is there is not all.
    cut: bool,
}

#[expect(clippy::inline_always, reason = "what has a known length is copied without a call")]
impl<'a> Object<'a> {
    pub(super) const fn in_room(room: &'a mut [u8]) -> Self {
        Self { room, len: 0, cut: false }
    }

    /// How long it is; absent if the room was too little.
    pub(super) const fn len(&self) -> Option<usize> {
        if self.cut { None } else { Some(self.len) }
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room.get_mut(self.len..).and_then(|room| room.get_mut(..bytes.len())) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            self.cut = true;
        }
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.first_of(&[byte], 1);
    }

    /// Puts the first `len` of these bytes.
    #[inline(always)]
    fn first_of<const N: usize>(&mut self, bytes: &[u8; N], len: usize) {
        if let Some(room) = self.room.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut) {
            *room = *bytes;
            self.len += len;
        } else {
            self.cut = true;
        }
    }

    #[inline(always)]
    fn key(&mut self, key: Key) {
        match key {
            Key::Known(key) => self.first_of(&key.room, key.len),
            Key::Name(name) => {
                self.first_of(b",\"", 2);
                self.put(name.as_bytes());
                self.first_of(b"\":", 2);
            }
        }
    }

    fn decimal(&mut self, value: u64, digits: u32) {
        let Decimal { room, len } = decimal(value, digits);
        self.first_of(&room, len);
    }

    /// A text from outside, whatever is in it.
    #[inline(always)]
    pub(super) fn text(&mut self, key: Key, value: Option<&str>) {
        if let Some(value) = value {
            self.key(key);
            self.quoted(value);
        }
    }

    fn quoted(&mut self, text: &str) {
        self.byte(b'"');
        self.escaped(text);
        self.byte(b'"');
    }

    /// One of our own words, which have nothing in them to escape.
    #[inline(always)]
    pub(super) fn word(&mut self, key: Key, value: Option<&'static str>) {
        if let Some(value) = value {
            self.key(key);
            self.byte(b'"');
            self.put(value.as_bytes());
            self.byte(b'"');
        }
    }

    #[inline(always)]
    pub(super) fn count(&mut self, key: Key, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.key(key);
            self.decimal(value.into(), 0);
        }
    }

    #[inline(always)]
    pub(super) fn flag(&mut self, key: Key, value: Option<bool>) {
        if let Some(value) = value {
            self.key(key);
            self.first_of(if value { b"true " } else { b"false" }, if value { 4 } else { 5 });
        }
    }

    #[inline(always)]
    pub(super) fn seconds(&mut self, key: Key, span: Option<Nanos>) {
        if let Some(span) = span {
            self.key(key);
            self.decimal(span.0, 9);
        }
    }

    /// Tokens per second, to the millionth: as many digits as the metrics keep.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub(super) fn speed(&mut self, key: Key, speed: Option<f64>) {
        if let Some(speed) = speed.filter(|speed| speed.is_finite()) {
            self.key(key);
            self.decimal((speed * 1e6).round() as u64, 6);
        }
    }

    pub(super) fn time(&mut self, key: Key, time: SystemTime) {
        if let Some(time) = rfc3339(time) {
            self.key(key);
            self.byte(b'"');
            self.first_of(&time, time.len());
            self.byte(b'"');
        }
    }

    /// Sixteen hexadecimal digits.
    pub(super) fn id(&mut self, key: Key, id: ExchangeId) {
        self.key(key);
        self.byte(b'"');
        let digits: [u8; 16] =
            std::array::from_fn(|place| b"0123456789abcdef"[(id.0 >> (60 - 4 * place) & 15) as usize]);
        self.first_of(&digits, digits.len());
        self.byte(b'"');
    }

    /// Texts from outside as one.
    pub(super) fn joined(&mut self, key: Key, values: &[String]) {
        let Some((first, more)) = values.split_first() else { return };
        self.key(key);
        self.byte(b'"');
        self.escaped(first);
        for value in more {
            self.byte(b'|');
            self.escaped(value);
        }
        self.byte(b'"');
    }

    pub(super) fn names(&mut self, key: Key, names: impl Iterator<Item = &'static str>) {
        self.key(key);
        self.byte(b'[');
        for (index, name) in names.enumerate() {
            self.put(if index > 0 { b",\"" } else { b"\"" });
            self.put(name.as_bytes());
            self.byte(b'"');
        }
        self.byte(b']');
    }

    #[inline(always)]
    pub(super) fn object(&mut self, key: Key, fill: impl FnOnce(&mut Self)) {
        let before = self.len;
        self.key(key);
        let start = self.len;
        fill(self);
        if self.len == start {
            self.len = before;
        } else {
            self.close(start);
        }
    }

    /// Closes the object whose first key's comma stands here.
    pub(super) fn close(&mut self, start: usize) {
        if let Some(comma) = self.room.get_mut(start) {
            *comma = b'{';
        }
        self.byte(b'}');
    }

    /// A text as it stands between quotes: in runs of what needs no escape, which is nearly always all of it.
    fn escaped(&mut self, text: &str) {
        let mut from = 0;
        if !is_plain(text.as_bytes()) {
            for (at, char) in text.char_indices() {
                // U+2028 and U+2029 are lawful JSON, but line breaks to some readers of lines.
                if !(matches!(char, '"' | '\\' | '\u{2028}' | '\u{2029}') || char.is_control()) {
                    continue;
                }
                self.put(&text.as_bytes()[from..at]);
                from = at + char.len_utf8();
                match char {
                    '"' => self.put(b"\\\""),
                    '\\' => self.put(b"\\\\"),
                    other => self.put(format!("\\u{:04x}", u32::from(other)).as_bytes()),
                }
            }
        }
        self.put(&text.as_bytes()[from..]);
    }
}
