//! What will be asked: the workloads, the loads, and how often; plain values made of the flags.

use std::{fmt, sync::Arc, time::Duration};

use super::load::{MOST_IN_FLIGHT, offsets};
use crate::cli::{Arrivals, BenchArgs};

/// All that is to be measured: every workload at every load, in this order, of every target in turns.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// One after the other.
    pub(super) cells: Vec<Cell>,
    /// Requests measured of each target in each cell, unless `duration` ends it before.
    pub(super) runs: usize,
    /// Ends each cell: after it no request begins, those under way run on.
    pub(super) duration: Option<Duration>,
    /// Requests before the measured ones, of each target and workload.
    pub(super) warm_up: usize,
    /// Of all that is random.
    pub(super) seed: u64,
    /// The same prompt every time.
    pub(super) cached: bool,
}

/// One workload at one load.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
    /// What is asked.
    pub(super) workload: Workload,
    /// How often, or how many at once.
    pub(super) load: Load,
}

/// Requests of one size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Workload {
    /// As records have it in `workload`, such as `1k_in_200_out`.
    pub(super) name: Arc<str>,
    /// Tokens of the prompt, all in all; what providers count may differ, and is what tables show.
    pub(super) input_tokens: u64,
    /// The request's maximum of output tokens.
    pub(super) output_tokens: u64,
}

/// How requests follow each other. With two targets it is the load of both together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Load {
    /// So many under way at all times: the next begins when one has ended.
    Closed(usize),
    /// So many are due a second, whether or not answers come.
    Open(f64, Arrivals),
}

/// Requests whose records fit into memory without a second thought.
const MOST_REQUESTS: usize = 100_000;
/// Enough for a median, and to see whether the tail is worth a longer look.
const RUNS: usize = 20;
/// Output tokens of a warm-up at most: it is there for the input's count. Some APIs take no less.
const WARM_UP_OUTPUT: u64 = 16;

impl Plan {
    /// The plan of these flags, for so many targets.
    ///
    /// # Errors
    /// If it would be too much; says what to change.
    pub(super) fn new(arguments: &BenchArgs, targets: usize) -> Result<Self, String> {
        let loads: Vec<Load> = match arguments.rate {
            Some(rate) => vec![Load::Open(rate, arguments.arrivals)],
            None => arguments.concurrency.iter().map(|workers| Load::Closed(*workers)).collect(),
        };
        if let Some(Load::Closed(workers)) =
            loads.iter().find(|load| matches!(load, Load::Closed(workers) if *workers > MOST_IN_FLIGHT))
        {
            return Err(format!("--concurrency {workers} is more than the {MOST_IN_FLIGHT} it can keep under way"));
        }
        let mut cells = Vec::new();
        for input_tokens in &arguments.input_tokens {
            for output_tokens in &arguments.output_tokens {
                let workload = Workload::new(*input_tokens, *output_tokens);
                cells.extend(loads.iter().map(|load| Cell { workload: workload.clone(), load: *load }));
            }
        }
        let most = MOST_REQUESTS / (cells.len() * targets).max(1);
        let runs = arguments.runs.unwrap_or(if arguments.duration.is_some() { most } else { RUNS });
        if runs > most || runs == 0 {
            let cells = cells.len();
            return Err(format!(
                "{runs} runs of {cells} cells are more than the {MOST_REQUESTS} requests whose records it keeps: \
                 at most --runs {most}"
            ));
        }
        Ok(Self {
            cells,
            runs,
            duration: arguments.duration,
            warm_up: arguments.warm_up,
            seed: arguments.seed.unwrap_or_else(|| fastrand::u64(..)),
            cached: arguments.cached,
        })
    }

    /// The first cell of each workload.
    pub(super) fn workloads(&self) -> impl Iterator<Item = usize> {
        let first =
            |index: &usize| self.cells[..*index].iter().all(|cell| cell.workload != self.cells[*index].workload);
        (0..self.cells.len()).filter(first)
    }

    /// Output tokens that a warm-up of this workload asks for.
    pub(super) fn warm_up_output(&self, cell: usize) -> u64 {
        self.cells[cell].workload.output_tokens.min(WARM_UP_OUTPUT)
    }

    /// What the first round will send to so many targets.
    pub(super) fn cost(&self, targets: usize) -> Cost {
        let mut cost = Cost { exact: true, ..Cost::default() };
        for (index, cell) in self.cells.iter().enumerate() {
            let requests = match cell.load {
                Load::Closed(_) => self.runs * targets,
                Load::Open(..) => offsets(self, index, 0, targets).count(),
            };
            // How fast answers come, nobody knows before.
            cost.exact &= self.duration.is_none() || matches!(cell.load, Load::Open(..));
            cost.measured += requests as u64;
            cost.add(requests, cell.workload.input_tokens, cell.workload.output_tokens);
        }
        for cell in self.workloads() {
            let requests = self.warm_up.saturating_mul(targets);
            cost.warm_up = cost.warm_up.saturating_add(requests as u64);
            cost.add(requests, self.cells[cell].workload.input_tokens, self.warm_up_output(cell));
        }
        cost
    }
}

/// What is sent: requests, and tokens rounded as providers count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Cost {
    /// Requests that are measured.
    pub(super) measured: u64,
    /// That many, and not fewer: a closed loop that a duration ends sends as many as fit.
    pub(super) exact: bool,
    /// Requests before them.
    pub(super) warm_up: u64,
    /// Input tokens of all.
    pub(super) input: u64,
    /// Output tokens of all, at most.
    pub(super) output: u64,
}

impl Cost {
    fn add(&mut self, requests: usize, input: u64, output: u64) {
        let requests = requests as u64;
        self.input = self.input.saturating_add(requests.saturating_mul(input));
        self.output = self.output.saturating_add(requests.saturating_mul(output));
    }
}

impl Workload {
    fn new(input_tokens: u64, output_tokens: u64) -> Self {
        let name = format!("{}_in_{}_out", short(input_tokens), short(output_tokens)).into();
        Self { name, input_tokens, output_tokens }
    }
}

/// `1k` for 1000, `1500` for 1500, `2m` for two millions.
fn short(tokens: u64) -> String {
    match tokens {
        0 => "0".to_owned(),
        _ if tokens.is_multiple_of(1_000_000) => format!("{}m", tokens / 1_000_000),
        _ if tokens.is_multiple_of(1_000) => format!("{}k", tokens / 1_000),
        _ => tokens.to_string(),
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(1) => write!(f, "one at a time"),
            Self::Closed(workers) => write!(f, "{workers} at a time"),
            Self::Open(rate, Arrivals::Even) => write!(f, "{rate}/s, even"),
            Self::Open(rate, Arrivals::Poisson) => write!(f, "{rate}/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse_from};

    fn arguments(flags: &str) -> BenchArgs {
        let fixed = ["streamgauge", "bench", "--url", "http://127.0.0.1:1", "--model", "m"];
        match parse_from(fixed.into_iter().chain(flags.split_whitespace())).unwrap() {
            Command::Bench(arguments) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_pair_of_sizes_is_a_workload_and_each_meets_every_load() {
        let flags = "--input-tokens 1000,1500 --output-tokens 200 --concurrency 1,8 --seed 3";
        let plan = Plan::new(&arguments(flags), 1).unwrap();
        let cells: Vec<_> = plan.cells.iter().map(|cell| format!("{} {}", cell.workload.name, cell.load)).collect();
        assert_eq!(
            cells,
            [
                "1k_in_200_out one at a time",
                "1k_in_200_out 8 at a time",
                "1500_in_200_out one at a time",
                "1500_in_200_out 8 at a time",
            ]
        );
        assert_eq!((plan.runs, plan.seed, plan.workloads().collect::<Vec<_>>()), (20, 3, vec![0, 2]));
        // Four cells of 20 runs, and a warm-up of each workload with 16 output tokens.
        let input = 40 * 1000 + 40 * 1500 + 2500;
        assert_eq!(plan.cost(1), Cost { measured: 80, exact: true, warm_up: 2, input, output: 80 * 200 + 32 });
        assert_eq!((plan.cost(2).measured, plan.cost(2).warm_up), (160, 4));
    }

    #[test]
    fn a_rate_is_one_load_and_a_duration_frees_the_runs() {
        let plan = Plan::new(&arguments("--rate 5 --duration 60"), 2).unwrap();
        assert_eq!(plan.cells.len(), 1);
        assert_eq!((plan.cells[0].load, plan.runs), (Load::Open(5.0, Arrivals::Poisson), 50_000));
        assert_eq!(Plan::new(&arguments("--duration 60 --runs 7"), 1).unwrap().runs, 7);
    }

    #[test]
    fn what_a_rate_costs_is_what_will_be_due() {
        let even = Plan::new(&arguments("--rate 5 --duration 60 --arrivals even"), 2).unwrap();
        let Cost { measured, exact, input, .. } = even.cost(2);
        assert_eq!((measured, exact, input), (300, true, 302_000), "and a warm-up of each");
        // At random it is near, and just as many as the loop will find due.
        let random = Plan::new(&arguments("--rate 5 --duration 60 --seed 1"), 1).unwrap();
        let Cost { measured, exact, .. } = random.cost(1);
        assert_eq!((measured, exact), (offsets(&random, 0, 0, 1).count() as u64, true));
        assert!((220..380).contains(&measured), "{measured}");
        let few = Plan::new(&arguments("--rate 5 --duration 60 --runs 7"), 2).unwrap();
        assert_eq!(few.cost(2).measured, 14);
        let closed = Plan::new(&arguments("--duration 60"), 1).unwrap().cost(1);
        assert_eq!((closed.measured, closed.exact), (100_000, false));
    }

    #[test]
    fn too_much_is_refused_with_what_would_do() {
        let error = Plan::new(&arguments("--runs 60000"), 2).unwrap_err();
        assert!(error.ends_with("at most --runs 50000"), "{error}");
        assert!(Plan::new(&arguments("--concurrency 20000"), 1).unwrap_err().contains("--concurrency 20000"));
    }

    #[test]
    fn two_prompts_without_a_seed_are_two() {
        let seed = || Plan::new(&arguments(""), 1).unwrap().seed;
        assert_ne!(seed(), seed());
    }

    #[test]
    fn sizes_are_named_as_people_say_them() {
        assert_eq!([999, 1_000, 10_000, 1_000_000].map(short), ["999", "1k", "10k", "1m"]);
    }
}
