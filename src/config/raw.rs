//! Reads a TOML document key by key. A [`Section`] knows its place, so that every fault has one, and remembers what it
//! was asked for, so that what is left over is an unknown key.
//!
//! Not by serde: its errors name neither the key's path nor more than one fault.

use std::{
    ops::{Range, RangeInclusive},
    path::PathBuf,
    time::Duration,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    error::{At, Faults, Written, suggest},
    value,
};

/// Keys of the top that are no sections. TOML puts a key that follows a section's head into that section, which is the
/// usual way for these to get lost.
const TOP_KEYS: [&str; 7] =
    ["listen", "workers", "runtime", "kernel_stamps", "access_log", "log_level", "session_header"];

/// One table of the document.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
    faults: &'a Faults<'a>,
    asked: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The whole document.
    pub(super) const fn root(table: &'a DeTable<'a>, faults: &'a Faults<'a>) -> Self {
        Self { path: String::new(), span: 0..0, table, faults, asked: Vec::new() }
    }

    /// Where the table begins: for what is missing in it.
    pub(super) fn at(&self) -> At {
        self.faults.at_key(&self.path, self.span.clone())
    }

    /// Whether the key is there, readable or not.
    pub(super) fn wrote(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Any key's place, for faults that several keys make together.
    pub(super) fn at_of(&self, key: &'static str) -> At {
        match self.table.get_key_value(key) {
            Some((_, value)) => self.faults.at(self.path_of(key), value.span()),
            None => self.at(),
        }
    }

    /// A string.
    pub(super) fn string(&mut self, key: &'static str) -> Option<Written<String>> {
        let value = self.value(key)?;
        self.string_at(self.path_of(key), value)
    }

    /// A list of strings; one string alone is taken for a list of one. Absent and empty differ.
    pub(super) fn strings(&mut self, key: &'static str) -> Option<Vec<Written<String>>> {
        let value = self.value(key)?;
        let path = self.path_of(key);
        match value.get_ref() {
            DeValue::Array(items) => {
                Some(numbered(items, &path).filter_map(|(path, item)| self.string_at(path, item)).collect())
            }
            DeValue::String(_) => self.string_at(path, value).map(|one| vec![one]),
            _ => self.wrong(path, value, "a list of strings, such as [\"…\", \"…\"]"),
        }
    }

    /// A file's path; a relative one starts from the configuration's folder.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let written = self.string(key)?;
        if written.value.is_empty() {
            self.faults.add(&written.at, "the path is empty");
        }
        Some(self.faults.folder().join(written.value))
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        value.get_ref().as_bool().or_else(|| self.wrong(self.path_of(key), value, "`true` or `false`"))
    }

    /// A count within bounds.
    pub(super) fn count(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> Option<usize> {
        let value = self.value(key)?;
        let path = self.path_of(key);
        let number = integer(value.get_ref());
        if number.is_none() && !value.get_ref().is_integer() {
            return self.wrong(path, value, "a whole number");
        }
        let at = self.faults.at(path, value.span());
        within(number.and_then(|n| usize::try_from(n).ok()), bounds).map_err(|m| self.faults.add(&at, m)).ok()
    }

    /// A size in bytes or with a unit, within bounds.
    pub(super) fn size(&mut self, key: &'static str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        let path = self.path_of(key);
        let at = self.faults.at(&path, value.span());
        let number = match value.get_ref() {
            DeValue::String(text) => Some(self.faults.take(&at, value::size(text))?),
            DeValue::Integer(_) => integer(value.get_ref()).and_then(|n| u64::try_from(n).ok()),
            _ => return self.wrong(path, value, "a number of bytes, or a string like \"64KiB\""),
        };
        within(number, bounds).map_err(|m| self.faults.add(&at, m)).ok()
    }

    /// A duration above zero.
    pub(super) fn duration(&mut self, key: &'static str) -> Option<Duration> {
        let value = self.value(key)?;
        self.duration_at(self.path_of(key), value).map(|written| written.value)
    }

    /// A list of durations.
    pub(super) fn durations(&mut self, key: &'static str) -> Option<Vec<Written<Duration>>> {
        let value = self.value(key)?;
        let path = self.path_of(key);
        let DeValue::Array(items) = value.get_ref() else {
            return self.wrong(path, value, "a list of durations, such as [\"300ms\", \"1s\"]");
        };
        Some(numbered(items, &path).filter_map(|(path, item)| self.duration_at(path, item)).collect())
    }

    /// `[least, most]`, both included.
    pub(super) fn window(&mut self, key: &'static str) -> Option<(u64, u64)> {
        let value = self.value(key)?;
        let path = self.path_of(key);
        let numbers: Option<Vec<u64>> = value.get_ref().as_array().and_then(|items| {
            items.iter().map(|item| integer(item.get_ref()).and_then(|n| u64::try_from(n).ok())).collect()
        });
        match numbers.as_deref() {
            Some(&[least, most]) if least <= most => Some((least, most)),
            Some(&[least, most]) => {
                let at = self.faults.at(path, value.span());
                self.faults.add(&at, format!("the window is upside down: write [{most}, {least}]"));
                None
            }
            _ => self.wrong(path, value, "two token counts, least and most, such as [900, 1100]"),
        }
    }

    /// A table below this one; `None` if it is not written.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Self> {
        let value = self.value(key)?;
        let path = self.path_of(key);
        match value.get_ref() {
            DeValue::Table(table) => Some(self.below(path, table, value.span())),
            _ => self.wrong(path.clone(), value, &format!("a section: write `[{path}]` on a line of its own")),
        }
    }

    /// A list of tables below this one, each written under its own `[[key]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Self> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let path = self.path_of(key);
        let hint = format!("a list of sections: write each under a line `[[{path}]]`");
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong::<()>(path, value, &hint);
            return Vec::new();
        };
        let tables = numbered(items, &path).filter_map(|(path, item)| match item.get_ref() {
            DeValue::Table(table) => Some(self.below(path, table, item.span())),
            _ => self.wrong(path, item, &hint),
        });
        tables.collect()
    }

    /// Refuses what was never asked for.
    pub(super) fn finish(self) {
        for (key, _) in self.table {
            let name = key.get_ref().as_ref();
            if self.asked.contains(&name) {
                continue;
            }
            let message = if !self.path.is_empty() && TOP_KEYS.contains(&name) {
                format!("`{name}` belongs to the top of the file: move it above the first `[section]`")
            } else {
                format!("unknown key `{name}`: {}", suggest(name, &self.asked))
            };
            self.faults.add(&self.faults.at_key(self.path_of(name), key.span()), message);
        }
    }

    fn below(&self, path: String, table: &'a DeTable<'a>, span: Range<usize>) -> Self {
        Self { path, span, table, faults: self.faults, asked: Vec::new() }
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.push(key);
        self.table.get(key)
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn string_at(&self, path: String, value: &Spanned<DeValue<'_>>) -> Option<Written<String>> {
        match value.get_ref() {
            DeValue::String(text) => {
                Some(Written { value: text.clone().into_owned(), at: self.faults.at(path, value.span()) })
            }
            _ => self.wrong(path, value, "a string in quotes"),
        }
    }

    fn duration_at(&self, path: String, value: &Spanned<DeValue<'_>>) -> Option<Written<Duration>> {
        let at = self.faults.at(path.clone(), value.span());
        let duration = match value.get_ref() {
            DeValue::String(text) => value::duration(text),
            DeValue::Integer(number) => Err(value::needs_unit(number.as_str())),
            DeValue::Float(number) => Err(value::needs_unit(number.as_str())),
            _ => return self.wrong(path, value, "a duration, such as \"300ms\", \"15s\" or \"15min\""),
        };
        self.faults.take(&at, duration).map(|value| Written { value, at })
    }

    fn wrong<T>(&self, path: String, value: &Spanned<DeValue<'_>>, wanted: &str) -> Option<T> {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a decimal number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a section",
        };
        // A section's span is its head, which is no value worth showing.
        let at = match value.get_ref() {
            DeValue::Table(_) => self.faults.at_key(path, value.span()),
            _ => self.faults.at(path, value.span()),
        };
        self.faults.add(&at, format!("this is {found}, but must be {wanted}"));
        None
    }
}

/// The items of a list with their paths.
fn numbered<'a>(
    items: &'a [Spanned<DeValue<'a>>],
    path: &str,
) -> impl Iterator<Item = (String, &'a Spanned<DeValue<'a>>)> {
    items.iter().enumerate().map(move |(index, item)| (format!("{path}[{index}]"), item))
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn within<T: PartialOrd + std::fmt::Display>(number: Option<T>, bounds: RangeInclusive<T>) -> Result<T, String> {
    match number {
        Some(number) if bounds.contains(&number) => Ok(number),
        _ => Err(format!("must be from {} to {}", bounds.start(), bounds.end())),
    }
}
