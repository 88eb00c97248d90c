//! A configuration written back as TOML, defaults included.

use std::{fmt::Display, time::Duration};

use super::{Config, HttpVersion, KeyPair, LogTarget, Matches, Roots, Route, Runtime, Upstream, Workload};

pub(super) fn toml(config: &Config) -> String {
    let mut out = Writer(String::new());
    if let Some(workers) = config.workers {
        out.bare("workers", workers);
    }
    out.text(
        "runtime",
        match config.runtime {
            Runtime::MultiThread => "multi-thread",
            Runtime::PerCore => "per-core",
        },
    );
    out.bare("kernel_stamps", config.kernel_stamps);
    match &config.access_log {
        None => {}
        Some(LogTarget::Stdout) => out.text("access_log", "-"),
        Some(LogTarget::File(file)) => out.text("access_log", file.display()),
    }
    out.text("log_level", &config.log_level);
    if let Some(header) = &config.session_header {
        out.text("session_header", header);
    }
    for listener in &config.listeners {
        out.section("[listeners]");
        out.text("address", listener.address);
        out.key_pair("certificate", "key", listener.tls.as_ref());
    }
    out.section("admin");
    match config.admin {
        Some(address) => out.text("address", address),
        None => out.text("address", "off"),
    }
    if let Some(file) = &config.admin_access.token_file {
        out.text("token_file", file.display());
    }
    out.list("allowed_hosts", &config.admin_access.allowed_hosts);
    out.bare("recent", config.recent);
    if let Some(timings) = &config.client_timings {
        out.section("client_timings");
        out.text("address", timings.address);
        if let Some(file) = &timings.token_file {
            out.text("token_file", file.display());
        }
        out.list("allowed_origins", &timings.allowed_origins);
    }
    config.upstreams.iter().for_each(|it| upstream(&mut out, it));
    config.routes.iter().for_each(|it| route(&mut out, it));

    out.section("metrics");
    out.bare("max_series", config.metrics.max_series);
    out.list("deadlines", config.metrics.deadlines.iter().map(|deadline| humantime::format_duration(*deadline)));
    config.metrics.workloads.iter().for_each(|it| workload(&mut out, it));

    let limits = &config.limits;
    out.section("limits");
    out.duration("header_read", Some(limits.header_read));
    out.bare("max_head_bytes", limits.max_head_bytes);
    out.bare("max_headers", limits.max_headers);
    out.maybe("max_request_body", limits.max_request_body);
    out.maybe("max_in_flight", limits.max_in_flight);
    out.duration("drain_timeout", Some(limits.drain_timeout));
    out.0
}

fn upstream(out: &mut Writer, upstream: &Upstream) {
    let scheme = if upstream.tls { "https" } else { "http" };
    out.section("[upstreams]");
    out.text("name", &upstream.name);
    out.text("url", format_args!("{scheme}://{}{}", upstream.authority, upstream.base_path));
    if let Some(provider) = upstream.provider {
        out.text("provider", provider.as_str());
    }
    if upstream.tls {
        out.text(
            "roots",
            match upstream.roots {
                Roots::Webpki => "webpki",
                Roots::Platform => "platform",
            },
        );
        if let Some(file) = &upstream.ca_file {
            out.text("ca_file", file.display());
        }
        out.key_pair("client_certificate", "client_key", upstream.client_certificate.as_ref());
    }
    out.text(
        "http",
        match upstream.http {
            HttpVersion::Auto => "auto",
            HttpVersion::Http1 => "1.1",
            HttpVersion::Http2 => "2",
        },
    );
    out.bare("preserve_host", upstream.preserve_host);
    out.list("models", &upstream.models);

    let limits = &upstream.limits;
    out.section("upstreams.limits");
    out.duration("connect", Some(limits.connect));
    out.duration("head", limits.head);
    out.duration("first_byte", limits.first_byte);
    out.duration("idle", limits.idle);
    out.duration("total", limits.total);
    out.maybe("max_connections", limits.max_connections);
    out.duration("pool_wait", limits.pool_wait);
    out.bare("max_streams_per_connection", limits.max_streams_per_connection);
    out.duration("idle_connection", Some(limits.idle_connection));
    out.duration("max_connection_age", Some(limits.max_connection_age));
    out.duration("dns_ttl", Some(limits.dns_ttl));
}

fn route(out: &mut Writer, route: &Route) {
    out.section("[routes]");
    match &route.matches {
        Matches::PathPrefix(prefix) => {
            out.text("path_prefix", if prefix.is_empty() { "/" } else { prefix });
            out.bare("strip_prefix", route.strip_prefix);
        }
        Matches::Host(host) => out.text("host", host),
        Matches::Default => out.bare("default", true),
    }
    out.text("upstream", &route.upstream.name);
    out.text("observe", if route.observe { "on" } else { "off" });
    if route.observe {
        out.bare("ask_for_usage", route.ask_for_usage);
        out.bare("server_timing", route.adds.server_timing);
        out.bare("exchange_id", route.adds.exchange_id);
    }
}

fn workload(out: &mut Writer, workload: &Workload) {
    out.section("[metrics.workloads]");
    out.text("name", &workload.name);
    out.window("input_tokens", workload.input_tokens);
    out.window("output_tokens", workload.output_tokens);
    if let Some((header, value)) = &workload.header {
        out.text("header", header);
        out.text("header_value", String::from_utf8_lossy(value.as_bytes()));
    }
}

struct Writer(String);

impl Writer {
    /// `name` with brackets of its own is one of a list.
    fn section(&mut self, name: &str) {
        self.line(format_args!("\n[{name}]"));
    }

    fn text(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {}", quoted(value)));
    }

    fn bare(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {value}"));
    }

    fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.bare(key, value);
        }
    }

    fn duration(&mut self, key: &str, value: Option<Duration>) {
        if let Some(value) = value {
            self.text(key, humantime::format_duration(value));
        }
    }

    fn list<T: Display>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        let values: Vec<String> = values.into_iter().map(quoted).collect();
        self.line(format_args!("{key} = [{}]", values.join(", ")));
    }

    /// The full window is the same as none.
    fn window(&mut self, key: &str, (least, most): (u64, u64)) {
        if (least, most) != (0, u64::MAX) {
            self.line(format_args!("{key} = [{least}, {most}]"));
        }
    }

    fn key_pair(&mut self, certificate: &str, key: &str, pair: Option<&KeyPair>) {
        if let Some(pair) = pair {
            self.text(certificate, pair.certificate.display());
            self.text(key, pair.key.display());
        }
    }

    fn line(&mut self, line: impl Display) {
        self.0.push_str(&line.to_string());
        self.0.push('\n');
    }
}

fn quoted(value: impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}
