//! The AWS event stream, in pieces: binary messages with a length, headers and a payload, both checked by a CRC-32.
//!
//! A message is `u32 length | u32 length of the headers | u32 CRC of these | headers | payload | u32 CRC of all before`.
//! Of a message the beginning of its headers is held, nothing of its payload.

use flate2::Crc;

use super::{Framed, sse::Piece};

/// The longest message that is followed, as the protocol's own limit.
const MESSAGE_LIMIT: u32 = 24 << 20;

/// The longest headers, as the protocol's own limit.
const HEADERS_LIMIT: u32 = 128 << 10;

/// How many bytes of a message's headers are held: its type stands in the first hundred.
const HELD: usize = 1024;

const PRELUDE: u32 = 12;
const TRAILER: u32 = 4;

/// Cuts a body into messages.
#[derive(Debug, Default)]
pub struct Framer {
    /// Bytes of the present message that were read.
    seen: u32,
    /// Its length, known behind the prelude.
    len: u32,
    headers: u32,
    crc: Crc,
    /// The prelude or the trailer, as far as it was read.
    fixed: [u8; PRELUDE as usize],
    held: Vec<u8>,
    lost: bool,
}

impl Framed for Framer {
    fn read(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.lost {
            let rest = &bytes[at..];
            let headers_end = PRELUDE + self.headers;
            let payload_end = self.len.saturating_sub(TRAILER);
            if self.seen < PRELUDE {
                at += self.fixed(rest, 0, PRELUDE);
                if self.seen == PRELUDE {
                    self.begin();
                    if self.headers == 0 {
                        self.end_headers(piece);
                    }
                }
            } else if self.seen < headers_end {
                let part = self.part(rest, headers_end);
                let room = HELD.saturating_sub(self.held.len());
                self.held.extend_from_slice(&part[..part.len().min(room)]);
                at += part.len();
                if self.seen == headers_end {
                    self.end_headers(piece);
                }
            } else if self.seen < payload_end {
                let part = self.part(rest, payload_end);
                piece(Piece::Data(part, at));
                at += part.len();
            } else {
                at += self.fixed(rest, payload_end, self.len);
                if self.seen == self.len {
                    self.lost = self.number(0) != self.crc.sum();
                    if !self.lost {
                        *self = Self { held: std::mem::take(&mut self.held), ..Self::default() };
                        piece(Piece::End { data: true });
                        return at;
                    }
                }
            }
        }
        bytes.len()
    }

    /// Half a message can't be checked, so it is no event.
    fn end(&mut self, piece: &mut impl FnMut(Piece<'_>)) {
        if self.seen > 0 && !self.lost {
            piece(Piece::End { data: false });
        }
        self.seen = 0;
    }

    /// Never: each message's check must be read.
    fn between_events(&self) -> bool {
        false
    }
}

impl Framer {
    /// Whether a length or a check was wrong: what follows can't be told apart.
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// The prelude is there: how long the message is, and whether that is true.
    fn begin(&mut self) {
        (self.len, self.headers) = (self.number(0), self.number(4));
        self.crc.update(&self.fixed[..8]);
        let fits =
            self.headers <= HEADERS_LIMIT && (PRELUDE + self.headers + TRAILER..=MESSAGE_LIMIT).contains(&self.len);
        self.lost = !fits || self.number(8) != self.crc.sum();
        self.crc.update(&self.fixed[8..]);
        self.held.clear();
    }

    /// Holds the bytes of the part of fixed length between these places of the message; how many there were.
    fn fixed(&mut self, bytes: &[u8], begin: u32, end: u32) -> usize {
        let len = bytes.len().min((end - self.seen) as usize);
        for (slot, byte) in self.fixed[(self.seen - begin) as usize..].iter_mut().zip(&bytes[..len]) {
            *slot = *byte;
        }
        #[expect(clippy::cast_possible_truncation, reason = "no more than what is left")]
        let read = len as u32;
        self.seen += read;
        len
    }

    /// The number at this place of what is held.
    fn number(&self, at: usize) -> u32 {
        let bytes = self.fixed[at..].first_chunk::<4>();
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// The bytes up to this place of the message.
    fn part<'a>(&mut self, bytes: &'a [u8], end: u32) -> &'a [u8] {
        let left = end - self.seen;
        let part = &bytes[..bytes.len().min(left as usize)];
        self.crc.update(part);
        #[expect(clippy::cast_possible_truncation, reason = "no more than what is left")]
        let len = part.len() as u32;
        self.seen += len;
        part
    }

    fn end_headers(&self, piece: &mut impl FnMut(Piece<'_>)) {
        if let Some(name) = exception(&self.held) {
            piece(Piece::Exception(name));
        }
    }
}

/// What the headers call the exception that the message is; absent of any other.
fn exception(mut headers: &[u8]) -> Option<&[u8]> {
    let (mut is_one, mut name) = (false, None);
    while let Some((key, value, rest)) = header(headers) {
        match key {
            b":message-type" => is_one = value != b"event",
            b":exception-type" | b":error-code" => name = Some(value),
            _ => {}
        }
        headers = rest;
    }
    is_one.then_some(name.unwrap_or_default())
}

/// The first header: its key, its value and what is behind.
fn header(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (key, rest) = rest.split_at_checked(usize::from(*len))?;
    let (kind, rest) = rest.split_first()?;
    let (len, rest) = match kind {
        0 | 1 => (0, rest),
        2 => (1, rest),
        3 => (2, rest),
        4 => (4, rest),
        5 | 8 => (8, rest),
        9 => (16, rest),
        6 | 7 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(len)?;
    Some((key, value, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::framing::feed;

    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc.sum()
    }

    fn message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        for (key, value) in headers {
            block.push(u8::try_from(key.len()).unwrap());
            block.extend(key.as_bytes());
            block.push(7);
            block.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
            block.extend(value.as_bytes());
        }
        let mut message = u32::try_from(16 + block.len() + payload.len()).unwrap().to_be_bytes().to_vec();
        message.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
        message.extend(crc(&message).to_be_bytes());
        message.extend(block);
        message.extend(payload);
        message.extend(crc(&message).to_be_bytes());
        message
    }

    type Event = (Vec<u8>, Option<Vec<u8>>);

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event>, bool) {
        let (mut events, mut event) = (Vec::new(), Event::default());
        let mut take = |piece: Piece<'_>| match piece {
            Piece::Data(part, _) => event.0.extend_from_slice(part),
            Piece::Exception(name) => event.1 = Some(name.to_vec()),
            Piece::End { data: true } => events.push(std::mem::take(&mut event)),
            _ => panic!("{piece:?} in messages"),
        };
        let mut framer = Framer::default();
        feed(&mut framer, pieces, &mut take);
        let lost = framer.is_lost();
        framer.end(&mut take);
        (events, lost)
    }

    #[test]
    fn the_check_is_the_common_one() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn an_exception_is_known_by_its_headers() {
        let kinds = [
            (vec![(":event-type", "chunk"), (":message-type", "event")], None),
            (
                vec![(":exception-type", "throttlingException"), (":message-type", "exception")],
                Some("throttlingException"),
            ),
            (vec![(":message-type", "error"), (":error-code", "500")], Some("500")),
            (vec![(":message-type", "exception")], Some("")),
            (vec![], None),
        ];
        for (headers, name) in kinds {
            let stream = message(&headers, b"{}");
            let event = (b"{}".to_vec(), name.map(|name| name.as_bytes().to_vec()));
            assert_eq!(read([&stream[..]]), (vec![event], false));
        }
    }

    #[test]
    fn a_wrong_bit_anywhere_is_seen() {
        let whole = message(&[(":message-type", "event")], b"{\"a\":1}");
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 1;
            broken.extend(&whole);
            let (events, lost) = read([&broken[..]]);
            assert!(lost, "byte {at}");
            assert!(events.is_empty(), "byte {at}");
        }
    }

    #[test]
    fn a_length_that_can_not_be_is_lost_and_nothing_is_held() {
        for (len, headers) in [(u32::MAX, 0_u32), (100, 1 << 20), (15, 0), (20, 5)] {
            let mut prelude = len.to_be_bytes().to_vec();
            prelude.extend(headers.to_be_bytes());
            prelude.extend(crc(&prelude).to_be_bytes());
            assert_eq!(read([&prelude[..]]), (vec![], true));
        }
        let mut framer = Framer::default();
        framer.read(&message(&[("x", &"y".repeat(60_000))], &vec![0; 1 << 20]), &mut |_| {});
        assert!(framer.held.capacity() <= 2 * HELD);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_messages_that_were_put_in(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..5),
            failed in 0_usize..6,
            cuts in proptest::collection::vec(0_usize..400, 0..8),
        ) {
            let exception = [(":message-type", "exception"), (":exception-type", "x")];
            let headers = |index| if index == failed { &exception[..] } else { &[(":message-type", "event")] };
            let stream: Vec<u8> =
                payloads.iter().enumerate().flat_map(|(index, payload)| message(headers(index), payload)).collect();
            let plain: Vec<Event> = payloads
                .iter()
                .enumerate()
                .map(|(index, payload)| (payload.clone(), (index == failed).then(|| b"x".to_vec())))
                .collect();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            prop_assert_eq!(&read(pieces), &(plain.clone(), false));
            prop_assert_eq!(&read(stream.chunks(1)), &(plain, false));
        }
    }
}
