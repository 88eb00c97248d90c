//! Undoes the wrapping of Amazon Bedrock's chunks, in pieces: `{"bytes":"<base64>","p":"<padding>"}` in, what the base64
//! holds out.
//!
//! Keys come in any order, what stands beside `bytes` is passed over. Nothing of a chunk is held but the bits of an
//! unfinished group. A decoder of whole buffers (there are good ones; the tests compare with one) would need the chunk.

use super::bytes::quote_or_escape;

/// The key of what is unwrapped.
const KEY: &[u8] = b"bytes";

/// Not the beginning of [`KEY`].
const OTHER: u8 = u8::MAX;

/// How much is given out at once at most, in bytes: many whole groups, few enough for the stack.
const BLOCK: usize = 384;

/// Unwraps one chunk after another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwrapper {
    place: Place,
    /// Open brackets.
    depth: u8,
    /// How much of [`KEY`] the present key was so far, and behind it: whether the value to come is the one.
    key: u8,
    /// A key is to come, not a value.
    names: bool,
    /// The last byte of the string was a backslash.
    escape: bool,
    group: Group,
}

/// Where in the chunk the next byte is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    /// Between strings.
    #[default]
    Between,
    Key,
    Wrapped,
    OtherText,
    Closed,
    Broken,
}

impl Unwrapper {
    /// Begins a new chunk.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// Whether all that was read could be: it is an object so far, and the base64 in it is.
    pub const fn is_sound(&self) -> bool {
        !matches!(self.place, Place::Broken)
    }

    /// Reads the next bytes of the chunk; `inner` is called for each part of what is wrapped, in order.
    pub fn read(&mut self, bytes: &[u8], inner: &mut impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let [first, behind @ ..] = rest {
            rest = match self.place {
                Place::Between => {
                    self.between(*first);
                    behind
                }
                Place::Key => {
                    self.key(*first);
                    behind
                }
                Place::Wrapped => self.wrapped(rest, inner),
                Place::OtherText => self.pass(rest),
                Place::Closed => {
                    if !first.is_ascii_whitespace() {
                        self.place = Place::Broken;
                    }
                    behind
                }
                Place::Broken => return,
            };
        }
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'"' if self.depth == 1 && self.names => (self.place, self.key, self.escape) = (Place::Key, 0, false),
            b'"' if self.depth == 1 && usize::from(self.key) == KEY.len() => self.place = Place::Wrapped,
            b'"' if self.depth > 0 => (self.place, self.escape) = (Place::OtherText, false),
            b'{' | b'[' if self.depth > 0 || byte == b'{' => {
                (self.depth, self.names, self.key) = (self.depth.saturating_add(1), self.depth == 0, OTHER);
            }
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.place = Place::Closed;
                }
            }
            b':' if self.depth == 1 => self.names = false,
            b',' if self.depth == 1 => (self.names, self.key) = (true, OTHER),
            _ if self.depth > 0 || byte.is_ascii_whitespace() => {}
            _ => self.place = Place::Broken,
        }
    }

    fn key(&mut self, byte: u8) {
        match byte {
            b'"' if !self.escape => self.place = Place::Between,
            byte => {
                self.escape = byte == b'\\' && !self.escape;
                let fits = KEY.get(usize::from(self.key)) == Some(&byte);
                self.key = if fits { self.key + 1 } else { OTHER };
            }
        }
    }

    /// Through a string that nobody asked for; what is behind it.
    fn pass<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if std::mem::take(&mut self.escape) {
            return &bytes[1..];
        }
        let Some(at) = quote_or_escape(bytes) else { return &[] };
        if bytes[at] == b'"' {
            self.place = Place::Between;
        } else {
            self.escape = true;
        }
        &bytes[at + 1..]
    }

    /// Through the string of base64; what is behind it. The only escape there is a reason for is the slash's.
    fn wrapped<'a>(&mut self, bytes: &'a [u8], inner: &mut impl FnMut(&[u8])) -> &'a [u8] {
        if std::mem::take(&mut self.escape) {
            if bytes[0] != b'/' || !self.group.read(b"/", inner) {
                self.place = Place::Broken;
            }
            return &bytes[1..];
        }
        let at = quote_or_escape(bytes);
        let mut sound = self.group.read(&bytes[..at.unwrap_or(bytes.len())], inner);
        match at.map(|at| bytes[at]) {
            Some(b'"') => {
                sound = sound && self.group.end(inner);
                (self.place, self.key) = (Place::Between, OTHER);
            }
            Some(_) => self.escape = true,
            None => {}
        }
        if !sound {
            self.place = Place::Broken;
        }
        at.map_or(&[], |at| &bytes[at + 1..])
    }
}

/// Base64 in pieces: groups of four characters are three bytes; the last may be shorter, with or without its padding.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The bits of the unfinished group.
    bits: u32,
    /// Its characters so far.
    len: u8,
    /// Its padding so far: behind it nothing else may come.
    padding: u8,
}

impl Group {
    /// Whether all of the characters are base64.
    fn read(&mut self, mut chars: &[u8], inner: &mut impl FnMut(&[u8])) -> bool {
        if self.padding == 0 {
            // The rest of a group that was begun, then whole groups by blocks; the slow way takes what is left.
            while self.len > 0
                && let [first, rest @ ..] = chars
                && *first != b'='
            {
                if !self.push(*first, inner) {
                    return false;
                }
                chars = rest;
            }
            chars = blocks(chars, inner);
        }
        chars.iter().all(|&char| self.push(char, inner))
    }

    fn push(&mut self, char: u8, inner: &mut impl FnMut(&[u8])) -> bool {
        if char == b'=' {
            self.padding += 1;
            return self.len >= 2 && self.len + self.padding <= 4;
        }
        let value = value(char);
        if value == NO_VALUE || self.padding > 0 {
            return false;
        }
        self.bits = self.bits << 6 | value;
        self.len += 1;
        if self.len == 4 {
            inner(&self.bits.to_be_bytes()[1..]);
            *self = Self::default();
        }
        true
    }

    /// The last group's bytes; whether it is one.
    fn end(&mut self, inner: &mut impl FnMut(&[u8])) -> bool {
        let Self { bits, len, .. } = std::mem::take(self);
        match len {
            0 => {}
            2 => inner(&(bits << 12).to_be_bytes()[1..2]),
            3 => inner(&(bits << 6).to_be_bytes()[1..3]),
            _ => return false,
        }
        true
    }
}

/// Whole groups up to the first that is none; what is left of the characters.
fn blocks<'a>(chars: &'a [u8], inner: &mut impl FnMut(&[u8])) -> &'a [u8] {
    let mut block = [0; BLOCK];
    let (groups, _) = chars.as_chunks::<4>();
    let mut read = 0;
    for some in groups.chunks(BLOCK / 3) {
        let mut len = 0;
        for (group, bytes) in some.iter().zip(block.as_chunks_mut::<3>().0) {
            let [a, b, c, d] = *group;
            let bits = value(a) << 18 | value(b) << 12 | value(c) << 6 | value(d);
            let [0, first, second, third] = bits.to_be_bytes() else { break };
            *bytes = [first, second, third];
            len += 1;
        }
        if len > 0 {
            inner(&block[..len * 3]);
        }
        read += len;
        if len < some.len() {
            break;
        }
    }
    &chars[read * 4..]
}

/// What is no character of base64. Its highest bits are set, and stay so wherever in a group it stands.
const NO_VALUE: u32 = u32::MAX;

fn value(char: u8) -> u32 {
    VALUES[usize::from(char)]
}

static VALUES: [u32; 256] = {
    let chars = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut values = [NO_VALUE; 256];
    let mut value = 0;
    while value < 64 {
        values[chars[value as usize] as usize] = value;
        value += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use base64::{
        Engine,
        alphabet::STANDARD,
        engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    };
    use proptest::prelude::*;

    use super::*;

    /// Takes what this module takes: padding or none, whatever the bits behind the last byte are.
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );

    /// What is unwrapped, and whether all could be.
    fn unwrap<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
        let (mut unwrapper, mut inner) = (Unwrapper::default(), Vec::new());
        for piece in pieces {
            unwrapper.read(piece, &mut |part| {
                assert!(!part.is_empty());
                inner.extend_from_slice(part);
            });
        }
        (inner, unwrapper.is_sound())
    }

    #[track_caller]
    fn assert_unwrapped(chunk: &str, inner: &str, sound: bool) {
        let expected = (inner.as_bytes().to_vec(), sound);
        assert_eq!(unwrap([chunk.as_bytes()]), expected, "{chunk}");
        assert_eq!(unwrap(chunk.as_bytes().chunks(1)), expected, "{chunk} byte by byte");
    }

    #[test]
    fn bytes_are_found_wherever_they_stand() {
        for chunk in [
            r#"{"bytes":"aGV5IQ=="}"#,
            r#"{"bytes":"aGV5IQ"}"#,
            r#"{"bytes":"aGV5IQ==","p":"abcdefghijk"}"#,
            r#"{"p":"bytes","bytes":"aGV5IQ=="}"#,
            "\n{ \"p\" :\t\"\" ,\r\n \"bytes\"\n:  \"aGV5IQ==\" } \n",
            r#"{"p":"\"bytes\":\"AAAA\\","bytes":"aGV5IQ=="}"#,
            r#"{"a":{"bytes":"AAAA","b":[{"bytes":"AAAA"}]},"bytes":"aGV5IQ==","z":["bytes","AAAA"]}"#,
            r#"{"byte":"AAAA","bytess":"AAAA","bytes":"aGV5IQ==","n":-1.5e3,"t":true}"#,
            r#"{"\"bytes":"AAAA","bytes\\":"AAAA","bytes":"aGV5IQ=="}"#,
        ] {
            assert_unwrapped(chunk, "hey!", true);
        }
    }

    #[test]
    fn without_bytes_there_is_nothing_inside() {
        for chunk in
            ["", "{}", r#"{"message":"slow down"}"#, r#"{"bytes":null}"#, r#"{"bytes":["AAAA"]}"#, r#"{"bytes":""}"#]
        {
            assert_unwrapped(chunk, "", true);
        }
    }

    #[test]
    fn an_escaped_slash_is_a_slash() {
        assert_unwrapped(r#"{"bytes":"Pz8\/"}"#, "???", true);
        assert_unwrapped(r#"{"bytes":"Pz\u0038/"}"#, "", false);
    }

    #[test]
    fn what_is_no_base64_or_no_object_is_broken() {
        for (chunk, inner) in [
            ("[", ""),
            ("x", ""),
            (r#""bytes""#, ""),
            (r#"{"bytes":"aGV5"}{"#, "hey"),
            (r#"{"bytes":"aGV5I"}"#, "hey"),
            (r#"{"bytes":"aGV5IQ==="}"#, "hey"),
            (r#"{"bytes":"aGV5="}"#, "hey"),
            (r#"{"bytes":"aGV5I==="}"#, "hey"),
            (r#"{"bytes":"aGV5IQ=I"}"#, "hey"),
            (r#"{"bytes":"aGV5 IQ=="}"#, "hey"),
            (r#"{"bytes":"aGV5_w=="}"#, "hey"),
            ("{\"bytes\":\"aGV5\u{e9}\"}", "hey"),
        ] {
            assert_unwrapped(chunk, inner, false);
        }
    }

    #[test]
    fn an_unwrapper_goes_on_with_the_next_chunk() {
        let (mut unwrapper, mut inner) = (Unwrapper::default(), Vec::new());
        for chunk in [r#"{"bytes":"aGV"#, r#"{"bytes":"x="}"#, r#"{"bytes":"aGV5IQ=="}"#] {
            inner.clear();
            unwrapper.restart();
            unwrapper.read(chunk.as_bytes(), &mut |part| inner.extend_from_slice(part));
        }
        assert_eq!((inner.as_slice(), unwrapper.is_sound()), (&b"hey!"[..], true));
        assert!(size_of::<Unwrapper>() <= 16);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_bytes_that_were_wrapped(
            bytes in proptest::collection::vec(any::<u8>(), 0..1500),
            first in any::<bool>(),
            cuts in proptest::collection::vec(0_usize..2100, 0..8),
        ) {
            let text = base64::prelude::BASE64_STANDARD.encode(&bytes);
            let chunk = if first {
                format!(r#"{{"bytes":"{text}","p":"abc"}}"#)
            } else {
                format!(r#"{{"p":"abc","bytes":"{text}"}}"#)
            };
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(chunk.len())).collect();
            cuts.extend([0, chunk.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &chunk.as_bytes()[pair[0]..pair[1]]);
            prop_assert_eq!(unwrap(pieces), (bytes.clone(), true));
            prop_assert_eq!(unwrap(chunk.as_bytes().chunks(1)), (bytes, true));
        }

        #[test]
        fn what_a_decoder_of_whole_buffers_refuses_is_broken(text in "[A-Za-z0-9+/]{0,9}[=A_ é]{0,4}", width in 1_usize..9) {
            let chunk = format!(r#"{{"bytes":"{text}"}}"#);
            let (inner, sound) = unwrap(chunk.as_bytes().chunks(width));
            match LENIENT.decode(&text) {
                Ok(bytes) => prop_assert_eq!((inner, sound), (bytes, true)),
                Err(_) => prop_assert!(!sound),
            }
        }

        #[test]
        fn whatever_comes_is_read_alike_in_any_split(
            chunk in r#"[\{\}\[\]"\\:,a-z=/ 0-9]{0,40}|(\{"bytes":)?"[A-Z=\\/"]{0,12}"?[,}]?"#,
            width in 1_usize..9,
        ) {
            prop_assert_eq!(unwrap(chunk.as_bytes().chunks(width)), unwrap([chunk.as_bytes()]));
        }
    }
}
