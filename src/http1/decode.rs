//! Where a body ends, as its framing says (RFC 9112 §6.3, §7.1), across any split of the bytes.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Error;

/// What is left of the message under way.
#[derive(Debug)]
pub(super) enum Decoder {
    /// So many bytes.
    Length(u64),
    Chunked(Box<Chunks>),
    /// All that comes until the connection ends.
    UntilClose,
    /// Nothing.
    Done,
}

#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Of the chunk: read so far, then bytes left.
    size: u64,
    /// Bytes of extensions in all.
    extensions: usize,
    /// Lines behind the last chunk.
    trailers: Vec<u8>,
    most_headers: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    #[default]
    Start,
    Size,
    Space,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    /// At the beginning of a line behind the last chunk.
    Line,
    Trailer,
    TrailerLf,
    /// In the empty line.
    LastLf,
    End,
}

/// What one step found in the bytes it was given.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// Bytes taken, framing included.
    pub(super) taken: usize,
    /// Where among them the body's own are; empty for none.
    pub(super) data: std::ops::Range<usize>,
    /// What stood behind the last chunk, with the body's end.
    pub(super) trailers: Option<HeaderMap>,
}

/// Extensions and trailers of one body: nobody needs more.
const MOST: usize = 16 * 1024;

impl Decoder {
    /// A body of so many bytes.
    pub(super) const fn length(bytes: u64) -> Self {
        if bytes == 0 { Self::Done } else { Self::Length(bytes) }
    }

    /// A body in chunks, with at most so many trailers.
    pub(super) fn chunked(most_headers: usize) -> Self {
        Self::Chunked(Box::new(Chunks { most_headers, ..Chunks::default() }))
    }

    /// The body has ended.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The bytes left, where they are known.
    pub(super) const fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Done => Some(0),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// What follows is the end of a body in chunks, whole and without trailers.
    pub(super) fn is_last_line(&self, bytes: &[u8]) -> bool {
        matches!(self, Self::Chunked(chunks) if chunks.at == At::Start) && bytes.starts_with(b"0\r\n\r\n")
    }

    /// Takes what can be taken in one piece: up to the end of a chunk.
    ///
    /// # Errors
    /// If the chunks are malformed.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step, Error> {
        match self {
            Self::Done => Ok(Step::default()),
            Self::UntilClose => Ok(Step { taken: bytes.len(), data: 0..bytes.len(), trailers: None }),
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(Step { taken, data: 0..taken, trailers: None })
            }
            Self::Chunked(chunks) => {
                let mut step = chunks.step(bytes)?;
                if chunks.at == At::End {
                    if !chunks.trailers.is_empty() {
                        step.trailers = Some(trailers(&chunks.trailers, chunks.most_headers)?);
                    }
                    *self = Self::Done;
                }
                Ok(step)
            }
        }
    }
}

impl Chunks {
    fn step(&mut self, bytes: &[u8]) -> Result<Step, Error> {
        let mut step = Step::default();
        while let Some(&byte) = bytes.get(step.taken) {
            if self.at == At::Data {
                let size = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - step.taken);
                step.data = step.taken..step.taken + size;
                step.taken += size;
                self.size -= size as u64;
                if self.size == 0 {
                    self.at = At::DataCr;
                    // The line's end mostly came with it: what is left of the bytes is then nothing.
                    if bytes.get(step.taken..step.taken + 2) == Some(b"\r\n") {
                        step.taken += 2;
                        self.at = At::Start;
                    }
                }
                return Ok(step);
            }
            step.taken += 1;
            self.at = self.next(byte)?;
            if self.at == At::End {
                break;
            }
        }
        Ok(step)
    }

    fn next(&mut self, byte: u8) -> Result<At, Error> {
        let malformed = |what| Err(Error::Malformed(what));
        Ok(match (self.at, byte) {
            (At::Start | At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                if self.at == At::Start {
                    self.size = 0;
                }
                let size = self.size.checked_mul(16).and_then(|size| size.checked_add(digit.into()));
                let Some(size) = size else { return malformed("a chunk's size is out of range") };
                self.size = size;
                At::Size
            }
            (At::Size | At::Space, b' ' | b'\t') => At::Space,
            (At::Size | At::Space, b';') => At::Extension,
            (At::Size | At::Space | At::Extension, b'\r') => At::SizeEnd,
            (At::Extension, b'\n') => return malformed("a chunk's extension has a line feed"),
            (At::Extension, _) => {
                self.extensions += 1;
                if self.extensions >= MOST {
                    return malformed("the chunks' extensions are too long");
                }
                At::Extension
            }
            (At::SizeEnd, b'\n') if self.size == 0 => At::Line,
            (At::SizeEnd, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Start,
            (At::Line, b'\r') => At::LastLf,
            (At::LastLf, b'\n') => {
                if !self.trailers.is_empty() {
                    self.trailers.extend_from_slice(b"\r\n");
                }
                At::End
            }
            // A line feed by itself ends no line here: who took it for one would see the body's end before it comes.
            (At::Line | At::Trailer, _) => {
                self.trailers.push(byte);
                if self.trailers.len() >= MOST {
                    return malformed("the trailers are too long");
                }
                if byte == b'\r' { At::TrailerLf } else { At::Trailer }
            }
            (At::TrailerLf, b'\n') => {
                self.trailers.push(byte);
                At::Line
            }
            (At::Start | At::Size | At::Space, _) => return malformed("a chunk's size is no hexadecimal number"),
            _ => return malformed("a chunk's line does not end as it must"),
        })
    }
}

fn trailers(lines: &[u8], most: usize) -> Result<HeaderMap, Error> {
    let mut parsed = vec![httparse::EMPTY_HEADER; most];
    let bad = Error::Malformed("the trailers are no headers");
    let Ok(httparse::Status::Complete((_, parsed))) = httparse::parse_headers(lines, &mut parsed) else {
        return Err(bad);
    };
    let mut map = HeaderMap::with_capacity(parsed.len());
    for line in parsed {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(line.name.as_bytes()), HeaderValue::from_bytes(line.value))
        else {
            return Err(bad);
        };
        map.append(name, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All data and trailers of a body, given in pieces of these sizes; how many bytes were left over.
    fn decode(mut decoder: Decoder, bytes: &[u8], piece: usize) -> Result<(Vec<u8>, Option<HeaderMap>, usize), Error> {
        let (mut data, mut trailers, mut left) = (Vec::new(), None, 0);
        for piece in bytes.chunks(piece) {
            let mut piece = piece;
            while !piece.is_empty() && !decoder.is_done() {
                let step = decoder.step(piece)?;
                data.extend_from_slice(&piece[step.data.clone()]);
                trailers = step.trailers.or(trailers);
                piece = &piece[step.taken..];
            }
            left += piece.len();
        }
        if decoder.is_done() { Ok((data, trailers, left)) } else { Err(Error::Closed) }
    }

    #[test]
    fn chunks_are_the_same_in_pieces_of_every_size() {
        let wire =
            b"5\r\nhello\r\n1a ; name=\"a;b\"\r\nabcdefghijklmnopqrstuvwxyz\r\n000\r\nX-Sum: 7\r\nx-b: c\r\n\r\nGET /";
        for piece in 1..=wire.len() {
            let (data, trailers, left) = decode(Decoder::chunked(10), wire, piece).unwrap();
            assert_eq!(data, b"helloabcdefghijklmnopqrstuvwxyz", "pieces of {piece}");
            let trailers = trailers.unwrap();
            assert_eq!((trailers.len(), &trailers["x-sum"], left), (2, &HeaderValue::from_static("7"), 5));
            let (data, trailers, left) = decode(Decoder::chunked(10), b"0\r\n\r\nrest", piece).unwrap();
            assert!(data.is_empty() && trailers.is_none() && left == 4);
        }
    }

    #[test]
    fn malformed_chunks_are_never_an_end() {
        let long = format!("1;{}\r\n", "x".repeat(MOST));
        let trailer = format!("0\r\nx: {}\r\n\r\n", "x".repeat(MOST));
        let many = format!("0\r\n{}\r\n", "x: y\r\n".repeat(11));
        for wire in [
            "\r\n",
            ";\r\n",
            "g\r\n",
            "-1\r\n",
            " 1\r\n",
            "1\n",
            "1\r\r",
            "1 2\r\n",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\r\r",
            "10000000000000000\r\n",
            "1;a\nb\r\n",
            "0\r\nx y\r\n\r\n",
            "0\r\n\rx",
            "0\r\n: a\r\n\r\n",
            "0\r\nx: a\rb\r\n\r\n",
            &long,
            &trailer,
            &many,
        ] {
            for piece in [1, 2, 7, wire.len()] {
                let error = decode(Decoder::chunked(10), wire.as_bytes(), piece).unwrap_err();
                assert!(matches!(error, Error::Malformed(_)), "{wire:?}: {error:?}");
            }
        }
        for cut in [
            "",
            "5",
            "0\r\nx: a\n\r\n",
            "5\r\nhel",
            "5\r\nhello",
            "5\r\nhello\r\n",
            "0\r\n",
            "0\r\n\r",
            "0\r\nx: a\r\n",
        ] {
            assert!(matches!(decode(Decoder::chunked(10), cut.as_bytes(), 3), Err(Error::Closed)), "{cut:?}");
        }
    }

    #[test]
    fn a_length_is_kept() {
        for piece in 1..8 {
            let (data, _, left) = decode(Decoder::length(5), b"hello!!", piece).unwrap();
            assert_eq!((data, left), (b"hello".to_vec(), 2));
        }
        assert!(Decoder::length(0).is_done());
    }

    proptest::proptest! {
        #[test]
        fn what_was_chunked_comes_out_whole(
            chunks in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 1..50), 0..20),
            piece in 1_usize..64,
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let (data, trailers, left) = decode(Decoder::chunked(10), &wire, piece).unwrap();
            proptest::prop_assert_eq!(data, chunks.concat());
            proptest::prop_assert!(trailers.is_none() && left == 0);
        }
    }
}
