//! The command `bench`: the client's ruler. It asks a provider by itself and measures with the very machine the proxy
//! measures with, so that a client's and a gateway's figures differ by what lies between them and by nothing else.

mod client;
mod compare;
mod every;
mod load;
mod numbers;
mod plan;
mod via;

use std::{io, process::ExitCode};

use self::{client::Target, load::Results, plan::Plan};
use crate::{app::Stop, cli::BenchArgs};

/// All that is needed to carry a plan out, as often as one likes.
#[derive(Debug)]
struct Bench {
    plan: Plan,
    targets: Vec<Target>,
}

impl Bench {
    /// Carries the whole plan out once, warm-up included, with its progress shown; no result is printed.
    ///
    /// # Errors
    /// If records can't be written.
    async fn measure(&mut self, _stop: &Stop) -> io::Result<Results> {
        Ok(load::run(&self.plan, &self.targets, |_, _| {}).await)
    }
}

/// Runs all workloads at all loads and prints what came of them.
///
/// # Errors
/// If nothing can be asked, or the output can't be written.
pub fn main(arguments: &BenchArgs) -> io::Result<ExitCode> {
    Err(io::Error::other(format!("bench of {} is not built yet", arguments.url)))
}
