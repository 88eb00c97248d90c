//! A message on its way out, on either side: its head lies in `out`, its body is polled.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use super::{
    Error, Outgoing,
    encode::{Encoder, Out},
    wire::{Link, lock},
};

/// A message on its way out.
pub(super) struct Sending<B> {
    /// Gone once all of it was sent, or as much as could be at once.
    body: Option<B>,
    has_ended: bool,
    encoder: Encoder,
    out: Out,
}

impl<B: Outgoing> Sending<B> {
    /// A message whose head lies in `out`.
    ///
    /// # Errors
    /// If the head promises a length, and the body has none.
    pub(super) fn new(body: B, encoder: Encoder, out: Out) -> Result<Self, Error> {
        let has_ended = body.is_end_stream() || matches!(encoder, Encoder::Nothing);
        let mut sending = Self { body: Some(body).filter(|_| !has_ended), has_ended, encoder, out };
        if has_ended {
            sending.ends()?;
        }
        Ok(sending)
    }

    /// Gathers what the body has, sends it, and waits for more; ready when all of it has left. The body is told each time that
    /// what it gave was sent, or as much as could be.
    ///
    /// The body is polled before the connection is looked at, never while it is: it may be read from there.
    pub(super) fn poll(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut is_blocked = false;
        loop {
            let mut waits = false;
            while let Some(body) = &mut self.body
                && !self.has_ended
                && !waits
                && !if is_blocked { self.out.is_full() } else { self.out.is_enough() }
            {
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Pending => waits = true,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Error::Body(error.into()))),
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(bytes) => {
                            self.encoder.data(bytes, &mut self.out);
                            if body.is_end_stream() || matches!(self.encoder, Encoder::Length(0)) {
                                self.ends()?;
                            }
                        }
                        Err(frame) => {
                            if let Ok(trailers) = frame.into_trailers() {
                                self.encoder.trailers(&trailers, &mut self.out);
                                self.has_ended = true;
                            }
                        }
                    },
                    Poll::Ready(None) => self.ends()?,
                }
            }
            let sent = if self.out.is_sent() {
                Poll::Ready(Ok(()))
            } else if is_blocked {
                Poll::Pending
            } else {
                lock(link).poll_send(cx, &mut self.out)
            };
            if let Some(body) = &mut self.body {
                body.was_sent();
                if self.has_ended {
                    self.body = None;
                }
            }
            let was_blocked = std::mem::replace(&mut is_blocked, sent?.is_pending());
            match (was_blocked, is_blocked) {
                (_, false) if self.has_ended => return Poll::Ready(Ok(())),
                (_, false) if waits => return Poll::Pending,
                (true, true) => return Poll::Pending,
                // There is more to gather, or while the other side takes nothing.
                _ => {}
            }
        }
    }

    fn ends(&mut self) -> Result<(), Error> {
        self.has_ended = true;
        self.encoder.end(&mut self.out)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        task::Waker,
    };

    use bytes::Bytes;
    use http_body::{Body, Frame};
    use tokio::io::{AsyncRead, DuplexStream, ReadBuf};

    use super::*;
    use crate::http1::wire::Wire;

    /// Gives these frames, and each time it is told that they were sent what the other side has by then.
    struct Watched {
        frames: Vec<&'static str>,
        other: DuplexStream,
        there: Vec<u8>,
        told: Arc<Mutex<Vec<String>>>,
    }

    impl Body for Watched {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.frames.pop().map(|frame| Ok(Frame::data(frame.into()))))
        }

        fn is_end_stream(&self) -> bool {
            self.frames.is_empty()
        }
    }

    impl Outgoing for Watched {
        fn was_sent(&mut self) {
            let mut room = [0; 64];
            let mut read = ReadBuf::new(&mut room);
            let _ = Pin::new(&mut self.other).poll_read(&mut Context::from_waker(Waker::noop()), &mut read);
            self.there.extend_from_slice(read.filled());
            self.told.lock().unwrap().push(String::from_utf8(self.there.clone()).unwrap());
        }
    }

    #[test]
    fn a_body_is_told_once_its_frames_were_sent_or_as_much_as_could_be() {
        for (room, told) in [(64, ["abcdef"].as_slice()), (4, &["abcd"])] {
            let (io, other) = tokio::io::duplex(room);
            let link = Arc::new(Mutex::new(Wire::new(Box::new(io), Bytes::new())));
            let seen = Arc::default();
            let body = Watched { frames: vec!["ef", "abcd"], other, there: Vec::new(), told: Arc::clone(&seen) };
            let mut sending = Sending::new(body, Encoder::UntilClose, Out::default()).unwrap();
            while sending.poll(&link, &mut Context::from_waker(Waker::noop())).is_pending() {}
            assert_eq!(*seen.lock().unwrap(), told, "{room} bytes of room");
        }
    }
}
