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

/// The most digits of a number and a point.
const ROOM: usize = 21;

/// Digit by digit: two at a time, or what the library has for splitting, took more.
#[inline]
fn decimal(room: &mut [u8; ROOM], mut value: u64, mut digits: u32) -> &[u8] {
    // Many spans took no time.
    if value == 0 {
        return if digits == 0 { b"0" } else { b"0.0" };
    }
    while digits > 1 && value.is_multiple_of(10) {
        value /= 10;
        digits -= 1;
    }
    // From the end, since the last digit is known first.
    let mut at = ROOM;
    let mut push = |byte: u8| {
        at = at.saturating_sub(1);
        room[at] = byte;
    };
    let digit = |value: u64| b'0' + (value % 10) as u8;
    if digits > 0 {
        for _ in 0..digits {
            push(digit(value));
            value /= 10;
        }
        push(b'.');
    }
    loop {
        push(digit(value));
        value /= 10;
        if value == 0 {
            return &room[at..];
        }
    }
}
