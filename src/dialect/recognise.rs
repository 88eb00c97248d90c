//! Path, host and headers → endpoint and dialect: the one table of all dialects.

use http::request::Parts;

use super::{Dialect, Endpoint};

/// What a request was recognised as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// What it is for.
    pub endpoint: Endpoint,
    /// Its wire protocol.
    pub dialect: Dialect,
}

/// Recognises a request by the suffix of its path.
pub fn recognise(_parts: &Parts) -> Recognised {
    Recognised { endpoint: Endpoint::Other, dialect: Dialect::Other }
}
