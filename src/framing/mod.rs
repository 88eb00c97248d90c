//! Bytes in, events out in pieces, across any split. Pure: no time, no I/O, no failure, no allocation on the usual path.

pub mod json;
pub mod sse;
