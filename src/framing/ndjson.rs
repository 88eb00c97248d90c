//! Newline-delimited JSON, in pieces: each line is an event, nothing of it is held.

use super::{Framed, json::blanks, sse::Piece};

/// Cuts a body into lines. Blank lines are no events; a CR before the LF is white space behind the document.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Framer {
    /// Something but white space was in the line.
    begun: bool,
}

impl Framed for Framer {
    fn read(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let end = memchr::memchr(b'\n', rest);
            let part = &rest[..end.unwrap_or(rest.len())];
            if self.begun || blanks(part) < part.len() {
                self.begun = true;
                piece(Piece::Data(part, at));
            }
            at += part.len() + usize::from(end.is_some());
            if end.is_some() && std::mem::take(&mut self.begun) {
                piece(Piece::End { data: true });
                return at;
            }
        }
        at
    }

    fn end(&mut self, piece: &mut impl FnMut(Piece<'_>)) {
        if std::mem::take(&mut self.begun) {
            piece(Piece::End { data: true });
        }
    }

    fn between_events(&self) -> bool {
        !self.begun
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::framing::feed;

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut events, mut data) = (Vec::new(), Vec::new());
        let mut take = |piece: Piece<'_>| match piece {
            Piece::Data(part, _) => data.extend_from_slice(part),
            Piece::End { data: true } => events.push(String::from_utf8(std::mem::take(&mut data)).unwrap()),
            _ => panic!("{piece:?} in lines"),
        };
        let mut framer = Framer::default();
        feed(&mut framer, pieces, &mut take);
        framer.end(&mut take);
        events
    }

    #[test]
    fn what_is_no_white_space_of_jsons_is_none_of_a_lines() {
        let body = b"\x0c{}\n\x0c\n";
        for width in [1, body.len()] {
            assert_eq!(read(body.chunks(width)), ["\u{c}{}", "\u{c}"]);
        }
    }

    #[test]
    fn a_line_is_an_event_and_the_last_one_needs_no_end() {
        assert_eq!(read([&b"{\"a\":1}\n\n \r\n[2]\r\n3"[..]]), ["{\"a\":1}", "[2]\r", "3"]);
        assert_eq!(read([&b"\n \n"[..]]), [""; 0]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_lines_of_the_whole(
            lines in proptest::collection::vec("[a\"{} \r]{0,6}", 0..12),
            ended: bool,
            cuts in proptest::collection::vec(0_usize..100, 0..8),
        ) {
            let stream = lines.join("\n") + if ended { "\n" } else { "" };
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]);
            // White space before a document may be left out at a cut: it is none of the document's.
            let trimmed = |events: Vec<String>| events.iter().map(|event| event.trim().to_owned()).collect::<Vec<_>>();
            let plain: Vec<_> = lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(&trimmed(read(pieces)), &plain);
            prop_assert_eq!(&trimmed(read(stream.as_bytes().chunks(1))), &plain);
        }
    }
}
