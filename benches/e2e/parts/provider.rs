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
        frames: BTreeMap::new(),
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
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// When, which connection, and its number, for another may have taken its place.
    due: BinaryHeap<Reverse<(u64, usize, u64)>>,
    frames: BTreeMap<u64, Frame>,
    began: u64,
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
struct Body {
    play: Play,
    length: u64,
    left: u64,
    crc: Hasher,
}

struct Stream {
    play: Play,
    start: u64,
    next: u64,
    crc: Hasher,
    request: String,
}

/// A token's event in its chunk, ready to be stamped and sent.
struct Frame {
    bytes: Vec<u8>,
    event: std::ops::Range<usize>,
    stamp: usize,
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
            self.connections[index] = Some(Connection {
                number: self.began,
                socket,
                head: Vec::new(),
                request: None,
                stream: None,
                unsent: VecDeque::new(),
                armed: false,
            });
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, room: &mut [u8]) {
        let Some(connection) = &mut self.connections[index] else { return };
        let served = connection.serve(room).and_then(|asked| {
            let Some((play, request)) = asked else { return Ok(()) };
            if play.stream {
                let start = now() + play.first_us * 1000;
                connection.stream = Some(Stream { play, start, next: 0, crc: Hasher::new(), request });
                self.due.push(Reverse((start, index, connection.number)));
                return Ok(());
            }
            let body = plain(play.tokens);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{REQUEST_CHECK}: {request}\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            connection.send(answer.as_bytes())
        });
        self.keep(index, served.is_ok());
    }

    fn send_due(&mut self) {
        loop {
            let Some(Reverse((due, index, number))) = self.due.peek().copied() else { return };
            if due > now() {
                return;
            }
            self.due.pop();
            let Some(connection) = self.connections[index].as_mut().filter(|one| one.number == number) else {
                continue;
            };
            let Some(stream) = &connection.stream else { continue };
            let event_bytes = stream.play.event_bytes;
            let frame = self.frames.entry(event_bytes).or_insert_with(|| Frame::new(event_bytes));
            let sent = connection.send_next(frame);
            if let (Ok(()), Some(stream)) = (&sent, &connection.stream) {
                self.due.push(Reverse((stream.start + stream.next * stream.play.gap_us * 1000, index, number)));
            }
            self.keep(index, sent.is_ok());
        }
    }

    /// Asks for what the connection waits for; one that has failed or ended is let go of.
    fn keep(&mut self, index: usize, alive: bool) {
        let Some(connection) = &mut self.connections[index] else { return };
        let want = !connection.unsent.is_empty();
        let mut alive = alive;
        if alive && want != connection.armed {
            connection.armed = want;
            let interest = if want { READ | WRITE } else { READ };
            alive = self.poll.change(&connection.socket, index as u64, interest).is_ok();
        }
        if !alive {
            self.connections[index] = None;
            self.free.push(index);
        }
    }
}

impl Connection {
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
            self.request = Some(Body { play, length, left: length, crc: Hasher::new() });
            rest = &head[end + 4..];
        }
        let Some(body) = &mut self.request else { return Ok(None) };
        body.crc.update(rest);
        // More than was announced is a second request behind the first, which no proxy here sends.
        body.left = body.left.checked_sub(rest.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
        if body.left > 0 {
            return Ok(None);
        }
        Ok(self.request.take().map(|body| (body.play, check(body.length, body.crc.finalize()))))
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
        stream.crc.update(FINISH.as_bytes());
        let mut last = String::new();
        push_chunk(&mut last, FINISH);
        push_chunk(&mut last, &usage(stream.play.tokens, stream.crc.clone().finalize()));
        push_chunk(&mut last, DONE);
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
