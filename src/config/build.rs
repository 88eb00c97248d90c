//! From what is written to what can be run. Reads every section before it judges, so that all faults are told at once.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use http::{HeaderName, HeaderValue};
use toml::de::DeTable;

use super::{
    AdminAccess, ClientTimings, Config, ConfigError, KeyPair, Limits, Listener, LogTarget, Metrics, Overrides, Runtime,
    Workload,
    error::{At, Faults, Written},
    raw::Section,
    upstreams::{self, Draft},
    value,
};

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// Far above what any machine has.
const MAX_WORKERS: usize = 1024;
/// Exchanges the admin listener remembers, some 2 KiB each.
const DEFAULT_RECENT: usize = 512;
const MAX_RECENT: usize = 100_000;
/// Far above what any machine or provider holds, far below what a semaphore or a frame can count.
pub(super) const MANY: usize = 1_000_000;
/// A deadline is a label value: a pair of series per model.
const MAX_DEADLINES: usize = 8;
/// A workload is a label value: three histograms per model.
const MAX_WORKLOADS: usize = 16;
/// hyper takes no smaller read buffer; the top keeps one client from taking the memory of thousands.
const HEAD_BYTES: std::ops::RangeInclusive<u64> = 8 * 1024..=16 * 1024 * 1024;

pub(super) fn read(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file).map_err(|error| {
        let at = At::flag("--config", &file.to_string_lossy());
        ConfigError::one(at, format!("the file can't be read: {error}"))
    })
}

pub(super) fn config(text: &str, file: &Path, overrides: &Overrides) -> Result<Config, ConfigError> {
    let faults = Faults::new(text, file);
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            let (at, message) = (faults.at_key("", span.clone()), error.message());
            // The parser names neither the key that is there twice nor the usual cause of an unreadable value.
            let more = match message {
                "duplicate key" => format!(" `{}`", text.get(span).unwrap_or_default()),
                _ if message.starts_with("invalid") => "; text stands in \"quotes\"".to_owned(),
                _ => String::new(),
            };
            return Err(ConfigError::one(at, format!("this is not TOML: {message}{more}")));
        }
    };
    let mut root = Section::root(table.get_ref(), &faults);
    let config = document(&mut root, overrides, &faults);
    root.finish();
    faults.finish(config)
}

/// The whole document under the overrides; absent only with a fault booked.
fn document(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> Option<Config> {
    let session_header = root.string("session_header").and_then(|h| faults.take(&h.at, value::header(&h.value)));
    let metrics = metrics(root, faults);
    let limits = limits(root);
    let workers = workers(root, overrides, faults);
    let runtime = runtime(root, overrides, faults);
    let kernel_stamps = kernel_stamps(root, overrides, faults);
    let access_log = access_log(root, overrides, faults);
    let log_level = log_level(root, overrides, faults);
    let (admin, admin_access, recent) = admin(root, overrides, faults);
    let client_timings = client_timings(root, overrides, recent, faults);
    let listeners = listeners(root, overrides, faults);
    let (upstreams, routes) = upstreams::read(root, overrides, faults);
    refuse_shared_addresses(&listeners, admin, client_timings.as_ref(), faults);
    refuse_loops(&listeners, &upstreams, faults);

    let mut listeners: Vec<Listener> = listeners.into_iter().map(|listener| listener.value).collect();
    if listeners.is_empty() {
        listeners.push(Listener { address: DEFAULT_LISTEN, tls: None });
    }
    let upstreams = upstreams.into_iter().map(|draft| draft.built).collect::<Option<_>>();
    Some(Config {
        listeners,
        admin,
        admin_access,
        recent,
        client_timings: client_timings.map(|written| written.value),
        workers,
        runtime,
        kernel_stamps,
        upstreams: upstreams?,
        routes: routes?,
        metrics,
        limits,
        access_log,
        log_level,
        session_header,
    })
}

fn listeners(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> Vec<Written<Listener>> {
    let plain = |text: Written<String>| {
        let address = faults.take(&text.at, value::address(&text.value))?;
        Some(Written { value: Listener { address, tls: None }, at: text.at })
    };
    let short = root.strings("listen").unwrap_or_default().into_iter();
    let mut written: Vec<_> = short.filter_map(plain).collect();
    for mut section in root.tables("listeners") {
        let address = section.string("address");
        let tls = key_pair(&mut section, "certificate", "key", faults);
        match address {
            None if section.wrote("address") => {}
            None => faults.add(&section.at(), "`address` is missing: IP:PORT"),
            Some(text) => written.extend(plain(text).map(|mut listener| {
                listener.value.tls = tls;
                listener
            })),
        }
        section.finish();
    }

    let flag = |flag, text: &String| Written { value: text.clone(), at: At::flag(flag, text) };
    let mut flags: Vec<_> = overrides.listen.iter().filter_map(|text| plain(flag("--listen", text))).collect();
    match (&overrides.tls_listen, &overrides.tls_cert, &overrides.tls_key) {
        (None, None, None) => {}
        (Some(address), Some(certificate), Some(key)) => {
            let pair = KeyPair { certificate: certificate.into(), key: key.into() };
            flags.extend(plain(flag("--tls-listen", address)).map(|mut listener| {
                listener.value.tls = Some(pair);
                listener
            }));
        }
        (Some(address), _, _) => {
            faults.add(&At::flag("--tls-listen", address), "needs `--tls-cert FILE` and `--tls-key FILE` beside it");
        }
        (None, Some(file), _) => faults.add(&At::flag("--tls-cert", file), "needs `--tls-listen ADDR` beside it"),
        (None, None, Some(file)) => faults.add(&At::flag("--tls-key", file), "needs `--tls-listen ADDR` beside it"),
    }
    if overrides.listen.is_empty() && overrides.tls_listen.is_none() { written } else { flags }
}

/// A certificate and its key: both or none.
pub(super) fn key_pair(
    section: &mut Section<'_>,
    certificate: &'static str,
    key: &'static str,
    faults: &Faults<'_>,
) -> Option<KeyPair> {
    let (has_certificate, has_key) = (section.path(certificate), section.path(key));
    match (has_certificate, has_key) {
        (Some(certificate), Some(key)) => Some(KeyPair { certificate, key }),
        (Some(_), None) if !section.wrote(key) => {
            faults.add(&section.at_of(certificate), format!("needs `{key}` beside it"));
            None
        }
        (None, Some(_)) if !section.wrote(certificate) => {
            faults.add(&section.at_of(key), format!("needs `{certificate}` beside it"));
            None
        }
        _ => None,
    }
}

/// Where the admin listener is, who may read of single exchanges there, and how many it remembers.
fn admin(
    root: &mut Section<'_>,
    overrides: &Overrides,
    faults: &Faults<'_>,
) -> (Option<SocketAddr>, AdminAccess, usize) {
    let (mut written, mut recent, mut access) = (None, None, AdminAccess::default());
    if let Some(mut section) = root.table("admin") {
        written = section.string("address");
        access.token_file = section.path("token_file");
        let hosts = section.strings("allowed_hosts").unwrap_or_default().into_iter();
        access.allowed_hosts = hosts.filter_map(|text| faults.take(&text.at, value::host(&text.value))).collect();
        recent = section.count("recent", 0..=MAX_RECENT);
        section.finish();
    }
    let flag = overrides.admin.as_ref().map(|text| Written { value: text.clone(), at: At::flag("--admin", text) });
    // The file's own value is judged even where a flag replaces it.
    let judge = |text: Written<String>| match text.value.as_str() {
        "off" => None,
        address => faults.take(&text.at, value::address(address).map_err(|e| format!("{e}; or `off`"))),
    };
    let written = written.map(judge);
    if let Some(file) = &overrides.admin_token_file {
        access.token_file = Some(file.into());
    }
    (flag.map(judge).or(written).unwrap_or(Some(DEFAULT_ADMIN)), access, recent.unwrap_or(DEFAULT_RECENT))
}

/// Where clients send in their own timings: a section, a flag, or both.
fn client_timings(
    root: &mut Section<'_>,
    overrides: &Overrides,
    recent: usize,
    faults: &Faults<'_>,
) -> Option<Written<ClientTimings>> {
    let (mut written, mut token_file, mut allowed_origins) = (None, None, Vec::new());
    if let Some(mut section) = root.table("client_timings") {
        written = section.string("address");
        if !section.wrote("address") && overrides.client_timings.is_none() {
            faults.add(&section.at(), "`address` is missing: IP:PORT");
        }
        token_file = section.path("token_file");
        let origins = section.strings("allowed_origins").unwrap_or_default().into_iter();
        allowed_origins = origins.filter_map(|text| faults.take(&text.at, value::origin(&text.value))).collect();
        section.finish();
    }
    let flag = overrides.client_timings.as_ref();
    let flag = flag.map(|text| Written { value: text.clone(), at: At::flag("--client-timings", text) });
    let judge = |text: Written<String>| match text.value.as_str() {
        "off" => None,
        address => {
            let address = value::address(address).map_err(|e| format!("{e}; or `off`"));
            Some(Written { value: faults.take(&text.at, address)?, at: text.at })
        }
    };
    let written = written.map(judge);
    let Written { value: address, at } = flag.map(judge).or(written).flatten()?;
    if recent == 0 {
        faults.add(&at, "`recent = 0` in `[admin]` remembers no exchange that a timing could belong to: leave it out");
    }
    Some(Written { value: ClientTimings { address, token_file, allowed_origins }, at })
}

fn workers(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> Option<usize> {
    let written = root.count("workers", 1..=MAX_WORKERS);
    let Some(text) = &overrides.workers else { return written };
    let count = text.parse().ok().filter(|count| (1..=MAX_WORKERS).contains(count));
    faults.take(&At::flag("--workers", text), count.ok_or_else(|| format!("must be from 1 to {MAX_WORKERS}")))
}

fn runtime(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> Runtime {
    const SHAPES: [(&str, Runtime); 2] = [("multi-thread", Runtime::MultiThread), ("per-core", Runtime::PerCore)];
    let judge = |text: Written<String>| faults.take(&text.at, value::one_of(&text.value, &SHAPES));
    let written = root.string("runtime").and_then(judge);
    let flag = overrides.runtime.as_ref();
    let flag = flag.map(|text| Written { value: text.clone(), at: At::flag("--runtime", text) });
    flag.and_then(judge).or(written).unwrap_or_default()
}

fn kernel_stamps(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> bool {
    let written = root.boolean("kernel_stamps");
    let flag = overrides.kernel_stamps.as_ref().and_then(|text| {
        faults
            .take(&At::flag("--kernel-stamps", text), text.parse().map_err(|_| "must be `true` or `false`".to_owned()))
    });
    flag.or(written).unwrap_or(true)
}

fn access_log(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> Option<LogTarget> {
    let target = |text: &str, folder: &Path, at: &At| match text {
        "" => {
            faults.add(at, "a file, or `-` for standard output");
            None
        }
        "-" => Some(LogTarget::Stdout),
        file => Some(LogTarget::File(folder.join(file))),
    };
    let written = root.string("access_log").and_then(|log| target(&log.value, faults.folder(), &log.at));
    match &overrides.access_log {
        Some(text) => target(text, Path::new(""), &At::flag("--access-log", text)),
        None => written,
    }
}

fn log_level(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> String {
    let judge = |text: Written<String>| faults.take(&text.at, value::log_filter(&text.value));
    let written = root.string("log_level").and_then(judge);
    let flag = overrides.log_level.as_ref();
    let flag = flag.map(|text| Written { value: text.clone(), at: At::flag("--log-level", text) });
    flag.and_then(judge).or(written).unwrap_or_else(|| "info".to_owned())
}

fn metrics(root: &mut Section<'_>, faults: &Faults<'_>) -> Metrics {
    let default = Metrics::default();
    let Some(mut section) = root.table("metrics") else { return default };
    let max_series = section.count("max_series", 100..=MANY).unwrap_or(default.max_series);
    let deadlines = match section.durations("deadlines") {
        None => default.deadlines,
        Some(written) => {
            for pair in written.windows(2) {
                if pair[0].value >= pair[1].value {
                    faults.add(&pair[1].at, "deadlines rise, and each is there once");
                }
            }
            if let Some(beyond) = written.get(MAX_DEADLINES) {
                faults.add(&beyond.at, format!("at most {MAX_DEADLINES} deadlines: each costs series per model"));
            }
            written.into_iter().map(|deadline| deadline.value).collect()
        }
    };
    let mut names = HashSet::new();
    let mut workloads = Vec::new();
    for (index, mut section) in section.tables("workloads").into_iter().enumerate() {
        if index == MAX_WORKLOADS {
            faults.add(
                &section.at(),
                format!("at most {MAX_WORKLOADS} workloads: each costs three histograms per model"),
            );
        }
        workloads.extend(workload(&mut section, &mut names, faults));
        section.finish();
    }
    section.finish();
    Metrics { max_series, deadlines, workloads }
}

fn workload(section: &mut Section<'_>, names: &mut HashSet<String>, faults: &Faults<'_>) -> Option<Workload> {
    let name = section.string("name");
    let input_tokens = section.window("input_tokens");
    let output_tokens = section.window("output_tokens");
    let header = workload_header(section, faults);
    if !["input_tokens", "output_tokens", "header"].iter().any(|key| section.wrote(key)) {
        faults.add(&section.at(), "matches everything: give it `input_tokens`, `output_tokens` or `header`");
    }
    let Some(name) = name else {
        if !section.wrote("name") {
            faults.add(&section.at(), "`name` is missing");
        }
        return None;
    };
    faults.take(&name.at, value::name(&name.value))?;
    if !names.insert(name.value.clone()) {
        faults.add(&name.at, "another workload has this name");
    }
    Some(Workload {
        name: name.value.into(),
        input_tokens: input_tokens.unwrap_or((0, u64::MAX)),
        output_tokens: output_tokens.unwrap_or((0, u64::MAX)),
        header,
    })
}

fn workload_header(section: &mut Section<'_>, faults: &Faults<'_>) -> Option<(HeaderName, HeaderValue)> {
    let (name, wanted) = (section.string("header"), section.string("header_value"));
    match (name, wanted) {
        (Some(name), Some(wanted)) => {
            let header = faults.take(&name.at, value::header(&name.value));
            let wanted_value = wanted.value.parse().map_err(|_| "not a header's value".to_owned());
            header.zip(faults.take(&wanted.at, wanted_value))
        }
        (Some(name), None) if !section.wrote("header_value") => {
            faults.add(&name.at, "needs `header_value` beside it");
            None
        }
        (None, Some(wanted)) if !section.wrote("header") => {
            faults.add(&wanted.at, "needs `header` beside it");
            None
        }
        _ => None,
    }
}

fn limits(root: &mut Section<'_>) -> Limits {
    let default = Limits::default();
    let Some(mut section) = root.table("limits") else { return default };
    let head = section.size("max_head_bytes", HEAD_BYTES).and_then(|bytes| usize::try_from(bytes).ok());
    let limits = Limits {
        header_read: section.duration("header_read").unwrap_or(default.header_read),
        max_head_bytes: head.unwrap_or(default.max_head_bytes),
        max_headers: section.count("max_headers", 1..=4096).unwrap_or(default.max_headers),
        max_request_body: section.size("max_request_body", 1..=1 << 50),
        max_in_flight: section.count("max_in_flight", 1..=MANY),
        drain_timeout: section.duration("drain_timeout").unwrap_or(default.drain_timeout),
    };
    section.finish();
    limits
}

fn refuse_shared_addresses(
    listeners: &[Written<Listener>],
    admin: Option<SocketAddr>,
    client_timings: Option<&Written<ClientTimings>>,
    faults: &Faults<'_>,
) {
    let mut taken: HashSet<SocketAddr> = admin.into_iter().collect();
    if let Some(Written { value: ClientTimings { address, .. }, at }) = client_timings
        && address.port() != 0
        && !taken.insert(*address)
    {
        faults.add(at, "the admin listener has this address");
    }
    for listener in listeners {
        // Port 0 lets the system choose: never the same twice.
        if listener.value.address.port() != 0 && !taken.insert(listener.value.address) {
            let who = if admin == Some(listener.value.address) { "the admin listener" } else { "another listener" };
            faults.add(&listener.at, format!("{who} has this address"));
        }
    }
}

/// An upstream that is one of our own listeners would send a request round and round until the sockets run out.
fn refuse_loops(listeners: &[Written<Listener>], upstreams: &[Draft], faults: &Faults<'_>) {
    let own: Vec<SocketAddr> = match listeners {
        [] => vec![DEFAULT_LISTEN],
        _ => listeners.iter().map(|listener| listener.value.address).collect(),
    };
    for draft in upstreams {
        let Some(upstream) = &draft.built else { continue };
        let ip = match upstream.host.as_str() {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            host => match host.parse() {
                Ok(ip) => ip,
                Err(_) => continue,
            },
        };
        let here = |own: &SocketAddr| own.ip() == ip || own.ip().is_unspecified() && ip.is_loopback();
        if own.iter().any(|own| own.port() == upstream.port && here(own)) {
            faults.add(&draft.at, "this is the gauge's own listener: requests would go round in a circle");
        }
    }
}
