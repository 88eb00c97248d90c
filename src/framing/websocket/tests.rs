use flate2::{Compress, Compression, FlushCompress};
use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// A message and a close, as they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Message(Vec<u8>),
    Close(Option<u16>),
    /// The beginning of a message that did not end.
    Half(Vec<u8>),
}

/// All that was given out, and whether the framing was lost.
fn read<'a>(deflate: Option<Deflate>, reads: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, Option<Lost>) {
    let mut framer = Framer::new(deflate);
    let (mut seen, mut half) = (Vec::new(), Vec::new());
    for bytes in reads {
        framer.read(bytes, &mut |piece| match piece {
            Piece::Data(part) => {
                assert!(!part.is_empty(), "an empty piece");
                half.extend_from_slice(part);
            }
            Piece::End => seen.push(Seen::Message(std::mem::take(&mut half))),
            Piece::Close(code) => seen.push(Seen::Close(code)),
        });
    }
    if !half.is_empty() {
        seen.push(Seen::Half(half));
    }
    (seen, framer.lost())
}

/// The same in one read, and byte by byte.
#[track_caller]
fn assert_read(deflate: Option<Deflate>, bytes: &[u8], seen: &[Seen], lost: Option<Lost>) {
    let expected = (seen.to_vec(), lost);
    assert!(read(deflate, [bytes]) == expected, "{:.200?}", read(deflate, [bytes]));
    assert!(read(deflate, bytes.chunks(1)) == expected, "byte by byte");
}

fn message(text: impl AsRef<[u8]>) -> Seen {
    Seen::Message(text.as_ref().to_vec())
}

/// A frame of this first byte.
fn frame(first: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let bit = if mask.is_some() { MASKED } else { 0 };
    let mut bytes = vec![first];
    match u16::try_from(payload.len()) {
        Ok(len @ 0..126) => bytes.push(bit | len.to_be_bytes()[1]),
        Ok(len) => {
            bytes.push(bit | 0x7e);
            bytes.extend(len.to_be_bytes());
        }
        Err(_) => {
            bytes.push(bit | 0x7f);
            bytes.extend((payload.len() as u64).to_be_bytes());
        }
    }
    bytes.extend(mask.iter().flatten());
    let mask = mask.unwrap_or_default();
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// What a sender compresses with.
struct Squeezer {
    compress: Compress,
    deflate: Deflate,
}

impl Squeezer {
    fn new(deflate: Deflate) -> Self {
        Self { compress: Compress::new(Compression::default(), false), deflate }
    }

    /// The payload of a whole message.
    fn squeeze(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut squeezed = Vec::with_capacity(plain.len() + 1024);
        self.compress.compress_vec(plain, &mut squeezed, FlushCompress::Sync).unwrap();
        assert!(squeezed.len() < squeezed.capacity(), "it fits");
        assert!(squeezed.ends_with(TAIL), "{squeezed:?}");
        squeezed.truncate(squeezed.len() - TAIL.len());
        if self.deflate.no_context_takeover {
            self.compress.reset();
        }
        squeezed
    }
}

const TAKEOVER: Option<Deflate> = Some(Deflate { no_context_takeover: false });
const NO_TAKEOVER: Option<Deflate> = Some(Deflate { no_context_takeover: true });
const MASK: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);

/// Text that does not compress to nothing.
fn letters(len: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"etaoin shrdlu{}:\"\n"[state as usize >> 16 & 15]
    };
    (0..len).map(|_| letter()).collect()
}

#[test]
fn the_examples_of_the_rfc_are_read() {
    // RFC 6455 §5.7.
    assert_read(None, b"\x81\x05Hello", &[message("Hello")], None);
    assert_read(None, b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", &[message("Hello")], None);
    assert_read(None, b"\x01\x03Hel\x80\x02lo", &[message("Hello")], None);
    assert_read(None, b"\x89\x05Hello\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", &[], None);
    // RFC 7692 §7.2.3: one block, with the same window, stored, final, and of two blocks.
    let hello = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00";
    assert_read(TAKEOVER, hello, &[message("Hello")], None);
    assert_read(TAKEOVER, b"\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00", &[message("Hello")], None);
    let both = [&hello[..], b"\xc1\x05\xf2\x00\x11\x00\x00"].concat();
    assert_read(TAKEOVER, &both, &[message("Hello"), message("Hello")], None);
    let alone = [&hello[..], hello].concat();
    assert_read(NO_TAKEOVER, &alone, &[message("Hello"), message("Hello")], None);
    assert_read(TAKEOVER, b"\xc1\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", &[message("Hello")], None);
    let last = b"\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00";
    assert_read(TAKEOVER, last, &[message("Hello")], None);
    assert_read(TAKEOVER, &[&last[..], hello].concat(), &[message("Hello"), message("Hello")], None);
    let two = b"\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00";
    assert_read(TAKEOVER, two, &[message("Hello")], None);
}

#[test]
fn lengths_of_every_size_are_read() {
    for len in [0, 1, 125, 126, 127, 4095, 4096, 4097, 65_535, 65_536, 200_000] {
        let text = letters(len);
        for mask in [None, MASK] {
            let bytes = [frame(0x82, mask, &text), frame(0x81, mask, b"x")].concat();
            assert_read(None, &bytes, &[message(&text), message("x")], None);
        }
    }
    // A length may be written longer than it must.
    assert_read(None, b"\x81\x7e\0\x02hi\x81\xff\0\0\0\0\0\0\0\x02\0\0\0\0hi", &[message("hi"), message("hi")], None);
}

#[test]
fn control_frames_stand_between_the_frames_of_a_message() {
    let bytes = [
        frame(0x01, MASK, b"one "),
        frame(0x89, MASK, b"ping"),
        frame(0x00, MASK, b""),
        frame(0x00, MASK, b"two "),
        frame(0x8a, MASK, &[b'x'; 125]),
        frame(0x80, MASK, b"three"),
        frame(0x89, MASK, b""),
        frame(0x82, MASK, b""),
        frame(0x88, MASK, b"\x03\xe8bye"),
        frame(0x81, MASK, b"never"),
    ]
    .concat();
    assert_read(None, &bytes, &[message("one two three"), message(""), Seen::Close(Some(1000))], None);
    assert_read(None, &frame(0x88, None, b""), &[Seen::Close(None)], None);
    assert_read(None, &frame(0x88, None, b"\x03"), &[Seen::Close(None)], None);
}

#[test]
fn a_close_in_the_middle_of_a_message_is_seen() {
    let bytes = [frame(0x01, None, b"half"), frame(0x88, None, b"\x03\xf3")].concat();
    assert_read(None, &bytes, &[Seen::Close(Some(1011)), Seen::Half(b"half".to_vec())], None);
}

#[test]
fn frames_that_cannot_be_are_lost_and_nothing_more_is_given() {
    let hello = frame(0x81, None, b"hello");
    let begun = frame(0x01, None, b"x");
    let cases: [(&str, Vec<u8>); 14] = [
        ("2^63 bytes", b"\x81\x7f\x80\0\0\0\0\0\0\0".to_vec()),
        ("all bytes there are, masked", b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec()),
        ("RSV2", frame(0xa1, None, b"x")),
        ("RSV3", frame(0x91, None, b"x")),
        ("a data opcode of none", frame(0x83, None, b"x")),
        ("a control opcode of none", frame(0x8b, None, b"x")),
        ("nothing to continue", frame(0x80, None, b"x")),
        ("another message within one", [begun.clone(), frame(0x81, None, b"x")].concat()),
        ("a fragmented ping", frame(0x09, None, b"x")),
        ("a long ping", frame(0x89, None, &[0; 126])),
        ("a compressed ping", frame(0xc9, None, b"x")),
        ("a compressed close", frame(0xc8, None, b"\x03\xe8")),
        ("a compressed continuation", [begun, frame(0xc0, None, b"x")].concat()),
        ("no WebSocket at all", b"HTTP/1.1 400 Bad Request\r\n".to_vec()),
    ];
    for (name, bad) in cases {
        let bytes = [&hello[..], &bad, &hello].concat();
        for deflate in [None, TAKEOVER] {
            let (seen, lost) = read(deflate, [&bytes[..]]);
            assert_eq!((&seen[0], lost), (&message("hello"), Some(Lost::Malformed)), "{name}");
            assert!(!seen[1..].contains(&message("hello")), "{name}");
            assert_eq!(read(deflate, bytes.chunks(1)), (seen, lost), "{name}");
        }
    }
    assert_read(None, &frame(0xc1, None, b"x"), &[], Some(Lost::Malformed));
}

#[test]
fn a_claimed_length_costs_nothing_and_is_followed() {
    let used = allocation_counter::measure(|| {
        let mut framer = Framer::new(None);
        framer.read(b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", &mut |_| ());
        framer.read(&[b'x'; 64], &mut |piece| assert_eq!(piece, Piece::Data(&[b'x'; 64])));
        assert_eq!(framer.lost(), None);
    });
    assert_eq!(used.count_total, 0);
}

#[test]
fn uncompressed_messages_stand_among_compressed_ones() {
    for deflate in [TAKEOVER, NO_TAKEOVER] {
        let mut squeezer = Squeezer::new(deflate.unwrap());
        let text = letters(50_000);
        let squeezed = squeezer.squeeze(&text);
        let (head, tail) = squeezed.split_at(1000);
        let bytes = [
            frame(0x41, MASK, head),
            frame(0x89, MASK, b"not compressed"),
            frame(0x80, MASK, tail),
            frame(0x81, MASK, b"plain"),
            frame(0xc1, MASK, &squeezer.squeeze(&text[..100])),
            frame(0xc1, MASK, &squeezer.squeeze(b"")),
            frame(0xc2, MASK, &squeezer.squeeze(&text)),
        ]
        .concat();
        let seen = [message(&text), message("plain"), message(&text[..100]), message(""), message(&text)];
        assert_read(deflate, &bytes, &seen, None);
    }
}

#[test]
fn what_is_not_compressed_as_it_says_is_corrupt() {
    assert_read(TAKEOVER, &frame(0xc1, None, b"\xff\xff"), &[], Some(Lost::Corrupt));
}

#[test]
fn the_window_is_there_from_the_first_compressed_message_and_of_its_size() {
    assert!(size_of::<Framer>() <= 96, "{} bytes", size_of::<Framer>());
    let text = letters(100_000);
    let plain = frame(0x81, MASK, &text);
    let squeezed = frame(0xc1, MASK, &Squeezer::new(Deflate::default()).squeeze(&text));
    let mut framer = Framer::new(TAKEOVER);
    let mut used = |bytes: &[u8], deflate: Option<Deflate>| {
        framer = Framer::new(deflate);
        let used = allocation_counter::measure(|| bytes.chunks(1000).for_each(|bytes| framer.read(bytes, &mut |_| ())));
        assert_eq!(framer.lost(), None);
        (used.bytes_max, used.bytes_current)
    };
    assert_eq!(used(&plain, TAKEOVER), (0, 0));
    let (most, held) = used(&squeezed, TAKEOVER);
    assert!(most <= 64 << 10 && held > 0, "{most} {held}");
    let (most, held) = used(&squeezed, NO_TAKEOVER);
    assert!(most <= 64 << 10 && held == 0, "{most} {held}");
}

#[test]
fn bombs_are_given_up_once_they_are_large() {
    let bomb = Squeezer::new(Deflate::default()).squeeze(&[0].repeat(24 << 20));
    let mut framer = Framer::new(TAKEOVER);
    let mut given = 0;
    for bytes in frame(0xc1, MASK, &bomb).chunks(1000) {
        framer.read(bytes, &mut |piece| {
            if let Piece::Data(part) = piece {
                given += part.len();
            }
        });
    }
    assert_eq!(framer.lost(), Some(Lost::Overflow), "{given}");
    assert!(given < 20 << 20, "{given}");
}

#[test]
fn extensions_are_read_from_the_response() {
    let both = |client, server| {
        let deflate = |no_context_takeover| Some(Deflate { no_context_takeover });
        Ok((deflate(client), deflate(server)))
    };
    let cases = [
        ("", Ok((None, None))),
        (" , ", Ok((None, None))),
        ("permessage-deflate", both(false, false)),
        ("Permessage-Deflate; Server_No_Context_Takeover", both(false, true)),
        ("permessage-deflate;client_no_context_takeover ; server_max_window_bits=10", both(true, false)),
        ("permessage-deflate; client_max_window_bits=\"15\"; server_no_context_takeover", both(false, true)),
        ("permessage-deflate; client_no_context_takeover; server_no_context_takeover", both(true, true)),
        ("permessage-deflate, permessage-deflate", Err(UnknownExtension)),
        ("permessage-deflate; colour=blue", Err(UnknownExtension)),
        ("permessage-deflate; server_no_context_takeover=1", Err(UnknownExtension)),
        ("x-webkit-deflate-frame", Err(UnknownExtension)),
        ("permessage-deflate, bbf-usp-protocol", Err(UnknownExtension)),
    ];
    for (header, expected) in cases {
        assert_eq!(agreed(header), expected, "{header}");
    }
}

/// A message in random fragments, with a control frame before each.
#[derive(Clone, Debug)]
struct Sent {
    plain: Vec<u8>,
    compressed: bool,
    cuts: Vec<usize>,
    masks: Vec<Option<[u8; 4]>>,
    ping: Option<Vec<u8>>,
}

impl Sent {
    fn frames(&self, squeezer: Option<&mut Squeezer>) -> Vec<u8> {
        let (payload, compressed) = match squeezer {
            Some(squeezer) if self.compressed => (squeezer.squeeze(&self.plain), COMPRESSED),
            _ => (self.plain.clone(), 0),
        };
        let mut cuts: Vec<_> =
            self.cuts.iter().map(|cut| cut % (payload.len() + 1)).chain([0, payload.len()]).collect();
        cuts.sort_unstable();
        let mut bytes = Vec::new();
        for (index, cut) in cuts.windows(2).enumerate() {
            let mask = self.masks[index % self.masks.len()];
            if let Some(ping) = &self.ping {
                bytes.extend(frame(0x89, mask, ping));
            }
            let first = if index == 0 { compressed | TEXT } else { 0 };
            let fin = if index + 2 == cuts.len() { FIN } else { 0 };
            bytes.extend(frame(fin | first, mask, &payload[cut[0]..cut[1]]));
        }
        bytes
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let plain = (vec(prop_oneof![4 => b'a'..b'e', 1 => any::<u8>()], 0..600), 1_usize..40);
    let masks = vec(proptest::option::of(any::<[u8; 4]>()), 1..4);
    let ping = proptest::option::of(vec(any::<u8>(), 0..20));
    (plain, any::<bool>(), vec(any::<usize>(), 0..4), masks, ping).prop_map(
        |((part, times), compressed, cuts, masks, ping)| Sent {
            plain: part.repeat(times),
            compressed,
            cuts,
            masks,
            ping,
        },
    )
}

proptest! {
    /// Masked, fragmented, compressed or not, with pings between, in reads of any size: as it was sent.
    #[test]
    fn messages_come_out_as_they_went_in(
        messages in vec(sent(), 0..6),
        deflate in select(&[None, TAKEOVER, NO_TAKEOVER][..]),
        width in 1_usize..3000,
    ) {
        let mut squeezer = deflate.map(Squeezer::new);
        let bytes: Vec<u8> = messages.iter().flat_map(|sent| sent.frames(squeezer.as_mut())).collect();
        let expected: Vec<_> = messages.iter().map(|sent| message(&sent.plain)).collect();
        prop_assert_eq!(read(deflate, bytes.chunks(width)), (expected, None));
    }

    /// Whatever comes, every split says the same.
    #[test]
    fn random_bytes_are_read_alike_in_every_split(
        bytes in vec(prop_oneof![any::<u8>(), select(&[0_u8, 1, 2, 4, 0x41, 0x80, 0x81, 0x88, 0x89, 0xc1][..])], 0..300),
        deflate in select(&[None, TAKEOVER, NO_TAKEOVER][..]),
        width in 1_usize..50,
    ) {
        let (whole, whole_lost) = read(deflate, [&bytes[..]]);
        let (split, split_lost) = read(deflate, bytes.chunks(width));
        prop_assert_eq!(whole_lost, split_lost);
        let ended = |seen: &[Seen]| seen.iter().filter(|seen| !matches!(seen, Seen::Half(_))).cloned().collect::<Vec<_>>();
        prop_assert_eq!(ended(&whole), ended(&split), "but for how much of a corrupt message was given");
    }
}
