//! curl, as people use it: each event is on its standard output before the upstream sends the next.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

use streamgauge::observation::Outcome;
use tokio::sync::mpsc;

use crate::support::{LAST_CHUNK, Live, SSE_HEAD, chunk, tls::Certificate};

/// curl with these arguments; absent on a machine without curl, or with one that can't speak HTTP/2.
fn curl(arguments: &[&str]) -> Option<Child> {
    let version = Command::new("curl").arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("HTTP2") {
        return None;
    }
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--max-time", "60"]).args(arguments);
    Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl starts"))
}

/// What comes out of a pipe, read by read. Its thread ends with the pipe.
fn reads(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (tell, reads) = mpsc::channel(100);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            if tell.blocking_send(buffer[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    reads
}

/// Lets curl ask for a stream and checks that every event comes out before the next goes in. Whether there was a curl.
async fn streams(live: &mut Live, version: &str, arguments: &[&str]) -> bool {
    let report = format!("%{{stderr}}{version} %{{http_version}} %{{http_code}}");
    let body = "{\"model\":\"m\",\"stream\":true}";
    let all = [arguments, &["--data", body, "--write-out", &report]].concat();
    let Some(mut curl) = curl(&all) else {
        eprintln!("no curl with HTTP/2 on this machine: not tried");
        return false;
    };
    let mut up = live.upstream().await;
    let request = up.read_to(body).await;
    assert!(request.starts_with("POST /v1/x HTTP/1.1\r\n"), "{request}");
    up.send(SSE_HEAD).await;
    let mut out = reads(curl.stdout.take().expect("a pipe"));
    for i in 0..10 {
        let event = format!("data: {{\"n\":{i}}}\n\n");
        // Half an event is bytes like any other.
        for part in [&event[..7], &event[7..]] {
            up.send(chunk(part)).await;
            let mut came = Vec::new();
            while came.len() < part.len() {
                came.extend(out.recv().await.expect("curl has not ended"));
            }
            assert_eq!(String::from_utf8(came).unwrap(), part);
        }
    }
    up.send(LAST_CHUNK).await;
    assert_eq!(out.recv().await, None, "nothing more");
    let done = curl.wait_with_output().expect("curl ends");
    assert_eq!(String::from_utf8(done.stderr).unwrap(), format!("{version} {version} 200"));
    assert!(done.status.success());
    let record = live.record().await;
    assert_eq!((record.outcome, record.reads), (Outcome::Complete, 20));
    true
}

#[tokio::test]
async fn curl_streams_event_by_event_in_every_version() {
    let certificate = Certificate::new();
    let mut live = Live::start(Some(&certificate.pair), |_| {}).await;
    let plain = format!("http://{}/v1/x", live.address);
    let tls = format!("https://localhost:{}/v1/x", live.tls_address.expect("a TLS listener").port());
    let address = live.tls_address.expect("a TLS listener");
    let resolve = format!("localhost:{}:{}", address.port(), address.ip());
    let ca = certificate.pair.certificate.to_str().expect("a plain path").to_owned();
    let secure = ["--cacert", &ca, "--resolve", &resolve, &tls];
    if streams(&mut live, "1.1", &["--http1.1", &plain]).await {
        // curl asks to switch to h2c here; nobody does.
        streams(&mut live, "1.1", &["--http2", &plain]).await;
        streams(&mut live, "2", &["--http2-prior-knowledge", &plain]).await;
        streams(&mut live, "1.1", &[&["--http1.1"][..], &secure].concat()).await;
        streams(&mut live, "2", &[&["--http2"][..], &secure].concat()).await;
    }
    live.finish().await;
}
