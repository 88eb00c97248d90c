//! Looks for small fields in a `multipart/form-data` body (RFC 7578), in pieces. Files of any size are passed over by a
//! search for the next delimiter; nothing is held but a line of a part's head and the value of a wanted field.

use memchr::memchr;

/// The longest value that is given out, in bytes.
pub const VALUE_LIMIT: usize = 256;

/// The longest line of a part's head that is read; what a longer one says is not known.
const LINE_LIMIT: usize = 1024;

/// The longest head of a part. No client writes a tenth of it.
const HEAD_LIMIT: usize = 16 * 1024;

/// The delimiter begins with so many bytes of a line end.
const LINE_END: u8 = 2;

/// How far a body was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// More parts may come.
    Open,
    /// Its last delimiter was seen.
    Closed,
    /// It is not framed as its content type says.
    Malformed,
}

/// Walks one body. Allocates for the delimiter, and for wanted values and lines of heads, each bounded.
#[derive(Debug)]
pub struct Scanner {
    /// The line end and the dashes that come before each boundary, and the boundary.
    delimiter: Box<[u8]>,
    wanted: &'static [&'static str],
    /// A line of a head, or the value of a wanted field.
    held: Vec<u8>,
    state: State,
    /// Bytes of the delimiter that were seen last; behind it: the byte that follows.
    matched: u8,
    /// How many of these were no content: the line end of the head, or none at all.
    lent: u8,
    /// Which of the wanted fields this part is.
    field: Option<u8>,
    is_file: bool,
    /// What is held has outgrown its limit.
    long: bool,
    /// Bytes of the part's head so far.
    head: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Within a part's content, or before the first delimiter.
    Content,
    /// Behind a delimiter: a line end, or two dashes.
    Behind,
    Head,
    Closed,
    Malformed,
}

impl Scanner {
    /// A walk of a body of this content type, for these fields. Absent if it is no `multipart/form-data` with a boundary
    /// as RFC 2046 §5.1.1 has it.
    pub fn new(content_type: &[u8], wanted: &'static [&'static str]) -> Option<Self> {
        let (essence, parameters) = content_type.split_at(memchr(b';', content_type)?);
        if !essence.trim_ascii().eq_ignore_ascii_case(b"multipart/form-data") {
            return None;
        }
        let boundary = parameter(parameters, b"boundary")?;
        let fits = (1..=70).contains(&boundary.len()) && boundary.iter().all(|byte| matches!(byte, b' '..=b'~'));
        fits.then(|| Self {
            delimiter: [b"\r\n--", boundary.as_slice()].concat().into(),
            wanted,
            held: Vec::new(),
            state: State::Content,
            // The first delimiter needs no line before it.
            matched: LINE_END,
            lent: LINE_END,
            field: None,
            is_file: false,
            long: false,
            head: 0,
        })
    }

    /// How far the body was read.
    pub const fn progress(&self) -> Progress {
        match self.state {
            State::Closed => Progress::Closed,
            State::Malformed => Progress::Malformed,
            _ => Progress::Open,
        }
    }

    /// Reads the next bytes of the body; `found` is called for each wanted field, by its place among the wanted ones, with
    /// its whole value. Values beyond [`VALUE_LIMIT`] are left out.
    pub fn read(&mut self, bytes: &[u8], found: &mut impl FnMut(usize, &[u8])) {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                State::Content => self.content(bytes, at, found),
                State::Behind => self.behind(bytes[at], at),
                State::Head => self.head(bytes, at),
                State::Closed | State::Malformed => return,
            };
        }
    }

    /// Up to the next delimiter, or as far as the bytes go.
    fn content(&mut self, bytes: &[u8], at: usize, found: &mut impl FnMut(usize, &[u8])) -> usize {
        if self.matched == 0 {
            let line_end = memchr(b'\r', &bytes[at..]).map_or(bytes.len(), |len| at + len);
            if self.field.is_some() {
                hold(&mut self.held, &mut self.long, &bytes[at..line_end], VALUE_LIMIT);
            }
            self.matched = u8::from(line_end < bytes.len());
            return line_end + usize::from(self.matched);
        }
        let matched = usize::from(self.matched);
        if bytes[at] == self.delimiter[matched] {
            self.matched += 1;
            if matched + 1 == self.delimiter.len() {
                self.end_part(found);
            }
            return at + 1;
        }
        // It was content after all. A delimiter has its only carriage return in front, so none can begin within it.
        if self.field.is_some() {
            hold(&mut self.held, &mut self.long, &self.delimiter[usize::from(self.lent)..matched], VALUE_LIMIT);
        }
        (self.matched, self.lent) = (0, 0);
        at
    }

    fn end_part(&mut self, found: &mut impl FnMut(usize, &[u8])) {
        if let Some(field) = self.field.take()
            && !self.long
        {
            found(usize::from(field), &self.held);
        }
        self.held = Vec::new();
        self.long = false;
        self.matched = 0;
        self.state = State::Behind;
    }

    /// Behind a delimiter: two dashes after the last one, else spaces and the line's end.
    fn behind(&mut self, byte: u8, at: usize) -> usize {
        match (self.matched, byte) {
            (0, b'-' | b'\r') => self.matched = byte,
            (0, b' ' | b'\t') => {}
            (b'-', b'-') => self.state = State::Closed,
            (b'\r', b'\n') => {
                (self.matched, self.head, self.is_file) = (0, 0, false);
                self.state = State::Head;
            }
            _ => self.state = State::Malformed,
        }
        at + 1
    }

    /// Up to the end of a line of the part's head; an empty one ends it.
    fn head(&mut self, bytes: &[u8], at: usize) -> usize {
        let end = memchr(b'\n', &bytes[at..]).map(|len| at + len);
        let next = end.map_or(bytes.len(), |end| end + 1);
        self.head = self.head.saturating_add(u16::try_from(next - at).unwrap_or(u16::MAX));
        if usize::from(self.head) > HEAD_LIMIT {
            self.state = State::Malformed;
            return next;
        }
        hold(&mut self.held, &mut self.long, &bytes[at..end.unwrap_or(next)], LINE_LIMIT);
        if end.is_none() {
            return next;
        }
        let (line, long) = (std::mem::take(&mut self.held), std::mem::take(&mut self.long));
        match line.strip_suffix(b"\r") {
            _ if long => {}
            None => self.state = State::Malformed,
            Some([]) => {
                self.state = State::Content;
                // A part may have no content: then its delimiter's line end is the one that ended its head.
                (self.matched, self.lent) = (LINE_END, LINE_END);
                self.field = self.field.filter(|_| !self.is_file);
            }
            Some(line) => self.disposition(line),
        }
        next
    }

    /// Which field the part is, if this line of its head says so.
    fn disposition(&mut self, line: &[u8]) {
        let Some(colon) = memchr(b':', line) else { return };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if !name.trim_ascii().eq_ignore_ascii_case(b"content-disposition") {
            return;
        }
        let parameters = memchr(b';', value).map_or(&[][..], |at| &value[at..]);
        self.is_file = ["filename", "filename*"].iter().any(|name| parameter(parameters, name.as_bytes()).is_some());
        let name = parameter(parameters, b"name").unwrap_or_default();
        let field = self.wanted.iter().position(|wanted| wanted.as_bytes() == name);
        self.field = field.and_then(|field| u8::try_from(field).ok());
    }
}

/// Holds more bytes, or notes that they are too many.
fn hold(held: &mut Vec<u8>, long: &mut bool, bytes: &[u8], limit: usize) {
    if held.len() + bytes.len() > limit {
        *long = true;
    } else {
        held.extend_from_slice(bytes);
    }
}

/// The value of a parameter among `;name=value;name="value"`, without its quotes and escapes.
fn parameter(mut rest: &[u8], wanted: &[u8]) -> Option<Vec<u8>> {
    loop {
        rest = rest.trim_ascii_start().strip_prefix(b";")?;
        let end = rest.iter().position(|byte| matches!(byte, b'=' | b';')).unwrap_or(rest.len());
        let name = rest[..end].trim_ascii();
        rest = &rest[end..];
        let Some(value) = rest.strip_prefix(b"=") else { continue };
        let (value, behind) = parameter_value(value.trim_ascii_start())?;
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
}

/// A token or a quoted string, and what stands behind it.
fn parameter_value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = memchr(b';', text).unwrap_or(text.len());
        return Some((text[..end].trim_ascii_end().to_vec(), &text[end..]));
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return Some((value, &quoted[at + 1..])),
            b'\\' => value.push(*bytes.next()?.1),
            _ => value.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WANTED: &[&str] = &["model", "stream"];
    const TYPE: &str = "multipart/form-data; boundary=xyz";

    /// What is found, the same by every width, and how far it was read.
    #[track_caller]
    fn scan(content_type: &str, body: &[u8]) -> (Vec<(usize, String)>, Progress) {
        let mut all = None;
        for width in [1, 2, 3, 7, 64, body.len().max(1)] {
            let mut scanner = Scanner::new(content_type.as_bytes(), WANTED).expect("a boundary");
            let mut found = Vec::new();
            for piece in body.chunks(width) {
                scanner
                    .read(piece, &mut |field, value| found.push((field, String::from_utf8(value.to_vec()).unwrap())));
                assert!(scanner.held.len() <= LINE_LIMIT);
            }
            let this = (found, scanner.progress());
            assert_eq!(*all.get_or_insert_with(|| this.clone()), this, "by {width}");
        }
        all.unwrap()
    }

    fn part(disposition: &str, value: &str) -> String {
        format!("--xyz\r\nContent-Disposition: {disposition}\r\n\r\n{value}\r\n")
    }

    fn fields(expected: &[(usize, &str)]) -> Vec<(usize, String)> {
        expected.iter().map(|(field, value)| (*field, (*value).to_owned())).collect()
    }

    #[test]
    fn fields_are_found_between_files_of_any_content() {
        let file = format!("\r\n--xy\r\n\r--xyz\r\n\r\n--\r{}\r", "\r\n--xyy".repeat(2000));
        let body = [
            part("form-data; name=\"file\"; filename=\"model\"", &file),
            part("form-data; name=\"model\"", "whisper-1"),
            part("form-data; name=other", "model"),
            "--xyz  \t\r\ncontent-type: text/plain\r\ncontent-DISPOSITION : form-data;name=stream\r\n\r\ntrue\r\n"
                .to_owned(),
            "--xyz--\r\nwhat follows".to_owned(),
        ];
        let expected = (fields(&[(0, "whisper-1"), (1, "true")]), Progress::Closed);
        assert_eq!(scan(TYPE, body.concat().as_bytes()), expected);
        let preamble = format!("for old mailers\r\n{}", body.concat());
        assert_eq!(scan(TYPE, preamble.as_bytes()), expected);
    }

    #[test]
    fn names_may_be_quoted_and_escaped_and_a_file_is_no_field() {
        for (disposition, expected) in [
            ("form-data; name=\"mo\\del\"", vec![(0, "m")]),
            ("form-data; x=\"; name=stream\"; NAME=model", vec![(0, "m")]),
            ("form-data; name=\"model\"; filename=\"\"", vec![]),
            ("form-data; filename*=utf-8''x; name=model", vec![]),
            ("form-data; name=\"model", vec![]),
            ("form-data; name", vec![]),
            ("form-data", vec![]),
        ] {
            let body = part(disposition, "m") + "--xyz--";
            assert_eq!(scan(TYPE, body.as_bytes()), (fields(&expected), Progress::Closed), "{disposition}");
        }
    }

    #[test]
    fn values_are_bounded_and_may_be_empty() {
        let name = "form-data; name=model";
        let (most, more) = ("m".repeat(VALUE_LIMIT), "m".repeat(VALUE_LIMIT + 1));
        let body =
            [part(name, &most), part(name, &more), part(name, ""), part(name, "a\r\n--xy"), "--xyz--".to_owned()];
        let expected = fields(&[(0, &most), (0, ""), (0, "a\r\n--xy")]);
        assert_eq!(scan(TYPE, body.concat().as_bytes()), (expected, Progress::Closed));
        // A part without even the line end behind its head.
        let bare = "--xyz\r\nContent-Disposition: form-data; name=model\r\n\r\n--xyz--";
        assert_eq!(scan(TYPE, bare.as_bytes()), (fields(&[(0, "")]), Progress::Closed));
    }

    #[test]
    fn what_is_malformed_says_nothing() {
        let head = format!("--xyz\r\n{}", "x: y\r\n".repeat(HEAD_LIMIT / 6 + 1));
        let long = format!("--xyz\r\n{}", "x".repeat(HEAD_LIMIT + 1));
        for body in [
            "--xyzz\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--xyz--",
            "--xyz\nContent-Disposition: form-data; name=model\n\nm\n--xyz--",
            "--xyz\r\nContent-Disposition: form-data; name=model\n\r\nm\r\n--xyz--",
            "--xyz-\r\n",
            &head,
            &long,
        ] {
            assert_eq!(scan(TYPE, body.as_bytes()), (vec![], Progress::Malformed), "{body}");
        }
        for body in ["", "--xyz", "--xyz\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--xy", "no parts"] {
            assert_eq!(scan(TYPE, body.as_bytes()), (vec![], Progress::Open), "{body}");
        }
        // A line too long to be read is no fault: what it says is not known.
        let line = format!(
            "--xyz\r\nx: {}\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--xyz--",
            "x".repeat(LINE_LIMIT)
        );
        assert_eq!(scan(TYPE, line.as_bytes()), (fields(&[(0, "m")]), Progress::Closed));
    }

    #[test]
    fn a_boundary_is_found_quoted_or_not() {
        for content_type in [
            "multipart/form-data; boundary=xyz",
            "Multipart/Form-Data;charset=utf-8 ; BOUNDARY=\"xyz\"",
            "multipart/form-data; boundary=\"x\\yz\"; charset=\"a;boundary=b\"",
        ] {
            let body = part("form-data; name=model", "m") + "--xyz--";
            assert_eq!(scan(content_type, body.as_bytes()).0, fields(&[(0, "m")]), "{content_type}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        for content_type in [
            "multipart/form-data",
            "multipart/form-data; boundary",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"xyz",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=a\rb",
            "multipart/mixed; boundary=xyz",
            "application/json; boundary=xyz",
            &long,
        ] {
            assert!(Scanner::new(content_type.as_bytes(), WANTED).is_none(), "{content_type}");
        }
    }

    #[test]
    fn files_are_passed_over_without_holding_them() {
        let mut scanner = Scanner::new(TYPE.as_bytes(), WANTED).unwrap();
        let mut found = Vec::new();
        let mut read = |bytes: &[u8], scanner: &mut Scanner| {
            scanner.read(bytes, &mut |field, value: &[u8]| found.push((field, value.to_vec())));
        };
        read(part("form-data; name=file; filename=f", "").trim_end().as_bytes(), &mut scanner);
        read(b"\r\n\r\n", &mut scanner);
        let piece = vec![b'\r'; 64 * 1024];
        for _ in 0..64 {
            read(&piece, &mut scanner);
            assert_eq!(scanner.held.capacity(), 0);
        }
        read(b"\r\n", &mut scanner);
        read(part("form-data; name=model", "m").as_bytes(), &mut scanner);
        read(b"--xyz", &mut scanner);
        assert_eq!(found, [(0, b"m".to_vec())]);
    }

    proptest! {
        /// Whatever the content of the parts: fields come out as they went in, by any split.
        #[test]
        fn fields_come_out_as_they_went_in(
            values in proptest::collection::vec("[\r\n\\-xyza]{0,20}", 1..5),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            prop_assume!(values.iter().all(|value| !format!("\r\n{value}\r\n--").contains("\r\n--xyz")));
            let mut body: String = values.iter().map(|value| part("form-data; name=model", value)).collect();
            body.push_str("--xyz--\r\n");
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
            places.extend([0, body.len()]);
            places.sort_unstable();
            let mut scanner = Scanner::new(TYPE.as_bytes(), WANTED).unwrap();
            let mut found = Vec::new();
            for place in places.windows(2) {
                scanner.read(&body.as_bytes()[place[0]..place[1]], &mut |_, value| found.push(value.to_vec()));
            }
            prop_assert_eq!(found, values.iter().map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>());
            prop_assert_eq!(scanner.progress(), Progress::Closed);
        }
    }
}
