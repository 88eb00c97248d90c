//! An upstream that speaks TLS: a certificate of its own, and its side of the handshake.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use streamgauge::config::Upstream;
use tokio_rustls::TlsAcceptor;

use super::Peer;

struct Identity {
    ca_file: PathBuf,
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
}

/// Makes an upstream one that is reached by TLS, as `up.test`, and verified by the test's certificate.
pub fn speak_tls(upstream: &mut Upstream) {
    upstream.tls = true;
    upstream.ca_file = Some(identity().ca_file.clone());
}

/// The upstream's side of the handshake, HTTP/1.1 agreed on.
pub async fn accept_tls(peer: Peer) -> Peer {
    accept(peer, &identity().http1).await
}

/// The same, HTTP/2 agreed on.
pub async fn accept_tls_http2(peer: Peer) -> Peer {
    accept(peer, &identity().http2).await
}

async fn accept(peer: Peer, config: &Arc<ServerConfig>) -> Peer {
    let (io, seen) = peer.into_inner();
    assert!(seen.is_empty(), "the handshake comes first");
    let stream = TlsAcceptor::from(Arc::clone(config)).accept(io).await.expect("a handshake");
    Peer::new(Box::new(stream))
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["up.test".to_owned()]).expect("a certificate");
        let ca_file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("upstream-{}.pem", std::process::id()));
        std::fs::write(&ca_file, made.cert.pem()).expect("room for a certificate");
        let server = |protocol: &[u8]| {
            let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key)
                .expect("a pair");
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        let (http1, http2) = (server(b"http/1.1"), server(b"h2"));
        Identity { ca_file, http1, http2 }
    })
}
