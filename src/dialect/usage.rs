//! Token counts as the providers report them. Unknown stays absent; nothing is estimated here.

use std::ops::Range;

use crate::framing::json::{Value, Want};

/// Token counts of one exchange, normalised: `input` includes cached tokens, `output` includes reasoning.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// All input tokens, cached included.
    pub input: Option<u64>,
    /// All output tokens, reasoning included.
    pub output: Option<u64>,
    /// Reasoning tokens, inside `output`.
    pub reasoning: Option<u64>,
    /// Input tokens read from a cache, inside `input`.
    pub cached: Option<u64>,
    /// Input tokens written to a cache, inside `input` where the dialect bills them so.
    pub cache_write: Option<u64>,
    /// The provider's own fields, last value each, by the provider's own names.
    pub raw: Vec<(&'static str, u64)>,
}

impl Usage {
    /// Whether the provider reported anything.
    pub const fn is_known(&self) -> bool {
        self.output.is_some() || self.input.is_some()
    }
}

/// The fields of a `usage` object that are read, of all dialects: its name is the path inside of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(dead_code, reason = "some stand in the raw counts only, but each has its place")]
pub(super) enum Count {
    PromptTokens,
    CompletionTokens,
    TotalTokens,
    PromptCached,
    PromptCacheWrite,
    CompletionReasoning,
    PromptCacheHit,
    PromptCacheMiss,
    CachedTokens,
    ReasoningTokens,
    InputTokens,
    OutputTokens,
    InputCached,
    InputCacheWrite,
    OutputReasoning,
    OutputThinking,
    CacheRead,
    CacheCreation,
    CacheCreation5m,
    CacheCreation1h,
}

const NAMES: [&str; 20] = [
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details.cached_tokens",
    "prompt_tokens_details.cache_write_tokens",
    "completion_tokens_details.reasoning_tokens",
    "prompt_cache_hit_tokens",
    "prompt_cache_miss_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "input_tokens",
    "output_tokens",
    "input_tokens_details.cached_tokens",
    "input_tokens_details.cache_write_tokens",
    "output_tokens_details.reasoning_tokens",
    "output_tokens_details.thinking_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation.ephemeral_5m_input_tokens",
    "cache_creation.ephemeral_1h_input_tokens",
];

/// Fields from here on are counts: this plus the place in [`NAMES`].
pub(super) const COUNT: u8 = 128;

/// The most names a dialect has.
const PLACES: usize = 24;

/// The last value of each field, never summed: providers repeat and grow their counts. A dialect whose names are none of
/// [`NAMES`] has a list of its own: its counts are known by their place there.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    values: [u64; PLACES],
    known: u32,
    /// What the earlier ones of several replies in one document counted.
    earlier: Option<Box<[u64; PLACES]>>,
}

impl Counts {
    /// Takes the value of a field, if it is a number.
    pub(super) fn take(&mut self, field: u8, value: Value<'_>) {
        let index = usize::from(field - COUNT);
        if let Value::Number(text) = value
            && let Some(count) = number(text)
            && let Some(slot) = self.values.get_mut(index)
        {
            *slot = self.earlier.as_ref().map_or(count, |earlier| count.saturating_add(earlier[index]));
            self.known |= 1 << index;
        }
    }

    /// Another of several replies in one document begins: they are answers of their own, so their counts are summed.
    pub(super) fn another(&mut self) {
        if self.known != 0 {
            self.earlier = Some(Box::new(self.values));
        }
    }

    /// The last value of a field.
    pub(super) const fn get(&self, count: Count) -> Option<u64> {
        self.at(count as usize)
    }

    /// The last value of the field at this place of the dialect's names.
    pub(super) const fn at(&self, place: usize) -> Option<u64> {
        if self.known >> place & 1 == 1 { Some(self.values[place]) } else { None }
    }

    /// Both together, or the one that is known.
    pub(super) fn sum(&self, one: usize, other: usize) -> Option<u64> {
        match (self.at(one), self.at(other)) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        }
    }

    /// The first of these fields that is known.
    pub(super) fn first(&self, counts: &[Count]) -> Option<u64> {
        counts.iter().find_map(|&count| self.get(count))
    }

    /// The same of the fields at these places of the dialect's names.
    pub(super) fn first_at(&self, places: &[usize]) -> Option<u64> {
        places.iter().find_map(|&place| self.at(place))
    }

    /// The output with its reasoning: some leave it out, and the total proves that they do.
    pub(super) fn with_reasoning(
        &self,
        input: Option<u64>,
        output: Option<u64>,
        reasoning: Option<u64>,
    ) -> Option<u64> {
        let visible = output?;
        if let (Some(input), Some(hidden), Some(total)) = (input, reasoning, self.get(Count::TotalTokens))
            && hidden > 0
            && total.checked_sub(input).and_then(|rest| rest.checked_sub(visible)) == Some(hidden)
        {
            return Some(visible + hidden);
        }
        Some(visible)
    }

    /// All known fields by their names.
    pub(super) fn raw(&self) -> Vec<(&'static str, u64)> {
        self.named(&NAMES)
    }

    /// All known fields, by a dialect's own names.
    pub(super) fn named(&self, names: &[&'static str]) -> Vec<(&'static str, u64)> {
        let mut known = Vec::with_capacity(self.known.count_ones() as usize);
        known.extend(names.iter().enumerate().filter_map(|(place, name)| Some((*name, self.at(place)?))));
        known
    }
}

/// All input tokens, of dialects whose `input` is without what was read from a cache or written to one.
pub(super) fn with_cache(input: Option<u64>, cached: Option<u64>, cache_write: Option<u64>) -> Option<u64> {
    Some(input?.saturating_add(cached.unwrap_or(0)).saturating_add(cache_write.unwrap_or(0)))
}

/// Fields for a tree: every count, at each of these places of a `usage` object.
pub(super) fn fields(places: &[&str]) -> Vec<(String, u8, Want)> {
    named(places, &NAMES)
}

/// Fields for a tree: a dialect's own counts, at each of these places; an empty one is the document itself.
pub(super) fn named(places: &[&str], names: &[&str]) -> Vec<(String, u8, Want)> {
    let path = |place: &str, name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    let at = |place| (COUNT..).zip(names).map(move |(field, name)| (path(place, name), field, Want::Count));
    places.iter().copied().flat_map(at).collect()
}

/// Fields for a tree: of a dialect's own counts these, at these places.
pub(super) fn placed(places: &[(&str, Range<usize>)], names: &[&str]) -> Vec<(String, u8, Want)> {
    let at = |(place, some): &(&str, Range<usize>)| named(&[place], names).into_iter().take(some.end).skip(some.start);
    places.iter().flat_map(at).collect()
}

/// No answer has as many tokens. What says so is broken, and summed up it would wrap the counters of a process: a counter
/// that falls, and `cached_input` above `input`. A million such answers still fit 64 bits.
const MOST: u64 = 1_000_000_000_000;

/// A count: digits, or a float's whole part. Absent if negative, more than [`MOST`] or no number.
fn number(text: &[u8]) -> Option<u64> {
    // Up to 12 digits are below it: nearly every count there is, in streams that repeat it with each event.
    if text.len() <= 12 && text.iter().all(u8::is_ascii_digit) {
        return Some(text.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0')));
    }
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(count) = text.parse() {
        return Some(count).filter(|&count| count <= MOST);
    }
    let float: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
    (0.0..=MOST as f64).contains(&float).then_some(float as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_at_their_counts() {
        assert_eq!(NAMES[Count::PromptTokens as usize], "prompt_tokens");
        assert_eq!(NAMES[Count::InputTokens as usize], "input_tokens");
        assert_eq!(NAMES[Count::CacheRead as usize], "cache_read_input_tokens");
        assert_eq!(NAMES[Count::CacheCreation1h as usize], "cache_creation.ephemeral_1h_input_tokens");
    }

    #[test]
    fn the_last_number_wins_and_null_takes_nothing_away() {
        let mut counts = Counts::default();
        for value in [Value::Number(b"7"), Value::Number(b"12.0"), Value::Null, Value::Number(b"-1")] {
            counts.take(COUNT, value);
        }
        assert_eq!(counts.get(Count::PromptTokens), Some(12));
        assert_eq!(counts.get(Count::CompletionTokens), None);
        assert_eq!(counts.raw(), [("prompt_tokens", 12)]);
    }

    #[test]
    fn several_replies_in_one_document_are_summed() {
        let mut counts = Counts::default();
        for (value, total) in [(b"3", 3), (b"4", 4)] {
            counts.take(COUNT, Value::Number(value));
            assert_eq!(counts.get(Count::PromptTokens), Some(total));
        }
        for total in [6, 8] {
            counts.another();
            counts.take(COUNT, Value::Number(b"9"));
            counts.take(COUNT, Value::Number(b"2"));
            assert_eq!(counts.get(Count::PromptTokens), Some(total), "the last of each");
        }
    }

    #[test]
    fn numbers_are_whole_and_not_negative() {
        let cases: [(&str, Option<u64>); 11] = [
            ("0", Some(0)),
            ("999999999999", Some(MOST - 1)),
            ("1000000000000", Some(MOST)),
            ("1e12", Some(MOST)),
            ("1000000000001", None),
            ("18446744073709551615", None),
            ("1e3", Some(1000)),
            ("2.9", Some(2)),
            ("-1", None),
            ("1e99", None),
            ("x", None),
        ];
        for (text, count) in cases {
            assert_eq!(number(text.as_bytes()), count, "{text}");
        }
    }
}
