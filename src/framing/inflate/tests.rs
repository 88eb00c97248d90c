use std::io::Write;

use brotli::CompressorWriter;
use flate2::{
    Compression, GzBuilder,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

use super::*;

const TEXT: &[u8] = b"data: {\"a\":1}\n\ndata: {\"a\":2}\n\ndata: [DONE]\n\n";

/// Text that does not compress to nothing, longer than a piece and than deflate's window.
fn long() -> Vec<u8> {
    let mut state = 7_u32;
    let mut letters = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"etaoin shrdlu{}:\"\n"[state as usize >> 16 & 15]
    };
    (0..100_000).map(|_| letters()).collect()
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Gzip,
    Zlib,
    Bare,
    Brotli,
    Zstd,
}

const KINDS: [Kind; 5] = [Kind::Gzip, Kind::Zlib, Kind::Bare, Kind::Brotli, Kind::Zstd];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zlib | Self::Bare => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// The compressed parts, flushed after each, and the end.
fn squeeze(kind: Kind, parts: &[&[u8]]) -> Vec<Vec<u8>> {
    fn write<W: Write>(mut encoder: W, parts: &[&[u8]], taken: impl Fn(&mut W) -> Vec<u8>) -> (W, Vec<Vec<u8>>) {
        let mut squeezed = Vec::new();
        for part in parts {
            encoder.write_all(part).unwrap();
            encoder.flush().unwrap();
            squeezed.push(taken(&mut encoder));
        }
        (encoder, squeezed)
    }
    let level = Compression::default();
    let (mut squeezed, end) = match kind {
        Kind::Gzip => {
            let (encoder, squeezed) =
                write(GzEncoder::new(Vec::new(), level), parts, |encoder| std::mem::take(encoder.get_mut()));
            (squeezed, encoder.finish().unwrap())
        }
        Kind::Zlib => {
            let (encoder, squeezed) =
                write(ZlibEncoder::new(Vec::new(), level), parts, |encoder| std::mem::take(encoder.get_mut()));
            (squeezed, encoder.finish().unwrap())
        }
        Kind::Bare => {
            let (encoder, squeezed) =
                write(DeflateEncoder::new(Vec::new(), level), parts, |encoder| std::mem::take(encoder.get_mut()));
            (squeezed, encoder.finish().unwrap())
        }
        Kind::Brotli => {
            let (encoder, squeezed) = write(CompressorWriter::new(Vec::new(), 4096, 5, 22), parts, |encoder| {
                std::mem::take(encoder.get_mut())
            });
            (squeezed, encoder.into_inner())
        }
        Kind::Zstd => {
            let mut encoder = zstd_safe::CCtx::create();
            let step = |encoder: &mut zstd_safe::CCtx<'_>, part: &[u8], how| {
                let mut squeezed = Vec::with_capacity(part.len() + 1024);
                encoder
                    .compress_stream2(&mut OutBuffer::around(&mut squeezed), &mut InBuffer::around(part), how)
                    .unwrap();
                squeezed
            };
            let flush = zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_flush;
            let squeezed = parts.iter().map(|part| step(&mut encoder, part, flush)).collect();
            (squeezed, step(&mut encoder, &[], zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_end))
        }
    };
    squeezed.push(end);
    squeezed
}

/// All that was given out, and how the reading ended.
fn read<'a>(coding: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Result<(), Fault>) {
    let mut inflater = Inflater::of(coding).unwrap();
    let mut plain = Vec::new();
    for piece in pieces {
        let read = inflater.read(piece, &mut |piece| {
            assert!(!piece.is_empty() && piece.len() <= PIECE);
            plain.extend_from_slice(piece);
        });
        if read.is_err() {
            return (plain, read);
        }
    }
    (plain, Ok(()))
}

#[test]
fn codings_are_known_by_name() {
    for name in ["gzip", "GZip", "x-gzip", "deflate", "br", "zstd", "ZSTD"] {
        assert!(Inflater::of(name).is_some(), "{name}");
    }
    for name in ["compress", "dcb", "gzip, br", "", "identity"] {
        assert!(Inflater::of(name).is_none(), "{name}");
    }
}

#[test]
fn it_costs_nothing_before_the_first_byte_and_deflate_fits_into_its_bound() {
    assert!(size_of::<Inflater>() <= 64, "{} bytes", size_of::<Inflater>());
    assert!(size_of::<Gzip>() <= 64, "{} bytes", size_of::<Gzip>());
    for kind in [Kind::Gzip, Kind::Zlib, Kind::Bare] {
        let squeezed = squeeze(kind, &[&long()]).concat();
        let used = allocation_counter::measure(|| {
            let mut inflater = Inflater::of(kind.name()).unwrap();
            for piece in squeezed.chunks(1000) {
                inflater.read(piece, &mut |_| ()).unwrap();
            }
        });
        assert!(used.bytes_max <= 64 << 10 && used.bytes_current == 0, "{kind:?}: {used:?}");
    }
}

#[test]
fn a_brotli_window_grows_with_the_stream_to_its_own_size() {
    let event = |index: usize| [b"data: ", &long()[index..index + 60], b"\n\n"].concat();
    let events: Vec<_> = (0..2000).map(event).collect();
    let megabytes = long().repeat(160);
    let events: Vec<_> = events.iter().map(Vec::as_slice).collect();
    for (parts, most) in [(&[TEXT][..], 32 << 10), (&events[..], 512 << 10), (&[&megabytes[..]][..], 5 << 20)] {
        let squeezed = squeeze(Kind::Brotli, parts).concat();
        let used = allocation_counter::measure(|| {
            let mut inflater = Inflater::of("br").unwrap();
            for piece in squeezed.chunks(1000) {
                inflater.read(piece, &mut |_| ()).unwrap();
            }
        });
        assert!(used.bytes_max <= most && used.bytes_current == 0, "{} parts: {used:?}", parts.len());
        assert!(read("br", squeezed.chunks(777)) == (parts.concat(), Ok(())), "{} parts", parts.len());
    }
}

#[test]
fn every_split_of_a_body_gives_the_same() {
    for kind in KINDS {
        let squeezed = squeeze(kind, &[TEXT]).concat();
        for first in 0..=squeezed.len() {
            for second in first..=squeezed.len() {
                let pieces = [&squeezed[..first], &squeezed[first..second], &squeezed[second..]];
                assert_eq!(read(kind.name(), pieces), (TEXT.to_vec(), Ok(())), "{kind:?} {first} {second}");
            }
        }
        assert_eq!(read(kind.name(), squeezed.chunks(1)), (TEXT.to_vec(), Ok(())), "{kind:?}");
    }
}

#[test]
fn what_was_flushed_is_given_out_with_its_read() {
    let parts = [b"data: 1\n\n".as_slice(), b": ping\n\n", &long(), b"data: 2\n\n"];
    for kind in KINDS {
        let mut inflater = Inflater::of(kind.name()).unwrap();
        let squeezed = squeeze(kind, &parts);
        for (piece, part) in squeezed.iter().zip(parts) {
            let mut plain = Vec::new();
            inflater.read(piece, &mut |piece| plain.extend_from_slice(piece)).unwrap();
            assert!(plain == part, "{kind:?}: {} of {} bytes", plain.len(), part.len());
        }
    }
}

/// A header with all that one can have, and then the members.
fn dressed(bare: &[u8]) -> Vec<u8> {
    let header = GzBuilder::new().extra("extra\0field").filename("a name").comment("a comment").mtime(7);
    let mut encoder = header.write(Vec::new(), Compression::default());
    encoder.write_all(bare).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn gzip_headers_with_every_field_and_several_members_are_read_across_any_split() {
    let mut squeezed = dressed(b"one");
    // The header's own checksum, which no encoder here writes: of any value, as it is not held against it.
    let at = 10 + 2 + "extra\0field".len() + "a name\0".len() + "a comment\0".len();
    squeezed[3] |= HAS_HEADER_CRC;
    squeezed.splice(at..at, [0xab, 0xcd]);
    squeezed.extend(squeeze(Kind::Gzip, &[b""]).concat());
    squeezed.extend(squeeze(Kind::Gzip, &[b"two"]).concat());
    squeezed.extend(dressed(b"three"));
    for split in 0..=squeezed.len() {
        let (head, tail) = squeezed.split_at(split);
        assert_eq!(read("gzip", [head, tail]), (b"onetwothree".to_vec(), Ok(())), "{split}");
    }
    let empty_extra = [&[0x1f, 0x8b, 8, HAS_EXTRA, 0, 0, 0, 0, 0, 0, 0, 0], &squeeze(Kind::Bare, &[b"x"]).concat()[..]];
    assert_eq!(read("gzip", empty_extra), (b"x".to_vec(), Ok(())));
}

#[test]
fn what_follows_the_end_is_nothing_s() {
    for kind in KINDS {
        for garbage in [b"\0\0\0\0".as_slice(), b"oops", b"\x1f", b"\x1f\x8b\x09oops", b"\x1f\x8b\x08\xffoops"] {
            let mut squeezed = squeeze(kind, &[TEXT]).concat();
            squeezed.extend(garbage);
            for split in 0..=squeezed.len() {
                let (head, tail) = squeezed.split_at(split);
                assert_eq!(read(kind.name(), [head, tail]), (TEXT.to_vec(), Ok(())), "{kind:?} {garbage:?} {split}");
            }
        }
    }
}

#[test]
fn a_body_cut_short_gives_what_it_had() {
    for kind in KINDS {
        let squeezed = squeeze(kind, &[TEXT]).concat();
        for end in 0..squeezed.len() {
            let (plain, read) = read(kind.name(), [&squeezed[..end]]);
            assert!(read.is_ok() && TEXT.starts_with(&plain), "{kind:?} {end}");
        }
    }
}

#[test]
fn what_is_not_of_its_coding_is_corrupt() {
    let cases: [(&str, &[u8]); 11] = [
        ("gzip", b"data: plain\n\n"),
        ("gzip", b"\x1f\x8c"),
        ("gzip", b"\x1f\x8b\x07"),
        ("gzip", b"\x1f\x8b\x08\x20"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff"),
        ("deflate", b"\x78\x9d"),
        ("deflate", b"\x78\x9c\xff"),
        ("deflate", b"\xff"),
        ("zstd", b"data: plain\n\n"),
        ("zstd", b"\x28\xb5\x2f\xfd\x08\xff\xff\xff\xff\xff\xff"),
        ("br", b"data: plain text is no brotli stream at all\n\n"),
    ];
    for (coding, bytes) in cases {
        assert_eq!(read(coding, bytes.chunks(1)), (Vec::new(), Err(Fault::Corrupt)), "{coding} {bytes:?}");
    }
}

#[test]
fn a_wrong_checksum_or_length_is_corrupt_but_for_brotli_which_has_none() {
    for (kind, trailer) in [(Kind::Gzip, 8), (Kind::Zlib, 4)] {
        let squeezed = squeeze(kind, &[TEXT]).concat();
        for back in 1..=trailer {
            let mut squeezed = squeezed.clone();
            let at = squeezed.len() - back;
            squeezed[at] ^= 1;
            let (plain, read) = read(kind.name(), squeezed.chunks(1));
            assert_eq!((plain.as_slice(), read), (TEXT, Err(Fault::Corrupt)), "{kind:?} {back}");
        }
    }
}

#[test]
fn windows_above_the_largest_are_refused() {
    for window in 10..=24 {
        let mut encoder = CompressorWriter::new(Vec::new(), 4096, 5, window);
        encoder.write_all(&long()).unwrap();
        let squeezed = encoder.into_inner();
        assert_eq!(u32::from(brotli_window(squeezed[0])), window);
        let expected =
            if window > u32::from(BROTLI_WINDOW) { (Vec::new(), Err(Fault::Overflow)) } else { (long(), Ok(())) };
        assert!(read("br", [&squeezed[..]]) == expected, "{window}");
    }
    for window in 10..=27 {
        let mut encoder = zstd_safe::CCtx::create();
        encoder.set_parameter(zstd_safe::CParameter::WindowLog(window)).unwrap();
        let text = long();
        let mut squeezed = Vec::with_capacity(text.len() + 1024);
        // Of unknown length, as streams are: else the window is no larger than the text.
        let input = &mut InBuffer::around(&text);
        encoder.compress_stream(&mut OutBuffer::around(&mut squeezed), input).unwrap();
        let mut end = Vec::with_capacity(text.len());
        encoder.end_stream(&mut OutBuffer::around(&mut end)).unwrap();
        let expected = if window > ZSTD_WINDOW { (Vec::new(), Err(Fault::Overflow)) } else { (text, Ok(())) };
        assert!(read("zstd", [&squeezed[..], &end]) == expected, "{window}");
    }
    // A window of the kind that only "large window brotli" has, which no content coding is.
    assert_eq!(read("br", [b"\x11\x1e\0\0\0\0".as_slice()]), (Vec::new(), Err(Fault::Corrupt)));
}

#[test]
fn bombs_are_given_up_once_they_are_large() {
    let zeros = [0].repeat(1 << 20);
    for kind in KINDS {
        // Deflate's own limit is 1,032 to 1: it takes a while to pass ours.
        let squeezed = squeeze(kind, &[&zeros.repeat(24)]).concat();
        let (mut inflater, mut given) = (Inflater::of(kind.name()).unwrap(), 0);
        let mut pieces = squeezed.chunks(64);
        let read = pieces.try_for_each(|piece| inflater.read(piece, &mut |plain| given += plain.len() as u64));
        assert_eq!(read, Err(Fault::Overflow), "{kind:?} {given}");
        assert!(given <= BOMB_FROM + 64 * 1032 + PIECE as u64, "{kind:?} {given}");
    }
    for kind in KINDS {
        let small = squeeze(kind, &[&zeros]).concat();
        assert_eq!(read(kind.name(), [&small[..]]).1, Ok(()), "{kind:?}: not large enough to matter");
    }
    // What stands behind a bomb in the same read does not make it look smaller.
    for kind in KINDS {
        let behind = [squeeze(kind, &[&zeros.repeat(24)]).concat(), vec![0; 64 << 10]].concat();
        assert_eq!(read(kind.name(), [&behind[..]]).1, Err(Fault::Overflow), "{kind:?} and zeros");
    }
    let event = |index: usize| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{index}\"}}}}]}}\n\n");
    let answer: String = (0..350_000).map(event).collect();
    let dense = squeeze(Kind::Gzip, &[answer.as_bytes()]).concat();
    let (plain, read) = read("gzip", dense.chunks(16 << 10));
    assert_eq!((plain.len() as u64 > BOMB_FROM, read), (true, Ok(())), "long, dense and honest");
}

proptest! {
    #[test]
    fn any_body_comes_out_as_it_went_in(
        parts in vec(vec(prop_oneof![3 => b'a'..b'e', 1 => any::<u8>()], 0..2000), 0..6),
        times in 1_usize..4,
        width in 1_usize..3000,
        kind in select(&KINDS[..]),
    ) {
        let parts: Vec<Vec<u8>> = parts.into_iter().map(|part| part.repeat(times)).collect();
        let squeezed = squeeze(kind, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).concat();
        prop_assert_eq!(read(kind.name(), squeezed.chunks(width)), (parts.concat(), Ok(())));
    }

    /// Corrupt bytes end somehow, and in every split alike.
    #[test]
    fn corrupt_bodies_never_panic(
        at in any::<Index>(),
        byte in any::<u8>(),
        width in 1_usize..200,
        kind in select(&KINDS[..]),
    ) {
        let mut squeezed = squeeze(kind, &[TEXT, &long()[..5000]]).concat();
        let at = at.index(squeezed.len());
        squeezed[at] = byte;
        let whole = read(kind.name(), [&squeezed[..]]);
        let split = read(kind.name(), squeezed.chunks(width));
        prop_assert_eq!(whole.1, split.1);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), kind in select(&KINDS[..])) {
        let whole = read(kind.name(), [&bytes[..]]);
        prop_assert_eq!(whole.1, read(kind.name(), bytes.chunks(1)).1);
    }
}
