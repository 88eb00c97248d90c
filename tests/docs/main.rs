//! The documentation says what the program does: what can be compared, is.
//!
//! `docs/metrics.md` is written from the catalogue: `UPDATE_DOCS=1 cargo test --test docs` writes it anew. The rest is
//! written by hand, and here its lists are held against the code's.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on says so")]

mod dialects;
mod metrics;
mod reading;
mod record;
mod report;

use std::{
    fs,
    path::{Path, PathBuf},
};

use streamgauge::observation::Outcome;

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The part of a page under this heading, down to the next of the same depth or higher.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    let depth = heading.split(' ').next().unwrap().len();
    let ends = (1..=depth).filter_map(|depth| rest.find(&format!("\n{} ", "#".repeat(depth))));
    &rest[..ends.min().unwrap_or(rest.len())]
}

/// The names in the first cells of a section's tables: what stands in backticks there.
fn first_cells(section: &str) -> Vec<&str> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_readme_knows_every_outcome() {
    let page = read("README.md");
    assert_eq!(first_cells(section(&page, "### How a request ended")), Outcome::ALL.map(Outcome::as_str));
}

#[test]
fn the_picture_shows_what_the_demo_printed() {
    let (text, picture) = (read("docs/demo.txt"), read("docs/demo.svg"));
    let mut drawn = Vec::new();
    for line in picture.lines().filter(|line| line.starts_with("<text ")) {
        let parts = line.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text);
        drawn.push(parts.collect::<String>().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
    }
    assert_eq!(drawn.remove(0), "$ streamgauge demo --for 20");
    let table = text.split("\n\n").find(|paragraph| paragraph.starts_with(" upstream")).unwrap();
    assert!(table.lines().count() > 3, "{table}");
    let rows: Vec<_> = drawn.iter().take(table.lines().count()).map(String::as_str).collect();
    assert_eq!(rows, table.lines().collect::<Vec<_>>(), "run docs/demo-svg");
    let below = &drawn[rows.len()..];
    assert!(!below.is_empty() && below.iter().all(|line| text.lines().any(|printed| printed == line)), "{below:?}");
}

#[test]
fn links_lead_somewhere() {
    let mut pages = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    for file in fs::read_dir(path("docs")).unwrap() {
        let name = file.unwrap().file_name();
        if Path::new(&name).extension().is_some_and(|kind| kind == "md") {
            pages.push(format!("docs/{}", name.display()));
        }
    }
    let mut links = 0;
    for page in &pages {
        let text = read(page);
        let folder = Path::new(page).parent().unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.starts_with("http")) {
            links += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { folder.join(file).to_str().unwrap().to_owned() };
            assert!(path(&file).exists(), "{page} links to {target}");
            if !anchor.is_empty() {
                let text = read(&file);
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|heading| slug(heading) == anchor), "{page} links to {target}");
            }
        }
    }
    assert!(links > 10, "{links} links");
}

/// A heading's anchor, as code hosts make it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}
