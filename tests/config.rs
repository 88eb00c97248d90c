//! The configuration as a user meets it: the files we ship, what a fault says, and which source stands above which.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on says so")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use streamgauge::{
    cli::{self, Command, RunArgs},
    config::{Adds, Config, HttpVersion, LogTarget, Matches, Overrides, Route},
    dialect::Dialect,
};

use proptest::prelude::*;

const ONE: &str = "[[upstreams]]\nurl = \"https://api.example.com\"\n";
const TWO: &str = "[[upstreams]]\nname = \"a\"\nurl = \"https://a.example\"\n\n\
                   [[upstreams]]\nname = \"b\"\nurl = \"https://b.example\"\n";

fn read(text: &str) -> Result<Config, String> {
    Config::from_toml(text, Path::new("streamgauge.toml"), &Overrides::default()).map_err(|error| error.to_string())
}

fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let files = [folder.join("examples"), folder].into_iter().flat_map(|f| fs::read_dir(f).unwrap());
    let files = files.map(|file| file.unwrap().path()).filter(|file| file.extension().is_some_and(|e| e == "toml"));
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

fn commented() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/streamgauge.toml")).unwrap()
}

fn args(line: &str) -> RunArgs {
    match cli::parse_from(line.split(' ')) {
        Ok(Command::Run(args) | Command::Check(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

/// The line without its mark, if it is a key or a section behind `mark`.
fn uncommented<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(mark)?;
    let key = rest.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    (key || rest.starts_with('[') && rest.ends_with(']')).then_some(rest)
}

/// The commented file with every default and every example switched on.
fn everything() -> String {
    let text = commented();
    let lines = text.lines().map(|line| uncommented(line, "# ").or(uncommented(line, "#")).unwrap_or(line));
    lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_shipped_file_loads_and_writes_back_equal() {
    let files = shipped();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let config = Config::load(Some(&file), &Overrides::default());
        let config = config.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(read(&config.effective_toml()).as_ref(), Ok(&config), "{}", file.display());
    }
}

#[test]
fn the_commented_files_defaults_are_the_defaults() {
    let text = commented();
    let mut taken = 0;
    let lines: Vec<&str> = text
        .lines()
        .map(|line| match uncommented(line, "#") {
            Some(rest) => {
                taken += 1;
                rest
            }
            None => line,
        })
        .collect();
    assert!(taken > 15, "only {taken} defaults found");
    let plain = read("[[upstreams]]\nurl = \"https://api.openai.com\"").unwrap();
    assert_eq!(read(&text).unwrap(), plain);
    assert_eq!(read(&lines.join("\n")).unwrap(), plain);
}

#[test]
fn the_commented_file_knows_every_key_and_its_examples_load() {
    let text = commented();
    let config = read(&everything()).unwrap();
    assert_eq!(read(&config.effective_toml()).as_ref(), Ok(&config));

    // What all that comes to has every key that there is, so each must stand in the file.
    let mut keys = 0;
    for line in config.effective_toml().lines() {
        let Some((key, _)) = line.split_once(" = ") else { continue };
        keys += 1;
        let stands = |line: &str| line.trim_start_matches(['#', ' ']).starts_with(&format!("{key} = "));
        assert!(text.lines().any(stands), "`{key}` is not explained");
    }
    assert!(keys > 40, "only {keys} keys");
}

#[test]
fn a_full_configuration_writes_back_equal() {
    let full = "workers = 3\nkernel_stamps = false\naccess_log = \"-\"\nlog_level = \"warn,streamgauge=debug\"\nsession_header = \"X-Session\"\n\
        listen = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"[::1]:8443\"\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n\
        [admin]\naddress = \"off\"\ntoken_file = \"a\"\nallowed_hosts = [\"Gauge.Example\", \"::1\"]\n[client_timings]\naddress = \"[::1]:9466\"\ntoken_file = \"t\"\n\
        allowed_origins = [\"https://A.example:443\", \"http://localhost:3000\"]\n\
        [[upstreams]]\nname = \"a\"\nurl = \"https://[::1]:8444/v1/\"\nprovider = \"anthropic\"\nca_file = \"ca.pem\"\n\
        roots = \"platform\"\nclient_certificate = \"cc.pem\"\nclient_key = \"ck.pem\"\nhttp = \"2\"\n\
        preserve_host = true\nmodels = [\"m \\\"1\\\"\", \"größer\"]\n[upstreams.limits]\nconnect = \"1s\"\nhead = \"2s\"\n\
        first_byte = \"3s\"\nidle = \"4s 500ms\"\ntotal = \"1h\"\nmax_connections = 7\npool_wait = \"8ms\"\n\
        max_streams_per_connection = 9\nidle_connection = \"10s\"\nmax_connection_age = \"11s\"\ndns_ttl = \"12s\"\n\
        [[upstreams]]\nurl = \"http://b.example:81\"\n\
        [[routes]]\ndefault = true\nupstream = \"a\"\nask_for_usage = true\nserver_timing = true\nexchange_id = true\n\
        [[routes]]\nhost = \"B.example\"\nupstream = \"b.example\"\n\
        [[routes]]\npath_prefix = \"/\"\nupstream = \"a\"\n\
        [metrics]\nmax_series = 1_000\ndeadlines = []\n[[metrics.workloads]]\nname = \"w\"\ninput_tokens = [0x10, 20]\n\
        header = \"x-w\"\nheader_value = \"v\"\n\
        [limits]\nheader_read = \"5s\"\nmax_head_bytes = 8192\nmax_headers = 10\nmax_request_body = \"1MiB\"\n\
        max_in_flight = 5\ndrain_timeout = \"1min\"";
    let config = read(full).unwrap();
    let [a, b] = config.upstreams.as_slice() else { panic!("{:?}", config.upstreams) };
    assert_eq!((a.host.as_str(), a.port, a.base_path.as_str(), a.tls), ("::1", 8444, "/v1", true));
    assert_eq!(
        (a.http, a.models[0].as_str(), a.limits.idle),
        (HttpVersion::Http2, "m \"1\"", Some(Duration::from_millis(4500)))
    );
    assert_eq!((&*b.name, b.port, b.tls), ("b.example", 81, false));
    let matches: Vec<_> = config.routes.iter().map(|route| (&route.matches, route.upstream_index)).collect();
    let prefix = Matches::PathPrefix(String::new());
    let host = Matches::Host("b.example".to_owned());
    assert_eq!(matches, [(&host, 1), (&prefix, 0), (&Matches::Default, 0)]);
    assert_eq!(config.metrics.workloads[0].input_tokens, (16, 20));
    assert_eq!(config.metrics.workloads[0].output_tokens, (0, u64::MAX));
    assert_eq!(config.admin, None);
    assert_eq!(config.admin_access.token_file, Some("a".into()));
    assert_eq!(config.admin_access.allowed_hosts, ["gauge.example", "::1"]);
    let timings = config.client_timings.as_ref().unwrap();
    assert_eq!(timings.allowed_origins, ["https://a.example", "http://localhost:3000"]);
    assert_eq!(read(&config.effective_toml()).as_ref(), Ok(&config));
}

#[test]
fn relative_paths_start_from_the_files_folder() {
    let text = format!("access_log = \"log/x.jsonl\"\n{ONE}ca_file = \"/etc/ca.pem\"\n");
    let config = Config::from_toml(&text, Path::new("conf/streamgauge.toml"), &Overrides::default()).unwrap();
    assert_eq!(config.access_log, Some(LogTarget::File("conf/log/x.jsonl".into())));
    assert_eq!(config.upstreams[0].ca_file, Some("/etc/ca.pem".into()));
}

#[test]
fn one_upstream_alone_serves_every_path() {
    for line in
        ["streamgauge --upstream http://127.0.0.1:9000/v1", "streamgauge run --upstream=http://127.0.0.1:9000/v1"]
    {
        let config = args(line).config().unwrap();
        assert_eq!(config.upstreams.len(), 1, "{line}");
        assert_eq!((&*config.upstreams[0].name, config.upstreams[0].base_path.as_str()), ("127.0.0.1", "/v1"));
        assert_eq!(config.routes[0].matches, Matches::Default);
        assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:8080");
        assert_eq!(config.admin.unwrap().to_string(), "127.0.0.1:9464");
    }
    let named = args("streamgauge --upstream sim=http://127.0.0.1:9000/?").config().unwrap_err();
    assert!(named.to_string().contains("query"), "{named}");
    let named = args("streamgauge --upstream sim=http://127.0.0.1:9000").config().unwrap();
    assert_eq!(&*named.upstreams[0].name, "sim");
}

#[test]
fn several_upstreams_serve_the_paths_under_their_names() {
    let config = args("streamgauge --upstream a=https://a.example --upstream b=https://b.example/x").config().unwrap();
    let routes: Vec<_> = config.routes.iter().map(|r| (&r.matches, r.strip_prefix, r.upstream_index)).collect();
    let prefix = |path: &str| Matches::PathPrefix(path.to_owned());
    assert_eq!(routes, [(&prefix("/a"), true, 0), (&prefix("/b"), true, 1)]);
}

#[test]
fn flags_replace_what_the_file_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples/tls-listener.toml");
    let file = file.to_str().unwrap();
    let written = args(&format!("streamgauge --config {file}")).config().unwrap();
    assert_eq!(written.listeners.len(), 2);
    let config = args(&format!(
        "streamgauge --config {file} --listen 127.0.0.1:1,127.0.0.1:2 --listen 127.0.0.1:3 --admin off --workers 2 \
         --kernel-stamps false --client-timings 127.0.0.1:4 --admin-token-file t \
         --upstream http://127.0.0.1:9 --access-log - --log-level debug"
    ));
    let config = config.config().unwrap();
    assert_eq!(config.listeners.iter().map(|l| l.address.port()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((config.admin, config.workers, config.access_log), (None, Some(2), Some(LogTarget::Stdout)));
    assert!(written.kernel_stamps && !config.kernel_stamps);
    assert_eq!((config.log_level.as_str(), config.upstreams.len()), ("debug", 1));
    assert_eq!(config.client_timings.unwrap().address.port(), 4);
    assert_eq!(config.admin_access.token_file, Some("t".into()));
    let off = format!("{ONE}[client_timings]\naddress = \"127.0.0.1:9466\"");
    let flag = Overrides { client_timings: Some("off".to_owned()), ..Overrides::default() };
    assert_eq!(Config::from_toml(&off, Path::new("f.toml"), &flag).unwrap().client_timings, None);
    let tls = args("streamgauge --upstream http://h --tls-listen [::]:8443 --tls-cert c.pem --tls-key k.pem");
    let tls = tls.config().unwrap();
    assert_eq!((tls.listeners.len(), tls.listeners[0].tls.is_some()), (1, true));
}

/// Sets variables for this test's own program, run again: they belong to the process, and tests share one.
#[test]
fn variables_stand_between_flags_and_file() {
    const INNER: &str = "STREAMGAUGE_TEST_INNER";
    if std::env::var_os(INNER).is_none() {
        let inner = process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "variables_stand_between_flags_and_file", "--nocapture"])
            .env(INNER, "1")
            .env("STREAMGAUGE_CONFIG", Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples/tls-listener.toml"))
            .env("STREAMGAUGE_LISTEN", "127.0.0.1:11,127.0.0.1:12")
            .env("STREAMGAUGE_LOG_LEVEL", "debug")
            .env("STREAMGAUGE_WORKERS", "")
            .env("STREAMGAUGE_ASK_FOR_USAGE", "true")
            .env("STREAMGAUGE_SERVER_TIMING", "1")
            .env("STREAMGAUGE_EXCHANGE_ID", "no")
            .env("STREAMGAUGE_UPSTREAM", "")
            .output()
            .unwrap();
        assert!(inner.status.success(), "{}", String::from_utf8_lossy(&inner.stderr));
        return;
    }
    let config = args("streamgauge --log-level warn").config().unwrap();
    assert_eq!(config.log_level, "warn", "the flag stands above the variable");
    assert_eq!(config.listeners.len(), 2, "the variable stands above the file");
    assert_eq!(config.listeners[1].address.port(), 12);
    assert_eq!((&*config.upstreams[0].name, config.workers), ("openai", None), "an empty variable is none");
    assert!(config.routes.iter().all(|route| route.ask_for_usage), "a variable without a value of its own");
    let adds = Adds { server_timing: true, exchange_id: false };
    assert!(config.routes.iter().all(|route| route.adds == adds), "{:?}", config.routes);
    let check = args("streamgauge check").config().unwrap();
    assert_eq!(check.log_level, "debug", "a variable does not hinder a subcommand");
    assert!(matches!(cli::parse_from(["streamgauge", "version"]), Ok(Command::Version)));
}

#[test]
fn the_other_commands_have_their_defaults() {
    let Ok(Command::Sim(sim)) = cli::parse_from(["streamgauge", "sim"]) else { panic!() };
    assert_eq!(sim.listen.to_string(), "127.0.0.1:9000");
    assert_eq!((sim.ttft, sim.tokens_per_second, sim.output_tokens), (Duration::from_millis(200), 60.0, 200));
    let Ok(Command::Demo(demo)) = cli::parse_from(["streamgauge", "demo", "--for", "20"]) else { panic!() };
    assert_eq!(demo.duration, Some(Duration::from_secs(20)));
    let Ok(Command::Demo(demo)) = cli::parse_from(["streamgauge", "demo", "--for", "2min"]) else { panic!() };
    assert_eq!(demo.duration, Some(Duration::from_secs(120)));
    for line in [
        "streamgauge demo --for 0",
        "streamgauge sim --error-rate 2",
        "streamgauge sim --jitter NaN",
        "streamgauge --upstrem x",
    ] {
        assert!(cli::parse_from(line.split(' ')).is_err(), "{line}");
    }
}

#[test]
fn help_shows_every_flag_with_its_variable() {
    let help = cli::parse_from(["streamgauge", "run", "--help"]).unwrap_err();
    assert_eq!(help.exit_code(), 0);
    let help = help.to_string();
    let (options, _) = help.split_once("Examples:").unwrap();
    let flags: Vec<&str> = options.lines().filter_map(|line| line.trim_start().strip_prefix("--")).collect();
    assert_eq!(flags.len(), 18, "{flags:?}");
    for flag in flags {
        let name = flag.split(' ').next().unwrap();
        let variable = format!("[env: STREAMGAUGE_{}]", name.to_uppercase().replace('-', "_"));
        assert!(help.contains(&variable), "{variable} is not explained in\n{help}");
    }
    // Errors are told by the flag's name alone, so a flag and its variable may not part.
    let brief = cli::parse_from(["streamgauge", "--help"]).unwrap_err().to_string();
    for command in ["run", "check", "demo", "sim", "version"] {
        assert!(brief.lines().any(|line| line.trim_start().starts_with(command)), "{command} is not in\n{brief}");
    }
}

#[test]
fn a_provider_hint_is_the_name_of_a_dialect_that_is_read() {
    for dialect in Dialect::ALL {
        let name = dialect.as_str();
        let file = format!("[[upstreams]]\nurl = \"https://h\"\nprovider = \"{name}\"\n");
        let provider = read(&file).map(|config| config.upstreams[0].provider);
        if dialect == Dialect::Other {
            assert!(provider.is_err(), "which is no hint");
        } else {
            assert_eq!(provider.unwrap(), Some(dialect));
            assert!(commented().contains(name), "{name} is explained in the file");
        }
    }
}

#[test]
fn what_changes_bytes_is_on_where_a_route_or_the_flag_says_so() {
    let asks = |config: &Config| {
        let each = |route: &Route| (route.ask_for_usage, route.adds.server_timing, route.adds.exchange_id);
        let each: Vec<_> = config.routes.iter().map(each).collect();
        assert!(each.iter().all(|(usage, timing, id)| usage == timing && usage == id), "{each:?}");
        each.into_iter().map(|(usage, ..)| usage).collect::<Vec<_>>()
    };
    let file = format!(
        "{TWO}[[routes]]\ndefault = true\nupstream = \"a\"\nask_for_usage = true\nserver_timing = true\n\
         exchange_id = true\n\
         [[routes]]\npath_prefix = \"/b\"\nupstream = \"b\"\n"
    );
    assert_eq!(asks(&read(&file).unwrap()), [false, true]);
    let all = Overrides { ask_for_usage: true, server_timing: true, exchange_id: true, ..Overrides::default() };
    assert_eq!(asks(&Config::from_toml(&file, Path::new("f.toml"), &all).unwrap()), [true, true]);
    assert_eq!(asks(&read(ONE).unwrap()), [false]);
    assert_eq!(asks(&Config::from_toml(ONE, Path::new("f.toml"), &all).unwrap()), [true]);
    let flags = "streamgauge --upstream a=https://a.example --upstream b=https://b.example";
    assert_eq!(asks(&args(flags).config().unwrap()), [false, false]);
    assert_eq!(
        asks(&args(&format!("{flags} --ask-for-usage --server-timing --exchange-id")).config().unwrap()),
        [true, true]
    );
}

#[test]
fn what_is_measured_is_said_by_a_route_or_by_the_flag() {
    let each = |config: &Config| {
        let each = config.routes.iter().map(|route| (route.observe, route.ask_for_usage, route.adds.exchange_id));
        each.collect::<Vec<_>>()
    };
    let file = format!(
        "{TWO}[[routes]]\ndefault = true\nupstream = \"a\"\nobserve = \"off\"\n\
         [[routes]]\npath_prefix = \"/b\"\nupstream = \"b\"\nask_for_usage = true\nexchange_id = true\n"
    );
    let with = |observe: &str| Overrides { observe: Some(observe.to_owned()), ..Overrides::default() };
    let under = |flags: &Overrides| Config::from_toml(&file, Path::new("f.toml"), flags);
    assert_eq!(each(&read(&file).unwrap()), [(true, true, true), (false, false, false)]);
    assert_eq!(each(&under(&with("off")).unwrap()), [(false, false, false); 2], "what needs it is off with it");
    assert_eq!(each(&under(&with("on")).unwrap()), [(true, true, true), (true, false, false)]);
    let all = Overrides { ask_for_usage: true, exchange_id: true, ..Overrides::default() };
    assert_eq!(each(&under(&all).unwrap()), [(true, true, true), (false, false, false)], "of those that are measured");
    let again = read(&under(&Overrides::default()).unwrap().effective_toml()).unwrap();
    assert_eq!(again, read(&file).unwrap());
    assert_eq!(each(&args("streamgauge --upstream http://a --observe off").config().unwrap()), [(false, false, false)]);
    assert_eq!(each(&read(ONE).unwrap()), [(true, false, false)]);
}

/// Each a fault a user makes; the snapshot is what they read.
#[test]
fn refusals() {
    let routes = |routes: &str| format!("{TWO}{routes}");
    let upstream = |keys: &str| format!("{ONE}{keys}");
    let url = |url: &str| format!("[[upstreams]]\nurl = \"{url}\"\n");
    let metrics = |keys: &str| format!("{ONE}[metrics]\n{keys}");
    let files = [
        ("empty file", String::new()),
        ("not TOML", "listen = 127.0.0.1:8080\n".to_owned()),
        ("a key twice", format!("workers = 1\nworkers = 2\n{ONE}")),
        ("unknown key with a near one", metrics("max_serie = 100")),
        ("unknown key far from all", metrics("zebra = 100")),
        ("unknown section", format!("{ONE}[limit]\nmax_headers = 10")),
        ("a top key inside a section", format!("{ONE}[limits]\nworkers = 2")),
        ("an unknown key that holds a secret", upstream("api_key = \"sk-secret\"")),
        ("wrong type: number for string", "[[upstreams]]\nurl = 5".to_owned()),
        ("wrong type: string for number", format!("workers = \"four\"\n{ONE}")),
        ("wrong type: number for truth", format!("kernel_stamps = 1\n{ONE}")),
        ("wrong type: string for boolean", upstream("preserve_host = \"yes\"")),
        ("wrong type: value for section", format!("admin = \"off\"\n{ONE}")),
        ("wrong type: section for list of sections", "[upstreams]\nurl = \"https://a.example\"".to_owned()),
        ("wrong type: number in list", upstream("models = [\"a\", 4]")),
        ("a bare duration", upstream("[upstreams.limits]\nconnect = 30")),
        ("a duration in a string without unit", upstream("[upstreams.limits]\nidle = \"1.5\"")),
        ("an unknown unit", upstream("[upstreams.limits]\nidle = \"5 mins and a bit\"")),
        ("a zero limit", upstream("[upstreams.limits]\nhead = \"0s\"\nmax_connections = 0")),
        ("an endless limit", upstream("[upstreams.limits]\ntotal = \"1year\"")),
        ("a size in no known unit", format!("{ONE}[limits]\nmax_request_body = \"10 megs\"")),
        ("a head smaller than a read buffer", format!("{ONE}[limits]\nmax_head_bytes = \"4KiB\"")),
        ("a negative count", format!("{ONE}[limits]\nmax_in_flight = -1")),
        ("no URL", "[[upstreams]]\nname = \"a\"".to_owned()),
        ("a URL without scheme", url("api.example.com")),
        ("a URL of another scheme", url("ws://api.example.com")),
        ("a URL with user and password", url("https://me:hunter2@api.example.com/v1")),
        ("a URL with a query", url("https://api.example.com/v1?key=sk-secret")),
        ("a URL with a fragment", url("https://api.example.com/#v1")),
        ("a URL with a bad port", url("https://api.example.com:99999")),
        ("a URL with a bad host", url("https://api_.example..com")),
        ("a name that is no label", upstream("name = \"Open AI\"")),
        ("two upstreams of one name", format!("{TWO}[[upstreams]]\nname = \"a\"\nurl = \"https://c.example\"\n{TWO}")),
        ("an unknown choice", upstream("http = \"1.0\"\nroots = \"webpkis\"\nprovider = \"openai\"")),
        ("a certificate without its key", upstream("client_certificate = \"c.pem\"")),
        ("TLS settings for a plain URL", format!("{}ca_file = \"ca.pem\"", url("http://h"))),
        ("a model twice, a reserved one", upstream("models = [\"a\", \"a\", \"_other\"]")),
        ("several upstreams without routes", TWO.to_owned()),
        ("a route to nowhere", routes("[[routes]]\ndefault = true\nupstream = \"aa\"")),
        ("a route without upstream", routes("[[routes]]\ndefault = true")),
        ("a route that matches nothing", routes("[[routes]]\nupstream = \"a\"")),
        ("a route that matches twice", routes("[[routes]]\nhost = \"h\"\npath_prefix = \"/\"\nupstream = \"a\"")),
        ("a prefix without slash", routes("[[routes]]\npath_prefix = \"openai\"\nupstream = \"a\"")),
        ("a host with a port", routes("[[routes]]\nhost = \"h:80\"\nupstream = \"a\"")),
        ("a host with a star", routes("[[routes]]\nhost = \"*.h\"\nupstream = \"a\"")),
        (
            "wrong type: string for a route's boolean",
            routes("[[routes]]\ndefault = true\nupstream = \"a\"\nask_for_usage = \"yes\""),
        ),
        ("neither on nor off", routes("[[routes]]\ndefault = true\nupstream = \"a\"\nobserve = \"times\"")),
        (
            "what needs measuring where nothing is measured",
            routes(
                "[[routes]]\ndefault = true\nupstream = \"a\"\nobserve = \"off\"\nask_for_usage = true\nserver_timing = false",
            ),
        ),
        ("strip_prefix without prefix", routes("[[routes]]\nhost = \"h\"\nstrip_prefix = true\nupstream = \"a\"")),
        (
            "a route that is never reached",
            routes(
                "[[routes]]\npath_prefix = \"/v1\"\nupstream = \"a\"\n[[routes]]\npath_prefix = \"/v1/chat\"\nupstream = \"b\"",
            ),
        ),
        (
            "several defaults",
            routes("[[routes]]\ndefault = true\nupstream = \"a\"\n[[routes]]\ndefault = true\nupstream = \"b\""),
        ),
        ("an address without IP", format!("listen = [\":8080\", \"localhost:8080\", \"8080\"]\n{ONE}")),
        (
            "a listener with a key but no certificate",
            format!("{ONE}[[listeners]]\naddress = \"0.0.0.0:1\"\nkey = \"k\""),
        ),
        ("a listener without address", format!("{ONE}[[listeners]]\n")),
        ("two listeners on one address", format!("listen = [\"[::1]:80\", \"[::1]:80\"]\n{ONE}")),
        ("the admin address twice", format!("listen = \"127.0.0.1:9464\"\n{ONE}")),
        ("client timings without an address", format!("{ONE}[client_timings]\ntoken_file = \"t\"")),
        ("client timings of nothing", format!("{ONE}[admin]\nrecent = 0\n[client_timings]\naddress = \"127.0.0.1:1\"")),
        (
            "client timings where metrics are, from anywhere",
            format!("{ONE}[client_timings]\naddress = \"127.0.0.1:9464\"\nallowed_origins = [\"*\", \"https://h/x\"]"),
        ),
        ("a bad admin address", format!("{ONE}[admin]\naddress = \"on\"")),
        ("an upstream that is the gauge", url("http://localhost:8080")),
        ("a header that is none", format!("session_header = \"x session\"\n{ONE}")),
        ("a header that carries keys", format!("session_header = \"Authorization\"\n{ONE}")),
        ("a log level with a typo", format!("log_level = \"inof\"\n{ONE}")),
        ("deadlines out of order", metrics("deadlines = [\"1s\", \"300ms\", \"300ms\"]")),
        (
            "too many deadlines",
            metrics("deadlines = [\"1s\", \"2s\", \"3s\", \"4s\", \"5s\", \"6s\", \"7s\", \"8s\", \"9s\", \"10s\"]"),
        ),
        ("a window upside down", metrics("[[metrics.workloads]]\nname = \"w\"\ninput_tokens = [1100, 900]")),
        ("a window of one number", metrics("[[metrics.workloads]]\nname = \"w\"\ninput_tokens = 1000")),
        ("a workload of everything", metrics("[[metrics.workloads]]\nname = \"w\"")),
        ("a workload without name", metrics("[[metrics.workloads]]\noutput_tokens = [1, 2]")),
        (
            "two workloads of one name, half a header",
            metrics(
                "[[metrics.workloads]]\nname = \"w\"\noutput_tokens = [1, 2]\n[[metrics.workloads]]\nname = \"w\"\nheader = \"x\"",
            ),
        ),
    ];
    let mut all = String::new();
    for (name, text) in &files {
        let error = read(text).expect_err(name);
        assert!(!error.contains("hunter2") && !error.contains("sk-secret"), "{error}");
        writeln!(all, "━━ {name}\n{error}\n").unwrap();
    }
    let lines = [
        "streamgauge",
        "streamgauge --config no/such/file.toml",
        "streamgauge --upstream https://a.example --upstream b=https://b.example",
        "streamgauge --upstream a=https://a.example --upstream a=https://b.example",
        "streamgauge --upstream A=https://a.example",
        "streamgauge --upstream a=https://u:hunter2@a.example",
        "streamgauge --upstream h=http://h --listen localhost:8080 --workers 0 --kernel-stamps no --admin x --log-level loud --access-log=",
        "streamgauge --upstream h=http://h --tls-listen 127.0.0.1:1 --tls-cert c.pem",
        "streamgauge --upstream h=http://h --tls-key k.pem",
        "streamgauge --upstream h=http://h --observe of --runtime single",
        "streamgauge --upstream h=http://h --observe off --ask-for-usage",
    ];
    for line in lines {
        let error = args(line).config().expect_err(line).to_string();
        assert!(!error.contains("hunter2"), "{error}");
        writeln!(all, "━━ {line}\n{error}\n").unwrap();
    }
    insta::assert_snapshot!("refusals", all);
}

proptest! {
    /// A file with a hole in it, or with something odd in its place, is read or refused with a fault; never a panic, and
    /// what is read writes back equal.
    #[test]
    fn any_damage_is_read_or_refused(
        at in any::<prop::sample::Index>(),
        length in 0..40_usize,
        odd in "[\\[\\]={}\"'#.,0-9a-zü\n -]{0,6}",
    ) {
        let whole = everything();
        let boundaries: Vec<usize> = whole.char_indices().map(|(index, _)| index).collect();
        let start = at.index(boundaries.len());
        let end = (start + length).min(boundaries.len() - 1);
        let text = format!("{}{odd}{}", &whole[..boundaries[start]], &whole[boundaries[end]..]);
        match Config::from_toml(&text, Path::new("f.toml"), &Overrides::default()) {
            Ok(config) => prop_assert_eq!(read(&config.effective_toml()), Ok(config)),
            Err(error) => prop_assert!(!error.faults().is_empty()),
        }
    }
}

#[test]
fn faults_come_all_at_once_in_the_files_order() {
    let text = "workers = 0\n[[upstreams]]\nurl = \"h\"\nmodel = \"x\"\n[limits]\nmax_headers = \"many\"\n";
    let error = Config::from_toml(text, Path::new("f.toml"), &Overrides::default()).unwrap_err();
    let places: Vec<String> = error.faults().iter().map(|f| f.to_string().chars().take(9).collect()).collect();
    assert_eq!(places, ["f.toml:1:", "f.toml:3:", "f.toml:4:", "f.toml:6:"]);
}
