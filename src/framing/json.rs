//! An incremental JSON scanner: walks a document of any length, in any pieces, and gives out the asked-for fields only.
//!
//! What to look for is a [`Tree`], made once from paths. Everything else is passed over: strings by words, subtrees by
//! their brackets. A value is copied only if it is asked for *and* was split or has escapes. Not every malformed
//! document is noticed (the inside of what is passed over is checked for brackets alone), but none does any harm.

mod string;
mod tree;

pub use self::tree::{Tree, Want};
use self::{
    string::{Escape, Purpose, string_end},
    tree::{NONE, NodeId},
};
use super::bytes::{quote_or_bracket, quote_or_escape};

/// The longest value that is given out, in bytes.
pub const VALUE_LIMIT: usize = 4096;

/// The deepest nesting that is followed: the containers' kinds are the bits of one word.
pub const DEPTH_LIMIT: u8 = 64;

/// How many free values of a document are noted.
pub(super) const FREE: usize = 16;

pub(super) const NO_FREE: Free = Free { kind: FreeKind::Text, start: 0, end: 0 };

/// The value of an asked-for field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as written.
    Number(&'a [u8]),
    /// A whole string, unescaped. Of fields asked for by [`Want::Whether`]: the empty one only.
    Text(&'a [u8]),
    /// A string that is not empty, known by its first byte. Of fields asked for by [`Want::Whether`].
    Filled,
    /// A string or number beyond [`VALUE_LIMIT`].
    TooLong,
    /// An object begins.
    Object,
    /// An array begins.
    Array,
}

/// How far a document was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Nothing but white space was seen.
    Blank,
    /// It has begun.
    Open,
    /// Its last bracket was seen.
    Closed,
    /// It is no JSON.
    Malformed,
    /// It is nested deeper than [`DEPTH_LIMIT`].
    TooDeep,
}

/// Where in the bytes of one `read` something stood that could have been another of its kind without a difference in
/// what was found: nobody asked for it, or only whether there is something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Free {
    /// What it is.
    pub kind: FreeKind,
    /// Its first byte.
    pub start: u16,
    /// Behind its last byte.
    pub end: u16,
}

/// A kind of [`Free`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeKind {
    /// A string without its quotes, never empty.
    Text,
    /// A number.
    Number,
    /// A number that was given out by this number of its field. `always`: what matters is its last value, so it must be
    /// given out again even if it did not change ([`Want::Count`]).
    #[expect(missing_docs, reason = "said above")]
    Told { field: u8, always: bool },
    /// Spaces before the last bracket, maybe none: padding that hides a token's length.
    Padding,
}

/// Walks one document after another. Allocates only for asked-for values that are split or have escapes.
#[derive(Debug)]
pub struct Scanner {
    /// The kinds of the open containers, the innermost lowest: 1 is an array.
    kinds: u64,
    held: Vec<u8>,
    mode: Mode,
    depth: u8,
    /// The depth at which a passed-over container was entered; 0 outside of such.
    passing: u8,
    /// The innermost open container.
    node: NodeId,
    /// Where the value to come belongs.
    target: NodeId,
    string: Purpose,
    escape: Escape,
    /// The held value has outgrown the limit.
    long: bool,
    frees: u8,
    free: [Free; FREE],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Start,
    Key,
    FirstKey,
    Colon,
    Value,
    FirstValue,
    Next,
    String,
    Scalar,
    Pass,
    Closed,
    /// Malformed by what stands behind the last bracket.
    Behind,
    Malformed,
    TooDeep,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            kinds: 0,
            held: Vec::new(),
            mode: Mode::Start,
            depth: 0,
            passing: 0,
            node: 0,
            target: 0,
            string: Purpose::Pass,
            escape: Escape::None,
            long: false,
            frees: 0,
            free: [NO_FREE; FREE],
        }
    }
}

impl Scanner {
    /// Begins a new document.
    #[inline]
    pub const fn restart(&mut self) {
        self.mode = Mode::Start;
        self.depth = 0;
        self.passing = 0;
        self.node = 0;
        self.target = 0;
        self.frees = 0;
    }

    /// How far the document was read.
    #[inline]
    pub const fn progress(&self) -> Progress {
        match self.mode {
            Mode::Start => Progress::Blank,
            Mode::Closed => Progress::Closed,
            Mode::Behind | Mode::Malformed => Progress::Malformed,
            Mode::TooDeep => Progress::TooDeep,
            _ => Progress::Open,
        }
    }

    /// Whether the document's last bracket was seen, whatever came behind it.
    #[inline]
    pub const fn is_whole(&self) -> bool {
        matches!(self.mode, Mode::Closed | Mode::Behind)
    }

    /// What was free in the last `read`, in order; only what lay wholly in its bytes. Absent if there was more than is
    /// noted.
    pub fn free(&self) -> Option<&[Free]> {
        self.free.get(..usize::from(self.frees))
    }

    /// Reads the next bytes of the document; `found` is called for each asked-for field, in order.
    pub fn read(&mut self, tree: &Tree, bytes: &[u8], found: &mut impl FnMut(u8, Value<'_>)) {
        self.frees = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at = match self.mode {
                Mode::Next => self.next(tree, bytes, at),
                Mode::Key | Mode::FirstKey => self.key(tree, bytes, at),
                Mode::Value | Mode::FirstValue | Mode::Start => self.value(tree, bytes, at, found),
                Mode::Colon => self.colon(byte, at),
                Mode::String => self.string(tree, bytes, at, found),
                Mode::Scalar => self.scalar(tree, bytes, at, found),
                Mode::Pass => self.pass(bytes, at),
                Mode::Closed if is_blank(byte) => at + 1,
                Mode::Closed => {
                    self.mode = Mode::Behind;
                    return;
                }
                Mode::Behind | Mode::Malformed | Mode::TooDeep => return,
            };
        }
    }

    /// White space between tokens; nothing else may stand here.
    #[inline]
    const fn blank(&mut self, byte: u8, at: usize) -> usize {
        if !is_blank(byte) {
            self.mode = Mode::Malformed;
        }
        at + 1
    }

    #[inline]
    fn next(&mut self, tree: &Tree, bytes: &[u8], at: usize) -> usize {
        match bytes[at] {
            b',' if self.kinds & 1 == 0 => self.mode = Mode::Key,
            b',' => self.element(tree, Mode::Value),
            byte @ (b'}' | b']') => {
                if self.depth == 1 {
                    let padding = bytes[..at].iter().rev().take_while(|&&byte| byte == b' ').count();
                    self.note_free(FreeKind::Padding, at - padding, at);
                }
                self.close(tree, byte);
            }
            byte => return self.blank(byte, at),
        }
        at + 1
    }

    #[inline]
    const fn colon(&mut self, byte: u8, at: usize) -> usize {
        if byte == b':' {
            self.mode = Mode::Value;
            return at + 1;
        }
        self.blank(byte, at)
    }

    #[inline]
    fn key(&mut self, tree: &Tree, bytes: &[u8], at: usize) -> usize {
        let rest = &bytes[at + 1..];
        match bytes[at] {
            b'"' => match quote_or_escape(rest) {
                Some(len) if rest[len] == b'"' => {
                    self.target = tree.child(self.node, rest, len);
                    let colon = rest.get(len + 1) == Some(&b':');
                    self.mode = if colon { Mode::Value } else { Mode::Colon };
                    at + len + 2 + usize::from(colon)
                }
                _ => self.begin_string(Purpose::Key, at),
            },
            b'}' if self.mode == Mode::FirstKey => {
                self.close(tree, b'}');
                at + 1
            }
            byte => self.blank(byte, at),
        }
    }

    #[inline]
    fn value(&mut self, tree: &Tree, bytes: &[u8], at: usize, found: &mut impl FnMut(u8, Value<'_>)) -> usize {
        let byte = bytes[at];
        match byte {
            b'"' if self.mode != Mode::Start => return self.begin_text(tree, bytes, at, found),
            b'{' | b'[' => self.open(tree, byte == b'[', found),
            b']' if self.mode == Mode::FirstValue => self.close(tree, byte),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' if self.mode != Mode::Start => {
                // Nearly every null, without a look for its end: what may follow one.
                if let [b'n', b'u', b'l', b'l', b',' | b'}' | b']', ..] = bytes[at..] {
                    self.give(tree, Value::Null, found);
                    self.mode = Mode::Next;
                    return at + 4;
                }
                self.held.clear();
                self.long = false;
                let len = scalar_len(&bytes[at..]);
                let end = at + len;
                if end == bytes.len() {
                    self.mode = Mode::Scalar;
                    return self.scalar(tree, bytes, at, found);
                }
                self.end_scalar(tree, &bytes[at..end], found);
                if !byte.is_ascii_alphabetic() {
                    let kind = match tree.asked(self.target) {
                        None => FreeKind::Number,
                        Some((field, want)) => FreeKind::Told { field, always: want == Want::Count },
                    };
                    self.note_free(kind, at, end);
                }
                return end;
            }
            _ => return self.blank(byte, at),
        }
        at + 1
    }

    /// A string value begins at `at`.
    #[inline]
    fn begin_text(&mut self, tree: &Tree, bytes: &[u8], at: usize, found: &mut impl FnMut(u8, Value<'_>)) -> usize {
        let rest = &bytes[at + 1..];
        let purpose = match tree.asked(self.target) {
            None => Purpose::Pass,
            Some((_, Want::Whether)) => Purpose::Whether,
            Some((_, Want::Value | Want::Count)) => Purpose::Take,
        };
        if let Some(len) = quote_or_escape(rest)
            && rest[len] == b'"'
        {
            self.mode = Mode::Next;
            if purpose != Purpose::Pass {
                let text = match purpose {
                    Purpose::Whether if len > 0 => Value::Filled,
                    _ if len > VALUE_LIMIT => Value::TooLong,
                    _ => Value::Text(&rest[..len]),
                };
                self.give(tree, text, found);
            }
            if purpose != Purpose::Take && len > 0 {
                self.note_free(FreeKind::Text, at + 1, at + 1 + len);
            }
            return at + len + 2;
        }
        self.begin_string(purpose, at)
    }

    /// A number or literal that ended beyond an earlier piece.
    fn scalar(&mut self, tree: &Tree, bytes: &[u8], at: usize, found: &mut impl FnMut(u8, Value<'_>)) -> usize {
        let len = scalar_len(&bytes[at..]);
        self.hold(&bytes[at..at + len]);
        if at + len < bytes.len() {
            let held = std::mem::take(&mut self.held);
            self.end_scalar(tree, &held, found);
            self.held = held;
        }
        at + len
    }

    #[inline]
    fn end_scalar(&mut self, tree: &Tree, text: &[u8], found: &mut impl FnMut(u8, Value<'_>)) {
        self.mode = Mode::Next;
        let value = match text {
            _ if self.long || text.len() > VALUE_LIMIT => Value::TooLong,
            b"null" => Value::Null,
            b"true" => Value::Bool(true),
            b"false" => Value::Bool(false),
            [b'-' | b'0'..=b'9', ..] => Value::Number(text),
            _ => {
                self.mode = Mode::Malformed;
                return;
            }
        };
        self.give(tree, value, found);
    }

    #[inline]
    fn give(&self, tree: &Tree, value: Value<'_>, found: &mut impl FnMut(u8, Value<'_>)) {
        if let Some((field, _)) = tree.asked(self.target) {
            found(field, value);
        }
    }

    #[inline]
    fn open(&mut self, tree: &Tree, array: bool, found: &mut impl FnMut(u8, Value<'_>)) {
        if !self.push(array) {
            return;
        }
        self.give(tree, if array { Value::Array } else { Value::Object }, found);
        if !tree.leads_on(self.target, array) {
            self.passing = self.depth;
            self.mode = Mode::Pass;
            return;
        }
        self.node = self.target;
        if array {
            self.element(tree, Mode::FirstValue);
        } else {
            self.mode = Mode::FirstKey;
        }
    }

    #[inline]
    fn element(&mut self, tree: &Tree, mode: Mode) {
        self.target = tree.element(self.node);
        self.mode = mode;
    }

    #[inline]
    fn close(&mut self, tree: &Tree, byte: u8) {
        if self.pop(byte) {
            self.node = tree.parent(self.node);
            self.mode = if self.depth == 0 { Mode::Closed } else { Mode::Next };
        }
    }

    /// Through a container that nobody asked for.
    fn pass(&mut self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(found) = quote_or_bracket(&bytes[at..]) {
            let byte = bytes[at + found];
            at += found + 1;
            match byte {
                b'"' => match string_end(&bytes[at..]) {
                    Ok(len) => at += len,
                    Err(escape) => {
                        self.string = Purpose::Pass;
                        self.escape = escape;
                        self.mode = Mode::String;
                        return bytes.len();
                    }
                },
                b'{' | b'[' if !self.push(byte == b'[') => return at,
                b'}' | b']' => {
                    if !self.pop(byte) {
                        return at;
                    }
                    if self.depth < self.passing {
                        self.passing = 0;
                        self.mode = if self.depth == 0 { Mode::Closed } else { Mode::Next };
                        return at;
                    }
                }
                _ => {}
            }
        }
        bytes.len()
    }

    #[inline]
    fn push(&mut self, array: bool) -> bool {
        let fits = self.depth < DEPTH_LIMIT;
        if fits {
            self.depth += 1;
            self.kinds = self.kinds << 1 | u64::from(array);
        } else {
            self.mode = Mode::TooDeep;
        }
        fits
    }

    #[inline]
    fn pop(&mut self, byte: u8) -> bool {
        let fits = (self.kinds & 1 == 1) == (byte == b']');
        self.depth -= 1;
        self.kinds >>= 1;
        if !fits {
            self.mode = Mode::Malformed;
        }
        fits
    }

    #[inline]
    fn note_free(&mut self, kind: FreeKind, start: usize, end: usize) {
        if let (Ok(start), Ok(end)) = (u16::try_from(start), u16::try_from(end))
            && let Some(slot) = self.free.get_mut(usize::from(self.frees))
        {
            *slot = Free { kind, start, end };
            self.frees += 1;
        } else {
            self.frees = u8::MAX;
        }
    }
}

/// How many bytes of white space, as JSON has it, these begin with.
#[inline]
pub fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| is_blank(**byte)).count()
}

/// Whether a byte is white space, as JSON has it: a form feed is none.
#[inline]
pub const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// How many bytes of a number or literal are here.
#[inline]
fn scalar_len(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'+' | b'.'))
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests;
