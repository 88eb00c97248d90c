//! What is wrong with a configuration, told so that it can be put right: place, key, value, and what to write instead.

use std::{
    cell::RefCell,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

/// A configuration that can't be run, with every fault that was found in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    faults: Vec<Fault>,
}

impl ConfigError {
    /// The exit code for it (`EX_USAGE`).
    pub const EXIT_CODE: u8 = 64;

    pub(super) fn one(at: At, message: impl Into<String>) -> Self {
        Self { faults: vec![Fault { at, message: message.into() }] }
    }

    /// The faults: those of the file in its order, then those of flags and variables. Never empty.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.len() {
            1 => write!(f, "the configuration has a fault:")?,
            n => write!(f, "the configuration has {n} faults:")?,
        }
        self.faults.iter().try_for_each(|fault| write!(f, "\n\n{fault}"))
    }
}

impl std::error::Error for ConfigError {}

/// One fault. `Display` gives its place on the first line and, indented, what is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    at: At,
    message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        self.message.lines().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Where a value was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct At {
    /// The key's path (`upstreams[1].url`) or the flag (`--upstream`); empty where the file can't be read at all.
    pub(super) key: String,
    /// The value as it was written, shortened; absent where there is none or it may hold a secret.
    pub(super) shown: Option<String>,
    pub(super) place: Place,
}

/// In which source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    /// Line and column, both from 1.
    File { line: usize, column: usize, file: PathBuf },
    /// A flag or its variable.
    Flag,
}

impl At {
    /// A flag and its value.
    pub(super) fn flag(flag: &str, value: &str) -> Self {
        Self { key: flag.to_owned(), shown: Some(shown(&format!("{value:?}"))), place: Place::Flag }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { line, column, file } => {
                write!(f, "{}:{line}:{column}:", file.display())?;
                if !self.key.is_empty() {
                    write!(f, " {}", self.key)?;
                }
            }
            Place::Flag => {
                let variable = self.key.trim_start_matches('-').replace('-', "_").to_uppercase();
                write!(f, "{} or STREAMGAUGE_{variable}", self.key)?;
            }
        }
        match &self.shown {
            Some(value) => write!(f, " = {value}"),
            None => Ok(()),
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Written<T> {
    pub(super) value: T,
    pub(super) at: At,
}

/// Collects the faults of one file and the flags that go with it. Readers share it, so that all are found in one go.
#[derive(Debug)]
pub(super) struct Faults<'a> {
    text: &'a str,
    file: &'a Path,
    found: RefCell<Vec<Fault>>,
}

impl<'a> Faults<'a> {
    pub(super) const fn new(text: &'a str, file: &'a Path) -> Self {
        Self { text, file, found: RefCell::new(Vec::new()) }
    }

    /// The folder that relative paths in the file start from.
    pub(super) fn folder(&self) -> &'a Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    pub(super) fn add(&self, at: &At, message: impl Into<String>) {
        self.found.borrow_mut().push(Fault { at: at.clone(), message: message.into() });
    }

    /// Gives the value, or books why there is none.
    pub(super) fn take<T>(&self, at: &At, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.add(at, message)).ok()
    }

    /// A place in the file; `key` is named, the value at `span` shown.
    pub(super) fn at(&self, key: impl Into<String>, span: Range<usize>) -> At {
        let shown = self.text.get(span.clone()).map(shown);
        At { shown, ..self.at_key(key, span) }
    }

    /// A place in the file whose value is not shown.
    pub(super) fn at_key(&self, key: impl Into<String>, span: Range<usize>) -> At {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let place = Place::File {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            file: self.file.to_owned(),
        };
        At { key: key.into(), shown: None, place }
    }

    /// Where something is missing that was not written anywhere: the file, or if there is none the flag for it.
    pub(super) fn nowhere(&self, flag: &str) -> At {
        if self.file.as_os_str().is_empty() {
            At { key: flag.to_owned(), shown: None, place: Place::Flag }
        } else {
            self.at_key("", 0..0)
        }
    }

    /// All that was found, in the file's order; `value` if nothing was.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigError> {
        let mut faults = self.found.into_inner();
        faults.sort_by(|a, b| a.at.place.cmp(&b.at.place));
        match value {
            Some(value) if faults.is_empty() => Ok(value),
            _ => Err(ConfigError { faults }),
        }
    }
}

/// A value's own text on one line, at most 72 characters, without what may be a secret in a URL: its user part, its query.
fn shown(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let closing = line.chars().next_back().filter(|last| matches!(last, '"' | '\'')).map(String::from);
    let closing = closing.unwrap_or_default();
    let mut line = match line.split_once("://") {
        None => line,
        Some((scheme, rest)) => {
            let end = rest.find(['?', '#']).unwrap_or(rest.len());
            let cut = if end < rest.len() { format!("{}…{closing}", &rest[..=end]) } else { rest.to_owned() };
            let host = cut.rfind('@').map_or(cut.clone(), |user_end| format!("…{}", &cut[user_end..]));
            format!("{scheme}://{host}")
        }
    };
    if let Some((cut, _)) = line.char_indices().nth(72) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

/// "did you mean …?" if one of `known` is near enough to be what was meant, else what there is.
pub(super) fn suggest(written: &str, known: &[&str]) -> String {
    let is_near = |distance: usize, known: &str| {
        let shorter = known.len().min(written.len());
        distance <= 1 + shorter / 4 || shorter >= 4 && (known.contains(written) || written.contains(known))
    };
    let near = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(written, known), *known))
        .filter(|(distance, known)| is_near(*distance, known))
        .min();
    if let Some((_, known)) = near {
        return format!("did you mean `{known}`?");
    }
    let list: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
    format!("known here: {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_keeps_no_secret() {
        assert_eq!(shown("\"https://me:pw@h/v1?key=sk\""), "\"https://…@h/v1?…\"");
        assert_eq!(shown("\"https://h/v1?key=a@b\""), "\"https://h/v1?…\"");
        assert_eq!(shown("\"a=http://h/v1#x\""), "\"a=http://h/v1#…\"");
        assert_eq!(shown("\"https://api.example/v1\""), "\"https://api.example/v1\"");
    }

    #[test]
    fn a_shown_value_is_one_short_line() {
        assert_eq!(shown("[\n  1,\n  2\n]"), "[ 1, 2 ]");
        assert_eq!(shown(&"x".repeat(100)).chars().count(), 73);
    }

    #[test]
    fn a_suggestion_is_near_or_a_list() {
        assert_eq!(suggest("max_serie", &["deadlines", "max_series"]), "did you mean `max_series`?");
        assert_eq!(suggest("zebra", &["deadlines", "max_series"]), "known here: `deadlines`, `max_series`");
        assert_eq!(suggest("prefix", &["path_prefix", "host"]), "did you mean `path_prefix`?");
    }

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let faults = Faults::new("a = 1\nü = 2\n", Path::new("f"));
        let At { place, .. } = faults.at_key("x", 9..10);
        assert_eq!(place, Place::File { line: 2, column: 3, file: "f".into() });
    }
}
