//! The same plan again and again, what came of it served as metrics.
//!
//! Gauges of exact quantiles, not histograms: a run is some twenty requests, so a bucket's width would be the larger part of
//! the number, and what is published in the field (a median over 72 hours of runs at fixed times) can't be had from buckets
//! that other runs have gone into. Medians over the window are medians of the runs' medians, so a run counts as one whatever
//! its length. The label is `percentile`, as `quantile` belongs to summaries.

mod exposition;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;

use self::exposition::{Exposition, Run};
use super::{Bench, tell};
use crate::{
    admin::Admin,
    app::Stop,
    clock::{Clock, Nanos, Stamp},
};

/// What the medians with `window="72h"` are over.
const WINDOW: Nanos = Nanos(72 * 3_600 * 1_000_000_000);

/// Runs kept at the most: a run every half minute for 72 hours. With more the window is shorter, and its `runs` say so.
const MOST_RUNS: usize = 8_640;

/// Measures at once and then once a period, counted from the first, serves what came of it at `listen` (`/metrics`), and
/// hands each run's results to `print`, until `stop` asks for the end. A run that fails is counted, and the next one comes
/// when it is due. If a run takes longer than the period, the next begins at the next multiple of the period.
///
/// # Errors
/// If `listen` can't be bound, or `print` fails.
pub(super) async fn run(
    bench: &mut Bench,
    period: Duration,
    listen: SocketAddr,
    stop: &Stop,
    mut print: impl FnMut(&Bench, &super::Results) -> io::Result<()>,
) -> io::Result<()> {
    let clock = bench.client.clock();
    let history = Arc::new(Mutex::new(History::default()));
    let exposition = Arc::new(Exposition::new(&bench.plan, &bench.targets));
    let shown = Arc::clone(&history);
    let served = Admin::serve("bench", listen, move |request| {
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/metrics" if is_get => page(StatusCode::OK, exposition.text(&lock(&shown), clock)),
            _ => page(StatusCode::NOT_FOUND, "streamgauge bench: try GET /metrics\n".to_owned()),
        }
    })?;
    tell(&format!("metrics at http://{}/metrics", served.address()));
    let mut printed = Ok(());
    repeat(clock, period, stop, async || {
        let run = once(bench, stop, &mut print, &mut printed).await;
        if stop.is_asked() {
            return false;
        }
        lock(&history).add(clock.now(), run);
        printed.is_ok()
    })
    .await;
    drop(served);
    printed
}

/// One run; a failed one has nothing.
async fn once(
    bench: &mut Bench,
    stop: &Stop,
    print: &mut impl FnMut(&Bench, &super::Results) -> io::Result<()>,
    printed: &mut io::Result<()>,
) -> Option<Run> {
    // Hours lie between the runs: connections are to be opened anew, and a provider may have changed how it counts.
    if let Err(refused) = bench.warm_up(stop).await {
        tell(&format!("this run failed: {refused}"));
        return None;
    }
    let (results, written) = bench.measure(stop, |_| {}).await;
    if let Err(error) = written {
        tell(&error.to_string());
    }
    *printed = print(bench, &results);
    let run = Run::of(&bench.plan, &results);
    if run.is_none() && !stop.is_asked() {
        tell("this run failed: no request got a complete answer");
    }
    run
}

/// Calls `run` at once and then at each multiple of the period that lies ahead when it returns, until it gives `false` or
/// `stop` asks for the end.
async fn repeat(clock: Clock, period: Duration, stop: &Stop, mut run: impl AsyncFnMut() -> bool) {
    let begin = clock.now();
    let mut index = 0;
    while run().await {
        let (next, skipped) = next(begin, period.into(), index, clock.now());
        if skipped > 0 {
            let period = humantime::format_duration(period);
            tell(&format!("the run took longer than {period}: {skipped} left out"));
        }
        index = next;
        let due = begin + Nanos(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).saturating_mul(index));
        let in_seconds = Duration::from_secs(due.since(clock.now()).0.div_ceil(1_000_000_000));
        tell(&format!("the next run begins in {}", humantime::format_duration(in_seconds)));
        tokio::select! {
            () = tokio::time::sleep_until(clock.instant(due)) => {}
            () = stop.asked() => return,
        }
    }
}

/// Which multiple of the period, after the one of this `index`, comes next, and how many are left out for it.
fn next(begin: Stamp, period: Nanos, index: u64, now: Stamp) -> (u64, u64) {
    let next = now.since(begin).0.div_ceil(period.0.max(1)).max(index + 1);
    (next, next - index - 1)
}

/// What the runs came to.
#[derive(Default, Debug)]
struct History {
    succeeded: u64,
    failed: u64,
    /// Requests by place in the exposition's series and outcome, of all runs.
    outcomes: Vec<std::collections::BTreeMap<String, u64>>,
    /// When the last run ended, failed or not, and what it came to.
    last: Option<(Stamp, Option<Run>)>,
    /// When each run of the window ended, and its medians, by place in the exposition's series and numbers.
    medians: VecDeque<(Stamp, Vec<Vec<Option<f64>>>)>,
}

impl History {
    fn add(&mut self, ended: Stamp, run: Option<Run>) {
        match &run {
            None => self.failed += 1,
            Some(run) => {
                self.succeeded += 1;
                self.outcomes.resize_with(run.series.len(), Default::default);
                for (sum, series) in self.outcomes.iter_mut().zip(&run.series) {
                    for (outcome, count) in &series.outcomes {
                        *sum.entry(outcome.clone()).or_default() += count;
                    }
                }
                self.medians.push_back((ended, run.medians()));
            }
        }
        self.last = Some((ended, run));
        while self.medians.len() > MOST_RUNS || self.medians.front().is_some_and(|(at, _)| ended.since(*at) > WINDOW) {
            self.medians.pop_front();
        }
    }

    /// The runs' medians of one number that lie in the window now.
    fn window(&self, series: usize, number: usize, now: Stamp) -> crate::figures::Sample {
        let inside = self.medians.iter().filter(|(at, _)| now.since(*at) <= WINDOW);
        inside.filter_map(|(_, medians)| *medians.get(series)?.get(number)?).collect()
    }
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

fn page(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(hours: u64) -> Stamp {
        Stamp::ORIGIN + Nanos::from(HOUR * u32::try_from(hours).unwrap())
    }

    #[test]
    fn the_next_run_is_at_the_next_multiple() {
        let period = Nanos::from(3 * HOUR);
        let next = |index, now| next(at(0), period, index, at(now));
        assert_eq!(next(0, 1), (1, 0));
        assert_eq!(next(0, 3), (1, 0), "it took just as long");
        assert_eq!(next(0, 4), (2, 1));
        assert_eq!(next(2, 6), (3, 0), "a run that took no time");
        assert_eq!(next(2, 22), (8, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn runs_begin_at_multiples_of_the_period_until_the_stop() {
        let (clock, stop) = (Clock::start(), Stop::default());
        let begin = clock.now();
        let took = [1, 7, 0, 4].map(|hours| HOUR * hours);
        let mut begun = Vec::new();
        repeat(clock, 3 * HOUR, &stop, async || {
            let index = begun.len();
            begun.push(clock.now().since(begin).0 / Nanos::from(HOUR).0);
            tokio::time::sleep(took[index]).await;
            if index == 3 {
                stop.drain();
            }
            true
        })
        .await;
        assert_eq!(begun, [0, 3, 12, 15]);
        assert_eq!(clock.now().since(begin), Nanos::from(19 * HOUR), "the stop ends the wait, too");
    }

    #[test]
    fn a_failed_run_is_counted_and_has_no_medians() {
        let mut history = History::default();
        history.add(at(1), None);
        assert_eq!((history.failed, history.succeeded, history.medians.len()), (1, 0, 0));
        assert!(history.last.is_some_and(|(_, run)| run.is_none()));
    }

    #[test]
    fn the_window_is_72_hours_and_bounded() {
        let mut history = History::default();
        let mut add = |hour: u64, value| history.add(at(hour), Some(Run::of_one(value)));
        for (hour, value) in [(0, 9.0), (3, 1.0), (6, 3.0), (74, 5.0)] {
            add(hour, value);
        }
        let values = |history: &History, hour| history.window(0, 0, at(hour)).values().to_vec();
        assert_eq!(history.medians.len(), 3, "the first is 74 hours old");
        assert_eq!(values(&history, 75), [1.0, 3.0, 5.0]);
        assert_eq!(values(&history, 76), [3.0, 5.0], "one has grown too old since");
        assert_eq!(values(&history, 147), [] as [f64; 0]);
        for _ in 0..MOST_RUNS + 5 {
            history.add(at(75), Some(Run::of_one(1.0)));
        }
        assert_eq!((history.medians.len(), history.succeeded), (MOST_RUNS, MOST_RUNS as u64 + 9));
        assert_eq!(history.outcomes[0]["complete"], MOST_RUNS as u64 + 9);
    }
}
