//! Numbers as decimal text. `core::fmt` takes many times as long, and a record has some forty of them.

/// A number as text: its first bytes, so that who has room for all of them copies without asking how many they are.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    /// The text, and what does not matter behind it.
    pub room: [u8; ROOM],
    /// How long it is.
    pub len: usize,
}

/// The most digits of a number and a point, and as many bytes more as make words.
const ROOM: usize = 24;

/// The most digits behind the point.
const BEHIND: u32 = 18;

/// Below this many nanoseconds, which are less than a second, nearly every span is.
const SECOND: u64 = 1_000_000_000;

/// The decimal digits of 0 to 99.
#[expect(clippy::cast_possible_truncation, reason = "one digit")]
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Writes `value / 10^digits` (18 at most) as a decimal number: exact, without exponent, trailing zeros or float noise. With
/// digits there is always a fraction (`3.0`), so that a reader's type does not depend on the value.
pub fn push_decimal(out: &mut String, value: u64, digits: u32) {
    let Decimal { room, len } = decimal(value, digits);
    out.push_str(std::str::from_utf8(&room[..len]).unwrap_or_default());
}

/// The same as a value.
#[expect(clippy::cast_possible_truncation, reason = "within the ranges")]
pub fn decimal(value: u64, digits: u32) -> Decimal {
    match (value, digits) {
        // Many spans took no time.
        (0, 1..) => ZERO,
        (0..SECOND, 9) => below_one(value as u32),
        (0..10_000, 0) => few(value as u32),
        _ => any(value, digits),
    }
}

const ZERO: Decimal = {
    let mut room = [b'0'; ROOM];
    room[1] = b'.';
    Decimal { room, len: 3 }
};

const fn pair(number: u32) -> [u8; 2] {
    PAIRS[(number % 100) as usize]
}

/// Of nanoseconds below a second.
#[expect(clippy::cast_possible_truncation, reason = "one digit")]
#[inline]
fn below_one(nanos: u32) -> Decimal {
    let (first, rest) = (nanos / 100_000_000, nanos % 100_000_000);
    let (high, low) = (rest / 10_000, rest % 10_000);
    let (one, two, three, four) = (pair(high / 100), pair(high), pair(low / 100), pair(low));
    let mut room = ZERO.room;
    if let Some(text) = room.first_chunk_mut() {
        *text = [b'0', b'.', b'0' + first as u8, one[0], one[1], two[0], two[1], three[0], three[1], four[0], four[1]];
    }
    let mut len = 11;
    while len > 3 && room[(len - 1) % ROOM] == b'0' {
        len -= 1;
    }
    Decimal { room, len }
}

/// Of four digits at most.
#[inline]
fn few(number: u32) -> Decimal {
    let ([a, b], [c, d]) = (pair(number / 100), pair(number));
    let zeros = u32::from(number < 10) + u32::from(number < 100) + u32::from(number < 1_000);
    let text = u32::from_be_bytes([a, b, c, d]) << (8 * zeros);
    let mut room = ZERO.room;
    if let Some(digits) = room.first_chunk_mut() {
        *digits = text.to_be_bytes();
    }
    Decimal { room, len: 4 - zeros as usize }
}

/// Of any number, from its end, since the last digit is known first.
fn any(mut value: u64, digits: u32) -> Decimal {
    let mut digits = digits.min(BEHIND);
    while digits > 1 && value.is_multiple_of(10) {
        value /= 10;
        digits -= 1;
    }
    let mut room = [0; ROOM];
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
            break;
        }
    }
    room.copy_within(at.., 0);
    Decimal { room, len: ROOM - at }
}
