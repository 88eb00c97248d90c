//! streamgauge: a transparent measuring reverse proxy for the token streams of LLM inference.

pub mod access_log;
pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dialect;
pub mod error;
pub mod exchange;
pub mod forward;
pub mod framing;
pub mod health;
pub mod metrics;
pub mod net;
pub mod observation;
pub mod proxy;
pub mod record;
pub mod route;
pub mod server;
pub mod sim;
pub mod tap;
pub mod timeline;
pub mod tunnel;
pub mod upload;
pub mod upstream;
