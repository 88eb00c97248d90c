//! What goes over the wire, known to both sides: how a request asks for an answer, and every byte of the answer.

use std::fmt::Write as _;

use bytes::Bytes;

/// Before the stamp of a token, as a provider's chunk of some 200 bytes; and where short ones are asked for.
const LONG: &str = "data: {\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\"created\":1741570283,\"model\":\"gauge-1-2025-08-07\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"";
const LONG_END: &str = "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const SHORT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"";
const SHORT_END: &str = "\"}}]}\n\n";
pub(crate) const STAMP: usize = 16;

pub(crate) const ROLE: &str = "data: {\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\"created\":1741570283,\"model\":\"gauge-1-2025-08-07\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
pub(crate) const FINISH: &str = "data: {\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\"created\":1741570283,\"model\":\"gauge-1-2025-08-07\",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n";
pub(crate) const DONE: &str = "data: [DONE]\n\n";
/// How the provider says what came: the length of the request's body and its CRC-32.
pub(crate) const REQUEST_CHECK: &str = "x-request-check";
pub(crate) const PLAY: &str = "x-play";

/// What a request asks of the provider, in its header `x-play`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Play {
    pub(crate) stream: bool,
    pub(crate) first_us: u64,
    pub(crate) gap_us: u64,
    pub(crate) tokens: u64,
    pub(crate) event_bytes: u64,
}

impl Play {
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let mut numbers = value.split(',').map(|number| number.trim().parse::<u64>());
        let mut next = || numbers.next()?.ok();
        let play =
            Self { stream: next()? != 0, first_us: next()?, gap_us: next()?, tokens: next()?, event_bytes: next()? };
        numbers.next().is_none().then_some(play)
    }

    fn header(self) -> String {
        let Self { stream, first_us, gap_us, tokens, event_bytes } = self;
        format!("{},{first_us},{gap_us},{tokens},{event_bytes}", u8::from(stream))
    }
}

/// A token's event, with a gap where the time of its sending stands, as hexadecimal nanoseconds inside of its content: a
/// proxy that writes events anew would keep it.
pub(crate) struct Token {
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

impl Token {
    /// An event of so many bytes, or of some 230 as providers send them; the shortest has 62.
    pub(crate) fn of(bytes: u64) -> Self {
        let long = bytes == 0 || bytes >= (LONG.len() + LONG_END.len() + STAMP) as u64;
        let (before, end) = if long { (LONG, LONG_END) } else { (SHORT, SHORT_END) };
        let padding = (bytes as usize).saturating_sub(before.len() + STAMP + end.len());
        let mut after =
            "and so it flowed on to where no gauge had been set ".bytes().cycle().take(padding).collect::<Vec<_>>();
        after.extend_from_slice(end.as_bytes());
        Self { before: before.into(), after }
    }

    pub(crate) fn len(&self) -> usize {
        self.before.len() + STAMP + self.after.len()
    }

    /// The stamp of an event that is this one to the byte.
    pub(crate) fn stamp(&self, event: &[u8]) -> Option<u64> {
        let (stamp, after) = event.strip_prefix(self.before.as_slice())?.split_at_checked(STAMP)?;
        (after == self.after).then_some(())?;
        u64::from_str_radix(std::str::from_utf8(stamp).ok()?, 16).ok()
    }
}

/// The last but one event: what was used, and the CRC-32 of all bytes of the body before it.
pub(crate) fn usage(tokens: u64, crc: u32) -> String {
    let total = tokens + 17;
    format!(
        "data: {{\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\"created\":1741570283,\"model\":\"gauge-1-2025-08-07\",\"system_fingerprint\":\"crc32_{crc:08x}\",\"choices\":[],\"usage\":{{\"prompt_tokens\":17,\"completion_tokens\":{tokens},\"total_tokens\":{total}}}}}\n\n"
    )
}

/// A plain answer's body.
pub(crate) fn plain(tokens: u64) -> String {
    let total = tokens + 17;
    let text = "and so it flowed on ".repeat(tokens as usize);
    format!(
        "{{\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion\",\"created\":1741570283,\"model\":\"gauge-1-2025-08-07\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\"refusal\":null}},\"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":17,\"completion_tokens\":{tokens},\"total_tokens\":{total}}}}}"
    )
}

/// A whole request, as it goes over HTTP/1.1 and in its parts, and what the provider will say of its body if it came whole.
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    pub(crate) path: String,
    pub(crate) play: String,
    pub(crate) body: Bytes,
    pub(crate) check: String,
}

impl Request {
    /// `route`: the first part of the path, by which a proxy chooses among providers.
    pub(crate) fn new(play: Play, port: u16, route: Option<u64>, model: u64, body_bytes: usize) -> Self {
        let stream = if play.stream { ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" } else { "" };
        let start = format!("{{\"model\":\"sim-{model}\"{stream},\"messages\":[{{\"role\":\"user\",\"content\":\"");
        let end = "\"}]}";
        let padding = body_bytes.max(200).saturating_sub(start.len() + end.len());
        let mut body = start;
        body.extend("how far does the water come at night ".chars().cycle().take(padding));
        body.push_str(end);
        let path = route.map_or_else(String::new, |route| format!("/up-{route}")) + "/v1/chat/completions";
        let play = play.header();
        let mut bytes = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n");
        let _ = write!(bytes, "user-agent: e2e/1\r\naccept: application/json\r\nauthorization: Bearer none\r\n");
        let _ = write!(bytes, "{PLAY}: {play}\r\ncontent-type: application/json\r\n");
        let _ = write!(bytes, "content-length: {}\r\n\r\n", body.len());
        let check = check(body.len() as u64, crc32fast::hash(body.as_bytes()));
        bytes.push_str(&body);
        Self { bytes: bytes.into_bytes(), path, play, body: body.into(), check }
    }
}

pub(crate) fn check(length: u64, crc: u32) -> String {
    format!("{length}-{crc:08x}")
}

/// A header's value in a message head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
