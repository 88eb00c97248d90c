//! Searches over bytes, by words. Plain arithmetic, no intrinsics. And what paths are read with.

/// Undoes percent-encoding (RFC 3986 §2.1). A `%` without two digits behind it stands for itself.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        let escaped = match (byte, tail) {
            (b'%', [high, low, ..]) => char::from(*high).to_digit(16).zip(char::from(*low).to_digit(16)),
            _ => None,
        };
        let code = escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        decoded.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    decoded
}

/// Where `part`, which is not empty, first stands in `text`: of a path, in which a search that prepares itself (as the
/// library's does) prepares longer than it searches.
pub fn find(text: &str, part: &str) -> Option<usize> {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let first = part.first()?;
    (0..text.len()).find(|&at| text[at] == *first && text[at..].starts_with(part))
}

/// The text before and behind the first `part`.
pub fn split_once<'a>(text: &'a str, part: &str) -> Option<(&'a str, &'a str)> {
    let at = find(text, part)?;
    Some((&text[..at], &text[at + part.len()..]))
}

const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;
const QUOTES: u64 = ONES * 0x22;
const ESCAPES: u64 = ONES * 0x5c;

/// Where the first `"` or `\` stands; absent if there is neither.
#[inline]
pub(super) fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    let marks = |word| zeros(word ^ QUOTES) | zeros(word ^ ESCAPES);
    mostly_near(bytes, marks, |byte| byte == b'"' || byte == b'\\', |far| memchr::memchr2(b'"', b'\\', far))
}

/// Where the first `"` stands; absent if there is none. As [`quote_or_escape`], which takes twice as long in long strings.
#[inline]
pub(super) fn quote(bytes: &[u8]) -> Option<usize> {
    mostly_near(bytes, |word| zeros(word ^ QUOTES), |byte| byte == b'"', |far| memchr::memchr(b'"', far))
}

/// Where the first byte stands that `marks` marks among eight and `is_it` knows by itself.
///
/// Most JSON strings are short, so the first four words are searched here; a call into a wider search, `far`, costs about
/// 30 instructions and pays only beyond them.
#[inline]
fn mostly_near(
    bytes: &[u8],
    marks: impl Fn(u64) -> u64,
    is_it: impl Fn(u8) -> bool,
    far: impl FnOnce(&[u8]) -> Option<usize>,
) -> Option<usize> {
    let mut at = 0;
    while at < 32 {
        let Some(word) = word(bytes, at) else {
            return bytes[at..].iter().position(|&byte| is_it(byte)).map(|index| at + index);
        };
        let found = marks(word);
        if found != 0 {
            return Some(at + first(found));
        }
        at += 8;
    }
    far(&bytes[at..]).map(|index| at + index)
}

/// Where the first `"`, `\` or control character (line ends are among them) stands; absent if there is none.
#[inline]
pub(super) fn quote_escape_or_control(bytes: &[u8]) -> Option<usize> {
    // Most tokens end within the first word.
    let mut at = 0;
    if let Some(word) = bytes.first_chunk::<8>() {
        let found = specials(word);
        if found != 0 {
            return Some(first(found));
        }
        at = 8;
    }
    // Two words at a time: which of them has it matters only at the end.
    while let Some(pair) = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        let (low, high) = pair.split_at(8);
        let (low, high) = (specials(low), specials(high));
        if low | high != 0 {
            return Some(at + if low != 0 { first(low) } else { 8 + first(high) });
        }
        at += 16;
    }
    if let Some(word) = bytes.get(at..at + 8) {
        let found = specials(word);
        if found != 0 {
            return Some(at + first(found));
        }
        at += 8;
    }
    bytes[at..].iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ').map(|index| at + index)
}

/// Whether all of it is ASCII that stands for itself in a JSON string: no control, `"`, `\` or DEL.
pub fn is_plain(text: &[u8]) -> bool {
    let plain = |word: &[u8; 8]| {
        let bytes = u64::from_le_bytes(*word);
        specials(word) | zeros(bytes ^ (ONES * 0x7f)) | bytes & HIGHS == 0
    };
    match text.last_chunk() {
        // The last word has bytes of the one before it.
        Some(last) => text.as_chunks().0.iter().all(plain) && plain(last),
        None => text.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')),
    }
}

/// Where the first `"` or bracket (`{`, `}`, `[`, `]`) stands; absent if there is none.
#[inline]
pub(super) fn quote_or_bracket(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = word(bytes, at) {
        // With this bit set the square brackets are the curly ones.
        let folded = word | (ONES * 0x20);
        let found = zeros(word ^ QUOTES) | zeros(folded ^ (ONES * 0x7b)) | zeros(folded ^ (ONES * 0x7d));
        if found != 0 {
            return Some(at + first(found));
        }
        at += 8;
    }
    bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')).map(|index| at + index)
}

/// A bit in the first of eight bytes that is a quote, an escape or a control (bits above it may be wrong by a carry).
#[inline]
fn specials(bytes: &[u8]) -> u64 {
    let word = word(bytes, 0).unwrap_or_default();
    // With one bit turned, the quote is just above the controls and all else above it.
    let turned = word ^ (ONES * 2);
    let quotes_or_controls = turned.wrapping_sub(ONES * 0x21) & !turned & HIGHS;
    quotes_or_controls | zeros(word ^ ESCAPES)
}

/// How many spaces `bytes` begin with.
#[inline]
pub(super) fn spaces(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = word(bytes, at) {
        let other = word ^ (ONES * 0x20);
        if other != 0 {
            return at + first(other);
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|&&byte| byte == b' ').count()
}

/// How many bytes `a` and `b` begin with in common.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let equal = 32 * a.as_chunks::<32>().0.iter().zip(b.as_chunks::<32>().0).take_while(|(a, b)| a == b).count();
    let mut at = equal;
    while let (Some(left), Some(right)) = (word(a, at), word(b, at)) {
        if left != right {
            return at + first(left ^ right);
        }
        at += 8;
    }
    let len = a.len().min(b.len());
    // What is left over is compared as the end of the last whole word: the bytes before are equal.
    if len >= 8
        && at < len
        && let (Some(left), Some(right)) = (word(a, len - 8), word(b, len - 8))
    {
        return if left == right { len } else { len - 8 + first(left ^ right) };
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(left, right)| left == right).count()
}

/// The eight bytes at `at`, the first one lowest.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A word whose lowest set bit is in the first zero byte (bits above it may be wrong by a carry); 0 if there is none.
#[inline]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// The index of the byte with the lowest set bit.
#[inline]
const fn first(word: u64) -> usize {
    word.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_of_a_path_is_found_where_the_library_finds_it(text in "[/ab]{0,12}", part in "[/ab]{1,3}") {
            prop_assert_eq!(find(&text, &part), text.find(&part));
            prop_assert_eq!(split_once(&text, &part), text.split_once(&part));
        }

        #[test]
        fn quotes_are_found_where_a_plain_search_finds_them(bytes in proptest::collection::vec(0_u8..=255, 0..100)) {
            prop_assert_eq!(quote_or_escape(&bytes), bytes.iter().position(|&byte| byte == b'"' || byte == b'\\'));
            prop_assert_eq!(quote(&bytes), bytes.iter().position(|&byte| byte == b'"'));
        }

        #[test]
        fn plain_text_is_what_a_plain_search_finds_nothing_in(text in "[ -~]{0,40}", at in 0_usize..40, byte in 0_u8..=255) {
            let mut text = text.into_bytes();
            if let Some(slot) = text.get_mut(at) {
                *slot = byte;
            }
            let plain = text.iter().all(|&byte| (32..127).contains(&byte) && byte != b'"' && byte != b'\\');
            prop_assert_eq!(is_plain(&text), plain);
        }

        #[test]
        fn brackets_are_found_where_a_plain_search_finds_them(bytes in proptest::collection::vec(0_u8..=255, 0..100)) {
            let plain = bytes.iter().position(|byte| br#""{}[]"#.contains(byte));
            prop_assert_eq!(quote_or_bracket(&bytes), plain);
        }

        #[test]
        fn string_parts_end_where_a_plain_search_ends_them(bytes in proptest::collection::vec(0_u8..=255, 0..100)) {
            let plain = bytes.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 32);
            prop_assert_eq!(quote_escape_or_control(&bytes), plain);
        }

        #[test]
        fn prefixes_are_as_long_as_a_plain_comparison_says(
            a in proptest::collection::vec(0_u8..=255, 0..100),
            cut in 0_usize..100,
            tail in proptest::collection::vec(0_u8..=255, 0..9),
        ) {
            let mut b = a[..cut.min(a.len())].to_vec();
            b.extend(tail);
            let plain = a.iter().zip(&b).take_while(|(left, right)| left == right).count();
            prop_assert_eq!(common_prefix(&a, &b), plain);
        }
    }
}
