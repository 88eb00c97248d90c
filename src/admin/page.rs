//! The live page's files, compiled in: one page, its look and its script, and nothing from elsewhere.

use http::{HeaderMap, HeaderValue, header};

use super::{aside::Answer, packed};

/// Where each is served, what it is, and what is in it.
const FILES: [(&str, &str, &str); 9] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/feed.js", SCRIPT, include_str!("page/feed.js")),
    ("/filter.js", SCRIPT, include_str!("page/filter.js")),
    ("/show.js", SCRIPT, include_str!("page/show.js")),
    ("/plot.js", SCRIPT, include_str!("page/plot.js")),
    ("/detail.js", SCRIPT, include_str!("page/detail.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Scripts and styles are the page's own files, nothing may be sent elsewhere, no other page may frame it, and text can't
/// become markup: the names it shows were chosen by strangers.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The file at this path; absent if there is none.
pub(super) fn file(path: &str, headers: &HeaderMap) -> Option<Answer> {
    let (_, kind, content) = FILES.iter().find(|(at, _, _)| *at == path)?;
    let mut answer = packed(headers, HeaderValue::from_static(kind), *content);
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A newer gauge has newer files.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept, accept-encoding"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Outcome, STAGES};

    #[test]
    fn the_page_brings_everything_it_names() {
        let words = FILES.iter().flat_map(|(_, _, content)| content.split(['"', '\'']));
        let named =
            words.filter(|word| !word.contains(' ') && [".css", ".js", ".svg"].iter().any(|end| word.ends_with(end)));
        let named: Vec<_> = named.map(|word| format!("/{}", word.trim_start_matches("./"))).collect();
        assert!(named.len() > FILES.len() - 2, "{named:?}");
        for path in named {
            assert!(file(&path, &HeaderMap::new()).is_some(), "{path}");
        }
        assert!(file("/page", &HeaderMap::new()).is_none());
    }

    #[test]
    fn it_knows_every_stage_and_outcome_and_has_the_reports_colours() {
        let content = |path: &str| FILES.iter().find(|(at, _, _)| *at == path).unwrap().2;
        for stage in STAGES {
            assert!(content("/show.js").contains(&format!("\n  {stage}: \"")), "{stage} is not explained");
        }
        for name in STAGES.iter().copied().chain(Outcome::ALL.map(Outcome::as_str)) {
            assert!(content("/show.js").contains(&format!("\"{name}\"")), "{name} is of no kind");
        }
        let colours = |sheet: &'static str| -> Vec<&str> {
            let lines = sheet.lines().map(str::trim);
            lines.filter(|line| ["--s0", "--f0", "--h0"].iter().any(|first| line.starts_with(first))).collect()
        };
        assert_eq!(colours(content("/page.css")), colours(include_str!("../report/page.css")));
    }

    #[test]
    fn no_text_can_become_markup_and_nothing_stands_inline() {
        for (path, _, content) in FILES {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "style=",
                "onclick",
                "http:",
            ] {
                // The namespace of drawings is a name, not an address.
                let found = content.replace("http://www.w3.org/2000/svg", "").contains(word);
                assert!(!found, "{path} has {word}");
            }
        }
    }
}
