//! `docs/reading.md` and its picture: what they name exists.

use std::collections::BTreeSet;

use streamgauge::{cli::parse_from, observation::STAGES};

use crate::{first_cells, read, section};

/// Texts of the picture of this class, with where they stand.
fn drawn<'a>(picture: &'a str, class: &str) -> Vec<(f64, &'a str)> {
    let lines = picture.lines().filter_map(|line| line.strip_prefix("<text x=\""));
    let shown = lines
        .filter(|line| line.contains(&format!(" class=\"{class}\"")) || line.contains(&format!(" class=\"{class} ")));
    shown
        .map(|line| {
            let (x, rest) = line.split_once('"').unwrap();
            let text = rest.split_once('>').unwrap().1;
            (x.parse().unwrap(), text.split_once('<').unwrap().0)
        })
        .collect()
}

/// What stands in backticks, outside of fenced code.
fn spans(text: &str) -> Vec<&str> {
    let prose = text.split("\n```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

/// Every name of records, metrics and configurations: keys, marks, stages, flags, outcomes, classes, families, settings.
fn names() -> BTreeSet<String> {
    let (record, numbers) = (read("docs/record.md"), read("docs/numbers.md"));
    let mut names = BTreeSet::new();
    for key in first_cells(section(&record, "## Keys")) {
        names.extend(key.split('.').map(str::to_owned));
        names.insert(key.to_owned());
    }
    for heading in ["## Marks", "## Stages", "## Outcomes", "## Flags"] {
        names.extend(first_cells(section(&numbers, heading)).into_iter().map(str::to_owned));
    }
    names.extend(spans(section(&numbers, "## Classes")).into_iter().map(str::to_owned));
    let metrics = read("docs/metrics.md");
    let families = metrics.split("\n### `streamgauge_").skip(1).filter_map(|rest| rest.split('`').next());
    names.extend(families.map(str::to_owned));
    let settings = read("config/streamgauge.toml");
    names.extend(settings.lines().filter_map(|line| {
        let (key, _) = line.trim_start_matches(['#', ' ']).split_once(" = ")?;
        Some(key.to_owned())
    }));
    names
}

/// That a family of this name has these labels, with these values: `name{label="value",…}`, or `name` alone.
fn is_family(metrics: &str, asked: &str) {
    let (name, labels) = asked.split_once('{').unwrap_or((asked, ""));
    let family = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
    let described = section(metrics, &format!("### `streamgauge_{}`", family.unwrap_or(name)));
    assert!(family.is_none() || described.contains("\n* histogram · "), "{name} is no histogram's");
    let known = described.lines().find_map(|line| line.strip_prefix("* Labels: ")).unwrap();
    for (label, value) in labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('=')) {
        let (label, value) = (label.trim_end_matches('!'), value.trim_matches('"'));
        assert!(label == "le" || known.contains(&format!("`{label}`")), "{name} has no {label}");
        let free = label == "le" || value.starts_with('$');
        assert!(free || known.contains(&format!("`{value}`")), "{name} has no {label}={value}");
    }
}

/// The name at the beginning of a text, with its labels if it has some.
fn leading(text: &str) -> &str {
    let end = text.find(|char: char| !(char.is_ascii_lowercase() || char == '_')).unwrap_or(text.len());
    let labels = if text[end..].starts_with('{') { text[end..].find('}').unwrap() + 1 } else { 0 };
    &text[..end + labels]
}

#[test]
fn the_families_it_names_are_there() {
    let (page, metrics) = (read("docs/reading.md"), read("docs/metrics.md"));
    let full = page.split("streamgauge_").skip(1).map(leading).filter(|name| !name.is_empty());
    let (own, _) = page.split_once("\n## Under other names\n").unwrap();
    let short = spans(own).into_iter().filter(|span| span.contains('{') && !span.starts_with("streamgauge_"));
    let named: Vec<_> = full.chain(short).collect();
    for name in &named {
        is_family(&metrics, name);
    }
    assert!(named.len() > 30, "only {}", named.len());
}

#[test]
fn the_labels_it_sums_by_are_those_of_the_family() {
    let (page, metrics) = (read("docs/reading.md"), read("docs/metrics.md"));
    let mut sums = 0;
    for rest in page.split(" by (").skip(1) {
        let (labels, rest) = rest.split_once(')').unwrap();
        let Some((_, rest)) = rest.split_once("streamgauge_").filter(|(before, _)| before.len() < 12) else { continue };
        let name = leading(rest).split('{').next().unwrap();
        let labels: Vec<_> = labels.split(", ").map(|label| format!("{label}=$")).collect();
        is_family(&metrics, &format!("{name}{{{}}}", labels.join(",")));
        sums += 1;
    }
    assert!(sums > 20, "only {sums} sums");
}

#[test]
fn the_names_it_uses_are_the_programs() {
    let page = read("docs/reading.md");
    let (own, _) = page.split_once("\n## Under other names\n").unwrap();
    let known = names();
    let is_name = |text: &&str| {
        text.contains(['_', '.']) && text.chars().all(|char| char.is_ascii_lowercase() || matches!(char, '_' | '.'))
    };
    let named: BTreeSet<_> =
        spans(own).into_iter().filter(is_name).filter(|name| !name.starts_with("streamgauge_")).collect();
    let is_known = |name: &str| known.contains(name) || ["_count", "_sum"].contains(&name);
    let unknown: Vec<_> = named.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "nothing is called {unknown:?}");
    assert!(named.len() > 30, "only {} names", named.len());
}

#[test]
fn the_flags_it_names_are_there() {
    let page = read("docs/reading.md");
    let help = |command: &str| parse_from(["streamgauge", command, "--help"]).unwrap_err().to_string();
    let helps: Vec<_> = ["run", "sim", "demo", "bench", "report"].iter().map(|command| help(command)).collect();
    let others = ["--limit-rate", "--enable-per-request-metrics"];
    let mut flags = 0;
    for span in spans(&page) {
        for flag in span.split_whitespace().filter(|word| word.starts_with("--") && !others.contains(word)) {
            assert!(helps.iter().any(|help| help.split_whitespace().any(|word| word == flag)), "no command has {flag}");
            flags += 1;
        }
    }
    assert!(flags > 4, "only {flags} flags");
}

#[test]
fn the_picture_has_the_marks_and_stages_in_their_order() {
    let (page, numbers, picture) = (read("docs/reading.md"), read("docs/numbers.md"), read("docs/timeline.svg"));
    let marks = drawn(&picture, "mark");
    let documented = first_cells(section(&numbers, "## Marks"));
    assert!(marks.iter().all(|(_, mark)| documented.contains(mark)), "{marks:?}");

    // The table beside it has the same marks, and time runs in both.
    let table = section(&page, "## One time line").lines().filter(|line| line.starts_with("| "));
    let cells = table.filter_map(|row| row.split(" | ").nth(2));
    let told: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let at =
        |mark: &&str| marks.iter().find(|(_, drawn)| drawn == mark).unwrap_or_else(|| panic!("{mark} is not drawn")).0;
    assert!(told.is_sorted_by_key(at), "{told:?}");
    assert_eq!(told.iter().collect::<BTreeSet<_>>(), marks.iter().map(|(_, mark)| mark).collect());

    let stages = drawn(&picture, "stage");
    assert!(stages.iter().all(|(_, stage)| STAGES.contains(stage)), "{stages:?}");
    let prose = section(&page, "## One time line");
    for stage in STAGES {
        assert!(prose.contains(&format!("`{stage}`")), "{stage} is nowhere on the time line");
    }
}
