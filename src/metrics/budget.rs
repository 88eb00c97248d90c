//! How many series each family may have.

use std::sync::Arc;

use super::family::{Desc, Exposed};

/// Models per upstream the budget is laid out for.
const NAMED: usize = 10;
/// The same with the folded ones and requests that name none.
const MODELS: usize = NAMED + 2;
/// Lines of the process metrics.
const PROCESS_LINES: usize = 7;

/// What the series budget is split by.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Hard bound on exposed lines. The unlabelled families and the process metrics (36 lines) are always exposed.
    pub max_series: usize,
    /// Configured upstreams.
    pub upstreams: usize,
    /// Configured deadlines.
    pub deadlines: usize,
    /// Declared workloads.
    pub workloads: usize,
    /// Whether clients may send in their own timings.
    pub client_timings: bool,
}

/// Splits the series over the families. What has no model is bounded by the configuration and goes first, unless it
/// alone would take more than half; the rest is split by how large each family grows when every cell is in use.
pub fn split(families: &[Arc<dyn Exposed>], plan: Plan) {
    let by_model = |desc: &Desc| desc.labels.contains(&"model");
    let full = |desc: &Desc| {
        let upstreams = plan.upstreams.max(1) + 1; // exchanges without one have the label `_none`
        let sets = match desc.labels {
            labels if labels.contains(&"model") => upstreams * MODELS,
            labels if labels.contains(&"upstream") => upstreams,
            _ => 1,
        };
        desc.lines() * desc.cells * sets
    };
    let sum = |models: bool| -> usize {
        families.iter().map(|family| family.desc()).filter(|desc| by_model(desc) == models).map(full).sum()
    };
    let available = plan.max_series.saturating_sub(PROCESS_LINES);
    let (fixed, modelled) = (sum(false), sum(true));
    let roomy = fixed <= available / 2;
    for family in families {
        let desc = family.desc();
        let share = match (roomy, by_model(desc)) {
            (true, false) => full(desc),
            (true, true) => full(desc) * (available - fixed) / modelled,
            (false, _) => full(desc) * available / (fixed + modelled),
        };
        let children = if desc.labels.is_empty() { 1 } else { share / desc.lines() };
        // A sixteenth is kept for what is folded, but not at the cost of models that would else fit in full.
        let sixteenth = children.div_ceil(16);
        let named = plan.upstreams.max(1) * NAMED * desc.cells;
        let spare = children.checked_sub(named).filter(|spare| by_model(desc) && *spare > 0);
        family.limit(children, sixteenth.min(spare.unwrap_or(sixteenth)));
    }
}
