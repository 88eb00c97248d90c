//! The handles of one upstream and of one (upstream, model): cells resolved once, observed without lock or allocation.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
};

use prometheus::{IntCounter, IntGauge};

use super::{
    Running,
    cells::{add, finite, observe, touch},
    room::{Present, Room, Waiting},
};
use crate::{
    clock::{Nanos, Stamp},
    dialect::{Dialect, Endpoint, ObserverOff, RateLimit, Reported},
    metrics::{
        Catalogue, Child, Children, Exemplar, Histogram,
        family::{Cell, Family, NONE, OTHER},
    },
    observation::{Observation, Outcome, STAGES, input_class, load_class, output_class},
    recent::ClientPhase,
    timeline::Timeline,
};

/// Models per upstream that become label values without being configured, those configured included in the count.
const MODELS: usize = 64;
/// Bytes of a model's name as a label value.
const MODEL_BYTES: usize = 128;

/// What all upstreams and pairs share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) catalogue: Catalogue,
    /// Ascending, without repeats.
    pub(super) deadlines: Box<[Nanos]>,
}

/// Handles of one upstream, resolved at start-up and held with its route.
#[derive(Debug)]
pub struct UpstreamHandles {
    name: Arc<str>,
    shared: Arc<Shared>,
    cells: Arc<UpstreamCells>,
    models: RwLock<BTreeMap<Box<str>, Arc<Pair>>>,
    other: OnceLock<Arc<Pair>>,
    none: OnceLock<Arc<Pair>>,
}

#[derive(Debug)]
struct UpstreamCells {
    overhead_request: Child<Histogram>,
    overhead_first_output: Child<Histogram>,
    overhead_event: Child<Histogram>,
    connections: [Child<IntCounter>; 2],
    connect: [Child<Histogram>; 3],
    pool_wait: Child<Histogram>,
    upstream_rtt: Child<Histogram>,
    client_rtt: Child<Histogram>,
    observer_off: [Child<IntCounter>; 4],
    unobserved: Child<IntCounter>,
    attempts: Children<IntCounter>,
}

/// Handles of one (upstream, model) pair: what is observed while an exchange runs.
#[derive(Debug)]
pub struct Pair {
    upstream: Arc<str>,
    model: Arc<str>,
    shared: Arc<Shared>,
    cells: Arc<UpstreamCells>,
    room: Mutex<Room>,

    reads: Child<IntCounter>,
    response_bytes: Child<IntCounter>,
    events: Child<IntCounter>,
    output_events: Child<IntCounter>,
    coalesced: Child<IntCounter>,
    gap: Child<Histogram>,

    ttfb: Child<Histogram>,
    first_event: Child<Histogram>,
    ttft: Child<Histogram>,
    answer_ttft: Child<Histogram>,
    client_ttft: Child<Histogram>,
    voice_first_audio: Child<Histogram>,

    started: Child<IntCounter>,
    in_flight: Child<IntGauge>,
    in_flight_time: Child<IntCounter>,
    in_flight_peak: Child<IntGauge>,
    oldest_wait: Child<IntGauge>,
    /// By deadline.
    met: Box<[Child<IntCounter>]>,
    missed: Box<[Child<IntCounter>]>,

    abandoned_wait: Child<Histogram>,
    tpot: Child<Histogram>,
    max_gap: Child<Histogram>,
    duration: [Child<Histogram>; 2],
    client_duration: Child<Histogram>,
    stage_time: [Child<IntCounter>; 13],
    tokens: [Child<IntCounter>; 5],
    request_bytes: Child<IntCounter>,
    stalls: [Child<IntCounter>; 2],
    stall_time: [Child<IntCounter>; 2],
    no_usage: Child<IntCounter>,
    no_output: Child<IntCounter>,
    hidden_reasoning: Child<IntCounter>,
    server_reported: [Child<Histogram>; 5],
    /// The gateway's side, the server's.
    paired_ttft: [Child<Histogram>; 2],

    requests: Children<IntCounter>,
    ttft_by_input: Children<Histogram>,
    ttft_by_load: Children<Histogram>,
    output_speed: Children<Histogram>,
    client_reported: Children<Histogram>,
    ratelimit_limit: Children<IntGauge>,
    ratelimit_remaining: Children<IntGauge>,
    workload_ttft: Children<Histogram>,
    workload_output_speed: Children<Histogram>,
    workload_duration: Children<Histogram>,
}

impl UpstreamHandles {
    /// Handles of an upstream whose pairs with these models exist at 0.
    pub(super) fn new(name: &Arc<str>, models: &[String], shared: &Arc<Shared>) -> Self {
        let cells = Arc::new(UpstreamCells::new(name, &shared.catalogue));
        let pair = |model: &String| {
            let pair = Pair::new(name, model, shared, &cells);
            pair.exist();
            (model.as_str().into(), Arc::new(pair))
        };
        let models = RwLock::new(models.iter().map(pair).collect());
        let (name, shared) = (name.clone(), shared.clone());
        Self { name, shared, cells, models, other: OnceLock::new(), none: OnceLock::new() }
    }

    /// What is known without a model exists at 0.
    pub(super) fn exist(&self) {
        let UpstreamCells { overhead_request, overhead_first_output, overhead_event, .. } = &*self.cells;
        let UpstreamCells {
            connections,
            connect,
            pool_wait,
            upstream_rtt,
            client_rtt,
            observer_off,
            attempts,
            unobserved,
            ..
        } = &*self.cells;
        [overhead_request, overhead_first_output, overhead_event].into_iter().for_each(touch);
        [pool_wait, upstream_rtt, client_rtt].into_iter().for_each(touch);
        connections.iter().for_each(touch);
        connect.iter().for_each(touch);
        observer_off.iter().for_each(touch);
        touch(unobserved);
        for result in ["ok", "retried", "failed"] {
            attempts.touch(&[result]);
        }
    }

    /// The pair this model's exchanges are counted in: its own if it has one or `admit` gives it one.
    pub(super) fn pair(&self, model: Option<&str>, admit: bool) -> Arc<Pair> {
        let special = |slot: &OnceLock<Arc<Pair>>, label| slot.get_or_init(|| Arc::new(self.fresh(label))).clone();
        let Some(model) = model else { return special(&self.none, NONE) };
        if let Some(pair) = self.models.read().unwrap_or_else(PoisonError::into_inner).get(model) {
            return pair.clone();
        }
        if !admit || !admissible(model) {
            return special(&self.other, OTHER);
        }
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(pair) = models.get(model) {
            return pair.clone();
        }
        if models.len() >= MODELS {
            return special(&self.other, OTHER);
        }
        let pair = Arc::new(self.fresh(model));
        models.insert(model.into(), pair.clone());
        pair
    }

    /// Every pair there is.
    pub(super) fn pairs(&self) -> Vec<Arc<Pair>> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        models.values().chain(self.other.get()).chain(self.none.get()).cloned().collect()
    }

    fn fresh(&self, model: &str) -> Pair {
        Pair::new(&self.name, model, &self.shared, &self.cells)
    }

    /// `connections_total` and `connect_seconds`: a lease was got, dialled phases where they were.
    pub fn lease(
        &self,
        reused: bool,
        dns: Option<Nanos>,
        tcp: Option<Nanos>,
        tls: Option<Nanos>,
        pool_wait: Option<Nanos>,
    ) {
        self.cells.connections[usize::from(reused)].get().inc();
        for (phase, span) in self.cells.connect.iter().zip([dns, tcp, tls]) {
            observe(phase, span);
        }
        observe(&self.cells.pool_wait, pool_wait);
    }

    /// `unobserved_requests_total`: one came on a route that does not observe.
    pub fn unobserved(&self) {
        self.cells.unobserved.get().inc();
    }

    /// `attempts_total`: `ok`, `retried` or `failed`.
    pub fn attempt(&self, result: &'static str) {
        self.cells.attempts.get(&[result]).inc();
    }
}

impl UpstreamCells {
    fn new(name: &Arc<str>, catalogue: &Catalogue) -> Self {
        let overhead = |phase| Child::of(&catalogue.overhead, &[name, phase]);
        Self {
            overhead_request: overhead("request"),
            overhead_first_output: overhead("first_output"),
            overhead_event: overhead("event"),
            connections: ["false", "true"].map(|reused| Child::of(&catalogue.connections, &[name, reused])),
            connect: ["dns", "tcp", "tls"].map(|phase| Child::of(&catalogue.connect, &[name, phase])),
            pool_wait: Child::of(&catalogue.pool_wait, &[name]),
            upstream_rtt: Child::of(&catalogue.upstream_rtt, &[name]),
            client_rtt: Child::of(&catalogue.client_rtt, &[name]),
            observer_off: OBSERVER_OFF.map(|off| Child::of(&catalogue.observer_off, &[name, off.as_str()])),
            unobserved: Child::of(&catalogue.unobserved, &[name]),
            attempts: Children::of(&catalogue.attempts, &[Arc::clone(name)]),
        }
    }
}

const OBSERVER_OFF: [ObserverOff; 4] =
    [ObserverOff::Overflow, ObserverOff::Encoding, ObserverOff::Malformed, ObserverOff::UnknownDialect];

impl Pair {
    fn new(upstream: &Arc<str>, model: &str, shared: &Arc<Shared>, cells: &Arc<UpstreamCells>) -> Self {
        fn by<C: Cell, const N: usize>(family: &Arc<Family<C>>, pair: [&str; 2], values: [&str; N]) -> [Child<C>; N] {
            values.map(|value| Child::of(family, &[pair[0], pair[1], value]))
        }
        let c = &shared.catalogue;
        let model: Arc<str> = model.into();
        let first = [upstream.clone(), model.clone()];
        let p = [upstream.as_ref(), model.as_ref()];
        let deadlines = |result| {
            let label = |deadline: &Nanos| deadline.seconds().to_string();
            let child = |deadline| Child::of(&c.deadline, &[p[0], p[1], &label(deadline), result]);
            shared.deadlines.iter().map(child).collect()
        };
        let [request_bytes, response_bytes] = by(&c.bytes, p, ["request", "response"]);
        Self {
            upstream: upstream.clone(),
            shared: shared.clone(),
            cells: cells.clone(),
            room: Mutex::new(Room::new()),
            reads: Child::of(&c.reads, &p),
            response_bytes,
            events: Child::of(&c.events, &p),
            output_events: Child::of(&c.output_events, &p),
            coalesced: Child::of(&c.coalesced_events, &p),
            gap: Child::of(&c.inter_event, &p),
            ttfb: Child::of(&c.ttfb, &p),
            first_event: Child::of(&c.first_event, &p),
            ttft: Child::of(&c.ttft, &p),
            answer_ttft: Child::of(&c.answer_ttft, &p),
            client_ttft: Child::of(&c.client_ttft, &p),
            voice_first_audio: Child::of(&c.voice_first_audio, &p),
            started: Child::of(&c.requests_started, &p),
            in_flight: Child::of(&c.in_flight, &p),
            in_flight_time: Child::of(&c.in_flight_time, &p),
            in_flight_peak: Child::of(&c.in_flight_peak, &p),
            oldest_wait: Child::of(&c.oldest_wait, &p),
            met: deadlines("met"),
            missed: deadlines("missed"),
            abandoned_wait: Child::of(&c.abandoned_wait, &p),
            tpot: Child::of(&c.tpot, &p),
            max_gap: Child::of(&c.max_gap, &p),
            duration: by(&c.duration, p, ["not_ok", "ok"]),
            client_duration: Child::of(&c.client_duration, &p),
            stage_time: by(&c.stage_time, p, STAGES),
            tokens: by(&c.tokens, p, ["input", "cached_input", "cache_write", "output", "reasoning"]),
            request_bytes,
            stalls: by(&c.stalls, p, ["upstream", "client"]),
            stall_time: by(&c.stall_time, p, ["upstream", "client"]),
            no_usage: Child::of(&c.no_usage, &p),
            no_output: Child::of(&c.no_output, &p),
            hidden_reasoning: Child::of(&c.hidden_reasoning, &p),
            server_reported: by(&c.server_reported, p, Reported::default().named().map(|(phase, _)| phase)),
            paired_ttft: by(&c.paired_ttft, p, ["gateway", "server"]),
            requests: Children::of(&c.requests, &first),
            ttft_by_input: Children::of(&c.ttft_by_input, &first),
            ttft_by_load: Children::of(&c.ttft_by_load, &first),
            output_speed: Children::of(&c.output_speed, &first),
            client_reported: Children::of(&c.client_reported, &first),
            ratelimit_limit: Children::of(&c.ratelimit_limit, &first),
            ratelimit_remaining: Children::of(&c.ratelimit_remaining, &first),
            workload_ttft: Children::of(&c.workload_ttft, &first),
            workload_output_speed: Children::of(&c.workload_output_speed, &first),
            workload_duration: Children::of(&c.workload_duration, &first),
            model,
        }
    }

    /// Everything that has no label beyond the pair's, or a closed set of few, exists at 0, but for what only few models
    /// have (voice); of `requests_total` the outcome `complete` of the three endpoints a model is usually served at. The
    /// other outcomes follow with the first exchange of their endpoint ([`Pair::count`]): all of them would be 84 series
    /// per pair from the start.
    fn exist(&self) {
        let spans = [&self.ttfb, &self.first_event, &self.ttft, &self.answer_ttft, &self.client_ttft, &self.gap];
        spans.into_iter().for_each(touch);
        [&self.abandoned_wait, &self.tpot, &self.max_gap, &self.client_duration].into_iter().for_each(touch);
        self.duration.iter().for_each(touch);
        let counts = [&self.started, &self.reads, &self.events, &self.output_events, &self.coalesced];
        counts.into_iter().for_each(touch);
        [&self.request_bytes, &self.response_bytes].into_iter().for_each(touch);
        [&self.no_usage, &self.no_output, &self.hidden_reasoning].into_iter().for_each(touch);
        self.stage_time.iter().chain(&self.tokens).chain(&self.stalls).chain(&self.stall_time).for_each(touch);
        self.met.iter().chain(&self.missed).for_each(touch);
        for endpoint in [Endpoint::Chat, Endpoint::Responses, Endpoint::Messages] {
            for stream in [false, true] {
                self.requests.touch(&request_labels(endpoint, stream, Outcome::Complete));
            }
        }
    }

    pub(super) fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an exchange as started and lets it in.
    pub(super) fn enter(&self, exchange: Present) -> (u32, u64) {
        self.started.get().inc();
        self.room().enter(exchange)
    }

    /// Those in flight.
    pub(super) fn running(&self, into: &mut Vec<Running>) {
        // First outputs wait for this lock: nothing grows under it, and the rest is done behind it.
        let mut here = Vec::with_capacity(self.room().in_flight() as usize + 64);
        here.extend(self.room().here().map(|(ticket, exchange)| (ticket, exchange.clone())));
        into.extend(here.into_iter().map(|(ticket, exchange)| Running {
            upstream: Arc::clone(&self.upstream),
            waits: exchange.waiting().is_some(),
            model: exchange.model,
            counted: Arc::clone(&self.model),
            ticket,
            head: exchange.head,
            sent: exchange.sent,
            ttft: exchange.ttft,
            tunnel: exchange.tunnel,
        }));
    }

    /// Brings to now what is only true of a moment: gauges, the time integral, deadlines that have passed.
    pub(super) fn refresh(&self, now: Stamp) {
        let mut room = self.room();
        room.overdue(now, &self.shared.deadlines, |index| self.missed[index].get().inc());
        self.in_flight.get().set(room.in_flight().into());
        self.in_flight_peak.get().set(room.peak(now).into());
        self.oldest_wait.get().set(i64::try_from(room.oldest(now).0).unwrap_or(i64::MAX));
        // An exchange may be booked with an end before the last look, which counted it as running until then; a counter
        // that stepped back would be read as a restart.
        let time = self.in_flight_time.get();
        time.inc_by(room.time(now).saturating_sub(time.get()));
    }

    /// The first output came after `ttft`: the deadlines not yet counted are.
    pub(super) fn served(&self, waiting: Waiting, ttft: Nanos) {
        for (index, deadline) in self.shared.deadlines.iter().enumerate().skip(waiting.missed) {
            let cells = if ttft <= *deadline { &self.met } else { &self.missed };
            cells[index].get().inc();
        }
    }

    /// The exchange ended at `end` without output: deadlines not yet counted are missed, unless the client left before
    /// them or the request was its fault.
    pub(super) fn unserved(&self, waiting: Waiting, end: Stamp, outcome: Option<Outcome>) {
        let clients = matches!(outcome, None | Some(Outcome::ClientGone | Outcome::ClientError));
        let waited = waiting.since.map_or(Nanos::ZERO, |since| end.since(since));
        for (index, deadline) in self.shared.deadlines.iter().enumerate().skip(waiting.missed) {
            if !clients || waited > *deadline {
                self.missed[index].get().inc();
            }
        }
    }

    /// Everything that is observed at an exchange's end.
    pub(super) fn finish(&self, observation: &Observation, measurements_dropped: &IntCounter) {
        self.count(observation);
        if observation.endpoint == Endpoint::Tunnel {
            return; // its hours would drown the latencies of exchanges
        }
        let usage = &observation.facts.usage;
        let marks = &observation.timeline;

        for (cell, span) in self.stage_time.iter().zip(observation.stages()) {
            add(cell, span.0);
        }
        if let Some(ttft) = observation.streamed().and_then(Timeline::ttft) {
            self.ttft_by_input.get(&[input_class(usage.input)]).observe(ttft.0);
        }
        if observation.outcome == Outcome::ClientGone && observation.stream && marks.first_output.is_none() {
            observe(&self.abandoned_wait, marks.end.zip(marks.sent_last).map(|(end, sent)| end.since(sent)));
        }
        observe(&self.tpot, observation.tpot());
        observe(&self.max_gap, observation.cadence.max_gap());
        observe(&self.duration[usize::from(observation.outcome == Outcome::Complete)], marks.duration());
        observe(&self.client_duration, observation.client_duration());
        observe(&self.cells.overhead_request, observation.overhead_request());
        observe(&self.cells.upstream_rtt, observation.connection.upstream.rtt);
        observe(&self.cells.client_rtt, observation.connection.client.rtt);

        let answered = observation.status.is_some_and(|status| (200..300).contains(&status));
        let reported = &observation.facts.reported;
        for (cell, (phase, span)) in self.server_reported.iter().zip(reported.named()) {
            // The time a provider took to say no is not the time it takes to answer; a TTFT without the queue it had is none.
            let counts = answered && !(phase == "ttft" && reported.ttft_behind_queue);
            observe(cell, span.filter(|_| counts));
        }
        if let Some((gateway, server)) = observation.paired_ttft() {
            observe(&self.paired_ttft[0], Some(gateway));
            observe(&self.paired_ttft[1], Some(server));
        }

        let speed = observation.output_speed().and_then(|speed| finite(speed, measurements_dropped));
        if let Some(speed) = speed {
            self.output_speed.get(&[output_class(usage.output)]).observe(speed);
        }
        if let Some(workload) = observation.workload.as_ref().filter(|_| observation.outcome == Outcome::Complete) {
            let last: [&str; 1] = [workload];
            if let Some(ttft) = observation.streamed().and_then(Timeline::ttft) {
                self.workload_ttft.get(&last).observe(ttft.0);
            }
            if let Some(speed) = speed {
                self.workload_output_speed.get(&last).observe(speed);
            }
            if let Some(duration) = marks.duration() {
                self.workload_duration.get(&last).observe(duration.0);
            }
        }
    }

    /// The counters of an exchange's end, tunnels' included.
    fn count(&self, observation: &Observation) {
        let Observation { endpoint, stream, outcome, .. } = *observation;
        let own_model = *self.model != *OTHER && *self.model != *NONE;
        let cell = self.requests.get(&request_labels(endpoint, stream, outcome));
        if cell.get() == 0 && own_model {
            // The first of its kind: its siblings come with it, so that the first failure is visible to increase().
            for outcome in Outcome::ALL {
                self.requests.touch(&request_labels(endpoint, stream, outcome));
            }
        }
        cell.inc();

        let usage = &observation.facts.usage;
        let tokens = [usage.input, usage.cached, usage.cache_write, usage.output, usage.reasoning];
        for (cell, tokens) in self.tokens.iter().zip(tokens) {
            add(cell, tokens.unwrap_or(0));
        }
        add(&self.request_bytes, observation.request_bytes);
        let waits = &observation.timeline.waits;
        for (cell, stalls) in self.stalls.iter().zip([waits.upstream_stalls, waits.client_stalls]) {
            add(cell, stalls.into());
        }
        for (cell, span) in self.stall_time.iter().zip([waits.upstream, waits.client]) {
            add(cell, span.0);
        }
        let generates = matches!(
            endpoint,
            Endpoint::Chat
                | Endpoint::Completions
                | Endpoint::Responses
                | Endpoint::Messages
                | Endpoint::Generate
                | Endpoint::Realtime
        );
        let known = observation.dialect != Dialect::Other && generates;
        add(&self.no_usage, (known && outcome == Outcome::Complete && !usage.is_known()).into());
        // A turn has its session's 101.
        let answered = observation.status.is_some_and(|status| status == 101 || (200..300).contains(&status))
            && observation.timeline.response_end.is_some()
            && observation.observer_off.is_none();
        add(&self.no_output, (known && stream && answered && observation.output_events == 0).into());
        add(&self.hidden_reasoning, observation.hidden_reasoning().into());
        if let Some(off) = observation.observer_off {
            OBSERVER_OFF
                .iter()
                .zip(&self.cells.observer_off)
                .filter(|(reason, _)| **reason == off)
                .for_each(|(_, cell)| cell.get().inc());
        }
    }
}

/// What is observed while it happens. The four of each output event ([`Pair::read`], [`Pair::events`], [`Pair::gap`],
/// [`Pair::overhead_event`]) take no lock and allocate nothing after their first use.
impl Pair {
    /// `ttfb_seconds`.
    pub fn ttfb(&self, span: Nanos) {
        self.ttfb.get().observe(span.0);
    }

    /// `first_event_seconds`.
    pub fn first_event(&self, span: Nanos) {
        self.first_event.get().observe(span.0);
    }

    /// `ttft_seconds` and `ttft_by_load_seconds`.
    pub fn ttft(&self, span: Nanos, load: u32, exemplar: &Exemplar) {
        self.ttft.get().observe_with(span.0, exemplar);
        self.ttft_by_load.get(&[load_class(load)]).observe(span.0);
    }

    /// `answer_ttft_seconds`.
    pub fn answer_ttft(&self, span: Nanos, exemplar: &Exemplar) {
        self.answer_ttft.get().observe_with(span.0, exemplar);
    }

    /// `client_ttft_seconds`.
    pub fn client_ttft(&self, span: Nanos, exemplar: &Exemplar) {
        self.client_ttft.get().observe_with(span.0, exemplar);
    }

    /// `voice_first_audio_seconds`.
    pub fn voice_first_audio(&self, span: Nanos) {
        self.voice_first_audio.get().observe(span.0);
    }

    /// `inter_event_seconds`.
    pub fn gap(&self, span: Nanos) {
        self.gap.get().observe(span.0);
    }

    /// `overhead_seconds{phase="first_output"}`.
    pub fn overhead_first_output(&self, span: Nanos) {
        self.cells.overhead_first_output.get().observe(span.0);
    }

    /// `overhead_seconds{phase="event"}`.
    pub fn overhead_event(&self, span: Nanos) {
        self.cells.overhead_event.get().observe(span.0);
    }

    /// `ratelimit_limit` and `ratelimit_remaining`: what a response's head states. The newest stands. Once per exchange.
    pub fn rate_limits(&self, stated: &[RateLimit]) {
        for limit in stated {
            for (cells, value) in [(&self.ratelimit_limit, limit.limit), (&self.ratelimit_remaining, limit.remaining)] {
                if let Some(value) = value {
                    cells.get(&[limit.kind.as_str()]).set(i64::try_from(value).unwrap_or(i64::MAX));
                }
            }
        }
    }

    /// `client_reported_seconds`.
    pub(super) fn client_reported(&self, phase: ClientPhase, span: Nanos) {
        self.client_reported.get(&[phase.as_str()]).observe(span.0);
    }

    /// `bytes_total{direction="response"}`: bytes that came outside of body frames, through a tunnel.
    pub fn tunnelled(&self, bytes: u64) {
        add(&self.response_bytes, bytes);
    }

    /// `reads_total` and `bytes_total{direction="response"}`: a body frame of so many bytes, and the reads it began.
    pub fn read(&self, reads: u64, bytes: u64) {
        add(&self.reads, reads);
        self.response_bytes.get().inc_by(bytes);
    }

    /// `events_total`, `output_events_total`, `coalesced_events_total`: what one frame completed.
    pub fn events(&self, events: u64, output_events: u64, coalesced: u64) {
        add(&self.events, events);
        add(&self.output_events, output_events);
        add(&self.coalesced, coalesced);
    }
}

/// The labels of `requests_total` behind the pair's.
const fn request_labels(endpoint: Endpoint, stream: bool, outcome: Outcome) -> [&'static str; 3] {
    [endpoint.as_str(), if stream { "true" } else { "false" }, outcome.as_str()]
}

/// A name that may become a label value: short, printable, none of our own.
fn admissible(model: &str) -> bool {
    let printable = |char: char| char.is_ascii_graphic() || char == ' ' || char.is_alphanumeric();
    !model.is_empty() && model.len() <= MODEL_BYTES && model.chars().all(printable) && model != OTHER && model != NONE
}
