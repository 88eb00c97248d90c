//! Heads: parsed, and written as they were spelled.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
    request, response,
};
use httparse::Status;
use hyper::ext::ReasonPhrase;

use super::{Error, decode::Decoder, encode::Encoder};

/// The longest URI that is taken.
const LONGEST_URI: usize = u16::MAX as usize - 1;

/// Headers that there is room for without asking for memory.
const USUAL: usize = 100;

/// How the names of a head were spelled, line by line.
#[derive(Clone)]
struct Spelling(Vec<Bytes>);

/// A request's head, and what it says of the connection.
pub(super) struct RequestHead {
    pub(super) parts: request::Parts,
    pub(super) decoder: Decoder,
    /// Bytes of it.
    pub(super) length: usize,
    pub(super) keeps_alive: bool,
    /// The client waits for a 100.
    pub(super) expects: bool,
    pub(super) may_upgrade: bool,
}

/// A response's head, and what it says of the connection.
pub(super) struct ResponseHead {
    pub(super) parts: response::Parts,
    /// How its body ends; absent for a 1xx, which has none and is not the last.
    pub(super) decoder: Option<Decoder>,
    pub(super) length: usize,
    pub(super) keeps_alive: bool,
}

/// Why a request's head is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Bad,
    UriTooLong,
    TooLarge,
}

impl Refusal {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::Bad => StatusCode::BAD_REQUEST,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

/// Whether there may be a whole head: its end has come among the bytes since `seen`.
pub(super) fn may_be_whole(input: &[u8], seen: usize) -> bool {
    let fresh = input.get(seen.saturating_sub(3)..).unwrap_or_default();
    memchr::memchr_iter(b'\n', fresh).any(|at| {
        let rest = fresh.get(at + 1..).unwrap_or_default();
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    })
}

/// A request's head; absent while it is not whole.
pub(super) fn request(input: &Bytes, most_headers: usize, most: usize) -> Result<Option<RequestHead>, Refusal> {
    let mut usual = [const { MaybeUninit::uninit() }; USUAL];
    let mut many = Vec::new();
    let room = room(&mut usual, &mut many, most_headers);
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(input, room) {
        Ok(Status::Complete(length)) if length <= most => length,
        Ok(Status::Partial) if input.len() < most => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
        Err(_) => return Err(Refusal::Bad),
    };
    let (Some(method), Some(path), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Refusal::Bad);
    };
    if path.len() > LONGEST_URI {
        return Err(Refusal::UriTooLong);
    }
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::from_bytes(method.as_bytes()).map_err(|_| Refusal::Bad)?;
    parts.uri = Uri::from_maybe_shared(input.slice_ref(path.as_bytes())).map_err(|_| Refusal::Bad)?;
    let is_11 = version == 1;
    parts.version = if is_11 { Version::HTTP_11 } else { Version::HTTP_10 };
    let (headers, spelling) = headers(input, parsed.headers).map_err(|()| Refusal::Bad)?;
    parts.headers = headers;

    let (mut decoder, mut keeps_alive) = (Decoder::Done, keeps_alive(&parts.headers, is_11));
    // RFC 9112 §6.3. Whatever two servers could read in two ways is refused, a length that is none also where chunks count.
    let body_length = if parts.headers.contains_key(CONTENT_LENGTH) {
        Some(length_of(&parts.headers).ok_or(Refusal::Bad)?)
    } else {
        None
    };
    if parts.headers.contains_key(TRANSFER_ENCODING) {
        if !is_11 || !ends_chunked(&parts.headers) {
            return Err(Refusal::Bad);
        }
        decoder = Decoder::chunked(most_headers);
        if parts.headers.remove(CONTENT_LENGTH).is_some() {
            // A smuggler's tool: chunked wins, and nobody can tell where the next request would begin.
            keeps_alive = false;
        }
    } else if let Some(body_length) = body_length {
        decoder = Decoder::length(body_length);
        said_once(&mut parts.headers);
    }
    let expects = expects_continue(&parts.headers);
    let may_upgrade = is_11 && (parts.headers.contains_key(UPGRADE) || parts.method == Method::CONNECT);
    parts.extensions.insert(spelling);
    Ok(Some(RequestHead { parts, decoder, length, keeps_alive, expects, may_upgrade }))
}

/// A response's head, to a request with this method; absent while it is not whole.
pub(super) fn response(
    input: &Bytes,
    method: &Method,
    most_headers: usize,
    most: usize,
) -> Result<Option<ResponseHead>, Error> {
    let mut usual = [const { MaybeUninit::uninit() }; USUAL];
    let mut many = Vec::new();
    let room = room(&mut usual, &mut many, most_headers);
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, input, room) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if input.len() < most => return Ok(None),
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Error::Malformed("message head is too large"));
        }
        Err(httparse::Error::Version) => return Err(Error::Malformed("invalid HTTP version parsed")),
        Err(httparse::Error::Status) => return Err(Error::Malformed("invalid HTTP status-code parsed")),
        Err(_) => return Err(Error::Malformed("invalid HTTP header parsed")),
    };
    let (Some(code), Some(version)) = (parsed.code, parsed.version) else {
        return Err(Error::Malformed("invalid HTTP status-code parsed"));
    };
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = StatusCode::from_u16(code).map_err(|_| Error::Malformed("invalid HTTP status-code parsed"))?;
    let is_11 = version == 1;
    parts.version = if is_11 { Version::HTTP_11 } else { Version::HTTP_10 };
    if let Some(reason) = parsed.reason
        && parts.status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        parts.extensions.insert(reason);
    }
    let (headers, spelling) =
        headers(input, parsed.headers).map_err(|()| Error::Malformed("invalid HTTP header parsed"))?;
    parts.headers = headers;
    let decoder = ended_by(&parts, method, most_headers)?;
    let keeps_alive = keeps_alive(&parts.headers, is_11);
    parts.extensions.insert(spelling);
    Ok(Some(ResponseHead { parts, decoder, length, keeps_alive }))
}

/// RFC 9112 §6.3.
fn ended_by(parts: &response::Parts, method: &Method, most_headers: usize) -> Result<Option<Decoder>, Error> {
    Ok(Some(match parts.status.as_u16() {
        101 | 204 | 304 => Decoder::Done,
        100..=199 => return Ok(None),
        _ if *method == Method::HEAD => Decoder::Done,
        _ if parts.headers.contains_key(TRANSFER_ENCODING) => {
            if parts.version == Version::HTTP_10 {
                return Err(Error::Malformed("unexpected transfer-encoding parsed"));
            }
            if ends_chunked(&parts.headers) { Decoder::chunked(most_headers) } else { Decoder::UntilClose }
        }
        _ if parts.headers.contains_key(CONTENT_LENGTH) => {
            Decoder::length(length_of(&parts.headers).ok_or(Error::Malformed("invalid content-length parsed"))?)
        }
        _ => Decoder::UntilClose,
    }))
}

fn room<'a, 'b>(
    usual: &'a mut [MaybeUninit<httparse::Header<'b>>; USUAL],
    many: &'a mut Vec<MaybeUninit<httparse::Header<'b>>>,
    most: usize,
) -> &'a mut [MaybeUninit<httparse::Header<'b>>] {
    if let Some(room) = usual.get_mut(..most) {
        return room;
    }
    many.resize_with(most, MaybeUninit::uninit);
    many
}

fn headers(input: &Bytes, lines: &[httparse::Header<'_>]) -> Result<(HeaderMap, Spelling), ()> {
    let mut headers = HeaderMap::with_capacity(lines.len());
    let mut spelling = Vec::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(drop)?;
        let value = if line.value.is_empty() {
            HeaderValue::from_static("")
        } else {
            HeaderValue::from_maybe_shared(input.slice_ref(line.value)).map_err(drop)?
        };
        headers.append(name, value);
        spelling.push(input.slice_ref(line.name.as_bytes()));
    }
    Ok((headers, Spelling(spelling)))
}

/// The words of a header that is a list (RFC 9110 §5.6.1), of all its lines.
pub fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// Whether a request waits for a 100 before it sends its body.
pub fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn keeps_alive(headers: &HeaderMap, is_11: bool) -> bool {
    let says = |word: &str| tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case(word));
    !says("close") && (is_11 || says("keep-alive"))
}

/// The last transfer coding is `chunked`. What can't be read is none.
fn ends_chunked(headers: &HeaderMap) -> bool {
    let last = headers.get_all(TRANSFER_ENCODING).iter().next_back().and_then(|value| value.to_str().ok());
    let coding = last.and_then(|value| value.rsplit(',').next());
    coding.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
}

/// The length that all `Content-Length`s agree on.
fn length_of(headers: &HeaderMap) -> Option<u64> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.as_bytes();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let one: u64 = value.to_str().ok()?.parse().ok()?;
        if length.is_some_and(|length| length != one) || one == u64::MAX {
            return None;
        }
        length = Some(one);
    }
    length
}

/// Of several lengths that are alike one is enough.
fn said_once(headers: &mut HeaderMap) {
    if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some()
        && let Some(first) = headers.get(CONTENT_LENGTH).cloned()
    {
        headers.insert(CONTENT_LENGTH, first);
    }
}

/// Writes lines of headers, each name as it was spelled where its message came from.
struct Lines<'a> {
    out: &'a mut Vec<u8>,
    spelling: &'a [Bytes],
    /// What stands before an empty value.
    bare: &'static [u8],
    /// Where the newest name stood first, and last.
    first: usize,
    last: usize,
}

impl<'a> Lines<'a> {
    fn new(out: &'a mut Vec<u8>, extensions: &'a http::Extensions, bare: &'static [u8]) -> Self {
        let spelling = extensions.get::<Spelling>().map_or(&[][..], |spelling| &spelling.0);
        Self { out, spelling, bare, first: 0, last: 0 }
    }

    const fn colon(&self, value: &[u8]) -> &'static [u8] {
        if value.is_empty() { self.bare } else { b": " }
    }

    /// A line. `again`: the line before had the same name.
    fn line(&mut self, name: &HeaderName, again: bool, value: &[u8]) {
        let name = name.as_str().as_bytes();
        let from = if again { self.last } else { self.first };
        // Names mostly come in the order they stood in; one that was moved is found from the beginning.
        let rest = self.spelling.iter().enumerate().skip(from);
        let mut all = rest.chain(self.spelling.iter().enumerate().take(if again { 0 } else { from }));
        match all.find(|(_, spelled)| spelled.eq_ignore_ascii_case(name)) {
            Some((at, spelled)) => {
                self.out.extend_from_slice(spelled);
                self.last = at + 1;
                if !again {
                    self.first = at + 1;
                }
            }
            None => self.out.extend_from_slice(name),
        }
        self.out.extend_from_slice(self.colon(value));
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// What is known of a body before it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    /// There is none.
    None,
    Known(u64),
    Unknown,
}

impl Size {
    pub(super) fn of(body: &impl http_body::Body) -> Self {
        match body.size_hint().exact() {
            _ if body.is_end_stream() => Self::None,
            Some(size) => Self::Known(size),
            None => Self::Unknown,
        }
    }
}

/// Writes a request's head; how its body is framed.
pub(super) fn write_request(out: &mut Vec<u8>, parts: &request::Parts, size: Size) -> Encoder {
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(parts.uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let headers = &parts.headers;
    let is_chunked = headers.contains_key(TRANSFER_ENCODING) && size != Size::None;
    let length = length_of(headers).filter(|_| !is_chunked);
    let mut lines = Lines::new(out, &parts.extensions, b":");
    let mut names = Names::default();
    for (name, value) in headers {
        let again = names.again(name);
        let is_left_out = (*name == CONTENT_LENGTH && is_chunked) || (*name == TRANSFER_ENCODING && !is_chunked);
        if !is_left_out {
            lines.line(name, again, value.as_bytes());
        }
    }
    let encoder = match (size, length) {
        (Size::None, _) => Encoder::Nothing,
        _ if is_chunked => Encoder::Chunked(announced(headers)),
        (_, Some(length)) => Encoder::Length(length),
        (Size::Known(length), None) => {
            lines.line(&CONTENT_LENGTH, false, length.to_string().as_bytes());
            Encoder::Length(length)
        }
        (Size::Unknown, None) => {
            lines.line(&TRANSFER_ENCODING, false, b"chunked");
            Encoder::Chunked(announced(headers))
        }
    };
    out.extend_from_slice(b"\r\n");
    encoder
}

/// Whom a response answers.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) is_11: bool,
    pub(super) keeps_alive: bool,
    pub(super) takes_trailers: bool,
}

impl Asked {
    pub(super) fn by(head: &RequestHead) -> Self {
        Self {
            method: head.parts.method.clone(),
            is_11: head.parts.version == Version::HTTP_11,
            keeps_alive: head.keeps_alive,
            takes_trailers: tokens(&head.parts.headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers")),
        }
    }

    fn announced(&self, headers: &HeaderMap) -> Vec<HeaderName> {
        if self.takes_trailers { announced(headers) } else { Vec::new() }
    }
}

/// Writes a response's head; how its body is framed, and whether the connection lives on.
pub(super) fn write_response(out: &mut Vec<u8>, parts: &response::Parts, size: Size, asked: &Asked) -> (Encoder, bool) {
    let headers = &parts.headers;
    let (status, is_11) = (parts.status, asked.is_11);
    out.extend_from_slice(if is_11 { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    match parts.extensions.get::<ReasonPhrase>() {
        Some(reason) => out.extend_from_slice(reason.as_bytes()),
        // There must be one, many parsers expect it.
        None => out.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes()),
    }
    out.extend_from_slice(b"\r\n");

    let is_switch = status == StatusCode::SWITCHING_PROTOCOLS;
    let has_no_length = is_switch || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let has_no_body = has_no_length || asked.method == Method::HEAD;
    let can_chunk = is_11 && !has_no_body;
    let mut is_last =
        !asked.keeps_alive || is_switch || tokens(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("close"));
    let length = length_of(headers);
    let is_chunked = can_chunk && headers.contains_key(TRANSFER_ENCODING);
    let says_connection = headers.contains_key(CONNECTION);

    let mut lines = Lines::new(out, &parts.extensions, b": ");
    let mut names = Names::default();
    for (name, value) in headers {
        let again = names.again(name);
        // Said once. Without a body its length may be told all the same: of the answer to a HEAD, of a 304.
        let has_no_place = (*name == CONTENT_LENGTH && (again || is_chunked || status == StatusCode::NO_CONTENT))
            || (*name == TRANSFER_ENCODING && !is_chunked)
            || (*name == TRAILER && !can_chunk);
        if !has_no_place {
            lines.line(name, again, value.as_bytes());
        }
    }
    if is_chunked && !ends_chunked(headers) {
        lines.line(&TRANSFER_ENCODING, true, b"chunked");
    }
    let (encoder, adds) = match (size, length) {
        _ if is_chunked => (Encoder::Chunked(asked.announced(headers)), Adds::Nothing),
        (Size::None | Size::Known(0), None) if has_no_body => (Encoder::Nothing, Adds::Nothing),
        (Size::None | Size::Known(0), None) => (Encoder::Nothing, Adds::Length(0)),
        (_, Some(length)) => (Encoder::Length(length), Adds::Nothing),
        (Size::Known(length), None) if has_no_length => (Encoder::Length(length), Adds::Nothing),
        (Size::Known(length), None) => (Encoder::Length(length), Adds::Length(length)),
        (Size::Unknown, None) if can_chunk => (Encoder::Chunked(asked.announced(headers)), Adds::Chunks),
        (Size::Unknown, None) => (Encoder::UntilClose, Adds::Nothing),
    };
    let encoder = if has_no_body { Encoder::Nothing } else { encoder };
    is_last |= matches!(encoder, Encoder::UntilClose);
    if !says_connection && !is_switch {
        // RFC 9112 §9.3: what each version does not do unless told.
        match (is_11, is_last) {
            (true, true) => lines.line(&CONNECTION, false, b"close"),
            (false, false) => lines.line(&CONNECTION, false, b"keep-alive"),
            _ => {}
        }
    }
    match adds {
        Adds::Nothing => {}
        Adds::Length(length) => lines.line(&CONTENT_LENGTH, false, length.to_string().as_bytes()),
        Adds::Chunks => lines.line(&TRANSFER_ENCODING, false, b"chunked"),
    }
    out.extend_from_slice(b"\r\n");
    (encoder, !is_last)
}

/// The line about framing that a head lacks.
enum Adds {
    Nothing,
    Length(u64),
    Chunks,
}

/// The trailers that a head announces.
fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    if !headers.contains_key(TRAILER) {
        return Vec::new();
    }
    tokens(headers, &TRAILER).filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect()
}

/// Tells a name's first line from its others.
#[derive(Default)]
struct Names<'a>(Option<&'a HeaderName>);

impl<'a> Names<'a> {
    fn again(&mut self, name: &'a HeaderName) -> bool {
        self.0.replace(name) == Some(name)
    }
}
