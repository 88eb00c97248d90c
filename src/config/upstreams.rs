//! Upstreams and the routes to them, from the file or from `--upstream`.

use std::{collections::HashSet, sync::Arc};

use super::{
    Adds, HttpVersion, Matches, Overrides, Roots, Route, Upstream, UpstreamLimits,
    build::{MANY, key_pair},
    error::{At, Faults, suggest},
    raw::Section,
    value::{self, Url},
};
use crate::dialect::Dialect;

/// The contract's bound on models per upstream.
const MAX_MODELS: usize = 64;

/// An upstream as far as it could be read.
#[derive(Debug)]
pub(super) struct Draft {
    /// What routes call it; absent with a fault booked.
    name: Option<String>,
    /// Where its URL (or without one: it) was written.
    pub(super) at: At,
    /// Absent with a fault booked.
    pub(super) built: Option<Arc<Upstream>>,
}

/// Those of the flags if there are any, else those of the file. Routes are absent with a fault booked.
pub(super) fn read(
    root: &mut Section<'_>,
    overrides: &Overrides,
    faults: &Faults<'_>,
) -> (Vec<Draft>, Option<Vec<Route>>) {
    let (upstreams, mut routes) = written(root, overrides, faults);
    let observe = observe_flag(overrides, faults);
    for route in routes.iter_mut().flatten() {
        route.observe = observe.unwrap_or(route.observe);
        route.ask_for_usage = route.observe && (route.ask_for_usage || overrides.ask_for_usage);
        route.adds = Adds {
            server_timing: route.observe && (route.adds.server_timing || overrides.server_timing),
            exchange_id: route.observe && (route.adds.exchange_id || overrides.exchange_id),
        };
    }
    (upstreams, routes)
}

/// What `observe` may be.
const OBSERVE: [(&str, bool); 2] = [("on", true), ("off", false)];

/// What `--observe` says of every route.
fn observe_flag(overrides: &Overrides, faults: &Faults<'_>) -> Option<bool> {
    let text = overrides.observe.as_ref()?;
    let at = At::flag("--observe", text);
    let observe = faults.take(&at, value::one_of(text, &OBSERVE))?;
    let measured = [
        ("--ask-for-usage", overrides.ask_for_usage),
        ("--server-timing", overrides.server_timing),
        ("--exchange-id", overrides.exchange_id),
    ];
    for (flag, _) in measured.into_iter().filter(|(_, is_set)| *is_set && !observe) {
        faults.add(&at, format!("nothing is measured then: leave out `{flag}`"));
    }
    Some(observe)
}

fn written(root: &mut Section<'_>, overrides: &Overrides, faults: &Faults<'_>) -> (Vec<Draft>, Option<Vec<Route>>) {
    let written = file_upstreams(root, faults);
    let sections = root.tables("routes");
    let any_section = !sections.is_empty();
    let written_routes = file_routes(sections, &written, faults);
    if !overrides.upstreams.is_empty() {
        return flag_upstreams(&overrides.upstreams, faults);
    }
    let routes = match written.as_slice() {
        _ if any_section => written_routes,
        [] => {
            // A list that could not be read as one has its fault already.
            if !root.wrote("upstreams") {
                let hint =
                    "no upstream: give `--upstream URL`, or an `[[upstreams]]` section with `url = \"https://…\"`";
                faults.add(&faults.nowhere("--upstream"), hint);
            }
            None
        }
        [only] => only.built.clone().map(|upstream| vec![route(Matches::Default, false, &upstream, 0)]),
        [_, second, ..] => {
            faults.add(&second.at, "several upstreams need `[[routes]]` that say which requests go to which");
            None
        }
    };
    (written, routes)
}

fn file_upstreams(root: &mut Section<'_>, faults: &Faults<'_>) -> Vec<Draft> {
    let mut names = HashSet::new();
    root.tables("upstreams").into_iter().map(|section| file_upstream(section, &mut names, faults)).collect()
}

fn file_upstream(mut section: Section<'_>, names: &mut HashSet<String>, faults: &Faults<'_>) -> Draft {
    let url = section.string("url").and_then(|text| faults.take(&text.at, value::url(&text.value)));
    if !section.wrote("url") {
        faults.add(&section.at(), "`url` is missing: http:// or https:// and a host");
    }
    let at = section.at_of("url");
    let (name, name_at) = match section.string("name") {
        Some(name) => (faults.take(&name.at, value::name(&name.value)).map(str::to_owned), name.at),
        None if section.wrote("name") => (None, at.clone()),
        None => (url.as_ref().map(name_of), at.clone()),
    };
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        faults.add(&name_at, format!("another upstream is called `{name}`: give each a `name` of its own"));
    }
    let roots = one_of(&mut section, "roots", &[("webpki", Roots::Webpki), ("platform", Roots::Platform)], faults);
    let versions = [("auto", HttpVersion::Auto), ("1.1", HttpVersion::Http1), ("2", HttpVersion::Http2)];
    let http = one_of(&mut section, "http", &versions, faults);
    let read = Dialect::ALL.into_iter().filter(|dialect| *dialect != Dialect::Other);
    let dialects: Vec<_> = read.map(|dialect| (dialect.as_str(), dialect)).collect();
    let provider = one_of(&mut section, "provider", &dialects, faults);
    let ca_file = section.path("ca_file");
    let client_certificate = key_pair(&mut section, "client_certificate", "client_key", faults);
    if url.as_ref().is_some_and(|url| !url.tls) {
        for key in ["ca_file", "roots", "client_certificate"] {
            if section.wrote(key) {
                faults.add(&section.at_of(key), "only for an `https://` URL");
            }
        }
    }
    let preserve_host = section.boolean("preserve_host").unwrap_or_default();
    let models = models(&mut section, faults);
    let limits = limits(&mut section);
    section.finish();

    let built = url.zip(name.as_deref()).map(|(url, name)| {
        Arc::new(Upstream {
            provider,
            ca_file,
            roots: roots.unwrap_or_default(),
            client_certificate,
            http: http.unwrap_or_default(),
            preserve_host,
            models,
            limits,
            ..plain(name, url)
        })
    });
    Draft { name, at, built }
}

/// An upstream that says nothing but its URL.
fn plain(name: &str, url: Url) -> Upstream {
    Upstream {
        name: name.into(),
        tls: url.tls,
        authority: url.authority,
        host: url.host,
        port: url.port,
        base_path: url.base_path,
        provider: None,
        ca_file: None,
        roots: Roots::default(),
        client_certificate: None,
        http: HttpVersion::default(),
        preserve_host: false,
        models: Vec::new(),
        limits: UpstreamLimits::default(),
    }
}

/// What an upstream is called that has no name: its host; an IPv6 address can't be one.
fn name_of(url: &Url) -> String {
    value::name(&url.host).unwrap_or("default").to_owned()
}

fn one_of<T: Copy>(
    section: &mut Section<'_>,
    key: &'static str,
    choices: &[(&'static str, T)],
    faults: &Faults<'_>,
) -> Option<T> {
    let written = section.string(key)?;
    faults.take(&written.at, value::one_of(&written.value, choices))
}

fn models(section: &mut Section<'_>, faults: &Faults<'_>) -> Vec<String> {
    let written = section.strings("models").unwrap_or_default();
    if let Some(beyond) = written.get(MAX_MODELS) {
        faults.add(&beyond.at, format!("at most {MAX_MODELS} models per upstream"));
    }
    let mut models: Vec<String> = Vec::new();
    for model in written {
        let Some(name) = faults.take(&model.at, value::model(&model.value)) else { continue };
        if models.contains(&name) {
            faults.add(&model.at, "this model is there twice");
        }
        models.push(name);
    }
    models
}

fn limits(section: &mut Section<'_>) -> UpstreamLimits {
    let default = UpstreamLimits::default();
    let Some(mut section) = section.table("limits") else { return default };
    let streams = section.count("max_streams_per_connection", 1..=MANY);
    let limits = UpstreamLimits {
        connect: section.duration("connect").unwrap_or(default.connect),
        head: section.duration("head"),
        first_byte: section.duration("first_byte"),
        idle: section.duration("idle"),
        total: section.duration("total"),
        max_connections: section.count("max_connections", 1..=MANY),
        pool_wait: section.duration("pool_wait"),
        max_streams_per_connection: streams.unwrap_or(default.max_streams_per_connection),
        idle_connection: section.duration("idle_connection").unwrap_or(default.idle_connection),
        max_connection_age: section.duration("max_connection_age").unwrap_or(default.max_connection_age),
        dns_ttl: section.duration("dns_ttl").unwrap_or(default.dns_ttl),
    };
    section.finish();
    limits
}

/// The file's routes, the default moved to the end. Absent with a fault booked.
fn file_routes(sections: Vec<Section<'_>>, upstreams: &[Draft], faults: &Faults<'_>) -> Option<Vec<Route>> {
    let mut routes: Vec<Option<Route>> = Vec::new();
    let mut earlier: Vec<(Matches, String)> = Vec::new();
    for mut section in sections {
        let matches = matches(&mut section, faults);
        let strip = section.boolean("strip_prefix");
        if strip == Some(true) && !section.wrote("path_prefix") {
            faults.add(&section.at_of("strip_prefix"), "only with `path_prefix`");
        }
        let observe = one_of(&mut section, "observe", &OBSERVE, faults).unwrap_or(true);
        let ask_for_usage = section.boolean("ask_for_usage").unwrap_or_default();
        let adds = Adds {
            server_timing: section.boolean("server_timing").unwrap_or_default(),
            exchange_id: section.boolean("exchange_id").unwrap_or_default(),
        };
        let measured = [
            ("ask_for_usage", ask_for_usage),
            ("server_timing", adds.server_timing),
            ("exchange_id", adds.exchange_id),
        ];
        for (key, _) in measured.into_iter().filter(|(_, is_set)| *is_set && !observe) {
            faults.add(&section.at_of(key), "only where the route is measured: it has `observe = \"off\"`");
        }
        let target = target(&mut section, upstreams, faults);
        if let Some((matches, at)) = &matches {
            if let Some((_, first)) = earlier.iter().find(|(first, _)| covers(first, matches)) {
                faults
                    .add(at, format!("never reached: `{first}` takes these requests first, routes are tried in order"));
            }
            earlier.push((matches.clone(), at.key.clone()));
        }
        section.finish();
        routes.push(matches.zip(target).map(|((matches, _), (upstream, index))| Route {
            observe,
            ask_for_usage,
            adds,
            ..route(matches, strip.unwrap_or_default(), &upstream, index)
        }));
    }
    let mut routes: Vec<Route> = routes.into_iter().collect::<Option<_>>()?;
    routes.sort_by_key(|route| route.matches == Matches::Default);
    Some(routes)
}

/// What a route matches, and where that was written.
fn matches(section: &mut Section<'_>, faults: &Faults<'_>) -> Option<(Matches, At)> {
    let prefix = section.string("path_prefix").and_then(|text| {
        faults.take(&text.at, value::path_prefix(&text.value)).map(|prefix| (Matches::PathPrefix(prefix), text.at))
    });
    let host = section
        .string("host")
        .and_then(|text| faults.take(&text.at, value::host(&text.value)).map(|host| (Matches::Host(host), text.at)));
    let default = section.boolean("default") == Some(true);
    let default = default.then(|| (Matches::Default, section.at_of("default")));
    let written = ["path_prefix", "host", "default"].into_iter().filter(|key| section.wrote(key)).count();
    match written {
        1 if section.wrote("default") && default.is_none() => {
            faults.add(&section.at(), "a route matches by `path_prefix`, by `host`, or is the `default = true`");
            None
        }
        1 => prefix.or(host).or(default),
        0 => {
            faults.add(&section.at(), "a route matches by `path_prefix`, by `host`, or is the `default = true`");
            None
        }
        _ => {
            faults.add(&section.at(), "a route has one of `path_prefix`, `host` and `default`: make two routes of it");
            None
        }
    }
}

/// The upstream a route names, with its place.
fn target(section: &mut Section<'_>, upstreams: &[Draft], faults: &Faults<'_>) -> Option<(Arc<Upstream>, usize)> {
    let Some(wanted) = section.string("upstream") else {
        if !section.wrote("upstream") {
            faults.add(&section.at(), "`upstream` is missing: the name of one");
        }
        return None;
    };
    let index = upstreams.iter().position(|draft| draft.name.as_ref() == Some(&wanted.value));
    let Some(index) = index else {
        let names: Vec<&str> = upstreams.iter().filter_map(|draft| draft.name.as_deref()).collect();
        let hint = if names.is_empty() { "there is none".to_owned() } else { suggest(&wanted.value, &names) };
        faults.add(&wanted.at, format!("no upstream has this name: {hint}"));
        return None;
    };
    upstreams[index].built.clone().map(|upstream| (upstream, index))
}

/// Whether nothing is left for `later` where `first` is tried before it.
fn covers(first: &Matches, later: &Matches) -> bool {
    match (first, later) {
        (Matches::PathPrefix(first), Matches::PathPrefix(later)) => {
            later.strip_prefix(first.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        (Matches::PathPrefix(first), Matches::Host(_)) => first.is_empty(),
        (first, later) => first == later,
    }
}

fn route(matches: Matches, strip_prefix: bool, upstream: &Arc<Upstream>, upstream_index: usize) -> Route {
    let upstream = Arc::clone(upstream);
    let adds = Adds::default();
    Route { matches, strip_prefix, observe: true, ask_for_usage: false, adds, upstream, upstream_index }
}

/// One alone serves every path; each of several serves the paths under `/NAME`, which is taken off.
fn flag_upstreams(flags: &[String], faults: &Faults<'_>) -> (Vec<Draft>, Option<Vec<Route>>) {
    let mut names = HashSet::new();
    let drafts: Vec<Draft> = flags.iter().map(|flag| flag_upstream(flag, flags.len(), &mut names, faults)).collect();
    let alone = drafts.len() == 1;
    let routes = drafts.iter().enumerate().map(|(index, draft)| {
        let upstream = draft.built.as_ref()?;
        let matches = if alone { Matches::Default } else { Matches::PathPrefix(format!("/{}", upstream.name)) };
        Some(route(matches, !alone, upstream, index))
    });
    let routes = routes.collect();
    (drafts, routes)
}

fn flag_upstream(flag: &str, count: usize, names: &mut HashSet<String>, faults: &Faults<'_>) -> Draft {
    let at = At::flag("--upstream", flag);
    // An `=` further on belongs to the URL.
    let (name, url) = match flag.split_once('=') {
        Some((name, url)) if !name.contains([':', '/']) => (Some(name), url),
        _ => (None, flag),
    };
    let url = faults.take(&at, value::url(url));
    let name = match name {
        Some(name) => faults.take(&at, value::name(name)).map(str::to_owned),
        None if count == 1 => url.as_ref().map(name_of),
        None => {
            faults.add(&at, "of several upstreams each needs a name: NAME=URL serves the paths under /NAME");
            None
        }
    };
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        faults.add(&at, format!("another upstream is called `{name}`"));
    }
    let built = url.zip(name.as_deref()).map(|(url, name)| Arc::new(plain(name, url)));
    Draft { name, at, built }
}
