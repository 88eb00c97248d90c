//! OpenAI chat completions.

use bytes::{BufMut, BytesMut};

use super::{Events, Piece, Reply, put, vllm_metrics};
use crate::{
    clock::Nanos,
    sim::{
        Reports,
        reports::Times,
        script::{Finish, Kind},
    },
};

#[derive(Debug)]
pub(crate) struct Chat {
    reply: Reply,
    /// Every chunk up to the inside of its `delta`.
    open: Vec<u8>,
    /// From the end of the delta to where the chunk could end, while nothing finishes.
    close: Vec<u8>,
    /// The role has been told.
    opened: bool,
}

/// The end of a chunk.
const END: &[u8] = b"}\n\n";

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
        Self { reply, open, close, opened: false }
    }

    pub(super) fn prelude(&mut self, events: &mut Events) {
        // A late role shares the chunk of the first output.
        if self.reply.early_prelude {
            self.opened = true;
            events.plain(|out| {
                self.chunk(out, |out| out.put_slice(ROLE));
                if self.reply.reports == Reports::Groq {
                    put(out, format_args!(r#","x_groq":{{"id":"req_sim{:016x}"}}"#, self.reply.number));
                }
                out.put_slice(END);
            });
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
            out.put_slice(END);
        });
    }

    fn delta(&self, piece: &Piece, role: bool, out: &mut BytesMut) {
        match piece.kind {
            Kind::Reasoning => {
                reasoning(&self.reply, out);
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

    pub(super) fn closing(&mut self, times: Option<Times>, events: &mut Events) {
        self.reply.times = times;
        let reply = &self.reply;
        let counts = reply.usage.then_some((reply.input_tokens, reply.output_tokens));
        // Who tells times in the chunk that finishes tells usage there too, asked or not.
        let counts_at_finish = counts.filter(|_| matches!(reply.reports, Reports::Groq | Reports::Cerebras));
        events.usage(counts_at_finish, |out| {
            out.put_slice(&self.open);
            out.put_slice(br#"},"logprobs":null,"finish_reason":""#);
            out.put_slice(finish(reply.finish).as_bytes());
            out.put_slice(br#""}]"#);
            match reply.reports {
                Reports::Groq => {
                    put(out, format_args!(r#","x_groq":{{"id":"req_sim{:016x}""#, reply.number));
                    told_usage(reply, out);
                    out.put_u8(b'}');
                }
                Reports::Cerebras => {
                    told_usage(reply, out);
                    time_info(reply, out);
                }
                _ if reply.wants_usage => out.put_slice(br#","usage":null"#),
                _ => {}
            }
            out.put_slice(END);
        });
        // Its last chunk ends the stream.
        if reply.reports == Reports::Cerebras {
            return;
        }
        if reply.wants_usage && reply.usage {
            events.usage(counts, |out| {
                out.put_slice(b"data: ");
                chunk_head(reply, out);
                out.put_slice(br#""choices":[]"#);
                told_usage(reply, out);
                vllm_metrics(reply, out);
                out.put_slice(END);
            });
        }
        events.plain(|out| out.put_slice(b"data: [DONE]\n\n"));
    }

    /// A chunk up to where it could end.
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
        out.put_u8(b',');
        reasoning(reply, out);
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
    told_usage(reply, out);
    vllm_metrics(reply, out);
    time_info(reply, out);
    out.put_slice(b"}");
}

/// The key of reasoning, and the beginning of its text.
fn reasoning(reply: &Reply, out: &mut BytesMut) {
    out.put_slice(match reply.reports {
        Reports::Groq | Reports::Cerebras => br#""reasoning":""#,
        _ => br#""reasoning_content":""#,
    });
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

/// Usage, if it is reported, with Groq's times among its fields: its total is without the queue.
fn told_usage(reply: &Reply, out: &mut BytesMut) {
    if !reply.usage {
        return;
    }
    let (input, output, reasoning) = (reply.input_tokens, reply.output_tokens, reply.reasoning_tokens);
    let total = input + u64::from(output);
    put(
        out,
        format_args!(
            r#","usage":{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":{reasoning},"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}"#
        ),
    );
    if let (Reports::Groq, Some(times)) = (reply.reports, reply.times) {
        out.put_u8(b',');
        spans(times, times.prompt + times.completion, out);
    }
    out.put_u8(b'}');
}

/// Cerebras' times: its total is by the wall clock, and `created` is an instant.
fn time_info(reply: &Reply, out: &mut BytesMut) {
    let (Reports::Cerebras, Some(times)) = (reply.reports, reply.times) else { return };
    out.put_slice(br#","time_info":{"#);
    spans(times, times.total, out);
    put(out, format_args!(r#","created":{}.0}}"#, reply.created));
}

/// Seconds, as the two have them.
fn spans(times: Times, total: Nanos, out: &mut BytesMut) {
    let [queue, prompt, completion, total] = [times.queue, times.prompt, times.completion, total].map(Nanos::seconds);
    put(
        out,
        format_args!(
            r#""queue_time":{queue:.9},"prompt_time":{prompt:.9},"completion_time":{completion:.9},"total_time":{total:.9}"#
        ),
    );
}
