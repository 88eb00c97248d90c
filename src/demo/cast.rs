//! Who plays: three providers of different character, and the people and agents that use them.

use std::{fmt::Write as _, net::SocketAddr, path::Path, time::Duration};

use http::{HeaderName, HeaderValue};

use crate::{
    config::{Config, ConfigError, Overrides},
    sim::{
        Profile, Protocol, Reports,
        client::{Lane, Target},
    },
};

/// One simulated provider.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    /// Its upstream's name, and the prefix of its paths.
    pub(super) name: &'static str,
    /// What it is like.
    pub(super) character: &'static str,
    pub(super) profile: Profile,
}

/// The providers, by name, as the tables have them.
pub(super) fn providers() -> [Provider; 3] {
    [
        Provider {
            name: "chip",
            character: "a fast chip: 1,400 tokens/s, six tokens in an event; tells its own times",
            profile: Profile {
                ttft: Duration::from_millis(40),
                tokens_per_second: 1_400.0,
                tokens_per_event: 6,
                output_tokens: 300,
                prefill_tokens_per_second: Some(200_000.0),
                jitter: 0.1,
                reports: Reports::Groq,
                seed: 2,
                models: vec![FAST.to_owned(), THINKER.to_owned()],
                ..Profile::default()
            },
        },
        Provider {
            name: "flaky",
            character: "a shaky one: 429s, 500s, cut streams, error events, stalls",
            profile: Profile {
                ttft: Duration::from_millis(250),
                tokens_per_second: 50.0,
                output_tokens: 80,
                jitter: 0.5,
                seed: 3,
                error_rate: 0.03,
                cut_rate: 0.03,
                rate_limit_rate: 0.06,
                server_error_rate: 0.02,
                stall_rate: 0.05,
                stall: Duration::from_millis(1_500),
                models: vec![SHAKY.to_owned()],
                ..Profile::default()
            },
        },
        Provider {
            name: "gpu",
            character: "a busy GPU: eight slots and a queue, long prompts cost prefill",
            profile: Profile {
                ttft: Duration::from_millis(120),
                tokens_per_second: 60.0,
                output_tokens: 120,
                prefill_tokens_per_second: Some(12_000.0),
                concurrency: Some(8),
                jitter: 0.2,
                seed: 1,
                models: vec![LARGE.to_owned()],
                ..Profile::default()
            },
        },
    ]
}

const LARGE: &str = "large-70b";
const FAST: &str = "fast-8b";
const THINKER: &str = "think-8b";
const SHAKY: &str = "shaky-1";

/// The example to try: the model that is fun to watch.
pub(super) const EXAMPLE: (&str, Protocol, &str) = ("gpu", Protocol::Chat, LARGE);

/// What goes through the gauge at `address`: chats, documents, agents.
pub(super) fn traffic(address: SocketAddr) -> Vec<Lane> {
    let target = |upstream: &str, protocol, model: &str| Target {
        address,
        prefix: format!("/{upstream}"),
        protocol,
        model: model.to_owned(),
    };
    let large = target("gpu", Protocol::Chat, LARGE);
    let fast = target("chip", Protocol::Chat, FAST);
    let agents = target("chip", Protocol::Responses, FAST);
    let thinker = target("chip", Protocol::Chat, THINKER);
    let shaky = target("flaky", Protocol::Messages, SHAKY);

    let mut thinking = Lane { pause: Duration::from_millis(300), ..Lane::chat(thinker, 2) };
    thinking.ask = thinking.ask.with(HeaderName::from_static("x-sim-reasoning"), HeaderValue::from_static("150"));
    vec![
        Lane { pause: Duration::from_millis(1_500), ..Lane::chat(large.clone(), 8) },
        Lane::long_prompts(large, 3),
        Lane { pause: Duration::from_millis(600), ..Lane::chat(fast, 5) },
        Lane::agent_bursts(agents, 2),
        thinking,
        Lane::chat(shaky, 10),
    ]
}

/// The gauge's configuration, as a user would write it: a path prefix for each provider.
///
/// # Errors
/// Not for these providers.
pub(super) fn config(
    providers: &[(Provider, SocketAddr)],
    listen: SocketAddr,
    admin: SocketAddr,
) -> Result<Config, ConfigError> {
    // Some minutes of this traffic, for the live page.
    let mut text = format!(
        "listen = \"{listen}\"\n[admin]\naddress = \"{admin}\"\nrecent = 4096\n[limits]\ndrain_timeout = \"5s\"\n"
    );
    for (Provider { name, profile, .. }, address) in providers {
        let models = profile.models.join("\", \"");
        // Formatting into a string does not fail.
        let _ = write!(text, "[[upstreams]]\nname = \"{name}\"\nurl = \"http://{address}\"\nmodels = [\"{models}\"]\n");
        let _ = write!(text, "[[routes]]\npath_prefix = \"/{name}\"\nstrip_prefix = true\nupstream = \"{name}\"\n");
    }
    Config::from_toml(&text, Path::new("demo.toml"), &Overrides::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_reaches_every_model_by_a_route() {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let cast: Vec<_> = providers().into_iter().zip(1..).map(|(provider, port)| (provider, at(port))).collect();
        // Where both usual ports are taken, the system chooses both.
        let config = config(&cast, at(0), at(0)).unwrap();
        let lanes = traffic(at(4));
        for upstream in &config.upstreams {
            for model in &upstream.models {
                let reached = |lane: &&Lane| {
                    lane.ask.target.model == *model && lane.ask.target.prefix == format!("/{}", upstream.name)
                };
                assert!(lanes.iter().any(|lane| reached(&lane)), "{model}");
            }
        }
        assert_eq!((config.upstreams.len(), config.routes.len()), (3, 3));
        assert!(cast.iter().any(|(provider, _)| provider.name == EXAMPLE.0));
    }
}
