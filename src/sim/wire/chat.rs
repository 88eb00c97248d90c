//! OpenAI chat completions.

use bytes::{BufMut, BytesMut};

use super::{Events, Piece, Reply, put};
use crate::sim::script::{Finish, Kind};

#[derive(Debug)]
pub(crate) struct Chat {
    reply: Reply,
    /// Every chunk up to the inside of its `delta`.
    open: Vec<u8>,
    /// From the end of the delta to the chunk's end, while nothing finishes.
    close: Vec<u8>,
    /// The role has been told.
    opened: bool,
}

const ROLE: &[u8] = br#""role":"assistant","content":"","refusal":null"#;

impl Chat {
    pub(super) fn new(reply: Reply) -> Self {
        let mut open = b"data: ".to_vec();
        chunk_head(&reply, &mut open);
        open.put_slice(br#""choices":[{"index":0,"delta":{"#);
        let mut close = br#"},"logprobs":null,"finish_reason":null}]"#.to_vec();
        if reply.wants_usage {
            close.put_slice(br#","usage":null"#);
        }
        close.put_slice(b"}\n\n");
        Self { reply, open, close, opened: false }
    }

    pub(super) fn prelude(&mut self, events: &mut Events) {
        // A late role shares the chunk of the first output.
        if self.reply.early_prelude {
            self.opened = true;
            events.plain(|out| self.chunk(out, |out| out.put_slice(ROLE)));
        }
    }

    pub(super) fn piece(&mut self, piece: &Piece, events: &mut Events) {
        let role = !std::mem::replace(&mut self.opened, true);
        events.output(|out| {
            self.chunk(out, |out| {
                if role {
                    out.put_slice(br#""role":"assistant","#);
                }
                self.delta(piece, role, out);
            });
        });
    }

    fn delta(&self, piece: &Piece, role: bool, out: &mut BytesMut) {
        match piece.kind {
            Kind::Reasoning => {
                out.put_slice(br#""reasoning_content":""#);
                piece.text(&self.reply, out);
                out.put_u8(b'"');
            }
            Kind::Text => {
                out.put_slice(br#""content":""#);
                piece.text(&self.reply, out);
                out.put_u8(b'"');
            }
            Kind::ToolName => {
                if role {
                    out.put_slice(br#""content":null,"#);
                }
                out.put_slice(br#""tool_calls":[{"index":0,"#);
                tool_open(&self.reply, out);
                if piece.last_of_kind {
                    self.reply.all_arguments(out);
                }
                out.put_slice(br#""}}]"#);
            }
            Kind::ToolArguments => {
                out.put_slice(br#""tool_calls":[{"index":0,"function":{"arguments":""#);
                piece.text(&self.reply, out);
                out.put_slice(br#""}}]"#);
            }
        }
    }

    pub(super) fn closing(&mut self, events: &mut Events) {
        events.plain(|out| {
            out.put_slice(&self.open);
            out.put_slice(br#"},"logprobs":null,"finish_reason":""#);
            out.put_slice(finish(self.reply.finish).as_bytes());
            out.put_slice(if self.reply.wants_usage { br#""}],"usage":null}"# } else { br#""}]}"# });
            out.put_slice(b"\n\n");
        });
        if self.reply.wants_usage && self.reply.usage {
            events.usage(Some((self.reply.input_tokens, self.reply.output_tokens)), |out| {
                out.put_slice(b"data: ");
                chunk_head(&self.reply, out);
                out.put_slice(br#""choices":[],"usage":"#);
                usage(&self.reply, out);
                out.put_slice(b"}\n\n");
            });
        }
        events.plain(|out| out.put_slice(b"data: [DONE]\n\n"));
    }

    fn chunk(&self, out: &mut BytesMut, delta: impl FnOnce(&mut BytesMut)) {
        out.put_slice(&self.open);
        delta(out);
        out.put_slice(&self.close);
    }
}

pub(super) fn error(out: &mut BytesMut) {
    out.put_slice(
        br#"data: {"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":"internal_error"}}"#,
    );
    out.put_slice(b"\n\n");
}

pub(super) fn plain(reply: &Reply, out: &mut BytesMut) {
    head(reply, "chat.completion", out);
    out.put_slice(br#""choices":[{"index":0,"message":{"role":"assistant","content":"#);
    if reply.tool_call || reply.answer_tokens() == 0 {
        out.put_slice(b"null");
    } else {
        out.put_u8(b'"');
        reply.all_text(out);
        out.put_u8(b'"');
    }
    out.put_slice(br#","refusal":null,"annotations":[]"#);
    if reply.reasoning_tokens > 0 {
        out.put_slice(br#","reasoning_content":""#);
        reply.all_reasoning(out);
        out.put_u8(b'"');
    }
    if reply.tool_call && reply.answer_tokens() > 0 {
        out.put_slice(br#","tool_calls":[{"#);
        tool_open(reply, out);
        reply.all_arguments(out);
        out.put_slice(br#""}}]"#);
    }
    out.put_slice(br#"},"logprobs":null,"finish_reason":""#);
    out.put_slice(finish(reply.finish).as_bytes());
    out.put_slice(br#""}]"#);
    if reply.usage {
        out.put_slice(br#","usage":"#);
        usage(reply, out);
    }
    out.put_slice(b"}");
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Tool => "tool_calls",
    }
}

fn chunk_head(reply: &Reply, out: &mut impl BufMut) {
    head(reply, "chat.completion.chunk", out);
}

fn head(reply: &Reply, object: &str, out: &mut impl BufMut) {
    out.put_slice(
        format!(
            r#"{{"id":"chatcmpl-sim{:016x}","object":"{object}","created":{},"model":{},"service_tier":"default","system_fingerprint":"fp_sim","#,
            reply.number, reply.created, reply.model
        )
        .as_bytes(),
    );
}

/// A tool call up to the inside of its arguments.
fn tool_open(reply: &Reply, out: &mut BytesMut) {
    out.put_slice(br#""id":"call_sim"#);
    put(out, reply.number);
    out.put_slice(br#"","type":"function","function":{"name":""#);
    out.put_slice(Reply::TOOL.as_bytes());
    out.put_slice(br#"","arguments":""#);
}

fn usage(reply: &Reply, out: &mut BytesMut) {
    let (input, output, reasoning) = (reply.input_tokens, reply.output_tokens, reply.reasoning_tokens);
    let total = input + u64::from(output);
    put(
        out,
        format_args!(
            r#"{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":{reasoning},"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#
        ),
    );
}
