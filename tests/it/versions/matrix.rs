//! What an exchange means is the same whatever the sides speak.

use std::{path::PathBuf, sync::OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version, header};
use http_body::Frame;
use streamgauge::{
    config::{HttpVersion, Matches, Upstream},
    observation::Outcome,
};

use crate::support::{
    World, WorldOptions,
    speaker::{Said, Speaker, Whole, serve, whole},
    tls::{self, Certificate},
};

/// One certificate for all: options are plain functions, which carry nothing along.
fn certificate() -> &'static Certificate {
    static CERTIFICATE: OnceLock<Certificate> = OnceLock::new();
    CERTIFICATE.get_or_init(Certificate::new)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Speaks {
    Http1,
    H2c,
    Http1Tls,
    Http2Tls,
}

use Speaks::{H2c, Http1, Http1Tls, Http2Tls};

const ALL: [Speaks; 4] = [Http1, H2c, Http1Tls, Http2Tls];

impl Speaks {
    fn version(self) -> Version {
        if matches!(self, H2c | Http2Tls) { Version::HTTP_2 } else { Version::HTTP_11 }
    }

    fn tls(self) -> Option<&'static str> {
        match self {
            Http1 | H2c => None,
            Http1Tls => Some("http/1.1"),
            Http2Tls => Some("h2"),
        }
    }

    fn upstream(self) -> fn(&mut Upstream) {
        fn with_tls(upstream: &mut Upstream) {
            upstream.tls = true;
            "up.test".clone_into(&mut upstream.host);
            upstream.ca_file = Some(PathBuf::from(&certificate().pair.certificate));
        }
        match self {
            Http1 => |_| {},
            H2c => |upstream| upstream.http = HttpVersion::Http2,
            Http1Tls | Http2Tls => with_tls,
        }
    }
}

async fn client(world: &World, speaks: Speaks) -> Speaker {
    let io = match speaks.tls() {
        None => world.client().into_inner().0,
        Some(protocol) => {
            let server = certificate().server(&["h2", "http/1.1"]);
            certificate().connect(world.client_of(server).into_inner().0, protocol).await
        }
    };
    if speaks.version() == Version::HTTP_2 { Speaker::http2(io).await } else { Speaker::http1(io).await }
}

/// One exchange between such a client and such an upstream; what each of them saw.
async fn exchange(
    options: WorldOptions,
    sides: (Speaks, Speaks),
    request: Request<Said>,
    answer: impl Fn() -> Response<Said> + Send + Sync + 'static,
) -> (Whole<http::request::Parts>, Whole<http::response::Parts>, World) {
    let mut world = World::new(WorldOptions { upstream: sides.1.upstream(), ..options });
    exchange_in(&mut world, sides, request, answer).await.with(world)
}

struct Seen(Whole<http::request::Parts>, Whole<http::response::Parts>);

impl Seen {
    fn with(self, world: World) -> (Whole<http::request::Parts>, Whole<http::response::Parts>, World) {
        (self.0, self.1, world)
    }
}

async fn exchange_in(
    world: &mut World,
    sides: (Speaks, Speaks),
    request: Request<Said>,
    answer: impl Fn() -> Response<Said> + Send + Sync + 'static,
) -> Seen {
    let mut client = client(world, sides.0).await;
    let asked = tokio::spawn(async move {
        let (parts, body) = client.send(request).await.expect("an answer").into_parts();
        whole(parts, body).await.expect("a whole answer")
    });
    let io = world.upstream().await.into_inner().0;
    let io = match sides.1.tls() {
        None => io,
        Some(protocol) => tls::accept(io, certificate().server(&[protocol])).await,
    };
    let mut requests = serve(io, answer);
    let request = requests.recv().await.expect("a whole request");
    let response = asked.await.expect("no panic");
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Complete, "{sides:?}");
    assert_eq!(record.connection.client_version, Some(sides.0.version()), "{sides:?}");
    assert_eq!(record.connection.upstream_version, Some(sides.1.version()), "{sides:?}");
    let http2 = sides.0.version() == Version::HTTP_2 || sides.1.version() == Version::HTTP_2;
    assert_eq!(record.flags.overhead_lower_bound, http2);
    assert_eq!(record.request_bytes, request.body.len() as u64, "{sides:?}");
    assert_eq!(record.response_bytes, response.body.len() as u64, "{sides:?}");
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
    Seen(request, response)
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(HeaderName::as_str).collect()
}

fn trailers(value: &'static str) -> Frame<Bytes> {
    Frame::trailers(HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static(value))]))
}

fn said(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

/// A request as this side writes it: HTTP/2 has its host in the URI.
fn request(speaks: Speaks, method: Method, path: &str) -> http::request::Builder {
    let request = Request::builder().method(method);
    if speaks.version() == Version::HTTP_2 {
        request.version(Version::HTTP_2).uri(format!("http://gauge.test{path}"))
    } else {
        request.uri(path).header(header::HOST, "gauge.test")
    }
}

/// All pairs of sides.
fn pairs() -> impl Iterator<Item = (Speaks, Speaks)> {
    ALL.into_iter().flat_map(|client| ALL.map(|upstream| (client, upstream)))
}

#[tokio::test(start_paused = true)]
async fn a_whole_exchange_means_the_same_in_every_version() {
    for sides in pairs() {
        let sent = request(sides.0, Method::POST, "/v1//x?q=%2F&r")
            .header("x-b", "1")
            .header("x-a", HeaderValue::from_bytes(b"\xff\xfe obs").unwrap())
            .header("x-b", "2")
            .header("x-empty", "")
            .header(header::ACCEPT_ENCODING, "gzip")
            .header(header::TE, "trailers")
            .header(header::TRAILER, "x-sum")
            .header("x-z", "last")
            .body(Said::all(vec![said("pi"), said("ng"), trailers("up")]))
            .unwrap();
        let answer = || {
            Response::builder()
                .status(201)
                .header("x-y", "1")
                .header(header::SET_COOKIE, "b=2; Path=/")
                .header(header::SET_COOKIE, "a=1")
                .header(header::TRAILER, "x-sum")
                .header("x-obs", HeaderValue::from_bytes(b"\xe9").unwrap())
                .header("x-x", "last")
                .body(Said::all(vec![said("po"), said("ng"), trailers("down")]))
                .unwrap()
        };
        let (up, down, _world) = exchange(WorldOptions::default(), sides, sent, answer).await;

        let http2 = sides.1.version() == Version::HTTP_2;
        assert_eq!((up.parts.method.as_str(), up.parts.version), ("POST", sides.1.version()), "{sides:?}");
        assert_eq!(up.parts.uri.path_and_query().unwrap(), "/v1//x?q=%2F&r", "{sides:?}");
        if http2 {
            assert_eq!(up.parts.uri.authority().map(http::uri::Authority::as_str), Some("127.0.0.1:80"), "{sides:?}");
            let scheme = if sides.1.tls().is_some() { "https" } else { "http" };
            assert_eq!(up.parts.uri.scheme_str(), Some(scheme), "{sides:?}");
        } else {
            assert_eq!(values(&up.parts.headers, "host"), [b"127.0.0.1:80"], "{sides:?}");
        }
        let ours = ["host", "transfer-encoding"];
        let theirs: Vec<&str> = names(&up.parts.headers).into_iter().filter(|name| !ours.contains(name)).collect();
        let wanted = ["x-b", "x-a", "x-empty", "accept-encoding", "te", "trailer", "x-z"];
        assert_eq!(theirs, wanted, "{sides:?}");
        assert_eq!(values(&up.parts.headers, "x-b"), [b"1", b"2"], "{sides:?}");
        assert_eq!(values(&up.parts.headers, "x-a"), [b"\xff\xfe obs"], "{sides:?}");
        assert_eq!(&up.body[..], b"ping", "{sides:?}");
        assert_eq!(values(&up.trailers, "x-sum"), [b"up"], "{sides:?}");

        assert_eq!(down.parts.status, 201, "{sides:?}");
        let theirs: Vec<&str> =
            names(&down.parts.headers).into_iter().filter(|name| *name != "transfer-encoding").collect();
        assert_eq!(theirs, ["x-y", "set-cookie", "trailer", "x-obs", "x-x"], "{sides:?}");
        assert_eq!(values(&down.parts.headers, "set-cookie"), [&b"b=2; Path=/"[..], b"a=1"], "{sides:?}");
        assert_eq!(values(&down.parts.headers, "x-obs"), [b"\xe9"], "{sides:?}");
        assert_eq!(&down.body[..], b"pong", "{sides:?}");
        assert_eq!(values(&down.trailers, "x-sum"), [b"down"], "{sides:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lengths_stay_in_every_version() {
    for sides in pairs() {
        let sent = request(sides.0, Method::PUT, "/").header("content-length", "4").body(Said::all(vec![said("ping")]));
        let answer = || Response::builder().header("content-length", "4").body(Said::all(vec![said("pong")])).unwrap();
        let (up, down, _world) = exchange(WorldOptions::default(), sides, sent.unwrap(), answer).await;
        assert_eq!(values(&up.parts.headers, "content-length"), [b"4"], "{sides:?}");
        assert_eq!(values(&down.parts.headers, "content-length"), [b"4"], "{sides:?}");
        assert_eq!((&up.body[..], &down.body[..]), (&b"ping"[..], &b"pong"[..]), "{sides:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_body_have_none_in_every_version() {
    for sides in pairs() {
        for (method, status, length) in [
            (Method::HEAD, 200, Some("12")),
            (Method::GET, 204, None),
            (Method::GET, 304, None),
            (Method::GET, 200, Some("0")),
        ] {
            let sent = request(sides.0, method.clone(), "/").body(Said::all(vec![])).unwrap();
            let answer = move || {
                let mut answer = Response::builder().status(status).header("etag", "\"x\"");
                if let Some(length) = length {
                    answer = answer.header("content-length", length);
                }
                answer.body(Said::all(vec![])).unwrap()
            };
            let (up, down, _world) = exchange(WorldOptions::default(), sides, sent, answer).await;
            assert_eq!((up.parts.method, up.body.len()), (method, 0), "{sides:?}");
            assert_eq!((down.parts.status.as_u16(), down.body.len()), (status, 0), "{sides:?}");
            let length: Vec<&[u8]> = length.map(str::as_bytes).into_iter().collect();
            assert_eq!(values(&down.parts.headers, "content-length"), length, "{sides:?} {status}");
            assert_eq!(values(&down.parts.headers, "etag"), [b"\"x\""], "{sides:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn crumbs_are_one_cookie_in_http_1() {
    for sides in pairs().filter(|sides| sides.0.version() == Version::HTTP_2) {
        let sent = request(sides.0, Method::GET, "/")
            .header("x-a", "1")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("cookie", "c=3")
            .header("x-b", "2")
            .body(Said::all(vec![]))
            .unwrap();
        let answer = || Response::new(Said::all(vec![]));
        let (up, _, _world) = exchange(WorldOptions::default(), sides, sent, answer).await;
        let wanted: &[&[u8]] =
            if sides.1.version() == Version::HTTP_2 { &[b"a=1", b"b=2", b"c=3"] } else { &[b"a=1; b=2; c=3"] };
        assert_eq!(values(&up.parts.headers, "cookie"), wanted, "{sides:?}");
        let theirs: Vec<&str> = names(&up.parts.headers).into_iter().filter(|name| *name != "host").collect();
        assert_eq!(theirs[..3], ["x-a", "cookie", "x-b"], "{sides:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn base_path_prefix_and_host_are_the_same_in_every_version() {
    fn config(config: &mut streamgauge::config::Config) {
        let route = &mut config.routes[0];
        route.matches = Matches::PathPrefix("/openai".to_owned());
        route.strip_prefix = true;
        let mut upstream = Upstream::clone(&route.upstream);
        upstream.base_path = "/base/v1".to_owned();
        upstream.preserve_host = true;
        let upstream = std::sync::Arc::new(upstream);
        config.upstreams = vec![std::sync::Arc::clone(&upstream)];
        route.upstream = upstream;
    }
    for sides in pairs() {
        let sent = request(sides.0, Method::GET, "/openai/chat?x=/openai").body(Said::all(vec![])).unwrap();
        let options = WorldOptions { config, ..WorldOptions::default() };
        let (up, _, _world) = exchange(options, sides, sent, || Response::new(Said::all(vec![]))).await;
        assert_eq!(up.parts.uri.path_and_query().unwrap(), "/base/v1/chat?x=/openai", "{sides:?}");
        let host = up.parts.uri.host().map(str::as_bytes);
        let host = host.or_else(|| values(&up.parts.headers, "host").first().copied());
        assert_eq!(host, Some(&b"gauge.test"[..]), "{sides:?}");
        assert!(values(&up.parts.headers, "host").len() <= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_get_keeps_its_body_in_every_version() {
    for sides in pairs() {
        let sent = request(sides.0, Method::GET, "/search").header("transfer-encoding", "chunked");
        let sent = sent.body(Said::all(vec![said("query")])).unwrap();
        let (up, _, _world) = exchange(WorldOptions::default(), sides, sent, || Response::new(Said::all(vec![]))).await;
        assert_eq!(&up.body[..], b"query", "{sides:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn large_heads_pass_in_every_version() {
    for sides in pairs() {
        let sent = request(sides.0, Method::GET, "/").header("x-large", "r".repeat(15_000)).body(Said::all(vec![]));
        let answer = || Response::builder().header("x-large", "s".repeat(60_000)).body(Said::all(vec![])).unwrap();
        // hyper's own HTTP/2 client takes no more than 16 KiB.
        let answer: fn() -> Response<Said> = if sides.0.version() == Version::HTTP_2 {
            || Response::builder().header("x-large", "s".repeat(15_000)).body(Said::all(vec![])).unwrap()
        } else {
            answer
        };
        let (up, down, _world) = exchange(WorldOptions::default(), sides, sent.unwrap(), answer).await;
        assert_eq!(up.parts.headers["x-large"].len(), 15_000, "{sides:?}");
        assert!(down.parts.headers["x-large"].len() >= 15_000, "{sides:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn megabytes_pass_in_every_version() {
    let body = || Said::all((0..64_u8).map(|i| Frame::data(Bytes::from(vec![i; 50_000]))).collect());
    for sides in pairs() {
        let sent = request(sides.0, Method::POST, "/").body(body()).unwrap();
        let (up, down, _world) = exchange(WorldOptions::default(), sides, sent, move || Response::new(body())).await;
        for came in [&up.body, &down.body] {
            assert_eq!(came.len(), 64 * 50_000, "{sides:?}");
            assert!(came.chunks(50_000).zip(0..64).all(|(part, i)| part.iter().all(|byte| *byte == i)), "{sides:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_exchanges_share_an_http_2_connection() {
    let mut world = World::new(WorldOptions { upstream: H2c.upstream(), ..WorldOptions::default() });
    let client = client(&world, H2c).await;
    let Speaker::Http2(sender) = client else { panic!("HTTP/2") };
    let asked: Vec<_> = (0..50)
        .map(|i| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let sent = request(H2c, Method::POST, &format!("/{i}")).body(Said::all(vec![said("ping")])).unwrap();
                let (parts, body) = sender.send_request(sent).await.expect("an answer").into_parts();
                whole(parts, body).await.expect("a whole answer").body
            })
        })
        .collect();
    let mut requests = serve(world.upstream().await.into_inner().0, || Response::new(Said::all(vec![said("pong")])));
    for asked in asked {
        assert_eq!(&asked.await.expect("no panic")[..], b"pong");
        requests.recv().await.expect("a whole request");
        assert_eq!(world.record().await.outcome, Outcome::Complete);
    }
    assert!(!world.has_dialled(), "one connection carries them all");
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
}
