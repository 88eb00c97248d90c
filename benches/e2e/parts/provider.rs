//! The simulated provider. Token *k* of a stream is due at its start + *k* gaps, however late the one before left: no drift.
//! It never waits for its reader: what a socket does not take is queued, with the stamp of when it was to leave, so that a
//! proxy that holds the stream back can't hide it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
};

use crc32fast::Hasher;

use super::{
    http2_provider::Http2,
    system::{Poll, READ, WRITE, listen, now, ready},
    wire::{DONE, FINISH, PLAY, Play, REQUEST_CHECK, ROLE, STAMP, Token, check, header, plain, usage},
};

const LISTENER: u64 = u64::MAX;
const LARGEST_HEAD: usize = 64 * 1024;

pub(crate) fn run(port: u16) -> io::Result<()> {
    let mut provider = Provider {
        listener: listen(port)?,
        poll: Poll::new()?,
        connections: Vec::new(),
        free: Vec::new(),
        due: BinaryHeap::new(),
        frames: Frames::default(),
        began: 0,
    };
    provider.poll.add(&provider.listener, LISTENER, READ)?;
    let mut room = vec![0; 256 * 1024];
    let mut tokens = Vec::new();
    loop {
        let next = provider.due.peek().map(|Reverse((due, ..))| *due);
        provider.poll.wait(next, &mut tokens)?;
        for token in &tokens {
            if *token == LISTENER {
                provider.accept()?;
            } else {
                provider.serve(*token as usize, &mut room);
            }
        }
        provider.send_due();
    }
}

struct Provider {
    listener: TcpListener,
    poll: Poll,
    connections: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// When, which connection, and its number or its stream's, for another may have taken its place.
    due: BinaryHeap<Reverse<(u64, usize, u64)>>,
    frames: Frames,
    began: u64,
}

enum Peer {
    Http1(Connection),
    Http2(Http2),
}

struct Connection {
    number: u64,
    socket: TcpStream,
    /// What came and was not read yet: a head in pieces.
    head: Vec<u8>,
    request: Option<Body>,
    stream: Option<Stream>,
    unsent: VecDeque<u8>,
    armed: bool,
}

/// A request of which so much is still to come.
pub(crate) struct Body {
    pub(crate) play: Play,
    length: u64,
    left: u64,
    crc: Hasher,
}

impl Body {
    pub(crate) fn new(play: Play, length: u64) -> Self {
        Self { play, length, left: length, crc: Hasher::new() }
    }

    /// Takes more of it; true when it is whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.crc.update(bytes);
        // More than was announced is a second request behind the first, which no proxy here sends.
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
        Ok(self.left == 0)
    }

    /// What came, for the answer's head.
    pub(crate) fn check(&self) -> String {
        check(self.length, self.crc.clone().finalize())
    }
}

/// A streamed answer: what is due next, and when.
pub(crate) struct Stream {
    pub(crate) play: Play,
    start: u64,
    pub(crate) next: u64,
    pub(crate) crc: Hasher,
    pub(crate) request: String,
}

impl Stream {
    pub(crate) fn new(play: Play, request: String) -> Self {
        Self { play, start: now() + play.first_us * 1000, next: 0, crc: Hasher::new(), request }
    }

    pub(crate) fn due(&self) -> u64 {
        self.start + self.next * self.play.gap_us * 1000
    }

    /// The last events.
    pub(crate) fn last(&mut self) -> [String; 3] {
        self.crc.update(FINISH.as_bytes());
        [FINISH.to_owned(), usage(self.play.tokens, self.crc.clone().finalize()), DONE.to_owned()]
    }
}

/// A token's event in its chunk, ready to be stamped and sent.
pub(crate) struct Frame {
    bytes: Vec<u8>,
    event: std::ops::Range<usize>,
    stamp: usize,
}

/// One for each length that was asked for.
#[derive(Default)]
pub(crate) struct Frames(BTreeMap<u64, Frame>);

impl Frames {
    pub(crate) fn of(&mut self, event_bytes: u64) -> &mut Frame {
        self.0.entry(event_bytes).or_insert_with(|| Frame::new(event_bytes))
    }
}

impl Frame {
    fn new(event_bytes: u64) -> Self {
        let token = Token::of(event_bytes);
        let size = format!("{:x}\r\n", token.len());
        let stamp = size.len() + token.before.len();
        let mut bytes = size.into_bytes();
        let begin = bytes.len();
        bytes.extend_from_slice(&token.before);
        bytes.extend_from_slice(&[b'0'; STAMP]);
        bytes.extend_from_slice(&token.after);
        let event = begin..bytes.len();
        bytes.extend_from_slice(b"\r\n");
        Self { bytes, event, stamp }
    }

    /// The event alone, as `stamped`.
    pub(crate) fn stamped_event(&mut self, time: u64, crc: &mut Hasher) -> &[u8] {
        let event = self.event.clone();
        &self.stamped(time, crc)[event]
    }

    fn stamped(&mut self, time: u64, crc: &mut Hasher) -> &[u8] {
        let mut digits = time;
        for digit in self.bytes[self.stamp..self.stamp + STAMP].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(digits & 15) as usize];
            digits >>= 4;
        }
        crc.update(&self.bytes[self.event.clone()]);
        &self.bytes
    }
}

impl Provider {
    fn accept(&mut self) -> io::Result<()> {
        while let Some((socket, _)) = ready(self.listener.accept())? {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.add(&socket, index as u64, READ)?;
            self.began += 1;
            self.connections[index] = Some(Peer::Http1(Connection {
                number: self.began,
                socket,
                head: Vec::new(),
                request: None,
                stream: None,
                unsent: VecDeque::new(),
                armed: false,
            }));
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, room: &mut [u8]) {
        let Some(mut peer) = self.connections[index].take() else { return };
        if let Peer::Http1(connection) = &peer
            && connection.begins_http2()
        {
            peer = match Http2::new(&connection.socket) {
                Ok(connection) => Peer::Http2(connection),
                Err(_) => return self.free.push(index),
            };
        }
        let served = match &mut peer {
            Peer::Http1(connection) => self.serve_http1(connection, index, room),
            Peer::Http2(connection) => {
                let due = &mut self.due;
                connection.serve(&mut self.began, |at, number| due.push(Reverse((at, index, number))))
            }
        };
        self.connections[index] = Some(peer);
        self.keep(index, served.is_ok());
    }

    fn serve_http1(&mut self, connection: &mut Connection, index: usize, room: &mut [u8]) -> io::Result<()> {
        connection.serve(room).and_then(|asked| {
            let Some((play, request)) = asked else { return Ok(()) };
            if play.stream {
                let stream = Stream::new(play, request);
                self.due.push(Reverse((stream.due(), index, connection.number)));
                connection.stream = Some(stream);
                return Ok(());
            }
            let body = plain(play.tokens);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{REQUEST_CHECK}: {request}\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            connection.send(answer.as_bytes())
        })
    }

    fn send_due(&mut self) {
        // Connections of HTTP/2 on which something was queued: frames that are due together leave together.
        let mut queued = Vec::new();
        while let Some(Reverse((due, index, number))) = self.due.peek().copied()
            && due <= now()
        {
            self.due.pop();
            let sent = match &mut self.connections[index] {
                Some(Peer::Http1(connection)) if connection.number == number => {
                    let Some(stream) = &connection.stream else { continue };
                    let sent = connection.send_next(self.frames.of(stream.play.event_bytes));
                    sent.map(|()| connection.stream.as_ref().map(Stream::due))
                }
                Some(Peer::Http2(connection)) => {
                    if !queued.contains(&index) {
                        queued.push(index);
                    }
                    Ok(connection.send_next(number, &mut self.frames))
                }
                _ => continue,
            };
            if let Ok(Some(next)) = sent {
                self.due.push(Reverse((next, index, number)));
            }
            self.keep(index, sent.is_ok());
        }
        for index in queued {
            self.serve(index, &mut []);
        }
    }

    /// Asks for what the connection waits for; one that has failed or ended is let go of.
    fn keep(&mut self, index: usize, alive: bool) {
        let armed = match &mut self.connections[index] {
            Some(Peer::Http1(connection)) => connection.arm(&self.poll, index as u64),
            Some(Peer::Http2(connection)) => connection.waits.arm(&self.poll, index as u64),
            None => return,
        };
        if !alive || armed.is_err() {
            self.connections[index] = None;
            self.free.push(index);
        }
    }
}

impl Connection {
    /// Whether the first bytes are those of HTTP/2 with prior knowledge.
    fn begins_http2(&self) -> bool {
        let mut first = [0; 3];
        let is_new = self.request.is_none() && self.stream.is_none() && self.head.is_empty();
        is_new && self.socket.peek(&mut first).is_ok_and(|_| first == *b"PRI")
    }

    fn arm(&mut self, poll: &Poll, token: u64) -> io::Result<()> {
        let want = !self.unsent.is_empty();
        if want == self.armed {
            return Ok(());
        }
        self.armed = want;
        poll.change(&self.socket, token, if want { READ | WRITE } else { READ })
    }

    /// Reads and writes once; gives a request that has come whole, with what came of its body.
    fn serve(&mut self, room: &mut [u8]) -> io::Result<Option<(Play, String)>> {
        self.flush()?;
        match ready(self.socket.read(room))? {
            None => Ok(None),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(length) => self.take(&room[..length]),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<Option<(Play, String)>> {
        let head;
        let mut rest = bytes;
        if self.request.is_none() {
            self.head.extend_from_slice(bytes);
            let Some(end) = memchr::memmem::find(&self.head, b"\r\n\r\n") else {
                return if self.head.len() > LARGEST_HEAD { Err(io::ErrorKind::InvalidData.into()) } else { Ok(None) };
            };
            head = std::mem::take(&mut self.head);
            let text = std::str::from_utf8(&head[..end]).map_err(|_| io::ErrorKind::InvalidData)?;
            let play = header(text, PLAY).and_then(Play::parse).ok_or(io::ErrorKind::InvalidData)?;
            let length = header(text, "content-length").and_then(|length| length.parse().ok());
            let length = length.ok_or(io::ErrorKind::InvalidData)?;
            self.request = Some(Body::new(play, length));
            rest = &head[end + 4..];
        }
        let Some(body) = &mut self.request else { return Ok(None) };
        if !body.take(rest)? {
            return Ok(None);
        }
        Ok(self.request.take().map(|body| (body.play, body.check())))
    }

    /// Sends what is due next of the stream.
    fn send_next(&mut self, frame: &mut Frame) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let at = stream.next;
        stream.next += 1;
        if at == 0 {
            let mut first = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n{REQUEST_CHECK}: {}\r\ntransfer-encoding: chunked\r\n\r\n",
                stream.request
            );
            push_chunk(&mut first, ROLE);
            stream.crc.update(ROLE.as_bytes());
            let mut first = first.into_bytes();
            first.extend_from_slice(frame.stamped(now(), &mut stream.crc));
            return self.send(&first);
        }
        if at < stream.play.tokens {
            // One write, from where the event lies.
            let bytes = frame.stamped(now(), &mut stream.crc);
            return send(&self.socket, &mut self.unsent, bytes);
        }
        let mut last = String::new();
        stream.last().iter().for_each(|event| push_chunk(&mut last, event));
        last.push_str("0\r\n\r\n");
        self.stream = None;
        self.send(last.as_bytes())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        send(&self.socket, &mut self.unsent, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match ready(self.socket.write(self.unsent.as_slices().0))? {
                Some(sent) => drop(self.unsent.drain(..sent)),
                None => break,
            }
        }
        Ok(())
    }
}

/// Writes, and queues what the socket does not take.
fn send(mut socket: &TcpStream, unsent: &mut VecDeque<u8>, bytes: &[u8]) -> io::Result<()> {
    let sent = if unsent.is_empty() { ready(socket.write(bytes))?.unwrap_or(0) } else { 0 };
    unsent.extend(&bytes[sent..]);
    Ok(())
}

fn push_chunk(out: &mut String, event: &str) {
    use std::fmt::Write as _;
    let _ = write!(out, "{:x}\r\n{event}\r\n", event.len());
}
