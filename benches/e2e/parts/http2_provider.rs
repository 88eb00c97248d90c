//! The provider's side of HTTP/2: its streams beside those of HTTP/1.1, due in the same heap.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::TcpStream,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server};
use http::{Request, Response};

use super::{
    http2::{News, WINDOW, Waits, Wire, failed, wire},
    provider::{Body, Frames, Stream},
    system::now,
    wire::{PLAY, Play, REQUEST_CHECK, ROLE, plain},
};

pub(crate) struct Http2 {
    state: State,
    pub(crate) waits: Waits,
    streams: BTreeMap<u64, Answer>,
    news: News,
}

enum State {
    Handshake(Pin<Box<server::Handshake<Wire, Bytes>>>),
    Open(Box<server::Connection<Wire, Bytes>>),
}

enum Answer {
    /// The request is still coming.
    Asked {
        body: RecvStream,
        read: Body,
        respond: server::SendResponse<Bytes>,
        waker: Waker,
    },
    /// Nothing of it has been sent.
    Due(Stream, server::SendResponse<Bytes>),
    Sent(Stream, SendStream<Bytes>),
}

impl Http2 {
    pub(crate) fn new(socket: &TcpStream) -> io::Result<Self> {
        let (wire, waits) = wire(socket.try_clone()?);
        let mut builder = server::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).max_concurrent_streams(1000);
        let state = State::Handshake(Box::pin(builder.handshake(wire)));
        Ok(Self { state, waits, streams: BTreeMap::new(), news: News::default() })
    }

    /// Reads and writes what can be. Each request that has come whole gets a number, and `due` is told when its answer is.
    pub(crate) fn serve(&mut self, began: &mut u64, mut due: impl FnMut(u64, u64)) -> io::Result<()> {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut numbers = Vec::new();
        loop {
            let connection = match &mut self.state {
                State::Open(connection) => connection,
                State::Handshake(handshake) => match handshake.as_mut().poll(cx) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(connection) => {
                        self.state = State::Open(Box::new(connection.map_err(failed)?));
                        continue;
                    }
                },
            };
            while let Poll::Ready(request) = connection.poll_accept(cx) {
                let Some(request) = request else { return Err(io::ErrorKind::UnexpectedEof.into()) };
                let (request, respond) = request.map_err(failed)?;
                *began += 1;
                numbers.push(*began);
                self.streams.insert(*began, asked(request, respond, self.news.waker(*began))?);
            }
            let mut told = Vec::new();
            self.news.take(&mut told);
            numbers.append(&mut told);
            if numbers.is_empty() {
                return Ok(());
            }
            for number in numbers.drain(..) {
                // A client that has left takes nothing else with it.
                match self.streams.get_mut(&number).map(Answer::read) {
                    Some(Ok(Some((play, request)))) => self.answer(number, play, request, &mut due)?,
                    Some(Err(_)) => drop(self.streams.remove(&number)),
                    Some(Ok(None)) | None => {}
                }
            }
        }
    }

    fn answer(&mut self, number: u64, play: Play, request: String, mut due: impl FnMut(u64, u64)) -> io::Result<()> {
        let Some(Answer::Asked { mut respond, .. }) = self.streams.remove(&number) else { return Ok(()) };
        if play.stream {
            let stream = Stream::new(play, request);
            due(stream.due(), number);
            self.streams.insert(number, Answer::Due(stream, respond));
            return Ok(());
        }
        let body = plain(play.tokens);
        let head = head("application/json", &request).header("content-length", body.len());
        let mut send = respond.send_response(head.body(()).map_err(io::Error::other)?, false).map_err(failed)?;
        send.send_data(body.into(), true).map_err(failed)
    }

    /// Queues what is due next of a stream, and gives when the one after it is; nothing if it has ended or its client has
    /// left.
    pub(crate) fn send_next(&mut self, number: u64, frames: &mut Frames) -> Option<u64> {
        let answer = self.streams.remove(&number)?;
        let (mut stream, mut send, mut bytes) = match answer {
            Answer::Due(stream, mut respond) => {
                let head =
                    head("text/event-stream; charset=utf-8", &stream.request).header("cache-control", "no-cache");
                let send = respond.send_response(head.body(()).ok()?, false).ok()?;
                (stream, send, ROLE.as_bytes().to_vec())
            }
            Answer::Sent(stream, send) => (stream, send, Vec::new()),
            Answer::Asked { .. } => return None,
        };
        stream.crc.update(&bytes);
        let ends = stream.next >= stream.play.tokens;
        if ends {
            bytes.extend_from_slice(stream.last().concat().as_bytes());
        } else {
            bytes.extend_from_slice(frames.of(stream.play.event_bytes).stamped_event(now(), &mut stream.crc));
        }
        stream.next += 1;
        send.send_data(bytes.into(), ends).ok()?;
        if ends {
            return None;
        }
        let next = stream.due();
        self.streams.insert(number, Answer::Sent(stream, send));
        Some(next)
    }
}

impl Answer {
    /// Reads what has come of the request; what it asks once it is whole.
    fn read(&mut self) -> io::Result<Option<(Play, String)>> {
        let Self::Asked { body, read, waker, .. } = self else { return Ok(None) };
        let cx = &mut Context::from_waker(waker);
        let mut is_whole = false;
        while let Poll::Ready(Some(data)) = body.poll_data(cx) {
            let data = data.map_err(failed)?;
            body.flow_control().release_capacity(data.len()).map_err(failed)?;
            is_whole = read.take(&data)?;
        }
        Ok((is_whole || body.is_end_stream()).then(|| (read.play, read.check())))
    }
}

fn asked(request: Request<RecvStream>, respond: server::SendResponse<Bytes>, waker: Waker) -> io::Result<Answer> {
    let (head, body) = request.into_parts();
    let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let play = header(PLAY).and_then(Play::parse).ok_or(io::ErrorKind::InvalidData)?;
    let length = header("content-length").and_then(|length| length.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Answer::Asked { body, read: Body::new(play, length), respond, waker })
}

fn head(content_type: &str, request: &str) -> http::response::Builder {
    Response::builder().header("content-type", content_type).header(REQUEST_CHECK, request)
}
