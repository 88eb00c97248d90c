//! Anthropic Messages.

use bytes::{BufMut, BytesMut};

use super::{Events, Piece, Reply, put};
use crate::sim::script::{Finish, Kind};

#[derive(Debug)]
pub(crate) struct Messages {
    reply: Reply,
    /// The next block's index; an open block has the one before.
    blocks: u32,
    /// The block opened last is still open.
    open: Option<Kind>,
}

/// As the provider sends it: with spaces, unlike everything else.
const PING: &[u8] = b"event: ping\ndata: {\"type\": \"ping\"}\n\n";

impl Messages {
    pub(super) fn new(reply: Reply) -> Self {
        Self { reply, blocks: 0, open: None }
    }

    pub(super) fn prelude(&mut self, events: &mut Events) {
        let counts = self.reply.usage.then_some((self.reply.input_tokens, 1));
        events.usage(counts, |out| {
            out.put_slice(b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{");
            message_head(&self.reply, out);
            out.put_slice(br#""content":[],"stop_reason":null,"stop_sequence":null"#);
            if self.reply.usage {
                out.put_slice(br#","usage":"#);
                usage(&self.reply, 1, true, out);
            }
            out.put_slice(b"}}\n\n");
        });
        // A block of text opens before its first token; one that names a tool is output itself.
        if self.reply.reasoning_tokens > 0 {
            self.open_block(Kind::Reasoning, events);
        } else if !self.reply.tool_call {
            self.open_block(Kind::Text, events);
        }
        events.plain(|out| out.put_slice(PING));
    }

    pub(super) fn piece(&mut self, piece: &Piece, events: &mut Events) {
        match piece.kind {
            Kind::Reasoning => {
                self.delta(piece, "thinking_delta", "thinking", events);
                if piece.last_of_kind {
                    self.signature(events);
                    self.close_block(events);
                }
            }
            Kind::Text => {
                if self.open != Some(Kind::Text) {
                    self.open_block(Kind::Text, events);
                }
                self.delta(piece, "text_delta", "text", events);
                if piece.last_of_kind {
                    self.close_block(events);
                }
            }
            Kind::ToolName => {
                self.open_block(Kind::ToolName, events);
                let index = self.blocks - 1;
                events.plain(|out| {
                    delta_head(index, "input_json_delta", "partial_json", out);
                    out.put_slice(b"\"}}\n\n");
                });
                if piece.last_of_kind {
                    self.close_block(events);
                }
            }
            Kind::ToolArguments => {
                self.delta(piece, "input_json_delta", "partial_json", events);
                if piece.last_of_kind {
                    self.close_block(events);
                }
            }
        }
    }

    pub(super) fn closing(&mut self, events: &mut Events) {
        let counts = self.reply.usage.then_some((self.reply.input_tokens, self.reply.output_tokens));
        events.usage(counts, |out| {
            put(
                out,
                format_args!(
                    "event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{}\",\"stop_sequence\":null}}",
                    finish(self.reply.finish)
                ),
            );
            if self.reply.usage {
                out.put_slice(br#","usage":"#);
                usage(&self.reply, self.reply.output_tokens, false, out);
            }
            out.put_slice(b"}\n\n");
        });
        events.plain(|out| out.put_slice(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    }

    fn open_block(&mut self, kind: Kind, events: &mut Events) {
        let index = self.blocks;
        self.blocks += 1;
        self.open = Some(kind);
        let number_of_reply = self.reply.number;
        let write = |out: &mut BytesMut| {
            put(
                out,
                format_args!(
                    "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":"
                ),
            );
            match kind {
                Kind::Reasoning => out.put_slice(br#"{"type":"thinking","thinking":"","signature":""}"#),
                Kind::Text => out.put_slice(br#"{"type":"text","text":""}"#),
                Kind::ToolName | Kind::ToolArguments => put(
                    out,
                    format_args!(
                        r#"{{"type":"tool_use","id":"toolu_sim{number_of_reply}","name":"{}","input":{{}}}}"#,
                        Reply::TOOL
                    ),
                ),
            }
            out.put_slice(b"}\n\n");
        };
        if kind == Kind::ToolName { events.output(write) } else { events.plain(write) }
    }

    fn delta(&self, piece: &Piece, kind: &str, field: &str, events: &mut Events) {
        events.output(|out| {
            delta_head(self.blocks - 1, kind, field, out);
            piece.text(&self.reply, out);
            out.put_slice(b"\"}}\n\n");
        });
    }

    fn signature(&self, events: &mut Events) {
        events.plain(|out| {
            delta_head(self.blocks - 1, "signature_delta", "signature", out);
            out.put_slice(b"c2ltdWxhdGVk\"}}\n\n");
        });
    }

    fn close_block(&mut self, events: &mut Events) {
        self.open = None;
        let index = self.blocks - 1;
        events.plain(|out| {
            put(
                out,
                format_args!(
                    "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n"
                ),
            );
        });
    }
}

pub(super) fn error(out: &mut BytesMut) {
    out.put_slice(
        b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
    );
}

pub(super) fn plain(reply: &Reply, out: &mut BytesMut) {
    out.put_u8(b'{');
    message_head(reply, out);
    out.put_slice(br#""content":["#);
    if reply.reasoning_tokens > 0 {
        out.put_slice(br#"{"type":"thinking","thinking":""#);
        reply.all_reasoning(out);
        out.put_slice(br#"","signature":"c2ltdWxhdGVk"}"#);
        if reply.answer_tokens() > 0 {
            out.put_u8(b',');
        }
    }
    if reply.answer_tokens() > 0 && reply.tool_call {
        // Here the arguments are an object, not a string that holds one.
        let mut arguments = BytesMut::new();
        reply.all_arguments(&mut arguments);
        let unescaped: Vec<u8> = arguments.iter().copied().filter(|byte| *byte != b'\\').collect();
        put(
            out,
            format_args!(r#"{{"type":"tool_use","id":"toolu_sim{}","name":"{}","input":"#, reply.number, Reply::TOOL),
        );
        out.put_slice(&unescaped);
        out.put_u8(b'}');
    } else if reply.answer_tokens() > 0 {
        out.put_slice(br#"{"type":"text","text":""#);
        reply.all_text(out);
        out.put_slice(br#""}"#);
    }
    put(out, format_args!(r#"],"stop_reason":"{}","stop_sequence":null"#, finish(reply.finish)));
    if reply.usage {
        out.put_slice(br#","usage":"#);
        usage(reply, reply.output_tokens, true, out);
    }
    out.put_u8(b'}');
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::Tool => "tool_use",
    }
}

/// The fields every message starts with.
fn message_head(reply: &Reply, out: &mut BytesMut) {
    put(
        out,
        format_args!(
            r#""model":{},"id":"msg_sim{:020x}","type":"message","role":"assistant","#,
            reply.model, reply.number
        ),
    );
}

fn delta_head(index: u32, kind: &str, field: &str, out: &mut BytesMut) {
    put(
        out,
        format_args!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"{kind}\",\"{field}\":\""
        ),
    );
}

/// Cumulative counts; the first and the only ones of a reply say more than the closing ones.
fn usage(reply: &Reply, output: u32, full: bool, out: &mut BytesMut) {
    put(
        out,
        format_args!(
            r#"{{"input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":{output}"#,
            reply.input_tokens
        ),
    );
    if full {
        out.put_slice(
            br#","cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"service_tier":"standard""#,
        );
    }
    if reply.reasoning_tokens > 0 && output == reply.output_tokens {
        put(out, format_args!(r#","output_tokens_details":{{"thinking_tokens":{}}}"#, reply.reasoning_tokens));
    }
    out.put_u8(b'}');
}
