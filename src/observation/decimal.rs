//! Numbers as decimal text. `core::fmt` takes four times as long, and a record has some forty of them.

/// Writes `value / 10^digits` (18 at most) as a decimal number: exact, without exponent, trailing zeros or float noise. With
/// digits there is always a fraction (`3.0`), so that a reader's type does not depend on the value.
pub fn push_decimal(out: &mut String, value: u64, digits: u32) {
    let mut room = [0; ROOM];
    out.push_str(std::str::from_utf8(decimal(&mut room, value, digits)).unwrap_or_default());
}

/// The same for who writes bytes.
pub fn push_decimal_bytes(out: &mut Vec<u8>, value: u64, digits: u32) {
    let mut room = [0; ROOM];
    out.extend_from_slice(decimal(&mut room, value, digits));
}

/// Where the point stands: behind the most digits of a number.
const POINT: usize = 20;
const ROOM: usize = POINT + 1 + 18;

#[inline]
fn decimal(room: &mut [u8; ROOM], value: u64, digits: u32) -> &[u8] {
    // Many spans took no time.
    if value == 0 {
        return if digits == 0 { b"0" } else { b"0.0" };
    }
    let unit = 10_u64.pow(digits);
    let whole = value / unit;
    let start = POINT - whole.checked_ilog10().map_or(1, |log| log as usize + 1);
    put(&mut room[start..POINT], whole);
    if digits == 0 {
        return &room[start..POINT];
    }
    room[POINT] = b'.';
    let end = POINT + 1 + digits as usize;
    put(&mut room[POINT + 1..end], value % unit);
    let zeros = room[POINT + 2..end].iter().rev().take_while(|digit| **digit == b'0').count();
    &room[start..end - zeros]
}

/// Fills these places with the last digits of a number, two at a time.
fn put(places: &mut [u8], mut value: u64) {
    let mut pairs = places.rchunks_exact_mut(2);
    for pair in &mut pairs {
        let two = (value % 100) as u8;
        pair.copy_from_slice(&[b'0' + two / 10, b'0' + two % 10]);
        value /= 100;
    }
    if let [one] = pairs.into_remainder() {
        *one = b'0' + (value % 10) as u8;
    }
}
