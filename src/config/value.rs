//! Single values from text. Each function says in its `Err` what to write instead.

use std::{
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use http::{HeaderName, Uri, uri::Authority};
use rustls_pki_types::ServerName;

use super::error::suggest;

/// The longest duration anywhere: far above any sensible limit, far below what overflows a timer.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// An upstream's URL, taken apart.
#[derive(Debug)]
pub(super) struct Url {
    pub(super) tls: bool,
    pub(super) authority: Authority,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) base_path: String,
}

/// `IP:PORT`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let hint = match text.rsplit_once(':') {
            Some(("", port)) => format!("; every interface is `0.0.0.0:{port}` or `[::]:{port}`"),
            Some((host, port)) if host.eq_ignore_ascii_case("localhost") => format!("; write `127.0.0.1:{port}`"),
            _ => String::new(),
        };
        format!("an address is IP:PORT, such as `127.0.0.1:8080` or `[::1]:8080`{hint}")
    })
}

/// A duration with its unit, above zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.') && !text.trim().is_empty() {
        return Err(needs_unit(text.trim()));
    }
    match humantime::parse_duration(text) {
        Err(error) => Err(format!("not a duration ({error}); write it like \"300ms\", \"15s\" or \"15min\"")),
        Ok(Duration::ZERO) => Err("must be more than zero".to_owned()),
        Ok(duration) if duration > LONGEST => Err("must be at most 30 days".to_owned()),
        Ok(duration) => Ok(duration),
    }
}

pub(super) fn needs_unit(number: &str) -> String {
    format!("a duration needs a unit: write \"{number}s\" or \"{number}ms\"")
}

/// A size with its unit: `64KiB`, `1MiB`; decimal units too.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let hint = "a size is a number of bytes, or a string like \"64KiB\", \"10MiB\" or \"1GiB\"";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(hint.to_owned()),
    };
    text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(|| hint.to_owned())
}

/// `http://host[:port][/base/path]`, nothing else in it.
pub(super) fn url(text: &str) -> Result<Url, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err("a URL starts with `http://` or `https://`".to_owned());
    };
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        other => return Err(format!("a URL starts with `http://` or `https://`, not `{other}://`")),
    };
    if rest.contains('#') {
        return Err("a fragment (`#…`) is never sent: leave it out".to_owned());
    }
    if rest.contains('?') {
        return Err("a query (`?…`) can't be in an upstream's URL: each request brings its own".to_owned());
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("no user or password here: clients send their own keys, the gauge keeps none".to_owned());
    }
    let authority: Authority = authority.parse().map_err(|_| "the host can't be read".to_owned())?;
    let bracketed = authority.host();
    let host = host_name(bracketed).ok_or_else(|| format!("`{bracketed}` is neither a host name nor an IP address"))?;
    let port = match &authority.as_str()[bracketed.len()..] {
        "" => {
            if tls {
                443
            } else {
                80
            }
        }
        written => match written[1..].parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("`{}` is no port: 1 to 65535", &written[1..])),
        },
    };
    let base_path = path.trim_end_matches('/');
    if !base_path.is_empty() {
        base_path.parse::<http::uri::PathAndQuery>().map_err(|e| format!("the path can't be read ({e})"))?;
    }
    let base_path = base_path.to_owned();
    Ok(Url { tls, authority, host, port, base_path })
}

/// A host without its brackets, in lower case. What is neither a DNS name nor an IP address could never be resolved,
/// nor be shown in a TLS handshake.
fn host_name(text: &str) -> Option<String> {
    if let Some(address) = text.strip_prefix('[') {
        return address.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(|address| address.to_string());
    }
    ServerName::try_from(text).ok().map(|_| text.to_ascii_lowercase())
}

/// A name that becomes a label value, and with several upstreams on the command line a path segment.
pub(super) fn name(text: &str) -> Result<&str, String> {
    let character = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if starts && text.len() <= 64 && text.bytes().all(character) {
        return Ok(text);
    }
    Err("a name has 1 to 64 characters of `a-z 0-9 . _ -` and starts with a letter or digit".to_owned())
}

/// A model that is known from the start: what may become a label value.
pub(super) fn model(text: &str) -> Result<String, String> {
    let printable = text.chars().all(|c| !c.is_control());
    match text {
        "_other" | "_none" => Err("this name is the gauge's own".to_owned()),
        _ if text.is_empty() || text.len() > 128 || !printable => {
            Err("a model's name has 1 to 128 printable bytes".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// A header's name, not one that carries keys.
pub(super) fn header(text: &str) -> Result<HeaderName, String> {
    let name: HeaderName = text.parse().map_err(|_| "not a header name".to_owned())?;
    match name.as_str() {
        "authorization" | "proxy-authorization" | "x-api-key" | "api-key" | "x-goog-api-key" | "cookie" => {
            Err("this header carries keys, and keys are never recorded".to_owned())
        }
        _ => Ok(name),
    }
}

/// The start of a path that a route matches; a slash at its end is dropped, so `/` is empty: every path.
pub(super) fn path_prefix(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(format!("a path starts with `/`: write \"/{text}\""));
    }
    if text.contains(['?', '#']) || text.parse::<Uri>().is_err() {
        return Err("a path prefix is a plain path: no query, no fragment, other characters percent-encoded".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A host that a route matches, in lower case.
pub(super) fn host(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err("wildcards are not supported: name each host".to_owned());
    }
    host_name(text).ok_or_else(|| "a host name or IP address, without scheme, port and path".to_owned())
}

/// A page's origin as browsers write it: scheme, host in lower case, and the port if it is not the scheme's own.
pub(super) fn origin(text: &str) -> Result<String, String> {
    if text == "*" {
        return Err("any page on the web could send then: name each origin, such as \"https://app.example\"".to_owned());
    }
    let url = url(text)?;
    let port = if url.tls { 443 } else { 80 };
    let (scheme, host) = (if url.tls { "https" } else { "http" }, url.authority.host().to_ascii_lowercase());
    let written =
        if url.port == port { format!("{scheme}://{host}") } else { format!("{scheme}://{host}:{}", url.port) };
    if url.base_path.is_empty() && !text.ends_with('/') {
        Ok(written)
    } else {
        Err(format!("an origin has no path: write \"{written}\""))
    }
}

/// A filter for the gauge's own log: a level, or `target=level`, several joined by commas.
pub(super) fn log_filter(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in text.split(',').map(str::trim) {
        // A bare word that is no level would be taken for a target and silently log everything of it.
        if !part.contains(['=', '[']) && !LEVELS.contains(&part.to_ascii_lowercase().as_str()) {
            return Err(format!("`{part}` is no log level: {}", suggest(part, &LEVELS)));
        }
    }
    tracing_subscriber::EnvFilter::builder()
        .parse(text)
        .map_err(|error| format!("{error}; write a level, or `target=level`, such as `info,streamgauge=debug`"))?;
    Ok(text.to_owned())
}

/// One of several words.
pub(super) fn one_of<T: Copy>(written: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let chosen = choices.iter().find(|(name, _)| *name == written).map(|(_, value)| *value);
    let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
    chosen.ok_or_else(|| format!("must be one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let plain = url("http://127.0.0.1:8000").unwrap();
        assert_eq!((plain.tls, plain.host.as_str(), plain.port), (false, "127.0.0.1", 8000));
        assert_eq!(plain.base_path, "");
        let base = url("HTTPS://API.Example.com/openai/v1//").unwrap();
        assert_eq!((base.tls, base.host.as_str(), base.port), (true, "api.example.com", 443));
        assert_eq!((base.base_path.as_str(), base.authority.as_str()), ("/openai/v1", "API.Example.com"));
        let six = url("https://[::1]:8443/").unwrap();
        assert_eq!((six.host.as_str(), six.port, six.authority.as_str()), ("::1", 8443, "[::1]:8443"));
    }

    #[test]
    fn urls_that_can_not_be_called_are_refused() {
        let bad = [
            "",
            "api.example.com",
            "ftp://h",
            "http://",
            "http:///v1",
            "http://u:p@h",
            "http://h?x",
            "http://h/#f",
            "http://h:0",
            "http://h:",
            "http://h:70000",
            "http://h:x",
            "http://[::1",
            "http://::1",
            "http://a b",
            "http://-",
            "http://h/ü x",
            "http://[v1.x]",
        ];
        for text in bad {
            assert!(url(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("1 MiB"), Ok(1 << 20));
        assert_eq!(size("10MB"), Ok(10_000_000));
        assert_eq!(size("17"), Ok(17));
        for text in ["", "KiB", "1.5MiB", "-1KiB", "64 kib", "99999999999999GiB"] {
            assert!(size(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(duration("15min"), Ok(Duration::from_secs(900)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("30").unwrap_err().contains("\"30s\""));
        for text in ["", "0s", "-1s", "31days", "5 minutos"] {
            assert!(duration(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn an_origin_is_as_browsers_write_it() {
        assert_eq!(origin("HTTPS://App.Example:443"), Ok("https://app.example".to_owned()));
        assert_eq!(origin("http://localhost:3000"), Ok("http://localhost:3000".to_owned()));
        assert_eq!(origin("http://[::1]:80"), Ok("http://[::1]".to_owned()));
        assert!(origin("https://app.example/").unwrap_err().contains("\"https://app.example\""));
        for text in ["*", "null", "app.example", "https://*.example", "https://a.example/x"] {
            assert!(origin(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_prefix_is_a_path() {
        assert_eq!(path_prefix("/openai/"), Ok("/openai".to_owned()));
        assert_eq!(path_prefix("/"), Ok(String::new()));
        assert_eq!(path_prefix("/a%20b"), Ok("/a%20b".to_owned()));
        for text in ["", "openai", "/a b", "/a?x", "/a#x", "*"] {
            assert!(path_prefix(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_log_level_with_a_typo_is_refused() {
        assert!(log_filter("info,streamgauge=debug").is_ok());
        assert!(log_filter("inof").unwrap_err().contains("`info`"));
        assert!(log_filter("streamgauge=loud").is_err());
    }
}
