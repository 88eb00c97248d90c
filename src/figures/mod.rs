//! What a set of records comes to: percentiles, ratios and the text that shows them. Everything here is a plain function
//! of values that were observed; `bench`, `report` and the demo share it, so that one word means one thing in all three.

pub mod ratio;
mod record;
mod sample;
mod text;

pub use self::{
    record::{Connection, Record, Stages},
    sample::{Quantiles, Sample, least, rank},
    text::{ABSENT, percent, signed_time, significant, table, tame, terminal, time, width},
};
