//! Asks a running gauge, from outside: whether it takes requests, or for a page of its admin listener.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// Per step (connect, write, read). A gauge on the same machine answers in under a millisecond; health checks of
/// container tools are given seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last exchanges' records are a megabyte or so; a page that never ends is not read on.
const LONGEST_PAGE: u64 = 256 << 20;

/// A status line of ours is 32 bytes; what is longer comes from something else that listens there.
const LONGEST_STATUS_LINE: u64 = 256;

/// Asks `/readyz` at a gauge's admin address. An unspecified address (what a container listens on) means loopback.
///
/// Blocks, at most two seconds for each of connecting, asking and every read of the answer's first line.
///
/// # Errors
/// If nothing answers there, if what answers is not HTTP, or if the gauge takes no requests: it is starting, or it
/// drains.
pub fn ask(admin: SocketAddr) -> io::Result<()> {
    let address = reachable(admin);
    let status = status_line(address)
        .map_err(|error| io::Error::new(error.kind(), format!("no answer from http://{address}/readyz: {error}")))?;
    match status.split(' ').nth(1) {
        Some("200") if status.starts_with("HTTP/1.") => Ok(()),
        Some("503") => Err(io::Error::other("not ready: starting or draining")),
        _ => Err(io::Error::other(format!("http://{address}/readyz answered {status:?}"))),
    }
}

/// Gets a page, such as `/exchanges?limit=5`, from a gauge's admin address. Blocks as [`ask`] does.
///
/// # Errors
/// If nothing answers there, or what answers has no such page; the message names the URL.
pub fn page(admin: SocketAddr, path: &str) -> io::Result<String> {
    let address = reachable(admin);
    let answer = answer(address, path)
        .map_err(|error| io::Error::new(error.kind(), format!("no answer from http://{address}{path}: {error}")))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.starts_with("HTTP/1.") && status.split(' ').nth(1) == Some("200") {
        return Ok(body.to_owned());
    }
    let said: String = status.chars().take(80).collect();
    Err(io::Error::other(format!("http://{address}{path} answered {said:?}")))
}

/// Head and body. By HTTP/1.0, so that the body is not chunked and ends with the connection.
fn answer(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut answer = Vec::new();
    ask_for(address, path, "1.0")?.take(LONGEST_PAGE).read_to_end(&mut answer)?;
    String::from_utf8(answer).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "this is not text"))
}

fn ask_for(address: SocketAddr, path: &str, version: &str) -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    write!(socket, "GET {path} HTTP/{version}\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    Ok(socket)
}

fn status_line(address: SocketAddr) -> io::Result<String> {
    let mut answer = Vec::new();
    let mut socket = ask_for(address, "/readyz", "1.1")?.take(LONGEST_STATUS_LINE);
    let mut piece = [0; 64];
    while !answer.contains(&b'\n') {
        match socket.read(&mut piece)? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    match answer.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(String::from_utf8_lossy(&answer[..end]).trim_end().to_owned()),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "this is not HTTP")),
    }
}

/// `0.0.0.0` and `[::]` are places to listen on, not to connect to (Linux lets one, other systems don't).
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener, thread};

    use super::*;

    /// What `ask` says of a server that answers its one caller with these bytes, and what it was asked.
    fn answered_with(answer: &'static str) -> (io::Result<()>, String) {
        answered(ask, answer)
    }

    /// The same of `asking`.
    fn answered<T>(asking: impl Fn(SocketAddr) -> T, answer: &'static str) -> (T, String) {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            // The asker may have left before the last byte of a long one.
            let _ = socket.write_all(answer.as_bytes());
            String::from_utf8(request).unwrap()
        });
        let said = asking(address);
        (said, server.join().unwrap())
    }

    #[test]
    fn a_ready_gauge_is_healthy() {
        let (said, asked) = answered_with("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n");
        said.unwrap();
        assert!(asked.starts_with("GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:"), "{asked}");
    }

    #[test]
    fn a_draining_gauge_is_not() {
        let (said, _) = answered_with("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(said.unwrap_err().to_string(), "not ready: starting or draining");
    }

    #[test]
    fn a_page_is_its_body() {
        let (said, asked) = answered(
            |address| page(address, "/exchanges?limit=1"),
            "HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\n[\n\n]",
        );
        assert_eq!(said.unwrap(), "[\n\n]");
        assert!(asked.starts_with("GET /exchanges?limit=1 HTTP/1.0\r\nHost: 127.0.0.1:"), "{asked}");
        let (said, _) = answered(|address| page(address, "/x"), "HTTP/1.0 404 Not Found\r\n\r\nno such page");
        assert!(said.unwrap_err().to_string().ends_with("/x answered \"HTTP/1.0 404 Not Found\""));
        let (said, _) = answered(|address| page(address, "/x"), "");
        assert!(said.unwrap_err().to_string().ends_with("/x answered \"\""));
    }

    #[test]
    fn what_is_no_gauge_is_named() {
        let (said, _) = answered_with("HTTP/1.1 404 Not Found\r\n\r\n");
        assert!(said.unwrap_err().to_string().ends_with("answered \"HTTP/1.1 404 Not Found\""));
        let (said, _) = answered_with("SSH-2.0-OpenSSH 200 OK\r\n");
        assert!(said.unwrap_err().to_string().contains("answered \"SSH-2.0"));
        let (said, _) = answered_with("");
        assert!(said.unwrap_err().to_string().ends_with("this is not HTTP"));
    }

    #[test]
    fn an_endless_line_is_not_read_to_its_end() {
        let line: &'static str = Box::leak("x".repeat(64 * 1024).into_boxed_str());
        let (said, _) = answered_with(line);
        assert_eq!(said.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_dead_address_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = ask(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().starts_with(&format!("no answer from http://{address}/readyz: ")), "{error}");
    }

    #[test]
    fn an_unspecified_address_is_asked_on_loopback() {
        assert_eq!(reachable("0.0.0.0:9464".parse().unwrap()), "127.0.0.1:9464".parse().unwrap());
        assert_eq!(reachable("[::]:9464".parse().unwrap()), "[::1]:9464".parse().unwrap());
        assert_eq!(reachable("192.0.2.1:9464".parse().unwrap()), "192.0.2.1:9464".parse().unwrap());
    }
}
