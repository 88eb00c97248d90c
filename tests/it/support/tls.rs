//! Certificates for one test, and TLS over any pipe.

use std::{
    path::PathBuf,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use streamgauge::{
    config::{KeyPair, Upstream},
    net::BoxIo,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Peer;

/// A self-signed certificate for `localhost`, `up.test` and 127.0.0.1 in files of its own, gone with the value.
pub struct Certificate {
    folder: PathBuf,
    pub pair: KeyPair,
}

impl Certificate {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let unique = format!("tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(unique);
        std::fs::create_dir_all(&folder).expect("a folder for the certificate");
        let names = ["localhost", "up.test", "127.0.0.1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let pair = KeyPair { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
        std::fs::write(&pair.certificate, made.cert.pem()).expect("a written certificate");
        std::fs::write(&pair.key, made.signing_key.serialize_pem()).expect("a written key");
        Self { folder, pair }
    }

    /// What a server with this certificate needs; it offers these protocols.
    pub fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let config = streamgauge::net::tls::server(&self.pair).expect("a usable certificate");
        let mut config = ServerConfig::clone(&config);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// TLS towards a server with this certificate, asking for this protocol.
    pub async fn connect(&self, io: BoxIo, protocol: &str) -> BoxIo {
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(self.client(protocol));
        let stream = connector.connect(name, io).await.expect("a TLS handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        Box::new(stream)
    }

    /// What a client of such a server needs; connections of one such resume each other's sessions.
    pub fn client(&self, protocol: &str) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(&self.pair.certificate).expect("a readable certificate");
        roots.add(certificate).expect("a usable certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Arc::new(config)
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The server's side of TLS over a pipe.
pub async fn accept(io: BoxIo, config: Arc<ServerConfig>) -> BoxIo {
    Box::new(TlsAcceptor::from(config).accept(io).await.expect("a TLS handshake"))
}

/// The certificate of the scripted upstream `up.test`, one for all tests.
static UPSTREAM: LazyLock<Certificate> = LazyLock::new(Certificate::new);

/// Makes an upstream one that is reached by TLS, as `up.test`, and verified by the test's certificate.
pub fn speak_tls(upstream: &mut Upstream) {
    upstream.tls = true;
    upstream.ca_file = Some(UPSTREAM.pair.certificate.clone());
}

/// The upstream's side of the handshake, HTTP/1.1 agreed on.
pub async fn accept_tls(peer: Peer) -> Peer {
    accept_as(peer, "http/1.1").await
}

/// The same, HTTP/2 agreed on.
pub async fn accept_tls_http2(peer: Peer) -> Peer {
    accept_as(peer, "h2").await
}

/// What that upstream needs, the same for all of its connections.
pub fn upstream_server() -> Arc<ServerConfig> {
    UPSTREAM.server(&["http/1.1"])
}

async fn accept_as(peer: Peer, protocol: &str) -> Peer {
    let (io, seen) = peer.into_inner();
    assert!(seen.is_empty(), "the handshake comes first");
    Peer::new(accept(io, UPSTREAM.server(&[protocol])).await)
}
