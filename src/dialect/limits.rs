//! Rate limits as providers state them in response headers.
//!
//! | headers | by | reset |
//! |---|---|---|
//! | `x-ratelimit-{limit,remaining,reset}-{requests,tokens,input-images,tokens_usage_based}` | OpenAI, Groq | a duration: `6ms`, `17.4s`, `1m12s` |
//! | the same, with `x-ratelimit-renewalperiod-…` | Azure | a whole number: milliseconds of older deployments, seconds of newer ones |
//! | `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}` | Anthropic | an instant by the provider's clock |
//! | `x-ratelimit-{limit,remaining}-{req-minute,tokens-minute,tokens-month}` | Mistral | – |
//! | `ratelimitbysize-{limit,remaining,reset}`, `x-ratelimitbysize-{limit,remaining}-{minute,month}` | Mistral before: tokens, the first a minute's | seconds |
//! | `x-ratelimit-{limit,remaining,reset}-{requests,tokens}-{minute,hour,day}` | Cerebras, the Hugging Face router | seconds |
//! | `x-ratelimit-{limit,remaining,reset}` | Together: requests; OpenRouter | seconds; a Unix time if it is that large |
//!
//! An instant is made a span by the response's own `Date`, which comes from the same clock; without one it is left out, since
//! our clock and theirs differ. A bare number where a duration belongs has no unit unless it is 0, and is left out. What
//! has no place in [`Kind`] is not taken (`x-ratelimit: false`, `x-ratelimit-tokens-query-cost`).

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header::DATE};

use super::reported::YEAR;
use crate::clock::Nanos;

/// What is limited: a closed set, fit to be a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum Kind {
    Requests,
    Tokens,
    InputTokens,
    OutputTokens,
    InputImages,
    TokensUsageBased,
    RequestsMinute,
    RequestsHour,
    RequestsDay,
    RequestsMonth,
    TokensMinute,
    TokensHour,
    TokensDay,
    TokensMonth,
}

impl Kind {
    /// Every kind, in the order of records.
    pub const ALL: [Self; 14] = [
        Self::Requests,
        Self::Tokens,
        Self::InputTokens,
        Self::OutputTokens,
        Self::InputImages,
        Self::TokensUsageBased,
        Self::RequestsMinute,
        Self::RequestsHour,
        Self::RequestsDay,
        Self::RequestsMonth,
        Self::TokensMinute,
        Self::TokensHour,
        Self::TokensDay,
        Self::TokensMonth,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::InputImages => "input_images",
            Self::TokensUsageBased => "tokens_usage_based",
            Self::RequestsMinute => "requests_minute",
            Self::RequestsHour => "requests_hour",
            Self::RequestsDay => "requests_day",
            Self::RequestsMonth => "requests_month",
            Self::TokensMinute => "tokens_minute",
            Self::TokensHour => "tokens_hour",
            Self::TokensDay => "tokens_day",
            Self::TokensMonth => "tokens_month",
        }
    }

    /// By the provider's word for it.
    fn of(subject: &str) -> Option<Self> {
        Some(match subject {
            "" | "requests" => Self::Requests,
            "tokens" => Self::Tokens,
            "input-tokens" => Self::InputTokens,
            "output-tokens" => Self::OutputTokens,
            "input-images" => Self::InputImages,
            "tokens_usage_based" => Self::TokensUsageBased,
            "requests-minute" | "req-minute" => Self::RequestsMinute,
            "requests-hour" | "req-hour" => Self::RequestsHour,
            "requests-day" | "req-day" => Self::RequestsDay,
            "requests-month" | "req-month" => Self::RequestsMonth,
            "tokens-minute" => Self::TokensMinute,
            "tokens-hour" => Self::TokensHour,
            "tokens-day" => Self::TokensDay,
            "tokens-month" => Self::TokensMonth,
            _ => return None,
        })
    }
}

/// One limit, as far as the response states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// What is limited.
    pub kind: Kind,
    /// How much of it there may be.
    pub limit: Option<u64>,
    /// How much is left.
    pub remaining: Option<u64>,
    /// From the making of the response until the limit is whole again (or its window ends), as the provider has it.
    pub reset: Option<Nanos>,
}

/// The limits that these response headers state, in the order of [`Kind::ALL`]; a kind of which nothing could be read is
/// not among them.
pub fn rate_limits(headers: &HeaderMap) -> Vec<RateLimit> {
    let mut found: Vec<RateLimit> = Vec::new();
    for (name, value) in headers {
        let Some((field, kind, unit)) = place(name.as_str()) else { continue };
        let Some(value) = value.to_str().ok().map(first) else { continue };
        let known = found.iter().position(|limit| limit.kind == kind).unwrap_or_else(|| {
            found.push(RateLimit { kind, limit: None, remaining: None, reset: None });
            found.len() - 1
        });
        let limit = &mut found[known];
        match field {
            Field::Limit => limit.limit = count(value),
            Field::Remaining => limit.remaining = count(value),
            Field::Reset => limit.reset = reset(value, unit, headers),
        }
    }
    for limit in &mut found {
        if limit.reset.is_none() {
            limit.reset = azure_reset(limit, headers);
        }
    }
    found.retain(|limit| limit.limit.is_some() || limit.remaining.is_some() || limit.reset.is_some());
    found.sort_unstable_by_key(|limit| limit.kind);
    found
}

#[derive(Clone, Copy)]
enum Field {
    Limit,
    Remaining,
    Reset,
}

/// What a reset without a unit of its own is counted in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bare {
    Seconds,
    Unknown,
}

/// What a header is of; absent if of no limit.
fn place(name: &str) -> Option<(Field, Kind, Bare)> {
    // Most headers are of no limit, which their first letter tells.
    if !matches!(name.as_bytes(), [b'a' | b'r' | b'x', ..]) {
        return None;
    }
    if let Some(rest) = name.strip_prefix("anthropic-ratelimit-") {
        let (subject, field) = rest.rsplit_once('-')?;
        return Some((Field::of(field)?, Kind::of(subject)?, Bare::Unknown));
    }
    if let Some(rest) = name.strip_prefix("ratelimitbysize-") {
        return Some((Field::of(rest)?, Kind::TokensMinute, Bare::Seconds));
    }
    if let Some(rest) = name.strip_prefix("x-ratelimitbysize-") {
        let (field, window) = rest.split_once('-')?;
        let kind = match window {
            "minute" => Kind::TokensMinute,
            "month" => Kind::TokensMonth,
            _ => return None,
        };
        return Some((Field::of(field)?, kind, Bare::Seconds));
    }
    let rest = name.strip_prefix("x-ratelimit-")?;
    let (field, subject) = rest.split_once('-').unwrap_or((rest, ""));
    let kind = Kind::of(subject)?;
    let bare = if subject.is_empty() || kind >= Kind::RequestsMinute { Bare::Seconds } else { Bare::Unknown };
    Some((Field::of(field)?, kind, bare))
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "limit" => Self::Limit,
            "remaining" => Self::Remaining,
            "reset" => Self::Reset,
            _ => return None,
        })
    }
}

/// The first of several values; what stands behind a semicolon are its parameters.
fn first(value: &str) -> &str {
    value.split([',', ';']).next().unwrap_or_default().trim()
}

/// A number of requests or tokens, a fraction of which is none. Some say "no limit" by a number near 2⁶³.
fn count(text: &str) -> Option<u64> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    whole.bytes().all(|byte| byte.is_ascii_digit()).then(|| whole.parse().ok()).flatten()
}

fn reset(text: &str, bare: Bare, headers: &HeaderMap) -> Option<Nanos> {
    if let Ok(instant) = humantime::parse_rfc3339(text) {
        return until(instant, headers);
    }
    let Ok(number) = text.parse::<f64>() else { return duration(text) };
    match bare {
        _ if number == 0.0 => Some(Nanos::ZERO),
        // No limit takes thirty years to become whole: it is a Unix time, in seconds or in milliseconds.
        Bare::Seconds if number >= 1e12 => until(at(number / 1e3)?, headers),
        Bare::Seconds if number >= 1e9 => until(at(number)?, headers),
        Bare::Seconds => nanos(number),
        Bare::Unknown => None,
    }
}

fn at(unix: f64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(unix).ok()?)
}

/// From the response's making to this instant, both by the provider's clock; zero if it has passed.
fn until(instant: SystemTime, headers: &HeaderMap) -> Option<Nanos> {
    let made = date(headers.get(DATE)?.to_str().ok()?)?;
    instant.duration_since(made).map_or(Some(Nanos::ZERO), span)
}

/// Azure's resets are whole numbers, which older deployments meant in milliseconds and newer ones in seconds: a limit of 50
/// a minute, one taken, was seen to say `1`; one of 120 a minute `500`. The unit is the one that is nearer to how long what
/// was taken takes to come back. Absent without a limit, a rest and a renewal period to tell by.
fn azure_reset(limit: &RateLimit, headers: &HeaderMap) -> Option<Nanos> {
    let (reset, period) = match limit.kind {
        Kind::Requests => ("x-ratelimit-reset-requests", "x-ratelimit-renewalperiod-requests"),
        Kind::Tokens => ("x-ratelimit-reset-tokens", "x-ratelimit-renewalperiod-tokens"),
        _ => return None,
    };
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let (said, period) = (number(reset)?, number(period)?);
    let (most, rest) = (limit.limit.filter(|most| *most > 0)?, limit.remaining?);
    let needed = period * most.saturating_sub(rest) as f64 / most as f64;
    let seconds = (said - needed).abs() <= (said / 1e3 - needed).abs();
    nanos(if seconds { said } else { said / 1e3 })
}

/// A duration of several parts as Go writes it: `1m12s`, `17.4s`, `6ms`.
fn duration(text: &str) -> Option<Nanos> {
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let number = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (value, unit) = rest.split_at(number);
        let end = unit.find(|char: char| char.is_ascii_digit()).unwrap_or(unit.len());
        let seconds = match &unit[..end] {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        sum += value.parse::<f64>().ok()? * seconds;
        rest = &unit[end..];
    }
    if text.is_empty() { None } else { nanos(sum) }
}

/// A span of this many seconds; absent if it is negative or no span.
fn nanos(seconds: f64) -> Option<Nanos> {
    Duration::try_from_secs_f64(seconds).ok().and_then(span)
}

/// A span that a limit may take to become whole: the longest windows there are have a month.
fn span(duration: Duration) -> Option<Nanos> {
    (duration <= YEAR).then(|| duration.into())
}

/// `Mon, 09 Jun 2025 21:46:41 GMT`, the only form in which dates are sent today.
fn date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let [day, month, year, time, zone] = std::array::from_fn(|_| words.next());
    let month = MONTHS.iter().position(|name| Some(*name) == month)? + 1;
    if zone? != "GMT" {
        return None;
    }
    humantime::parse_rfc3339(&format!("{}-{month:02}-{}T{}Z", year?, day?, time?)).ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn read(headers: &[(&str, &str)]) -> Vec<RateLimit> {
        let pairs = headers.iter().map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        });
        rate_limits(&pairs.collect())
    }

    fn limit(kind: Kind, limit: u64, remaining: u64, reset_ms: Option<u64>) -> RateLimit {
        let reset = reset_ms.map(|ms| Nanos(ms * 1_000_000));
        RateLimit { kind, limit: Some(limit), remaining: Some(remaining), reset }
    }

    #[test]
    fn openai_gives_durations() {
        let said = read(&[
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "29000"),
            ("x-ratelimit-reset-tokens", "1m12s"),
            ("x-ratelimit-remaining-input-images", "49"),
            ("x-request-id", "r"),
        ]);
        let images = RateLimit { kind: Kind::InputImages, limit: None, remaining: Some(49), reset: None };
        assert_eq!(
            said,
            [limit(Kind::Requests, 500, 499, Some(120)), limit(Kind::Tokens, 30_000, 29_000, Some(72_000)), images]
        );
    }

    #[test]
    fn durations_have_parts_and_units() {
        let cases: [(&str, Option<u64>); 14] = [
            ("6ms", Some(6_000_000)),
            ("0s", Some(0)),
            ("0", Some(0)),
            ("17.4s", Some(17_400_000_000)),
            ("17.399999999s", Some(17_399_999_999)),
            ("2m59.5s", Some(179_500_000_000)),
            ("1h0m1s", Some(3_601_000_000_000)),
            ("1d2h", Some(93_600_000_000_000)),
            ("5µs", Some(5_000)),
            ("12", None),
            ("12x", None),
            ("s", None),
            ("-1s", None),
            ("", None),
        ];
        for (text, nanos) in cases {
            assert_eq!(reset(text, Bare::Unknown, &HeaderMap::new()), nanos.map(Nanos), "{text:?}");
        }
    }

    #[test]
    fn azure_counts_in_milliseconds_or_in_seconds() {
        let azure = |most, rest, said| {
            read(&[
                ("x-ratelimit-limit-requests", most),
                ("x-ratelimit-remaining-requests", rest),
                ("x-ratelimit-reset-requests", said),
                ("x-ratelimit-renewalperiod-requests", "60"),
            ])[0]
                .reset
        };
        let ms = |ms: u64| Some(Nanos(ms * 1_000_000));
        assert_eq!(azure("120", "119", "500"), ms(500));
        assert_eq!(azure("50", "49", "1"), ms(1_000));
        assert_eq!(azure("2500", "2499", "24"), ms(24));
        assert_eq!(azure("60", "30", "30"), ms(30_000));
        assert_eq!(azure("60", "59", "0"), ms(0));
        assert_eq!(azure("0", "0", "7"), None);
        let bare = read(&[("x-ratelimit-limit-requests", "9"), ("x-ratelimit-reset-requests", "7")]);
        assert_eq!(bare[0].reset, None, "without a period nobody knows the unit");
    }

    #[test]
    fn an_instant_counts_from_the_responses_own_date() {
        let said = [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "48"),
            ("anthropic-ratelimit-requests-reset", "2026-03-01T00:00:02Z"),
            ("anthropic-ratelimit-input-tokens-limit", "1000"),
            ("anthropic-ratelimit-input-tokens-remaining", "900"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-02-28T23:59:58Z"),
            ("anthropic-ratelimit-output-tokens-limit", "100"),
            ("anthropic-ratelimit-output-tokens-remaining", "90"),
            ("anthropic-ratelimit-unified-5h-reset", "1760000000"),
        ];
        let date = [("date", "Sat, 28 Feb 2026 23:59:59 GMT")];
        let kinds = [
            limit(Kind::Requests, 50, 48, Some(3_000)),
            limit(Kind::InputTokens, 1_000, 900, Some(0)),
            limit(Kind::OutputTokens, 100, 90, None),
        ];
        assert_eq!(read(&[&said[..], &date].concat()), kinds);
        for date in ["Sat, 28 Feb 2026 23:59:59 CET", "Saturday, 28-Feb-26 23:59:59 GMT", "now", ""] {
            assert_eq!(read(&[&said[..], &[("date", date)]].concat())[0].reset, None, "{date}");
        }
        assert_eq!(read(&said)[0].reset, None);
    }

    #[test]
    fn windows_have_kinds_of_their_own() {
        let said = read(&[
            ("x-ratelimit-limit-req-minute", "60"),
            ("x-ratelimit-remaining-req-minute", "59"),
            ("x-ratelimit-limit-tokens-month", "1000000"),
            ("x-ratelimit-remaining-tokens-month", "9223372036854767616"),
            ("x-ratelimit-tokens-query-cost", "12"),
            ("x-ratelimit-limit-requests-day", "14400"),
            ("x-ratelimit-remaining-requests-day", "14399"),
            ("x-ratelimit-reset-requests-day", "33011.382867"),
            ("ratelimitbysize-limit", "500"),
            ("ratelimitbysize-remaining", "400"),
            ("ratelimitbysize-reset", "25"),
        ]);
        let mut day = limit(Kind::RequestsDay, 14_400, 14_399, None);
        day.reset = Some(Nanos(33_011_382_867_000));
        assert_eq!(
            said,
            [
                limit(Kind::RequestsMinute, 60, 59, None),
                day,
                limit(Kind::TokensMinute, 500, 400, Some(25_000)),
                limit(Kind::TokensMonth, 1_000_000, 9_223_372_036_854_767_616, None),
            ]
        );
        let older = [("x-ratelimitbysize-limit-month", "7"), ("x-ratelimitbysize-remaining-month", "6")];
        assert_eq!(read(&older), [limit(Kind::TokensMonth, 7, 6, None)]);
    }

    #[test]
    fn a_bare_limit_is_of_requests() {
        let together = [
            ("x-ratelimit", "false"),
            ("x-ratelimit-limit", "30"),
            ("x-ratelimit-remaining", "59"),
            ("x-ratelimit-reset", "2"),
        ];
        assert_eq!(read(&together), [limit(Kind::Requests, 30, 59, Some(2_000))]);
        let date = ("date", "Fri, 02 Jan 1970 00:00:00 GMT");
        let date_2001 = ("date", "Sun, 09 Sep 2001 01:46:40 GMT");
        for (reset, date, ms) in [
            ("1000000003", date_2001, Some(3_000)),
            ("1000000003000", date_2001, Some(3_000)),
            ("1000000000", date_2001, Some(0)),
            ("9999", date, Some(9_999_000)),
        ] {
            let said = read(&[("x-ratelimit-reset", reset), date]);
            assert_eq!(said[0].reset, ms.map(|ms: u64| Nanos(ms * 1_000_000)), "{reset}");
        }
        assert_eq!(read(&[("x-ratelimit-reset", "1000000003")]), [], "an instant without a clock");
    }

    #[test]
    fn nothing_takes_longer_than_a_year_to_become_whole() {
        for (name, reset) in [
            ("x-ratelimit-reset-tokens", "18446744073709551615s"),
            ("x-ratelimit-reset-tokens", "366d"),
            ("x-ratelimit-reset", "999999999"),
            ("anthropic-ratelimit-tokens-reset", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(read(&[(name, reset), ("date", "Sat, 28 Feb 2026 23:59:59 GMT")]), [], "{reset}");
        }
        assert_eq!(read(&[("x-ratelimit-reset-tokens", "365d")])[0].reset, Some(Nanos(365 * 86_400_000_000_000)));
    }

    #[test]
    fn what_is_no_number_is_not_there() {
        for value in ["", "x", "-1", "1e3", "99999999999999999999999", "∞"] {
            assert_eq!(read(&[("x-ratelimit-remaining-tokens", value)]), [], "{value:?}");
        }
        assert_eq!(read(&[("x-ratelimit-remaining-tokens", "12.9, 13;w=60")])[0].remaining, Some(12));
        assert_eq!(read(&[]), []);
    }

    proptest! {
        /// Whatever a header says: no panic, each kind once, and nothing of what says nothing.
        #[test]
        fn any_value_is_read_or_left(
            values in proptest::collection::vec(
                prop_oneof![
                    "[ -~]{0,24}",
                    "[0-9]{0,24}(\\.[0-9]{0,12})?",
                    "([0-9]{0,20}(d|h|m|s|ms|us|ns)?){0,4}",
                    "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
                ],
                9,
            ),
        ) {
            let names = [
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
                "x-ratelimit-renewalperiod-requests",
                "x-ratelimit-reset",
                "x-ratelimit-reset-tokens-day",
                "anthropic-ratelimit-tokens-reset",
                "ratelimitbysize-reset",
                "date",
            ];
            let headers: Vec<_> = names.iter().copied().zip(values.iter().map(String::as_str)).collect();
            let said = read(&headers);
            prop_assert!(said.is_sorted_by(|one, next| one.kind < next.kind));
            prop_assert!(said.iter().all(|one| one.limit.or(one.remaining).is_some() || one.reset.is_some()));
        }
    }
}
