//! What will happen to one request, decided before its first byte leaves: pure, and the same for the same seed.

use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use http::HeaderMap;
use serde::Deserialize;

use super::{Reports, profile::Profile};
use crate::clock::Nanos;

/// The parts of a request's body that the simulation looks at.
#[derive(Clone, Default, Debug, Deserialize)]
pub(super) struct Ask {
    pub(super) model: Option<String>,
    stream: Option<bool>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    max_output_tokens: Option<u32>,
    stream_options: Option<StreamOptions>,
}

#[derive(Clone, Default, Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl Ask {
    pub(super) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    pub(super) fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage) == Some(true)
    }

    fn max_tokens(&self) -> Option<u32> {
        self.max_completion_tokens.or(self.max_output_tokens).or(self.max_tokens)
    }
}

/// A scripted fault. Numbers are output events sent before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fail {
    ErrorEvent(u32),
    Cut(u32),
    Truncate(u32),
    Garbage(u32),
    Status(u16),
    CloseBeforeHead,
}

impl Fail {
    /// Output events before it; absent for faults before the head.
    pub(super) const fn after(self) -> Option<u32> {
        match self {
            Self::ErrorEvent(after) | Self::Cut(after) | Self::Truncate(after) | Self::Garbage(after) => Some(after),
            Self::Status(_) | Self::CloseBeforeHead => None,
        }
    }

    /// The outcome it is meant to have, in the contract's words.
    pub(super) const fn outcome(self) -> &'static str {
        match self {
            Self::ErrorEvent(_) => "error_event",
            Self::Cut(_) | Self::CloseBeforeHead => "upstream_reset",
            Self::Truncate(_) | Self::Garbage(_) => "truncated",
            Self::Status(429 | 529) => "rate_limited",
            Self::Status(400..=499) => "upstream_4xx",
            Self::Status(_) => "upstream_5xx",
        }
    }
}

/// Why generation stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finish {
    Stop,
    Length,
    Tool,
}

/// Which part of the reply an output event belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Reasoning,
    Text,
    /// The event that names the tool.
    ToolName,
    ToolArguments,
}

/// One output event to be: when it is due, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Beat {
    /// Counted from the start of generation.
    pub(super) due: Nanos,
    pub(super) kind: Kind,
    /// Its tokens are `first .. first + tokens` of the reply.
    pub(super) first: u32,
    pub(super) tokens: u32,
    /// Nothing of its kind follows.
    pub(super) last_of_kind: bool,
}

/// Everything decided about one request.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) fail: Option<Fail>,
    pub(super) finish: Finish,
    pub(super) output_tokens: u32,
    pub(super) reasoning_tokens: u32,
    pub(super) usage: bool,
    pub(super) reports: Reports,
    pub(super) early_prelude: bool,
    pub(super) tool_call: bool,
    tokens_per_event: u32,
    /// Nanoseconds.
    ttft: f64,
    /// Nanoseconds per token.
    interval: f64,
    jitter: f64,
    stall: Option<(u32, Duration)>,
    rng: Rng,
}

impl Script {
    /// Decides about request `number` (counted from 1 in order of arrival).
    ///
    /// # Errors
    /// Names the header whose value can't be read.
    pub(super) fn new(
        profile: &Profile,
        headers: &HeaderMap,
        ask: &Ask,
        input_tokens: u64,
        number: u64,
    ) -> Result<Self, String> {
        // The odd constant is 2^64 over the golden ratio: neighbouring numbers get unrelated seeds.
        let mut rng = Rng::with_seed(profile.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        rng.u64(..);

        let ttft_ms = number_of(headers, "x-sim-ttft-ms")?.unwrap_or(profile.ttft.as_secs_f64() * 1e3);
        let speed = number_of(headers, "x-sim-tps")?.unwrap_or(profile.tokens_per_second);
        let jitter = number_of(headers, "x-sim-jitter")?.unwrap_or(profile.jitter).max(0.0);
        let tokens_per_event = count_of(headers, "x-sim-tokens-per-event")?.unwrap_or(profile.tokens_per_event).max(1);
        let wanted = count_of(headers, "x-sim-tokens")?.unwrap_or(profile.output_tokens).max(1);
        let output_tokens = ask.max_tokens().map_or(wanted, |max| max.clamp(1, wanted));
        let reasoning = count_of(headers, "x-sim-reasoning")?.unwrap_or(profile.reasoning_tokens);
        let reasoning_tokens = reasoning.min(output_tokens);
        let usage = switch_of(headers, "x-sim-usage")?.unwrap_or(profile.usage);
        let reports = match text_of(headers, "x-sim-reports")? {
            Some(text) => {
                Reports::from_str(text, false).map_err(|_| format!("x-sim-reports: not understood: {text}"))?
            }
            None => profile.reports,
        };
        let early_prelude = switch_of(headers, "x-sim-early-prelude")?.unwrap_or(profile.early_prelude);
        let tool_call = switch_of(headers, "x-sim-tool")?.unwrap_or(profile.tool_call);

        let prefill = profile.prefill_tokens_per_second.map_or(0.0, |speed| input_tokens as f64 * per_second(speed));
        let ttft = (ttft_ms.max(0.0) * 1e6 + prefill) * log_normal(&mut rng, jitter);

        // Every draw is made for every request, so that a header or a rate of one kind leaves the others' draws alone.
        let events = output_tokens.div_ceil(tokens_per_event);
        let mut draw = |rate: f64| (rng.f64() < rate, rng.u32(0..events));
        let limited = draw(profile.rate_limit_rate);
        let broken = draw(profile.server_error_rate);
        let cut = draw(profile.cut_rate);
        let error = draw(profile.error_rate);
        let stall = draw(profile.stall_rate);
        let by_chance = [
            limited.0.then_some(Fail::Status(429)),
            broken.0.then_some(Fail::Status(500)),
            cut.0.then_some(Fail::Cut(cut.1)),
            error.0.then_some(Fail::ErrorEvent(error.1)),
        ];
        let fail = match text_of(headers, "x-sim-fail")? {
            Some(text) => parse_fail(text)?,
            None => by_chance.into_iter().flatten().next(),
        };
        let stall = match text_of(headers, "x-sim-stall")? {
            Some(text) => Some(parse_stall(text)?),
            None => stall.0.then_some((stall.1, profile.stall)),
        };

        // A fault after more events than there are is never reached.
        let answer_tokens = output_tokens - reasoning_tokens;
        let events = reasoning_tokens.div_ceil(tokens_per_event) + answer_tokens.div_ceil(tokens_per_event);
        let fail = fail.filter(|fail| fail.after().is_none_or(|after| after <= events));

        let finish = match () {
            () if output_tokens < wanted || answer_tokens == 0 => Finish::Length,
            () if tool_call => Finish::Tool,
            () => Finish::Stop,
        };
        Ok(Self {
            fail,
            finish,
            output_tokens,
            reasoning_tokens,
            usage,
            reports,
            early_prelude,
            tool_call,
            tokens_per_event,
            ttft,
            interval: per_second(speed),
            jitter,
            stall,
            rng,
        })
    }

    /// Tokens that the event naming a tool stands for.
    pub(super) fn name_tokens(&self) -> u32 {
        self.tokens_per_event.min(self.output_tokens - self.reasoning_tokens)
    }

    /// The output events in order.
    pub(super) fn beats(&self) -> Beats {
        Beats {
            output_tokens: self.output_tokens,
            reasoning_tokens: self.reasoning_tokens,
            tool_call: self.tool_call,
            tokens_per_event: self.tokens_per_event,
            interval: self.interval,
            jitter: self.jitter,
            stall: self.stall,
            rng: self.rng.clone(),
            token: 0,
            event: 0,
            due: self.ttft,
        }
    }
}

/// The output events of a script, each due a fixed time after the start of generation: an event that leaves late does
/// not move the ones after it.
#[derive(Debug)]
pub(super) struct Beats {
    output_tokens: u32,
    reasoning_tokens: u32,
    tool_call: bool,
    tokens_per_event: u32,
    interval: f64,
    jitter: f64,
    stall: Option<(u32, Duration)>,
    rng: Rng,
    token: u32,
    event: u32,
    due: f64,
}

impl Iterator for Beats {
    type Item = Beat;

    fn next(&mut self) -> Option<Beat> {
        if self.token >= self.output_tokens {
            return None;
        }
        let reasons = self.token < self.reasoning_tokens;
        let end = if reasons { self.reasoning_tokens } else { self.output_tokens };
        let tokens = self.tokens_per_event.min(end - self.token);
        let kind = match () {
            () if reasons => Kind::Reasoning,
            () if !self.tool_call => Kind::Text,
            () if self.token == self.reasoning_tokens => Kind::ToolName,
            () => Kind::ToolArguments,
        };
        if self.event > 0 {
            self.due += f64::from(tokens) * self.interval * log_normal(&mut self.rng, self.jitter);
        }
        if let Some((event, span)) = self.stall
            && event == self.event
        {
            self.due += span.as_secs_f64() * 1e9;
        }
        let first = self.token;
        self.token += tokens;
        self.event += 1;
        Some(Beat { due: nanos(self.due), kind, first, tokens, last_of_kind: self.token == end })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, not negative, and it saturates")]
fn nanos(value: f64) -> Nanos {
    Nanos(value.round() as u64)
}

/// Nanoseconds that one token takes; 0 without pacing.
fn per_second(speed: f64) -> f64 {
    if speed.is_finite() && speed > 0.0 { 1e9 / speed } else { 0.0 }
}

/// A log-normal factor of mean 1, so that jitter does not change the mean speed.
fn log_normal(rng: &mut Rng, sigma: f64) -> f64 {
    if sigma <= 0.0 {
        return 1.0;
    }
    // Box–Muller; 1 − u keeps the logarithm away from 0.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
    (sigma * normal - sigma * sigma / 2.0).exp()
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, String> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(|text| Some(text.trim())).map_err(|_| format!("{name}: not text"))
}

fn number_of(headers: &HeaderMap, name: &str) -> Result<Option<f64>, String> {
    let Some(text) = text_of(headers, name)? else { return Ok(None) };
    match text.parse() {
        Ok(number) if f64::is_finite(number) => Ok(Some(number)),
        _ => Err(format!("{name}: not a number: {text}")),
    }
}

fn count_of(headers: &HeaderMap, name: &str) -> Result<Option<u32>, String> {
    let Some(text) = text_of(headers, name)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{name}: not a count: {text}"))
}

fn switch_of(headers: &HeaderMap, name: &str) -> Result<Option<bool>, String> {
    match text_of(headers, name)? {
        None => Ok(None),
        Some("on" | "1" | "true") => Ok(Some(true)),
        Some("off" | "0" | "false") => Ok(Some(false)),
        Some(text) => Err(format!("{name}: neither on nor off: {text}")),
    }
}

fn parse_fail(text: &str) -> Result<Option<Fail>, String> {
    let wrong = || format!("x-sim-fail: not understood: {text}");
    let (name, event) = match text.split_once('@') {
        Some((name, event)) => (name, event.parse().map_err(|_| wrong())?),
        None => (text, 0),
    };
    Ok(Some(match name {
        "none" => return Ok(None),
        "error_event" => Fail::ErrorEvent(event),
        "cut" => Fail::Cut(event),
        "truncate" => Fail::Truncate(event),
        "garbage" => Fail::Garbage(event),
        "close_before_head" => Fail::CloseBeforeHead,
        _ => match name.strip_prefix("status:").and_then(|status| status.parse().ok()) {
            Some(status @ 400..=599) => Fail::Status(status),
            _ => return Err(wrong()),
        },
    }))
}

fn parse_stall(text: &str) -> Result<(u32, Duration), String> {
    text.split_once('@')
        .and_then(|(event, span)| Some((event.parse().ok()?, humantime::parse_duration(span).ok()?)))
        .ok_or_else(|| format!("x-sim-stall: not EVENT@DURATION: {text}"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn script(profile: &Profile, pairs: &[(&'static str, &'static str)]) -> Script {
        Script::new(profile, &headers(pairs), &Ask::default(), 0, 1).unwrap()
    }

    #[test]
    fn ten_thousand_deadlines_do_not_drift() {
        let script = script(&Profile::default(), &[("x-sim-tokens", "10000"), ("x-sim-tps", "700")]);
        let beats: Vec<Beat> = script.beats().collect();
        assert_eq!(beats.len(), 10_000);
        for (k, beat) in beats.iter().enumerate() {
            let exact = 200_000_000 + (k as u64 * 1_000_000_000 + 350) / 700;
            assert!(beat.due.0.abs_diff(exact) <= 1, "event {k}: {} for {exact}", beat.due.0);
        }
    }

    #[test]
    fn jitter_keeps_the_mean_and_repeats_with_the_seed() {
        let profile = Profile { jitter: 0.5, output_tokens: 50_001, ..Profile::default() };
        let due = |number| {
            let script = Script::new(&profile, &HeaderMap::new(), &Ask::default(), 0, number).unwrap();
            script.beats().map(|beat| beat.due.0).collect::<Vec<_>>()
        };
        let (first, again, other) = (due(1), due(1), due(2));
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert!(first.is_sorted());
        let mean = (first[50_000] - first[0]) as f64 / 50_000.0;
        assert!((mean / 12_500_000.0 - 1.0).abs() < 0.02, "mean gap {mean} ns");
    }

    #[test]
    fn tokens_fill_events_and_never_mix_kinds() {
        let profile = Profile { output_tokens: 10, reasoning_tokens: 4, tokens_per_event: 3, ..Profile::default() };
        let shape = |script: &Script| script.beats().map(|b| (b.kind, b.first, b.tokens)).collect::<Vec<_>>();
        assert_eq!(
            shape(&script(&profile, &[])),
            [(Kind::Reasoning, 0, 3), (Kind::Reasoning, 3, 1), (Kind::Text, 4, 3), (Kind::Text, 7, 3)]
        );
        assert_eq!(
            shape(&script(&profile, &[("x-sim-tool", "1"), ("x-sim-reasoning", "0")])),
            [
                (Kind::ToolName, 0, 3),
                (Kind::ToolArguments, 3, 3),
                (Kind::ToolArguments, 6, 3),
                (Kind::ToolArguments, 9, 1)
            ]
        );
    }

    #[test]
    fn the_request_bounds_the_output() {
        let ask: Ask = serde_json::from_str(r#"{"max_tokens":7,"messages":[{"content":"x"}]}"#).unwrap();
        let script = Script::new(&Profile::default(), &HeaderMap::new(), &ask, 0, 1).unwrap();
        assert_eq!((script.output_tokens, script.finish), (7, Finish::Length));
        let large: Ask = serde_json::from_str(r#"{"max_completion_tokens":4000}"#).unwrap();
        let script = Script::new(&Profile::default(), &HeaderMap::new(), &large, 0, 1).unwrap();
        assert_eq!((script.output_tokens, script.finish), (128, Finish::Stop));
    }

    #[test]
    fn prefill_and_stalls_move_what_follows() {
        let profile = Profile { prefill_tokens_per_second: Some(1_000.0), output_tokens: 3, ..Profile::default() };
        let script = Script::new(&profile, &headers(&[("x-sim-stall", "1@500ms")]), &Ask::default(), 300, 1).unwrap();
        let due: Vec<u64> = script.beats().map(|beat| beat.due.0 / 100_000).collect();
        assert_eq!(due, [5_000, 10_125, 10_250]);
    }

    #[test]
    fn faults_are_read_and_refused() {
        assert_eq!(parse_fail("cut@5"), Ok(Some(Fail::Cut(5))));
        assert_eq!(parse_fail("garbage"), Ok(Some(Fail::Garbage(0))));
        assert_eq!(parse_fail("status:429"), Ok(Some(Fail::Status(429))));
        assert_eq!(parse_fail("none"), Ok(None));
        for wrong in ["cut@x", "status:200", "status:", "boom"] {
            assert!(parse_fail(wrong).is_err(), "{wrong}");
        }
        assert!(Script::new(&Profile::default(), &headers(&[("x-sim-tps", "inf")]), &Ask::default(), 0, 1).is_err());
        assert!(parse_stall("3").is_err());
        let reports = headers(&[("x-sim-reports", "sundial")]);
        let refused = Script::new(&Profile::default(), &reports, &Ask::default(), 0, 1).unwrap_err();
        assert_eq!(refused, "x-sim-reports: not understood: sundial");
    }

    #[test]
    fn rates_are_shares_of_requests() {
        let profile = Profile { cut_rate: 0.3, ..Profile::default() };
        let cuts = (1..=10_000)
            .filter(|number| {
                let script = Script::new(&profile, &HeaderMap::new(), &Ask::default(), 0, *number).unwrap();
                matches!(script.fail, Some(Fail::Cut(_)))
            })
            .count();
        assert!((2_800..3_200).contains(&cuts), "{cuts}");
    }
}
