//! The command `bench`: the client's ruler. It asks a provider by itself and measures with the very machine the proxy
//! measures with, so that a client's and a gateway's figures differ by what lies between them and by nothing else.

use std::{io, process::ExitCode};

use crate::cli::BenchArgs;

/// Runs all workloads at all loads and prints what came of them.
///
/// # Errors
/// If nothing can be asked, or the output can't be written.
pub fn main(arguments: &BenchArgs) -> io::Result<ExitCode> {
    Err(io::Error::other(format!("bench of {} is not built yet", arguments.url)))
}
