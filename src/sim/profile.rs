//! The character of a simulated provider: how fast, how steady, how faulty.

use std::time::Duration;

use super::Reports;

/// Settings that every request starts from; a request's own headers override some of them (see the module's table).
///
/// A rate is a share of requests: at or below 0 never, at or above 1 always. Speeds that are not positive and finite
/// mean "without pacing".
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// From the request's last byte (or, if it queued, from getting a slot) to the first output event, without prefill.
    pub ttft: Duration,
    /// Tokens per second after the first output event.
    pub tokens_per_second: f64,
    /// Tokens in one output event; the last one of a kind may hold fewer. At least 1.
    pub tokens_per_event: u32,
    /// Tokens generated, reasoning included, unless the request's own maximum is smaller.
    pub output_tokens: u32,
    /// How many of them are reasoning, sent before the answer.
    pub reasoning_tokens: u32,
    /// The answer is a tool call instead of text.
    pub tool_call: bool,
    /// Input tokens (body bytes / 4) prefilled per second: added to `ttft`. Absent: prefill takes no time.
    pub prefill_tokens_per_second: Option<f64>,
    /// Requests generated for at the same time; the others queue, first come first served. Absent: no limit.
    pub concurrency: Option<usize>,
    /// Sigma of the log-normal factor (of mean 1) on the TTFT and on every gap; 0 is a perfect clock.
    pub jitter: f64,
    /// Usage is reported. Chat completions also need the request's `stream_options.include_usage`, as in life.
    pub usage: bool,
    /// How its own times of a request are told.
    pub reports: Reports,
    /// What comes before the first output event (role chunk, `response.created`, `message_start`) leaves as soon as
    /// generation starts; otherwise together with the first output event.
    pub early_prelude: bool,
    /// All that looks like chance follows from this and the request's number, so that runs repeat.
    pub seed: u64,
    /// Share of requests that fail with an error event after a random output event.
    pub error_rate: f64,
    /// Share of requests whose connection is cut after a random output event.
    pub cut_rate: f64,
    /// Share of requests answered 429.
    pub rate_limit_rate: f64,
    /// Share of requests answered 500.
    pub server_error_rate: f64,
    /// Share of requests that stall once, before a random output event.
    pub stall_rate: f64,
    /// How long such a stall is.
    pub stall: Duration,
    /// What `GET /v1/models` lists; the first is used for requests that name none.
    pub models: Vec<String>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            ttft: Duration::from_millis(200),
            tokens_per_second: 80.0,
            tokens_per_event: 1,
            output_tokens: 128,
            reasoning_tokens: 0,
            tool_call: false,
            prefill_tokens_per_second: None,
            concurrency: None,
            jitter: 0.0,
            usage: true,
            reports: Reports::default(),
            early_prelude: true,
            seed: 1,
            error_rate: 0.0,
            cut_rate: 0.0,
            rate_limit_rate: 0.0,
            server_error_rate: 0.0,
            stall_rate: 0.0,
            stall: Duration::from_secs(2),
            models: vec!["sim-1".to_owned()],
        }
    }
}
