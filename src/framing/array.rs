//! A JSON array that grows as a stream, in pieces: each element is an event, whole with its last bracket. Nothing of an
//! element is held, and what is inside of it is left to the JSON scanner.

use super::{Framed, bytes::quote_or_escape, json::is_blank, sse::Piece};

/// Cuts an array into its elements.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Framer {
    mode: Mode,
    /// Open brackets of the present element.
    depth: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Mode {
    /// The array has not begun.
    #[default]
    Before,
    Between,
    Inside,
    String,
    /// The byte that comes was escaped.
    Escaped,
    /// The array has ended: whatever follows is no event.
    Closed,
}

impl Framed for Framer {
    fn read(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> usize {
        let mut at = 0;
        // Where the present element's part of the bytes begins.
        let mut start = 0;
        while let Some(&byte) = bytes.get(at) {
            match (self.mode, byte) {
                (Mode::Before, b'[') => self.mode = Mode::Between,
                (Mode::Between, b']') => self.mode = Mode::Closed,
                (Mode::Between, byte) if byte != b',' && !is_blank(byte) => {
                    // The element's first byte is looked at as one of it.
                    (self.mode, self.depth) = (Mode::Inside, 0);
                    start = at;
                    continue;
                }
                (Mode::Inside, b'"') | (Mode::Escaped, _) => self.mode = Mode::String,
                (Mode::Inside, b'{' | b'[') => self.depth = self.depth.saturating_add(1),
                (Mode::Inside, b',' | b']') if self.depth == 0 => {
                    // An element that has no bracket of its own to end with.
                    give(&bytes[start..at], start, piece);
                    self.mode = if byte == b']' { Mode::Closed } else { Mode::Between };
                    piece(Piece::End { data: true });
                    return at + 1;
                }
                (Mode::Inside, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        give(&bytes[start..=at], start, piece);
                        self.mode = Mode::Between;
                        piece(Piece::End { data: true });
                        return at + 1;
                    }
                }
                (Mode::String, _) => {
                    let rest = &bytes[at..];
                    at += quote_or_escape(rest).unwrap_or(rest.len());
                    match bytes.get(at) {
                        Some(b'"') => self.mode = Mode::Inside,
                        Some(_) => self.mode = Mode::Escaped,
                        None => break,
                    }
                }
                // What stands around the elements, and inside of them what is no string and no bracket.
                _ => {}
            }
            at += 1;
        }
        if self.is_inside() {
            give(&bytes[start..], start, piece);
        }
        bytes.len()
    }

    fn end(&mut self, piece: &mut impl FnMut(Piece<'_>)) {
        if self.is_inside() {
            piece(Piece::End { data: true });
        }
        self.mode = Mode::Closed;
    }

    fn between_events(&self) -> bool {
        self.mode == Mode::Between
    }
}

impl Framer {
    /// Whether the array's last bracket was seen.
    pub const fn is_closed(self) -> bool {
        matches!(self.mode, Mode::Closed)
    }

    const fn is_inside(self) -> bool {
        matches!(self.mode, Mode::Inside | Mode::String | Mode::Escaped)
    }
}

fn give(part: &[u8], at: usize, piece: &mut impl FnMut(Piece<'_>)) {
    if !part.is_empty() {
        piece(Piece::Data(part, at));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::framing::feed;

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
        let (mut events, mut data) = (Vec::new(), Vec::new());
        let mut take = |piece: Piece<'_>| match piece {
            Piece::Data(part, _) => data.extend_from_slice(part),
            Piece::End { data: true } => events.push(String::from_utf8(std::mem::take(&mut data)).unwrap()),
            _ => panic!("{piece:?} in an array"),
        };
        let mut framer = Framer::default();
        feed(&mut framer, pieces, &mut take);
        let closed = framer.is_closed();
        framer.end(&mut take);
        (events, closed)
    }

    #[test]
    fn an_element_ends_with_its_last_bracket() {
        let mut seen = 0;
        let mut framer = Framer::default();
        assert_eq!(framer.read(b"[{\"a\":[1,{}]}", &mut |_| seen += 1), 13);
        assert!(framer.between_events());
        assert_eq!(seen, 2);
    }

    #[test]
    fn strings_hide_brackets_and_commas() {
        let body = br#" [{"a":"]},{\"["} , "x,]" ,7 ,[[]]] tail [{}]"#;
        let elements = [r#"{"a":"]},{\"["}"#, r#""x,]" "#, "7 ", "[[]]"].map(str::to_owned).to_vec();
        assert_eq!(read([&body[..]]), (elements, true));
    }

    #[test]
    fn half_an_element_is_one_and_an_empty_array_has_none() {
        assert_eq!(read([&b"[{\"a\":1},{\"a"[..]]), (vec!["{\"a\":1}".to_owned(), "{\"a".to_owned()], false));
        assert_eq!(read([&b"[\n]"[..]]), (vec![], true));
        assert_eq!(read([&b"}]"[..]]), (vec![], false));
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<u8>().prop_map(serde_json::Value::from),
            "[a\"\\\\\\[\\]{},]{0,5}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                proptest::collection::btree_map("[a\"}]{0,2}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_split_gives_the_elements_that_a_whole_parse_gives(
            elements in proptest::collection::vec(json(), 0..5),
            pretty: bool,
            cuts in proptest::collection::vec(0_usize..200, 0..8),
        ) {
            let whole = serde_json::Value::from(elements.clone());
            let stream = if pretty { format!("{whole:#}") } else { whole.to_string() };
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]);
            for (events, closed) in [read(pieces), read(stream.as_bytes().chunks(1))] {
                let parsed: Vec<serde_json::Value> =
                    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
                prop_assert_eq!(&parsed, &elements);
                prop_assert!(closed);
            }
        }
    }
}
