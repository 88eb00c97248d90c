//! The command `report`: what an access log comes to, as text, as JSON, or as one page with plots.
//!
//! Files are read once, line by line. Of each request some 240 bytes of numbers are kept and every name once, however long
//! its record is; quantiles are exact, so all of them are needed.

mod html;
mod plot;
mod plots;
mod read;
mod rows;
mod sessions;
mod shown;
mod tables;
mod tally;
mod text;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use self::{
    read::Filter,
    tables::Room,
    tally::{Report, Scope},
};
use crate::{
    cli::{ReportArgs, ReportFormat},
    figures::width,
};

/// Rows that a terminal is shown.
const TERMINAL: Room = Room { pairs: 20, sliced: 4 };
/// Rows of a page: its weight is bounded, whatever the log.
const PAGE: Room = Room { pairs: 60, sliced: 12 };

/// Reads the logs and writes the report.
///
/// # Errors
/// If a log can't be opened, a time in the flags is none, or the report can't be written. Lines that can't be read are told
/// of in the report.
pub fn main(arguments: &ReportArgs) -> io::Result<ExitCode> {
    if let Some(output) = &arguments.output {
        refuse_to_overwrite(output, &arguments.files)?;
    }
    let made = make(arguments, if arguments.output.is_some() { None } else { width() })?;
    match &arguments.output {
        Some(output) => fs::write(output, made)
            .map_err(|error| io::Error::new(error.kind(), format!("can't write {}: {error}", output.display())))?,
        None => match io::stdout().write_all(made.as_bytes()) {
            // Whoever reads it has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// The report as it is written; `width` is the terminal's, if it goes to one.
///
/// # Errors
/// As [`main`], but for writing.
pub fn make(arguments: &ReportArgs, width: Option<u16>) -> io::Result<String> {
    let filter = Filter::of(arguments)?;
    let (log, lines) = read::read(&arguments.files, &filter)?;
    let filters = [
        ("--upstream", &arguments.upstream),
        ("--model", &arguments.model),
        ("--since", &arguments.since),
        ("--until", &arguments.until),
    ];
    let filters: BTreeMap<_, _> =
        filters.into_iter().filter_map(|(flag, value)| Some((flag, value.clone()?))).collect();
    let file = |file: &std::path::PathBuf| match file.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => file.display().to_string(),
    };
    let files = arguments.files.iter().map(file).collect();
    let report = Report::of(&log, Scope { files, filters, from: None, to: None, lines, by_bench: 0 });
    Ok(match arguments.format {
        ReportFormat::Text => text::render(&report.scope, &tables::sections(&report, TERMINAL), width),
        ReportFormat::Json => serde_json::to_string_pretty(&report).map_err(io::Error::other)? + "\n",
        ReportFormat::Html => html::render(&log, &report, &tables::sections(&report, PAGE)),
    })
}

/// A report in place of the log it was made of would be a sad end.
fn refuse_to_overwrite(output: &Path, files: &[impl AsRef<Path>]) -> io::Result<()> {
    let there = fs::canonicalize(output).ok();
    if there.is_some() && files.iter().any(|file| fs::canonicalize(file).ok() == there) {
        let why = format!("{} is one of the logs: name another file for --output", output.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}
