//! What the last minutes come to, for the live page: made when somebody looks, of the last exchanges and those in flight.

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

use super::Pages;
use crate::{
    clock::{Nanos, Stamp},
    figures::Sample,
    observation::{Observation, Outcome},
    record::Running,
};

/// Seconds since 1970.
pub(super) fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What "now" is.
const WINDOW: Nanos = Nanos(300_000_000_000);
/// Exchanges that figures are made of, at most: what is made twice a second may not take long.
const MOST: usize = 4096;
/// Upstreams and models, and exchanges in flight, that are shown.
const MOST_PAIRS: usize = 60;
const MOST_RUNNING: usize = 100;

/// One look. Spans are in seconds; what was not observed is left out.
#[derive(Serialize, Debug)]
pub(super) struct Now {
    /// Seconds since 1970.
    time: f64,
    /// Requests are taken: not while it starts or drains.
    ready: bool,
    window_s: f64,
    /// Exchanges that ended in the window, as far as they are remembered.
    exchanges: usize,
    /// How long ago the first of them ended; less than the window where those before it are forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    reaches_s: Option<f64>,
    /// Some of the window's exchanges are forgotten.
    forgotten: bool,
    in_flight: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_wait_s: Option<f64>,
    pairs: Vec<PairNow>,
    /// Those with least traffic, above 60.
    pairs_left_out: usize,
    running: Vec<RunningNow>,
}

/// An upstream and model.
#[derive(Serialize, Default, Debug)]
struct PairNow {
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    in_flight: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_wait_s: Option<f64>,
    exchanges: usize,
    ttft_s: Figures,
    output_tokens_per_second: Figures,
    /// Of the first output event.
    overhead_s: Figures,
    outcomes: BTreeMap<&'static str, usize>,
}

/// A sample's size and quantiles of nearest rank.
#[derive(Serialize, Default, Debug)]
struct Figures {
    n: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<f64>,
}

/// An exchange in flight.
#[derive(Serialize, Debug)]
struct RunningNow {
    /// Tells it from all others in flight.
    key: String,
    upstream: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// `sending`, `waiting` (for the first output), `streaming`, `answering` (no stream), or `tunnel`.
    doing: &'static str,
    /// Since its head arrived.
    age_s: f64,
    /// Since its request left.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_s: Option<f64>,
}

impl Now {
    pub(super) fn look(pages: &Pages) -> Self {
        let (recent, now) = (pages.recorder.recent(), pages.clock.now());
        let begin = now.minus(WINDOW);
        let pushed = recent.pushed();
        let looked_at = recent.between(0, pushed, MOST);
        let ended = |observation: &Observation| observation.timeline.end.unwrap_or(Stamp::ORIGIN);
        let inside: Vec<&Observation> =
            looked_at.iter().map(|exchange| &*exchange.observation).filter(|seen| ended(seen) >= begin).collect();
        // What lies before them, if anything, is either older than the window or no longer here.
        let forgotten = inside.len() == looked_at.len() && pushed > looked_at.len() as u64;
        let reaches_s = inside.iter().map(|seen| now.since(ended(seen)).seconds()).reduce(f64::max);

        let mut running = pages.recorder.running();
        let mut pairs = BTreeMap::<Key<'_>, Gathered>::new();
        for seen in &inside {
            pairs.entry((seen.upstream.as_deref(), seen.model.as_deref())).or_default().ended(seen);
        }
        for exchange in &running {
            pairs.entry((Some(&exchange.upstream), exchange.model.as_deref())).or_default().runs(exchange, now);
        }
        let oldest = pairs.values().filter_map(|gathered| gathered.oldest).max();
        let mut pairs: Vec<PairNow> = pairs.into_iter().map(|(key, gathered)| gathered.figures(key)).collect();
        let pairs_left_out = pairs.len().saturating_sub(MOST_PAIRS);
        if pairs_left_out > 0 {
            pairs.sort_by_key(|pair| std::cmp::Reverse(pair.in_flight + pair.exchanges));
            pairs.truncate(MOST_PAIRS);
        }

        let in_flight = running.len();
        // Those that hang are among them, however many there are.
        running.sort_unstable_by_key(|exchange| exchange.head);
        running.truncate(MOST_RUNNING);
        Self {
            time: since_epoch(pages.clock.wall(now)),
            ready: pages.ready.load(Ordering::Acquire),
            window_s: WINDOW.seconds(),
            exchanges: inside.len(),
            reaches_s,
            forgotten,
            in_flight,
            oldest_wait_s: oldest.map(Nanos::seconds),
            pairs,
            pairs_left_out,
            running: running.iter().map(|exchange| RunningNow::of(exchange, now)).collect(),
        }
    }
}

/// Upstream and model.
type Key<'a> = (Option<&'a str>, Option<&'a str>);

/// What there is of one upstream and model.
#[derive(Default)]
struct Gathered {
    in_flight: usize,
    oldest: Option<Nanos>,
    exchanges: usize,
    ttft: Vec<f64>,
    speed: Vec<f64>,
    overhead: Vec<f64>,
    outcomes: BTreeMap<&'static str, usize>,
}

impl Gathered {
    fn ended(&mut self, seen: &Observation) {
        self.exchanges += 1;
        *self.outcomes.entry(Outcome::as_str(seen.outcome)).or_default() += 1;
        if let Some(timeline) = seen.streamed() {
            self.ttft.extend(timeline.ttft().map(Nanos::seconds));
            self.overhead.extend(timeline.overhead_first_output().map(Nanos::seconds));
        }
        self.speed.extend(seen.output_speed());
    }

    fn runs(&mut self, exchange: &Running, now: Stamp) {
        self.in_flight += 1;
        let wait = exchange.sent.filter(|_| exchange.waits).map(|sent| now.since(sent));
        self.oldest = self.oldest.max(wait);
    }

    fn figures(self, (upstream, model): Key<'_>) -> PairNow {
        PairNow {
            upstream: upstream.map(str::to_owned),
            model: model.map(str::to_owned),
            in_flight: self.in_flight,
            oldest_wait_s: self.oldest.map(Nanos::seconds),
            exchanges: self.exchanges,
            ttft_s: Figures::of(self.ttft),
            output_tokens_per_second: Figures::of(self.speed),
            overhead_s: Figures::of(self.overhead),
            outcomes: self.outcomes,
        }
    }
}

impl Figures {
    fn of(values: Vec<f64>) -> Self {
        let sample: Sample = values.into_iter().collect();
        Self { n: sample.count(), p50: sample.quantile(0.5), p99: sample.quantile(0.99) }
    }
}

impl RunningNow {
    fn of(exchange: &Running, now: Stamp) -> Self {
        let doing = match exchange {
            Running { tunnel: true, .. } => "tunnel",
            Running { ttft: Some(_), .. } => "streaming",
            Running { sent: None, .. } => "sending",
            Running { waits: true, .. } => "waiting",
            _ => "answering",
        };
        Self {
            key: format!("{}/{}/{}", exchange.upstream, exchange.counted, exchange.ticket),
            upstream: exchange.upstream.to_string(),
            model: exchange.model.as_deref().map(str::to_owned),
            doing,
            age_s: now.since(exchange.head).seconds(),
            sent_s: exchange.sent.map(|sent| now.since(sent).seconds()),
            ttft_s: exchange.ttft.map(Nanos::seconds),
        }
    }
}
