//! The load's side of HTTP/2: streams on as few connections as hold them.

use std::{
    future::Future,
    io,
    net::TcpStream,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::{RecvStream, client};
use http::Method;

use super::{
    http2::{News, WINDOW, Waits, Wire, failed, wire},
    system::{self, READ},
    wire::{PLAY, REQUEST_CHECK, Request},
};

/// Tokens of these connections at the epoll lie behind those of all calls.
const FIRST_TOKEN: u64 = 1 << 32;

pub(crate) struct Connections {
    port: u16,
    /// Streams on each.
    most: usize,
    all: Vec<Connection>,
    /// Numbers of calls that have news.
    pub(crate) news: News,
}

struct Connection {
    send: client::SendRequest<Bytes>,
    /// Gone once it has failed.
    runs: Option<Pin<Box<client::Connection<Wire, Bytes>>>>,
    waits: Waits,
    streams: usize,
}

/// A request and its answer.
pub(crate) struct Stream {
    connection: usize,
    response: client::ResponseFuture,
    body: Option<RecvStream>,
    waker: Waker,
}

/// What has come of an answer.
pub(crate) struct Came {
    /// Status and what the provider says of the request, with the first.
    pub(crate) head: Option<(u16, Option<String>)>,
    pub(crate) ended: bool,
}

impl Connections {
    pub(crate) fn new(port: u16, most: usize) -> Self {
        Self { port, most, all: Vec::new(), news: News::default() }
    }

    /// Whose token this is, if it is one of these.
    pub(crate) fn index(token: u64) -> Option<usize> {
        token.checked_sub(FIRST_TOKEN).map(|index| index as usize)
    }

    /// Sends a request on a connection that has room, or on a new one.
    pub(crate) fn start(&mut self, poll: &system::Poll, number: u64, request: &Request) -> io::Result<Stream> {
        let has_room = |one: &Connection| one.runs.is_some() && one.streams < self.most;
        let index = match self.all.iter().rposition(has_room) {
            Some(index) => index,
            None => self.connect(poll)?,
        };
        let connection = &mut self.all[index];
        let head = http::Request::builder()
            .method(Method::POST)
            .uri(format!("http://127.0.0.1:{}{}", self.port, request.path))
            .header("user-agent", "e2e/1")
            .header("accept", "application/json")
            .header("authorization", "Bearer none")
            .header(PLAY, &request.play)
            .header("content-type", "application/json")
            .header("content-length", request.body.len())
            .body(())
            .map_err(io::Error::other)?;
        let (response, mut body) = connection.send.send_request(head, false).map_err(failed)?;
        body.send_data(request.body.clone(), true).map_err(failed)?;
        connection.streams += 1;
        let stream = Stream { connection: index, response, body: None, waker: self.news.waker(number) };
        // Who has not been asked tells of nothing.
        stream.waker.wake_by_ref();
        self.drive(poll, index)?;
        Ok(stream)
    }

    fn connect(&mut self, poll: &system::Poll) -> io::Result<usize> {
        let socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let (wire, waits) = wire(socket);
        let mut builder = client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        // It only writes, and little.
        let handshake = pin!(builder.handshake(wire)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(made) = handshake else { return Err(io::ErrorKind::WouldBlock.into()) };
        let (send, runs) = made.map_err(failed)?;
        let index = self.all.len();
        poll.add(&*waits.socket, FIRST_TOKEN + index as u64, READ)?;
        self.all.push(Connection { send, runs: Some(Box::pin(runs)), waits, streams: 0 });
        Ok(index)
    }

    /// Reads and writes what can be; the streams that have news are then in `news`.
    pub(crate) fn drive(&mut self, poll: &system::Poll, index: usize) -> io::Result<()> {
        let connection = &mut self.all[index];
        let Some(runs) = &mut connection.runs else { return Ok(()) };
        match runs.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => connection.waits.arm(poll, FIRST_TOKEN + index as u64),
            // Its streams say what happened.
            Poll::Ready(_) => {
                connection.runs = None;
                Ok(())
            }
        }
    }

    /// A stream has ended: there is room for another.
    pub(crate) fn ended(&mut self, stream: &Stream) {
        self.all[stream.connection].streams -= 1;
    }
}

impl Stream {
    /// Takes what has come of an answer; its bytes go behind those in `bytes`.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>) -> io::Result<Came> {
        let mut cx = Context::from_waker(&self.waker);
        let mut came = Came { head: None, ended: false };
        let body = match &mut self.body {
            Some(body) => body,
            None => match Pin::new(&mut self.response).poll(&mut cx) {
                Poll::Pending => return Ok(came),
                Poll::Ready(response) => {
                    let (head, body) = response.map_err(failed)?.into_parts();
                    let check = head.headers.get(REQUEST_CHECK).and_then(|check| check.to_str().ok());
                    came.head = Some((head.status.as_u16(), check.map(str::to_owned)));
                    self.body.insert(body)
                }
            },
        };
        loop {
            match body.poll_data(&mut cx) {
                Poll::Pending => return Ok(came),
                Poll::Ready(Some(data)) => {
                    let data = data.map_err(failed)?;
                    body.flow_control().release_capacity(data.len()).map_err(failed)?;
                    bytes.extend_from_slice(&data);
                }
                Poll::Ready(None) => {
                    came.ended = true;
                    return Ok(came);
                }
            }
        }
    }
}
