//! Names and numbers as they are shown.

use super::tally::lower;
use crate::figures::{ABSENT, significant, tame, time};

/// Names are cut to this many characters, wherever they are shown. JSON has them whole.
const LONGEST_NAME: usize = 40;

/// An upstream and a model in one.
pub(super) fn title(upstream: Option<&String>, model: Option<&String>) -> String {
    format!("{} {}", name(upstream), name(model))
}

/// A name as it can be shown: what a client sent may hold anything, so nothing of it steers a terminal or turns the
/// reading direction, and it has an end.
pub(super) fn name(name: Option<&String>) -> String {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return ABSENT.to_owned() };
    tame(name, LONGEST_NAME)
}

pub(super) fn shown(number: Option<f64>, show: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| ABSENT.to_owned(), show)
}

/// A whole number, its digits in threes.
pub(super) fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A span that may be long.
pub(super) fn long(seconds: f64) -> String {
    match seconds {
        _ if seconds < 600.0 => time(seconds),
        _ if seconds < 7_200.0 => format!("{} min", significant(seconds / 60.0)),
        _ => format!("{} h", significant(seconds / 3_600.0)),
    }
}

/// A class as people read it: `500–2k` for `500_2k`. Other words stay as they are.
pub(super) fn class_name(class: &str) -> String {
    let shown = name(Some(&class.to_owned()));
    match class.split_once('_') {
        Some((from, "up")) if lower(class) != u64::MAX => format!("{from} and up"),
        // Of the second part only the beginning is known to be a number.
        Some((from, to)) if lower(class) != u64::MAX && lower(to) != u64::MAX => {
            format!("{from}–{}", tame(to, LONGEST_NAME))
        }
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_steer_nothing() {
        assert_eq!(name(Some(&"a\u{1b}[31m\n\u{202e}b".to_owned())), "a\u{fffd}[31m\u{fffd}\u{fffd}b");
        assert_eq!(name(Some(&"x".repeat(99))).chars().count(), LONGEST_NAME);
        assert_eq!([name(None), name(Some(&String::new()))], ["–", "–"]);
    }

    #[test]
    fn long_numbers_are_read_at_a_glance() {
        assert_eq!([0.0, 999.0, 1_000.0, 1_234_567.0].map(whole), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1.5, 599.0, 3_000.0, 86_400.0].map(long), ["1.50 s", "599 s", "50.0 min", "24.0 h"]);
        assert_eq!(
            ["500_2k", "65_up", "unknown", "1", "chat_x", "1_2_\u{1b}[2J"].map(class_name),
            ["500–2k", "65 and up", "unknown", "1", "chat_x", "1–2_\u{fffd}[2J"]
        );
    }
}
