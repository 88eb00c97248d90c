//! A simulated inference provider: real wire shapes, scripted timing and faults, and a log of what really left and when.
//!
//! It speaks OpenAI chat completions, OpenAI Responses and Anthropic Messages, streaming and plain, over HTTP/1.1 and
//! HTTP/2 (prior knowledge), and lists its models. [`Profile`] is its character; request headers script one request:
//!
//! | header | value | effect |
//! |---|---|---|
//! | `x-sim-ttft-ms` | milliseconds | time to first token, without prefill |
//! | `x-sim-tps` | number | tokens per second; 0: all at once |
//! | `x-sim-tokens` | count | output tokens (the request's own maximum still bounds them) |
//! | `x-sim-tokens-per-event` | count | tokens in one output event |
//! | `x-sim-reasoning` | count | how many of the output tokens are reasoning |
//! | `x-sim-tool` | `on`, `off` | the answer is a tool call |
//! | `x-sim-jitter` | sigma | log-normal factor on TTFT and gaps |
//! | `x-sim-usage` | `on`, `off` | whether usage is reported |
//! | `x-sim-reports` | `none`, `headers`, `groq`, `cerebras`, `vllm` | how its own times are told |
//! | `x-sim-early-prelude` | `on`, `off` | role chunk and its like at once, or together with the first token |
//! | `x-sim-stall` | `10@500ms` | a pause before output event 10 (counted from 0); `0@10min` hangs behind the head |
//! | `x-sim-fail` | see below | a fault |
//! | `x-sim-id` | text | put into the log |
//!
//! | fault | on a stream, after *n* output events | on a plain answer |
//! |---|---|---|
//! | `error_event@n` | the dialect's error event, then a clean end | status 500 |
//! | `cut@n` | the connection breaks (HTTP/2: the stream is reset) | breaks half-way through the body |
//! | `truncate@n` | a clean end without finish, usage or end marker | half the body, a clean end |
//! | `garbage@n` | events that are neither JSON nor UTF-8, then a clean end | the same as a body |
//! | `status:N` | at once an error answer (400 to 599); 429 with `retry-after` and rate-limit headers | the same |
//! | `close_before_head` | the connection closes without an answer | the same |
//! | `none` | no fault, whatever the profile's rates say | the same |
//!
//! `@n` left out means 0; a fault after more events than the reply has is never reached. What the deadlines of all events
//! count from is the arrival of the request's last byte, or the moment the request left the queue: a late event does not
//! move the next one. Events due at the same time leave one after the other, each in a frame (HTTP/1.1: a chunk) of its own.
//!
//! [`client`] makes traffic for it, or for anything that speaks these dialects.

mod body;
pub mod client;
mod command;
mod io;
mod log;
mod profile;
mod reports;
mod script;
mod server;
mod timer;
mod wire;

pub(crate) use self::command::Curl;
pub use self::{
    command::main,
    log::{Log, Truth, unix_nanos},
    profile::Profile,
    reports::Reports,
    server::Sim,
    wire::Protocol,
};

#[cfg(test)]
mod tests;
