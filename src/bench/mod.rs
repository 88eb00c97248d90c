//! The command `bench`: the client's ruler. It asks a provider by itself and measures with the very machine the proxy
//! measures with, so that a client's and a gateway's figures differ by what lies between them and by nothing else.

mod api;
mod client;
mod compare;
mod every;
mod load;
mod plan;
mod progress;
mod prompt;
mod setup;
mod table;
mod via;

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    process::ExitCode,
    sync::Arc,
};

use self::{
    client::{Client, Target},
    load::{Asks, Done, Event, Results},
    plan::Plan,
    progress::Progress,
    via::{Joined, Watch},
};
use crate::{
    app::{self, Stop},
    cli::BenchArgs,
    config::ConfigError,
    figures,
    observation::Outcome,
};

/// All that is needed to carry a plan out, as often as one likes.
#[derive(Debug)]
struct Bench {
    plan: Arc<Plan>,
    targets: Arc<[Target]>,
    client: Arc<Client>,
    /// Words of a prompt, by target and cell.
    words: Vec<Vec<usize>>,
    /// By target and cell: whether the provider's own count of a prompt of this workload made them.
    sized: Vec<Vec<bool>>,
    /// By target: see [`api::Wish::new_maximum`].
    new_maximum: Vec<bool>,
    /// How many times the plan was carried out.
    round: u64,
    records: Option<BufWriter<File>>,
    quiet: bool,
}

impl Bench {
    fn asks(&self) -> Asks {
        Asks {
            plan: Arc::clone(&self.plan),
            targets: Arc::clone(&self.targets),
            client: Arc::clone(&self.client),
            round: self.round,
            words: self.words.clone(),
            sized: self.sized.clone(),
            new_maximum: self.new_maximum.clone(),
        }
    }

    /// Sends the plan's warm-ups: they open connections, size the prompts by the provider's own counts, and find out what
    /// the maximum of output tokens is called. None of them is measured or recorded.
    ///
    /// # Errors
    /// If a provider can't be reached, or refuses what it is asked: then all else would be refused too.
    async fn warm_up(&mut self, stop: &Stop) -> Result<(), String> {
        let requests = self.plan.cost(self.targets.len()).warm_up;
        if requests > 0 && !self.quiet {
            tell(&format!("warming up, to size the prompts: not measured, requests: {requests}"));
        }
        for target in 0..self.targets.len() {
            for cell in self.plan.workloads().collect::<Vec<_>>() {
                let mut left = self.plan.warm_up;
                while left > 0 && !stop.is_asked() {
                    left -= 1;
                    let asks = self.asks();
                    let number = u64::MAX - left as u64;
                    let asked = asks.warm_up(cell, target, number);
                    let answer = tokio::select! {
                        answer = asked => answer,
                        () = stop.cutting() => return Ok(()),
                    };
                    let seen = &answer.observation;
                    let refused = matches!(seen.outcome, Outcome::Upstream4xx | Outcome::Unreachable);
                    if refused && matches!(seen.status, Some(400 | 422)) && !self.new_maximum[target] {
                        self.new_maximum[target] = true;
                        left += 1;
                    } else if refused {
                        let error = answer.error.unwrap_or_default();
                        let error = figures::tame(&error, table::LONGEST_WORD);
                        return Err(format!("{} {error}", self.targets[target].place()));
                    }
                    if let Some(counted) = seen.facts.usage.input {
                        self.resize(target, cell, counted);
                    }
                }
            }
        }
        Ok(())
    }

    /// The prompt of this cell had so many tokens: those of its workload, and of all that come after, follow.
    fn resize(&mut self, target: usize, cell: usize, counted: u64) {
        let words = self.words[target][cell];
        for (index, of) in self.plan.cells.iter().enumerate() {
            let wanted = of.workload.input_tokens;
            let same = of.workload == self.plan.cells[cell].workload;
            self.sized[target][index] |= same && counted > 0;
            if same || index > cell {
                self.words[target][index] = prompt::resized(words, counted, wanted);
            }
        }
    }

    /// Carries the whole plan out once, with its progress shown and its records written, and tells `over` of each request;
    /// no result is printed. Warm-ups are the caller's. What was measured is there even if the records could not be written,
    /// which the second half tells: it was paid for.
    async fn measure(&mut self, stop: &Stop, mut over: impl FnMut(&Done)) -> (Results, io::Result<()>) {
        let asks = Arc::new(self.asks());
        self.round += 1;
        let plan = &self.plan;
        let mut progress = Progress::new(plan, self.targets.len(), self.quiet, self.client.clock());
        let (records, mut written) = (&mut self.records, Ok(()));
        let results = load::run(asks, stop, |event| {
            progress.follow(plan, &event);
            if let Event::Done(done, _) = &event {
                over(done);
            }
            if let (Some(records), true) = (records.as_mut(), written.is_ok()) {
                written = match event {
                    Event::Done(_, line) => writeln!(records, "{line}"),
                    // So that others can follow.
                    Event::Tick => records.flush(),
                    Event::Begin(_) => Ok(()),
                };
            }
        });
        let results = results.await;
        progress.end(plan);
        let flushed = self.records.as_mut().map_or(Ok(()), io::Write::flush);
        let unwritten = |error: io::Error| io::Error::new(error.kind(), format!("--records: {error}"));
        (results, written.and(flushed).map_err(unwritten))
    }
}

/// What the first signal does, on a line of its own where a bar was being drawn.
const STOPPING: &str = "\nNo more requests: those under way run to their end, then what was measured is printed. Once more, and they are dropped.";

/// Runs all workloads at all loads and prints what came of them.
///
/// SIGINT or SIGTERM lets what is under way end and prints what was measured; a second one drops it.
///
/// Ends with a failure if no request was answered.
///
/// # Errors
/// If the records or the output can't be written.
pub fn main(arguments: &BenchArgs) -> io::Result<ExitCode> {
    app::raise_descriptors();
    app::runtime(None)?.block_on(async {
        let mut bench = match setup::bench(arguments) {
            Ok(bench) => bench,
            Err(fault) => {
                tell(&fault);
                return Ok(ExitCode::from(ConfigError::EXIT_CODE));
            }
        };
        let stop = Stop::default();
        // Ends with the runtime.
        tokio::spawn(app::on_signals(stop.clone())?);
        if !arguments.quiet {
            tell(&setup::announcement(&bench, arguments.every.is_some()));
        }
        let asked = stop.clone();
        // Ends with the runtime, too.
        tokio::spawn(async move {
            asked.asked().await;
            tell(STOPPING);
        });
        match arguments.every {
            Some(period) => {
                let print = |bench: &Bench, results: &Results| print(&output(bench, results, None, arguments.json));
                every::run(&mut bench, period, arguments.listen, &stop, print).await?;
                Ok(ExitCode::SUCCESS)
            }
            None => once(&mut bench, arguments, &stop).await,
        }
    })
}

async fn once(bench: &mut Bench, arguments: &BenchArgs, stop: &Stop) -> io::Result<ExitCode> {
    // Before anything is asked of the provider.
    let watch = arguments.via.map(Watch::begin).transpose()?;
    if let Err(refused) = bench.warm_up(stop).await {
        tell(&format!("nothing was measured: {refused}"));
        return Ok(ExitCode::FAILURE);
    }
    let over = |done: &Done| {
        if let Some(watch) = &watch {
            watch.over(&done.trace_id);
        }
    };
    let (results, written) = bench.measure(stop, over).await;
    let joined = watch.map(|watch| via::join(&results, watch.end()));
    print(&output(bench, &results, joined.as_ref(), arguments.json))?;
    written?;
    let mut all = results.cells.iter().flat_map(|cell| &cell.targets).flatten();
    if all.any(|done| done.error.is_none()) {
        return Ok(ExitCode::SUCCESS);
    }
    tell("nothing was measured: no request got a complete answer");
    Ok(ExitCode::FAILURE)
}

/// What is printed of one run.
fn output(bench: &Bench, results: &Results, joined: Option<&Joined<'_>>, as_json: bool) -> String {
    let (plan, targets) = (&*bench.plan, &*bench.targets);
    if as_json {
        let mut value = table::json(plan, targets, results);
        if targets.len() > 1 {
            value["compare"] = compare::json(plan, targets, results);
        }
        if let Some(joined) = joined {
            value["via"] = via::json(plan, targets, joined);
        }
        return format!("{value:#}\n");
    }
    let width = figures::width();
    let names: Vec<&str> = targets.iter().map(|target| &*target.name).collect();
    let mut text = table::text(plan, &names, results, width);
    if targets.len() > 1 {
        text += &compare::table(plan, targets, results, width);
    }
    if let Some(joined) = joined {
        text += &via::table(plan, targets, joined, width);
    }
    text
}

fn print(output: &str) -> io::Result<()> {
    match io::stdout().write_all(output.as_bytes()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Says it on standard error, where nothing that is read by programs goes.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
