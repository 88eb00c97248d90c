//! Stopping: readiness first, then no more requests, and what runs runs on up to the deadline.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use streamgauge::{
    app::{App, Stop},
    config::{Config, Overrides},
    observation::{Limit, Outcome},
};
use tokio::{net, time::sleep};

use crate::support::{
    LAST_CHUNK, Peer, SSE_HEAD, World, WorldOptions, chat_delta, chat_end, chat_request, chunk, ms, refuses, stages,
};

#[tokio::test(start_paused = true)]
async fn a_stream_runs_on_and_its_connection_takes_no_further_request() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut idle) = (world.client(), world.client());
    idle.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    let mut up = world.upstream().await;
    up.head().await;
    up.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    idle.head().await;
    world.record().await;
    client.send(chat_request("m")).await;
    up.read_to("[]}").await;
    up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
    client.read_to("\"a\"").await;
    world.drain();
    assert!(idle.rest().await.is_empty(), "an idle connection is closed");
    sleep(ms(60_000)).await;
    up.send(format!("{}{LAST_CHUNK}", chunk(&chat_end(1, 1)))).await;
    client.read_to(LAST_CHUNK).await;
    assert!(client.rest().await.is_empty(), "closed behind its answer");
    assert_eq!(world.record().await.outcome, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn what_the_deadline_cuts_is_drained() {
    let mut world = World::new(WorldOptions::default());
    let (mut client, mut up) = world.asked(chat_request("m")).await;
    up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
    client.read_to("\"a\"").await;
    sleep(ms(100)).await;
    world.cut();
    let record = world.record().await;
    assert_eq!((record.outcome, record.limit, record.flags.partial), (Outcome::Drained, Some(Limit::Drain), true));
    assert_eq!(stages(&record), [("tail", 100)]);
    assert!(!client.rest().await.ends_with(LAST_CHUNK.as_bytes()), "an abort");
    assert!(up.rest().await.is_empty(), "the upstream is let go");
    assert_eq!(world.gateway.shared().in_flight(), 0);
}

// === real sockets ===

fn configuration(upstream: SocketAddr, drain_timeout: &str, runtime: &str) -> Config {
    let text = format!("[limits]\ndrain_timeout = \"{drain_timeout}\"\n");
    let overrides = Overrides {
        listen: vec!["127.0.0.1:0".to_owned()],
        upstreams: vec![format!("up=http://{upstream}")],
        admin: Some("127.0.0.1:0".to_owned()),
        log_level: Some("off".to_owned()),
        runtime: Some(runtime.to_owned()),
        ..Overrides::default()
    };
    Config::from_toml(&text, std::path::Path::new(""), &overrides).expect("a valid configuration")
}

/// How threads share the work: a stop is the same.
const RUNTIMES: [&str; 2] = ["multi-thread", "per-core"];

/// A gauge on real sockets with one stream under way.
struct Live {
    stop: Stop,
    running: tokio::task::JoinHandle<()>,
    client: Peer,
    up: Peer,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Live {
    async fn streaming(drain_timeout: &str, runtime: &str) -> Self {
        let listener = net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let app = App::bind(&configuration(listener.local_addr().unwrap(), drain_timeout, runtime)).unwrap();
        let (address, admin) = (app.addresses()[0], app.admin_address().unwrap());
        let stop = Stop::default();
        let running = tokio::spawn(app.run(stop.clone()));
        let mut client = Peer::new(Box::new(net::TcpStream::connect(address).await.unwrap()));
        client.send(chat_request("m")).await;
        let mut up = Peer::new(Box::new(listener.accept().await.unwrap().0));
        up.read_to("[]}").await;
        up.send(format!("{SSE_HEAD}{}", chunk(&chat_delta("a")))).await;
        client.read_to("\"a\"").await;
        assert!(ready(admin).await.starts_with("HTTP/1.1 200 "));
        Self { stop, running, client, up, address, admin }
    }
}

async fn ready(admin: SocketAddr) -> String {
    let mut peer = Peer::new(Box::new(net::TcpStream::connect(admin).await.unwrap()));
    peer.send("GET /readyz HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await;
    peer.head().await
}

#[tokio::test]
async fn readiness_goes_first_and_the_stream_ends_in_its_own_time() {
    for runtime in RUNTIMES {
        let mut live = Live::streaming("15min", runtime).await;
        live.stop.drain();
        refuses(live.address).await;
        assert!(ready(live.admin).await.starts_with("HTTP/1.1 503 "), "not ready once its listener is closed");
        live.up.send(format!("{}{LAST_CHUNK}", chunk(&chat_end(1, 1)))).await;
        live.client.read_to(LAST_CHUNK).await;
        live.running.await.unwrap();
    }
}

#[tokio::test]
async fn a_second_stop_cuts() {
    for runtime in RUNTIMES {
        let mut live = Live::streaming("15min", runtime).await;
        live.stop.drain();
        refuses(live.address).await;
        live.stop.now();
        assert!(!live.client.rest().await.ends_with(LAST_CHUNK.as_bytes()));
        live.running.await.unwrap();
    }
}

#[tokio::test]
async fn the_drain_s_deadline_cuts() {
    for runtime in RUNTIMES {
        let mut live = Live::streaming("50ms", runtime).await;
        live.stop.drain();
        assert!(!live.client.rest().await.ends_with(LAST_CHUNK.as_bytes()));
        live.running.await.unwrap();
    }
}

// === the program itself ===

/// The program, ended with the test that started it.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn a_signal_drains_the_program_and_its_log_has_the_stream() {
    RUNTIMES.into_iter().for_each(drained_by_a_signal);
}

#[cfg(unix)]
fn drained_by_a_signal(runtime: &str) {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut program = Program(
        Command::new(env!("CARGO_BIN_EXE_streamgauge"))
            .args(["--listen", "127.0.0.1:0", "--admin", "off", "--access-log", "-", "--log-level", "info"])
            .args(["--upstream", &format!("up=http://{}", upstream.local_addr().unwrap()), "--runtime", runtime])
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(program.0.stderr.take().unwrap()));
    let mut wait_for = |mark: &str| said.by_ref().map(Result::unwrap).find(|line| line.contains(mark)).unwrap();
    let line = wait_for("clients connect to http://");
    let address = line.split("http://").nth(1).unwrap().trim();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(chat_request("m").as_bytes()).unwrap();
    let (mut up, _) = upstream.accept().unwrap();
    read_to(&mut up, "[]}");
    up.write_all(format!("{SSE_HEAD}{}", chunk(&chat_delta("a"))).as_bytes()).unwrap();
    read_to(&mut client, "\"a\"");

    let pid = rustix::process::Pid::from_child(&program.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    wait_for("stopping");
    up.write_all(format!("{}{LAST_CHUNK}", chunk(&chat_end(1, 1))).as_bytes()).unwrap();
    read_to(&mut client, LAST_CHUNK);
    wait_for("stopped");
    assert!(program.0.wait().unwrap().success());
    let mut log = String::new();
    program.0.stdout.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("\"outcome\":\"complete\""), "{log}");
}

fn read_to(from: &mut TcpStream, mark: &str) {
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains(mark) {
        let count = from.read(&mut piece).unwrap();
        assert!(count > 0, "ended before {mark:?}");
        seen.extend_from_slice(&piece[..count]);
    }
}
