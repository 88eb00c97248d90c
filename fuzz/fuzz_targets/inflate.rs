//! The content codings: every split gives the same bytes and fault, what is compressed is given back, another reader finds
//! the same, and the window is bounded. Bombs are among the seeds.
#![no_main]

use std::io::{Read, Write};

use brotli::CompressorWriter;
use flate2::{
    Compression, Crc,
    read::{MultiGzDecoder, ZlibDecoder},
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use fuzz::{Input, Pieces, alike, bodies, bounded, pick, seed};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::inflate::{Fault, Inflater};

/// The choices: which coding, whether the body is compressed first, and how often it is repeated before.
const CODING: usize = 0;
const SQUEEZE: usize = 1;
const REPEAT: usize = 2;

const CODINGS: [Coding; 5] = [Coding::Gzip, Coding::Zlib, Coding::Bare, Coding::Brotli, Coding::Zstd];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Coding {
    Gzip,
    Zlib,
    Bare,
    Brotli,
    Zstd,
}

/// What was read: how much, its check, and how it ended.
#[derive(Clone, PartialEq, Debug)]
struct Plain {
    len: u64,
    check: u32,
    end: Result<(), Fault>,
}

/// Plain bytes are given out in pieces of at most so many.
const PIECE: u64 = 4096;

/// How many of the last plain bytes before a fault may be missing: deflate's window, and a piece.
const MISSING: u64 = (32 << 10) + PIECE;

/// A body is held against how much it grew from here on, if it grew so many times.
const BOMB_FROM: u64 = 16 << 20;
const BOMB_RATIO: u64 = 1000;

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let coding = pick(input.choices[CODING], &CODINGS);
    if input.choices[SQUEEZE] & 1 == 1 {
        let plain = input.body.repeat(usize::from(input.choices[REPEAT] % 16) + 1);
        let squeezed = squeeze(coding, &plain, input.choices[SQUEEZE] >> 1);
        let expected = Plain { len: plain.len() as u64, check: check(&plain), end: Ok(()) };
        assert_eq!(alike(&input, &squeezed, |pieces| read(coding, pieces)), expected);
        bounded(most(coding), || _ = read(coding, &mut input.pieces(&squeezed)));
        return;
    }
    let whole = read(coding, &mut std::iter::once(input.body));
    assert_alike(&whole, &read(coding, &mut input.pieces(input.body)), &input);
    // Megabytes for each of some thousand bytes would take too long.
    if whole.len < 1 << 20 {
        assert_alike(&whole, &read(coding, &mut input.body.chunks(1)), &input);
        if let Some(plain) = by_another(coding, input.body) {
            assert_eq!(whole, Plain { len: plain.len() as u64, check: check(&plain), end: Ok(()) });
        }
    }
    bounded(most(coding), || _ = read(coding, &mut input.pieces(input.body)));
});

/// What an inflater may hold: deflate's window and tables, or brotli's at the worst.
fn most(coding: Coding) -> usize {
    match coding {
        Coding::Gzip | Coding::Zlib | Coding::Bare => 48 << 10,
        Coding::Brotli => 9 << 20,
        // Its library allocates for itself: only the limit of the whole process counts that.
        Coding::Zstd => 0,
    }
}

fn name(coding: Coding) -> &'static str {
    match coding {
        Coding::Gzip => "gzip",
        Coding::Zlib | Coding::Bare => "deflate",
        Coding::Brotli => "br",
        Coding::Zstd => "zstd",
    }
}

fn read(coding: Coding, pieces: Pieces<'_, '_>) -> Plain {
    let mut inflater = Inflater::of(name(coding)).expect("one that is known");
    let (mut len, mut crc) = (0, Crc::new());
    let mut end = Ok(());
    for piece in pieces {
        end = inflater.read(piece, &mut |plain| {
            assert!((1..=PIECE).contains(&(plain.len() as u64)));
            len += plain.len() as u64;
            crc.update(plain);
        });
        if end.is_err() {
            break;
        }
    }
    Plain { len, check: crc.sum(), end }
}

/// Whether two readings are alike, as far as they must be: how much comes before a fault, and where exactly a body has
/// grown too much, may differ.
#[track_caller]
fn assert_alike(one: &Plain, other: &Plain, input: &Input<'_>) {
    let at_the_border =
        |plain: &Plain| plain.len > BOMB_FROM && plain.len / (input.body.len() as u64) < BOMB_RATIO + 50;
    let body = || input.body.escape_ascii().to_string();
    // zstd's library notices that a small frame is shorter than it says only if the frame comes in one read.
    let is_short = pick(input.choices[CODING], &CODINGS) == Coding::Zstd
        && one.len.abs_diff(other.len) <= PIECE
        && ![one.end, other.end].contains(&Err(Fault::Overflow));
    if one.end != other.end {
        assert!(is_short || at_the_border(one) && at_the_border(other), "{one:?}, {other:?}: {}", body());
    } else if one.end.is_ok() {
        assert_eq!(one, other, "{}", body());
    } else {
        assert!(one.len.abs_diff(other.len) <= MISSING, "{one:?}, {other:?}: {}", body());
    }
}

/// What another reader makes of a body that it finds nothing wrong with.
fn by_another(coding: Coding, body: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let read = match coding {
        Coding::Gzip => MultiGzDecoder::new(body).read_to_end(&mut plain),
        Coding::Zlib => ZlibDecoder::new(body).read_to_end(&mut plain),
        // Which of the two it is, the first byte tells; the others have no other reader here.
        Coding::Bare | Coding::Brotli | Coding::Zstd => return None,
    };
    (read.is_ok() && !body.is_empty()).then_some(plain)
}

fn check(plain: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(plain);
    crc.sum()
}

/// The body compressed and flushed every so often.
fn squeeze(coding: Coding, plain: &[u8], how: u8) -> Vec<u8> {
    fn write<W: Write>(mut encoder: W, plain: &[u8], how: u8) -> W {
        let flushed = usize::from(how >> 3) * 50 + 20;
        for part in plain.chunks(flushed) {
            encoder.write_all(part).and_then(|()| encoder.flush()).expect("memory");
        }
        encoder
    }
    let level = Compression::new(u32::from(how & 7));
    match coding {
        Coding::Gzip => write(GzEncoder::new(Vec::new(), level), plain, how).finish().expect("memory"),
        Coding::Zlib => write(ZlibEncoder::new(Vec::new(), level), plain, how).finish().expect("memory"),
        Coding::Bare => write(DeflateEncoder::new(Vec::new(), level), plain, how).finish().expect("memory"),
        Coding::Brotli => {
            write(CompressorWriter::new(Vec::new(), 4096, u32::from(how & 7), 16), plain, how).into_inner()
        }
        Coding::Zstd => zstd(plain, how),
    }
}

fn zstd(plain: &[u8], how: u8) -> Vec<u8> {
    let mut squeezed = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
    zstd_safe::compress(&mut squeezed, plain, i32::from(how & 7)).expect("room for it");
    squeezed
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let bodies: Vec<_> = bodies("sse").into_iter().step_by(6).collect();
    for (number, coding) in (0_u8..).zip(CODINGS) {
        for (how, body) in (0_u8..).zip(&bodies) {
            seeds.push(Input::bytes([number, how << 1 | 1, how, 0], body));
            seeds.push(Input::bytes([number, 0, 0, 0], &squeeze(coding, body, how)));
        }
        let twice = [&squeeze(coding, &bodies[0], 6)[..], &squeeze(coding, &bodies[1], 1)].concat();
        seeds.push(Input::bytes([number, 0, 0, 0], &twice));
        // A bomb, and one behind which something comes that must not make it look smaller. Deflate's is one only beyond
        // the length of an input.
        let bomb = match coding {
            Coding::Brotli => {
                let mut encoder = CompressorWriter::new(Vec::new(), 4096, 5, 22);
                encoder.write_all(&vec![0; 17 << 20]).map(|()| encoder.into_inner()).expect("memory")
            }
            Coding::Zstd => zstd(&vec![0; 17 << 20], 1),
            Coding::Gzip | Coding::Zlib | Coding::Bare => squeeze(coding, &vec![0; 1 << 20], 0xfe),
        };
        seeds.push(Input::bytes([number, 0, 0, 0], &bomb));
        seeds.push(Input::bytes([number, 0, 0, 0], &[&bomb[..], &[0; 6000]].concat()));
    }
    // A header with everything that may be in it.
    let named = flate2::GzBuilder::new().filename("f").comment("c").extra("e").write(Vec::new(), Compression::best());
    seeds.push(Input::bytes([0; 4], &named.finish().expect("memory")));
    seeds
}
