//! When requests begin: the closed loop, and the open one, in which each is due at its own time whatever happens to the
//! others; what waits then waits on the provider's account.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use tokio::{
    sync::{
        Semaphore,
        mpsc::{self, Sender},
    },
    task::JoinSet,
};

use super::{
    api,
    client::{Answer, Ask, Client, Target},
    plan::{Load, Plan},
    prompt::{mixed, prompt},
};
use crate::{
    access_log::record_json,
    app::Stop,
    cli::Arrivals,
    clock::{Nanos, Stamp},
    figures::Record,
};

/// One measured request, over.
#[derive(Clone, Debug)]
pub(super) struct Done {
    /// Its place among the targets.
    pub(super) target: usize,
    /// The how manieth of its cell and target it is, from 0. Those of the same number were sent one after the other, in
    /// alternating order: they are a pair.
    pub(super) number: usize,
    /// When it was due (open loop) or begun (closed loop): its record's marks count from here, so that `client_ttft_s`
    /// and `client_duration_s` include every wait.
    pub(super) due: Stamp,
    /// How much later than that this program began it: its own delay, part of every number that counts from `due`.
    pub(super) lag: Nanos,
    /// When it was over.
    pub(super) end: Stamp,
    /// What the proxy's machine measured of it. `ttft_s` is the wire's: from the request's departure.
    pub(super) record: Record,
    /// The `traceparent` it carried had this trace id, in 32 hexadecimal digits; also the record's `trace_id`.
    pub(super) trace_id: String,
    /// Why there is no complete answer, in a few words without content: status and the provider's error class, or why
    /// there was no connection. Absent for complete answers.
    pub(super) error: Option<String>,
}

/// What came of a plan, as far as it was carried out.
#[derive(Clone, Default, Debug)]
pub(super) struct Results {
    /// By place in [`Plan::cells`]; the ones that were never begun are there and empty.
    pub(super) cells: Vec<CellResult>,
    /// The end was asked for before all was done.
    pub(super) stopped: bool,
}

/// What came of one cell.
#[derive(Clone, Default, Debug)]
pub(super) struct CellResult {
    /// By place among the targets: its requests, as they ended.
    pub(super) targets: Vec<Vec<Done>>,
    /// From the first request's due time to the end of the last, in seconds; 0 if there was none.
    pub(super) span_s: f64,
    /// The open loop had [`MOST_IN_FLIGHT`] requests under way, so that some began later than they were due.
    pub(super) held_back: bool,
    /// By place among the targets: its prompts were made to size by the provider's own count of one before.
    pub(super) sized: Vec<bool>,
}

/// What happens while a plan is carried out.
pub(super) enum Event<'a> {
    /// This cell begins.
    Begin(usize),
    /// A request is over; its record as JSON.
    Done(&'a Done, &'a str),
    /// Nothing, for a quarter of a second or so.
    Tick,
}

/// All that makes a request, but its time.
#[derive(Debug)]
pub(super) struct Asks {
    pub(super) plan: Arc<Plan>,
    pub(super) targets: Arc<[Target]>,
    pub(super) client: Arc<Client>,
    /// How many times the plan was carried out before: no prompt comes twice.
    pub(super) round: u64,
    /// Words of a prompt, by target and cell.
    pub(super) words: Vec<Vec<usize>>,
    /// By target and cell: whether that many words are by the provider's own count.
    pub(super) sized: Vec<Vec<bool>>,
    /// By target: see [`api::Wish::new_maximum`].
    pub(super) new_maximum: Vec<bool>,
}

/// Requests of an open loop under way at the most: beyond it they wait, and that counts as part of their time.
pub(super) const MOST_IN_FLIGHT: usize = 10_000;

impl Asks {
    /// A request that is not measured, with a short answer.
    pub(super) async fn warm_up(&self, cell: usize, target: usize, number: u64) -> Answer {
        let ask = self.asking(cell, target, number, self.plan.warm_up_output(cell), None);
        self.client.ask(&self.targets[target], ask).await
    }

    /// The request of this number. The cached prompt is the same for all numbers, and for warm-ups.
    fn ask(&self, cell: usize, target: usize, number: usize, due: Option<Stamp>) -> Ask {
        self.asking(cell, target, number as u64, self.plan.cells[cell].workload.output_tokens, due)
    }

    fn asking(&self, cell: usize, target: usize, number: u64, output_tokens: u64, due: Option<Stamp>) -> Ask {
        let Self { plan, targets, round, .. } = self;
        let workload = &plan.cells[cell].workload;
        let at = &targets[target];
        let seed = if plan.cached {
            mixed(&[plan.seed, workload.input_tokens])
        } else {
            mixed(&[plan.seed, *round, cell as u64, target as u64, number])
        };
        let text = prompt(self.words[target][cell], workload.output_tokens, seed);
        let wish = api::Wish {
            model: &at.model,
            prompt: &text,
            output_tokens,
            new_maximum: self.new_maximum[target],
            fields: &at.fields,
        };
        Ask {
            due,
            body: Bytes::from(api::body(at.dialect, wish)),
            trace_id: format!("{:032x}", fastrand::u128(1..)),
            workload: Arc::clone(&workload.name),
        }
    }

    async fn done(&self, target: usize, number: usize, ask: Ask) -> (Done, String) {
        let trace_id = ask.trace_id.clone();
        let begun = self.client.clock().now();
        let answer = self.client.ask(&self.targets[target], ask).await;
        let marks = &answer.observation.timeline;
        let (due, end) = (marks.request_head, marks.end.unwrap_or(marks.request_head));
        let line = record_json(&answer.observation);
        // It was written by the line above.
        let record = Record::parse(&line).unwrap_or_default();
        (Done { target, number, due, lag: begun.since(due), end, record, trace_id, error: answer.error }, line)
    }
}

/// Runs all cells, one after the other.
///
/// The first stop lets what is under way end, the second drops it.
///
/// # Cancel safety
/// Dropping the future drops all requests.
pub(super) async fn run(asks: Arc<Asks>, stop: &Stop, mut on_event: impl FnMut(Event<'_>)) -> Results {
    let plan = Arc::clone(&asks.plan);
    let empty = CellResult { targets: vec![Vec::new(); asks.targets.len()], ..CellResult::default() };
    let mut results = Results { cells: vec![empty; plan.cells.len()], stopped: false };
    for (index, cell) in plan.cells.iter().enumerate() {
        on_event(Event::Begin(index));
        if let Load::Closed(workers) = cell.load {
            // Whoever keeps so many requests under way has the connections: dialling each once is nobody's steady state.
            for target in &*asks.targets {
                tokio::select! {
                    () = target.connect(workers.min(plan.runs)) => {}
                    () = stop.asked() => {}
                }
            }
        }
        let (done, mut ended) = mpsc::channel(1024);
        let work = Work { asks: Arc::clone(&asks), cell: index, stop: stop.clone(), done };
        let mut tasks = JoinSet::new();
        match cell.load {
            Load::Closed(workers) => {
                let next = Arc::new(AtomicUsize::new(0));
                let until = plan.duration.map(|duration| asks.client.clock().now() + Nanos::from(duration));
                for _ in 0..workers.min(plan.runs) {
                    tasks.spawn(work.clone().closed(Arc::clone(&next), until));
                }
                drop(work);
            }
            Load::Open(..) => {
                tasks.spawn(work.open());
            }
        }
        let result = &mut results.cells[index];
        result.sized = asks.sized.iter().map(|cells| cells[index]).collect();
        let (mut first, mut last): (Option<Stamp>, Option<Stamp>) = (None, None);
        let mut tick = tokio::time::interval(Duration::from_millis(250));
        let mut cutting = std::pin::pin!(stop.cutting());
        let cut = loop {
            tokio::select! {
                // The senders are gone once all tasks have ended.
                ended = ended.recv() => {
                    let Some(Ended { done, line }) = ended else { break false };
                    on_event(Event::Done(&done, &line));
                    first = Some(first.map_or(done.due, |first| first.min(done.due)));
                    last = Some(last.map_or(done.end, |last| last.max(done.end)));
                    result.targets[done.target].push(done);
                }
                _ = tick.tick() => on_event(Event::Tick),
                () = &mut cutting => break true,
            }
        };
        result.span_s = first.zip(last).map_or(0.0, |(first, last)| last.since(first).seconds());
        if cut {
            tasks.abort_all();
        }
        while let Some(ended) = tasks.join_next().await {
            result.held_back |= ended.unwrap_or(false);
        }
        if stop.is_asked() {
            results.stopped = true;
            break;
        }
    }
    results
}

/// A request is over.
struct Ended {
    done: Done,
    line: String,
}

/// What the tasks of one cell share.
#[derive(Clone)]
struct Work {
    asks: Arc<Asks>,
    cell: usize,
    stop: Stop,
    done: Sender<Ended>,
}

impl Work {
    /// One of several who each send one request after the other: of every pair, to each target in turn. Nobody waits here
    /// for room, so it is never held back.
    async fn closed(self, next: Arc<AtomicUsize>, until: Option<Stamp>) -> bool {
        let Self { asks, cell, stop, done } = self;
        let clock = asks.client.clock();
        loop {
            if stop.is_asked() || until.is_some_and(|until| clock.now() >= until) {
                return false;
            }
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= asks.plan.runs {
                return false;
            }
            for target in turns(asks.targets.len(), number) {
                // Made before it begins: making it is not the provider's time.
                let ask = asks.ask(cell, target, number, None);
                let (over, line) = asks.done(target, number, ask).await;
                // Nobody listens any more where all is dropped.
                let _ = done.send(Ended { done: over, line }).await;
            }
        }
    }

    /// Begins each request when it is due. Whether some had to wait for room.
    async fn open(self) -> bool {
        let Self { asks, cell, stop, done } = self;
        let clock = asks.client.clock();
        let room = Arc::new(Semaphore::new(MOST_IN_FLIGHT));
        let begin = clock.now();
        let targets = asks.targets.len();
        let mut held_back = false;
        let mut requests = JoinSet::new();
        for (index, offset) in offsets(&asks.plan, cell, asks.round, targets).enumerate() {
            let (number, place) = (index / targets, index % targets);
            let Some(target) = turns(targets, number).nth(place) else { break };
            let due = begin + offset;
            let ask = asks.ask(cell, target, number, Some(due));
            tokio::select! {
                () = tokio::time::sleep_until(clock.instant(due)) => {}
                () = stop.asked() => break,
            }
            held_back |= room.available_permits() == 0;
            let permit = tokio::select! {
                permit = Arc::clone(&room).acquire_owned() => permit,
                () = stop.asked() => break,
            };
            let (asks, done) = (Arc::clone(&asks), done.clone());
            requests.spawn(async move {
                let (over, line) = asks.done(target, number, ask).await;
                drop(permit);
                let _ = done.send(Ended { done: over, line }).await;
            });
            // Those that have ended need no memory.
            while requests.try_join_next().is_some() {}
        }
        while requests.join_next().await.is_some() {}
        held_back
    }
}

/// The order in which the targets of a pair are asked: forwards, then backwards, so that none is always the first.
fn turns(targets: usize, number: usize) -> impl Iterator<Item = usize> {
    (0..targets).map(move |place| if number.is_multiple_of(2) { place } else { targets - 1 - place })
}

/// When the requests of an open loop's cell are due, counted from the loop's beginning, of so many targets together; none of
/// a closed loop. What is announced and what is sent both follow from it.
pub(super) fn offsets(plan: &Plan, cell: usize, round: u64, targets: usize) -> impl Iterator<Item = Nanos> {
    let load = match plan.cells[cell].load {
        Load::Open(rate, arrivals) => Some((rate, arrivals)),
        Load::Closed(_) => None,
    };
    let seed = mixed(&[plan.seed, round, cell as u64]);
    let end = plan.duration.map(Nanos::from);
    let due = load.into_iter().flat_map(move |(rate, arrivals)| due(rate, arrivals, seed));
    due.take(plan.runs * targets).take_while(move |offset| end.is_none_or(|end| *offset < end))
}

/// When requests are due, counted from the loop's beginning: at even distances, or at those of a Poisson process, which
/// are exponential. The first of the even ones is due at once.
fn due(rate: f64, arrivals: Arrivals, seed: u64) -> impl Iterator<Item = Nanos> {
    let mut rng = Rng::with_seed(seed);
    let mut at = 0.0;
    (0_u64..).map(move |index| {
        let seconds = match arrivals {
            Arrivals::Even => index as f64 / rate,
            Arrivals::Poisson => {
                at += -(1.0 - rng.f64()).ln() / rate;
                at
            }
        };
        Duration::try_from_secs_f64(seconds).map_or(Nanos(u64::MAX), Nanos::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(rate: f64, arrivals: Arrivals, seed: u64, count: usize) -> Vec<f64> {
        due(rate, arrivals, seed).take(count).map(Nanos::seconds).collect()
    }

    #[test]
    fn even_requests_are_due_at_even_distances() {
        assert_eq!(seconds(4.0, Arrivals::Even, 1, 4), [0.0, 0.25, 0.5, 0.75]);
    }

    #[test]
    fn random_requests_come_at_the_rate_asked_for_and_as_irregular_as_users() {
        let at = seconds(50.0, Arrivals::Poisson, 1, 20_000);
        let mean = at.last().unwrap() / 20_000.0;
        assert!((mean * 50.0 - 1.0).abs() < 0.03, "{mean}");
        let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "an exponential's deviation is its mean");
        assert!(gaps.iter().all(|gap| *gap >= 0.0));
        assert_eq!(at, seconds(50.0, Arrivals::Poisson, 1, 20_000), "the seed makes it");
        assert_ne!(at, seconds(50.0, Arrivals::Poisson, 2, 20_000));
    }

    #[test]
    fn a_rate_near_zero_is_due_late_and_not_never() {
        assert_eq!(due(1e-300, Arrivals::Even, 1).nth(1), Some(Nanos(u64::MAX)));
    }

    #[test]
    fn the_order_of_a_pair_alternates() {
        let order = |number| turns(2, number).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 1], [1, 0], [0, 1]]);
        assert_eq!(turns(1, 3).collect::<Vec<_>>(), [0]);
    }
}
