//! Knows an event again that differs from an earlier one in free values only.
//!
//! The events of a stream are alike: the same keys, id and model, another token. A full walk costs some 4,500 instructions
//! for a chunk of 230 bytes; a comparison with the chunk before, which steps over the values that differ, costs 340. What
//! the walk would find is the same, because it looks at nothing in the values it steps over: neither what they are nor
//! (they are never empty) whether there is one. Numbers that were asked for are given out again.

use super::{
    bytes::{common_prefix, quote_escape_or_control, spaces},
    json::{FREE, Free, FreeKind, NO_FREE, VALUE_LIMIT},
};

/// The longest event that is remembered, in bytes with its framing.
const LIMIT: usize = 752;

/// One remembered event.
#[derive(Debug)]
pub struct Twin {
    len: u16,
    frees: u8,
    /// A bit for each free value that was seen to vary. These are stepped over at once, what lies between them is compared
    /// as a whole; the others are found by their first difference.
    vary: u16,
    free: [Free; FREE],
    /// Where the numbers of the event that is compared begin, by the place of their value.
    numbers: [u16; FREE],
    bytes: [u8; LIMIT],
}

impl Default for Twin {
    fn default() -> Self {
        Self { len: 0, frees: 0, vary: 0, free: [NO_FREE; FREE], numbers: [0; FREE], bytes: [0; LIMIT] }
    }
}

impl Twin {
    /// Whether an event of this length could be remembered.
    pub const fn fits(len: usize) -> bool {
        len <= LIMIT
    }

    /// Remembers a whole event, framing included, whose document begins at `document` and has these free values.
    pub fn remember(&mut self, event: &[u8], document: usize, free: &[Free]) {
        self.len = 0;
        let (Some(bytes), Ok(len)) = (self.bytes.get_mut(..event.len()), u16::try_from(event.len())) else { return };
        bytes.copy_from_slice(event);
        (self.frees, self.vary) = (0, 0);
        for (slot, value) in self.free.iter_mut().zip(free) {
            let place = |at: u16| u16::try_from(usize::from(at) + document);
            let (Ok(start), Ok(end)) = (place(value.start), place(value.end)) else { return };
            *slot = Free { kind: value.kind, start, end };
            self.frees += 1;
        }
        for (place, value) in self.free[..usize::from(self.frees)].iter().enumerate() {
            if matches!(value.kind, FreeKind::Told { always: true, .. }) {
                self.vary |= 1 << place;
            }
        }
        // A number that padding follows at once has no byte behind it that shows its end.
        if let [.., number, padding] = &self.free[..usize::from(self.frees)]
            && padding.kind == FreeKind::Padding
            && number.end == padding.start
        {
            self.vary |= 1 << (self.frees - 2);
        }
        self.len = len;
    }

    /// The length of the event that `bytes` begin with, if it is a twin of the remembered one and wholly there. `told` then
    /// gets its numbers that were asked for and may have changed.
    #[inline]
    pub fn recognise(&mut self, bytes: &[u8], told: &mut impl FnMut(u8, &[u8])) -> Option<usize> {
        let own = self.bytes.get(..usize::from(self.len)).filter(|own| !own.is_empty())?;
        let free = &self.free[..usize::from(self.frees)];
        let (mut mine, mut theirs) = (0, 0);
        // A bit for each number to be told, once it is known that this is a twin: half a number is another one.
        let mut tell = 0_u16;
        // The values not yet passed that are known to vary.
        let mut vary = self.vary;
        let mut next = 0;
        loop {
            let known = free.get(vary.trailing_zeros() as usize);
            let until = known.map_or(own.len(), |value| usize::from(value.start));
            let between = own.get(mine..until)?;
            let value = if bytes.get(theirs..).is_some_and(|bytes| bytes.starts_with(between)) {
                theirs += between.len();
                let Some(value) = known else {
                    if tell != 0 {
                        self.tell(tell, bytes, told);
                    }
                    return Some(theirs);
                };
                next = vary.trailing_zeros() as usize + 1;
                vary &= vary - 1;
                value
            } else {
                let same = common_prefix(between, bytes.get(theirs..)?);
                let place = next + free.get(next..)?.iter().position(|value| mine + same <= usize::from(value.end))?;
                next = place + 1;
                let value = &free[place];
                self.vary |= 1 << place;
                theirs += usize::from(value.start).checked_sub(mine).filter(|&before| before <= same)?;
                value
            };
            let rest = bytes.get(theirs..)?;
            let len = match value.kind {
                FreeKind::Text => text_len(rest).filter(|&len| len > 0)?,
                FreeKind::Number => Some(number_len(rest)).filter(|&len| len > 0)?,
                FreeKind::Told { .. } => {
                    let len = Some(number_len(rest)).filter(|&len| len > 0)?;
                    let place = next - 1;
                    self.numbers[place] = u16::try_from(theirs).ok()?;
                    tell |= 1 << place;
                    len
                }
                FreeKind::Padding => spaces(rest),
            };
            theirs += len;
            mine = usize::from(value.end);
        }
    }

    /// Tells the numbers at these places, a bit for each.
    fn tell(&self, mut places: u16, bytes: &[u8], told: &mut impl FnMut(u8, &[u8])) {
        while places != 0 {
            let place = places.trailing_zeros() as usize;
            places &= places - 1;
            if let FreeKind::Told { field, .. } = self.free[place].kind
                && let Some(rest) = bytes.get(usize::from(self.numbers[place])..)
            {
                told(field, &rest[..number_len(rest)]);
            }
        }
    }
}

/// The length of a string's inside up to its closing quote; absent if it does not end on this line.
#[inline]
fn text_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += quote_escape_or_control(bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at),
            b'\\' if *bytes.get(at + 1)? >= b' ' => at += 2,
            _ => return None,
        }
    }
}

/// The length of a number; 0 of what the walk would not take for one, and of one whose end is not here.
#[inline]
fn number_len(bytes: &[u8]) -> usize {
    // Nearly every number is digits and nothing else.
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match bytes.get(digits) {
        Some(b',' | b'}' | b']') if (1..=VALUE_LIMIT).contains(&digits) => digits,
        _ => odd_number_len(bytes),
    }
}

#[inline(never)]
fn odd_number_len(bytes: &[u8]) -> usize {
    match bytes.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
        Some(len @ 1..=VALUE_LIMIT) if matches!(bytes[0], b'-' | b'0'..=b'9') && !bytes[len].is_ascii_alphabetic() => {
            len
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &[u8] = b"data: {\"a\":\"one\",\"n\":12}\n\n";
    const FREES: [Free; 3] = [
        Free { kind: FreeKind::Text, start: 6, end: 9 },
        Free { kind: FreeKind::Number, start: 15, end: 17 },
        Free { kind: FreeKind::Padding, start: 17, end: 17 },
    ];

    fn twin() -> Twin {
        let mut twin = Twin::default();
        twin.remember(EVENT, 6, &FREES);
        twin
    }

    /// Whatever was seen to vary before makes no difference.
    #[track_caller]
    fn assert_seen(bytes: &str, seen: Option<usize>) {
        for vary in 0..8 {
            let mut twin = twin();
            twin.vary |= vary;
            assert_eq!(twin.recognise(bytes.as_bytes(), &mut |_, _| {}), seen, "{bytes}");
            assert_eq!(twin.recognise(bytes.as_bytes(), &mut |_, _| {}), seen, "{bytes} again");
        }
    }

    #[test]
    fn events_that_differ_in_free_values_are_twins() {
        for event in [
            "data: {\"a\":\"one\",\"n\":12}\n\n",
            "data: {\"a\":\"o\",\"n\":12}\n\n",
            "data: {\"a\":\"oneself, and a good deal more of it\",\"n\":12}\n\n",
            "data: {\"a\":\"two\",\"n\":-3.5e7}\n\n",
            "data: {\"a\":\"one\",\"n\":12    }\n\n",
            "data: {\"a\":\"\\\"\\\\\",\"n\":1}\n\n",
            "data: {\"a\":\"on\\\"e\",\"n\":123}\n\n",
        ] {
            assert_seen(event, Some(event.len()));
            assert_seen(&format!("{event}data: x"), Some(event.len()));
            for cut in 0..event.len() {
                assert_seen(&event[..cut], None);
            }
        }
    }

    #[test]
    fn asked_for_numbers_are_told_again() {
        for (always, expected) in [(true, ["12", "12", "34"].as_slice()), (false, &["34"])] {
            let mut twin = Twin::default();
            let number = Free { kind: FreeKind::Told { field: 9, always }, start: 15, end: 17 };
            twin.remember(EVENT, 6, &[FREES[0], number]);
            let mut told = Vec::new();
            for event in [EVENT, b"data: {\"a\":\"x\",\"n\":12}\n\n", b"data: {\"a\":\"y\",\"n\":34}\n\n"] {
                let seen = twin.recognise(event, &mut |field, text| {
                    told.push(String::from_utf8_lossy(text).into_owned());
                    assert_eq!(field, 9);
                });
                assert_eq!(seen, Some(event.len()));
            }
            assert_eq!(told, expected);
            // Half an event tells nothing: its last number may be half, too.
            let (seen, half) = (told.len(), b"data: {\"a\":\"y\",\"n\":56}\n\n");
            for cut in 0..half.len() {
                let seen = twin.recognise(&half[..cut], &mut |_, text| told.push(format!("{text:?}")));
                assert_eq!(seen, None);
            }
            assert_eq!(told.len(), seen);
        }
    }

    #[test]
    fn any_other_difference_is_seen() {
        for event in [
            "data: {\"a\":\"\",\"n\":12}\n\n",
            "data: {\"a\":null,\"n\":12}\n\n",
            "data: {\"b\":\"one\",\"n\":12}\n\n",
            "data: {\"a\":\"one\",\"n\":}\n\n",
            "data: {\"a\":\"one\",\"n\":null}\n\n",
            "data: {\"a\":\"one\",\"n\":\"12\"}\n\n",
            "data: {\"a\":\"one\",\"n\":e5}\n\n",
            "data: {\"a\":\"one\",\"n\":+5}\n\n",
            "data: {\"a\":\"one\",\"n\":.5}\n\n",
            "data: {\"a\":\"one\",\"n\":12x}\n\n",
            &format!("data: {{\"a\":\"one\",\"n\":{}}}\n\n", "1".repeat(VALUE_LIMIT + 1)),
            "data: {\"a\":\"one\",\"n\":12,\"z\":1}\n\n",
            "data: {\"a\":\"one\",\"n\":12} \n\n",
            "data: {\"a\":\"on\ndata: e\",\"n\":12}\n\n",
            "data: {\"a\":\"on\\\ne\",\"n\":12}\n\n",
            "data: {\"a\":\"one\",\"n\":12}\r\n\n",
        ] {
            assert_seen(event, None);
        }
        assert_eq!(Twin::default().recognise(EVENT, &mut |_, _| {}), None);
    }
}
