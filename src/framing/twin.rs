//! Knows an event again that differs from an earlier one in free values only.
//!
//! The events of a stream are alike: the same keys, id and model, another token. A full walk costs some 700 instructions
//! for a chunk of 220 bytes; a comparison with the chunk before, which steps over the values that differ, costs 200. What
//! the walk would find is the same, because it looks at nothing in the values it steps over: neither what they are nor
//! (they are never empty) whether there is one.

use super::{
    bytes::{common_prefix, quote_escape_or_control},
    json::Free,
};

/// The longest event that is remembered, in bytes with its framing.
const LIMIT: usize = 768;

const FREE: usize = 12;

/// One remembered event.
#[derive(Debug)]
pub struct Twin {
    len: u16,
    frees: u8,
    free: [Free; FREE],
    bytes: [u8; LIMIT],
}

impl Default for Twin {
    fn default() -> Self {
        Self { len: 0, frees: 0, free: [Free::default(); FREE], bytes: [0; LIMIT] }
    }
}

impl Twin {
    /// Whether an event of this length could be remembered.
    pub const fn fits(len: usize) -> bool {
        len <= LIMIT
    }

    /// Forgets the event.
    #[inline]
    pub const fn forget(&mut self) {
        self.len = 0;
    }

    /// Remembers a whole event, framing included, whose document begins at `document` and has these free values.
    pub fn remember(&mut self, event: &[u8], document: usize, free: &[Free]) {
        let (Some(bytes), Ok(len)) = (self.bytes.get_mut(..event.len()), u16::try_from(event.len())) else {
            return self.forget();
        };
        bytes.copy_from_slice(event);
        self.len = len;
        self.frees = 0;
        for (slot, value) in self.free.iter_mut().zip(free) {
            let place = |at: u16| usize::from(at) + document;
            let (Ok(start), Ok(end)) = (u16::try_from(place(value.start)), u16::try_from(place(value.end))) else {
                return self.forget();
            };
            *slot = Free { start, end };
            self.frees += 1;
        }
    }

    /// The length of the event that `bytes` begin with, if it is a twin of the remembered one and wholly there.
    #[inline]
    pub fn recognise(&self, bytes: &[u8]) -> Option<usize> {
        let own = self.bytes.get(..usize::from(self.len)).filter(|own| !own.is_empty())?;
        let mut free = self.free[..usize::from(self.frees)].iter();
        let (mut mine, mut theirs) = (0, 0);
        loop {
            let same = common_prefix(own.get(mine..)?, bytes.get(theirs..)?);
            mine += same;
            theirs += same;
            if mine == own.len() {
                return Some(theirs);
            }
            let value = free.find(|value| mine <= usize::from(value.end))?;
            let start = usize::from(value.start);
            let into = mine.checked_sub(start)?;
            let text = own.get(start.checked_sub(1)?) == Some(&b'"');
            let begin = theirs - into;
            let rest = bytes.get(begin..)?;
            let len = if text { text_len(rest)? } else { number_len(rest) };
            if len == 0 {
                return None;
            }
            mine = usize::from(value.end);
            theirs = begin + len;
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

#[inline]
fn number_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &[u8] = b"data: {\"a\":\"one\",\"n\":12}\n\n";

    fn twin() -> Twin {
        let mut twin = Twin::default();
        twin.remember(EVENT, 6, &[Free { start: 6, end: 9 }, Free { start: 15, end: 17 }]);
        twin
    }

    #[track_caller]
    fn assert_seen(bytes: &str, seen: Option<usize>) {
        assert_eq!(twin().recognise(bytes.as_bytes()), seen, "{bytes}");
    }

    #[test]
    fn events_that_differ_in_free_values_are_twins() {
        for event in [
            "data: {\"a\":\"one\",\"n\":12}\n\n",
            "data: {\"a\":\"o\",\"n\":12}\n\n",
            "data: {\"a\":\"oneself, and a good deal more of it\",\"n\":12}\n\n",
            "data: {\"a\":\"two\",\"n\":-3.5e7}\n\n",
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
    fn any_other_difference_is_seen() {
        for event in [
            "data: {\"a\":\"\",\"n\":12}\n\n",
            "data: {\"a\":null,\"n\":12}\n\n",
            "data: {\"b\":\"one\",\"n\":12}\n\n",
            "data: {\"a\":\"one\",\"n\":}\n\n",
            "data: {\"a\":\"one\",\"n\":null}\n\n",
            "data: {\"a\":\"one\",\"n\":\"12\"}\n\n",
            "data: {\"a\":\"one\",\"n\":12,\"z\":1}\n\n",
            "data: {\"a\":\"one\",\"n\":12} \n\n",
            "data: {\"a\":\"on\ndata: e\",\"n\":12}\n\n",
            "data: {\"a\":\"on\\\ne\",\"n\":12}\n\n",
            "data: {\"a\":\"one\",\"n\":12}\r\n\n",
        ] {
            assert_seen(event, None);
        }
        assert_eq!(Twin::default().recognise(EVENT), None);
    }
}
