//! The gauge as a whole: scripted clients and upstreams around the real data plane.
//!
//! `support` holds two worlds. [`support::World`] runs in memory under a paused clock: every time in it is exact.
//! [`support::Live`] runs the program's own parts on real sockets.

#![expect(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(unreachable_pub, reason = "a crate of tests has no outside")]

mod added_headers;
mod admin;
mod ask_for_usage;
mod backpressure;
mod bad_input;
mod client_timings;
mod compressed;
mod cores;
mod corpus;
mod exchange;
mod floors;
#[cfg(target_os = "linux")]
mod kernel;
mod marks;
mod outcomes;
mod pool;
mod recognising;
mod reported;
mod resuming;
mod scrapes;
mod sharing;
mod shutdown;
mod stages;
mod support;
mod timing;
mod transparency;
mod tunnel;
mod turns;
mod unobserved;
mod versions;
mod waiting;
