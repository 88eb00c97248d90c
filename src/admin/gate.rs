//! Who may read of single exchanges, and who may send what clients measured.

use std::{fs, io, net::IpAddr, path::Path};

use http::{HeaderMap, HeaderValue, StatusCode, header, uri::Authority};
use subtle::ConstantTimeEq;

use super::aside::{Answer, text};
use crate::config::AdminAccess;

/// What a caller must send behind `Bearer`: the only line of a file.
#[derive(Clone)]
pub(super) struct Token(Vec<u8>);

impl Token {
    /// Reads it.
    ///
    /// # Errors
    /// If the file can't be read, or holds something else than a token; the message names it.
    pub(super) fn read(file: &Path) -> io::Result<Self> {
        let fault = |error: io::Error| {
            io::Error::new(error.kind(), format!("the token in {} can't be used: {error}", file.display()))
        };
        let text = fs::read_to_string(file).map_err(fault)?;
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message =
                "it must be one line of printable ASCII without spaces, such as `openssl rand -hex 32` writes";
            return Err(fault(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        Ok(Self(token.as_bytes().to_vec()))
    }

    /// Whether a request carries it. Its length may be found out by the time this takes, but nothing of what it is.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let said = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let said = said.split_at_checked(b"Bearer ".len());
        said.is_some_and(|(scheme, said)| scheme.eq_ignore_ascii_case(b"Bearer ") && said.ct_eq(&self.0).into())
    }

    /// The answer to who does not carry it.
    pub(super) fn wanted() -> Answer {
        let mut answer = text(StatusCode::UNAUTHORIZED, "wanted is `Authorization: Bearer …` with the token\n");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        answer
    }
}

/// The door to the live page and to the records.
pub(super) struct Gate {
    token: Option<Token>,
    hosts: Vec<String>,
}

impl Gate {
    /// As configured.
    ///
    /// # Errors
    /// If the token can't be read.
    pub(super) fn new(access: &AdminAccess) -> io::Result<Self> {
        let token = access.token_file.as_deref().map(Token::read).transpose()?;
        Ok(Self { token, hosts: access.allowed_hosts.clone() })
    }

    /// The refusal of a request by a name that is not ours: a page elsewhere may have pointed a name of its own at this
    /// address, and would be let read whatever comes from there.
    pub(super) fn refuses_name(&self, headers: &HeaderMap) -> Option<Answer> {
        // Only browsers can be used like that, and they always send it.
        let host = headers.get(header::HOST)?;
        let known = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()).is_some_and(|host| {
            let name = host.host().trim_start_matches('[').trim_end_matches(']');
            let ours = |known: &str| known.eq_ignore_ascii_case(name);
            name.parse::<IpAddr>().is_ok() || ours("localhost") || self.hosts.iter().any(|known| ours(known))
        });
        (!known).then(|| {
            text(
                StatusCode::MISDIRECTED_REQUEST,
                "this is served to who asks by IP address, by localhost, or by a name in admin.allowed_hosts\n",
            )
        })
    }

    /// The refusal of a request for records: from another site's page, or without the token.
    pub(super) fn refuses_reader(&self, headers: &HeaderMap) -> Option<Answer> {
        // What a browser says of who asks. Other sites' pages could not read the answer, but could keep it busy.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return Some(text(StatusCode::FORBIDDEN, "only this gauge's own page may ask from a browser\n"));
        }
        let known = self.token.as_ref().is_none_or(|token| token.is_in(headers));
        (!known).then(Token::wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate { token: Some(Token(b"secret".to_vec())), hosts: vec!["gauge.example".to_owned()] }
    }

    fn headers<const N: usize>(said: [(&'static str, &'static str); N]) -> HeaderMap {
        let header = |(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
        said.into_iter().map(header).collect()
    }

    #[test]
    fn an_address_and_known_names_are_ours() {
        for host in [
            "127.0.0.1:9464",
            "[::1]:9464",
            "10.0.0.7",
            "[fe80::1]",
            "LocalHost:1",
            "Gauge.Example",
            "gauge.example:80",
        ] {
            assert!(gate().refuses_name(&headers([("host", host)])).is_none(), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:9464", "localhost.evil", "gauge.example.", "", "a b"] {
            let answer = gate().refuses_name(&headers([("host", host)])).map(|answer| answer.status());
            assert_eq!(answer, Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        assert!(gate().refuses_name(&HeaderMap::new()).is_none(), "no browser");
    }

    #[test]
    fn records_are_for_who_has_the_token_and_for_no_other_sites_page() {
        let status = |headers| gate().refuses_reader(&headers).map(|answer| answer.status());
        assert_eq!(status(headers([("authorization", "Bearer secret")])), None);
        assert_eq!(status(headers([("authorization", "bearer secret"), ("sec-fetch-site", "same-origin")])), None);
        for wrong in ["Bearer secre", "Bearer secret2", "Basic secret", "secret", ""] {
            assert_eq!(status(headers([("authorization", wrong)])), Some(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        assert_eq!(status(HeaderMap::new()), Some(StatusCode::UNAUTHORIZED));
        for site in ["cross-site", "same-site", "?"] {
            let asked = headers([("authorization", "Bearer secret"), ("sec-fetch-site", site)]);
            assert_eq!(status(asked), Some(StatusCode::FORBIDDEN), "{site}");
        }
        let open = Gate { token: None, hosts: Vec::new() };
        assert!(open.refuses_reader(&HeaderMap::new()).is_none());
    }
}
