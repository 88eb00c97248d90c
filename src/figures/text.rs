//! Numbers and tables as people read them.

use std::io::{self, IsTerminal as _};

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// What stands for a number that was not observed.
pub const ABSENT: &str = "–";

/// A line under the head, none between columns: nine of them fit into 80.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));

/// A table with this head; the columns `numbers` are aligned to the right. `width` is the terminal's, if there is one.
pub fn table(head: &[&str], numbers: std::ops::Range<usize>, width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(head.to_vec());
    let narrow = width.is_some_and(|width| width < 90);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding(if narrow { (0, 1) } else { (1, 1) });
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The columns of standard output; absent if it is no terminal, where lines have no end.
pub fn width() -> Option<u16> {
    terminal().map(|(columns, _)| columns)
}

/// The columns and rows of standard output, 80 and 24 where it does not say; absent if it is no terminal.
pub fn terminal() -> Option<(u16, u16)> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    Some((if size.ws_col > 0 { size.ws_col } else { 80 }, if size.ws_row > 0 { size.ws_row } else { 24 }))
}

/// A time in seconds, shown in the unit that suits it.
pub fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1e-3 => format!("{} µs", significant(seconds * 1e6)),
        _ if seconds < 1.0 => format!("{} ms", significant(seconds * 1e3)),
        _ => format!("{} s", significant(seconds)),
    }
}

/// A difference of times in seconds, with its sign.
pub fn signed_time(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "−" } else { "+" };
    format!("{sign}{}", time(seconds.abs()))
}

/// The first `longest` characters of a text from outside, and none that steers a terminal, breaks the line or turns the
/// reading direction: what a provider, a client or a log says may hold anything.
pub fn tame(text: &str, longest: usize) -> String {
    let steers = |char: char| {
        char.is_control()
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut shown: String =
        text.chars().take(longest).map(|char| if steers(char) { '\u{fffd}' } else { char }).collect();
    if text.chars().nth(longest).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// A share. What is not all is never shown as 100 %, what is not nothing never as 0 %.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 0.1 => "< 0.1 %".to_owned(),
        percent if percent < 100.0 && percent > 99.9 => "> 99.9 %".to_owned(),
        percent if percent == 0.0 || percent == 100.0 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// Three digits, or as many as the whole part has.
pub fn significant(number: f64) -> String {
    let decimals = match number {
        _ if number >= 99.95 => 0,
        _ if number >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_steers_nothing_and_has_an_end() {
        assert_eq!(tame("a\u{1b}[31m\n\u{9b}2J\u{202e}b", 40), "a\u{fffd}[31m\u{fffd}\u{fffd}2J\u{fffd}b");
        assert_eq!([tame("four", 4), tame("five!", 4)], ["four", "fiv…"]);
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!([0.0123, -0.0123, -2e-6, 0.0].map(signed_time), ["+12.3 ms", "−12.3 ms", "−2.00 µs", "+0.00 µs"]);
    }

    #[test]
    fn shares_are_not_rounded_into_a_lie() {
        let shown = [0.0, 0.000_1, 0.001, 0.5, 0.999_4, 0.999_9, 1.0].map(percent);
        assert_eq!(shown, ["0 %", "< 0.1 %", "0.1 %", "50.0 %", "> 99.9 %", "> 99.9 %", "100 %"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [4.2e-6, 9.999e-5, 0.000_999_9, 0.182, 0.9999, 1.234, 99.96, 1234.5].map(time);
        assert_eq!(shown, ["4.20 µs", "100 µs", "1000 µs", "182 ms", "1000 ms", "1.23 s", "100 s", "1234 s"]);
    }
}
