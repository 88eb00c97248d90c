//! One finished exchange as a plain value, and the formulas over its marks. **The only file with formulas**: each
//! returns an `Option`, absent when a mark it needs never happened.

use std::{sync::Arc, time::SystemTime};

use http::{Method, Version};

use crate::{
    clock::{Nanos, Stamp},
    dialect::{Dialect, Endpoint, Facts, ObserverOff},
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

/// Where a stamp was taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StampSource {
    /// By the kernel, at the arrival of the bytes.
    Kernel,
    /// By a clock read at the return of the system call.
    User,
}

impl StampSource {
    /// Its name in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

/// Things to know before comparing an exchange's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// The final head was read before the request body had ended.
    pub early_response: bool,
    /// Reasoning tokens were counted, none was seen.
    pub hidden_reasoning: bool,
    /// A summary of the reasoning was seen, other tokens are counted.
    pub summarised_reasoning: bool,
    /// Several choices in one reply.
    pub multi_choice: bool,
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
    /// How it ended.
    pub outcome: Outcome,
    /// The limit that fired.
    pub limit: Option<Limit>,
    /// The model as requested.
    pub model: Option<String>,
    /// The marks.
    pub timeline: Timeline,
    /// The rhythm of the output events.
    pub cadence: Cadence,
    /// What the reply said of itself.
    pub facts: Facts,
    /// Kinds of output seen, whether reasoning output was among them.
    pub reasoning_seen: bool,
    /// Attempts made; 0 if none was.
    pub attempts: u32,
    /// Events with data.
    pub events: u64,
    /// Events with generated content.
    pub output_events: u64,
    /// Body frames read from the upstream.
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
    /// Where the client side's stamps were taken.
    pub client_stamp: StampSource,
    /// Where the upstream side's stamps were taken.
    pub upstream_stamp: StampSource,
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

impl std::fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The stages of [`Observation::stages`], in order.
pub const STAGES: [&str; 13] = [
    "retry",
    "dns",
    "tcp",
    "tls",
    "pool_wait",
    "upload",
    "receive",
    "gateway_request",
    "first_output_wait",
    "generation",
    "tail",
    "client_stall",
    "gateway_response",
];

/// Formulas that follow from the marks alone, so that a live exchange and its final record can't differ.
impl Timeline {
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

    /// Upstream duration: `response_end − sent_last`. Absent if the upstream never ended.
    pub fn duration(&self) -> Option<Nanos> {
        Some(self.response_end?.since(self.sent_last?))
    }

    /// Overhead, first output: `first_output_delivered − first_output` less the part with a downstream write pending.
    pub fn overhead_first_output(&self) -> Option<Nanos> {
        Some(self.first_output_delivered?.since(self.first_output?).less(self.waits.first_output))
    }

    /// The last mark there is, for exchanges whose `end` was not set yet.
    fn end_or(&self, fallback: Stamp) -> Stamp {
        self.end.unwrap_or(fallback)
    }
}

impl Observation {
    /// Wall: `end − request_head`. Always there.
    pub fn wall(&self) -> Nanos {
        self.timeline.end_or(self.timeline.request_head).since(self.timeline.request_head)
    }
}

impl Observation {
    /// An exchange that has only begun: nothing but its first mark is known.
    pub fn begin(id: ExchangeId, time: SystemTime, request_head: Stamp) -> Self {
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
            outcome: Outcome::GatewayError,
            limit: None,
            model: None,
            timeline: Timeline::begin(request_head),
            cadence: Cadence::default(),
            facts: Facts::default(),
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
            upstream_stamp: StampSource::User,
            flags: Flags::default(),
            load: None,
            workload: None,
            trace_id: None,
            session: None,
            upstream_request_id: None,
            client_sent: None,
        }
    }
}
