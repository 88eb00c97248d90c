//! The command `demo`: simulated providers, the gauge, traffic through it, and a live table of what `/metrics` says.
//!
//! Everything runs in this process, on loopback, on two runtimes: one for the gauge, one for providers, clients and the
//! table, so that neither waits for the other's tasks. At the end the percentiles read from `/metrics` are compared with
//! those of the raw records.

mod cast;
mod records;
mod scrape;
mod screen;
mod summary;
mod table;

use std::{
    fmt::Write as _,
    io,
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use tokio::{
    runtime::{Handle, Runtime},
    sync::watch,
    time::MissedTickBehavior,
};

use self::{cast::Provider, records::Records, screen::Screen, summary::Summary};
use crate::{
    app::{self, App, Stop},
    cli::DemoArgs,
    clock::Clock,
    record::Recorder,
    sim::{
        Curl, Sim,
        client::{self, Halt},
    },
    tap::Shared,
};

/// Where the gauge listens if it can: its usual addresses.
const PROXY_PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9464;

/// What the live table's last number is.
const OVERHEAD: &str = "overhead: what the gauge added to an event, of the whole upstream";

/// Requests after which the demo ends by itself: it keeps a few numbers of each.
const MOST_REQUESTS: u64 = 500_000;

/// Runs until the time is up, or SIGINT or SIGTERM: then no more requests are sent, those under way end, and the summary
/// is printed. A second signal drops what is under way.
///
/// Ends with a failure if `/metrics` and the raw records disagree.
///
/// # Errors
/// If no address can be bound, or the output can't be written.
pub fn main(arguments: &DemoArgs) -> io::Result<ExitCode> {
    app::raise_descriptors();
    let (gauges, others) = (app::runtime(None)?, app::runtime(None)?);
    match others.block_on(play(arguments, &gauges)) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        played => played,
    }
}

async fn play(arguments: &DemoArgs, gauges: &Runtime) -> io::Result<ExitCode> {
    let clock = Clock::start();
    let stop = Stop::default();
    // Ends with the runtime.
    tokio::spawn(app::on_signals(stop.clone())?);

    let mut sims = Vec::new();
    let mut cast = Vec::new();
    for provider in cast::providers() {
        let sim = Sim::start(loopback(0), provider.profile.clone(), None, clock)?;
        cast.push((provider, sim.address()));
        sims.push(sim);
    }
    let records = Records::default();
    let gauge = Gauge::start(&cast, &records, gauges.handle())?;

    let mut screen = Screen::open()?;
    screen.keep(&welcome(&gauge, &cast))?;

    let (ask_for, halt) = watch::channel(Halt::No);
    let lanes = cast::traffic(gauge.address);
    let mut traffic = tokio::spawn(client::run(lanes, MOST_REQUESTS, 1, clock, halt, |_, _| {}));
    let play = async {
        tokio::select! {
            () = sleep_for(arguments.duration) => {}
            () = stop.asked() => {}
            _ = &mut traffic => return,
        }
        ask_for.send_replace(Halt::AfterAnswers);
        tokio::select! {
            // A panic in a client has been reported by the runtime; its answers are missing on both sides.
            _ = &mut traffic => {}
            () = stop.cutting() => { ask_for.send_replace(Halt::Now); }
        }
    };
    show(&mut screen, &gauge, &ask_for, clock, play).await?;
    tokio::select! {
        () = settled(&gauge.shared) => {}
        () = stop.cutting() => {}
    }

    let exposition = scrape::scrape(gauge.admin).await?;
    gauge.stop().await;
    for sim in sims {
        sim.stop_now().await?;
    }
    let pairs: Vec<_> = cast
        .iter()
        .flat_map(|(provider, _)| provider.profile.models.iter().map(|model| (provider.name, model.as_str())))
        .collect();
    let summary = Summary::of(&exposition, &records, &pairs);
    let width = screen.width();
    let last = format!("The end, all answers read:\n\n{}\n\n{OVERHEAD}\n\n", table::live(&exposition, width));
    screen.keep(&(last + &summary.render(width)))?;
    Ok(if summary.agrees() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows the table until `play` is over: each second where it can be redrawn, elsewhere every five.
async fn show(
    screen: &mut Screen,
    gauge: &Gauge,
    halt: &watch::Sender<Halt>,
    clock: Clock,
    play: impl Future<Output = ()>,
) -> io::Result<()> {
    let begin = clock.now();
    let period = Duration::from_secs(if screen.redraws() { 1 } else { 5 });
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first comes at once, when there is nothing to show yet.
    tick.tick().await;
    let mut play = std::pin::pin!(play);
    loop {
        tokio::select! {
            () = &mut play => return Ok(()),
            _ = tick.tick() => {}
        }
        let exposition = scrape::scrape(gauge.admin).await?;
        let seconds = clock.now().since(begin).seconds();
        let doing = if *halt.borrow() == Halt::No { "Ctrl-C for the summary" } else { "letting answers end" };
        let table = table::live(&exposition, screen.width());
        screen.draw(&format!("After {seconds:.0} s, read from /metrics ({doing}):\n\n{table}\n\n{OVERHEAD}\n\n"))?;
    }
}

async fn sleep_for(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// Clients have read their answers a moment before the gauge books them.
async fn settled(shared: &Shared) {
    while shared.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The gauge, running.
struct Gauge {
    address: SocketAddr,
    admin: SocketAddr,
    shared: std::sync::Arc<Shared>,
    stop: Stop,
    running: tokio::task::JoinHandle<()>,
}

impl Gauge {
    /// Starts on the usual ports, or on others where those are taken.
    fn start(cast: &[(Provider, SocketAddr)], records: &Records, runtime: &Handle) -> io::Result<Self> {
        let _inside = runtime.enter();
        let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
        for (proxy, admin) in [(PROXY_PORT, ADMIN_PORT), (0, ADMIN_PORT), (PROXY_PORT, 0), (0, 0)] {
            let config = cast::config(cast, loopback(proxy), loopback(admin)).map_err(io::Error::other)?;
            let records = records.clone();
            let clock = Clock::start();
            let recorder = Recorder::new(&config, clock)?.with_listener(Box::new(move |record| records.add(record)));
            let app = match App::bind_with(&config, recorder, clock) {
                Ok(app) => app,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    taken = error;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (Some(address), Some(admin)) = (app.addresses().first().copied(), app.admin_address()) else {
                return Err(io::Error::other("the gauge does not say where it listens"));
            };
            let (shared, stop) = (app.shared().clone(), Stop::default());
            let running = runtime.spawn(app.run(stop.clone()));
            return Ok(Self { address, admin, shared, stop, running });
        }
        Err(taken)
    }

    async fn stop(self) {
        self.stop.drain();
        // A panic in it has been reported by the runtime.
        let _ = self.running.await;
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Where everything listens, and something to try.
fn welcome(gauge: &Gauge, cast: &[(Provider, SocketAddr)]) -> String {
    let mut text =
        String::from("streamgauge demo: simulated providers, the gauge in front of them, traffic through it.\n");
    // Formatting into a string does not fail, here and below.
    let _ = writeln!(text, "Watch it in a browser: open http://{}/\n", gauge.admin);
    let mut line = |name: &str, at: String, what: &str| {
        let _ = writeln!(text, "  {name:8} {at:30}  {what}");
    };
    let paths = cast.iter().map(|(provider, _)| format!("/{}", provider.name)).collect::<Vec<_>>().join(", ");
    line("gauge", format!("http://{}", gauge.address), &format!("clients connect here: {paths}"));
    line("metrics", format!("http://{}/metrics", gauge.admin), "what the table below is made of");
    for (Provider { name, character, .. }, address) in cast {
        line(name, format!("http://{address}"), character);
    }
    let (name, protocol, model) = cast::EXAMPLE;
    let curl = Curl { address: gauge.address, prefix: &format!("/{name}"), protocol, model };
    let _ = write!(text, "\nTry it yourself, in another terminal:\n  {curl}\n\n");
    text
}
