//! What went wrong, on whose side, at which stage. `Display` prints one level; the chain is in `source()`.

use std::fmt;

/// Whose side a fault is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The client's.
    Downstream,
    /// Ours.
    Gateway,
    /// The provider's.
    Upstream,
}

/// Where on the way a fault happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Waiting for a free connection.
    Pool,
    /// Name resolution.
    Dns,
    /// TCP connect.
    Tcp,
    /// TLS handshake.
    Tls,
    /// HTTP handshake (preface, settings).
    Http,
    /// Sending the request.
    Request,
    /// Waiting for the response head.
    Head,
    /// Reading the response body.
    Body,
}

impl Stage {
    /// Its name in answers and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Request => "request",
            Self::Head => "head",
            Self::Body => "body",
        }
    }
}

/// A fault with its side, stage and cause.
#[derive(Debug)]
pub struct Error {
    /// Whose side.
    pub side: Side,
    /// Which stage.
    pub stage: Stage,
    /// Whether a limit of ours ended it.
    pub timed_out: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A fault on the upstream's side.
    pub fn upstream(stage: Stage, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { side: Side::Upstream, stage, timed_out: false, source: Some(source.into()) }
    }

    /// A limit of ours fired while the upstream was waited for.
    pub const fn timed_out(stage: Stage) -> Self {
        Self { side: Side::Upstream, stage, timed_out: true, source: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Downstream => "client",
            Side::Gateway => "gateway",
            Side::Upstream => "upstream",
        };
        let what = if self.timed_out { "timed out" } else { "failed" };
        write!(f, "{side} {} {what}", self.stage.as_str())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
