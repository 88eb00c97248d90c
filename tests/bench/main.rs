//! The command `bench`, as a user starts it: against simulated providers, scripted ones, none, and one that freezes.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on says so")]

mod failures;
mod frozen;
mod provider;
mod requests;
mod results;
mod sides;
mod support;
