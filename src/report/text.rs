//! The report for a terminal.

use std::fmt::Write as _;

use super::{
    shown::whole,
    tables::{Section, Table},
    tally::Scope,
};
use crate::figures::{self, tame};

/// All sections, at most `width` columns wide where that is possible.
pub(super) fn render(scope: &Scope, sections: &[Section], width: Option<u16>) -> String {
    let mut text = String::new();
    for line in about(scope) {
        push(&mut text, &line, width);
    }
    for section in sections {
        let _ = write!(text, "\n{}\n", section.title.to_uppercase());
        push(&mut text, section.note, width);
        for table in section.tables.iter().filter(|table| !table.rows.is_empty()) {
            text.push('\n');
            push_table(&mut text, table, width);
            if table.left_out > 0 {
                let _ = writeln!(text, "… and {} more: --format json has all", table.left_out);
            }
        }
        if !section.below.is_empty() {
            text.push('\n');
        }
        for line in &section.below {
            push(&mut text, line, width);
        }
    }
    text
}

/// What the report is made of, in a few lines.
pub(super) fn about(scope: &Scope) -> Vec<String> {
    let lines = &scope.lines;
    let mut about = vec![format!("{} requests from {}", whole(lines.requests as f64), scope.files.join(", "))];
    if let Some((from, to)) = scope.from.as_ref().zip(scope.to.as_ref()) {
        about.push(format!("begun from {from} to {to}"));
    }
    if !scope.filters.is_empty() {
        let filters: Vec<_> = scope.filters.iter().map(|(flag, value)| format!("{flag} {value}")).collect();
        about.push(format!("only {}: {} records were left out", filters.join(" "), lines.filtered));
    }
    if scope.all_by_bench() {
        about.push("measured by streamgauge bench, which is the client: no gauge has seen them".to_owned());
    } else if scope.by_bench > 0 {
        about.push(format!(
            "{} of them were measured by streamgauge bench, which is the client: what is said of the gauge is bench's there, and \
             client times count from when a request was due",
            scope.by_bench
        ));
    }
    if lines.tunnels > 0 {
        about.push(format!("{} tunnels are left out: they have no latency", lines.tunnels));
    }
    if lines.unreadable > 0 {
        about.push(format!("{} of {} lines are no records", lines.unreadable, lines.lines));
    }
    for fault in &lines.faults {
        about.push(format!("  {} line {}: {}", fault.file, fault.line, fault.why));
    }
    if lines.requests == 0 {
        let why = if lines.lines == lines.blank { "the log is empty" } else { "nothing in the log counts" };
        about.push(format!("no requests: {why}"));
    }
    // Names of files, filters and what stands in a torn line come from anywhere.
    about.iter().map(|line| tame(line, 400)).collect()
}

/// Columns that do not fit are left to a second table with the same first columns.
fn push_table(text: &mut String, table: &Table, width: Option<u16>) {
    let widest = |column: usize| {
        let cells = table.rows.iter().map(|row| row[column].chars().count());
        let head = table.head[column].0.split(' ').map(|word| word.chars().count());
        cells.chain(head).max().unwrap_or(0) + 2
    };
    let texts: usize = (0..table.texts).map(widest).sum();
    let room = width.map_or(usize::MAX, usize::from);
    let mut columns: Vec<usize> = (0..table.texts).collect();
    let mut used = texts;
    for column in table.texts..table.head.len() {
        if used + widest(column) > room && columns.len() > table.texts {
            push_columns(text, table, &columns, width);
            text.push('\n');
            columns.truncate(table.texts);
            used = texts;
        }
        columns.push(column);
        used += widest(column);
    }
    push_columns(text, table, &columns, width);
}

fn push_columns(text: &mut String, table: &Table, columns: &[usize], width: Option<u16>) {
    let head: Vec<String> =
        columns.iter().map(|column| table.head[*column].0.replace(' ', "\n").replace('\u{a0}', " ")).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut drawn = figures::table(&head, table.texts..columns.len(), width);
    for row in &table.rows {
        drawn.add_row(columns.iter().map(|column| row[*column].as_str()));
    }
    // Formatting into a string does not fail.
    let _ = writeln!(text, "{}", drawn.trim_fmt());
}

/// A paragraph, broken between words.
fn push(text: &mut String, paragraph: &str, width: Option<u16>) {
    let room = usize::from(width.unwrap_or(120)).min(120);
    let indent = paragraph.len() - paragraph.trim_start().len();
    let mut used = 0;
    for word in paragraph.split_whitespace() {
        let long = word.chars().count();
        if used == 0 {
            text.push_str(&" ".repeat(indent));
            used = indent;
        } else if used + 1 + long > room {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            used = indent;
        } else {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += long;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tables::Head;

    #[test]
    fn what_is_too_wide_goes_on_below() {
        let head = vec![Head("name", ""), Head("one thing", ""), Head("two", ""), Head("three", "")];
        let rows = vec![["a", "1234567", "1234567", "1234567"].map(str::to_owned).to_vec()];
        let table = Table { head, texts: 1, rows, left_out: 0 };
        let mut text = String::new();
        push_table(&mut text, &table, Some(26));
        assert!(text.lines().all(|line| line.chars().count() <= 26), "{text}");
        assert_eq!(text.matches("1234567").count(), 3, "{text}");
        assert_eq!(
            text.lines().filter(|line| line.trim_start().starts_with("a ")).count(),
            2,
            "the name stands in both: {text}"
        );
    }

    #[test]
    fn paragraphs_keep_their_indent() {
        let mut text = String::new();
        push(&mut text, "  some words that are broken", Some(14));
        assert_eq!(text, "  some words\n  that are\n  broken\n");
    }
}
