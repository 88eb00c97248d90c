//! A small measuring client: one connection, one request after the other, each read event by event; and traffic made of it.
//!
//! It shares no code with the gauge, so that it can serve as an outside view of it. Whatever a server does (refuse, cut,
//! send nonsense), the result is an [`Answer`].

use std::{
    fmt::Write as _,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::{net::TcpStream, sync::watch, task::JoinSet};

use super::wire::Protocol;
use crate::clock::{Clock, Stamp};

/// Where requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The server's socket.
    pub address: SocketAddr,
    /// Put before the protocol's path: empty, or like `/groq`.
    pub prefix: String,
    /// What is spoken.
    pub protocol: Protocol,
    /// The model asked for.
    pub model: String,
}

/// One request to be.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where it goes.
    pub target: Target,
    /// Length of the prompt in tokens (of four bytes).
    pub prompt_tokens: u32,
    /// The request's maximum of output tokens.
    pub max_tokens: u32,
    /// Ask for a stream of events; chat streams then also ask for usage.
    pub stream: bool,
    /// Further headers.
    pub headers: HeaderMap,
}

impl Ask {
    /// A streaming request without further headers.
    pub fn streaming(target: Target, prompt_tokens: u32, max_tokens: u32) -> Self {
        Self { target, prompt_tokens, max_tokens, stream: true, headers: HeaderMap::new() }
    }

    /// The same with one more header.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The body that is sent.
    pub fn body(&self) -> String {
        let Target { protocol, model, .. } = &self.target;
        let model = serde_json::Value::from(model.as_str());
        let (input, maximum) = match protocol {
            Protocol::Chat => ("messages", "max_completion_tokens"),
            Protocol::Responses => ("input", "max_output_tokens"),
            Protocol::Messages => ("messages", "max_tokens"),
        };
        let mut body = String::with_capacity(self.prompt_tokens as usize * 4 + 256);
        // Formatting into a string does not fail.
        let _ = write!(body, r#"{{"model":{model},"{maximum}":{},"stream":{}"#, self.max_tokens, self.stream);
        if *protocol == Protocol::Chat && self.stream {
            body.push_str(r#","stream_options":{"include_usage":true}"#);
        }
        let _ = write!(body, r#","{input}":[{{"role":"user","content":""#);
        for word in 0..self.prompt_tokens as usize {
            body.push_str(["how ", "far ", "can ", "one "][word % 4]);
        }
        body.push_str(r#""}]}"#);
        body
    }
}

/// How an answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// The stream's own end marker was seen; of a plain answer, its body ended.
    Complete,
    /// The body of a stream ended without the end marker.
    Unfinished,
    /// The stream carried an error event.
    ErrorEvent,
    /// The body broke off.
    Cut,
    /// There was no answer: no connection, or it closed before the head.
    NoAnswer,
}

/// What came back. Stamps are the client's own clock, read when it handled what had arrived.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Which protocol was spoken.
    pub protocol: Protocol,
    /// The status; absent without an answer.
    pub status: Option<u16>,
    /// The response's headers; empty without an answer.
    pub headers: HeaderMap,
    /// How it ended.
    pub ending: Ending,
    /// Just before the request was handed to the connection.
    pub sent: Stamp,
    /// The head came.
    pub head: Option<Stamp>,
    /// The first byte of the body came.
    pub first_byte: Option<Stamp>,
    /// The first output event of a stream came.
    pub first_output: Option<Stamp>,
    /// The last one.
    pub last_output: Option<Stamp>,
    /// When it was over, however.
    pub end: Stamp,
    /// Bytes of the body.
    pub bytes: u64,
    /// Body frames the HTTP library made of them.
    pub frames: u64,
    /// Events with data in a stream.
    pub events: u64,
    /// Those with generated content.
    pub output_events: u64,
}

/// A client with at most one connection, opened when needed and kept.
#[derive(Debug)]
pub struct Client {
    clock: Clock,
    connection: Option<(SocketAddr, SendRequest<Full<Bytes>>)>,
}

impl Client {
    /// A client that is not connected yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, connection: None }
    }

    /// Sends one request and reads the answer to its end, whatever that is.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, as a client does that leaves; the next request opens another.
    pub async fn ask(&mut self, ask: &Ask) -> Answer {
        self.ask_with(ask, |_| {}).await
    }

    /// As [`Client::ask`], and shows each piece of the body as it comes.
    pub async fn ask_with(&mut self, ask: &Ask, mut piece: impl FnMut(&Bytes)) -> Answer {
        let request = request(ask);
        let protocol = ask.target.protocol;
        let mut answer = Answer::none(protocol, self.clock.now());
        let Ok(mut connection) = self.connection(ask.target.address).await else {
            answer.end = self.clock.now();
            return answer;
        };
        answer.sent = self.clock.now();
        let Ok(response) = connection.send_request(request).await else {
            answer.end = self.clock.now();
            return answer;
        };
        answer.head = Some(self.clock.now());
        let (parts, mut body) = response.into_parts();
        answer.status = Some(parts.status.as_u16());
        let streams = parts.headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/event"));
        answer.headers = parts.headers;
        let mut reader = EventReader::new(protocol);
        answer.ending = loop {
            match body.frame().await {
                None if !streams || reader.ended => break Ending::Complete,
                None if reader.failed => break Ending::ErrorEvent,
                None => break Ending::Unfinished,
                Some(Err(_)) => break Ending::Cut,
                Some(Ok(frame)) => {
                    let Some(data) = frame.data_ref() else { continue };
                    let now = self.clock.now();
                    piece(data);
                    answer.first_byte = answer.first_byte.or(Some(now));
                    answer.frames += 1;
                    answer.bytes += data.len() as u64;
                    if streams && reader.read(data) {
                        answer.first_output = answer.first_output.or(Some(now));
                        answer.last_output = Some(now);
                    }
                }
            }
        };
        answer.end = self.clock.now();
        answer.events = reader.events;
        answer.output_events = reader.output_events;
        if answer.ending != Ending::Cut {
            self.connection = Some((ask.target.address, connection));
        }
        answer
    }

    /// The kept connection if it is still good, otherwise a new one. It is taken out, so that a dropped request drops it.
    async fn connection(&mut self, address: SocketAddr) -> io::Result<SendRequest<Full<Bytes>>> {
        if let Some((kept, mut connection)) = self.connection.take()
            && kept == address
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // Ends when `send` and the response are dropped, or when the server closes.
        tokio::spawn(connection);
        Ok(send)
    }
}

impl Answer {
    fn none(protocol: Protocol, now: Stamp) -> Self {
        Self {
            protocol,
            status: None,
            headers: HeaderMap::new(),
            ending: Ending::NoAnswer,
            sent: now,
            head: None,
            first_byte: None,
            first_output: None,
            last_output: None,
            end: now,
            bytes: 0,
            frames: 0,
            events: 0,
            output_events: 0,
        }
    }
}

fn request(ask: &Ask) -> Request<Full<Bytes>> {
    let path = format!("{}{}", ask.target.prefix, ask.target.protocol.path());
    let mut request = Request::new(Full::new(Bytes::from(ask.body())));
    *request.method_mut() = http::Method::POST;
    // A prefix that is no path asks for `/`, and gets that answer.
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(&ask.target.address.to_string()) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if ask.target.protocol == Protocol::Messages {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    headers.extend(ask.headers.clone());
    request
}

/// Counts the events of a stream by plain search. Knows only the shapes of its three dialects, in compact JSON.
#[derive(Debug)]
struct EventReader {
    protocol: Protocol,
    /// The beginning of an event whose end has not come.
    rest: BytesMut,
    events: u64,
    output_events: u64,
    ended: bool,
    failed: bool,
}

impl EventReader {
    /// What grows beyond this without an end is no event.
    const LONGEST: usize = 4 << 20;

    fn new(protocol: Protocol) -> Self {
        Self { protocol, rest: BytesMut::new(), events: 0, output_events: 0, ended: false, failed: false }
    }

    /// Reads a piece; whether it completed an output event.
    fn read(&mut self, piece: &[u8]) -> bool {
        let before = self.output_events;
        self.rest.extend_from_slice(piece);
        while let Some(end) = memmem::find(&self.rest, b"\n\n") {
            let event = self.rest.split_to(end + 2);
            self.event(&event);
        }
        if self.rest.len() > Self::LONGEST {
            self.rest.clear();
        }
        self.output_events > before
    }

    fn event(&mut self, event: &[u8]) {
        let has = |needle: &[u8]| memmem::find(event, needle).is_some();
        if !has(b"data:") {
            return;
        }
        self.events += 1;
        let filled = |key: &[u8]| {
            memmem::find(event, key).is_some_and(|at| event.get(at + key.len()).is_some_and(|byte| *byte != b'"'))
        };
        let output = match self.protocol {
            Protocol::Chat => {
                // Cerebras' last chunk has its times in it, and nothing follows.
                self.ended |= event.starts_with(b"data: [DONE]") || has(b"\"time_info\":");
                self.failed |= has(b"\"error\":{");
                filled(b"\"content\":\"")
                    || filled(b"\"reasoning_content\":\"")
                    || filled(b"\"reasoning\":\"")
                    || filled(b"\"name\":\"")
                    || filled(b"\"arguments\":\"")
            }
            Protocol::Responses => {
                self.ended |= event.starts_with(b"event: response.completed") || has(b"event: response.incomplete");
                self.failed |= event.starts_with(b"event: error") || event.starts_with(b"event: response.failed");
                let named = event.starts_with(b"event: response.output_item.added") && has(b"\"function_call\"");
                named || filled(b"\"delta\":\"")
            }
            Protocol::Messages => {
                self.ended |= event.starts_with(b"event: message_stop");
                self.failed |= event.starts_with(b"event: error");
                let delta = event.starts_with(b"event: content_block_delta");
                let text = filled(b"\"text\":\"") || filled(b"\"thinking\":\"") || filled(b"\"partial_json\":\"");
                has(b"\"tool_use\",\"id\"") || (delta && text)
            }
        };
        self.output_events += u64::from(output);
    }
}

/// A steady kind of traffic: `workers` of them each send `parallel` requests at once, wait for all, pause, and repeat.
#[derive(Clone, Debug)]
pub struct Lane {
    /// What is sent.
    pub ask: Ask,
    /// Independent workers.
    pub workers: usize,
    /// Requests of one worker at the same time, each on a connection of its own.
    pub parallel: usize,
    /// The mean pause between two rounds; drawn from an exponential distribution.
    pub pause: Duration,
}

impl Lane {
    /// People chatting: short prompts, answers of some 200 tokens.
    pub fn chat(target: Target, workers: usize) -> Self {
        Self { ask: Ask::streaming(target, 200, 200), workers, parallel: 1, pause: Duration::from_millis(500) }
    }

    /// Long documents: prompts of 10,000 tokens, short answers.
    pub fn long_prompts(target: Target, workers: usize) -> Self {
        Self { ask: Ask::streaming(target, 10_000, 100), workers, parallel: 1, pause: Duration::from_secs(1) }
    }

    /// An agent at work: eight short requests at once, then a pause.
    pub fn agent_bursts(target: Target, workers: usize) -> Self {
        Self { ask: Ask::streaming(target, 1_000, 60), workers, parallel: 8, pause: Duration::from_secs(2) }
    }
}

/// How traffic is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// It goes on.
    No,
    /// No more requests; those that run are read to their end.
    AfterAnswers,
    /// Requests that run are dropped, as by a client that leaves, and not shown.
    Now,
}

/// Runs all lanes until `limit` requests were sent or `halt` asks for the end (its sender gone means [`Halt::Now`]). Shows
/// each answer; gives the number of answers shown.
///
/// # Cancel safety
/// Dropping the future drops all requests.
pub async fn run(
    lanes: Vec<Lane>,
    limit: u64,
    seed: u64,
    clock: Clock,
    mut halt: watch::Receiver<Halt>,
    show: impl Fn(&Lane, Answer) + Send + Sync + 'static,
) -> u64 {
    let (left, shown) = (AtomicU64::new(limit), AtomicU64::new(0));
    let shared = Arc::new(Shared { left, shown, halt: halt.clone(), show, clock });
    let mut rng = Rng::with_seed(seed);
    let mut workers = JoinSet::new();
    for lane in lanes.into_iter().map(Arc::new) {
        for _ in 0..lane.workers {
            workers.spawn(work(Arc::clone(&lane), Arc::clone(&shared), rng.fork()));
        }
    }
    tokio::select! {
        () = async { while workers.join_next().await.is_some() {} } => {}
        // An error means that nobody is left to ask for the end.
        _ = halt.wait_for(|halt| *halt == Halt::Now) => {}
    }
    workers.shutdown().await;
    shared.shown.load(Ordering::Relaxed)
}

struct Shared<F> {
    /// Requests that may still be sent.
    left: AtomicU64,
    shown: AtomicU64,
    halt: watch::Receiver<Halt>,
    show: F,
    clock: Clock,
}

impl<F: Fn(&Lane, Answer)> Shared<F> {
    /// One request of the lane; false if no more may be sent.
    async fn ask(&self, lane: &Lane, client: &mut Client) -> bool {
        let take = |left: u64| left.checked_sub(1);
        if *self.halt.borrow() != Halt::No
            || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err()
        {
            return false;
        }
        let answer = client.ask(&lane.ask).await;
        self.shown.fetch_add(1, Ordering::Relaxed);
        (self.show)(lane, answer);
        true
    }

    /// Waits; false if the end was asked for meanwhile.
    async fn pause(&self, span: Duration) -> bool {
        let mut halt = self.halt.clone();
        tokio::time::timeout(span, halt.wait_for(|halt| *halt != Halt::No)).await.is_err()
    }
}

async fn work<F: Fn(&Lane, Answer) + Send + Sync + 'static>(lane: Arc<Lane>, shared: Arc<Shared<F>>, mut rng: Rng) {
    let mut clients = Vec::new();
    // Workers start spread over one pause, not all at once.
    let mut span = lane.pause.mul_f64(rng.f64());
    while shared.pause(span).await {
        clients.resize_with(lane.parallel, || Client::new(shared.clock));
        let mut round = JoinSet::new();
        for mut client in clients.drain(..) {
            let (lane, shared) = (Arc::clone(&lane), Arc::clone(&shared));
            round.spawn(async move {
                let more = shared.ask(&lane, &mut client).await;
                (client, more)
            });
        }
        let mut go_on = true;
        while let Some(done) = round.join_next().await {
            // A panic in `show` ends the worker; the runtime has reported it.
            let Ok((client, more)) = done else { return };
            clients.push(client);
            go_on &= more;
        }
        if !go_on {
            return;
        }
        span = lane.pause.mul_f64(-(1.0 - rng.f64()).ln());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: [(Protocol, &str, u64, u64); 3] = [
        (
            Protocol::Chat,
            concat!(
                ": hello\n\n",
                "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"c\",\"arguments\":\"\"}}]}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
                "data: [DONE]\n\n",
            ),
            6,
            3,
        ),
        (
            Protocol::Responses,
            concat!(
                "event: response.created\ndata: {\"type\":\"response.created\"}\n\n",
                "event: response.output_item.added\ndata: {\"item\":{\"type\":\"function_call\",\"name\":\"c\"}}\n\n",
                "event: response.output_text.delta\ndata: {\"delta\":\"d\"}\n\n",
                "event: response.output_text.done\ndata: {\"text\":\"d\"}\n\n",
                "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n",
            ),
            5,
            2,
        ),
        (
            Protocol::Messages,
            concat!(
                "event: content_block_start\ndata: {\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
                "event: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
                "event: content_block_start\ndata: {\"content_block\":{\"type\":\"tool_use\",\"id\":\"1\"}}\n\n",
                "event: content_block_delta\ndata: {\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}\n\n",
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            ),
            5,
            2,
        ),
    ];

    #[test]
    fn events_are_counted_across_any_split() {
        for (protocol, stream, events, outputs) in STREAMS {
            for cut in 0..stream.len() {
                let mut reader = EventReader::new(protocol);
                let (head, tail) = stream.as_bytes().split_at(cut);
                reader.read(head);
                reader.read(tail);
                assert_eq!((reader.events, reader.output_events), (events, outputs), "{protocol:?} at {cut}");
                assert!(reader.ended && !reader.failed);
            }
        }
    }

    #[test]
    fn a_request_has_the_prompt_asked_for() {
        let target = Target {
            address: ([127, 0, 0, 1], 1).into(),
            prefix: String::new(),
            protocol: Protocol::Messages,
            model: "m\"".into(),
        };
        let body = Ask::streaming(target, 10_000, 7).body();
        assert!((40_000..40_200).contains(&body.len()));
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&json["model"], &json["max_tokens"]), (&"m\"".into(), &7.into()));
    }
}
