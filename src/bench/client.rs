//! One request as a client: lease, send, head, frames, each told to the exchange as the proxy's taps tell it.

use std::sync::Arc;

use crate::{config::Upstream, dialect::Dialect};

/// Whom to ask.
#[derive(Debug)]
pub(super) struct Target {
    /// What tables and the records' `upstream` call it: host and port, more where that is not unique.
    pub(super) name: Arc<str>,
    /// The model asked for.
    pub(super) model: String,
    /// How it is spoken to.
    pub(super) dialect: Dialect,
    /// Its address, certificates and limits.
    pub(super) upstream: Arc<Upstream>,
}
