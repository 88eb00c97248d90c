//! A bounded look at a request body as it passes: which model, and whether a stream is asked for.

use http::request::Parts;

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestFacts {
    /// The model's name as the client wrote it; absent if none was found within the bound.
    pub model: Option<String>,
    /// Whether the client asked for a stream; absent if it did not say.
    pub stream: Option<bool>,
}

/// Reads a request body in pieces, holding nothing but the fields it looks for.
#[derive(Debug)]
pub struct RequestScan {}

impl RequestScan {
    /// A look at the body of this request. What the head already says (URL, query, header) is taken from there.
    pub fn new(_recognised: super::Recognised, _parts: &Parts) -> Self {
        Self {}
    }

    /// Reads the next piece of the body. Gives the facts as soon as all are known, once.
    pub fn read(&mut self, _piece: &[u8]) -> Option<RequestFacts> {
        None
    }

    /// The body has ended or the bound was reached: what is known by now. Absent if `read` gave the facts already.
    pub fn finish(&mut self) -> Option<RequestFacts> {
        None
    }
}
