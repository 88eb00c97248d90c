//! rustls on both sides: certificates from files, ALPN by what the side may speak. Verification is never off.

use std::{fmt, io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject};

use crate::config::{HttpVersion, KeyPair, Roots, Upstream};

/// A TLS set-up that can't be made: which file, and why.
#[derive(Debug)]
pub struct TlsError {
    what: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// What a TLS listener needs: offers HTTP/2 and HTTP/1.1. Clients that come back resume their session by a ticket, however
/// many others came meanwhile; tickets are good for this process only.
///
/// # Errors
/// If a file can't be read, certificate and key don't fit, or the system gives no random numbers.
pub fn server(pair: &KeyPair) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = load(pair)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| at(&pair.certificate, "certificate and key", error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer =
        ring::Ticketer::new().map_err(|error| TlsError { what: "session tickets".into(), source: error.into() })?;
    Ok(Arc::new(config))
}

/// What connections to one upstream need. Both share the sessions that connections resume.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Offers what the upstream's configuration allows.
    pub any: Arc<ClientConfig>,
    /// Offers HTTP/1.1 only: for upgrades.
    pub http1: Arc<ClientConfig>,
}

/// TLS towards an upstream; absent if it is reached without.
///
/// # Errors
/// If a file can't be read, the platform has no roots, or the client certificate and key don't fit.
pub fn client(upstream: &Upstream) -> Result<Option<ClientTls>, TlsError> {
    if !upstream.tls {
        return Ok(None);
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError { what: "TLS versions".into(), source: error.into() })?
        .with_root_certificates(roots(upstream)?);
    let mut any = match &upstream.client_certificate {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let (chain, key) = load(pair)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| at(&pair.certificate, "client certificate and key", error))?
        }
    };
    let mut http1 = any.clone();
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    any.alpn_protocols = match upstream.http {
        HttpVersion::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
        HttpVersion::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Some(ClientTls { any: Arc::new(any), http1: Arc::new(http1) }))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(upstream: &Upstream) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    match upstream.roots {
        Roots::Webpki => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Roots::Platform => {
            let loaded = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(loaded.certs);
            if store.is_empty() {
                let why = loaded.errors.first().map_or_else(|| "it holds no certificate".into(), ToString::to_string);
                return Err(TlsError { what: "the platform's certificate store".into(), source: why.into() });
            }
        }
    }
    if let Some(file) = &upstream.ca_file {
        for certificate in chain(file)? {
            store.add(certificate).map_err(|error| at(file, "certificate authority", error))?;
        }
    }
    Ok(store)
}

fn load(pair: &KeyPair) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let key = PrivateKeyDer::from_pem_file(&pair.key).map_err(|error| unreadable(&pair.key, "key", error))?;
    Ok((chain(&pair.certificate)?, key))
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(file, "certificate", error))?;
    if chain.is_empty() { Err(unreadable(file, "certificate", pem::Error::NoItemsFound)) } else { Ok(chain) }
}

fn unreadable(file: &Path, what: &str, error: pem::Error) -> TlsError {
    match error {
        pem::Error::NoItemsFound => {
            at(file, what, io::Error::new(io::ErrorKind::InvalidData, format!("the file holds no PEM {what}")))
        }
        pem::Error::Io(error) => at(file, what, error),
        other => at(file, what, other),
    }
}

fn at(file: &Path, what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TlsError {
    TlsError { what: format!("{what} {}", file.display()), source: source.into() }
}
