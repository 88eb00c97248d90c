//! How far it is, on standard error: a line redrawn in place on a terminal, elsewhere one per cell that is done.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use super::{
    load::{Done, Event},
    plan::Plan,
};
use crate::{
    clock::{Clock, Stamp},
    figures::{ABSENT, rank, time},
};

/// Follows a plan that is carried out.
#[derive(Debug)]
pub(super) struct Progress {
    clock: Clock,
    how: How,
    /// Requests of one cell, at most.
    of_cell: usize,
    began: Option<Stamp>,
    cell: Option<Cell>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Silent,
    Lines,
    Redrawn,
}

/// The cell under way.
#[derive(Debug)]
struct Cell {
    index: usize,
    done: usize,
    errors: usize,
    /// In rising order.
    ttft: Vec<f64>,
    began: Stamp,
    duration: Option<Duration>,
}

impl Progress {
    /// Nothing has begun.
    pub(super) fn new(plan: &Plan, targets: usize, quiet: bool, clock: Clock) -> Self {
        let how = match () {
            () if quiet => How::Silent,
            () if io::stderr().is_terminal() => How::Redrawn,
            () => How::Lines,
        };
        Self { clock, how, of_cell: plan.runs * targets, began: None, cell: None }
    }

    /// Shows what has changed. A standard error that can't be written to is nobody's loss.
    pub(super) fn follow(&mut self, plan: &Plan, event: &Event<'_>) {
        let now = self.clock.now();
        match event {
            Event::Begin(index) => {
                self.cell_ended(plan);
                let duration = plan.duration;
                let cell = Cell { index: *index, done: 0, errors: 0, ttft: Vec::new(), began: now, duration };
                self.began = self.began.or(Some(now));
                self.cell = Some(cell);
            }
            Event::Done(done, _) => {
                if let Some(cell) = &mut self.cell {
                    cell.add(done);
                }
            }
            Event::Tick => {
                if let (How::Redrawn, Some(cell)) = (self.how, &self.cell) {
                    let line = self.line(plan, cell, now);
                    // Not wrapped, and what was longer before is gone.
                    let _ = write!(io::stderr(), "\r\x1b[?7l{line}\x1b[K\x1b[?7h");
                }
            }
        }
    }

    /// The last cell is over.
    pub(super) fn end(&mut self, plan: &Plan) {
        self.cell_ended(plan);
    }

    fn cell_ended(&mut self, plan: &Plan) {
        let Some(cell) = self.cell.take() else { return };
        let seconds = self.clock.now().since(cell.began).seconds();
        let told = format!("{}: {} in {}", cell.name(plan), cell.told(), time(seconds));
        let _ = match self.how {
            How::Silent => Ok(()),
            How::Lines => writeln!(io::stderr(), "{told}"),
            How::Redrawn => writeln!(io::stderr(), "\r{told}\x1b[K"),
        };
    }

    fn line(&self, plan: &Plan, cell: &Cell, now: Stamp) -> String {
        let share = cell.share(self.of_cell, now);
        let filled = (share * BAR as f64).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and BAR")]
        let filled = (filled as usize).min(BAR);
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
        let elapsed = self.began.map_or(0.0, |began| now.since(began).seconds());
        let whole = (cell.index as f64 + share) / plan.cells.len().max(1) as f64;
        let left = if whole > 0.0 { time(elapsed * (1.0 - whole) / whole) } else { ABSENT.to_owned() };
        format!("{bar} {}: {} · {left} left", cell.name(plan), cell.told())
    }
}

/// Columns of the bar.
const BAR: usize = 20;

impl Cell {
    fn add(&mut self, done: &Done) {
        self.done += 1;
        self.errors += usize::from(done.error.is_some());
        if let Some(ttft) = done.record.ttft_s {
            let at = self.ttft.partition_point(|had| *had < ttft);
            self.ttft.insert(at, ttft);
        }
    }

    /// How much of it is over, by requests or by time, whichever is further.
    fn share(&self, requests: usize, now: Stamp) -> f64 {
        let by_requests = self.done as f64 / requests.max(1) as f64;
        let by_time = self.duration.map_or(0.0, |all| now.since(self.began).seconds() / all.as_secs_f64());
        by_requests.max(by_time).min(1.0)
    }

    fn name(&self, plan: &Plan) -> String {
        let cell = &plan.cells[self.index];
        format!("{} {}", cell.workload.name, cell.load)
    }

    fn told(&self) -> String {
        let errors = if self.errors == 0 { String::new() } else { format!(", {} failed", self.errors) };
        let rank = rank(0.5, self.ttft.len() as u64).and_then(|rank| usize::try_from(rank).ok());
        let median =
            rank.and_then(|rank| self.ttft.get(rank - 1)).map_or_else(|| ABSENT.to_owned(), |ttft| time(*ttft));
        format!("{} answered{errors}, TTFT p50 {median}", self.done - self.errors)
    }
}
