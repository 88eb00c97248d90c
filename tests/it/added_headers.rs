//! The options that add headers to answers: exactly these lines, with the figures of the record, and none without.

use http::{Request, Response};
use http_body_util::BodyExt;
use streamgauge::{
    config::{Adds, Config, HttpVersion},
    observation::{Observation, Outcome, STAGES},
};
use tokio::time::sleep;

use crate::support::{
    LAST_CHUNK, World, WorldOptions, chat_request, chunk,
    http2::{Http2Upstream, fed, http2_client},
    ms,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";

fn both(config: &mut Config) {
    config.routes[0].adds = Adds { server_timing: true, exchange_id: true };
}

fn only_id(config: &mut Config) {
    config.routes[0].adds.exchange_id = true;
}

fn only_timing(config: &mut Config) {
    config.routes[0].adds.server_timing = true;
}

fn world(config: fn(&mut Config)) -> World {
    World::new(WorldOptions { config, ..WorldOptions::default() })
}

/// The one line of this header that is the gauge's own: the last.
fn line<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.rfind(|(found, _)| found.eq_ignore_ascii_case(name)).unwrap_or_else(|| panic!("{head}")).1
}

/// The metrics of a `Server-Timing` line, in milliseconds.
fn metrics(line: &str) -> Vec<(&str, f64)> {
    line.split(", ").map(|metric| metric.split_once(";dur=").unwrap()).map(|(n, d)| (n, d.parse().unwrap())).collect()
}

/// The stages that took time before the head, by the record, named and measured as the header has them.
fn by_the_record(record: &Observation) -> Vec<(String, f64)> {
    let marks = &record.timeline;
    let head_wait = marks.head_back.unwrap().since(marks.sent_last.unwrap());
    let before = STAGES.iter().zip(record.stages()).take(8).map(|(name, span)| (format!("sg-{name}"), span));
    let all = before.chain([("sg-head_wait".to_owned(), head_wait)]);
    all.map(|(name, span)| (name, ((span.0 + 500) / 1000) as f64 / 1000.0)).filter(|(_, ms)| *ms > 0.0).collect()
}

#[tokio::test(start_paused = true)]
async fn with_both_options_exactly_two_lines_are_added_behind_the_providers_own() {
    let said = "HTTP/1.1 200 OK\r\n\
         Server-Timing: gfet4t7; dur=42\r\n\
         X-Streamgauge-Id: another gauge's\r\n\
         Content-Length: 2\r\n\
         Server-Timing: cdn\r\n\r\n";
    let mut world = world(both);
    let (mut client, mut up) = world.asked(GET).await;
    sleep(ms(250)).await;
    up.send(format!("{said}{{}}")).await;
    let head = client.head().await;
    assert_eq!(client.read(2).await, b"{}");
    let record = world.record().await;
    // Values of one name stand together, as ever.
    let wanted = format!(
        "HTTP/1.1 200 OK\r\n\
         Server-Timing: gfet4t7; dur=42\r\n\
         Server-Timing: cdn\r\n\
         server-timing: sg-head_wait;dur=250.0\r\n\
         X-Streamgauge-Id: another gauge's\r\n\
         x-streamgauge-id: {}\r\n\
         Content-Length: 2\r\n\r\n",
        record.id
    );
    assert_eq!(head, wanted);
    assert_eq!(record.outcome, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn each_option_adds_its_own_line_and_a_stream_passes_as_ever() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n";
    for (config, timing, id) in
        [(only_timing as fn(&mut Config), true, false), (only_id, false, true), (|_| {}, false, false)]
    {
        let mut world = world(config);
        let (mut client, mut up) = world.asked(chat_request("m")).await;
        sleep(ms(20)).await;
        up.send(format!("{head}\r\n{}", chunk("data: {}\n\n"))).await;
        let came = client.read_to(&chunk("data: {}\n\n")).await;
        up.send(LAST_CHUNK).await;
        client.read_to(LAST_CHUNK).await;
        let record = world.record().await;
        let timing = if timing { "server-timing: sg-head_wait;dur=20.0\r\n" } else { "" };
        let id = if id { format!("x-streamgauge-id: {}\r\n", record.id) } else { String::new() };
        assert_eq!(came, format!("{head}{timing}{id}\r\n{}", chunk("data: {}\n\n")));
    }
}

#[tokio::test(start_paused = true)]
async fn every_stage_before_the_head_is_there_with_the_records_own_figure() {
    let mut world = World::new(WorldOptions {
        dns: Some(ms(40)),
        tcp: ms(30),
        upstream: |upstream| upstream.limits.max_connections = Some(1),
        config: both,
        ..WorldOptions::default()
    });
    let mut client = world.client();
    client.send("POST /v1/x HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n{").await;
    sleep(ms(500)).await;
    client.send("}").await;
    let mut up = world.upstream().await;
    up.read_to("{}").await;
    // One that has to wait for the only connection.
    let mut waits = world.client();
    waits.send(GET).await;
    sleep(ms(123)).await;
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    up.send(ok).await;
    let head = client.head().await;
    let record = world.record().await;
    let named = |name: &str, ms: f64| (name.to_owned(), ms);
    let wanted =
        [named("sg-dns", 40.0), named("sg-tcp", 30.0), named("sg-receive", 430.0), named("sg-head_wait", 123.0)];
    assert_eq!(by_the_record(&record), wanted);
    let told: Vec<_> = metrics(line(&head, "server-timing")).into_iter().map(|(name, ms)| named(name, ms)).collect();
    assert_eq!(told, wanted);

    up.read_to("\r\n\r\n").await;
    sleep(ms(7)).await;
    up.send(ok).await;
    let head = waits.head().await;
    assert_eq!(metrics(line(&head, "server-timing")), [("sg-pool_wait", 123.0), ("sg-head_wait", 7.0)]);
    assert_eq!(line(&head, "x-streamgauge-id"), world.record().await.id.to_string());
}

#[tokio::test(start_paused = true)]
async fn answers_of_the_gauges_own_have_them_with_what_is_known_when_they_are_given() {
    let mut world = World::new(WorldOptions {
        dns: Some(ms(40)),
        tcp: ms(3_600_000),
        upstream: |upstream| upstream.limits.connect = ms(2_000),
        config: both,
        ..WorldOptions::default()
    });
    let mut client = world.client();
    client.send(GET).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    assert_eq!(line(&head, "server-timing"), "sg-dns;dur=40.0, sg-tcp;dur=1960.0");
    let record = world.record().await;
    assert_eq!((line(&head, "x-streamgauge-id"), record.outcome), (&*record.id.to_string(), Outcome::Unreachable));

    // One that was sent and given up, and one that no route takes: then there is no route to say so.
    let mut world = World::new(WorldOptions {
        upstream: |upstream| upstream.limits.head = Some(ms(1_500)),
        config: |config| {
            both(config);
            config.routes[0].matches = streamgauge::config::Matches::PathPrefix("/v1".to_owned());
        },
        ..WorldOptions::default()
    });
    let (mut client, _up) = world.asked(GET).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    assert_eq!(line(&head, "server-timing"), "sg-head_wait;dur=1500.0");
    let mut client = world.client();
    client.send("GET /other HTTP/1.1\r\nhost: g\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 404 ") && !head.contains("server-timing") && !head.contains("-id:"), "{head}");
}

#[tokio::test(start_paused = true)]
async fn a_switch_of_protocols_and_http2_on_either_side_have_them_too() {
    let mut world = world(both);
    let mut client = world.client();
    client
        .send("GET /v1/realtime HTTP/1.1\r\nhost: 127.0.0.1:80\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .await;
    let mut up = world.upstream().await;
    up.head().await;
    sleep(ms(5)).await;
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
    up.send(format!("{switched}\r\n")).await;
    let head = client.head().await;
    drop((client, up));
    let id = world.record().await.id;
    assert_eq!(head, format!("{switched}server-timing: sg-head_wait;dur=5.0\r\nx-streamgauge-id: {id}\r\n\r\n"));

    let mut world = World::new(WorldOptions {
        upstream: |upstream| upstream.http = HttpVersion::Http2,
        config: both,
        ..WorldOptions::default()
    });
    let mut client = http2_client(world.client()).await;
    let request = Request::get("http://gauge.test/v1/models").body(fed().1).unwrap();
    let mut up = None;
    let (response, ()) = tokio::join!(client.send_request(request), async {
        let asked = up.insert(Http2Upstream::new(world.upstream().await)).asked().await;
        sleep(ms(9)).await;
        assert!(asked.answer.send(Response::new(fed().1)).is_ok(), "it is awaited");
    });
    let (parts, body) = response.unwrap().into_parts();
    body.collect().await.unwrap();
    let record = world.record().await;
    assert_eq!(parts.headers["server-timing"], "sg-head_wait;dur=9.0");
    assert_eq!(parts.headers["x-streamgauge-id"], record.id.to_string());
    let names: Vec<_> = parts.headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["date", "server-timing", "x-streamgauge-id"], "the date is the upstream's own");
}
