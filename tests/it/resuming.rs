//! TLS sessions are resumed on both sides: who comes back is spared the certificate and half of the handshake.

use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{
    Live, Peer,
    tls::{Certificate, speak_tls, upstream_server},
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: gauge.test\r\n\r\n";
const OK_AND_CLOSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

/// One exchange over a connection of its own, and how its handshake went.
async fn exchange(live: &mut Live, config: &Arc<ClientConfig>, up: &mut Option<Peer>) -> HandshakeKind {
    let socket = TcpStream::connect(live.tls_address.expect("a TLS listener")).await.expect("the gauge listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, socket).await.expect("a TLS handshake");
    let kind = stream.get_ref().1.handshake_kind().expect("it is over");
    let mut client = Peer::new(Box::new(stream));
    client.send(GET).await;
    if up.is_none() {
        *up = Some(live.upstream().await);
    }
    let up = up.as_mut().expect("the upstream");
    up.head().await;
    up.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    // The ticket comes before the answer.
    client.read_to("{}").await;
    live.record().await;
    kind
}

#[tokio::test]
async fn a_client_that_comes_back_resumes_however_many_others_came_meanwhile() {
    let certificate = Certificate::new();
    let mut live = Live::start(Some(&certificate.pair), |_| {}).await;
    let mut up = None;
    let client = certificate.client("http/1.1");
    assert_eq!(exchange(&mut live, &client, &mut up).await, HandshakeKind::Full);
    for _ in 0..150 {
        let other = certificate.client("http/1.1");
        assert_eq!(exchange(&mut live, &other, &mut up).await, HandshakeKind::Full);
    }
    assert_eq!(exchange(&mut live, &client, &mut up).await, HandshakeKind::Resumed);
    live.finish().await;
}

#[tokio::test]
async fn the_gauge_resumes_its_session_with_an_upstream() {
    let mut live = Live::start(None, speak_tls).await;
    let acceptor = TlsAcceptor::from(upstream_server());
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
        let mut client = live.client().await;
        client.send(GET).await;
        let (io, _) = live.upstream().await.into_inner();
        let stream = acceptor.accept(io).await.expect("a TLS handshake");
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(expected));
        let mut up = Peer::new(Box::new(stream));
        up.head().await;
        up.send(OK_AND_CLOSE).await;
        client.read_to("{}").await;
        live.record().await;
    }
    live.finish().await;
}
