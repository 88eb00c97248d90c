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
    /// Gone once it has ended.
    body: Option<B>,
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
        let mut sending = Self { body: Some(body), encoder, out };
        if has_ended {
            sending.ends()?;
        }
        Ok(sending)
    }

    /// Gathers what the body has, sends it, and waits for more; ready when all of it has left.
    ///
    /// The body is polled before the connection is looked at, never while it is: it may be read from there.
    pub(super) fn poll(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut is_blocked = false;
        loop {
            let mut waits = false;
            while let Some(body) = &mut self.body
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
                                self.body = None;
                            }
                        }
                    },
                    Poll::Ready(None) => self.ends()?,
                }
            }
            if self.out.is_sent() {
                return if self.body.is_none() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if is_blocked {
                return Poll::Pending;
            }
            is_blocked = lock(link).poll_send(cx, &mut self.out)?.is_pending();
            if waits && !is_blocked {
                return Poll::Pending;
            }
        }
    }

    fn ends(&mut self) -> Result<(), Error> {
        self.body = None;
        self.encoder.end(&mut self.out)
    }
}
