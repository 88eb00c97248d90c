//! A client and a server that nobody here wrote, on real sockets.

use futures_util::{SinkExt as _, StreamExt as _};
use streamgauge::{
    dialect::Endpoint,
    net::BoxIo,
    observation::{Outcome, StampSource},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use super::{COMPLETED, CREATE, CREATED, DELTA};
use crate::support::{Live, Peer, tls::Certificate};

/// Answers every message as a provider would, and echoes binary ones, until the client says goodbye.
async fn serve(up: Peer) {
    let mut socket = tokio_tungstenite::accept_async(up.into_inner().0).await.expect("a handshake");
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Text(text) => {
                assert_eq!(text.as_str(), CREATE);
                for event in [CREATED, DELTA, DELTA, COMPLETED] {
                    socket.send(Message::text(event)).await.expect("a client");
                }
            }
            Message::Binary(_) => socket.send(message).await.expect("a client"),
            _ => {}
        }
    }
}

/// By whom.
const STAMPED: StampSource = if cfg!(target_os = "linux") { StampSource::Kernel } else { StampSource::User };

async fn heard(socket: &mut WebSocketStream<BoxIo>) -> Message {
    socket.next().await.expect("a message").expect("a proper one")
}

#[tokio::test]
async fn a_real_client_and_a_real_server_understand_each_other() {
    let certificate = Certificate::new();
    let mut live = Live::start(Some(&certificate.pair), |_| {}).await;
    for secure in [false, true] {
        let io: BoxIo = if secure {
            let socket = tokio::net::TcpStream::connect(live.tls_address.expect("TLS")).await.expect("a connection");
            certificate.connect(Box::new(socket), "http/1.1").await
        } else {
            live.client().await.into_inner().0
        };
        let request = format!("ws://{}/v1/responses", live.address).into_client_request().expect("a request");
        let (up, server) = tokio::sync::oneshot::channel();
        let server = tokio::spawn(async { serve(server.await.expect("a connection")).await });
        let (connected, ()) = tokio::join!(tokio_tungstenite::client_async(request, io), async {
            assert!(up.send(live.upstream().await).is_ok());
        });
        let mut client = connected.expect("a handshake").0;
        let blob = Message::binary(vec![7_u8; 100_000]);
        client.send(blob.clone()).await.expect("a server");
        assert_eq!(heard(&mut client).await, blob);
        for _ in 0..3 {
            client.send(Message::text(CREATE)).await.expect("a server");
            for event in [CREATED, DELTA, DELTA, COMPLETED] {
                assert_eq!(heard(&mut client).await, Message::text(event));
            }
            let turn = live.record().await;
            assert_eq!((turn.endpoint, turn.outcome), (Endpoint::Responses, Outcome::Complete));
            assert_eq!((turn.events, turn.output_events, turn.output_tokens()), (4, 2, Some(7)));
            let ttft = turn.timeline.ttft().expect("a first output");
            assert_eq!((turn.client_stamp, turn.upstream_stamp), (STAMPED, Some(STAMPED)));
            assert!(ttft <= turn.timeline.client_ttft().expect("delivered"), "the gauge's own time is on top");
        }
        client.close(None).await.expect("a goodbye");
        while client.next().await.is_some() {}
        drop(client);
        server.await.expect("no assertion failed");
        let tunnel = live.record().await;
        assert_eq!((tunnel.endpoint, tunnel.observer_off), (Endpoint::Tunnel, None));
        assert_eq!((tunnel.client_stamp, tunnel.upstream_stamp), (STAMPED, Some(STAMPED)));
    }
    live.finish().await;
}
