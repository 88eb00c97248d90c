//! The command line: what may be written there, and what of it becomes a [`Config`].

mod bench;
mod report;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::{
    bench::{Arrivals, BenchArgs},
    report::{ReportArgs, ReportFormat},
};
use crate::config::{Config, ConfigError, Overrides};

/// Reads this process's command line and its `STREAMGAUGE_…` variables.
///
/// # Errors
/// If it can't be understood, or asks for help: `error.print()` says it, on the right stream, and
/// `error.exit_code() == 0` tells help from a fault. A fault ends with [`ConfigError::EXIT_CODE`].
pub fn parse() -> Result<Command, clap::Error> {
    parse_from(std::env::args_os())
}

/// The same of these arguments, the first of which is the program's name.
///
/// # Errors
/// As [`parse`].
pub fn parse_from(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Command, clap::Error> {
    let cli = Cli::try_parse_from(arguments)?;
    Ok(cli.command.unwrap_or(Command::Run(cli.run)))
}

/// What the program is asked to do.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Run the proxy; also what happens without a command (`streamgauge --upstream URL`)
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Check a configuration and print all of it, defaults filled in, without running it
    ///
    /// Prints TOML, which is a configuration again. Takes the flags of `run`, and so shows what `run` would do with them. If
    /// there is a fault it exits with 64, and names the key, value and line of each.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(RunArgs),
    /// See it work: simulated providers, the proxy before them, traffic, and a live table. No key needed
    ///
    /// Everything runs in this process, on loopback. The table is read from /metrics. At the end a summary compares the
    /// percentiles of /metrics with those of the raw records; if they disagree, it exits with 1.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Run one simulated provider, with the timing and the faults you set
    ///
    /// It speaks OpenAI chat completions (/v1/chat/completions), OpenAI responses (/v1/responses) and Anthropic messages
    /// (/v1/messages), streamed and plain. A request may ask for something else than the flags by headers, such as
    /// `x-sim-ttft-ms: 500`, `x-sim-tps: 20`, `x-sim-tokens: 50`, `x-sim-stall: 10@2s` or `x-sim-fail: cut@10`.
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Measure a provider as its client: TTFT, tokens per second, end to end, at the loads and prompt sizes you set
    ///
    /// Measures with the same machine as the proxy, so its numbers and the proxy's differ only by what lies between them. Asks
    /// for real answers: with a real provider that costs tokens, and the plan is printed first.
    #[command(after_help = bench::BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Make tables, JSON or a page with plots of access logs
    ///
    /// Percentiles by upstream, model, prompt length, load, hour and agent session, with the number of requests beside each.
    #[command(after_help = report::REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Ask a running gauge whether it takes requests: exits with 0 if so, else 1 and says why
    ///
    /// For health checks where there is no shell and no curl, such as in the container.
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(HealthArgs),
    /// Print the version
    Version,
}

/// Flags of `run` and `check`. Each stands above its variable, that above the file, that above the default.
#[derive(Args, Clone, Default, Debug)]
pub struct RunArgs {
    /// Where clients connect; repeat it for more addresses [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "STREAMGAUGE_LISTEN", hide_env_values = true, value_delimiter = ',')]
    pub listen: Vec<String>,
    /// Where clients connect by TLS; replaces the default address, not one given by `--listen`
    #[arg(long, value_name = "ADDR", env = "STREAMGAUGE_TLS_LISTEN", hide_env_values = true)]
    pub tls_listen: Option<String>,
    /// Certificate for `--tls-listen`, PEM, with its chain behind it
    #[arg(long, value_name = "FILE", env = "STREAMGAUGE_TLS_CERT", hide_env_values = true)]
    pub tls_cert: Option<String>,
    /// Private key for `--tls-listen`, PEM
    #[arg(long, value_name = "FILE", env = "STREAMGAUGE_TLS_KEY", hide_env_values = true)]
    pub tls_key: Option<String>,
    /// Threads that carry the traffic [default: one per core]
    #[arg(long, value_name = "N", env = "STREAMGAUGE_WORKERS", hide_env_values = true)]
    pub workers: Option<String>,
    /// How those threads share it: `multi-thread`, or `per-core` [default: multi-thread]
    ///
    /// By `per-core` each keeps the connections it was given, with connections to the provider of its own.
    #[arg(long, value_name = "HOW", env = "STREAMGAUGE_RUNTIME", hide_env_values = true)]
    pub runtime: Option<String>,
    /// Time arrivals by the kernel's own stamps (`true` or `false`), where it gives them: Linux [default: true]
    ///
    /// With `false` bytes count as arrived once they have been read, which on a busy machine is later than they came.
    #[arg(long, value_name = "BOOL", env = "STREAMGAUGE_KERNEL_STAMPS", hide_env_values = true)]
    pub kernel_stamps: Option<String>,
    /// The provider requests go to. Repeat it for several: each then gets the requests under /NAME, without that prefix
    ///
    /// A path in the URL is put before the path of each request. NAME is the `upstream` label in metrics and records; a
    /// single provider may do without, and is called by its host then. Replaces the upstreams and routes of the file.
    #[arg(
        long,
        value_name = "[NAME=]URL",
        env = "STREAMGAUGE_UPSTREAM",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub upstream: Vec<String>,
    /// Whether requests are measured: `on`, or `off` to only pass them on
    ///
    /// Off, nothing is read and no request has a record or a time; `streamgauge_unobserved_requests_total` counts them. For
    /// every route; a file sets it for single ones (`observe`). [default: on]
    #[arg(long, value_name = "WHETHER", env = "STREAMGAUGE_OBSERVE", hide_env_values = true)]
    pub observe: Option<String>,
    /// Make chat completions that stream ask for their token counts, which few do by themselves: changes their bodies
    ///
    /// Adds `"stream_options":{"include_usage":true}` where the client did not say; it then gets one more chunk at the end of the
    /// stream. For every route; a file sets it for single ones (`ask_for_usage`). The variable takes `true` and `false`.
    /// [default: no body is changed]
    #[arg(
        long,
        env = "STREAMGAUGE_ASK_FOR_USAGE",
        hide_env_values = true,
        value_parser = truth
    )]
    pub ask_for_usage: bool,
    /// Add `Server-Timing` to answers, so that browsers and clients see where the time before the answer's head went
    ///
    /// One header line more, behind the provider's own; for every route, a file sets it for single ones (`server_timing`). The
    /// variable takes `true` and `false`. [default: no header is added]
    #[arg(
        long,
        env = "STREAMGAUGE_SERVER_TIMING",
        hide_env_values = true,
        value_parser = truth
    )]
    pub server_timing: bool,
    /// Add `X-Streamgauge-Id` to answers: the `id` of the request's record, to find it by
    ///
    /// For every route; a file sets it for single ones (`exchange_id`). The variable takes `true` and `false`. [default: no
    /// header is added]
    #[arg(
        long,
        env = "STREAMGAUGE_EXCHANGE_ID",
        hide_env_values = true,
        value_parser = truth
    )]
    pub exchange_id: bool,
    /// Where the live page, /metrics, /exchanges, /healthz and /readyz are served, or `off` [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR", env = "STREAMGAUGE_ADMIN", hide_env_values = true)]
    pub admin: Option<String>,
    /// File with a token that readers of the live page and of /exchanges must send [default: they need none]
    #[arg(long, value_name = "FILE", env = "STREAMGAUGE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub admin_token_file: Option<String>,
    /// Where clients send in what they measured themselves (POST /client-timings), or `off` [default: off]
    #[arg(long, value_name = "ADDR", env = "STREAMGAUGE_CLIENT_TIMINGS", hide_env_values = true)]
    pub client_timings: Option<String>,
    /// Configuration file, TOML [default: none, flags are enough]
    #[arg(long, value_name = "FILE", env = "STREAMGAUGE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Append one JSON object per request, once it has ended, to FILE; `-` is standard output [default: none]
    #[arg(
        long,
        value_name = "FILE",
        env = "STREAMGAUGE_ACCESS_LOG",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub access_log: Option<String>,
    /// The gauge's own messages on standard error: off, error, warn, info, debug, trace [default: info]
    #[arg(long, value_name = "LEVEL", env = "STREAMGAUGE_LOG_LEVEL", hide_env_values = true)]
    pub log_level: Option<String>,
}

impl RunArgs {
    /// The configuration these flags, the variables and the file come to. Reads the file anew at each call.
    ///
    /// # Errors
    /// With every fault found; see [`ConfigError`].
    pub fn config(&self) -> Result<Config, ConfigError> {
        Config::load(self.config_file(), &self.overrides())
    }

    /// The configuration file, if one is named.
    pub fn config_file(&self) -> Option<&std::path::Path> {
        self.config.as_deref().filter(|file| !file.as_os_str().is_empty())
    }

    /// What is laid over the file. An empty variable counts as none: that is how container tools unset one.
    fn overrides(&self) -> Overrides {
        let one = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let many = |values: &[String]| values.iter().filter(|value| !value.is_empty()).cloned().collect();
        Overrides {
            listen: many(&self.listen),
            tls_listen: one(&self.tls_listen),
            tls_cert: one(&self.tls_cert),
            tls_key: one(&self.tls_key),
            workers: one(&self.workers),
            runtime: one(&self.runtime),
            kernel_stamps: one(&self.kernel_stamps),
            upstreams: many(&self.upstream),
            admin: one(&self.admin),
            admin_token_file: one(&self.admin_token_file),
            client_timings: one(&self.client_timings),
            access_log: one(&self.access_log),
            log_level: one(&self.log_level),
            observe: one(&self.observe),
            ask_for_usage: self.ask_for_usage,
            server_timing: self.server_timing,
            exchange_id: self.exchange_id,
        }
    }
}

/// What a variable says that stands for a flag: nothing is no.
fn truth(text: &str) -> Result<bool, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "" | "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("say `true` or `false`"),
    }
}

/// Flags of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// End after so many seconds (`20`, or `90s`, `2min`) [default: at Ctrl-C, or after half a million requests]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
}

/// Flags of `sim`: what the simulated provider answers, and when. Requests may ask for something else by headers.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// Where it listens; port 0 lets the system choose
    #[arg(
        long,
        value_name = "ADDR",
        env = "STREAMGAUGE_SIM_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:9000"
    )]
    pub listen: SocketAddr,
    /// Write the ground truth to FILE: per request, when its last byte came and when each event left [default: none]
    #[arg(long, value_name = "FILE", env = "STREAMGAUGE_SIM_LOG", hide_env_values = true)]
    pub log: Option<PathBuf>,
    /// Time from the request's last byte to the first output event
    #[arg(long, value_name = "DURATION", env = "STREAMGAUGE_SIM_TTFT", hide_env_values = true, default_value = "200ms", value_parser = duration)]
    pub ttft: Duration,
    /// Output tokens per second after the first
    #[arg(long, value_name = "N", env = "STREAMGAUGE_SIM_TOKENS_PER_SECOND", hide_env_values = true, default_value = "60", value_parser = rate)]
    pub tokens_per_second: f64,
    /// Output tokens in one event
    #[arg(long, value_name = "N", env = "STREAMGAUGE_SIM_TOKENS_PER_EVENT", hide_env_values = true, default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens_per_event: u32,
    /// Output tokens of one answer
    #[arg(long, value_name = "N", env = "STREAMGAUGE_SIM_OUTPUT_TOKENS", hide_env_values = true, default_value = "200", value_parser = clap::value_parser!(u32).range(1..))]
    pub output_tokens: u32,
    /// Input tokens read per second: longer prompts answer later by so much [default: prompts cost nothing]
    #[arg(long, value_name = "N", env = "STREAMGAUGE_SIM_PREFILL_TOKENS_PER_SECOND", hide_env_values = true, value_parser = rate)]
    pub prefill_tokens_per_second: Option<f64>,
    /// Requests served at the same time; further ones queue [default: no limit]
    #[arg(long, value_name = "N", env = "STREAMGAUGE_SIM_CONCURRENCY", hide_env_values = true, value_parser = count)]
    pub concurrency: Option<usize>,
    /// How random every wait is (sigma of its log-normal factor): 0 is exact timing, 0.3 a busy provider
    #[arg(long, value_name = "SIGMA", env = "STREAMGAUGE_SIM_JITTER", hide_env_values = true, default_value = "0", value_parser = sigma)]
    pub jitter: f64,
    /// Leave the token counts (`usage`) out of the answers
    #[arg(long, env = "STREAMGAUGE_SIM_NO_USAGE", hide_env_values = true)]
    pub no_usage: bool,
    /// How it tells its own times of each request, which are measured; a style is used where the API has a place for it,
    /// elsewhere headers are
    #[arg(
        long,
        value_name = "STYLE",
        env = "STREAMGAUGE_SIM_REPORTS",
        hide_env_values = true,
        default_value = "headers"
    )]
    pub reports: Reports,
    /// Seed of all that is random; the same seed and requests give the same answers
    #[arg(long, value_name = "N", env = "STREAMGAUGE_SIM_SEED", hide_env_values = true, default_value = "1")]
    pub seed: u64,
    /// Share of streams that end with an error event, 0 to 1
    #[arg(long, value_name = "SHARE", env = "STREAMGAUGE_SIM_ERROR_RATE", hide_env_values = true, default_value = "0", value_parser = share)]
    pub error_rate: f64,
    /// Share of answers cut off in the middle, 0 to 1
    #[arg(long, value_name = "SHARE", env = "STREAMGAUGE_SIM_CUT_RATE", hide_env_values = true, default_value = "0", value_parser = share)]
    pub cut_rate: f64,
    /// Share of requests answered with 429 and rate-limit headers, 0 to 1
    #[arg(long, value_name = "SHARE", env = "STREAMGAUGE_SIM_RATE_LIMIT_RATE", hide_env_values = true, default_value = "0", value_parser = share)]
    pub rate_limit_rate: f64,
    /// Share of streams that stall once in the middle, 0 to 1
    #[arg(long, value_name = "SHARE", env = "STREAMGAUGE_SIM_STALL_RATE", hide_env_values = true, default_value = "0", value_parser = share)]
    pub stall_rate: f64,
    /// How long such a stall lasts
    #[arg(long, value_name = "DURATION", env = "STREAMGAUGE_SIM_STALL", hide_env_values = true, default_value = "2s", value_parser = duration)]
    pub stall: Duration,
}

/// How a simulated provider tells its own times. Times of a body that belong to its usage are left out with it.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Reports {
    /// Not at all
    None,
    /// By a header, which on streams is fixed before the first token: `openai-processing-ms`, Anthropic's `server-timing`
    #[default]
    Headers,
    /// In `x_groq.usage` of chat streams, in `usage` of plain answers: queue, prompt, completion, total without the queue
    Groq,
    /// In `time_info` of chat completions: queue, prompt, completion, total by the wall clock
    Cerebras,
    /// In `metrics` of chat completions and Responses: TTFT behind the queue, queue, generation
    Vllm,
}

/// Flags of `health`.
#[derive(Args, Clone, Debug)]
pub struct HealthArgs {
    /// The running gauge's admin address; for 0.0.0.0 it asks on loopback
    #[arg(long, value_name = "ADDR", env = "STREAMGAUGE_ADMIN", hide_env_values = true, default_value = DEFAULT_ADMIN, value_parser = admin_address)]
    pub admin: SocketAddr,
}

const DEFAULT_ADMIN: &str = "127.0.0.1:9464";

const RUN_EXAMPLES: &str = "\
Every flag is also an environment variable, named beside it; several values are joined by commas.
Flags override variables, variables override the file.

Examples:
  One provider; the numbers are at http://127.0.0.1:9464/metrics:
      streamgauge --upstream https://api.openai.com
  Then let your client talk to the gauge instead:
      OPENAI_BASE_URL=http://127.0.0.1:8080/v1 python app.py
  A local vLLM, every request as a line of JSON:
      streamgauge --upstream vllm=http://127.0.0.1:8000 --access-log -
  Two providers, as http://127.0.0.1:8080/openai/v1 and http://127.0.0.1:8080/anthropic:
      streamgauge --upstream openai=https://api.openai.com \\
                  --upstream anthropic=https://api.anthropic.com
  From a file, which can also set routes, limits, certificates and workloads:
      streamgauge --config streamgauge.toml";

const CHECK_EXAMPLES: &str = "\
Examples:
  streamgauge check --config streamgauge.toml
  streamgauge check --upstream https://api.openai.com";

const DEMO_EXAMPLES: &str = "\
Example:
  streamgauge demo --for 20";

const SIM_EXAMPLES: &str = "\
Examples:
  A fast chip:
      streamgauge sim --ttft 80ms --tokens-per-second 1500 --tokens-per-event 8
  A busy GPU that reads 5,000 prompt tokens a second, four requests at a time, and fails now and then:
      streamgauge sim --prefill-tokens-per-second 5000 --concurrency 4 \\
                      --jitter 0.3 --error-rate 0.02
  Measure it:
      streamgauge --upstream sim=http://127.0.0.1:9000";

const HEALTH_EXAMPLES: &str = "\
Example:
  streamgauge health --admin 127.0.0.1:9464";

/// Measures LLM token streams as they pass: a transparent proxy that times every answer of your provider (time to first
/// token, cadence, total) and its own overhead, and changes nothing unless told to (`--ask-for-usage`, `--server-timing`, `--exchange-id`).
#[derive(Parser, Debug)]
#[command(
    name = "streamgauge",
    version,
    after_help = RUN_EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_help_heading = "Commands",
    max_term_width = 110
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

/// A bare number is seconds, as the flag's name says.
fn seconds(text: &str) -> Result<Duration, String> {
    let given = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => duration(text)?,
    };
    if given.is_zero() { Err("must be more than zero".to_owned()) } else { Ok(given) }
}

/// An empty variable counts as none, as everywhere. `off`, which `run` takes, leaves nothing to ask.
fn admin_address(text: &str) -> Result<SocketAddr, String> {
    let text = if text.is_empty() { DEFAULT_ADMIN } else { text };
    text.parse().map_err(|_| format!("wanted is IP:PORT of a running gauge, such as {DEFAULT_ADMIN}"))
}

/// Zero is fine: a simulated provider may answer at once.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it like 200ms or 2s"))
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, |n| n > 0.0 && n <= 1e9, "a number above zero")
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |n| (0.0..=1.0).contains(&n), "a share from 0 to 1")
}

/// Above 3 the mean of the factor is ninety times its median: nobody means that.
fn sigma(text: &str) -> Result<f64, String> {
    number(text, |n| (0.0..=3.0).contains(&n), "a number from 0 to 3")
}

fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=1_000_000).contains(count))
        .ok_or_else(|| "must be from 1 to 1000000".to_owned())
}

fn number(text: &str, fits: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number| fits(*number)).ok_or_else(|| format!("wanted is {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(text: &str) -> Result<SocketAddr, clap::Error> {
        match parse_from(["streamgauge", "health", "--admin", text])? {
            Command::Health(args) => Ok(args.admin),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_variable_that_is_no_truth_value_is_refused() {
        for (text, expected) in [("true", Ok(true)), ("ON", Ok(true)), ("", Ok(false)), ("0", Ok(false))] {
            assert_eq!(truth(text), expected, "{text}");
        }
        for text in ["flase", "maybe", "2"] {
            assert!(truth(text).is_err(), "{text}");
        }
    }

    #[test]
    fn health_asks_an_admin_address() {
        assert_eq!(admin("0.0.0.0:9464").unwrap(), "0.0.0.0:9464".parse().unwrap());
        assert_eq!(admin("").unwrap(), DEFAULT_ADMIN.parse().unwrap());
        assert!(admin("off").unwrap_err().to_string().contains("wanted is IP:PORT of a running gauge"));
    }
}
