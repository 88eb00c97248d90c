//! The load: requests at their due times (open loop), one after another (closed loop), or streams that are held.
//!
//! It writes `begin` and `end` to standard output when the measured window does, and at its own end one JSON object. Held
//! streams stay until a line comes on standard input: what they take is looked at meanwhile. What is counted lies in the
//! window; delays of answers run from when the request was *due*, so that a proxy that holds up the load can't hide it.

use std::{
    error::Error,
    io::{self, Read, Write},
    path::PathBuf,
    sync::Arc,
};

use clap::{Args, ValueEnum};
use rustls::ClientConfig;
use serde_json::Value;

use super::{
    answer::{Answer, Expected},
    http2_load::{Connections, Stream},
    link::{self, Link},
    system::{Poll, READ, WRITE, now, ready},
    tally::Tally,
    wire::{Play, Request},
};

#[derive(Args)]
pub(crate) struct Options {
    #[arg(long)]
    port: u16,
    #[arg(long, value_enum)]
    mode: Mode,
    /// Requests per second: of the open loop, and of streams that are held until all are there
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// Connections of the closed loop, streams that are held, and at most of the open loop
    #[arg(long, default_value_t = 9800)]
    connections: usize,
    /// Seconds before the window
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Seconds of the window
    #[arg(long, default_value_t = 2.0)]
    window: f64,
    /// Ends after so many answers instead; only for the closed loop
    #[arg(long)]
    requests: Option<u64>,
    /// What to ask of the provider: streamed (0 or 1), microseconds to the first token, between tokens, tokens, bytes of an
    /// event
    #[arg(long, value_parser = |text: &str| Play::parse(text).ok_or("five numbers"))]
    play: Play,
    #[arg(long, default_value_t = 0)]
    body_bytes: usize,
    /// Names of models to go through
    #[arg(long, default_value_t = 1)]
    models: u64,
    /// Providers to go through, each by the first part of its path
    #[arg(long)]
    routes: Option<u64>,
    /// By HTTP/2, so many streams on each connection
    #[arg(long, conflicts_with = "tls")]
    http2: Option<usize>,
    /// TLS 1.3, trusting this certificate
    #[arg(long)]
    tls: Option<PathBuf>,
    /// Of the arrivals of the open loop: the same seed, the same arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Open,
    Closed,
    Hold,
}

/// Time for what is under way at the end of the window, and for an answer beyond what it should take.
const DRAIN: u64 = 300_000_000;
const OVERDUE: u64 = 5_000_000_000;
/// Streams that are to be held have so much longer to get their first token before the window begins all the same.
const PATIENCE: f64 = 20.0;
/// Requests that are sent in one turn, at most.
const BURST: usize = 64;

pub(crate) fn run(options: Options) -> Result<Value, Box<dyn Error>> {
    let tls = options.tls.as_deref().map(link::tls).transpose()?;
    let routes = options.routes.map_or_else(|| vec![None], |routes| (0..routes).map(Some).collect());
    let request = |route, model| Request::new(options.play, options.port, route, model, options.body_bytes);
    let requests =
        routes.iter().flat_map(|route| (0..options.models.max(1)).map(|model| request(*route, model))).collect();
    let begin = now();
    let window = begin + nanoseconds(options.warm_up)..begin + nanoseconds(options.warm_up + PATIENCE);
    let mut load = Load {
        expected: Expected::of(options.play),
        arrivals: Arrivals::new(&options, begin),
        tls,
        http2: options.http2.map(|streams| Connections::new(options.port, streams)),
        requests,
        poll: Poll::new()?,
        calls: Vec::new(),
        idle: Vec::new(),
        free: Vec::new(),
        stamps: Vec::new(),
        sent: 0,
        tally: Tally::default(),
        begun: 0,
        counting: false,
        window,
        options,
    };
    load.run()?;
    Ok(load.tally.told())
}

struct Load {
    options: Options,
    expected: Expected,
    arrivals: Arrivals,
    tls: Option<Arc<ClientConfig>>,
    http2: Option<Connections>,
    requests: Vec<Request>,
    poll: Poll,
    calls: Vec<Option<Call>>,
    /// Connections without a request, the last used on top.
    idle: Vec<usize>,
    free: Vec<usize>,
    stamps: Vec<u64>,
    sent: u64,
    tally: Tally,
    /// Streams that have had a token.
    begun: usize,
    counting: bool,
    /// The window; before it begins, when it may, and when it must.
    window: std::ops::Range<u64>,
}

/// A connection, or a stream on one of HTTP/2, and the request on it.
struct Call {
    way: Way,
    request: usize,
    /// So much of it has been written.
    written: usize,
    due: u64,
    answer: Option<Answer>,
    armed: bool,
}

enum Way {
    Link(Link),
    Stream(Stream),
}

impl Load {
    fn run(&mut self) -> Result<(), Box<dyn Error>> {
        let mut room = vec![0; 256 * 1024];
        let mut tokens = Vec::new();
        if self.options.mode == Mode::Closed {
            for _ in 0..self.options.connections {
                if self.has_more() {
                    self.issue(now());
                }
            }
        }
        // Once the window has ended: until when what is under way may end.
        let mut drain = None;
        loop {
            let time = now();
            if self
                .options
                .requests
                .is_some_and(|most| self.tally.exact + self.tally.inexact + self.tally.errors >= most)
            {
                break;
            }
            if !self.counting
                && drain.is_none()
                && time >= self.window.start
                && (self.all_held() || time >= self.window.end)
            {
                self.counting = true;
                self.window = time..time + nanoseconds(self.options.window);
                mark("begin")?;
            }
            if self.counting && time >= self.window.end {
                (self.counting, drain) = (false, Some(time + DRAIN));
                self.tally.window = (time - self.window.start) as f64 / 1e9;
                self.tally.active = self.under_way();
                mark("end")?;
                if self.options.mode == Mode::Hold {
                    io::stdin().read_line(&mut String::new())?;
                }
            }
            if drain.is_some_and(|stop| time >= stop || self.options.mode == Mode::Hold || self.under_way() == 0) {
                break;
            }
            // Where the machine can't carry them, answers must be read as well.
            for _ in 0..BURST {
                if drain.is_some() || self.arrivals.next.is_none_or(|due| due > now()) {
                    break;
                }
                let due = self.arrivals.take();
                self.issue(due);
            }
            self.take_news(drain.is_some());
            let edge = if time < self.window.start { self.window.start } else { self.window.end };
            let next = drain.unwrap_or_else(|| self.arrivals.next.map_or(edge, |due| due.min(edge)));
            self.poll.wait(Some(next), &mut tokens)?;
            for token in &tokens {
                match (Connections::index(*token), &mut self.http2) {
                    (Some(index), Some(connections)) => connections.drive(&self.poll, index)?,
                    _ => self.serve(*token as usize, &mut room, drain.is_some()),
                }
            }
            self.take_news(drain.is_some());
        }
        self.count_unfinished();
        Ok(())
    }

    /// Whether another request may be sent.
    fn has_more(&self) -> bool {
        self.options.requests.is_none_or(|most| self.sent < most)
    }

    fn all_held(&self) -> bool {
        self.options.mode != Mode::Hold || self.begun >= self.options.connections
    }

    fn under_way(&self) -> usize {
        self.calls.len() - self.free.len() - self.idle.len()
    }

    fn issue(&mut self, due: u64) {
        let request = (self.sent % self.requests.len() as u64) as usize;
        self.sent += 1;
        if let Some(index) = self.idle.pop() {
            if let Some(call) = &mut self.calls[index] {
                (call.request, call.written, call.due, call.answer) = (request, 0, due, Some(Answer::new()));
            }
            self.write(index);
            return;
        }
        if self.under_way() >= self.options.connections {
            self.tally.overdue("more requests under way than connections allowed");
            return;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            self.calls.len() - 1
        });
        match self.open(index, request) {
            Ok(way) => {
                self.calls[index] =
                    Some(Call { way, request, written: 0, due, answer: Some(Answer::new()), armed: true });
            }
            Err(error) => {
                self.free.push(index);
                self.tally.error(format!("connecting: {error}"));
            }
        }
    }

    fn open(&mut self, index: usize, request: usize) -> io::Result<Way> {
        if let Some(connections) = &mut self.http2 {
            return Ok(Way::Stream(connections.start(&self.poll, index as u64, &self.requests[request])?));
        }
        let link = Link::new(self.options.port, self.tls.as_ref())?;
        self.poll.add(link.socket(), index as u64, READ | WRITE)?;
        Ok(Way::Link(link))
    }

    /// Writes on a connection that has just been given a request.
    fn write(&mut self, index: usize) {
        let Some(call) = &mut self.calls[index] else { return };
        if let Err(error) = call.advance(&self.requests[call.request], &self.poll, index) {
            self.fail(index, &error);
        }
    }

    /// A connection is ready: writes what is left, reads once, and gives the connection its next request where one ended.
    fn serve(&mut self, index: usize, room: &mut [u8], ended: bool) {
        let Some(call) = &mut self.calls[index] else { return };
        if let Err(error) = call.write(&self.requests[call.request]) {
            return self.fail(index, &error);
        }
        loop {
            let Some(Call { way: Way::Link(link), .. }) = &mut self.calls[index] else { return };
            let read = ready(link.read(room));
            // One clock read for each read: what it brought has come by now.
            let arrived = now();
            match read {
                Ok(None) => break,
                Ok(Some(0)) => return self.fail(index, &io::ErrorKind::UnexpectedEof.into()),
                Ok(Some(length)) => match self
                    .take(index, arrived, |answer, expected, stamps| answer.take(&room[..length], expected, stamps))
                {
                    Ok(false) => {}
                    Ok(true) if ended => return self.idle.push(index),
                    Ok(true) => {
                        self.idle.push(index);
                        if self.options.mode == Mode::Closed && self.has_more() {
                            self.issue(arrived);
                        }
                        return;
                    }
                    Err(what) => {
                        self.tally.inexact(what);
                        return self.close(index);
                    }
                },
                Err(error) => return self.fail(index, &error),
            }
            // A session may hold more than the socket shows.
            let Some(Call { way: Way::Link(link), .. }) = &self.calls[index] else { return };
            if !link.is_tls() {
                break;
            }
        }
        let Some(call) = &mut self.calls[index] else { return };
        if let Err(error) = call.advance(&self.requests[call.request], &self.poll, index) {
            self.fail(index, &error);
        }
    }

    /// Takes what came on streams of HTTP/2, until none of them has news.
    fn take_news(&mut self, ended: bool) {
        let mut numbers = Vec::new();
        while let Some(connections) = &self.http2 {
            connections.news.take(&mut numbers);
            if numbers.is_empty() {
                return;
            }
            let arrived = now();
            for number in &numbers {
                self.serve_stream(*number as usize, arrived, ended);
            }
        }
    }

    fn serve_stream(&mut self, index: usize, arrived: u64, ended: bool) {
        let Some(Call { way: Way::Stream(stream), .. }) = &mut self.calls[index] else { return };
        let mut bytes = Vec::new();
        let came = match stream.take(&mut bytes) {
            Ok(came) => came,
            Err(error) => return self.fail(index, &error),
        };
        let taken = self.take(index, arrived, |answer, expected, stamps| {
            if let Some((status, check)) = came.head {
                answer.take_head(status, check)?;
            }
            answer.take_frames(&bytes, came.ended, expected, stamps)
        });
        match taken {
            Ok(false) => {}
            Ok(true) => {
                self.close(index);
                if !ended && self.options.mode == Mode::Closed && self.has_more() {
                    self.issue(arrived);
                }
            }
            Err(what) => {
                self.tally.inexact(what);
                self.close(index);
            }
        }
    }

    /// Takes what a read brought, as `read` does; true when the answer has ended.
    fn take(
        &mut self,
        index: usize,
        arrived: u64,
        read: impl FnOnce(&mut Answer, &Expected, &mut Vec<u64>) -> Result<bool, String>,
    ) -> Result<bool, String> {
        let Some(call) = &mut self.calls[index] else { return Ok(false) };
        let Some(answer) = &mut call.answer else { return Err("bytes that nobody asked for".into()) };
        self.stamps.clear();
        let began = answer.tokens(&self.expected) > 0;
        let end = read(answer, &self.expected, &mut self.stamps)?;
        let due_in_window = self.counting && call.due >= self.window.start;
        if !began && !self.stamps.is_empty() {
            self.begun += 1;
            if due_in_window {
                self.tally.ttft.add(call.due, arrived);
            }
        }
        if self.counting {
            for stamp in &self.stamps {
                self.tally.event_delay.add(*stamp, arrived);
            }
            self.tally.events += self.stamps.len() as u64;
            self.tally.merged += self.stamps.len().saturating_sub(1) as u64;
        }
        if !end {
            return Ok(false);
        }
        if self.counting {
            self.tally.requests += 1;
        }
        if due_in_window && !self.options.play.stream {
            self.tally.latency.add(call.due, arrived);
        }
        self.tally.exact += 1;
        if answer.request_check.as_ref() != Some(&self.requests[call.request].check) {
            self.tally.altered_requests += 1;
        }
        call.answer = None;
        Ok(true)
    }

    fn fail(&mut self, index: usize, error: &io::Error) {
        // The server may close a connection that has no request; with one it must not.
        if self.calls[index].as_ref().is_some_and(|call| call.answer.is_some()) {
            self.tally.error(error.to_string());
        } else {
            self.idle.retain(|idle| *idle != index);
        }
        self.close(index);
    }

    fn close(&mut self, index: usize) {
        if let (Some(Call { way: Way::Stream(stream), .. }), Some(connections)) =
            (self.calls[index].take(), &mut self.http2)
        {
            connections.ended(&stream);
        }
        self.free.push(index);
    }

    /// What was under way at the end: held streams are exact so far, for each of their events was compared; others were cut
    /// by the end of the load, or are overdue.
    fn count_unfinished(&mut self) {
        let time = now();
        let Play { first_us, gap_us, tokens, .. } = self.options.play;
        for call in self.calls.iter().flatten() {
            let Some(answer) = &call.answer else { continue };
            if self.options.mode == Mode::Hold {
                if answer.tokens(&self.expected) > 0 {
                    self.tally.exact += 1;
                } else {
                    self.tally.overdue("a held stream without a token");
                }
            } else if time.saturating_sub(call.due) > (first_us + gap_us * tokens) * 1000 + OVERDUE {
                self.tally.overdue("an answer is overdue");
            } else {
                self.tally.cut += 1;
            }
        }
    }
}

impl Call {
    fn write(&mut self, request: &Request) -> io::Result<()> {
        let Way::Link(link) = &mut self.way else { return Ok(()) };
        while self.written < request.bytes.len() {
            match ready(link.write(&request.bytes[self.written..])) {
                Ok(Some(written)) => self.written += written,
                Ok(None) => break,
                // Not connected yet.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => break,
                Err(error) => return Err(error),
            }
        }
        if link.is_tls() {
            ready(link.flush())?;
        }
        Ok(())
    }

    /// Writes what can be written, and asks for what it waits for then.
    fn advance(&mut self, request: &Request, poll: &Poll, index: usize) -> io::Result<()> {
        self.write(request)?;
        self.arm(poll, index, request)
    }

    fn arm(&mut self, poll: &Poll, index: usize, request: &Request) -> io::Result<()> {
        let Way::Link(link) = &self.way else { return Ok(()) };
        let want = link.wants_write(self.written < request.bytes.len());
        if want == self.armed {
            return Ok(());
        }
        self.armed = want;
        poll.change(link.socket(), index as u64, if want { READ | WRITE } else { READ })
    }
}

/// When requests are due: Poisson arrivals, so that the phases of the streams spread as in life, without end or until all
/// streams are held; none for the closed loop, where an answer's end is the next request's time.
struct Arrivals {
    next: Option<u64>,
    left: usize,
    rate: f64,
    random: fastrand::Rng,
}

impl Arrivals {
    fn new(options: &Options, begin: u64) -> Self {
        let (next, left) = match options.mode {
            Mode::Open => (Some(begin), usize::MAX),
            Mode::Hold => (Some(begin), options.connections),
            Mode::Closed => (None, 0),
        };
        Self { next, left, rate: options.rate, random: fastrand::Rng::with_seed(options.seed) }
    }

    /// The request that is due, and sets the time of the next.
    fn take(&mut self) -> u64 {
        let due = self.next.unwrap_or_default();
        self.left = self.left.saturating_sub(1);
        let gap = -(1.0 - self.random.f64()).ln();
        self.next = (self.left > 0).then(|| due + nanoseconds(gap / self.rate));
        due
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Tells the driver, which reads the processes' accounts at that moment.
fn mark(what: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{what}")?;
    out.flush()
}
