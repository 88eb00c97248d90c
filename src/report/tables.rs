//! The report's tables, of which text and page are made: most important first, each with what its numbers lie between.

mod pairs;
mod slices;
mod spent;

pub(super) use self::pairs::{KINDS, by_kind};
use super::{
    shown::name,
    tally::{Pair, Report},
};

/// A part of the report.
#[derive(Debug)]
pub(super) struct Section {
    /// Stable: the page's anchor.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// How to read it; what the numbers lie between.
    pub(super) note: &'static str,
    pub(super) tables: Vec<Table>,
    /// Lines below the tables.
    pub(super) below: Vec<String>,
}

/// A table; a section without rows is left out.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) head: Vec<Head>,
    /// Columns of text, before those of numbers.
    pub(super) texts: usize,
    pub(super) rows: Vec<Vec<String>>,
    /// Rows that were left out.
    pub(super) left_out: usize,
}

/// A column's name and what it means, with both ends of what is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head(pub(super) &'static str, pub(super) &'static str);

const UPSTREAM: Head = Head("upstream", "the provider, as the configuration names it");
const MODEL: Head = Head("model", "as the request names it");
const N: Head = Head("n", "how many requests the numbers beside it are made of");

/// How many rows a table of pairs has at most, and of how many pairs there are slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) pairs: usize,
    pub(super) sliced: usize,
}

/// All sections that have something to say.
pub(super) fn sections(report: &Report, room: Room) -> Vec<Section> {
    let mut sections = vec![
        pairs::first_output(report, room),
        pairs::outcomes(report, room),
        pairs::speed(report, room),
        spent::stages(report),
        spent::sessions(&report.sessions),
        slices::by_input(report, room),
        slices::by_load(report, room),
        slices::by_hour(report, room),
        slices::workloads(report, room),
        pairs::server(report, room),
        spent::overhead(report),
        pairs::tokens(report, room),
    ];
    sections.retain(|section| section.tables.iter().any(|table| !table.rows.is_empty()));
    sections
}

impl Table {
    fn new(texts: usize, head: impl Into<Vec<Head>>) -> Self {
        Self { head: head.into(), texts, rows: Vec::new(), left_out: 0 }
    }

    fn row(&mut self, row: impl Into<Vec<String>>) {
        self.rows.push(row.into());
    }

    /// A row of numbers made of `n` values, where there is room for it: without any it says nothing.
    fn row_of(&mut self, n: u64, room: bool, row: impl FnOnce() -> Vec<String>) {
        match n {
            0 => {}
            _ if room => self.rows.push(row()),
            _ => self.left_out += 1,
        }
    }
}

fn pair_and<const CELLS: usize>(pair: &Pair, cells: [String; CELLS]) -> Vec<String> {
    let mut row = vec![name(pair.upstream.as_ref()), name(pair.model.as_ref())];
    row.extend(cells);
    row
}
