//! Every metric family once: name, meaning, labels, bounds. A golden file in the tests keeps it from changing unseen.
//!
//! Families whose marks nothing feeds yet are not here: a family without a source would be exposed as a false zero.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge};

use super::{
    bounds::{CADENCE, COARSE, DURATION, FINE, LOAD, MAX_GAP, OVERHEAD, SMALL, SPEED},
    budget::{Plan, split},
    family::{Desc, Exposed, Family, List},
    histogram::Histogram,
};

/// Upstream and requested model.
const P: &[&str] = &["upstream", "model"];

/// A provider names its limits in one of their spellings; the longest, per minute, hour and day, has six.
const RATE_LIMITS: usize = 6;

type Counters = Arc<Family<IntCounter>>;
type Gauges = Arc<Family<IntGauge>>;
type Histograms = Arc<Family<Histogram>>;

/// All families, each typed by its cells.
#[derive(Debug)]
#[expect(missing_docs, reason = "each family's HELP text says what it is")]
pub struct Catalogue {
    pub requests: Counters,
    pub requests_started: Counters,
    pub in_flight: Gauges,
    pub in_flight_time: Counters,
    pub in_flight_peak: Gauges,
    pub ttft: Histograms,
    pub answer_ttft: Histograms,
    pub client_ttft: Histograms,
    pub voice_first_audio: Histograms,
    pub ttfb: Histograms,
    pub first_event: Histograms,
    pub ttft_by_input: Histograms,
    pub ttft_by_load: Histograms,
    pub deadline: Counters,
    pub abandoned_wait: Histograms,
    pub oldest_wait: Gauges,
    pub inter_event: Histograms,
    pub tpot: Histograms,
    pub max_gap: Histograms,
    pub output_speed: Histograms,
    pub duration: Histograms,
    pub client_duration: Histograms,
    pub overhead: Histograms,
    pub stage_time: Counters,
    pub connections: Counters,
    pub connect: Histograms,
    pub pool_wait: Histograms,
    pub upstream_rtt: Histograms,
    pub client_rtt: Histograms,
    pub attempts: Counters,
    pub tokens: Counters,
    pub events: Counters,
    pub output_events: Counters,
    pub reads: Counters,
    pub coalesced_events: Counters,
    pub bytes: Counters,
    pub stalls: Counters,
    pub stall_time: Counters,
    pub no_usage: Counters,
    pub no_output: Counters,
    pub hidden_reasoning: Counters,
    pub server_reported: Histograms,
    pub paired_ttft: Histograms,
    pub client_reported: Histograms,
    pub ratelimit_limit: Gauges,
    pub ratelimit_remaining: Gauges,
    pub workload_ttft: Histograms,
    pub workload_output_speed: Histograms,
    pub workload_duration: Histograms,
    pub observer_off: Counters,
    pub unobserved: Counters,
    pub series_overflow: Counters,
    pub measurements_dropped: Counters,
    pub log_dropped: Counters,
    pub runtime_delay: Histograms,
    pub build_info: Gauges,
    pub reload_successful: Gauges,
    pub reload_time: Gauges,
    families: Vec<Arc<dyn Exposed>>,
}

impl Catalogue {
    /// All families, empty, each with its share of the series budget.
    ///
    /// # Errors
    /// If a family's name is none.
    pub fn new(plan: Plan) -> prometheus::Result<Self> {
        let overflow = Desc::new(
            "streamgauge_series_overflow_total",
            "Label sets folded into _other because their family's share of metrics.max_series was used up.",
            &[],
        );
        // Made first, as every other family counts into it; exposed in its place.
        let series_overflow = Arc::new(Family::new(overflow, &IntCounter::new(overflow.name, overflow.help)?)?);
        let mut list = List { overflow: series_overflow.child(&[]), families: Vec::new() };
        let speed_help = "Output speed: 1 / TPOT, from the first to the last output event, tokens after the first; \
                          without replies that came in one burst.";
        let duration_help = "Upstream duration: from the request's departure to the end of the response body.";

        let catalogue = Self {
            requests: list.add(
                Desc::new(
                    "streamgauge_requests_total",
                    "Finished exchanges, counted at their end, by outcome. stream: the response was a stream of events.",
                    &["upstream", "model", "endpoint", "stream", "outcome"],
                )
                // A model is served at one endpoint or at three, not at all fourteen.
                .cells(3 * 2 * 14),
            )?,
            requests_started: list.add(Desc::new(
                "streamgauge_requests_started_total",
                "Exchanges started, counted when the request's model is known.",
                P,
            ))?,
            in_flight: list.add(Desc::new(
                "streamgauge_in_flight",
                "Exchanges now between the arrival of the request head and their end.",
                P,
            ))?,
            in_flight_time: list.add(
                Desc::new(
                    "streamgauge_in_flight_seconds_total",
                    "Time integral of the exchanges in flight: its rate is the mean concurrency. Each counts from the \
                     arrival of the request head to its end.",
                    P,
                )
                .seconds(),
            )?,
            in_flight_peak: list.add(Desc::new(
                "streamgauge_in_flight_peak",
                "Most exchanges in flight at once, from 60 s before the scrape to the scrape.",
                P,
            ))?,
            ttft: list.add(
                Desc::new(
                    "streamgauge_ttft_seconds",
                    "Upstream TTFT: from the request's departure to the arrival of the first output event (reasoning, \
                     answer or tool call). Streams that put something out.",
                    P,
                )
                .seconds()
                .bounds(FINE)
                .with_exemplars(),
            )?,
            answer_ttft: list.add(
                Desc::new(
                    "streamgauge_answer_ttft_seconds",
                    "Answer TTFT: from the request's departure to the arrival of the first output event with answer, \
                     refusal or audio.",
                    P,
                )
                .seconds()
                .bounds(FINE)
                .with_exemplars(),
            )?,
            client_ttft: list.add(
                Desc::new(
                    "streamgauge_client_ttft_seconds",
                    "Client TTFT: from the arrival of the request head to the first output event's departure to the client.",
                    P,
                )
                .seconds()
                .bounds(FINE)
                .with_exemplars(),
            )?,
            voice_first_audio: list.add(
                Desc::new(
                    "streamgauge_voice_first_audio_seconds",
                    "Voice, first audio: from the arrival of the provider's word that the client's speech had stopped to the \
                     arrival of the first event with audio. Turns that began with that word, not with a request.",
                    P,
                )
                .seconds()
                .bounds(COARSE),
            )?,
            ttfb: list.add(
                Desc::new(
                    "streamgauge_ttfb_seconds",
                    "Upstream TTFB: from the request's departure to the arrival of the first body byte, whatever it is.",
                    P,
                )
                .seconds()
                .bounds(COARSE),
            )?,
            first_event: list.add(
                Desc::new(
                    "streamgauge_first_event_seconds",
                    "First event: from the request's departure to the arrival of the first event with data, whatever it says.",
                    P,
                )
                .seconds()
                .bounds(COARSE),
            )?,
            ttft_by_input: list.add(
                Desc::new(
                    "streamgauge_ttft_by_input_seconds",
                    "Upstream TTFT, from the request's departure to the arrival of the first output event, by input tokens \
                     (cached included); observed at the exchange's end.",
                    &["upstream", "model", "input"],
                )
                .seconds()
                .bounds(COARSE)
                .cells(9),
            )?,
            ttft_by_load: list.add(
                Desc::new(
                    "streamgauge_ttft_by_load_seconds",
                    "Upstream TTFT, from the request's departure to the arrival of the first output event, by exchanges in \
                     flight at its start, itself included.",
                    &["upstream", "model", "load"],
                )
                .seconds()
                .bounds(LOAD)
                .cells(6),
            )?,
            deadline: list.add(
                Desc::new(
                    "streamgauge_ttft_deadline_total",
                    "Requests for a stream by TTFT deadline, from the request's departure to the first output event: met \
                     at that event; missed when the deadline passes, or at a failure or end without output. A client who \
                     leaves before the deadline counts in neither.",
                    &["upstream", "model", "deadline", "result"],
                )
                .cells(2 * plan.deadlines),
            )?,
            abandoned_wait: list.add(
                Desc::new(
                    "streamgauge_ttft_abandoned_wait_seconds",
                    "Wait of clients who left a stream without any output: from the request's departure to their leaving.",
                    P,
                )
                .seconds()
                .bounds(COARSE),
            )?,
            oldest_wait: list.add(
                Desc::new(
                    "streamgauge_ttft_oldest_wait_seconds",
                    "Longest wait of a request for a stream that has no output yet: from its departure to the scrape. 0 \
                     when nobody waits.",
                    P,
                )
                .seconds(),
            )?,
            inter_event: list.add(
                Desc::new(
                    "streamgauge_inter_event_seconds",
                    "Gap: from the arrival of one output event to the arrival of the next. Events of one read share an \
                     arrival and are counted as coalesced instead. Event gaps, not token gaps.",
                    P,
                )
                .seconds()
                .bounds(CADENCE),
            )?,
            tpot: list.add(
                Desc::new(
                    "streamgauge_time_per_output_token_seconds",
                    "TPOT: from the first to the last output event, divided by output tokens - 1. One value per exchange.",
                    P,
                )
                .seconds()
                .bounds(CADENCE),
            )?,
            max_gap: list.add(
                Desc::new(
                    "streamgauge_max_gap_seconds",
                    "Longest gap of an exchange, from the arrival of one output event to the arrival of the next.",
                    P,
                )
                .seconds()
                .bounds(MAX_GAP),
            )?,
            output_speed: list.add(
                Desc::new("streamgauge_output_tokens_per_second", speed_help, &["upstream", "model", "output"])
                    .tokens_per_second()
                    .bounds(SPEED)
                    .cells(5),
            )?,
            duration: list.add(
                Desc::new(
                    "streamgauge_request_duration_seconds",
                    "Upstream duration: from the request's departure to the end of the response body, by result (ok: \
                     outcome complete).",
                    &["upstream", "model", "result"],
                )
                .seconds()
                .bounds(DURATION)
                .cells(2),
            )?,
            client_duration: list.add(
                Desc::new(
                    "streamgauge_client_duration_seconds",
                    "Client duration: from the arrival of the request head to the departure of the whole response to the \
                     client. Exchanges that were delivered.",
                    P,
                )
                .seconds()
                .bounds(DURATION),
            )?,
            overhead: list.add(
                Desc::new(
                    "streamgauge_overhead_seconds",
                    "The gateway's own time, socket to socket. request: from the request's arrival to its departure, \
                     without connecting and pending writes; first_output, event: from the arrival of the first or any \
                     output event to its departure to the client, without pending writes.",
                    &["upstream", "phase"],
                )
                .seconds()
                .bounds(OVERHEAD)
                .cells(3),
            )?,
            stage_time: list.add(
                Desc::new(
                    "streamgauge_stage_seconds_total",
                    "Where the time went: each exchange from the arrival of the request head to its end, split into stages \
                     that add up.",
                    &["upstream", "model", "stage"],
                )
                .seconds()
                .cells(13),
            )?,
            connections: list.add(
                Desc::new(
                    "streamgauge_connections_total",
                    "Upstream connections got for an exchange; reused: it had served another before.",
                    &["upstream", "reused"],
                )
                .cells(2),
            )?,
            connect: list.add(
                Desc::new(
                    "streamgauge_connect_seconds",
                    "Dialling, by phase: from the beginning to the end of name resolution (dns), TCP connect (tcp), TLS \
                     handshake (tls).",
                    &["upstream", "phase"],
                )
                .seconds()
                .bounds(SMALL)
                .cells(3),
            )?,
            pool_wait: list.add(
                Desc::new(
                    "streamgauge_pool_wait_seconds",
                    "Wait for an upstream connection, from asking for it to having it, without dialling.",
                    &["upstream"],
                )
                .seconds()
                .bounds(SMALL),
            )?,
            upstream_rtt: list.add(
                Desc::new(
                    "streamgauge_upstream_rtt_seconds",
                    "Network to the upstream: smoothed TCP round trip from the gauge to the upstream and back, looked at once \
                     the first output has left, or else when the response head is there.",
                    &["upstream"],
                )
                .seconds()
                .bounds(SMALL),
            )?,
            client_rtt: list.add(
                Desc::new(
                    "streamgauge_client_rtt_seconds",
                    "Network to the clients: smoothed TCP round trip from the gauge to the client and back, looked at once the \
                     first output has left, or else when the response head is there.",
                    &["upstream"],
                )
                .seconds()
                .bounds(SMALL),
            )?,
            attempts: list.add(
                Desc::new(
                    "streamgauge_attempts_total",
                    "Sendings of a request to an upstream, by result: ok, retried, failed.",
                    &["upstream", "result"],
                )
                .cells(3),
            )?,
            tokens: list.add(
                Desc::new(
                    "streamgauge_tokens_total",
                    "Tokens as the provider counts them. cached_input and cache_write lie inside input, reasoning inside \
                     output: do not stack them.",
                    &["upstream", "model", "type"],
                )
                .cells(5),
            )?,
            events: list.add(Desc::new("streamgauge_events_total", "Events with data in responses.", P))?,
            output_events: list.add(Desc::new(
                "streamgauge_output_events_total",
                "Events that carry generated content.",
                P,
            ))?,
            reads: list.add(Desc::new(
                "streamgauge_reads_total",
                "Reads of the upstream's sockets that brought bytes of a body.",
                P,
            ))?,
            coalesced_events: list.add(Desc::new(
                "streamgauge_coalesced_events_total",
                "Output events that came in the same read as the one before, so that no gap was observed.",
                P,
            ))?,
            bytes: list.add(
                Desc::new(
                    "streamgauge_bytes_total",
                    "Body bytes, by direction: request (from the client), response (from the upstream).",
                    &["upstream", "model", "direction"],
                )
                .cells(2),
            )?,
            stalls: list.add(
                Desc::new(
                    "streamgauge_stalls_total",
                    "Times a side did not take bytes that were ready for it for more than 10 ms.",
                    &["upstream", "model", "side"],
                )
                .cells(2),
            )?,
            stall_time: list.add(
                Desc::new(
                    "streamgauge_stall_seconds_total",
                    "Time in which a side did not take bytes that were ready for it, from the first refused write to the \
                     next taken one.",
                    &["upstream", "model", "side"],
                )
                .seconds()
                .cells(2),
            )?,
            no_usage: list.add(Desc::new(
                "streamgauge_no_usage_total",
                "Complete replies of a known dialect without token counts: nothing is estimated for them.",
                P,
            ))?,
            no_output: list.add(Desc::new(
                "streamgauge_no_output_total",
                "Streams of a known dialect that ended with status 2xx and without any output event.",
                P,
            ))?,
            hidden_reasoning: list.add(Desc::new(
                "streamgauge_hidden_reasoning_total",
                "Streams whose usage counts reasoning tokens that were never seen: events and tokens don't compare.",
                P,
            ))?,
            server_reported: list.add(
                Desc::new(
                    "streamgauge_server_reported_seconds",
                    "What the provider says of its own time, by its own clock. queue: from the request's arrival there to \
                     the beginning of work; prefill: work on the prompt; decode: work on the output; ttft: from the \
                     arrival to the first token (of streams that say it in their head: to the head); total: the whole \
                     call, as it has it.",
                    &["upstream", "model", "phase"],
                )
                .seconds()
                .bounds(SMALL)
                .cells(5),
            )?,
            paired_ttft: list.add(
                Desc::new(
                    "streamgauge_paired_ttft_seconds",
                    "TTFT of exchanges that have both sides of it. gateway: from the request's departure to the arrival of \
                     the first output event; server: from the request's arrival there to the first token, as the provider \
                     says. The sums' difference is the network and what the provider does not account for.",
                    &["upstream", "model", "side"],
                )
                .seconds()
                .bounds(COARSE)
                .cells(2),
            )?,
            client_reported: list.add(
                Desc::new(
                    "streamgauge_client_reported_seconds",
                    "What clients say they measured, by their own clocks. ttft: from the client's request to its first token; \
                     total: to the end of the response.",
                    &["upstream", "model", "phase"],
                )
                .seconds()
                .bounds(COARSE)
                .cells(if plan.client_timings { 2 } else { 0 }),
            )?,
            ratelimit_limit: list.add(
                Desc::new(
                    "streamgauge_ratelimit_limit",
                    "The provider's limit as its newest response head states it, by what it limits.",
                    &["upstream", "model", "kind"],
                )
                .cells(RATE_LIMITS),
            )?,
            ratelimit_remaining: list.add(
                Desc::new(
                    "streamgauge_ratelimit_remaining",
                    "What is left of the provider's limit, as its newest response head states it, by what it limits.",
                    &["upstream", "model", "kind"],
                )
                .cells(RATE_LIMITS),
            )?,
            workload_ttft: list.add(
                Desc::new(
                    "streamgauge_workload_ttft_seconds",
                    "Upstream TTFT of a declared workload: from the request's departure to the arrival of the first output \
                     event. Complete exchanges, observed at their end.",
                    &["upstream", "model", "workload"],
                )
                .seconds()
                .bounds(FINE)
                .cells(plan.workloads),
            )?,
            workload_output_speed: list.add(
                Desc::new("streamgauge_workload_output_tokens_per_second", speed_help, &["upstream", "model", "workload"])
                    .tokens_per_second()
                    .bounds(SPEED)
                    .cells(plan.workloads),
            )?,
            workload_duration: list.add(
                Desc::new("streamgauge_workload_duration_seconds", duration_help, &["upstream", "model", "workload"])
                    .seconds()
                    .bounds(DURATION)
                    .cells(plan.workloads),
            )?,
            observer_off: list.add(
                Desc::new(
                    "streamgauge_observer_off_total",
                    "Responses whose reading was given up; the bytes went on.",
                    &["upstream", "reason"],
                )
                .cells(4),
            )?,
            unobserved: list.add(Desc::new(
                "streamgauge_unobserved_requests_total",
                "Requests on routes with observe = \"off\": passed on, and in no other family.",
                &["upstream"],
            ))?,
            series_overflow: list.take(series_overflow),
            measurements_dropped: list.add(Desc::new(
                "streamgauge_measurements_dropped_total",
                "Values that are no finite number, counted and dropped.",
                &[],
            ))?,
            log_dropped: list.add(Desc::new(
                "streamgauge_log_dropped_total",
                "Records the access log could not take: its queue was full or its file could not be written.",
                &[],
            ))?,
            runtime_delay: list.add(
                Desc::new(
                    "streamgauge_runtime_delay_seconds",
                    "How late the workers run: from the instant a timer was set for to the instant it ran.",
                    &[],
                )
                .seconds()
                .bounds(OVERHEAD),
            )?,
            build_info: list.add(Desc::new("streamgauge_build_info", "1, labelled with the version.", &["version"]))?,
            reload_successful: list.add(Desc::new(
                "streamgauge_config_last_reload_successful",
                "Whether the configuration was loaded the last time that was tried.",
                &[],
            ))?,
            reload_time: list.add(
                Desc::new(
                    "streamgauge_config_last_reload_timestamp_seconds",
                    "Unix time of the last successful load of the configuration.",
                    &[],
                )
                .seconds(),
            )?,
            families: Vec::new(),
        };
        split(&list.families, plan);
        Ok(Self { families: list.families, ..catalogue })
    }

    /// Every family in the catalogue's order.
    pub fn families(&self) -> &[Arc<dyn Exposed>] {
        &self.families
    }
}
