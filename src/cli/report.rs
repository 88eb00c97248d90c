//! Flags of `report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Flags of `report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Access logs (`--access-log`), or records of `bench --records`, packed by gzip or not; `-` is standard input
    #[arg(value_name = "FILE.jsonl", required = true)]
    pub files: Vec<PathBuf>,
    /// What to make of them
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: ReportFormat,
    /// Write it to FILE instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only requests to this upstream
    #[arg(long, value_name = "NAME")]
    pub upstream: Option<String>,
    /// Only requests for this model
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Only requests that began at or after this time, in UTC (`2026-01-31T12:00:00Z`, `2026-01-31`)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only requests that began before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// Forms of a report.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportFormat {
    /// Tables for a terminal
    Text,
    /// One JSON object with all figures
    Json,
    /// One page with plots that needs nothing else
    Html,
}

pub(super) const REPORT_EXAMPLES: &str = "\
Examples:
  streamgauge report exchanges.jsonl
  streamgauge report exchanges.jsonl.1.gz exchanges.jsonl --format html --output report.html
  streamgauge report old.jsonl new.jsonl --model gpt-5-mini --since 2026-01-31T00:00:00Z";
