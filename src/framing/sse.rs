//! Server-sent events by the WHATWG rules, in pieces: nothing of an event is held.
//!
//! Beyond the rules, for what providers send: an event at the end of the body needs no blank line, and JSON outside of
//! `data` (a bare object in the middle of the stream, a field named `error`) is given out as [`Piece::Bare`] and [`Piece::Error`].

use memchr::memchr2;

use super::Framed;

/// A piece of an event stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// The next part of the event's data and where in the read bytes it begins. Lines are joined by a part `\n`.
    Data(&'a [u8], usize),
    /// The next part of the event's name.
    Name(&'a [u8]),
    /// The next part of an object that stands bare in the stream: the lines from a `{` to a blank line.
    Bare(&'a [u8]),
    /// The next part of the value of a field named `error`.
    Error(&'a [u8]),
    /// The name of the exception that the event is, before its data; not of SSE.
    Exception(&'a [u8]),
    /// The event has ended. It had data if `data`; only then it is an event.
    End {
        /// At least one `data` line was in it (maybe an empty one).
        data: bool,
    },
}

/// Cuts an event stream. Holds a few bytes of state and no data.
#[derive(Clone, Copy, Debug)]
pub struct Framer {
    line: Line,
    field: [u8; 6],
    /// Bytes of a field's name seen so far, or of the byte order mark.
    seen: u8,
    /// The last byte read was a CR: an LF that follows belongs to it.
    cr: bool,
    data: bool,
    /// Lines of a bare object are being read.
    bare: bool,
    /// Something other than data was in the event: a name, JSON.
    begun: bool,
    /// No line of the next event was read yet. Follows from the others, but is asked for with every event.
    between: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Mark,
    Field,
    Space(Value),
    Value(Value),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Data,
    Name,
    Bare,
    Error,
    Ignored,
}

const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

impl Default for Framer {
    fn default() -> Self {
        Self {
            line: Line::Mark,
            field: [0; 6],
            seen: 0,
            cr: false,
            data: false,
            bare: false,
            begun: false,
            between: false,
        }
    }
}

impl Framed for Framer {
    #[inline]
    fn read(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> usize {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.line {
                // The most common line, if its field's name lies wholly in the bytes.
                Line::Field if self.seen == 0 && !self.bare && bytes[at..].starts_with(b"data:") => {
                    at += 5;
                    self.begin_data(piece);
                    self.line = Line::Space(Value::Data);
                }
                Line::Field if byte == b'\n' && self.cr => at += 1,
                Line::Field if byte == b'\n' || byte == b'\r' => {
                    at += 1;
                    let blank = self.seen == 0;
                    self.line_without_colon(piece);
                    self.end_line(byte);
                    if blank && self.end_event(piece) {
                        self.between = true;
                        return at;
                    }
                    continue;
                }
                Line::Field if byte == b':' => {
                    at += 1;
                    let value = self.value(piece);
                    self.line = Line::Space(value);
                }
                Line::Field if self.seen == 0 && !self.data && (byte == b'{' || self.bare) => {
                    (self.bare, self.begun) = (true, true);
                    self.line = Line::Value(Value::Bare);
                }
                Line::Field => {
                    at += 1;
                    if let Some(slot) = self.field.get_mut(usize::from(self.seen)) {
                        *slot = byte;
                        self.seen += 1;
                    }
                }
                Line::Space(value) => {
                    at += usize::from(byte == b' ');
                    self.line = Line::Value(value);
                }
                Line::Value(value) => {
                    let rest = &bytes[at..];
                    let end = memchr2(b'\n', b'\r', rest);
                    let part = &rest[..end.unwrap_or(rest.len())];
                    if !part.is_empty() {
                        give(value, part, at, piece);
                    }
                    at += part.len();
                    if end.is_some() {
                        self.end_line(bytes[at]);
                        at += 1;
                        continue;
                    }
                }
                Line::Mark => {
                    if byte == MARK[usize::from(self.seen)] {
                        at += 1;
                        self.seen += 1;
                    } else {
                        // Half a mark is a field's name of that many bytes that nobody knows.
                        self.line = Line::Field;
                        self.field = [0; 6];
                    }
                    if usize::from(self.seen) == MARK.len() {
                        self.seen = 0;
                        self.line = Line::Field;
                    }
                }
            }
            self.cr = false;
        }
        self.between = matches!(self.line, Line::Field) && self.seen == 0 && !self.data && !self.begun;
        at
    }

    fn end(&mut self, piece: &mut impl FnMut(Piece<'_>)) {
        if self.line == Line::Field && self.seen > 0 {
            self.line_without_colon(piece);
        }
        self.end_event(piece);
        *self = Self::default();
    }

    #[inline]
    fn between_events(&self) -> bool {
        self.between
    }

    /// The LF of a CR LF that was split.
    #[inline]
    fn skip(&mut self, bytes: &[u8]) -> usize {
        usize::from(std::mem::take(&mut self.cr) && bytes.first() == Some(&b'\n'))
    }

    #[inline]
    fn passed(&mut self, last: u8) {
        self.cr = last == b'\r';
    }
}

impl Framer {
    fn begin_data(&mut self, piece: &mut impl FnMut(Piece<'_>)) {
        if self.data {
            piece(Piece::Data(b"\n", 0));
        }
        self.data = true;
    }

    /// What the named field's value is for.
    fn value(&mut self, piece: &mut impl FnMut(Piece<'_>)) -> Value {
        match &self.field[..usize::from(self.seen)] {
            b"data" => {
                self.begin_data(piece);
                Value::Data
            }
            b"event" => {
                self.begun = true;
                Value::Name
            }
            b"error" if !self.data => {
                self.begun = true;
                Value::Error
            }
            _ => Value::Ignored,
        }
    }

    /// A line that is nothing but a field's name: its value is empty.
    fn line_without_colon(&mut self, piece: &mut impl FnMut(Piece<'_>)) {
        if self.seen > 0 {
            self.value(piece);
        }
    }

    #[inline]
    const fn end_line(&mut self, byte: u8) {
        self.line = Line::Field;
        self.seen = 0;
        self.cr = byte == b'\r';
    }

    fn end_event(&mut self, piece: &mut impl FnMut(Piece<'_>)) -> bool {
        let begun = self.data || self.begun;
        if begun {
            piece(Piece::End { data: self.data });
        }
        (self.data, self.bare, self.begun) = (false, false, false);
        begun
    }
}

#[inline]
fn give<'a>(value: Value, part: &'a [u8], at: usize, piece: &mut impl FnMut(Piece<'a>)) {
    match value {
        Value::Data => piece(Piece::Data(part, at)),
        Value::Name => piece(Piece::Name(part)),
        Value::Bare => piece(Piece::Bare(part)),
        Value::Error => piece(Piece::Error(part)),
        Value::Ignored => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::framing::feed;

    /// What a stream said, whole: data and name of each event, and what stood beside.
    #[derive(PartialEq, Eq, Default, Debug)]
    struct Seen {
        events: Vec<(String, String)>,
        aside: String,
    }

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
        let mut seen = Seen::default();
        let (mut data, mut name) = (Vec::new(), Vec::new());
        let mut take = |piece: Piece<'_>| match piece {
            Piece::Data(part, _) => data.extend_from_slice(part),
            Piece::Name(part) => name.extend_from_slice(part),
            Piece::Bare(part) | Piece::Error(part) => seen.aside.push_str(&String::from_utf8_lossy(part)),
            Piece::End { data: true } => {
                let text = |bytes: &mut Vec<u8>| String::from_utf8(std::mem::take(bytes)).unwrap();
                seen.events.push((text(&mut data), text(&mut name)));
            }
            Piece::End { data: false } => name.clear(),
            Piece::Exception(_) => panic!("no event stream has one"),
        };
        let mut framer = Framer::default();
        feed(&mut framer, pieces, &mut take);
        framer.end(&mut take);
        seen
    }

    #[track_caller]
    fn assert_events(stream: &str, events: &[(&str, &str)], aside: &str) {
        let owned = |(data, name): &(&str, &str)| ((*data).to_owned(), (*name).to_owned());
        let expected = Seen { events: events.iter().map(owned).collect(), aside: aside.to_owned() };
        assert_eq!(read([stream.as_bytes()]), expected, "{stream:?}");
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            assert_eq!(read([head, tail]), expected, "{stream:?} cut at {cut}");
        }
        assert_eq!(read(stream.as_bytes().chunks(1)), expected, "{stream:?} by bytes");
    }

    #[test]
    fn line_ends_are_lf_cr_lf_or_cr_and_may_mix() {
        for stream in ["data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r"] {
            assert_events(stream, &[("a", ""), ("b", "")], "");
        }
        assert_events("data: a\r\n\ndata: b\n\rdata: c\r\r\n", &[("a", ""), ("b", ""), ("c", "")], "");
    }

    #[test]
    fn one_space_behind_the_colon_is_not_content() {
        assert_events("data:a\n\ndata: a\n\ndata:  a\n\n", &[("a", ""), ("a", ""), (" a", "")], "");
    }

    #[test]
    fn data_lines_are_joined() {
        assert_events("data: a\ndata:\ndata\ndata: b\n\n", &[("a\n\n\nb", "")], "");
        assert_events("data\n\n", &[("", "")], "");
        assert_events("data:\n\n", &[("", "")], "");
    }

    #[test]
    fn names_come_before_or_behind_the_data() {
        assert_events("event: x\ndata: a\n\ndata: b\nevent: y\n\n", &[("a", "x"), ("b", "y")], "");
        assert_events("event: lost\n\ndata: a\n\n", &[("a", "")], "");
    }

    #[test]
    fn comments_ids_and_unknown_fields_are_no_events() {
        assert_events(": hi\n\n:\n\nid: 7\nretry: 5\n\nidata: x\ndatax: y\ndata : z\n\n", &[], "");
        assert_events(": hi\ndata: a\n: hi\n\n\n\n\ndata: b\n\n: bye\n", &[("a", ""), ("b", "")], "");
        assert_events(":408: 408 Request Timeout\n\n", &[], "");
    }

    #[test]
    fn a_byte_order_mark_is_passed_over_at_the_start_only() {
        assert_events("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[("a", "")], "");
        let half = [&b"\xef\xbbdata: a\n\ndata: b\n\n"[..]];
        assert_eq!(read(half).events, [("b".to_owned(), String::new())]);
    }

    #[test]
    fn an_event_at_the_end_needs_no_blank_line() {
        for end in ["", "\n", "\r\n"] {
            assert_events(&format!("data: a\n\ndata: b{end}"), &[("a", ""), ("b", "")], "");
        }
        assert_events("data: a\n\nevent: x", &[("a", "")], "");
        assert_events("data", &[("", "")], "");
    }

    #[test]
    fn json_outside_of_data_is_given_out() {
        assert_events("data: a\n\nerror: {\"code\":1}\n\ndata: b\n\n", &[("a", ""), ("b", "")], "{\"code\":1}");
        let bare = "{\n  \"error\": {\n    \"code\": 1\n  }\n}\n";
        assert_events(&format!("data: a\n\n{bare}"), &[("a", "")], &bare.replace('\n', ""));
        assert_events(&format!("data: a\n\n{bare}\ndata: b\n\n"), &[("a", ""), ("b", "")], &bare.replace('\n', ""));
    }

    /// The rules, read off line by line from a whole body.
    fn plainly(stream: &str) -> Vec<(String, String)> {
        let body = stream.replace("\r\n", "\n").replace('\r', "\n");
        let mut events = Vec::new();
        let (mut data, mut name): (Option<String>, String) = (None, String::new());
        for line in body.split('\n').chain([""]) {
            if line.is_empty() {
                events.extend(data.take().map(|data| (data, std::mem::take(&mut name))));
                name.clear();
            } else {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "data" => data = Some(data.map_or(value.to_owned(), |data| format!("{data}\n{value}"))),
                    "event" => name.push_str(value),
                    _ => {}
                }
            }
        }
        events
    }

    proptest! {
        #[test]
        fn any_split_gives_the_events_of_the_whole(
            lines in proptest::collection::vec(
                prop_oneof![
                    "data:? ?[a-z: ]{0,12}", "event: ?[a-z]{0,3}", "(data|event|id|retry|dat|datas)", "(|:| )[a-z]{0,3}",
                    Just(String::new()),
                ],
                0..20,
            ),
            ends in proptest::collection::vec(prop_oneof![Just("\n"), Just("\r\n"), Just("\r")], 20),
            cuts in proptest::collection::vec(0_usize..400, 0..8),
        ) {
            let stream: String = lines.iter().zip(&ends).flat_map(|(line, end)| [line.as_str(), end]).collect();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]);
            let expected = plainly(&stream);
            prop_assert_eq!(&read(pieces).events, &expected);
            prop_assert_eq!(&read(stream.as_bytes().chunks(1)).events, &expected);
        }
    }
}
