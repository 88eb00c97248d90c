//! The command `sim`: one simulated provider until a signal ends it.

use std::{
    fmt,
    io::{self, Write},
    net::SocketAddr,
    process::ExitCode,
};

use super::{Log, Profile, Protocol, Sim};
use crate::{
    app::{self, Stop},
    cli::SimArgs,
    clock::Clock,
};

/// Runs until SIGTERM or SIGINT: then running requests end and the log is completed; a second signal cuts them, and the
/// log is complete all the same.
///
/// # Errors
/// If the address can't be bound, or the log can't be opened or written.
pub fn main(arguments: &SimArgs) -> io::Result<ExitCode> {
    app::raise_descriptors();
    app::runtime(None)?.block_on(async {
        let stop = Stop::default();
        // Ends with the runtime. Before anything is said, so that whoever reads it may send a signal at once.
        tokio::spawn(app::on_signals(stop.clone())?);
        let log = match &arguments.log {
            Some(path) => Some(Log::file(path).map_err(|error| {
                io::Error::new(error.kind(), format!("can't write the log {}: {error}", path.display()))
            })?),
            None => None,
        };
        let sim = Sim::start(arguments.listen, profile(arguments), log, Clock::start())
            .map_err(|error| io::Error::new(error.kind(), format!("can't listen on {}: {error}", arguments.listen)))?;
        let welcome = format!(
            "simulated provider at http://{address}\n\nTry it:\n  {curl}\n",
            address = sim.address(),
            curl = Curl { address: sim.address(), prefix: "", protocol: Protocol::Chat, model: MODEL },
        );
        // It serves even if nobody reads this.
        let _ = io::stdout().write_all(welcome.as_bytes());
        stop.asked().await;
        sim.stop_until(stop.cutting()).await?;
        Ok(ExitCode::SUCCESS)
    })
}

const MODEL: &str = "sim-1";

/// Every flag is a setting of the same name.
fn profile(arguments: &SimArgs) -> Profile {
    Profile {
        ttft: arguments.ttft,
        tokens_per_second: arguments.tokens_per_second,
        tokens_per_event: arguments.tokens_per_event,
        output_tokens: arguments.output_tokens,
        prefill_tokens_per_second: arguments.prefill_tokens_per_second,
        concurrency: arguments.concurrency,
        jitter: arguments.jitter,
        usage: !arguments.no_usage,
        reports: arguments.reports,
        seed: arguments.seed,
        error_rate: arguments.error_rate,
        cut_rate: arguments.cut_rate,
        rate_limit_rate: arguments.rate_limit_rate,
        stall_rate: arguments.stall_rate,
        stall: arguments.stall,
        models: vec![MODEL.to_owned()],
        ..Profile::default()
    }
}

/// A line for a shell that asks a simulated provider, or the gauge in front of it, for a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curl<'a> {
    pub(crate) address: SocketAddr,
    /// Put before the protocol's path.
    pub(crate) prefix: &'a str,
    pub(crate) protocol: Protocol,
    pub(crate) model: &'a str,
}

impl fmt::Display for Curl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, prefix, protocol, model } = self;
        let asked = match protocol {
            Protocol::Chat => r#""messages":[{"role":"user","content":"Hello"}]"#,
            Protocol::Responses => r#""input":"Hello""#,
            Protocol::Messages => r#""max_tokens":100,"messages":[{"role":"user","content":"Hello"}]"#,
        };
        let path = protocol.path();
        write!(f, "curl -N http://{address}{prefix}{path} -H 'content-type: application/json' ")?;
        write!(f, r#"-d '{{"model":"{model}","stream":true,{asked}}}'"#)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        cli::{Command, parse_from},
        sim::Reports,
    };

    fn arguments(flags: &[&str]) -> SimArgs {
        match parse_from(["streamgauge", "sim"].iter().chain(flags)).unwrap() {
            Command::Sim(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_flag_reaches_the_profile() {
        let flags = "--ttft 5ms --tokens-per-second 7 --tokens-per-event 8 --output-tokens 9 \
             --prefill-tokens-per-second 10 --concurrency 11 --jitter 0.5 --no-usage --reports vllm --seed 12 --error-rate 0.1 \
             --cut-rate 0.2 --rate-limit-rate 0.3 --stall-rate 0.4 --stall 13s";
        let expected = Profile {
            ttft: Duration::from_millis(5),
            tokens_per_second: 7.0,
            tokens_per_event: 8,
            output_tokens: 9,
            reasoning_tokens: 0,
            tool_call: false,
            prefill_tokens_per_second: Some(10.0),
            concurrency: Some(11),
            jitter: 0.5,
            usage: false,
            reports: Reports::Vllm,
            early_prelude: true,
            seed: 12,
            error_rate: 0.1,
            cut_rate: 0.2,
            rate_limit_rate: 0.3,
            server_error_rate: 0.0,
            stall_rate: 0.4,
            stall: Duration::from_secs(13),
            models: vec!["sim-1".to_owned()],
        };
        assert_eq!(profile(&arguments(&flags.split_whitespace().collect::<Vec<_>>())), expected);
        assert!(profile(&arguments(&[])).usage);
    }

    #[test]
    fn the_example_is_json_in_one_shell_word() {
        let address = ([127, 0, 0, 1], 9000).into();
        for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Messages] {
            let line = Curl { address, prefix: "/x", protocol, model: "m" }.to_string();
            let body = line.split("-d '").nth(1).unwrap().strip_suffix('\'').unwrap();
            assert!(!body.contains('\'') && line.contains("http://127.0.0.1:9000/x/v1/"), "{line}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["stream"], true);
        }
    }
}
