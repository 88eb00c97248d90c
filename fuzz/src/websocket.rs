//! WebSocket frames (RFC 6455) that are right, of any bytes.

use flate2::{Compress, Compression, FlushCompress};

/// What a byte before a message says of it: it is the server's, it is masked, it is compressed.
pub const SERVER: u8 = 1;
pub const MASKED: u8 = 2;
pub const COMPRESSED: u8 = 4;

const MASK: [u8; 4] = [7, 0, 0x80, 1];

/// Each message of a body of `u8` what it is, `u16` its length, the message, and so on; the last one is as long as there
/// are bytes. Comes with what it is.
pub fn messages(mut body: &[u8]) -> Vec<(u8, &[u8])> {
    let mut messages = Vec::new();
    while let Some((&[what, high, low], rest)) = body.split_first_chunk() {
        let (message, rest) = rest.split_at(usize::from(u16::from_be_bytes([high, low])).min(rest.len()));
        messages.push((what, message));
        body = rest;
    }
    messages
}

/// The body of these messages.
pub fn body_of<M: AsRef<[u8]>>(messages: &[(u8, M)]) -> Vec<u8> {
    let part = |(what, message): &(u8, M)| {
        let message = message.as_ref();
        let len = u16::try_from(message.len()).expect("a short message");
        [&[*what][..], &len.to_be_bytes(), message].concat()
    };
    messages.iter().flat_map(part).collect()
}

/// The frame, or two, of a message. Compressed only if that was agreed on.
pub fn frames(what: u8, message: &[u8], agreed: bool) -> Vec<u8> {
    let is_compressed = agreed && what & COMPRESSED != 0;
    let payload = if is_compressed { compressed(message) } else { message.to_vec() };
    // What is longer than a kilobyte comes in two frames.
    let (first, rest) = payload.split_at(payload.len().min(1024));
    let begin = if is_compressed { 0x41 } else { 1 };
    if rest.is_empty() {
        return frame(0x80 | begin, first, what);
    }
    [frame(begin, first, what), frame(0x80, rest, what)].concat()
}

fn frame(first: u8, payload: &[u8], what: u8) -> Vec<u8> {
    let masked = if what & MASKED == 0 { 0 } else { 0x80 };
    let mut frame = vec![first];
    match u16::try_from(payload.len()) {
        Ok(len @ 0..126) => frame.push(masked | len.to_be_bytes()[1]),
        Ok(len) => frame.extend([&[masked | 126][..], &len.to_be_bytes()].concat()),
        Err(_) => frame.extend([&[masked | 127][..], &(payload.len() as u64).to_be_bytes()].concat()),
    }
    if masked == 0 {
        frame.extend_from_slice(payload);
    } else {
        frame.extend(MASK);
        frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    }
    frame
}

/// As RFC 7692 has it: flushed, without the end of what was flushed.
fn compressed(message: &[u8]) -> Vec<u8> {
    let mut squeezed = Vec::with_capacity(message.len() + 64);
    let mut compress = Compress::new(Compression::fast(), false);
    compress.compress_vec(message, &mut squeezed, FlushCompress::Sync).expect("room for it");
    squeezed.truncate(squeezed.len().saturating_sub(4));
    squeezed
}
