//! The gauge as a whole: scripted clients and upstreams around the real data plane.
//!
//! `support` holds two worlds. [`support::World`] runs in memory under a paused clock: every time in it is exact.
//! [`support::Live`] runs the program's own parts on real sockets.

#![expect(unreachable_pub, reason = "what the support offers is for the tests beside it")]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod backpressure;
mod corpus;
mod exchange;
mod floors;
mod marks;
mod outcomes;
mod pool;
mod shutdown;
mod stages;
mod support;
mod timing;
