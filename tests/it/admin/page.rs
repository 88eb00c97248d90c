//! The live page's files, and who may read what.

use std::path::PathBuf;

use serde_json::Value;
use streamgauge::config::AdminAccess;

use super::{gauge, get, get_with, stream};
use crate::support::Live;

const BROWSER: &str = "Host: 127.0.0.1\r\nAccept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

async fn guarded(access: AdminAccess) -> Live {
    let configure = |config: &mut streamgauge::config::Config| {
        config.admin = Some(([127, 0, 0, 1], 0).into());
        config.admin_access = access;
    };
    Live::start_with(None, |_| {}, configure).await
}

#[tokio::test]
async fn a_browser_gets_the_page_and_all_its_files_under_a_strict_policy() {
    let live = gauge().await;
    let admin = live.admin.unwrap();
    let (head, page) = get_with(admin, "/", BROWSER).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-type: text/html"), "{head}");
    assert!(page.starts_with("<!doctype html>"), "{page}");
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'") && !policy.contains("unsafe")
    );
    assert!(head.contains("x-content-type-options: nosniff\r\n"), "{head}");
    let mut bytes = head.len() + page.len();
    for (path, kind) in [
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/feed.js", "text/javascript"),
        ("/filter.js", "text/javascript"),
        ("/show.js", "text/javascript"),
        ("/plot.js", "text/javascript"),
        ("/detail.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let (head, content) = get(admin, path).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(&format!("content-type: {kind}")), "{path}: {head}");
        bytes += head.len() + content.len();
    }
    assert!(bytes < 150_000, "{bytes} bytes, not compressed");
    assert!(get(admin, "/nothing.js").await.0.starts_with("HTTP/1.1 404 "));
    live.finish().await;
}

#[tokio::test]
async fn a_name_that_is_not_ours_gets_metrics_and_health_and_nothing_else() {
    let live = guarded(AdminAccess { allowed_hosts: vec!["gauge.example".to_owned()], ..AdminAccess::default() }).await;
    let admin = live.admin.unwrap();
    let status = async |path: &str, host: &str| -> String {
        let (head, _) = get_with(admin, path, &format!("Host: {host}\r\nAccept: text/html\r\n")).await;
        head.split(' ').nth(1).unwrap().to_owned()
    };
    for path in ["/metrics", "/healthz", "/readyz", "/help"] {
        assert_eq!(status(path, "prometheus.says.this").await, "200", "{path}");
    }
    for path in ["/", "/page.js", "/exchanges", "/exchange?id=0000000000000001", "/live"] {
        assert_eq!(status(path, "evil.example:9464").await, "421", "{path}");
    }
    for host in ["gauge.example:9464", "localhost:9464", "[::1]:9464", "192.0.2.1"] {
        for path in ["/", "/exchanges"] {
            assert_eq!(status(path, host).await, "200", "{host}{path}");
        }
    }
    live.finish().await;
}

#[tokio::test]
async fn with_a_token_records_are_for_who_sends_it() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("admin-{}.token", std::process::id()));
    std::fs::write(&file, "secret\n").unwrap();
    let live = guarded(AdminAccess { token_file: Some(file.clone()), ..AdminAccess::default() }).await;
    let admin = live.admin.unwrap();
    let status = async |path: &str, lines: &str| -> String {
        let (head, _) = get_with(admin, path, &format!("Host: localhost\r\n{lines}")).await;
        head.split(' ').nth(1).unwrap().to_owned()
    };
    for path in ["/live", "/exchanges", "/exchange?id=0000000000000001"] {
        assert_eq!(status(path, "").await, "401", "{path}");
        assert_eq!(status(path, "Authorization: Bearer secret2\r\n").await, "401", "{path}");
        let elsewhere = "Authorization: Bearer secret\r\nSec-Fetch-Site: cross-site\r\n";
        assert_eq!(status(path, elsewhere).await, "403", "{path}");
    }
    assert_eq!(status("/exchanges", "Authorization: Bearer secret\r\nSec-Fetch-Site: same-origin\r\n").await, "200");
    for path in ["/page.js", "/metrics", "/readyz"] {
        assert_eq!(status(path, "").await, "200", "{path} tells of no exchange");
    }
    assert!(get_with(admin, "/", BROWSER).await.0.starts_with("HTTP/1.1 200 "), "the page asks for the token");
    live.finish().await;
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn one_exchange_comes_with_its_gaps() {
    let mut live = gauge().await;
    let admin = live.admin.unwrap();
    stream(&live, &mut None, "m", "").await;
    let record = live.record().await;
    let (head, body) = get(admin, &format!("/exchange?id={}", record.id)).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let one: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(one["record"]["id"], record.id.to_string());
    assert_eq!(one["gaps"].as_array().map(Vec::len), Some(0), "one output event has no gap");
    assert_eq!(get(admin, "/exchange?id=00000000000000ff").await.1, "null");
    assert!(get(admin, "/exchange?id=1").await.0.starts_with("HTTP/1.1 400 "));
    live.finish().await;
}
