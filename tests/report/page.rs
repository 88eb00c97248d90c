//! A page's form: every tag closed, every attribute quoted, and nothing that would fetch or run anything.

use std::collections::BTreeSet;

/// Elements without an end.
const VOID: [&str; 1] = ["meta"];
/// Elements a report is made of; what is not among them has no business there.
const KNOWN: [&str; 48] = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "main",
    "section",
    "nav",
    "h1",
    "h2",
    "p",
    "ul",
    "li",
    "a",
    "details",
    "summary",
    "dl",
    "dt",
    "dd",
    "div",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "figure",
    "figcaption",
    "code",
    "svg",
    "defs",
    "pattern",
    "path",
    "rect",
    "text",
    "b",
    "i",
    "em",
    "strong",
    "small",
    "span",
    "br",
    "hr",
    "g",
    "desc",
    "caption",
];

/// # Panics
/// If anything is wrong with it.
pub(crate) fn check(html: &str) {
    let mut rest = html.strip_prefix("<!doctype html>").expect("a doctype");
    let (mut open, mut ids): (Vec<&str>, BTreeSet<&str>) = (Vec::new(), BTreeSet::new());
    while let Some(begin) = rest.find('<') {
        assert!(!rest[..begin].contains('>') || open.last() == Some(&"style"), "a loose > in {:.80}", &rest[..begin]);
        rest = &rest[begin + 1..];
        if let Some(end) = rest.strip_prefix('/') {
            let (name, after) = end.split_once('>').expect("the end of an end tag");
            assert_eq!(open.pop(), Some(name), "near {after:.80}");
            rest = after;
            continue;
        }
        let length = rest.find(|char: char| !char.is_ascii_alphanumeric()).expect("the end of a name");
        let name;
        (name, rest) = rest.split_at(length);
        assert!(KNOWN.contains(&name), "<{name}> has no business here");
        let closed = attributes(name, &mut rest, &mut ids);
        if !closed && !VOID.contains(&name) {
            open.push(name);
        }
        if name == "style" {
            let (style, after) = rest.split_once("</style>").expect("the style's end");
            assert!(!style.contains("@import") && !style.contains('<'), "a style that fetches");
            let urls = style.split("url(").skip(1);
            assert!(urls.into_iter().all(|url| url.starts_with('#')), "a style that fetches");
            open.pop();
            rest = after;
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    for (at, _) in html.match_indices("href=\"#") {
        let target = html[at + 7..].split('"').next().unwrap();
        assert!(ids.contains(target), "a link to nowhere: {target}");
    }
}

/// Reads them up to the tag's end; whether it closes itself.
fn attributes<'a>(element: &str, rest: &mut &'a str, ids: &mut BTreeSet<&'a str>) -> bool {
    loop {
        *rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("/>") {
            *rest = after;
            return true;
        }
        if let Some(after) = rest.strip_prefix('>') {
            *rest = after;
            return false;
        }
        let length = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '-').expect("a name's end");
        let name;
        (name, *rest) = rest.split_at(length);
        assert!(!name.is_empty(), "in <{element}: {rest:.60}");
        assert!(
            !name.starts_with("on") && !["src", "srcset", "style", "action"].contains(&name),
            "{name} in <{element}>"
        );
        let Some(value) = rest.strip_prefix("=\"") else {
            assert_eq!((element, name), ("details", "open"), "an attribute without a value");
            continue;
        };
        let (value, after) = value.split_once('"').expect("a value's end");
        assert!(!value.contains('<'), "{value}");
        match name {
            "href" => assert!(value.starts_with('#'), "{value}"),
            "id" => assert!(ids.insert(value), "{value} twice"),
            "d" => assert!(!value.contains("NaN") && !value.contains("inf"), "{value}"),
            _ => {}
        }
        *rest = after;
    }
}

#[test]
fn a_page_with_a_fault_is_found_out() {
    let page = |body: &str| format!("<!doctype html>\n<html lang=\"en\"><body>{body}</body></html>");
    check(&page("<p id=\"a\">x &lt; y<a href=\"#a\">z</a></p>"));
    let faults = [
        "<p>",
        "</p>",
        "<p></ul>",
        "<script>x</script>",
        "<a href=\"http://x\">x</a>",
        "<a href=\"#nowhere\">x</a>",
        "<p onclick=\"x\">x</p>",
        "<p id=\"a\"></p><p id=\"a\"></p>",
        "<p title=x>x</p>",
        "<p>a > b</p>",
        "<img src=\"x\"/>",
        "<style>a { background: url(http://x) }</style>",
        "<path d=\"M NaN\"/>",
    ];
    for fault in faults {
        let page = page(fault);
        assert!(std::panic::catch_unwind(|| check(&page)).is_err(), "{fault}");
    }
}
