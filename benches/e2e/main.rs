//! The parts of the end-to-end benchmark that stand on both sides of a proxy: a simulated provider, and the load.
//!
//! ```text
//! e2e provider --port N          OpenAI's chat completions, streamed or plain, as each request asks in `x-play`
//! e2e load --port N …            requests to it, straight or through a proxy; ends with one JSON object
//! e2e certificate FOLDER         a certificate for 127.0.0.1: cert.pem, key.pem, both.pem
//! ```
//!
//! `benches/e2e/run` starts them, and the proxies.

#[cfg(target_os = "linux")]
mod parts;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    parts::run()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("it needs Linux");
}
