//! One finished exchange as a plain value, and the formulas over its marks. **The only room with formulas**: each
//! returns an `Option`, absent when a mark it needs never happened.

mod decimal;
mod stages;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Method, Version};

use crate::{
    clock::Nanos,
    dialect::{Dialect, Endpoint, Facts, ObserverOff, RateLimit},
    timeline::{Cadence, Timeline},
};

/// How an exchange ended: a closed set, the first terminal cause wins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The dialect's own end was seen (or a clean end after a finish reason).
    Complete,
    /// The transport ended cleanly, the dialect's end never came.
    Truncated,
    /// An error inside a 2xx stream.
    ErrorEvent,
    /// Cut, reset or malformed framing by the upstream.
    UpstreamReset,
    /// No connection: DNS, refused, TLS, or their limits.
    Unreachable,
    /// A later limit fired, named in `limit`.
    UpstreamTimeout,
    /// A 4xx status that is not a rate limit.
    Upstream4xx,
    /// 429 and provider "overloaded" codes.
    RateLimited,
    /// A 5xx status.
    Upstream5xx,
    /// The client left; what was seen until then is kept and marked partial.
    ClientGone,
    /// The gateway refused the request (bad framing, over a limit, no route).
    ClientError,
    /// The gateway's own overload answer.
    Refused,
    /// Cut by the shutdown deadline.
    Drained,
    /// The gateway's own fault.
    GatewayError,
}

impl Outcome {
    /// Every outcome, in the contract's order.
    pub const ALL: [Self; 14] = [
        Self::Complete,
        Self::Truncated,
        Self::ErrorEvent,
        Self::UpstreamReset,
        Self::Unreachable,
        Self::UpstreamTimeout,
        Self::Upstream4xx,
        Self::RateLimited,
        Self::Upstream5xx,
        Self::ClientGone,
        Self::ClientError,
        Self::Refused,
        Self::Drained,
        Self::GatewayError,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Truncated => "truncated",
            Self::ErrorEvent => "error_event",
            Self::UpstreamReset => "upstream_reset",
            Self::Unreachable => "unreachable",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::Upstream4xx => "upstream_4xx",
            Self::RateLimited => "rate_limited",
            Self::Upstream5xx => "upstream_5xx",
            Self::ClientGone => "client_gone",
            Self::ClientError => "client_error",
            Self::Refused => "refused",
            Self::Drained => "drained",
            Self::GatewayError => "gateway_error",
        }
    }
}

/// A limit that ended an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum Limit {
    Connect,
    Head,
    FirstByte,
    Idle,
    Total,
    RequestBody,
    InFlight,
    PoolWait,
    Drain,
}

impl Limit {
    /// Its name in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Head => "head",
            Self::FirstByte => "first_byte",
            Self::Idle => "idle",
            Self::Total => "total",
            Self::RequestBody => "request_body",
            Self::InFlight => "in_flight",
            Self::PoolWait => "pool_wait",
            Self::Drain => "drain",
        }
    }
}

/// Where the arrivals of one side were stamped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StampSource {
    /// By the kernel, at the arrival of the bytes.
    Kernel,
    /// By a clock read at the return of the read, some of them or all.
    User,
}

impl StampSource {
    /// Of a side whose every arrival the kernel stamped, or not.
    pub const fn of(by_kernel: bool) -> Self {
        if by_kernel { Self::Kernel } else { Self::User }
    }

    /// Its name in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

/// Things to know before comparing an exchange's numbers, as far as they can't be derived: the rest are methods
/// ([`Observation::burst`], …) and [`Observation::flags_named`] has all of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// The final head was read before the request body had ended.
    pub early_response: bool,
    /// The client did not take bytes for more than 10 ms and the upstream was not read meanwhile.
    pub tainted: bool,
    /// The client left or the gateway cut it: counts are partial.
    pub partial: bool,
    /// There was an earlier attempt.
    pub retried: bool,
    /// The overhead is a lower bound (HTTP/2 hides when bytes leave).
    pub overhead_lower_bound: bool,
    /// A 1xx answer other than 100 was dropped.
    pub informational_dropped: bool,
    /// The request's body was made to ask for usage, as its route says.
    pub asked_for_usage: bool,
    /// Observed by `bench`, which is the client itself.
    pub bench: bool,
}

/// Facts of the connections an exchange used.
#[derive(Clone, Default, Debug)]
pub struct Connection {
    /// The upstream connection had served an exchange before; absent if there was none.
    pub reused: Option<bool>,
    /// HTTP version towards the client.
    pub client_version: Option<Version>,
    /// HTTP version towards the upstream.
    pub upstream_version: Option<Version>,
    /// The way to the client.
    pub client: Network,
    /// The way to the upstream.
    pub upstream: Network,
}

/// What the kernel knows of the way to a connection's other side, at the first output or else at the head. Absent where it
/// says nothing: other platforms than Linux.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Network {
    /// Smoothed round trip.
    pub rtt: Option<Nanos>,
    /// Shortest round trip of the last minutes.
    pub min_rtt: Option<Nanos>,
    /// Segments we sent again.
    pub retransmits: Option<u32>,
}

/// Sums over the output events' own overhead, socket to socket.
#[derive(Clone, Copy, Default, Debug)]
pub struct EventOverhead {
    /// Events observed.
    pub count: u64,
    /// Their sum.
    pub sum: Nanos,
    /// The largest.
    pub max: Nanos,
}

/// One finished exchange. Plain and immutable: every number the gauge publishes of it follows from here.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Sixteen hexadecimal digits, unique within the process's life.
    pub id: ExchangeId,
    /// Wall-clock time of `request_head`.
    pub time: SystemTime,
    /// The upstream's configured name; absent if no route matched.
    pub upstream: Option<Arc<str>>,
    /// What the request was for.
    pub endpoint: Endpoint,
    /// Its wire protocol.
    pub dialect: Dialect,
    /// The request's method; absent if the head was never readable.
    pub method: Option<Method>,
    /// The request's path, never its query; absent if the head was never readable.
    pub path: Option<String>,
    /// The status the client got (or would have got).
    pub status: Option<u16>,
    /// The response was a stream of events; before a head came: the request asked for one.
    pub stream: bool,
    /// Whether the request asked for one; absent where it does not say, or was not read.
    pub asked_stream: Option<bool>,
    /// How it ended.
    pub outcome: Outcome,
    /// The limit that fired.
    pub limit: Option<Limit>,
    /// The model as requested.
    pub model: Option<Arc<str>>,
    /// The marks.
    pub timeline: Timeline,
    /// The rhythm of the output events.
    pub cadence: Cadence,
    /// What the reply said of itself.
    pub facts: Facts,
    /// The provider's limits, as the response's head states them.
    pub rate_limits: Vec<RateLimit>,
    /// Kinds of output seen, whether reasoning output was among them.
    pub reasoning_seen: bool,
    /// Attempts made; 0 if none was.
    pub attempts: u32,
    /// Events with data.
    pub events: u64,
    /// Events with generated content.
    pub output_events: u64,
    /// Reads of the upstream's socket that brought bytes of the body, as far as their stamps tell them apart.
    pub reads: u64,
    /// Body bytes from the client.
    pub request_bytes: u64,
    /// Body bytes from the upstream.
    pub response_bytes: u64,
    /// Why the observer stopped reading.
    pub observer_off: Option<ObserverOff>,
    /// Overhead of the output events.
    pub event_overhead: EventOverhead,
    /// Connection facts.
    pub connection: Connection,
    /// Where arrivals from the client were stamped: by the kernel only if all of them were.
    pub client_stamp: StampSource,
    /// The same of arrivals from the upstream; absent if no head came.
    pub upstream_stamp: Option<StampSource>,
    /// Things to know before comparing.
    pub flags: Flags,
    /// Exchanges in flight to the same upstream and model at the start, itself included; absent if never counted.
    pub load: Option<u32>,
    /// Declared workload it belongs to.
    pub workload: Option<Arc<str>>,
    /// From the request's `traceparent`.
    pub trace_id: Option<String>,
    /// From the configured session header.
    pub session: Option<String>,
    /// The provider's request id.
    pub upstream_request_id: Option<String>,
    /// From the client's `X-Request-Start` to `request_head`, by both sides' wall clocks.
    pub client_sent: Option<Nanos>,
}

/// An exchange's id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExchangeId(pub u64);

impl ExchangeId {
    /// The id that is written so; absent if it is not sixteen hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        // What else a number may have (a sign) is no digit.
        let digits = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| digits).map(Self)
    }
}

impl std::fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

pub use self::{
    decimal::{Decimal, decimal, push_decimal},
    stages::STAGES,
};

/// Formulas that follow from the marks alone, so that a live exchange and its final record can't differ.
impl Timeline {
    /// Request: `request_end − request_head`. Absent if it was not received whole.
    pub fn request_span(&self) -> Option<Nanos> {
        Some(self.request_end?.since(self.request_head))
    }

    /// Upstream TTFB: `first_byte − sent_last`. Absent without a body.
    pub fn ttfb(&self) -> Option<Nanos> {
        Some(self.first_byte?.since(self.sent_last?))
    }

    /// First event: `first_event − sent_last`. Absent if not a stream.
    pub fn first_event_time(&self) -> Option<Nanos> {
        Some(self.first_event?.since(self.sent_last?))
    }

    /// Upstream TTFT: `first_output − sent_last`. Absent without an output event.
    pub fn ttft(&self) -> Option<Nanos> {
        Some(self.first_output?.since(self.sent_last?))
    }

    /// Answer TTFT: `first_answer − sent_last`. Absent without answer output.
    pub fn answer_ttft(&self) -> Option<Nanos> {
        Some(self.first_answer?.since(self.sent_last?))
    }

    /// Client TTFT: `first_output_delivered − request_head`. Absent without an output event.
    pub fn client_ttft(&self) -> Option<Nanos> {
        Some(self.first_output_delivered?.since(self.request_head))
    }

    /// Voice, first audio: `first_audio − speech_stopped`. Absent where the client asked for the response by itself.
    pub fn voice_first_audio(&self) -> Option<Nanos> {
        Some(self.first_audio?.since(self.speech_stopped?))
    }

    /// Upstream duration: `response_end − sent_last`. Absent if the upstream never ended.
    pub fn duration(&self) -> Option<Nanos> {
        Some(self.response_end?.since(self.sent_last?))
    }

    /// Overhead, first output: `first_output_delivered − first_output` less the part with a downstream write pending.
    pub fn overhead_first_output(&self) -> Option<Nanos> {
        Some(self.first_output_delivered?.since(self.first_output?).less(self.waits.first_output))
    }

    /// From the first to the last output event. Absent below two output events of different stamps.
    pub fn generation(&self) -> Option<Nanos> {
        let span = self.last_output?.since(self.first_output?);
        (span > Nanos::ZERO).then_some(span)
    }
}

/// Below this much generation time per output token a reply came in a burst: its speed is that of a buffer
/// (5 ms per 10 tokens).
const BURST_PER_TOKEN: Duration = Duration::from_micros(500);

impl Observation {
    /// An exchange of which nothing is known yet but its beginning and how it ended.
    pub fn begin(id: ExchangeId, time: SystemTime, timeline: Timeline, outcome: Outcome) -> Self {
        Self {
            id,
            time,
            upstream: None,
            endpoint: Endpoint::Other,
            dialect: Dialect::Other,
            method: None,
            path: None,
            status: None,
            stream: false,
            asked_stream: None,
            outcome,
            limit: None,
            model: None,
            timeline,
            cadence: Cadence::default(),
            facts: Facts::default(),
            rate_limits: Vec::new(),
            reasoning_seen: false,
            attempts: 0,
            events: 0,
            output_events: 0,
            reads: 0,
            request_bytes: 0,
            response_bytes: 0,
            observer_off: None,
            event_overhead: EventOverhead::default(),
            connection: Connection::default(),
            client_stamp: StampSource::User,
            upstream_stamp: None,
            flags: Flags::default(),
            load: None,
            workload: None,
            trace_id: None,
            session: None,
            upstream_request_id: None,
            client_sent: None,
        }
    }

    /// Wall: `end − request_head`. Always there; zero while `end` is not set.
    pub fn wall(&self) -> Nanos {
        self.timeline.end.map_or(Nanos::ZERO, |end| end.since(self.timeline.request_head))
    }

    /// Client duration: `delivered − request_head`, which is the wall of an exchange that was delivered. Absent otherwise.
    pub fn client_duration(&self) -> Option<Nanos> {
        Some(self.timeline.delivered?.since(self.timeline.request_head))
    }

    /// The marks, if first-output and event times mean anything: of a stream that is not a tunnel.
    pub fn streamed(&self) -> Option<&Timeline> {
        (self.stream && self.endpoint != Endpoint::Tunnel).then_some(&self.timeline)
    }

    /// Output tokens of the whole reply, as the provider counts them. Absent if it never said, and for a reply that was
    /// not read to its end: dialects that count as they go then leave a running count, which is no reply's.
    pub fn output_tokens(&self) -> Option<u64> {
        let whole = self.outcome == Outcome::Complete || self.facts.ended || !self.facts.finish_reasons.is_empty();
        if whole && self.observer_off.is_none() { self.facts.usage.output } else { None }
    }

    /// TPOT: `(last_output − first_output) / (output_tokens − 1)`. Absent if usage is unknown, below 2 output tokens,
    /// below 2 distinct output stamps, with hidden or summarised reasoning, with several choices, or tainted.
    pub fn tpot(&self) -> Option<Nanos> {
        let (generation, after_first) = self.decoding()?;
        Some(Nanos((generation.0 + after_first / 2) / after_first))
    }

    /// Output speed: `1 / TPOT`, tokens per second after the first. Absent as TPOT, and for a burst.
    pub fn output_speed(&self) -> Option<f64> {
        let (generation, after_first) = self.decoding()?;
        (!self.burst()).then(|| after_first as f64 / generation.seconds())
    }

    /// What TPOT and its inverse are made of: the generation's span and the tokens after the first.
    fn decoding(&self) -> Option<(Nanos, u64)> {
        let comparable = !(self.hidden_reasoning()
            || self.facts.summarised_reasoning
            || self.facts.multi_choice
            || self.flags.tainted);
        let tokens = self.output_tokens().filter(|tokens| *tokens >= 2 && comparable)?;
        Some((self.streamed()?.generation()?, tokens - 1))
    }

    /// End-to-end speed: `output_tokens / upstream duration`, tokens per second. Absent if usage is unknown or the
    /// upstream never ended.
    pub fn end_to_end_speed(&self) -> Option<f64> {
        let duration = self.timeline.duration().filter(|span| *span > Nanos::ZERO)?;
        (self.endpoint != Endpoint::Tunnel).then_some(self.output_tokens()? as f64 / duration.seconds())
    }

    /// Output tokens per output event. Absent if usage is unknown or below 2 output events.
    pub fn tokens_per_event(&self) -> Option<f64> {
        (self.output_events >= 2).then_some(self.output_tokens()? as f64 / self.output_events as f64)
    }

    /// TTFT by both sides: ours, then the provider's own of the same exchange. Absent if either is; with hidden or
    /// summarised reasoning, as the provider's first token then is not the first that is seen; and if the provider's is
    /// of its head, which compares with `head_back`, or begins behind a queue of unknown length.
    pub fn paired_ttft(&self) -> Option<(Nanos, Nanos)> {
        let reported = &self.facts.reported;
        let comparable = !(self.hidden_reasoning()
            || self.facts.summarised_reasoning
            || reported.ttft_of_head
            || reported.ttft_behind_queue);
        self.streamed()?.ttft().zip(reported.ttft).filter(|_| comparable)
    }

    /// Outside server: `TTFT − server-reported TTFT` of the same exchange, which is the network and whatever the provider
    /// does not account for; zero if the provider says more than was seen. Absent as [`Observation::paired_ttft`].
    pub fn outside_server(&self) -> Option<Nanos> {
        let (gateway, server) = self.paired_ttft()?;
        Some(gateway.less(server))
    }

    /// Overhead, request: `sent_last − request_end` less the parts inside it that were spent between `lease_wanted` and
    /// `lease_got` or with an upstream write pending. Absent for early responses, retried exchanges and those never sent.
    pub fn overhead_request(&self) -> Option<Nanos> {
        let marks = &self.timeline;
        if self.flags.early_response || self.retried() {
            return None;
        }
        let (from, to) = (marks.request_end?, marks.sent_last?);
        let leasing = marks.lease_wanted.map_or(Nanos::ZERO, |wanted| {
            let got = marks.lease_got.unwrap_or(to);
            got.min(to).since(wanted.max(from))
        });
        let uploading = marks.waits.upload.less(marks.waits.upload_before_request_end);
        Some(to.since(from).less(leasing).less(uploading))
    }

    /// Mean overhead of the output events, rounded to the nanosecond. Absent without one.
    pub fn overhead_event_mean(&self) -> Option<Nanos> {
        let EventOverhead { count, sum, .. } = self.event_overhead;
        (count > 0).then(|| Nanos((sum.0 + count / 2) / count))
    }

    /// There was an earlier attempt.
    pub fn retried(&self) -> bool {
        self.flags.retried || self.attempts > 1
    }

    /// Reasoning tokens are counted, but a stream showed neither reasoning nor a summary of it.
    pub fn hidden_reasoning(&self) -> bool {
        self.stream
            && self.facts.usage.reasoning.is_some_and(|tokens| tokens > 0)
            && !self.reasoning_seen
            && !self.facts.summarised_reasoning
    }

    /// The generation took less than 5 ms per 10 tokens: something in front of us kept the reply back and let it go at
    /// once. False where there is no generation to judge.
    pub fn burst(&self) -> bool {
        let Some(generation) = self.streamed().and_then(Timeline::generation) else { return false };
        self.output_tokens().is_some_and(|tokens| Nanos::from(BURST_PER_TOKEN).0.saturating_mul(tokens) > generation.0)
    }

    /// Every flag by its name in records, derived ones included.
    pub fn flags_named(&self) -> [(&'static str, bool); 16] {
        [
            ("early_response", self.flags.early_response),
            ("hidden_reasoning", self.hidden_reasoning()),
            ("summarised_reasoning", self.facts.summarised_reasoning),
            ("multi_choice", self.facts.multi_choice),
            ("burst", self.burst()),
            ("tainted", self.flags.tainted),
            ("observer_off", self.observer_off.is_some()),
            ("partial", self.flags.partial),
            ("ttft_upper_bound", self.cadence.first_shared()),
            ("retried", self.retried()),
            ("overhead_lower_bound", self.flags.overhead_lower_bound),
            ("informational_dropped", self.flags.informational_dropped),
            ("server_ttft_of_head", self.facts.reported.ttft_of_head),
            ("server_ttft_behind_queue", self.facts.reported.ttft_behind_queue),
            ("asked_for_usage", self.flags.asked_for_usage),
            ("bench", self.flags.bench),
        ]
    }
}

/// The class of a number of input tokens (cached included). A bound belongs to the class it begins.
pub const fn input_class(tokens: Option<u64>) -> &'static str {
    match tokens {
        None => "unknown",
        Some(0..200) => "0_200",
        Some(200..500) => "200_500",
        Some(500..2_000) => "500_2k",
        Some(2_000..5_000) => "2k_5k",
        Some(5_000..20_000) => "5k_20k",
        Some(20_000..50_000) => "20k_50k",
        Some(50_000..200_000) => "50k_200k",
        Some(200_000..) => "200k_up",
    }
}

/// The class of a number of output tokens. A bound belongs to the class it begins.
pub const fn output_class(tokens: Option<u64>) -> &'static str {
    match tokens {
        None => "unknown",
        Some(0..50) => "0_50",
        Some(50..200) => "50_200",
        Some(200..500) => "200_500",
        Some(500..2_000) => "500_2k",
        Some(2_000..) => "2k_up",
    }
}

/// The class of a load: exchanges in flight at the start, itself included.
pub const fn load_class(in_flight: u32) -> &'static str {
    match in_flight {
        0..=1 => "1",
        2..=4 => "2_4",
        5..=8 => "5_8",
        9..=16 => "9_16",
        17..=64 => "17_64",
        65.. => "65_up",
    }
}
