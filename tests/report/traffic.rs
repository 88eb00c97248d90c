//! A log as the gauge writes it: simulated providers, the gauge, and clients that ask for all kinds of answers.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use streamgauge::{
    app::{self, App, Stop},
    clock::Clock,
    config::{Config, Overrides},
    record::Recorder,
    sim::{
        Profile, Protocol, Sim,
        client::{Ask, Client, Target},
    },
};

/// What is asked of the simulation, in every dialect, as a stream and plainly.
const KINDS: [(&str, &str); 7] = [
    ("x-sim-tokens", "12"),
    ("x-sim-reasoning", "6"),
    ("x-sim-usage", "off"),
    ("x-sim-fail", "error_event@5"),
    ("x-sim-fail", "truncate@7"),
    ("x-sim-fail", "status:429"),
    ("x-sim-fail", "status:503"),
];
const PROTOCOLS: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Messages];
const PROMPTS: [u32; 3] = [20, 700, 6_000];
/// Clients at the same time.
const CLIENTS: usize = 4;

/// Writes the log; how many requests there were.
pub(crate) fn write_log(path: &Path) -> usize {
    let (others, gauges) = (app::runtime(Some(1)).unwrap(), app::runtime(Some(1)).unwrap());
    let clock = Clock::start();
    let profile = |ttft| Profile {
        ttft: Duration::from_millis(ttft),
        tokens_per_second: 800.0,
        output_tokens: 24,
        jitter: 0.4,
        prefill_tokens_per_second: Some(200_000.0),
        ..Profile::default()
    };
    let sims = [("near", 5), ("far", 25)].map(|(name, ttft)| {
        (name, others.block_on(async { Sim::start(anywhere(), profile(ttft), None, clock) }).unwrap())
    });
    let mut config = format!(
        "listen = \"127.0.0.1:0\"\nsession_header = \"x-session\"\naccess_log = {:?}\n[admin]\naddress = \"off\"\n",
        path.to_str().unwrap()
    );
    for (name, sim) in &sims {
        let url = format!("http://{}", sim.address());
        write!(config, "[[upstreams]]\nname = \"{name}\"\nurl = \"{url}\"\n[[routes]]\nupstream = \"{name}\"\n")
            .unwrap();
        writeln!(config, "path_prefix = \"/{name}\"\nstrip_prefix = true").unwrap();
    }
    let config = Config::from_toml(&config, Path::new("report.toml"), &Overrides::default()).unwrap();
    let recorder = Recorder::new(&config, clock).unwrap();
    let (app, stop) = (gauges.block_on(async { App::bind_with(&config, recorder, clock) }).unwrap(), Stop::default());
    let address = app.addresses()[0];
    let running = gauges.spawn(app.run(stop.clone()));

    let asks = asks(address);
    let count = asks.len();
    others.block_on(async {
        let clients = asks.chunks(count.div_ceil(CLIENTS)).map(|asks| {
            let asks = asks.to_vec();
            tokio::spawn(async move {
                let mut client = Client::new(clock);
                for ask in asks {
                    client.ask(&ask).await;
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
    });
    stop.drain();
    gauges.block_on(running).unwrap();
    for (_, sim) in sims {
        others.block_on(sim.stop()).unwrap();
    }
    count
}

fn asks(address: SocketAddr) -> Vec<Ask> {
    let mut asks = Vec::new();
    for (kind, (name, value)) in KINDS.iter().enumerate() {
        for (index, protocol) in PROTOCOLS.into_iter().enumerate() {
            for prompt in PROMPTS {
                for stream in [true, false] {
                    let (upstream, model) = [("near", "small-1"), ("far", "large-1")][(kind + index) % 2];
                    let target = Target { address, prefix: format!("/{upstream}"), protocol, model: model.to_owned() };
                    let ask = Ask { stream, ..Ask::streaming(target, prompt, 1_000) };
                    let session = HeaderValue::from_str(&format!("task-{}", asks.len() % 25)).unwrap();
                    let ask = ask.with(HeaderName::from_static("x-session"), session);
                    asks.push(ask.with(HeaderName::from_static(name), HeaderValue::from_static(value)));
                }
            }
        }
    }
    asks
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
