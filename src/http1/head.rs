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

use super::{Error, decode::Decoder, encode::Encoder, names::name as known};

/// The longest URI that is taken.
const LONGEST_URI: usize = u16::MAX as usize - 1;

/// Headers that there is room for without asking for memory.
const USUAL: usize = 100;

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
    pub(super) takes_trailers: bool,
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
    parts.headers = headers(input, parsed.headers).map_err(|()| Refusal::Bad)?;
    let says = Says::of(&parts.headers);

    let (mut decoder, mut keeps_alive) = (Decoder::Done, says.keeps_alive(is_11));
    // RFC 9112 §6.3. Whatever two servers could read in two ways is refused, a length that is none also where chunks count.
    let body_length = says.length.map_err(|()| Refusal::Bad)?;
    if says.has_coding {
        if !is_11 || !says.ends_chunked {
            return Err(Refusal::Bad);
        }
        decoder = Decoder::chunked(most_headers);
        if parts.headers.remove(CONTENT_LENGTH).is_some() {
            // A smuggler's tool: chunked wins, and nobody can tell where the next request would begin.
            keeps_alive = false;
        }
    } else if let Some(body_length) = body_length {
        decoder = Decoder::length(body_length);
        if says.lengths > 1 {
            said_once(&mut parts.headers);
        }
    }
    let (expects, takes_trailers) = (says.expects, says.takes_trailers);
    let may_upgrade = is_11 && (says.has_upgrade || parts.method == Method::CONNECT);
    Ok(Some(RequestHead { parts, decoder, length, keeps_alive, expects, may_upgrade, takes_trailers }))
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
    parts.headers = headers(input, parsed.headers).map_err(|()| Error::Malformed("invalid HTTP header parsed"))?;
    let says = Says::of(&parts.headers);
    let decoder = ended_by(&parts, says, method, most_headers)?;
    let keeps_alive = says.keeps_alive(is_11);
    Ok(Some(ResponseHead { parts, decoder, length, keeps_alive }))
}

/// RFC 9112 §6.3.
fn ended_by(
    parts: &response::Parts,
    says: Says,
    method: &Method,
    most_headers: usize,
) -> Result<Option<Decoder>, Error> {
    let length = says.length.map_err(|()| Error::Malformed("invalid content-length parsed"));
    Ok(Some(match parts.status.as_u16() {
        101 | 204 | 304 => Decoder::Done,
        100..=199 => return Ok(None),
        _ if *method == Method::HEAD => Decoder::Done,
        _ if says.has_coding => {
            if parts.version == Version::HTTP_10 {
                return Err(Error::Malformed("unexpected transfer-encoding parsed"));
            }
            if says.ends_chunked { Decoder::chunked(most_headers) } else { Decoder::UntilClose }
        }
        _ => length?.map_or(Decoder::UntilClose, Decoder::length),
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

fn headers(input: &Bytes, lines: &[httparse::Header<'_>]) -> Result<HeaderMap, ()> {
    let mut headers = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = known(line.name.as_bytes()).map_err(drop)?;
        let value = if line.value.is_empty() {
            HeaderValue::from_static("")
        } else {
            HeaderValue::from_maybe_shared(input.slice_ref(line.value)).map_err(drop)?
        };
        headers.append(name, value);
    }
    Ok(headers)
}

/// The words of a header that is a list (RFC 9110 §5.6.1), of all its lines.
pub fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().flat_map(words)
}

/// Those of one line. What can't be read has none.
pub fn words(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Whether a request waits for a 100 before it sends its body.
pub fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// What a head says of its connection, and of how its body is framed. By one walk: each look-up of a name hashes it.
#[derive(Clone, Copy, Debug)]
struct Says {
    /// The length that all `Content-Length`s agree on; absent without any, an error if one is none or another.
    length: Result<Option<u64>, ()>,
    /// `Content-Length`s.
    lengths: usize,
    /// There is a `Transfer-Encoding`.
    has_coding: bool,
    /// The last transfer coding is `chunked`. What can't be read is none.
    ends_chunked: bool,
    /// There is a `Connection`.
    has_connection: bool,
    /// It says `close`.
    closes: bool,
    /// It says `keep-alive`.
    keeps: bool,
    /// There is an `Upgrade`.
    has_upgrade: bool,
    /// A request takes trailers in its answer.
    takes_trailers: bool,
    /// A request waits for a 100 before it sends its body.
    expects: bool,
}

impl Says {
    /// What these headers say.
    fn of(headers: &HeaderMap) -> Self {
        let mut says = Self {
            length: Ok(None),
            lengths: 0,
            has_coding: false,
            ends_chunked: false,
            has_connection: false,
            closes: false,
            keeps: false,
            has_upgrade: false,
            takes_trailers: false,
            expects: false,
        };
        let mut expectations = 0;
        for (name, value) in headers {
            if *name == CONTENT_LENGTH {
                says.lengths += 1;
                says.length = says.length.and_then(|length| agreed(length, value).ok_or(()).map(Some));
            } else if *name == TRANSFER_ENCODING {
                says.has_coding = true;
                let last = value.to_str().ok().and_then(|value| value.rsplit(',').next());
                says.ends_chunked = last.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"));
            } else if *name == CONNECTION {
                says.has_connection = true;
                for word in words(value) {
                    says.closes |= word.eq_ignore_ascii_case("close");
                    says.keeps |= word.eq_ignore_ascii_case("keep-alive");
                }
            } else if *name == UPGRADE {
                says.has_upgrade = true;
            } else if *name == TE {
                says.takes_trailers |= words(value).any(|word| word.eq_ignore_ascii_case("trailers"));
            } else if *name == EXPECT {
                says.expects |= expectations == 0 && value.as_bytes().eq_ignore_ascii_case(b"100-continue");
                expectations += 1;
            }
        }
        says
    }

    const fn keeps_alive(&self, is_11: bool) -> bool {
        !self.closes && (is_11 || self.keeps)
    }
}

/// The length that a line says, if those before it (there may be none) said no other.
fn agreed(before: Option<u64>, line: &HeaderValue) -> Option<u64> {
    let digits = line.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let one: u64 = line.to_str().ok()?.parse().ok()?;
    let agrees = before.is_none_or(|length| length == one);
    (agrees && one != u64::MAX).then_some(one)
}

/// Of several lengths that are alike one is enough.
fn said_once(headers: &mut HeaderMap) {
    if let Some(first) = headers.get(CONTENT_LENGTH).cloned() {
        headers.insert(CONTENT_LENGTH, first);
    }
}

/// Writes lines of headers, each name as it was spelled where its message came from.
struct Lines<'a> {
    out: &'a mut Vec<u8>,
    /// The head that came; empty if there was none.
    came: &'a [u8],
    /// What stands before an empty value.
    bare: &'static [u8],
    /// Behind the lines that came where the newest name stood first, and last.
    first: usize,
    last: usize,
}

impl<'a> Lines<'a> {
    fn new(out: &'a mut Vec<u8>, came: &'a [u8], bare: &'static [u8]) -> Self {
        // Behind the line that is no header.
        let first = memchr::memchr(b'\n', came).map_or(came.len(), |end| end + 1);
        Self { out, came, bare, first, last: first }
    }

    /// A line. `again`: the line before had the same name.
    fn line(&mut self, name: &HeaderName, again: bool, value: &[u8]) {
        let name = name.as_str().as_bytes();
        let from = if again { self.last } else { self.first };
        if let Some(line) = untouched(self.came.get(from..).unwrap_or_default(), name, value) {
            self.out.extend_from_slice(line);
            self.last = from + line.len();
            if !again {
                self.first = self.last;
            }
            return;
        }
        // Names mostly come in the order they stood in; one that was moved is found from the beginning.
        let found = spelled(self.came, name, from).or_else(|| if again { None } else { spelled(self.came, name, 0) });
        let spelled = match found {
            Some((spelled, next)) => {
                self.last = next;
                if !again {
                    self.first = next;
                }
                spelled
            }
            None => name,
        };
        let colon = if value.is_empty() { self.bare } else { b": " };
        for piece in [spelled, colon, value, b"\r\n"] {
            self.out.extend_from_slice(piece);
        }
    }
}

/// The first of these lines, if it is this one as it is written here: most are.
fn untouched<'a>(lines: &'a [u8], name: &[u8], value: &[u8]) -> Option<&'a [u8]> {
    let line = lines.get(..name.len() + value.len() + 4)?;
    let (spelled, rest) = line.split_at_checked(name.len())?;
    let there = rest.strip_prefix(b": ")?.strip_suffix(b"\r\n")?;
    // The very bytes of the line, not some like them.
    (std::ptr::eq(there, value) && is_spelled(spelled, name)).then_some(line)
}

/// Whether this is that name, which is in lower case.
fn is_spelled(spelled: &[u8], name: &[u8]) -> bool {
    spelled.len() == name.len()
        && spelled.iter().zip(name).fold(true, |same, (one, other)| same & (one.to_ascii_lowercase() == *other))
}

/// A name as it stands in these lines from there on, and where the line behind it begins.
fn spelled<'a>(lines: &'a [u8], name: &[u8], mut from: usize) -> Option<(&'a [u8], usize)> {
    loop {
        let rest = lines.get(from..)?;
        let next = from + memchr::memchr(b'\n', rest)? + 1;
        if let Some((spelled, [b':', ..])) = rest.split_at_checked(name.len())
            && is_spelled(spelled, name)
        {
            return Some((spelled, next));
        }
        from = next;
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

/// Writes a request's head, which came so; how its body is framed.
pub(super) fn write_request(out: &mut Vec<u8>, parts: &request::Parts, came: &[u8], size: Size) -> Encoder {
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(parts.uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let headers = &parts.headers;
    let says = Says::of(headers);
    let is_chunked = says.has_coding && size != Size::None;
    let length = says.length.ok().flatten().filter(|_| !is_chunked);
    let mut lines = Lines::new(out, came, b":");
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
            takes_trailers: head.takes_trailers,
        }
    }

    fn announced(&self, headers: &HeaderMap) -> Vec<HeaderName> {
        if self.takes_trailers { announced(headers) } else { Vec::new() }
    }
}

/// Writes a response's head, which came so; how its body is framed, and whether the connection lives on.
pub(super) fn write_response(
    out: &mut Vec<u8>,
    parts: &response::Parts,
    came: &[u8],
    size: Size,
    asked: &Asked,
) -> (Encoder, bool) {
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
    let says = Says::of(headers);
    let mut is_last = !asked.keeps_alive || is_switch || says.closes;
    let length = says.length.ok().flatten();
    let is_chunked = can_chunk && says.has_coding;

    let mut lines = Lines::new(out, came, b": ");
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
    if is_chunked && !says.ends_chunked {
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
    if !says.has_connection && !is_switch {
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
