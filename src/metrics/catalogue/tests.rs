use std::fmt::Write as _;

use super::*;
use crate::metrics::family::{Kind, Unit};

const PLAN: Plan = Plan { max_series: 32_000, upstreams: 3, deadlines: 3, workloads: 2, client_timings: true };

/// One family per paragraph: whatever a dashboard or an alert can depend on.
#[test]
fn the_catalogue_is_what_was_promised() {
    let catalogue = Catalogue::new(PLAN).unwrap();
    let mut text = String::new();
    for family in catalogue.families() {
        let Desc { name, help, labels, bounds, exemplars, unit, .. } = family.desc();
        let kind = family.kind().as_str();
        let exemplars = if *exemplars { " exemplars" } else { "" };
        writeln!(text, "{name} {kind} {unit:?}{exemplars}").unwrap();
        writeln!(text, "  labels {labels:?}\n  bounds {bounds:?}\n  {help}\n").unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn names_units_and_bounds_agree() {
    let catalogue = Catalogue::new(PLAN).unwrap();
    let mut names = std::collections::BTreeSet::new();
    for family in catalogue.families() {
        let desc = family.desc();
        let counted = desc.name.strip_suffix("_total");
        assert!(names.insert(desc.name), "{} is there twice", desc.name);
        assert_eq!(counted.is_some(), family.kind() == Kind::Counter, "{}", desc.name);
        let unit = match counted.unwrap_or(desc.name) {
            name if name.ends_with("_tokens_per_second") => Unit::TokensPerSecond,
            name if name.ends_with("_seconds") => Unit::Seconds,
            _ => Unit::One,
        };
        assert_eq!(desc.unit, unit, "{}", desc.name);
        assert_eq!(desc.bounds.is_empty(), family.kind() != Kind::Histogram, "{}", desc.name);
        assert!(desc.bounds.is_sorted_by(|a, b| a < b), "{}", desc.name);
    }
}

#[test]
fn histograms_of_spans_name_both_ends() {
    for family in Catalogue::new(PLAN).unwrap().families() {
        let Desc { name, help, .. } = family.desc();
        let words: Vec<_> = help.split([' ', ',', ':']).map(str::to_lowercase).collect();
        let both = words
            .iter()
            .position(|word| word == "from")
            .is_some_and(|from| words[from..].iter().any(|word| word == "to"));
        assert!(family.kind() != Kind::Histogram || both, "{name}: {help}");
    }
}
