//! What will be asked: the workloads, the loads, and how often; plain values made of the flags.

use std::{sync::Arc, time::Duration};

use crate::cli::Arrivals;

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
