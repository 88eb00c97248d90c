//! What a simulated provider says of its own time in each request: measured by its own clock, never scripted, so that what
//! a gauge sees beyond it is the way between the two.

use http::response;

use super::wire::Protocol;
pub use crate::cli::Reports;
use crate::clock::{Clock, Nanos, Stamp};

impl Reports {
    /// Its times stand in the bodies of this protocol; elsewhere the head tells what it can.
    pub(super) const fn in_body(self, protocol: Protocol) -> bool {
        matches!(
            (self, protocol),
            (Self::Groq | Self::Cerebras, Protocol::Chat) | (Self::Vllm, Protocol::Chat | Protocol::Responses)
        )
    }

    /// Adds the time that making the head took: of a stream it knows nothing of the body, of a plain answer all.
    pub(super) fn head(self, protocol: Protocol, taken: Nanos, response: response::Builder) -> response::Builder {
        if self == Self::None || self.in_body(protocol) {
            return response;
        }
        let millis = taken.0 / 1_000_000;
        match protocol {
            Protocol::Messages => response.header("server-timing", format!("x-originResponse;dur={millis}")),
            Protocol::Chat | Protocol::Responses => response.header("openai-processing-ms", millis),
        }
    }
}

/// One request's times by the provider's own clock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Times {
    /// From the request's last byte until generation starts.
    pub(super) queue: Nanos,
    /// From there to the hand-over of the first output event.
    pub(super) prompt: Nanos,
    /// From the first output event to the last.
    pub(super) completion: Nanos,
    /// From the request's last byte to where this is said.
    pub(super) total: Nanos,
}

/// Takes the times of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    clock: Clock,
    arrived: Stamp,
    start: Stamp,
    /// The first output event and the latest.
    outputs: Option<(Stamp, Stamp)>,
}

impl Watch {
    pub(super) const fn new(clock: Clock, arrived: Stamp, start: Stamp) -> Self {
        Self { clock, arrived, start, outputs: None }
    }

    /// An output event is handed over now.
    pub(super) fn output(&mut self) {
        let now = self.clock.now();
        self.outputs = Some((self.outputs.map_or(now, |(first, _)| first), now));
    }

    pub(super) fn times(&self) -> Times {
        let now = self.clock.now();
        let (first, last) = self.outputs.unwrap_or((now, now));
        Times {
            queue: self.start.since(self.arrived),
            prompt: first.since(self.start),
            completion: last.since(first),
            total: now.since(self.arrived),
        }
    }
}
