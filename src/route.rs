//! Which upstream a request goes to, and with which path.
//!
//! Routes are tried in the order of the configuration and the first that matches wins; the default comes last. A path
//! is compared as it was sent, byte by byte: nothing is decoded, no slashes are folded, no dots resolved, so that what
//! the upstream gets is what the client wrote.

use http::{Uri, header::HOST, request::Parts, uri::PathAndQuery};

use crate::config::{Config, Matches, Route};

/// The routes of a configuration.
#[derive(Clone, Debug)]
pub struct RouteTable {
    routes: Vec<Route>,
}

impl RouteTable {
    /// The table of this configuration.
    pub fn new(config: &Config) -> Self {
        Self { routes: config.routes.clone() }
    }

    /// The first route that matches; absent if none does. What the caller keeps per upstream it finds by
    /// [`Route::upstream_index`].
    pub fn find(&self, request: &Parts) -> Option<&Route> {
        let path = request.uri.path();
        self.routes.iter().find(|route| match &route.matches {
            Matches::PathPrefix(prefix) => after_prefix(path, prefix).is_some(),
            Matches::Host(wanted) => host(request).is_some_and(|host| host.eq_ignore_ascii_case(wanted)),
            Matches::Default => true,
        })
    }
}

/// The path and query to ask the upstream for: the route's prefix taken off, if it says so, then the base path of the
/// upstream's URL put before what is left, which is at least `/`. So with the URL `https://host/openai/v1`, a request
/// for `/chat?x=1` asks for `/openai/v1/chat?x=1`. `*` (of `OPTIONS *`) stays as it is; of an absolute URI its path
/// and query count.
///
/// Absent if the outcome is longer than a URI can be (65,534 bytes).
pub fn upstream_path(route: &Route, target: &Uri) -> Option<PathAndQuery> {
    let path = target.path();
    if path == "*" {
        return Some(PathAndQuery::from_static("*"));
    }
    let rest = match &route.matches {
        Matches::PathPrefix(prefix) if route.strip_prefix => after_prefix(path, prefix).unwrap_or(path),
        _ => path,
    };
    let base = &route.upstream.base_path;
    if base.is_empty() && rest.len() == path.len() && path.starts_with('/') {
        // Untouched is the usual case: a reference counts up, nothing is copied.
        return target.path_and_query().cloned();
    }
    let rest = if rest.is_empty() { "/" } else { rest };
    let outcome = match target.query() {
        Some(query) => format!("{base}{rest}?{query}"),
        None => format!("{base}{rest}"),
    };
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(outcome)).ok()
}

/// What follows `prefix` in `path`; absent if it doesn't start with it, or if it goes on within the segment.
fn after_prefix<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix).filter(|rest| rest.starts_with('/') || rest.is_empty())
}

/// The host a request is for, without port and brackets. The URI's authority (`:authority` in HTTP/2, an absolute URI
/// in HTTP/1.1) stands above the `Host` header, as RFC 9112 §3.2.2 has it.
fn host(request: &Parts) -> Option<&str> {
    let host = match request.uri.authority() {
        Some(authority) => authority.host(),
        None => without_port(request.headers.get(HOST)?.to_str().ok()?),
    };
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

fn without_port(host: &str) -> &str {
    match host.rfind(']') {
        Some(bracket) => &host[..=bracket],
        None => host.split(':').next().unwrap_or(host),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::Request;

    use super::*;
    use crate::config::Overrides;

    fn config(text: &str) -> Config {
        Config::from_toml(text, Path::new("test.toml"), &Overrides::default()).unwrap()
    }

    fn table(routes: &str) -> RouteTable {
        let upstreams =
            ["a", "b", "c"].map(|name| format!("[[upstreams]]\nname = \"{name}\"\nurl = \"http://{name}\"\n"));
        RouteTable::new(&config(&format!("{}{routes}", upstreams.concat())))
    }

    fn found(table: &RouteTable, uri: &str, host: Option<&str>) -> Option<String> {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        table.find(&parts).map(|route| {
            assert_eq!(route.upstream_index, usize::from(route.upstream.name.as_bytes()[0] - b'a'));
            route.upstream.name.to_string()
        })
    }

    fn path(url: &str, strip: Option<&str>, target: &str) -> Option<String> {
        let matching = match strip {
            Some(prefix) => format!("path_prefix = \"{prefix}\"\nstrip_prefix = true"),
            None => "default = true".to_owned(),
        };
        let text = format!("[[upstreams]]\nname = \"a\"\nurl = \"{url}\"\n[[routes]]\nupstream = \"a\"\n{matching}");
        let path = upstream_path(&config(&text).routes[0], &target.parse().unwrap());
        path.map(|path| path.to_string())
    }

    #[test]
    fn a_prefix_ends_at_a_segments_edge() {
        let table = table("[[routes]]\npath_prefix = \"/openai/\"\nupstream = \"b\"");
        for matching in ["/openai", "/openai/", "/openai/v1?x", "http://any:1/openai/v1", "/openai//v1"] {
            assert_eq!(found(&table, matching, None).as_deref(), Some("b"), "{matching}");
        }
        for other in ["/openai2", "/", "/OpenAI/v1", "/x/openai", "/open%61i/v1", "//openai", "*", "host:80"] {
            assert_eq!(found(&table, other, None), None, "{other}");
        }
    }

    #[test]
    fn routes_are_tried_in_order_and_the_default_last() {
        let table = table(
            "[[routes]]\ndefault = true\nupstream = \"c\"\n\
             [[routes]]\npath_prefix = \"/v1/chat\"\nupstream = \"a\"\n\
             [[routes]]\npath_prefix = \"/v1\"\nupstream = \"b\"",
        );
        assert_eq!(found(&table, "/v1/chat/completions", None).as_deref(), Some("a"));
        assert_eq!(found(&table, "/v1/models", None).as_deref(), Some("b"));
        assert_eq!(found(&table, "/", None).as_deref(), Some("c"));
        assert_eq!(found(&table, "*", None).as_deref(), Some("c"));
    }

    #[test]
    fn a_host_matches_without_port_and_case() {
        let table =
            table("[[routes]]\nhost = \"LLM.example\"\nupstream = \"a\"\n[[routes]]\nhost = \"::1\"\nupstream = \"b\"");
        for host in ["llm.example", "LLM.Example:8080"] {
            assert_eq!(found(&table, "/v1", Some(host)).as_deref(), Some("a"), "{host}");
        }
        for host in ["[::1]", "[::1]:8080"] {
            assert_eq!(found(&table, "/v1", Some(host)).as_deref(), Some("b"), "{host}");
        }
        for host in [None, Some("x.llm.example"), Some("llm.example.org"), Some("")] {
            assert_eq!(found(&table, "/v1", host), None, "{host:?}");
        }
    }

    #[test]
    fn the_uris_authority_stands_above_the_host_header() {
        let table = table("[[routes]]\nhost = \"llm.example\"\nupstream = \"a\"");
        assert_eq!(found(&table, "https://llm.example:443/v1", Some("other")).as_deref(), Some("a"));
        assert_eq!(found(&table, "https://other/v1", Some("llm.example")), None);
        assert_eq!(found(&table, "https://[::1]/v1", None), None);
    }

    #[test]
    fn without_prefix_and_base_the_path_stays_as_it_is() {
        for target in ["/", "/v1/chat", "//v1//chat/", "/a%2Fb%20c?x=%2F&y#", "/?", "/v1/../x", "*"] {
            let expected = target.trim_end_matches('#');
            assert_eq!(path("http://a/", None, target).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_base_path_comes_before_the_requests() {
        let base = "https://a/openai/v1/";
        assert_eq!(path(base, None, "/chat?x=1&y=/").as_deref(), Some("/openai/v1/chat?x=1&y=/"));
        assert_eq!(path(base, None, "//chat%2F").as_deref(), Some("/openai/v1//chat%2F"));
        assert_eq!(path(base, None, "/").as_deref(), Some("/openai/v1/"));
        assert_eq!(path(base, None, "/?").as_deref(), Some("/openai/v1/?"));
        assert_eq!(path(base, None, "*").as_deref(), Some("*"));
    }

    #[test]
    fn a_prefix_is_taken_off_before_the_base_path_is_put_on() {
        assert_eq!(path("http://a", Some("/openai"), "/openai/v1?x").as_deref(), Some("/v1?x"));
        assert_eq!(path("http://a", Some("/openai"), "/openai").as_deref(), Some("/"));
        assert_eq!(path("http://a", Some("/openai"), "/openai?x=/openai").as_deref(), Some("/?x=/openai"));
        assert_eq!(path("http://a", Some("/openai"), "/openai//v1").as_deref(), Some("//v1"));
        assert_eq!(path("http://a/b", Some("/openai"), "/openai/v1").as_deref(), Some("/b/v1"));
        assert_eq!(path("http://a/b", Some("/openai"), "/openai").as_deref(), Some("/b/"));
        assert_eq!(path("http://a", Some("/"), "/v1").as_deref(), Some("/v1"));
    }

    #[test]
    fn an_absolute_uri_gives_its_path_and_query() {
        assert_eq!(path("http://a", None, "http://other:1/v1?x").as_deref(), Some("/v1?x"));
        assert_eq!(path("http://a/b", None, "http://other/v1").as_deref(), Some("/b/v1"));
        assert_eq!(path("http://a", None, "http://other").as_deref(), Some("/"));
        assert_eq!(path("http://a", None, "http://other?x").as_deref(), Some("/?x"));
        assert_eq!(path("http://a/b", None, "http://other?x").as_deref(), Some("/b/?x"));
    }

    #[test]
    fn what_grows_too_long_is_absent() {
        let long = format!("/{}", "x".repeat(65_530));
        assert_eq!(path("http://a", None, &long).as_deref(), Some(long.as_str()));
        assert_eq!(path("http://a/base", None, &long), None);
    }
}
