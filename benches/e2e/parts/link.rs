//! A client's connection: plain, or TLS.

use std::{
    error::Error,
    fs,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, TcpStream},
    path::Path,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring,
    crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};

use super::system::connect;

/// TLS 1.3 with one cipher, so that every proxy has the same work, and no resumption.
pub(crate) fn tls(certificate: &Path) -> Result<Arc<ClientConfig>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fs::read(certificate)?)?)?;
    let mut provider = ring::default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

pub(crate) enum Link {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Link {
    pub(crate) fn new(port: u16, tls: Option<&Arc<ClientConfig>>) -> io::Result<Self> {
        let socket = connect(port)?;
        let Some(config) = tls else { return Ok(Self::Plain(socket)) };
        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Whether it can go on only once the socket takes bytes, with or without any of the caller's left.
    pub(crate) fn wants_write(&self, unsent: bool) -> bool {
        match self {
            Self::Plain(_) => unsent,
            Self::Tls(stream) => stream.conn.wants_write() || (unsent && !stream.conn.is_handshaking()),
        }
    }

    /// Whether a read may bring more although the socket has nothing.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl Read for Link {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(room),
            Self::Tls(stream) => stream.read(room),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
