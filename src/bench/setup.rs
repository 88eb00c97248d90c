//! From flags to what can be asked: addresses, dialects, keys.

use std::{fs::OpenOptions, io::BufWriter, net::IpAddr, path::Path, sync::Arc};

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::{
    Bench, api,
    client::{Client, Spoken, Target},
    plan::{Cost, Plan, Workload},
    prompt,
};
use crate::{
    cli::BenchArgs,
    clock::Clock,
    config::{Config, Overrides, Upstream},
    dialect::Dialect,
};

/// All that these flags mean.
///
/// # Errors
/// With what is wrong and what to write instead.
pub(super) fn bench(arguments: &BenchArgs) -> Result<Bench, String> {
    let urls: Vec<(&str, &str)> = std::iter::once(("--url", arguments.url.as_str()))
        .chain(arguments.compare.as_deref().map(|url| ("--compare", url)))
        .collect();
    for (flag, values) in
        [("--model", &arguments.model), ("--dialect", &arguments.dialect), ("--key-env", &arguments.key_env)]
    {
        if values.len() > urls.len() {
            return Err(format!("{flag}: two are for two providers, and there is no --compare"));
        }
    }
    let plan = Plan::new(arguments, urls.len())?;
    one_key_for_one_host(arguments)?;
    let fields = fields(&arguments.fields)?;
    let mut config = config(&urls)?;
    // Each is handed out once, and kept by whoever takes it.
    config.recent = 0;
    let mut spoken = Vec::new();
    for (index, (upstream, (flag, url))) in config.upstreams.iter_mut().zip(&urls).enumerate() {
        let one = |values: &[String]| values.get(index).or(values.last()).cloned();
        let model = one(&arguments.model).unwrap_or_default();
        let dialect = dialect(one(&arguments.dialect).as_deref(), upstream)?;
        let path = api::path(dialect, &model, &upstream.base_path)
            .ok_or_else(|| format!("--model {model:?}: can't stand in a path, where {} has it", dialect.as_str()))?;
        let key = key(one(&arguments.key_env).as_deref(), dialect, upstream)?;
        let mut headers = api::headers(dialect, key.as_deref()).map_err(|fault| format!("{flag} {url}: {fault}"))?;
        for header in &arguments.headers {
            let (name, value) = read_header(header)?;
            headers.insert(name, value);
        }
        let mut limits = upstream.limits.clone();
        limits.total = Some(arguments.timeout);
        limits.connect = limits.connect.min(arguments.timeout);
        *upstream = Arc::new(Upstream {
            models: vec![model.clone()],
            ca_file: arguments.ca_file.clone().filter(|_| upstream.tls),
            limits,
            ..(**upstream).clone()
        });
        spoken.push(Spoken { model, dialect, path, headers, fields: fields.clone() });
    }
    name(&mut config.upstreams, &spoken);
    let records = arguments.records.as_deref().map(open).transpose()?;
    let (client, targets) = Client::new(&config, spoken, Clock::start()).map_err(|error| error.to_string())?;
    let guesses: Vec<usize> = plan.cells.iter().map(|cell| prompt::guess(cell.workload.input_tokens)).collect();
    Ok(Bench {
        sized: vec![vec![false; guesses.len()]; targets.len()],
        words: vec![guesses; targets.len()],
        new_maximum: vec![false; targets.len()],
        plan: Arc::new(plan),
        targets: targets.into(),
        client: Arc::new(client),
        round: 0,
        records,
        quiet: arguments.quiet,
    })
}

/// The configuration a gauge would have for these upstreams, so that a URL means the same to both.
fn config(urls: &[(&str, &str)]) -> Result<Config, String> {
    // Read one by one first, for a fault to name the flag it was written behind.
    for (flag, url) in urls {
        let alone = Overrides { upstreams: vec![format!("a={url}")], ..Overrides::default() };
        Config::from_toml("", Path::new(""), &alone).map_err(|error| {
            let fault = error.faults().first().map(ToString::to_string).unwrap_or_default();
            format!("{flag} {url:?}: {}", fault.lines().skip(1).map(str::trim).collect::<Vec<_>>().join(" "))
        })?;
    }
    let upstreams = urls.iter().zip(["a", "b"]).map(|((_, url), name)| format!("{name}={url}")).collect();
    let overrides = Overrides { upstreams, ..Overrides::default() };
    Config::from_toml("", Path::new(""), &overrides).map_err(|error| error.to_string())
}

/// Calls each by its host and port, with as much more as tells two apart.
fn name(upstreams: &mut [Arc<Upstream>], spoken: &[Spoken]) {
    let names: [fn(&Upstream, &Spoken) -> String; 3] = [
        |upstream, _| upstream.authority.to_string(),
        |upstream, _| format!("{}{}", upstream.authority, upstream.base_path),
        |upstream, spoken| format!("{}{} {}", upstream.authority, upstream.base_path, spoken.model),
    ];
    let all = |name: fn(&Upstream, &Spoken) -> String| -> Vec<String> {
        upstreams.iter().zip(spoken).map(|(upstream, spoken)| name(upstream, spoken)).collect()
    };
    let differ = |names: &Vec<String>| names.windows(2).all(|pair| pair[0] != pair[1]);
    let names = names.into_iter().map(all).find(differ);
    let names = names.unwrap_or_else(|| vec!["first".to_owned(), "second".to_owned()]);
    for (upstream, name) in upstreams.iter_mut().zip(names) {
        *upstream = Arc::new(Upstream { name: name.into(), ..(**upstream).clone() });
    }
}

fn dialect(written: Option<&str>, upstream: &Upstream) -> Result<Dialect, String> {
    let Some(written) = written else {
        return Ok(api::recognised(&upstream.host, &upstream.base_path).unwrap_or(Dialect::OpenAiChat));
    };
    api::SPOKEN.into_iter().find(|dialect| dialect.as_str() == written).ok_or_else(|| {
        let names: Vec<_> = api::SPOKEN.iter().map(|dialect| dialect.as_str()).collect();
        format!("--dialect {written:?}: must be one of {}", names.join(", "))
    })
}

/// The key, if there is one. That of the usual variable goes to its vendor, by TLS, or to this machine, and to nobody else
/// unless the user says so.
fn key(named: Option<&str>, dialect: Dialect, upstream: &Upstream) -> Result<Option<String>, String> {
    let read = |name: &str| std::env::var(name).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    if let Some(name) = named {
        let missing = || format!("--key-env {name}: there is no such environment variable, or it is empty");
        return read(name).map(Some).ok_or_else(missing);
    }
    let trusted = is_here(&upstream.host) || (upstream.tls && api::is_home(dialect, &upstream.host));
    Ok(api::key_variables(dialect).iter().filter(|_| trusted).find_map(|name| read(name)))
}

/// Whether this host is this machine.
fn is_here(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

/// A key goes to no stranger: two providers want two keys, or `--header` for what both may see.
fn one_key_for_one_host(arguments: &BenchArgs) -> Result<(), String> {
    let host = |url: &str| url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    let (Some(second), [name]) = (&arguments.compare, arguments.key_env.as_slice()) else { return Ok(()) };
    let hosts = [host(&arguments.url), host(second)];
    // This machine is trusted: a gauge in front of the provider is the usual other one.
    if hosts[0] == hosts[1] || hosts.iter().flatten().any(|host| is_here(host)) {
        return Ok(());
    }
    Err(format!("--key-env {name}: the key would go to both providers; name one for each, as --key-env {name},OTHER"))
}

fn read_header(written: &str) -> Result<(HeaderName, HeaderValue), String> {
    let fault = |what: &str| {
        // Its value may be a secret.
        let name = written.split(':').next().unwrap_or_default();
        format!("--header {name:?}: {what}, such as `x-api-version: 3`")
    };
    let (name, value) = written.split_once(':').ok_or_else(|| fault("wanted is NAME: VALUE"))?;
    let name = name.trim().parse().map_err(|_| fault("no header may be called so"))?;
    let mut value: HeaderValue = value.trim().parse().map_err(|_| fault("no header may have such a value"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn fields(written: &[String]) -> Result<Map<String, Value>, String> {
    let mut fields = Map::new();
    for field in written {
        let fault = |what: &str| format!("--field {field:?}: {what}, such as `ignore_eos=true` or `user=\"me\"`");
        let (name, value) = field.split_once('=').ok_or_else(|| fault("wanted is NAME=JSON"))?;
        let value = serde_json::from_str(value).map_err(|error| fault(&format!("its value is not JSON ({error})")))?;
        fields.insert(name.trim().to_owned(), value);
    }
    Ok(fields)
}

fn open(path: &Path) -> Result<BufWriter<std::fs::File>, String> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.map(BufWriter::new).map_err(|error| format!("--records {}: {error}", path.display()))
}

/// What will be asked, and what it costs. `again`: all of it is done again and again.
pub(super) fn announcement(bench: &Bench, again: bool) -> String {
    let (plan, targets) = (&bench.plan, &bench.targets);
    let names: Vec<_> = targets
        .iter()
        .map(|target| format!("{} ({}, {})", target.name, target.model, target.dialect.as_str()))
        .collect();
    let cost = plan.cost(targets.len());
    let cells = match plan.cells.len() {
        1 => "one workload at one load".to_owned(),
        cells => format!("{cells} cells of workload and load"),
    };
    let each = if again { "each run some " } else { "" };
    let first = match cost.warm_up {
        0 => String::new(),
        warm_up => format!(", behind {warm_up} to warm up"),
    };
    let what = match plan.duration {
        Some(duration) if !cost.exact => {
            let (fits, most) = (humantime::format_duration(duration), cost.measured);
            let tokens = |of: fn(&Workload) -> u64| {
                let all = || plan.cells.iter().map(|cell| of(&cell.workload));
                let (least, most) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
                if least == most { most.to_string() } else { format!("{least} to {most}") }
            };
            let (input, output) = (tokens(|workload| workload.input_tokens), tokens(|workload| workload.output_tokens));
            format!(
                "as many requests as fit into {fits} in each, {most} at most{first}: of some {input} input and up to {output} output \
                 tokens each"
            )
        }
        _ => {
            let Cost { measured, input, output, .. } = cost;
            format!("{each}{measured} requests{first}: some {input} input and up to {output} output tokens")
        }
    };
    format!("Asking {}: {cells}, seed {}\n{what}", names.join(" and "), plan.seed)
}

impl Target {
    /// Where it is, for messages.
    pub(super) fn place(&self) -> String {
        let scheme = if self.upstream.tls { "https" } else { "http" };
        format!("{scheme}://{}{}:", self.upstream.authority, self.path.path())
    }
}
