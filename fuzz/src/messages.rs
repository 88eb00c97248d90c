//! AWS event streams with lengths and checks that are right, of any bytes: a mutation would break these first, and nothing
//! behind them would ever be read.

use flate2::Crc;

/// Messages of a body of `u8` length of the headers, `u16` length of the payload, headers, payload, and so on; the last
/// one is as long as there are bytes. Each payload is `made` something of.
pub fn messages(mut body: &[u8], made: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((lengths, rest)) = body.split_first_chunk::<3>() {
        let [headers, high, low] = *lengths;
        let (headers, rest) = rest.split_at(usize::from(headers).min(rest.len()));
        let (payload, rest) = rest.split_at(usize::from(u16::from_be_bytes([high, low])).min(rest.len()));
        let payload = made(payload);
        let begin = stream.len();
        stream.extend(length(16 + headers.len() + payload.len()));
        stream.extend(length(headers.len()));
        stream.extend(check(&stream[begin..]));
        stream.extend_from_slice(headers);
        stream.extend_from_slice(&payload);
        stream.extend(check(&stream[begin..]));
        body = rest;
    }
    stream
}

/// The body that [`messages`] makes these messages of; ends where a message does not fit it.
pub fn body_of(mut stream: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some((prelude, rest)) = stream.split_first_chunk::<12>() {
        let number = |at: usize| u32::from_be_bytes([prelude[at], prelude[at + 1], prelude[at + 2], prelude[at + 3]]);
        let (len, headers) = (number(0) as usize, number(4) as usize);
        let Some(payload) = len.checked_sub(16 + headers) else { break };
        let (Ok(short), Ok(long)) = (u8::try_from(headers), u16::try_from(payload)) else { break };
        let Some((inside, behind)) = rest.split_at_checked(headers + payload) else { break };
        body.push(short);
        body.extend(long.to_be_bytes());
        body.extend_from_slice(inside);
        stream = behind.get(4..).unwrap_or_default();
    }
    body
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("an input's length").to_be_bytes()
}

fn check(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum().to_be_bytes()
}
