//! The command `report`: what an access log comes to, as text, as JSON, or as one page with plots.

use std::{io, process::ExitCode};

use crate::cli::ReportArgs;

/// Reads the logs and writes the report.
///
/// # Errors
/// If a log can't be read, or the report can't be written.
pub fn main(arguments: &ReportArgs) -> io::Result<ExitCode> {
    Err(io::Error::other(format!("report of {:?} is not built yet", arguments.files)))
}
