//! Flags of `bench`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{count, rate, seconds};

/// Flags of `bench`: whom to ask, what, how many at once, and what to do with what comes of it.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The provider, as `run` takes it, or a gauge (a running `streamgauge`) in front of it; a path in it is put before the
    /// API's own
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// A second one (another provider, or the first one directly where URL is a gauge): both are asked in turns, and the
    /// ratio of each number is printed with its 95 % confidence interval
    #[arg(long, value_name = "URL")]
    pub compare: Option<String>,
    /// The model to ask for; of two, with `--compare`, the second is the second provider's
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true, num_args = 1..=2)]
    pub model: Vec<String>,
    /// How the API is spoken: openai_chat, openai_responses, anthropic, gemini, cohere, ollama, tgi; of two, with
    /// `--compare`, the second is the second provider's [default: by the URL, else openai_chat]
    #[arg(long, value_name = "DIALECT", value_delimiter = ',', num_args = 1..=2)]
    pub dialect: Vec<String>,
    /// The environment variable that holds the key; of two the second is the second provider's [default: the dialect's
    /// usual one, such as OPENAI_API_KEY, if the URL is that vendor's own or on this machine]
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..=2)]
    pub key_env: Vec<String>,
    /// One more header for every request, such as `x-api-version: 3`; repeat it for more
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// One more field for every request's body, such as `ignore_eos=true` or `reasoning={"effort":"low"}`; repeat it for more
    #[arg(long = "field", value_name = "NAME=JSON")]
    pub fields: Vec<String>,
    /// Trust this certificate authority, PEM, besides the usual ones
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Prompts of so many tokens, each a workload of its own; made to size with the first answers' own counts
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1000", value_parser = clap::value_parser!(u64).range(1..=2_000_000))]
    pub input_tokens: Vec<u64>,
    /// Answers of at most so many tokens, likewise; every pair with `--input-tokens` is a workload
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "200", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub output_tokens: Vec<u64>,
    /// Send the same prompt every time, so that the provider may answer from its cache
    #[arg(long)]
    pub cached: bool,

    /// Closed loop: so many requests under way at all times, of both providers together; each a load of its own
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", value_parser = count)]
    pub concurrency: Vec<usize>,
    /// Open loop instead: so many requests a second, whether or not answers come; waits count from when one was due
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, conflicts_with = "concurrency")]
    pub rate: Option<f64>,
    /// When requests of the open loop are due
    #[arg(long, value_name = "HOW", default_value = "poisson", requires = "rate")]
    pub arrivals: Arrivals,
    /// Requests measured of each workload at each load, of each provider [default: 20; with `--duration` as many as fit]
    #[arg(long, value_name = "N", value_parser = count)]
    pub runs: Option<usize>,
    /// End each workload at each load after so long: no more requests then, those under way end (`30`, `30s`, `5min`)
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Requests before the measured ones, per provider and workload; they size the prompts and open connections
    #[arg(long, value_name = "N", default_value = "1")]
    pub warm_up: usize,
    /// Give a request up so long after it was due or begun; it counts as an error
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = seconds)]
    pub timeout: Duration,
    /// Seed of prompts and arrivals: the same prompts again may be answered from a cache [default: at random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// The admin address of the gauge that the requests go through: prints, stage by stage, what the client saw, what the
    /// gauge saw and what the provider said of the same requests
    #[arg(long, value_name = "ADDR", conflicts_with = "every")]
    pub via: Option<SocketAddr>,
    /// Repeat all of it at this period (`3h` is eight times a day) and serve medians as metrics, until Ctrl-C
    #[arg(long, value_name = "PERIOD", value_parser = seconds)]
    pub every: Option<Duration>,
    /// Where `--every` serves /metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9465", requires = "every")]
    pub listen: SocketAddr,

    /// Append every request's record to FILE, one JSON object a line: what `streamgauge report` reads
    #[arg(long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// Print the result as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// When requests of an open loop are due.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// At random, independent of each other, as users come
    Poisson,
    /// At even distances
    Even,
}

pub(super) const BENCH_EXAMPLES: &str = "\
The key is read from the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, …; --key-env NAME for another) and never printed.

Examples:
  One provider, prompts of 1,000 and 10,000 tokens, one and eight at a time:
      streamgauge bench --url https://api.openai.com --model gpt-5-mini \\
                        --input-tokens 1000,10000 --output-tokens 1000 --concurrency 1,8
  Five requests a second whatever happens, for a minute:
      streamgauge bench --url http://127.0.0.1:8000 --model llama --rate 5 --duration 60
  What a gauge adds, interleaved request by request:
      streamgauge bench --url http://127.0.0.1:8080 --compare http://127.0.0.1:9000 --model sim-1
  Client, gauge and provider side by side:
      streamgauge bench --url http://127.0.0.1:8080 --via 127.0.0.1:9464 --model sim-1
  Eight times a day, medians over three days as metrics:
      streamgauge bench --url https://api.example.com --model m --every 3h --listen 127.0.0.1:9465";
