//! The report as one page that needs nothing else: no script, no font, no picture from elsewhere.

use std::fmt::Write as _;

use super::{
    plot::escape,
    plots::{Figure, figures},
    rows::Log,
    tables::{Section, Table},
    tally::Report,
    text::about,
};

const STYLE: &str = include_str!("page.css");

/// Rows beyond which a table is folded up.
const LONG: usize = 30;

/// Hatchings, so that colour is not all that tells parts of a bar apart.
const PATTERNS: &str = r#"<svg class="patterns" aria-hidden="true"><defs>
<pattern id="dense" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V5"/></pattern>
<pattern id="wide" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path class="hatch" d="M0 0V9"/></pattern>
<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse"><path class="hatch" d="M1 2h2M4 5h2"/></pattern>
</defs></svg>"#;

/// The page.
pub(super) fn render(log: &Log, report: &Report, sections: &[Section]) -> String {
    let figures = figures(log, report);
    let mut page = String::with_capacity(256 * 1024);
    // Formatting into a string does not fail, here and below.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>streamgauge report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{PATTERNS}\n"
    );
    push_header(&mut page, report, sections);
    page.push_str("<main>\n");
    for section in sections {
        push_section(&mut page, section, figures.iter().filter(|figure| figure.section == section.id));
    }
    if sections.is_empty() {
        page.push_str("<p>There is nothing to show.</p>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn push_header(page: &mut String, report: &Report, sections: &[Section]) {
    page.push_str("<header>\n<h1>streamgauge report</h1>\n<ul class=\"about\">\n");
    for line in about(&report.scope) {
        let _ = writeln!(page, "<li>{}</li>", escape(line.trim()));
    }
    let _ = writeln!(page, "<li>made by version {}</li>\n</ul>", escape(report.streamgauge));
    let _ = write!(
        page,
        "<details open><summary>How to read this</summary>\n<ul>\n\
         <li>Beside each number stands n, how many requests it is made of. Percentiles are of nearest rank: each is a value that \
         was there. p90 is given from 10 values on, p99 from 100.</li>\n\
         <li>Every number lies between two marks; its column's meaning is under each table, and appears when the name is \
         pointed at.</li>\n\
         <li>– means that nothing was observed. It is not zero.</li>\n\
         <li>Dashed lines at 300 ms, 600 ms and 1 s: below the first a reply feels instant, below the second it is fine, up \
         to the third it is noticed.</li>\n\
         <li>{} Hours are UTC.</li>\n</ul>\n</details>\n<nav aria-label=\"Sections\"><ul>\n",
        report.either(
            "Times are those of the gauge, which stands between client and provider.",
            "Times are those of bench, which is the client itself."
        )
    );
    for section in sections {
        let _ = writeln!(page, "<li><a href=\"#{}\">{}</a></li>", section.id, escape(section.title));
    }
    page.push_str("</ul></nav>\n</header>\n");
}

fn push_section<'a>(page: &mut String, section: &Section, figures: impl Iterator<Item = &'a Figure>) {
    let _ = write!(
        page,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n",
        section.id,
        escape(section.title),
        escape(section.note)
    );
    let long = |table: &&Table| table.rows.len() > LONG;
    for table in section.tables.iter().filter(|table| !table.rows.is_empty() && !long(table)) {
        push_table(page, table, section.title);
    }
    if !section.below.is_empty() {
        page.push_str("<ul class=\"below\">\n");
        for line in &section.below {
            let _ = writeln!(page, "<li>{}</li>", escape(line));
        }
        page.push_str("</ul>\n");
    }
    let mut figures = figures.peekable();
    if figures.peek().is_some() {
        page.push_str("<div class=\"figures\">\n");
        for figure in figures {
            push_figure(page, figure);
        }
        page.push_str("</div>\n");
    }
    // Who wants them opens them.
    for table in section.tables.iter().filter(long) {
        let _ = writeln!(page, "<details class=\"long\"><summary>Table of {} rows</summary>", table.rows.len());
        push_table(page, table, section.title);
        page.push_str("</details>\n");
    }
    page.push_str("</section>\n");
}

fn push_figure(page: &mut String, figure: &Figure) {
    let _ = write!(
        page,
        "<figure>\n<figcaption>{}</figcaption>\n{}\n<ul class=\"legend\">",
        escape(&figure.title),
        figure.svg
    );
    for key in &figure.legend {
        let _ = write!(page, "<li>{key}</li>");
    }
    let _ = writeln!(page, "</ul>\n<p class=\"note\">{}</p>\n</figure>", escape(&figure.note));
}

/// In a box of its own that can be scrolled, by keys too: a wide table must not make the page wide.
fn push_table(page: &mut String, table: &Table, title: &str) {
    let _ = writeln!(
        page,
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Table: {}\">\n<table>\n<thead><tr>",
        escape(title)
    );
    let numbers = |column: usize| if column < table.texts { "" } else { " class=\"number\"" };
    for (column, head) in table.head.iter().enumerate() {
        let _ =
            write!(page, "<th scope=\"col\"{} title=\"{}\">{}</th>", numbers(column), escape(head.1), escape(head.0));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        // A row that goes on with the one above has no name of its own.
        page.push_str(if row.first().is_some_and(String::is_empty) { "<tr class=\"on\">" } else { "<tr>" });
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(page, "<td{}>{}</td>", numbers(column), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
    if table.left_out > 0 {
        let _ = writeln!(
            page,
            "<p class=\"note\">… and {} more rows: <code>--format json</code> has all.</p>",
            table.left_out
        );
    }
    page.push_str("<details class=\"meanings\"><summary>What the columns mean</summary><dl>");
    for head in &table.head {
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(head.0), escape(head.1));
    }
    page.push_str("</dl></details>\n");
}
