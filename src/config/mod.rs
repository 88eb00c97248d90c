//! The configuration, valid by construction: a [`Config`] that exists can be run.
//!
//! `raw` reads the TOML document, `value` single values, `build` and `upstreams` make these types of them and of the
//! flags, `error` tells what is wrong: every fault found, each with key, value, line and column. `effective` writes back.

mod build;
mod effective;
mod error;
mod raw;
mod upstreams;
mod value;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{HeaderName, HeaderValue, uri::Authority};

use crate::dialect::Dialect;

pub use self::error::{ConfigError, Fault};

/// Everything the gauge needs to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<Listener>,
    /// Where metrics and health are served; absent if switched off.
    pub admin: Option<SocketAddr>,
    /// Who may read of single exchanges there.
    pub admin_access: AdminAccess,
    /// How many of the last exchanges the admin listener remembers; 0 remembers none.
    pub recent: usize,
    /// Where clients send in what they measured themselves; absent unless set. Then `recent` is not 0.
    pub client_timings: Option<ClientTimings>,
    /// Worker threads; absent means one per core.
    pub workers: Option<usize>,
    /// How they share the work.
    pub runtime: Runtime,
    /// Arrivals are stamped by the kernel, where it can.
    pub kernel_stamps: bool,
    /// Providers; at least one, names unique.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Routes in the order they are tried; at most one default, which is last wherever it was written.
    pub routes: Vec<Route>,
    /// Metric settings.
    pub metrics: Metrics,
    /// Limits towards clients.
    pub limits: Limits,
    /// Where the record of each exchange goes.
    pub access_log: Option<LogTarget>,
    /// The gauge's own log: a `tracing` filter such as `info` or `streamgauge=debug`.
    pub log_level: String,
    /// A request header whose value is put into the record as `session`; never one that carries keys.
    pub session_header: Option<HeaderName>,
}

impl Config {
    /// Reads `file`, if there is one, and lays `overrides` over it.
    ///
    /// # Errors
    /// If the file can't be read, or with every fault found in it and in the overrides.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        let Some(file) = file else { return Self::from_toml("", Path::new(""), overrides) };
        let text = build::read(file)?;
        Self::from_toml(&text, file, overrides)
    }

    /// The same of text that was read already: `file` names it in faults, and its folder is where relative paths start.
    ///
    /// # Errors
    /// With every fault found.
    pub fn from_toml(text: &str, file: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        build::config(text, file, overrides)
    }

    /// How many threads keep the connections they were given, with upstream connections of their own. Of threads that share
    /// theirs, one.
    pub fn cores(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.runtime {
            Runtime::MultiThread => 1,
            Runtime::PerCore => self.workers.unwrap_or_else(all),
        }
    }

    /// The whole configuration as TOML, defaults written out. It holds no secret: keys stay in their files, and a URL
    /// with a user part or a query is refused before it gets here. Reading it gives an equal configuration.
    pub fn effective_toml(&self) -> String {
        effective::toml(self)
    }
}

/// What the command line and the environment say, as it was written. Each field that is there replaces what the file
/// says: `listen` and `tls_listen` together replace all its listeners, `upstreams` all its upstreams and routes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "each is the flag of the same name")]
pub struct Overrides {
    pub listen: Vec<String>,
    pub tls_listen: Option<String>,
    pub tls_cert: Option<String>,
    pub tls_key: Option<String>,
    pub workers: Option<String>,
    pub runtime: Option<String>,
    pub kernel_stamps: Option<String>,
    /// `[NAME=]URL`, each. One alone serves every path; of several each must have a name and serves the paths under
    /// `/NAME`, which is taken off.
    pub upstreams: Vec<String>,
    pub admin: Option<String>,
    pub admin_token_file: Option<String>,
    pub client_timings: Option<String>,
    pub access_log: Option<String>,
    pub log_level: Option<String>,
    /// `on` or `off`, for every route; without it each says for itself.
    pub observe: Option<String>,
    /// Every route asks for usage; without it each says for itself.
    pub ask_for_usage: bool,
    /// Every route adds `Server-Timing`; without it each says for itself.
    pub server_timing: bool,
    /// Every route adds the exchange's id; without it each says for itself.
    pub exchange_id: bool,
}

/// How worker threads share the work.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Runtime {
    /// What a connection has to do is done by whichever thread is free.
    #[default]
    MultiThread,
    /// Each thread has connections of its own, to both sides.
    PerCore,
}

/// One address clients connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Certificate and key, if it speaks TLS.
    pub tls: Option<KeyPair>,
}

/// Who may read of single exchanges on the admin listener: its live page and `/exchanges`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AdminAccess {
    /// A file with the token that readers must send; absent if they need none.
    pub token_file: Option<PathBuf>,
    /// Names under which it is asked for, besides `localhost`, in lower case. An address needs no name.
    pub allowed_hosts: Vec<String>,
}

/// Where clients send in what they measured themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientTimings {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// A file with the token that callers must send; absent if they need none.
    pub token_file: Option<PathBuf>,
    /// Origins of pages that may send from a browser, as browsers write them; empty lets none.
    pub allowed_origins: Vec<String>,
}

/// A certificate chain and its key, both PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPair {
    /// The chain, leaf first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    /// Its name: the `upstream` label.
    pub name: Arc<str>,
    /// Whether it is reached by TLS.
    pub tls: bool,
    /// Host and port, the port only if it was written.
    pub authority: Authority,
    /// Host alone, in lower case, without brackets: for name resolution and SNI.
    pub host: String,
    /// The port, by the scheme if it was not written.
    pub port: u16,
    /// Put before every request's path; empty or starting with `/`, never ending with one.
    pub base_path: String,
    /// The dialect it speaks where its paths don't tell; absent if nothing is hinted. Never [`Dialect::Other`].
    pub provider: Option<Dialect>,
    /// Further certificate authorities (PEM).
    pub ca_file: Option<PathBuf>,
    /// Which roots are trusted.
    pub roots: Roots,
    /// Certificate shown to the provider.
    pub client_certificate: Option<KeyPair>,
    /// HTTP version spoken to it.
    pub http: HttpVersion,
    /// Send the client's `Host` instead of the provider's.
    pub preserve_host: bool,
    /// Models whose series exist from the start.
    pub models: Vec<String>,
    /// Its limits.
    pub limits: UpstreamLimits,
}

/// Which certificate authorities are trusted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Roots {
    /// Mozilla's, compiled in.
    #[default]
    Webpki,
    /// The platform's store.
    Platform,
}

/// HTTP version towards an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum HttpVersion {
    /// By ALPN with TLS, HTTP/1.1 without.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only: by ALPN with TLS, with prior knowledge without.
    Http2,
}

/// Limits of one upstream. Only `connect` is on by default: a healthy thinking phase may be silent for minutes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamLimits {
    /// Resolving, TCP, TLS and HTTP handshake together.
    pub connect: Duration,
    /// From the request's departure to the response head.
    pub head: Option<Duration>,
    /// From the response head to the first body byte.
    pub first_byte: Option<Duration>,
    /// Between two reads of the response body.
    pub idle: Option<Duration>,
    /// The whole exchange.
    pub total: Option<Duration>,
    /// Connections at the same time; requests above it wait (`pool_wait`).
    pub max_connections: Option<usize>,
    /// How long a request waits for one of them.
    pub pool_wait: Option<Duration>,
    /// Exchanges at the same time on one HTTP/2 connection.
    pub max_streams_per_connection: usize,
    /// How long an unused connection is kept: shorter than the provider keeps it.
    pub idle_connection: Duration,
    /// How old a connection may grow before it is no longer reused, so that a moved provider is followed.
    pub max_connection_age: Duration,
    /// How long a resolved name is believed.
    pub dns_ttl: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: None,
            first_byte: None,
            idle: None,
            total: None,
            max_connections: None,
            pool_wait: None,
            max_streams_per_connection: 100,
            idle_connection: Duration::from_secs(15),
            max_connection_age: Duration::from_secs(300),
            dns_ttl: Duration::from_secs(30),
        }
    }
}

/// Which requests go where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// What it matches.
    pub matches: Matches,
    /// Take the matched prefix off before the base path is put on.
    pub strip_prefix: bool,
    /// Its exchanges are measured. If not, nothing below is on: it would need what is not read.
    pub observe: bool,
    /// Chat completions that stream and do not say whether they want their usage are made to ask for it.
    pub ask_for_usage: bool,
    /// Headers that answers get.
    pub adds: Adds,
    /// Where it leads.
    pub upstream: Arc<Upstream>,
    /// Its place in [`Config::upstreams`], so that what belongs to an upstream can be kept in a list beside them.
    pub upstream_index: usize,
}

/// Headers that a route's answers get beside their own; none unless set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Adds {
    /// `Server-Timing`, with the stages up to the answer's head.
    pub server_timing: bool,
    /// `X-Streamgauge-Id`, the exchange's id.
    pub exchange_id: bool,
}

/// What a route matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Matches {
    /// A path prefix at a segment's edge: `/openai` matches `/openai` and `/openai/v1`, not `/openai2`. Never ends with
    /// a slash; empty matches every path.
    PathPrefix(String),
    /// The `Host` header or `:authority` without its port, in lower case.
    Host(String),
    /// Everything else.
    Default,
}

/// Metric settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Hard bound on exposed series.
    pub max_series: usize,
    /// TTFT deadlines, rising, at most 8; empty counts none.
    pub deadlines: Vec<Duration>,
    /// Declared workloads, names unique; an exchange belongs to the first that matches.
    pub workloads: Vec<Workload>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            max_series: 32_000,
            deadlines: vec![Duration::from_millis(300), Duration::from_millis(600), Duration::from_secs(1)],
            workloads: Vec::new(),
        }
    }
}

/// A declared workload: exchanges inside its windows (and with its header, if set) are counted in families of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// The `workload` label.
    pub name: Arc<str>,
    /// Input tokens, both ends included; from 0 to `u64::MAX` if none was written.
    pub input_tokens: (u64, u64),
    /// Output tokens, likewise.
    pub output_tokens: (u64, u64),
    /// A request header that must be there with this value.
    pub header: Option<(HeaderName, HeaderValue)>,
}

/// Limits towards clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How long a request head may take to arrive.
    pub header_read: Duration,
    /// Bytes of a request head, at least 8 KiB.
    pub max_head_bytes: usize,
    /// Headers of a request.
    pub max_headers: usize,
    /// Bytes of a request body; absent means no limit.
    pub max_request_body: Option<u64>,
    /// Exchanges at the same time; above it the gateway answers 503.
    pub max_in_flight: Option<usize>,
    /// How long streams may run on after a stop was asked for.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_read: Duration::from_secs(30),
            max_head_bytes: 64 * 1024,
            max_headers: 100,
            max_request_body: None,
            max_in_flight: None,
            drain_timeout: Duration::from_secs(900),
        }
    }
}

/// Where records go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}
