//! The one door from the data plane to the sinks: metrics and access log. The data plane knows only this.
//!
//! What happens during an exchange (first output, a gap) is observed when it happens, through handles resolved once
//! ([`Pair`], [`Started`]); what needs the whole exchange is observed at its end ([`Recorder::finish`]).

use std::sync::Arc;

use crate::{
    clock::{Clock, Nanos, Stamp},
    config::Config,
    dialect::RequestFacts,
    observation::{ExchangeId, Observation},
};

/// Owns the sinks.
#[derive(Default)]
pub struct Recorder {
    listener: Option<Listener>,
}

/// Told of every finished exchange, on the worker that finished it: be quick.
pub type Listener = Box<dyn Fn(&Observation) + Send + Sync>;

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

/// Handles of one upstream, resolved at start-up and held with its route.
#[derive(Debug)]
pub struct UpstreamHandles {}

/// Handles of one (upstream, model) pair: what is observed while an exchange runs.
#[derive(Debug)]
pub struct Pair {}

/// An exchange whose model is known: counted as started and in flight until [`Recorder::finish`] takes it.
/// For requests that ask for a stream it also stands in the waiting room until its first output, so that deadlines
/// and the oldest wait are true while it waits.
#[derive(Debug)]
pub struct Started {}

/// What an exemplar carries.
#[derive(Clone, Debug)]
pub struct Exemplar {
    /// The exchange's id.
    pub id: ExchangeId,
    /// Its trace id, if the request had a `traceparent`.
    pub trace_id: Option<Arc<str>>,
}

impl Recorder {
    /// Sinks for this configuration; configured (upstream, model) pairs exist at 0.
    ///
    /// # Errors
    /// If the access log's file can't be opened.
    pub fn new(_config: &Config, _clock: Clock) -> std::io::Result<Self> {
        Ok(Self::default())
    }

    /// Tells `listener` of every finished exchange.
    #[must_use]
    pub fn with_listener(mut self, listener: Listener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The handles of a configured upstream.
    pub fn upstream(&self, _name: &Arc<str>) -> Arc<UpstreamHandles> {
        Arc::new(UpstreamHandles {})
    }

    /// The request's model is known (found, bound reached, or body ended): the exchange is started and in flight,
    /// counted back to `request_head`. `facts.stream == Some(true)` puts it into the waiting room.
    pub fn started(&self, _upstream: &Arc<UpstreamHandles>, _facts: &RequestFacts, _request_head: Stamp) -> Started {
        Started {}
    }

    /// Handles for an exchange whose head has come; a 2xx answer admits the model as a label value.
    pub fn pair(&self, _upstream: &Arc<UpstreamHandles>, _model: Option<&str>, _answered_2xx: bool) -> Arc<Pair> {
        Arc::new(Pair {})
    }

    /// Books a finished exchange: exactly once each. `started` is absent only where no upstream was chosen.
    pub fn finish(
        &self,
        _upstream: Option<&Arc<UpstreamHandles>>,
        _started: Option<Started>,
        observation: Observation,
    ) {
        if let Some(listener) = &self.listener {
            listener(&observation);
        }
    }

    /// Writes out what is queued.
    pub fn close(&self) {}

    /// The exposition for `/metrics`.
    pub fn encode(&self, _openmetrics: bool, _now: Stamp) -> String {
        String::new()
    }
}

impl Started {
    /// Exchanges in flight to the same upstream and model at the start, itself included.
    pub fn load(&self) -> u32 {
        1
    }

    /// The request has left: from here on it waits for its first output.
    pub fn sent(&self, _sent_last: Stamp) {}

    /// The first output came: deadlines are met or missed, it leaves the waiting room. Once.
    pub fn first_output(&self, _ttft: Nanos) {}
}

impl Pair {
    /// `ttfb_seconds`.
    pub fn ttfb(&self, _span: Nanos) {}
    /// `first_event_seconds`.
    pub fn first_event(&self, _span: Nanos) {}
    /// `ttft_seconds` and `ttft_by_load_seconds`.
    pub fn ttft(&self, _span: Nanos, _load: u32, _exemplar: &Exemplar) {}
    /// `answer_ttft_seconds`.
    pub fn answer_ttft(&self, _span: Nanos, _exemplar: &Exemplar) {}
    /// `client_ttft_seconds`.
    pub fn client_ttft(&self, _span: Nanos, _exemplar: &Exemplar) {}
    /// `inter_event_seconds`.
    pub fn gap(&self, _span: Nanos) {}
    /// `overhead_seconds{phase="first_output"}`.
    pub fn overhead_first_output(&self, _span: Nanos) {}
    /// `overhead_seconds{phase="event"}`.
    pub fn overhead_event(&self, _span: Nanos) {}
    /// `reads_total` and `bytes_total{direction="response"}`: one body frame of so many bytes.
    pub fn read(&self, _bytes: u64) {}
    /// `events_total`, `output_events_total`, `coalesced_events_total`: what one frame completed.
    pub fn events(&self, _events: u64, _output_events: u64, _coalesced: u64) {}
}

impl UpstreamHandles {
    /// `connections_total` and `connect_seconds`: a lease was got, dialled phases where they were.
    pub fn lease(
        &self,
        _reused: bool,
        _dns: Option<Nanos>,
        _tcp: Option<Nanos>,
        _tls: Option<Nanos>,
        _pool_wait: Nanos,
    ) {
    }
    /// `attempts_total`: `ok`, `retried` or `failed`.
    pub fn attempt(&self, _result: &'static str) {}
}
