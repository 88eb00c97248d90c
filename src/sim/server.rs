//! The simulated provider's sockets: accept, queue, answer, stop.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::SyncSender,
    },
    time::{Duration, UNIX_EPOCH},
};

use bytes::{Bytes, BytesMut};
use http::{
    Method, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinHandle, JoinSet},
};

use super::{
    body::{Books, Content, Cut, SimBody, Stream, Whole},
    io::Socket,
    log::{Departures, Ledger, Log, Truth, unix_nanos},
    profile::Profile,
    reports::{Reports, Watch},
    script::{Ask, Fail, Script},
    timer::{Alarm, Timer},
    wire::{self, Protocol, Reply, Wire},
};
use crate::clock::{Clock, Stamp};

/// A running simulated provider. Dropping it stops it at once.
#[derive(Debug)]
pub struct Sim {
    address: SocketAddr,
    stop: watch::Sender<Stop>,
    accepting: JoinHandle<()>,
    log: Option<Log>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    No,
    Gracefully,
    Now,
}

impl Sim {
    /// Binds `listen` (port 0 lets the system choose) and serves HTTP/1.1 and, by prior knowledge, HTTP/2 on it.
    ///
    /// Runs on the runtime it is called in, and in real time: its timer does not follow a paused clock.
    ///
    /// # Errors
    /// If the address can't be bound or the timer's thread not started.
    pub fn start(listen: SocketAddr, profile: Profile, log: Option<Log>, clock: Clock) -> io::Result<Self> {
        let listener = bind(listen)?;
        let address = listener.local_addr()?;
        let server = Arc::new(Server {
            slots: profile.concurrency.map(|slots| Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)))),
            profile,
            clock,
            timer: Arc::new(Timer::start(clock)?),
            log: log.as_ref().map(Log::sender),
            requests: AtomicU64::new(0),
        });
        let (stop, stopped) = watch::channel(Stop::No);
        let accepting = tokio::spawn(accept(listener, server, stopped));
        Ok(Self { address, stop, accepting, log })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener, lets running and queued requests end, then closes the log.
    ///
    /// # Errors
    /// If the log could not be written.
    ///
    /// # Cancel safety
    /// Dropping the future stops at once.
    pub async fn stop(self) -> io::Result<()> {
        self.stop_until(std::future::pending()).await
    }

    /// As [`Sim::stop`], but what still runs when `now` is ready is cut. The log is complete either way.
    ///
    /// # Errors
    /// If the log could not be written.
    ///
    /// # Cancel safety
    /// Dropping the future stops at once.
    pub async fn stop_until(mut self, now: impl Future<Output = ()>) -> io::Result<()> {
        self.stop.send_replace(Stop::Gracefully);
        tokio::select! {
            // The task only ends by returning; a panic in it has been reported by the runtime already.
            _ = &mut self.accepting => self.close_log().await,
            () = now => self.stop_now().await,
        }
    }

    /// Closes the listener and every connection now, then closes the log.
    ///
    /// # Errors
    /// If the log could not be written.
    ///
    /// # Cancel safety
    /// The connections are closed even if the future is dropped.
    pub async fn stop_now(mut self) -> io::Result<()> {
        self.stop.send_replace(Stop::Now);
        let _ = (&mut self.accepting).await;
        self.close_log().await
    }

    async fn close_log(mut self) -> io::Result<()> {
        match self.log.take() {
            Some(log) => log.close().await,
            None => Ok(()),
        }
    }
}

/// What all connections share.
#[derive(Debug)]
struct Server {
    profile: Profile,
    clock: Clock,
    timer: Arc<Timer>,
    slots: Option<Arc<Semaphore>>,
    log: Option<SyncSender<Truth>>,
    requests: AtomicU64,
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    // Thousands of streams may be opened in one burst; the usual 1,024 would drop some of their handshakes for a second.
    socket.listen(8192)
}

async fn accept(listener: TcpListener, server: Arc<Server>, mut stop: watch::Receiver<Stop>) {
    let mut connections = JoinSet::new();
    let mut told = stop.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, Arc::clone(&server), stop.clone()));
                }
                // Out of descriptors or a connection lost before it was taken: both pass.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = connections.join_next() => {}
            _ = told.changed() => break,
        }
    }
    drop(listener);
    loop {
        // A closed channel means that the handle was dropped.
        if *stop.borrow_and_update() == Stop::Now || stop.has_changed().is_err() {
            return connections.shutdown().await;
        }
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { return },
            _ = told.changed() => {}
        }
    }
}

async fn serve(stream: TcpStream, server: Arc<Server>, mut stop: watch::Receiver<Stop>) {
    // Without it the kernel would hold small events back to merge them; failing only means the peer has left.
    let _ = stream.set_nodelay(true);
    let departures = Arc::new(Departures::new(server.clock));
    let io = TokioIo::new(Socket::new(stream, Arc::clone(&departures)));
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().preserve_header_case(true);
    http.http2().max_concurrent_streams(4096);
    let service = service_fn(move |request| answer(Arc::clone(&server), Arc::clone(&departures), request));
    let mut connection = pin!(http.serve_connection(io, service));
    let stopped = async {
        // An error means that the handle was dropped: then the task is about to be aborted.
        let _ = stop.wait_for(|stop| *stop != Stop::No).await;
    };
    tokio::select! {
        // Clients break connections, and scripts do.
        _ = connection.as_mut() => return,
        () = stopped => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Bytes of a request body: room for prompts of many million tokens, and a bound.
const MAX_REQUEST: usize = 256 << 20;

/// One request. An error closes the connection (HTTP/2: resets the stream).
async fn answer(
    server: Arc<Server>,
    departures: Arc<Departures>,
    request: Request<Incoming>,
) -> Result<Response<SimBody>, Cut> {
    let number = server.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_REQUEST).collect().await else { return Err(Cut) };
    let exchange = Exchange { request_end: departures.last_read(), number, parts, body: body.to_bytes() };
    exchange.answer(&server, departures).await
}

struct Exchange {
    number: u64,
    parts: Parts,
    body: Bytes,
    request_end: Stamp,
}

impl Exchange {
    async fn answer(self, server: &Server, departures: Arc<Departures>) -> Result<Response<SimBody>, Cut> {
        let protocol = Protocol::of_path(self.parts.uri.path()).filter(|_| self.parts.method == Method::POST);
        let asked: Result<Ask, _> = match protocol {
            Some(_) => serde_json::from_slice(&self.body),
            None => Ok(Ask::default()),
        };
        let books = server.log.as_ref().map(|sender| {
            let truth = self.truth(protocol, asked.as_ref().ok(), server);
            Books { clock: server.clock, ledger: Ledger::open(truth, sender.clone()), departures }
        });
        let Some(protocol) = protocol else {
            return Ok(self.other(server, books));
        };
        let ask = match asked {
            Ok(ask) => ask,
            Err(error) => {
                return Ok(self.refuse(server, Some(protocol), 400, &format!("not a JSON request: {error}"), books));
            }
        };
        match Script::new(&server.profile, &self.parts.headers, &ask, self.input_tokens(), self.number) {
            Ok(script) => self.generate(protocol, &ask, script, server, books).await,
            Err(message) => Ok(self.refuse(server, Some(protocol), 400, &message, books)),
        }
    }

    async fn generate(
        self,
        protocol: Protocol,
        ask: &Ask,
        script: Script,
        server: &Server,
        books: Option<Books>,
    ) -> Result<Response<SimBody>, Cut> {
        note(books.as_ref(), |truth| truth.outcome = String::from(script.fail.map_or("complete", Fail::outcome)));
        match script.fail {
            Some(Fail::CloseBeforeHead) => return Err(Cut),
            Some(Fail::Status(status)) => return Ok(self.refuse(server, Some(protocol), status, "as scripted", books)),
            _ => {}
        }
        // A client that leaves while this waits drops it here: that is what the log says unless the head is made.
        note(books.as_ref(), |truth| truth.client_gone = true);
        let (slot, start) = self.slot(server).await;
        note(books.as_ref(), |truth| truth.start_ns = Some(unix_nanos(&server.clock, start)));
        let mut reply = self.reply(ask, &script, server);
        let watch = Watch::new(server.clock, self.request_end, start);
        let mut alarm = Alarm::new(Arc::clone(&server.timer));
        let (response, content) = if ask.streams() {
            let watch = script.reports.in_body(protocol).then_some(watch);
            let wire = Wire::new(protocol, reply);
            let stream = Stream::new(wire, script.beats(), script.fail, script.early_prelude, start, watch, alarm);
            let response = self.head(protocol, script.reports, server);
            let response = response.header(CONTENT_TYPE, "text/event-stream; charset=utf-8");
            (response.header(CACHE_CONTROL, "no-cache"), Content::Stream(Box::new(stream)))
        } else {
            let due = tokens(&script, start, &mut alarm, watch, &mut reply).await;
            if let Some(Fail::ErrorEvent(_)) = script.fail {
                return Ok(self.refuse(server, Some(protocol), 500, "as scripted", books));
            }
            let whole = plain(protocol, &reply, script.fail, due);
            let response = self.head(protocol, script.reports, server);
            (response.header(CONTENT_TYPE, "application/json"), Content::Whole(whole))
        };
        note(books.as_ref(), |truth| {
            truth.client_gone = false;
            truth.status = Some(200);
        });
        Ok(finish(response, SimBody::new(content, books, slot)))
    }

    /// A slot to generate in, and when generation starts. Cancelled waiters leave the queue.
    async fn slot(&self, server: &Server) -> (Option<OwnedSemaphorePermit>, Stamp) {
        let Some(slots) = &server.slots else { return (None, self.request_end) };
        if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            return (Some(slot), self.request_end);
        }
        // The semaphore is never closed.
        let slot = Arc::clone(slots).acquire_owned().await.ok();
        (slot, server.clock.now())
    }

    fn reply(&self, ask: &Ask, script: &Script, server: &Server) -> Reply {
        let model = ask.model.as_ref().or(server.profile.models.first());
        Reply {
            number: self.number,
            created: server.clock.wall(self.request_end).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            model: serde_json::Value::from(model.map_or("sim", String::as_str)).to_string(),
            input_tokens: self.input_tokens(),
            output_tokens: script.output_tokens,
            reasoning_tokens: script.reasoning_tokens,
            usage: script.usage,
            reports: script.reports,
            times: None,
            wants_usage: ask.wants_usage(),
            early_prelude: script.early_prelude,
            tool_call: script.tool_call,
            name_tokens: script.name_tokens(),
            finish: script.finish,
        }
    }

    /// Paths that generate nothing.
    fn other(self, server: &Server, books: Option<Books>) -> Response<SimBody> {
        let path = self.parts.uri.path();
        if self.parts.method == Method::GET && path.ends_with("/models") {
            let data: Vec<_> = server
                .profile
                .models
                .iter()
                .map(|id| serde_json::json!({"id": id, "object": "model", "created": 0, "owned_by": "sim"}))
                .collect();
            let list = serde_json::json!({"object": "list", "data": data}).to_string();
            let response = self.head(Protocol::Chat, Reports::None, server).header(CONTENT_TYPE, "application/json");
            note(books.as_ref(), |truth| truth.status = Some(200));
            return finish(response, SimBody::whole(list.into(), self.request_end, books));
        }
        let message = format!("no such endpoint: {} {path}", self.parts.method);
        self.refuse(server, None, 404, &message, books)
    }

    fn refuse(
        self,
        server: &Server,
        protocol: Option<Protocol>,
        status: u16,
        message: &str,
        books: Option<Books>,
    ) -> Response<SimBody> {
        note(books.as_ref(), |truth| {
            truth.status = Some(status);
            truth.client_gone = false;
            truth.stream = false;
            truth.outcome = String::from(Fail::Status(status).outcome());
        });
        let mut response = Response::builder()
            .status(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
            .header("x-sim-request", self.number)
            .header("x-request-id", format!("req_sim{:016x}", self.number))
            .header(CONTENT_TYPE, "application/json");
        if status == 429 {
            response = response.header(RETRY_AFTER, 1);
            if protocol == Some(Protocol::Messages) {
                let reset = server.clock.wall(self.request_end) + Duration::from_secs(1);
                let reset = humantime::format_rfc3339_seconds(reset).to_string();
                response = response.header("anthropic-ratelimit-requests-reset", reset);
            }
            let limits = if protocol == Some(Protocol::Messages) { ANTHROPIC_LIMITS } else { OPENAI_LIMITS };
            for (name, value) in limits {
                response = response.header(*name, *value);
            }
        }
        finish(response, SimBody::whole(wire::refusal(protocol, status, message), self.request_end, books))
    }

    /// The head of an answer with status 200.
    fn head(&self, protocol: Protocol, reports: Reports, server: &Server) -> http::response::Builder {
        let response = Response::builder().header("x-sim-request", self.number);
        let id = format!("req_sim{:016x}", self.number);
        let name = if protocol == Protocol::Messages { "request-id" } else { "x-request-id" };
        reports.head(protocol, server.clock.now().since(self.request_end), response.header(name, id))
    }

    /// Four bytes of JSON a token: near enough for English prose.
    fn input_tokens(&self) -> u64 {
        (self.body.len() as u64).div_ceil(4)
    }

    fn truth(&self, protocol: Option<Protocol>, ask: Option<&Ask>, server: &Server) -> Truth {
        let id = self.parts.headers.get("x-sim-id").and_then(|id| id.to_str().ok());
        Truth {
            request: self.number,
            id: id.map(str::to_owned),
            dialect: protocol.map_or("other", Protocol::as_str).to_owned(),
            path: self.parts.uri.path().to_owned(),
            model: ask.and_then(|ask| ask.model.clone()),
            stream: ask.is_some_and(Ask::streams),
            http: if self.parts.version == http::Version::HTTP_2 { "2" } else { "1.1" }.to_owned(),
            outcome: "complete".to_owned(),
            request_bytes: self.body.len() as u64,
            request_end_ns: unix_nanos(&server.clock, self.request_end),
            ..Truth::default()
        }
    }
}

/// Waits for a plain answer's first token and for its last, and has the reply tell of it; when the last was due.
async fn tokens(script: &Script, start: Stamp, alarm: &mut Alarm, mut watch: Watch, reply: &mut Reply) -> Stamp {
    let (mut beats, mut due) = (script.beats(), start);
    for beat in [beats.next(), beats.last()].into_iter().flatten() {
        due = start + beat.due;
        alarm.until(due).await;
        watch.output();
    }
    reply.times = Some(watch.times());
    due
}

/// The whole answer in one body, with its fault.
fn plain(protocol: Protocol, reply: &Reply, fail: Option<Fail>, due: Stamp) -> Whole {
    if let Some(Fail::Garbage(_)) = fail {
        let mut bytes = BytesMut::new();
        wire::garbage(0, &mut bytes);
        return Whole::new(bytes.freeze(), due);
    }
    let usage = reply.usage.then_some((reply.input_tokens, reply.output_tokens));
    let whole = Whole::new(wire::plain(protocol, reply), due).with_usage(usage);
    match fail {
        Some(Fail::Cut(_)) => whole.cut_in_half(),
        Some(Fail::Truncate(_)) => whole.truncated(),
        _ => whole,
    }
}

const OPENAI_LIMITS: &[(&str, &str)] = &[
    ("x-ratelimit-limit-requests", "60"),
    ("x-ratelimit-remaining-requests", "0"),
    ("x-ratelimit-reset-requests", "1s"),
    ("x-ratelimit-limit-tokens", "150000"),
    ("x-ratelimit-remaining-tokens", "149984"),
    ("x-ratelimit-reset-tokens", "6ms"),
];

const ANTHROPIC_LIMITS: &[(&str, &str)] = &[
    ("anthropic-ratelimit-requests-limit", "60"),
    ("anthropic-ratelimit-requests-remaining", "0"),
    ("anthropic-ratelimit-tokens-limit", "150000"),
    ("anthropic-ratelimit-tokens-remaining", "149984"),
    ("x-should-retry", "true"),
];

/// Every header is made of checked parts, so the builder does not fail; if it did, the head would be missing, not wrong.
fn finish(response: http::response::Builder, body: SimBody) -> Response<SimBody> {
    match response.body(()) {
        Ok(response) => response.map(|()| body),
        Err(_) => Response::new(body),
    }
}

fn note(books: Option<&Books>, change: impl FnOnce(&mut Truth)) {
    if let Some(books) = books {
        change(&mut books.ledger.lock());
    }
}
