//! What the tests are made of.

pub mod http2;
mod live;
mod peer;
pub mod speaker;
pub mod tls;
mod told;
mod world;

pub use self::{
    live::Live,
    peer::Peer,
    told::{ms_of, of_pair, stages, value, whole_ms},
    world::{Sides, World, WorldOptions, assert_same, config, upstream},
};

use std::time::Duration;

/// A response head for a stream of events, chunked.
pub const SSE_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// One HTTP/1.1 chunk, its size as the library writes it.
pub fn chunk(text: &str) -> String {
    format!("{:X}\r\n{text}\r\n", text.len())
}

/// The end of a chunked body.
pub const LAST_CHUNK: &str = "0\r\n\r\n";

/// A chat chunk with a text delta.
pub fn chat_delta(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m-served\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text:?}}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The chat chunk that only names the role: no output.
pub fn chat_role() -> String {
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m-served\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n".to_owned()
}

/// Finish, usage and `[DONE]`.
pub fn chat_end(prompt_tokens: u64, completion_tokens: u64) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\ndata: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt_tokens},\"completion_tokens\":{completion_tokens},\"total_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
        prompt_tokens + completion_tokens
    )
}

/// A streaming chat request as clients send it.
pub fn chat_request(model: &str) -> String {
    let body = format!("{{\"model\":\"{model}\",\"stream\":true,\"messages\":[]}}");
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gauge.test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Milliseconds as a duration.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until connecting is refused: the listener is closed.
pub async fn refuses(address: std::net::SocketAddr) {
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}
