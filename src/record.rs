//! The one door from the data plane to the sinks: metrics and access log. The data plane knows only this.
//!
//! What happens during an exchange (first output, a gap) is observed when it happens, through handles resolved once
//! ([`Pair`], [`Started`]); what needs the whole exchange is observed at its end ([`Recorder::finish`]).

mod cells;
mod pair;
mod room;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use prometheus::{IntCounter, core::Collector as _};

pub use self::pair::{Pair, UpstreamHandles};
use self::{pair::Shared, room::Present};
pub use crate::metrics::Exemplar;
use crate::{
    access_log::AccessLog,
    clock::{Clock, Nanos, Stamp},
    config::{Config, Workload},
    dialect::RequestFacts,
    metrics::{
        Catalogue, Plan,
        encode::{Format, encode},
        family::NONE,
    },
    observation::{Observation, Outcome},
    recent::{ClientPhase, Recent, Remembered},
};

/// Told of every finished exchange, on the worker that finished it: be quick.
pub type Listener = Box<dyn Fn(&Observation) + Send + Sync>;

/// Owns the sinks. Dropping the last one closes the access log, as [`Recorder::close`] does.
pub struct Recorder {
    shared: Arc<Shared>,
    upstreams: RwLock<BTreeMap<Arc<str>, Arc<UpstreamHandles>>>,
    /// For exchanges that reached no upstream.
    nowhere: Arc<UpstreamHandles>,
    workloads: Vec<Workload>,
    log: Option<AccessLog>,
    recent: Recent,
    listener: Option<Listener>,
    clock: Clock,
    measurements_dropped: IntCounter,
    #[cfg(target_os = "linux")]
    process: prometheus::process_collector::ProcessCollector,
}

/// An exchange whose model is known: counted as started and in flight until [`Recorder::finish`] takes it.
/// One whose request asks for a stream also waits until its first output, so that deadlines and the oldest wait are true
/// meanwhile. One that is dropped leaves: deadlines that have passed are missed,
/// the others stay uncounted.
#[derive(Debug)]
pub struct Started {
    pair: Arc<Pair>,
    load: u32,
    ticket: u64,
    clock: Clock,
    left: bool,
}

/// An exchange in flight whose model is known, as it stands at the moment.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its upstream's name.
    pub upstream: Arc<str>,
    /// The model as requested.
    pub model: Option<Arc<str>>,
    /// The model it is counted under.
    pub counted: Arc<str>,
    /// Tells it from the others that are counted there.
    pub ticket: u64,
    /// Its `request_head`.
    pub head: Stamp,
    /// The request's departure; absent before it.
    pub sent: Option<Stamp>,
    /// Time to first token; absent before the first output.
    pub ttft: Option<Nanos>,
    /// The request asks for a stream, and no output has come yet.
    pub waits: bool,
    /// It has become a tunnel.
    pub tunnel: bool,
}

/// Which declared workloads a request's headers fit, by name.
#[derive(Clone, Default, Debug)]
pub struct Marked(Vec<Arc<str>>);

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Sinks for this configuration; configured (upstream, model) pairs exist at 0.
    ///
    /// # Errors
    /// If the access log's file can't be opened.
    pub fn new(config: &Config, clock: Clock) -> io::Result<Self> {
        let mut deadlines: Vec<_> = config.metrics.deadlines.iter().copied().map(Nanos::from).collect();
        deadlines.sort_unstable();
        deadlines.dedup();
        let plan = Plan {
            max_series: config.metrics.max_series,
            upstreams: config.upstreams.len(),
            deadlines: deadlines.len(),
            workloads: config.metrics.workloads.len(),
            client_timings: config.client_timings.is_some(),
        };
        let catalogue = Catalogue::new(plan).map_err(io::Error::other)?;
        let log_dropped = catalogue.log_dropped.child(&[]);
        let log = config.access_log.as_ref().map(|target| AccessLog::open(target, log_dropped)).transpose()?;
        catalogue.series_overflow.child(&[]);
        catalogue.build_info.child(&[env!("CARGO_PKG_VERSION")]).set(1);
        let measurements_dropped = catalogue.measurements_dropped.child(&[]);

        let shared = Arc::new(Shared { catalogue, deadlines: deadlines.into() });
        let upstreams = config.upstreams.iter().map(|upstream| {
            let handles = UpstreamHandles::new(&upstream.name, &upstream.models, &shared);
            handles.exist();
            (upstream.name.clone(), Arc::new(handles))
        });
        let upstreams = RwLock::new(upstreams.collect());
        let folded = shared.catalogue.series_overflow.child(&[]).get();
        if folded > 0 {
            tracing::warn!(folded, max_series = plan.max_series, "metrics.max_series is too small for these models");
        }
        let recorder = Self {
            nowhere: Arc::new(UpstreamHandles::new(&NONE.into(), &[], &shared)),
            shared,
            upstreams,
            workloads: config.metrics.workloads.clone(),
            log,
            recent: Recent::new(config.recent),
            listener: None,
            clock,
            measurements_dropped,
            #[cfg(target_os = "linux")]
            process: prometheus::process_collector::ProcessCollector::for_self(),
        };
        recorder.reloaded(true, clock.wall(clock.now()));
        Ok(recorder)
    }

    /// Tells `listener` of every finished exchange as well.
    #[must_use]
    pub fn with_listener(mut self, listener: Listener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The handles of an upstream. One that was not configured at the start gets its own now.
    pub fn upstream(&self, name: &Arc<str>) -> Arc<UpstreamHandles> {
        if let Some(handles) = self.upstreams.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return handles.clone();
        }
        let mut upstreams = self.upstreams.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(UpstreamHandles::new(name, &[], &self.shared));
        upstreams.entry(name.clone()).or_insert_with(fresh).clone()
    }

    /// The request's model is known (found, bound reached, or body ended): the exchange is started and in flight,
    /// counted back to `request_head`. With `facts.stream == Some(true)` it waits for a first output.
    pub fn started(&self, upstream: &Arc<UpstreamHandles>, facts: &RequestFacts, request_head: Stamp) -> Started {
        let pair = upstream.pair(facts.model.as_deref(), false);
        let (load, ticket) = pair.enter(Present::new(request_head, facts.model.clone(), facts.stream == Some(true)));
        Started { pair, load, ticket, clock: self.clock, left: false }
    }

    /// Handles for an exchange whose head has come; a 2xx answer admits the model as a label value.
    pub fn pair(&self, upstream: &Arc<UpstreamHandles>, model: Option<&str>, answered_2xx: bool) -> Arc<Pair> {
        upstream.pair(model, answered_2xx)
    }

    /// Which declared workloads these request headers fit. Without workloads that ask for a header: none, for nothing.
    pub fn marked(&self, headers: &HeaderMap) -> Marked {
        let fits = |workload: &&Workload| {
            workload.header.as_ref().is_some_and(|(name, value)| headers.get_all(name).iter().any(|had| had == value))
        };
        Marked(self.workloads.iter().filter(fits).map(|workload| workload.name.clone()).collect())
    }

    /// The first declared workload whose windows hold these token counts and whose header, if it asks for one, was
    /// there. Absent if there is none or a count is unknown.
    pub fn workload(&self, marked: &Marked, input: Option<u64>, output: Option<u64>) -> Option<Arc<str>> {
        let (input, output) = (input?, output?);
        let inside = |window: (u64, u64), tokens: u64| (window.0..=window.1).contains(&tokens);
        let found = self.workloads.iter().find(|workload| {
            inside(workload.input_tokens, input)
                && inside(workload.output_tokens, output)
                && (workload.header.is_none() || marked.0.contains(&workload.name))
        });
        found.map(|workload| workload.name.clone())
    }

    /// Books a finished exchange: exactly once each. `started` is absent only where no upstream was chosen or the model
    /// never became known. Fills in `load` if it was left open.
    pub fn finish(
        &self,
        upstream: Option<&Arc<UpstreamHandles>>,
        started: Option<Started>,
        observation: impl Into<Box<Observation>>,
    ) {
        let mut observation = observation.into();
        let end = observation.timeline.end.unwrap_or(observation.timeline.request_head);
        if let Some(mut started) = started {
            observation.load.get_or_insert(started.load);
            started.leave(end, Some(observation.outcome));
        }
        let admit = observation.status.is_some_and(|status| (200..300).contains(&status));
        let pair = upstream.unwrap_or(&self.nowhere).pair(observation.model.as_deref(), admit && upstream.is_some());
        pair.finish(&observation, &self.measurements_dropped);
        let exchange = Arc::new(Remembered::new(observation));
        // First, so that whoever is told of an exchange finds it.
        self.recent.push(Arc::clone(&exchange));
        if let Some(listener) = &self.listener {
            listener(&exchange.observation);
        }
        if let Some(log) = &self.log {
            log.send(&exchange.observation);
        }
    }

    /// Those in flight whose model is known, in no order.
    pub fn running(&self) -> Vec<Running> {
        let mut running = Vec::new();
        for pair in self.pairs() {
            pair.running(&mut running);
        }
        running
    }

    /// The last exchanges.
    pub const fn recent(&self) -> &Recent {
        &self.recent
    }

    /// What the client of a remembered exchange says it measured: `client_reported_seconds`, and beside its record. Once
    /// of each phase; later ones do nothing.
    pub fn client_reported(&self, exchange: &Remembered, phase: ClientPhase, span: Nanos) {
        if exchange.report(phase, span) {
            let Observation { upstream, model, .. } = &*exchange.observation;
            let upstream = upstream.as_ref().map_or_else(|| Arc::clone(&self.nowhere), |name| self.upstream(name));
            upstream.pair(model.as_deref(), false).client_reported(phase, span);
        }
    }

    /// How late a worker ran a timer.
    pub fn runtime_delay(&self, span: Nanos) {
        // Made at the first observation: a family that nobody feeds is not shown.
        self.shared.catalogue.runtime_delay.child(&[]).observe(span.0);
    }

    /// The configuration was loaded, or failed to, at this wall-clock time.
    pub fn reloaded(&self, successful: bool, at: SystemTime) {
        let catalogue = &self.shared.catalogue;
        catalogue.reload_successful.child(&[]).set(successful.into());
        if successful {
            let since_epoch = at.duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from);
            catalogue.reload_time.child(&[]).set(i64::try_from(since_epoch.0).unwrap_or(i64::MAX));
        }
    }

    /// The exposition for `/metrics`, in OpenMetrics or in text 0.0.4. Reads `/proc`: not for a worker's thread.
    pub fn encode(&self, openmetrics: bool, now: Stamp) -> String {
        for pair in self.pairs() {
            pair.refresh(now);
        }
        #[cfg(target_os = "linux")]
        let process = self.process.collect();
        #[cfg(not(target_os = "linux"))]
        let process = Vec::new();
        let format = if openmetrics { Format::OpenMetrics } else { Format::Text };
        encode(self.shared.catalogue.families(), &process, format)
    }

    fn pairs(&self) -> Vec<Arc<Pair>> {
        let upstreams = self.upstreams.read().unwrap_or_else(PoisonError::into_inner);
        upstreams.values().chain([&self.nowhere]).flat_map(|upstream| upstream.pairs()).collect()
    }

    /// Has the access log write out what it still holds and end, and blocks until that is done, but not longer than
    /// `patience`. Whether it is done; records that come later are counted as dropped.
    pub fn close(&self, patience: Duration) -> bool {
        self.log.as_ref().is_none_or(|log| log.close(patience))
    }
}

impl Started {
    /// Exchanges in flight to the same upstream and model at the start, itself included, tunnels aside.
    pub fn load(&self) -> u32 {
        self.load
    }

    /// The request has left: from here on it waits for its first output. Again for each attempt.
    pub fn sent(&self, sent_last: Stamp) {
        self.pair.room().sent(self.ticket, sent_last);
    }

    /// The first output came: deadlines are met or missed, it waits no longer. Once; later calls do nothing.
    pub fn first_output(&self, ttft: Nanos) {
        let waiting = self.pair.room().served(self.ticket, ttft);
        if let Some(waiting) = waiting {
            self.pair.served(waiting, ttft);
        }
    }

    /// It has become a tunnel, which is nobody's load: exchanges that start from here on do not count it.
    pub fn tunnelled(&self) {
        self.pair.room().tunnelled(self.ticket);
    }

    fn leave(&mut self, end: Stamp, outcome: Option<Outcome>) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        let waiting = self.pair.room().leave(self.ticket, end);
        if let Some(waiting) = waiting {
            self.pair.unserved(waiting, end, outcome);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.left {
            // Nobody is left to say when: a panic, or a future dropped before it was booked.
            self.leave(self.clock.now(), None);
        }
    }
}
