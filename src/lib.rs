//! streamgauge: a transparent measuring reverse proxy for the token streams of LLM inference.
//!
//! It stands between applications and inference providers, passes every byte through as it came, and times what
//! passes: upstream time to first token, cadence, end-to-end latency, where a request's time went, and what the gauge
//! itself added. Every number says which two marks it lies between; see [`timeline`] for the marks and [`observation`]
//! for the formulas.
//!
//! # The one way through
//!
//! ```text
//! bytes in ─► listener ─► TLS ─► HTTP server ──► proxy::Gateway::call
//!                                                 │ 1 route      RouteTable → Route
//!                                                 │ 2 begin      Exchange, owned by an Open
//!                                                 │ 3 acquire    Lease: an upstream connection and its facts
//!                                                 │ 4 send       RequestTap on the way up
//!                                                 │ 5 head       status, content type → Observer
//!                                                 ▼ 6 respond    ResponseTap owns Open + Lease
//! bytes out ◄─ HTTP server polls ResponseTap ◄─ frames, untouched
//!                                                 │ each frame: stamp → count → frame events → read dialect → mark
//!                                                 ▼ once, at the end, or when dropped
//!                                    Observation (plain value, all formulas)
//!                                                 ▼
//!                                    Recorder ─► metrics · access log · listener
//! ```
//!
//! Ownership moves down this line and never back. There is no shared request state behind a lock, no copy of the body
//! into a channel, no second task that times or parses: the number would then measure our own scheduler.
//!
//! # Rooms, from the ground up
//!
//! An import points to a lower floor, or down within a folder; `tests/it/floors.rs` fails on a climb.
//!
//! | floor | room | holds |
//! |---|---|---|
//! | 0 pure | [`clock`], [`error`], [`framing`] | time as values; faults with side and stage; bytes in, events out in pieces |
//! | 1 pure | [`timeline`], [`dialect`], [`config`] | the marks; what requests ask and events say; the configuration, valid by construction |
//! | 2 values | [`route`], [`observation`], [`figures`] | where a request goes; one finished exchange and **the only formulas**; what many records come to |
//! | 3 sinks, sockets | [`metrics`], [`access_log`], [`recent`], [`record`], [`net`], [`http1`] | the families and their encoder; the log; the last exchanges; the door to all three; sockets that stamp what passes, or ask the kernel when it came, and an HTTP/2 connection as one task; HTTP/1.1 on them |
//! | 4 upstream | [`upstream`], [`upload`] | connections with their timings, lent as leases; the request's way up |
//! | 5 tap | [`exchange`], [`tap`], [`tunnel`] | the measuring machine of one exchange; the bodies that feed it; what follows a 101, and the turns in it |
//! | 6 proxy | [`forward`], [`proxy`], [`server`] | header hygiene; the six phases; one client connection |
//! | 7 program | [`admin`], [`health`], [`sim`], [`app`], [`demo`], [`bench`], [`report`], [`cli`] | the live page, `/metrics`, the last exchanges and readiness, and what clients measured; asking for it from outside; the simulated provider; start, run, drain; the demo; the client's ruler; what a log comes to; the command line |
//!
//! # Invariants
//!
//! 1. What leaves is what came, byte for byte; a tap returns nothing but its inner body's frames and errors, and its
//!    limits' errors.
//! 2. Exactly one [`observation::Observation`] per accepted request, whatever happens (`Drop` sees to it; so no
//!    `panic = "abort"`).
//! 3. Reading never fails, never waits, never holds a byte back; in doubt it switches itself off and counts that.
//! 4. Time is read only through [`clock::Clock`], by sockets, taps, upstream, proxy and programs ([`app`] watches how late its
//!    workers run); everything below takes stamps.
//! 5. What was not observed is absent, not zero.
//! 6. Memory per exchange is bounded and independent of the stream's length; per label set likewise.
//! 7. Label values come from configuration or closed enums; `model` only through admission, else `_other`.
//! 8. Scrapes and logs can't block traffic: own runtime, bounded queues, drops counted.
//! 9. Secrets and content never reach a sink.
//!
//! # Words
//!
//! *Downstream* is the client's side, *upstream* the provider's. An *exchange* is one request and its response, an
//! *attempt* one sending of it. A *frame* is one body frame as the HTTP library hands it over, a *read* one return of the socket;
//! an *event* is what the dialect frames (one SSE event with data), an *output event* one with generated content. A
//! *gap* lies between two output events' arrivals; a *stall* is time in which a side did not take bytes that were ready
//! for it. A *lease* is an upstream connection lent to one exchange; a *route* leads requests to an upstream.
//!
//! [`bench`]: mod@bench

pub mod access_log;
pub mod admin;
pub mod app;
pub mod bench;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod dialect;
pub mod error;
pub mod exchange;
pub mod figures;
pub mod forward;
pub mod framing;
pub mod health;
pub mod http1;
pub mod metrics;
pub mod net;
pub mod observation;
pub mod proxy;
pub mod recent;
pub mod record;
pub mod report;
pub mod route;
pub mod server;
pub mod sim;
pub mod tap;
pub mod timeline;
pub mod tunnel;
pub mod upload;
pub mod upstream;
