//! A request's body that is held until its end, since its head can't go before it is known whether the body is changed.

use std::{collections::VecDeque, future::poll_fn};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::RequestTap;
use crate::{
    dialect::{ask_for_usage, is_vouched_for},
    upload::UploadFault,
};

/// The largest body that is held, in bytes: longer than the longest prompts that are text. To look through it takes up to
/// 13 ms (2 ms if most of it is an image, 2 µs for 2 KiB), which its worker has for nobody else. Larger ones go as they are.
const MOST: usize = 8 * 1024 * 1024;

/// What was held of a body. If it is not the whole, the rest follows from where it came.
pub(super) struct Held {
    pieces: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    /// Bytes of the pieces.
    left: u64,
    is_whole: bool,
    /// The body's length stands in its head.
    is_sized: bool,
}

impl RequestTap {
    /// Holds the body until its end and makes it ask for usage, if it is one that streams and does not say. Gives its new
    /// length, if it was changed. A body that turns out not to stream or to be too large is let go at once.
    ///
    /// # Cancel safety
    /// What came is lost. The exchange is over then.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub async fn ask_for_usage(&mut self) -> Result<Option<u64>, UploadFault> {
        let size = self.inner.size_hint();
        if self.inner.is_end_stream() || size.lower() > MOST as u64 {
            return Ok(None);
        }
        // In one piece of its own: frames are slices of read buffers, and a client could send one for each byte.
        let mut body = BytesMut::new();
        let mut trailers = None;
        self.is_held = true;
        while self.upload.ended().is_none() && body.len() <= MOST && !self.is_known_not_to_stream() {
            match poll_fn(|cx| self.poll_inner(cx)).await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => body.extend_from_slice(&bytes),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
                Some(Err(_)) => return Err(self.upload.fault().unwrap_or(UploadFault::Gone)),
                None => {}
            }
        }
        self.is_held = false;
        let is_whole = self.upload.ended().is_some();
        let body = body.freeze();
        // A digest may come behind what it is of.
        let may_change = is_whole && !trailers.as_ref().is_some_and(is_vouched_for);
        let edit = if may_change { ask_for_usage(&body) } else { None };
        let mut left = body.len() as u64;
        let pieces = match &edit {
            None => [body].into(),
            Some(edit) => {
                left = left - edit.at.len() as u64 + edit.with.len() as u64;
                let with = Bytes::from_static(edit.with.as_bytes());
                [body.slice(..edit.at.start), with, body.slice(edit.at.end..)].into()
            }
        };
        let is_sized = size.exact().is_some();
        self.held = Some(Box::new(Held { pieces, trailers, left, is_whole, is_sized }));
        Ok(edit.map(|_| left))
    }

    fn is_known_not_to_stream(&self) -> bool {
        let mut is_known = false;
        // While it is looked for it is not known.
        if self.scan.is_none() {
            self.upload.with_started(|_, facts| is_known = facts.stream == Some(false));
        }
        is_known
    }

    /// The next frame of what was held; absent if the rest, if there is any, comes from elsewhere.
    pub(super) fn next_held(&mut self) -> Option<Frame<Bytes>> {
        let held = self.held.as_mut()?;
        let frame = match held.pieces.pop_front() {
            Some(piece) => {
                held.left -= piece.len() as u64;
                Some(Frame::data(piece))
            }
            None => held.trailers.take().map(Frame::trailers),
        };
        // Of a body of known length the HTTP/1 client asks for no more than that.
        let filled = self.to_http1 && held.is_sized && held.left == 0;
        if held.is_whole && (held.has_ended() || filled) {
            self.upload.note_handed_over(self.clock.now());
        }
        frame
    }
}

impl Held {
    /// Nothing is left of it.
    fn has_ended(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none()
    }

    /// Whether the body has ended, of which the rest is `inner`.
    pub(super) fn is_end_stream(&self, inner: &impl Body) -> bool {
        self.has_ended() && (self.is_whole || inner.is_end_stream())
    }

    pub(super) fn size_hint(&self, inner: &impl Body) -> SizeHint {
        match inner.size_hint().exact() {
            _ if self.is_whole && self.is_sized => SizeHint::with_exact(self.left),
            Some(rest) if self.is_sized => SizeHint::with_exact(self.left + rest),
            _ => SizeHint::default(),
        }
    }

    /// The body is whole, and all of it is here.
    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }
}
