//! Metric families: bounded label sets over lock-free cells, one catalogue, one encoder.
//!
//! Counters and gauges are the `prometheus` crate's, held as handles. Its `*Vec` types are not used: they hash label
//! values without a separator and never compare them, so `("ab", "c")` and `("a", "bc")` are one series, and model
//! names come from outside. Its registry and encoder are not used either: they know no OpenMetrics, no exemplars and
//! write bounds as `le="1"`. [`family`] and [`encode`] stand in for them.

pub mod bounds;
pub mod budget;
pub mod catalogue;
pub mod encode;
pub mod family;
pub mod histogram;

pub use self::{
    budget::Plan,
    catalogue::Catalogue,
    family::{Child, Children, Family},
    histogram::{Exemplar, Histogram},
};
