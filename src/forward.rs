//! What is changed on the way, and nothing else is: hop-by-hop headers go, `Host` follows the upstream, and framing
//! follows the side's HTTP version. Also the gateway's own answers, marked as such.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, Version, header, request, response,
    uri::{PathAndQuery, Scheme},
};

use crate::{
    clock::{Nanos, Stamp},
    config::{Adds, Upstream},
    http1::{tokens, words},
    observation::{Observation, STAGES, push_decimal},
};

/// Marks an answer as the gateway's own; its value is the error's code.
pub const ERROR_HEADER: HeaderName = HeaderName::from_static("x-streamgauge-error");

/// The exchange's id, where a route adds it.
pub const ID_HEADER: HeaderName = HeaderName::from_static("x-streamgauge-id");

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const REQUEST_START: HeaderName = HeaderName::from_static("x-request-start");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Points a request at its upstream over a connection of this version. Doing it twice is the same as once, so a retry
/// may aim again.
pub fn aim(parts: &mut request::Parts, path: &PathAndQuery, upstream: &Upstream, version: Version) {
    let authority = if upstream.preserve_host { client_authority(parts) } else { None };
    let to_http2 = version == Version::HTTP_2;
    if !goes_on_whole(&parts.headers, !to_http2) {
        let hop = Hop {
            upgrade: is_upgrade(parts),
            to_http2,
            same_framing: parts.version == version && !to_http2,
            host: !to_http2,
        };
        parts.headers = end_to_end(&mut parts.headers, hop);
    }
    if to_http2 {
        let scheme = if upstream.tls { Scheme::HTTPS } else { Scheme::HTTP };
        let authority = authority.unwrap_or_else(|| upstream.authority.clone());
        if let Ok(uri) = Uri::builder().scheme(scheme).authority(authority).path_and_query(path.clone()).build() {
            parts.uri = uri;
        }
    } else {
        if let Ok(host) = HeaderValue::try_from(authority.as_ref().unwrap_or(&upstream.authority).as_str()) {
            set_host(&mut parts.headers, host);
        }
        if parts.version == Version::HTTP_2 {
            join_cookies(&mut parts.headers);
        }
        parts.uri = Uri::from(path.clone());
    }
    parts.version = version;
}

/// Makes an upstream's response head fit for a client of this version.
pub fn answer_head(parts: &mut response::Parts, client: Version) {
    if !goes_on_whole(&parts.headers, true) {
        let hop = Hop {
            upgrade: parts.status == StatusCode::SWITCHING_PROTOCOLS,
            to_http2: client == Version::HTTP_2,
            same_framing: parts.version != Version::HTTP_2 && client != Version::HTTP_2,
            host: true,
        };
        parts.headers = end_to_end(&mut parts.headers, hop);
    }
    // The library writes the version of the client's side.
    parts.version = if client == Version::HTTP_2 { Version::HTTP_2 } else { Version::HTTP_11 };
}

/// Whether a request asks to leave HTTP: `Upgrade`, named by `Connection`, on HTTP/1.1.
///
/// `h2c` alone does not: it is no end-to-end protocol but this hop's HTTP version, so it is left behind like any
/// hop-by-hop header. Passed on, it would carry every later exchange past routing and measuring.
pub fn is_upgrade(parts: &request::Parts) -> bool {
    parts.version == Version::HTTP_11
        && tokens(&parts.headers, &header::UPGRADE).any(|token| !token.eq_ignore_ascii_case("h2c"))
        && tokens(&parts.headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// Why a request is refused that the library took, but that two servers may read in two ways, which is the stuff of
/// attacks; absent for all others.
pub fn ambiguity(parts: &request::Parts) -> Option<&'static str> {
    let (mut hosts, mut chunked) = (0, 0);
    // One walk: each look-up of a name hashes it.
    for (name, value) in &parts.headers {
        if *name == header::HOST {
            hosts += 1;
        } else if *name == header::TRANSFER_ENCODING {
            chunked += words(value).filter(|coding| coding.eq_ignore_ascii_case("chunked")).count();
        }
    }
    if hosts > 1 {
        // RFC 9112 §3.2
        Some("the request names its host more than once")
    } else if chunked > 1 {
        // RFC 9112 §6.1. The library undoes one layer, and the header would promise the upstream another.
        Some("the request's body is chunked more than once")
    } else if parts.uri.path().is_empty() && parts.method != Method::CONNECT {
        // RFC 9112 §3.2.3: `GET host` has no path to ask for, and would be routed by a host that is none.
        Some("the request's target is no path")
    } else {
        None
    }
}

/// Whether the body has a transfer coding beside `chunked`. The library undoes the chunks only, and without its
/// header, which neither HTTP/2 nor HTTP/1.0 has, nobody could undo the rest.
pub fn is_coded(headers: &HeaderMap) -> bool {
    tokens(headers, &header::TRANSFER_ENCODING).any(|coding| !coding.eq_ignore_ascii_case("chunked"))
}

/// Frames a body of unknown length that has no framing yet: the library takes such a GET for one without a body.
pub fn frame_in_chunks(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONTENT_LENGTH) && !headers.contains_key(header::TRANSFER_ENCODING) {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Makes the length that a head says, if it says one, that of a body that was changed.
pub fn set_length(headers: &mut HeaderMap, length: u64) {
    if headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// An answer of the gateway's own, in the shape clients of these APIs know.
pub fn own_answer(status: StatusCode, code: &'static str, message: &str) -> (response::Parts, Bytes) {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "gateway_error" };
    let body = serde_json::json!({ "error": { "message": message, "type": kind, "code": code } }).to_string();
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    parts.headers.insert(ERROR_HEADER, HeaderValue::from_static(code));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        parts.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    (parts, Bytes::from(body))
}

/// Adds to an answer's headers what its route says, behind all that is there: nothing unless set. `until` is the arrival of
/// the answer's head, or of an answer of the gateway's own the moment it is given.
pub fn add(headers: &mut HeaderMap, adds: Adds, seen: &Observation, until: Stamp) {
    if adds.server_timing
        && let Some(timing) = server_timing(seen, until)
    {
        headers.append(SERVER_TIMING, timing);
    }
    if adds.exchange_id
        && let Ok(id) = HeaderValue::try_from(seen.id.to_string())
    {
        headers.append(ID_HEADER, id);
    }
}

/// The stages up to `until` that took any time, in milliseconds to the microsecond, as W3C Server Timing §4 writes them;
/// absent if none did. Names are those of [`STAGES`] behind `sg-`, so that none is a provider's own; of what follows the
/// request's departure only the wait for the head is known by then.
fn server_timing(seen: &Observation, until: Stamp) -> Option<HeaderValue> {
    let names = STAGES.map(|stage| if stage == "first_output_wait" { "head_wait" } else { stage });
    let mut line = String::new();
    for (name, span) in names.into_iter().zip(seen.stages_until(until)) {
        let micros = (span.0 + 500) / 1000;
        if micros > 0 {
            line.push_str(if line.is_empty() { "sg-" } else { ", sg-" });
            line.push_str(name);
            line.push_str(";dur=");
            push_decimal(&mut line, micros, 3);
        }
    }
    HeaderValue::try_from(line).ok().filter(|line| !line.is_empty())
}

/// What a client tells of its request beside HTTP.
#[derive(Clone, Default, Debug)]
pub struct Told {
    /// The trace id of a W3C `traceparent`; absent without one or if it is malformed.
    pub trace_id: Option<String>,
    /// From the instant in `X-Request-Start` to the one given; absent without the header, if it is no number, or if it lies in
    /// the future.
    pub client_sent: Option<Nanos>,
}

/// What a request's headers tell, as seen at `now`.
pub fn told(headers: &HeaderMap, now: SystemTime) -> Told {
    let (mut traceparent, mut start) = (None, None);
    // One walk: a look-up of each name hashes it. Of a name that came twice the first counts.
    for (name, value) in headers {
        if *name == TRACEPARENT {
            traceparent = traceparent.or(Some(value));
        } else if *name == REQUEST_START {
            start = start.or(Some(value));
        }
    }
    Told {
        trace_id: traceparent.and_then(|value| trace_id_of(value.to_str().ok()?)),
        client_sent: start.and_then(|value| client_sent(value.to_str().ok()?, now)),
    }
}

/// The trace id of a `traceparent`'s text, in lower case.
pub fn trace_id_of(traceparent: &str) -> Option<String> {
    let id = traceparent.split('-').nth(1)?;
    let valid = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) && id.bytes().any(|b| b != b'0');
    valid.then(|| id.to_ascii_lowercase())
}

/// From an instant (seconds, milli-, micro- or nanoseconds since 1970, `t=` allowed) to `now`.
fn client_sent(text: &str, now: SystemTime) -> Option<Nanos> {
    let text = text.trim();
    let text = text.strip_prefix("t=").unwrap_or(text).trim_start();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !whole.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // In integers: a float of nanoseconds since 1970 is a quarter of a microsecond off.
    let whole: u64 = whole.parse().ok()?;
    let billionths: u64 = format!("{fraction:0<9.9}").parse().ok()?;
    // Today is 1.8e9 s: the magnitude tells the unit for some thousand years either way.
    let nanos_each = match whole {
        ..100_000_000 => return None,
        100_000_000..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    let nanos = whole.checked_mul(nanos_each)?.checked_add(billionths * nanos_each / 1_000_000_000)?;
    now.duration_since(UNIX_EPOCH + std::time::Duration::from_nanos(nanos)).ok().map(Nanos::from)
}

/// The provider's own id of a request, from the response headers providers put it in: of several by the first of these names.
pub fn upstream_request_id(headers: &HeaderMap) -> Option<String> {
    let rank = |name: &HeaderName| {
        Some(match name.as_str() {
            "x-request-id" => 0,
            "request-id" => 1,
            "apim-request-id" => 2,
            "x-amzn-requestid" => 3,
            "mistral-correlation-id" => 4,
            "x-ds-trace-id" => 5,
            "x-debug-trace-id" => 6,
            "inference-id" => 7,
            "x-generation-id" => 8,
            _ => return None,
        })
    };
    // One walk: a look-up of each name hashes them all. Of a name that came twice the first is the smallest too.
    let (_, value) =
        headers.iter().filter_map(|(name, value)| Some((rank(name)?, value))).min_by_key(|(rank, _)| *rank)?;
    let value = value.to_str().ok()?;
    (value.len() <= 256).then(|| value.to_owned())
}

/// Whether the method is one that a reverse proxy has no meaning for.
pub fn is_refused(method: &Method) -> bool {
    method == Method::CONNECT
}

/// What the next hop is like.
#[derive(Clone, Copy)]
struct Hop {
    /// It leaves HTTP, or asks to.
    upgrade: bool,
    /// It speaks HTTP/2, which has no connection headers.
    to_http2: bool,
    /// Both sides frame by HTTP/1: the transfer coding keeps its spelling.
    same_framing: bool,
    /// `Host` goes on.
    host: bool,
}

/// Whether all headers go on, as those of most heads do, which need not be made anew.
fn goes_on_whole(headers: &HeaderMap, host: bool) -> bool {
    headers.keys().all(|name| !is_hop_by_hop(name) && (host || *name != header::HOST))
}

/// The headers that go on, in their order. Taking single ones out of a `HeaderMap` would move the last into the gap.
fn end_to_end(headers: &mut HeaderMap, hop: Hop) -> HeaderMap {
    let named: Vec<String> = tokens(headers, &header::CONNECTION).map(str::to_ascii_lowercase).collect();
    let chunked = headers.contains_key(header::TRANSFER_ENCODING);
    let mut trailers = tokens(headers, &header::TE).any(|te| te.eq_ignore_ascii_case("trailers"));
    let mut connection = connection(headers, hop, trailers);
    let mut kept = HeaderMap::with_capacity(headers.keys_len());
    let mut last: Option<HeaderName> = None;
    for (name, value) in headers.drain() {
        let name = match (name, &last) {
            (Some(name), _) => name,
            (None, Some(last)) => last.clone(),
            (None, None) => continue,
        };
        last = Some(name.clone());
        let value = if name == header::CONNECTION {
            connection.take()
        } else if name == header::UPGRADE {
            hop.upgrade.then_some(value)
        } else if name == header::TE {
            // Hop-by-hop, but without it no trailer may be sent; made anew for our own hop.
            std::mem::take(&mut trailers).then(|| HeaderValue::from_static("trailers"))
        } else if name == header::TRANSFER_ENCODING {
            // The library frames each side anew; with the same framing on both it keeps this spelling.
            hop.same_framing.then_some(value)
        } else if (name == header::CONTENT_LENGTH && chunked)
            || (name == header::HOST && !hop.host)
            || is_hop_by_hop(&name)
            || named.iter().any(|token| token == name.as_str())
        {
            // Left behind. (A length beside chunked framing is a smuggler's tool: chunked wins, RFC 9112 §6.3.)
            None
        } else {
            Some(value)
        };
        if let Some(value) = value {
            kept.append(name, value);
        }
    }
    kept
}

/// What is left of `Connection`: the options that the next hop must see beside the headers they stand for.
fn connection(headers: &HeaderMap, hop: Hop, trailers: bool) -> Option<HeaderValue> {
    let goes_on = |token: &&str| {
        (hop.upgrade && token.eq_ignore_ascii_case("upgrade")) || (trailers && token.eq_ignore_ascii_case("te"))
    };
    let left: Vec<&str> = tokens(headers, &header::CONNECTION).filter(goes_on).collect();
    if hop.to_http2 || left.is_empty() { None } else { HeaderValue::try_from(left.join(", ")).ok() }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
        || *name == header::UPGRADE
        || *name == header::TE
        || *name == header::TRANSFER_ENCODING
}

/// The host a client asked for. Its URI stands above its `Host` header (RFC 9112 §3.2.2), as it does for routing.
fn client_authority(parts: &request::Parts) -> Option<http::uri::Authority> {
    let authority = parts.uri.authority().cloned();
    let authority = authority.or_else(|| {
        parts.headers.get(header::HOST).and_then(|host| http::uri::Authority::try_from(host.as_bytes()).ok())
    });
    // A user part is a secret, and no part of `Host`.
    authority.filter(|authority| !authority.as_str().contains('@'))
}

/// HTTP/1.1 wants `Host`, and clients of HTTP/2 send none; servers expect it first (RFC 9110 §7.2).
fn set_host(headers: &mut HeaderMap, host: HeaderValue) {
    if let Some((_, value)) = headers.iter_mut().find(|(name, _)| **name == header::HOST) {
        *value = host;
        return;
    }
    let mut all = HeaderMap::with_capacity(headers.keys_len() + 1);
    all.insert(header::HOST, host);
    let mut last: Option<HeaderName> = None;
    for (name, value) in headers.drain() {
        if let Some(name) = name.or_else(|| last.clone()) {
            all.append(name.clone(), value);
            last = Some(name);
        }
    }
    *headers = all;
}

/// HTTP/2 may split `Cookie`; HTTP/1.1 wants one (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (cookies.next(), cookies.next()) else { return };
    let crumbs: Vec<&[u8]> = [first, second].into_iter().chain(cookies).map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 1.5 s before this, by the header's text.
    const NOW: Duration = Duration::from_nanos(1_790_000_001_623_456_789);

    fn sent(text: &str) -> Option<Nanos> {
        let mut headers = HeaderMap::new();
        headers.insert("x-request-start", HeaderValue::from_str(text).unwrap());
        told(&headers, UNIX_EPOCH + NOW).client_sent
    }

    #[test]
    fn the_clients_start_is_read_in_every_unit_with_or_without_its_prefix() {
        let exact = Some(Nanos(1_500_000_000));
        for text in ["1790000000.123456789", "1790000000123.456789", "1790000000123456.789", "1790000000123456789"] {
            assert_eq!(sent(text), exact, "{text}");
            assert_eq!(sent(&format!("t={text}")), exact, "t={text}");
            assert_eq!(sent(&format!(" t= {text} ")), exact, "{text} in spaces");
        }
        assert_eq!(sent("t=1790000000.123"), Some(Nanos(1_500_456_789)), "as nginx writes it");
        assert_eq!(sent("1790000000123"), Some(Nanos(1_500_456_789)), "milliseconds");
        assert_eq!(sent("1790000000123456"), Some(Nanos(1_500_000_789)), "microseconds");
        assert_eq!(sent("1790000001"), Some(Nanos(623_456_789)));
        assert_eq!(sent("1790000001.623456789"), Some(Nanos::ZERO), "just now");
        assert_eq!(sent("1790000000.1234567890000000000000000001"), exact, "digits beyond a nanosecond");
    }

    #[test]
    fn a_start_that_is_none_or_in_the_future_is_absent() {
        let texts = [
            "",
            "t=",
            "soon",
            "t=-1790000000",
            "1.79e9",
            "inf",
            "nan",
            "+1790000000",
            "1790000000.x",
            "1,790,000,000",
            "12",
            "99999999",
            "1790000002",
            "1790000001.623456790",
            "t=1790000001624",
            "99999999999999999999999",
            "18446744073709551615",
        ];
        for text in texts {
            assert_eq!(sent(text), None, "{text}");
        }
        assert_eq!(told(&HeaderMap::new(), UNIX_EPOCH + NOW).client_sent, None);
    }

    #[test]
    fn a_trace_id_is_32_digits_that_are_not_all_zero() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_id_of(&format!("00-{}-b7ad6b7169203331-01", id.to_uppercase())).as_deref(), Some(id));
        for text in ["", id, "00-abc-b7ad6b7169203331-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert_eq!(trace_id_of(text), None, "{text}");
        }
    }
}
