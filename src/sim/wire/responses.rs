//! OpenAI Responses.

use bytes::{BufMut, BytesMut};

use super::{Events, Piece, Reply, put, vllm_metrics};
use crate::sim::{
    reports::Times,
    script::{Finish, Kind},
};

#[derive(Debug)]
pub(crate) struct Responses {
    reply: Reply,
    /// The next event's `sequence_number`.
    sequence: u64,
    /// The next item's `output_index`; an open item has the one before.
    items: u32,
}

impl Responses {
    pub(super) fn new(reply: Reply) -> Self {
        Self { reply, sequence: 0, items: 0 }
    }

    pub(super) fn prelude(&mut self, events: &mut Events) {
        for kind in ["response.created", "response.in_progress"] {
            let sequence = self.next();
            events.plain(|out| {
                head(kind, sequence, out);
                out.put_slice(br#","response":"#);
                response(&self.reply, "in_progress", out);
                out.put_slice(b"}\n\n");
            });
        }
    }

    pub(super) fn piece(&mut self, piece: &Piece, events: &mut Events) {
        match piece.kind {
            Kind::Reasoning => self.reasoning(piece, events),
            Kind::Text => self.text(piece, events),
            Kind::ToolName => self.tool_name(piece, events),
            Kind::ToolArguments => self.tool_arguments(piece, events),
        }
    }

    pub(super) fn closing(&mut self, times: Option<Times>, events: &mut Events) {
        let (kind, status) = match self.reply.finish {
            Finish::Length => ("response.incomplete", "incomplete"),
            Finish::Stop | Finish::Tool => ("response.completed", "completed"),
        };
        self.reply.times = times;
        let sequence = self.next();
        let counts = self.reply.usage.then_some((self.reply.input_tokens, self.reply.output_tokens));
        events.usage(counts, |out| {
            head(kind, sequence, out);
            out.put_slice(br#","response":"#);
            response(&self.reply, status, out);
            out.put_slice(b"}\n\n");
        });
    }

    pub(super) fn error(&mut self, events: &mut Events) {
        let sequence = self.next();
        events.plain(|out| {
            head("error", sequence, out);
            out.put_slice(
                br#","code":"server_error","message":"The server had an error while processing your request.","param":null}"#,
            );
            out.put_slice(b"\n\n");
        });
    }

    fn reasoning(&mut self, piece: &Piece, events: &mut Events) {
        if piece.first == 0 {
            self.items += 1;
            self.item(events, "response.output_item.added", |reply, out| reasoning_item(reply, false, out));
            self.part(events, "response.reasoning_summary_part.added", "", |_, _| {});
        }
        let sequence = self.next();
        events.output(|out| {
            head("response.reasoning_summary_text.delta", sequence, out);
            self.address("rs", "summary_index", out);
            out.put_slice(br#","delta":""#);
            piece.text(&self.reply, out);
            out.put_slice(b"\"}\n\n");
        });
        if piece.last_of_kind {
            let sequence = self.next();
            events.plain(|out| {
                head("response.reasoning_summary_text.done", sequence, out);
                self.address("rs", "summary_index", out);
                out.put_slice(br#","text":""#);
                self.reply.all_reasoning(out);
                out.put_slice(b"\"}\n\n");
            });
            self.part(events, "response.reasoning_summary_part.done", "", Reply::all_reasoning);
            self.item(events, "response.output_item.done", |reply, out| reasoning_item(reply, true, out));
        }
    }

    fn text(&mut self, piece: &Piece, events: &mut Events) {
        if piece.first == self.reply.reasoning_tokens {
            self.items += 1;
            self.item(events, "response.output_item.added", |reply, out| message_item(reply, "in_progress", out));
            self.part(events, "response.content_part.added", "msg", |_, _| {});
        }
        let sequence = self.next();
        events.output(|out| {
            head("response.output_text.delta", sequence, out);
            self.address("msg", "content_index", out);
            out.put_slice(br#","delta":""#);
            piece.text(&self.reply, out);
            out.put_slice(b"\",\"logprobs\":[]}\n\n");
        });
        if piece.last_of_kind {
            let sequence = self.next();
            events.plain(|out| {
                head("response.output_text.done", sequence, out);
                self.address("msg", "content_index", out);
                out.put_slice(br#","text":""#);
                self.reply.all_text(out);
                out.put_slice(b"\",\"logprobs\":[]}\n\n");
            });
            self.part(events, "response.content_part.done", "msg", Reply::all_text);
            self.item(events, "response.output_item.done", |reply, out| message_item(reply, ended(reply), out));
        }
    }

    /// The item that opens a call has its name: it is the output event.
    fn tool_name(&mut self, piece: &Piece, events: &mut Events) {
        self.items += 1;
        let sequence = self.next();
        let index = self.items - 1;
        events.output(|out| {
            head("response.output_item.added", sequence, out);
            put(out, format_args!(r#","output_index":{index},"item":"#));
            tool_item(&self.reply, "in_progress", out);
            out.put_slice(b"}\n\n");
        });
        if piece.last_of_kind {
            self.tool_done(events);
        }
    }

    fn tool_arguments(&mut self, piece: &Piece, events: &mut Events) {
        let sequence = self.next();
        events.output(|out| {
            head("response.function_call_arguments.delta", sequence, out);
            self.address("fc", "", out);
            out.put_slice(br#","delta":""#);
            piece.text(&self.reply, out);
            out.put_slice(b"\"}\n\n");
        });
        if piece.last_of_kind {
            self.tool_done(events);
        }
    }

    fn tool_done(&mut self, events: &mut Events) {
        let sequence = self.next();
        events.plain(|out| {
            head("response.function_call_arguments.done", sequence, out);
            self.address("fc", "", out);
            out.put_slice(br#","arguments":""#);
            self.reply.all_arguments(out);
            out.put_slice(b"\"}\n\n");
        });
        self.item(events, "response.output_item.done", |reply, out| tool_item(reply, ended(reply), out));
    }

    /// An event about the open item as a whole.
    fn item(&mut self, events: &mut Events, kind: &str, item: impl FnOnce(&Reply, &mut BytesMut)) {
        let sequence = self.next();
        let index = self.items - 1;
        events.plain(|out| {
            head(kind, sequence, out);
            put(out, format_args!(r#","output_index":{index},"item":"#));
            item(&self.reply, out);
            out.put_slice(b"}\n\n");
        });
    }

    /// An event about the one part of the open item: an answer's (`msg`) or a summary's.
    fn part(&mut self, events: &mut Events, kind: &str, item: &str, text: impl FnOnce(&Reply, &mut BytesMut)) {
        let answer = item == "msg";
        let sequence = self.next();
        let (prefix, index) = if answer { ("msg", "content_index") } else { ("rs", "summary_index") };
        events.plain(|out| {
            head(kind, sequence, out);
            self.address(prefix, index, out);
            out.put_slice(if answer {
                br#","part":{"type":"output_text","annotations":[],"logprobs":[],"text":""#
            } else {
                br#","part":{"type":"summary_text","text":""#
            });
            text(&self.reply, out);
            out.put_slice(b"\"}}\n\n");
        });
    }

    /// Uses up a sequence number.
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    /// The fields that say which item, and which part of it.
    fn address(&self, prefix: &str, part: &str, out: &mut BytesMut) {
        out.put_slice(br#","item_id":""#);
        id(prefix, &self.reply, out);
        put(out, format_args!(r#"","output_index":{}"#, self.items - 1));
        if !part.is_empty() {
            put(out, format_args!(r#","{part}":0"#));
        }
    }
}

/// An event's lines up to its further fields.
fn head(kind: &str, sequence: u64, out: &mut BytesMut) {
    put(out, format_args!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{sequence}"));
}

pub(super) fn plain(reply: &Reply, out: &mut BytesMut) {
    response(reply, if reply.finish == Finish::Length { "incomplete" } else { "completed" }, out);
}

/// The response object, which repeats the request's configuration every time.
fn response(reply: &Reply, status: &str, out: &mut BytesMut) {
    let done = status != "in_progress";
    out.put_slice(br#"{"id":""#);
    id("resp", reply, out);
    put(
        out,
        format_args!(
            r#"","object":"response","created_at":{},"status":"{status}","background":false,"completed_at":"#,
            reply.created
        ),
    );
    if status == "completed" {
        put(out, reply.created);
    } else {
        out.put_slice(b"null");
    }
    out.put_slice(br#","error":null,"frequency_penalty":0.0,"incomplete_details":"#);
    out.put_slice(if status == "incomplete" { br#"{"reason":"max_output_tokens"}"# } else { b"null" });
    put(
        out,
        format_args!(
            r#","instructions":null,"max_output_tokens":null,"max_tool_calls":null,"model":{},"output":["#,
            reply.model
        ),
    );
    if done {
        output(reply, out);
    }
    out.put_slice(
        br#"],"parallel_tool_calls":true,"presence_penalty":0.0,"previous_response_id":null,"prompt_cache_key":null,"prompt_cache_retention":null,"reasoning":{"effort":"medium","summary":"auto"},"safety_identifier":null,"service_tier":"default","store":false,"temperature":1.0,"text":{"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1.0,"truncation":"disabled","usage":"#,
    );
    if done && reply.usage {
        let (input, output, reasoning) = (reply.input_tokens, reply.output_tokens, reply.reasoning_tokens);
        let total = input + u64::from(output);
        put(
            out,
            format_args!(
                r#"{{"input_tokens":{input},"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{output},"output_tokens_details":{{"reasoning_tokens":{reasoning}}},"total_tokens":{total}}}"#
            ),
        );
    } else {
        out.put_slice(b"null");
    }
    out.put_slice(br#","user":null,"metadata":{}"#);
    vllm_metrics(reply, out);
    out.put_u8(b'}');
}

/// The finished items of a whole reply.
fn output(reply: &Reply, out: &mut BytesMut) {
    if reply.reasoning_tokens > 0 {
        reasoning_item(reply, true, out);
    }
    if reply.answer_tokens() == 0 {
        return;
    }
    if reply.reasoning_tokens > 0 {
        out.put_u8(b',');
    }
    if reply.tool_call {
        tool_item(reply, ended(reply), out);
    } else {
        message_item(reply, ended(reply), out);
    }
}

/// The state of the answer's item when it is done.
fn ended(reply: &Reply) -> &'static str {
    if reply.finish == Finish::Length { "incomplete" } else { "completed" }
}

fn reasoning_item(reply: &Reply, done: bool, out: &mut BytesMut) {
    out.put_slice(br#"{"id":""#);
    id("rs", reply, out);
    out.put_slice(br#"","type":"reasoning","summary":["#);
    if done {
        out.put_slice(br#"{"type":"summary_text","text":""#);
        reply.all_reasoning(out);
        out.put_slice(br#""}"#);
    }
    out.put_slice(b"]}");
}

fn message_item(reply: &Reply, status: &str, out: &mut BytesMut) {
    out.put_slice(br#"{"id":""#);
    id("msg", reply, out);
    put(out, format_args!(r#"","type":"message","status":"{status}","content":["#));
    if status != "in_progress" {
        out.put_slice(br#"{"type":"output_text","annotations":[],"logprobs":[],"text":""#);
        reply.all_text(out);
        out.put_slice(br#""}"#);
    }
    out.put_slice(br#"],"role":"assistant"}"#);
}

fn tool_item(reply: &Reply, status: &str, out: &mut BytesMut) {
    out.put_slice(br#"{"id":""#);
    id("fc", reply, out);
    put(out, format_args!(r#"","type":"function_call","status":"{status}","arguments":""#));
    if status != "in_progress" {
        reply.all_arguments(out);
    }
    put(out, format_args!(r#"","call_id":"call_sim{}","name":"{}"}}"#, reply.number, Reply::TOOL));
}

fn id(prefix: &str, reply: &Reply, out: &mut BytesMut) {
    put(out, format_args!("{prefix}_sim{:032x}", reply.number));
}
