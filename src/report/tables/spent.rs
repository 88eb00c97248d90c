//! Where time went: stages, sessions, and what the gauge added.

use super::{Head, N, Section, Table, UPSTREAM};
use crate::{
    figures::{ABSENT, Quantiles, percent, significant, time},
    report::{
        sessions::{Session, Sessions},
        shown::{long, name, shown, whole},
        tally::Report,
    },
};

pub(super) fn stages(report: &Report) -> Section {
    let mut table = Table::new(
        2,
        [
            UPSTREAM,
            Head("stage", "in their order; together they are the wall time, to the nanosecond"),
            Head("mean", "of all requests to this upstream"),
            Head("share", "of the wall time"),
        ],
    );
    for upstream in report.upstreams.iter().filter(|upstream| upstream.requests > 0) {
        let mean = upstream.wall_s / upstream.requests as f64;
        let wall = format!("wall, n = {}", whole(upstream.requests as f64));
        table.row([name(upstream.upstream.as_ref()), wall, time(mean), percent(1.0)]);
        for stage in upstream.stages.iter().filter(|stage| stage.sum_s > 0.0) {
            table.row([String::new(), name(Some(&stage.stage)), time(stage.mean_s), percent(stage.share)]);
        }
    }
    let below = report.upstreams.iter().filter(|upstream| upstream.connections > 0).map(|upstream| {
        let rtt = &upstream.upstream_rtt_s;
        let rtt = match rtt.p50.zip(rtt.p99) {
            Some((p50, p99)) => format!(
                "; round trip p50 {}, p99 {}, n = {}; {} segments sent again",
                time(p50),
                time(p99),
                rtt.n,
                upstream.upstream_retransmits
            ),
            None => String::new(),
        };
        let new = percent(upstream.dialled as f64 / upstream.connections as f64);
        format!(
            "{}: {new} of {} requests opened a connection{rtt}",
            name(upstream.upstream.as_ref()),
            upstream.connections
        )
    });
    Section {
        id: "stages",
        title: "Where the time went",
        note: report.either(
            "Wall time runs from the request head's arrival to the end of everything. Up to the request's departure it is \
             connecting and uploading; first_output_wait is the provider and the way there and back; the gauge's own time is \
             gateway_request and gateway_response. Stages without any time are left out.",
            "Wall time runs from when a request was due or begun to its end. Up to the request's departure it is connecting \
             and uploading; first_output_wait is the provider and the way there and back; bench's own time, by which it \
             begins late too, is gateway_request and gateway_response. Stages without any time are left out.",
        ),
        tables: vec![table],
        below: below.collect(),
    }
}

pub(super) fn sessions(sessions: &Sessions) -> Section {
    let mut all = Table::new(
        1,
        [
            Head("per\u{a0}session", "sessions are told apart by the request header that the configuration names"),
            Head("p50", "half of the sessions have no more"),
            Head("p90", "nine in ten have no more"),
            Head("max", "the most"),
            Head("sum", "of all sessions"),
        ],
    );
    let mut longest = Table::new(
        1,
        [
            Head("session", "those with most inference time first"),
            Head("calls", "requests of the session"),
            Head("inference", "the sum of its calls' wall time, from each request head's arrival to the end"),
            Head("waiting", "share of it before the first output: first_output_wait"),
            Head("generating", "share of it from the first to the last output"),
            Head("tokens out", "output tokens, the provider's count"),
            Head("tokens/s", "output tokens per second of inference time"),
            Head(
                "at\u{a0}100/s",
                "worked out, not measured: inference time if its streams generated 100 tokens/s and all else stayed",
            ),
            Head("at\u{a0}400/s", "the same at 400 tokens/s"),
            Head("at\u{a0}1000/s", "the same at 1,000 tokens/s"),
        ],
    );
    let mut below = Vec::new();
    if sessions.sessions > 0 {
        let total = &sessions.total;
        let line = |what: &str, spread: &Quantiles, sum: f64, show: fn(f64) -> String| {
            let [p50, p90, max] = [spread.p50, spread.p90, spread.max].map(|value| shown(value, show));
            [what.to_owned(), p50, p90, max, show(sum)]
        };
        all.row(line("calls", &sessions.calls, total.calls as f64, whole));
        all.row(line("inference time", &sessions.inference_s, total.inference_s, long));
        all.row(line("output tokens", &sessions.output_tokens, total.output_tokens as f64, whole));
        below.push(sentence(sessions));
    }
    for session in &sessions.longest {
        let mut row = vec![
            name(session.session.as_ref()),
            session.calls.to_string(),
            long(session.inference_s),
            part(session.waiting_s, session),
            part(session.generation_s, session),
            whole(session.output_tokens as f64),
            shown(session.tokens_per_second, significant),
        ];
        row.extend((0..3).map(|index| shown(session.inference_at.get(index).map(|at| at.inference_s), long)));
        longest.row(row);
    }
    if sessions.sessions > sessions.longest.len() {
        below.push(format!("listed are the {} sessions with most inference time", sessions.longest.len()));
    }
    Section {
        id: "sessions",
        title: "Agent sessions",
        note: "What the calls of one task come to. Inference time is the sum of the calls' wall time; time between calls is not in \
               it. What it would be at another speed is worked out: only the generation of streams whose speed was observed \
               changes, output tokens after the first / speed; waiting and all else stay.",
        tables: vec![all, longest],
        below,
    }
}

fn part(seconds: f64, session: &Session) -> String {
    if session.inference_s > 0.0 { percent(seconds / session.inference_s) } else { ABSENT.to_owned() }
}

/// All sessions in a sentence.
fn sentence(sessions: &Sessions) -> String {
    let total = &sessions.total;
    let mut text = format!(
        "{} sessions, {} calls, {} of inference: {} waiting for the first output, {} generating",
        sessions.sessions,
        whole(total.calls as f64),
        long(total.inference_s),
        part(total.waiting_s, total),
        part(total.generation_s, total),
    );
    if !total.inference_at.is_empty() {
        let at: Vec<_> = total
            .inference_at
            .iter()
            .map(|at| format!("{} at {}", long(at.inference_s), whole(f64::from(at.tokens_per_second))))
            .collect();
        text = format!("{text}; it would be {} tokens/s", at.join(", "));
    }
    text
}

pub(super) fn overhead(report: &Report) -> Section {
    let mut table = Table::new(
        2,
        [
            UPSTREAM,
            Head("overhead", report.either("the gauge's own time", "bench's own time")),
            N,
            Head("p50", "half of the requests have no more"),
            Head("p99", "99 in 100 have no more"),
            Head("max", "the most"),
        ],
    );
    for upstream in &report.upstreams {
        let phases = [
            ("request: last byte in to last byte out", &upstream.overhead_request_s),
            ("first output: event in to event out", &upstream.overhead_first_output_s),
            ("mean of a stream's output events", &upstream.overhead_event_mean_s),
        ];
        let mut upstream = name(upstream.upstream.as_ref());
        for (phase, spread) in phases.into_iter().filter(|(_, spread)| spread.n > 0) {
            let [p50, p99, max] = [spread.p50, spread.p99, spread.max].map(|value| shown(value, time));
            table.row([std::mem::take(&mut upstream), phase.to_owned(), spread.n.to_string(), p50, p99, max]);
        }
    }
    let mut below = Vec::new();
    if let Some(bounds) = report.flags.get("overhead_lower_bound") {
        below.push(format!("of {bounds} requests it is a lower bound: HTTP/2 hides when bytes leave"));
    }
    let counted = |(what, n): (&String, &u64)| format!("{n} {}", name(Some(what)));
    let stamps = report.stamps.iter().map(|(sides, n)| match sides.as_str() {
        "/" => format!("{n} not said"),
        _ => counted((sides, n)),
    });
    below.push(format!("times taken by, client side/upstream side: {}", stamps.collect::<Vec<_>>().join(", ")));
    if !report.flags.is_empty() {
        below.push(format!("flags: {}", report.flags.iter().map(counted).collect::<Vec<_>>().join(", ")));
    }
    Section {
        id: "overhead",
        title: report.either("What the gauge itself added", "What bench itself added"),
        note: "Socket to socket: from the arrival of bytes to the return of the write that took them, less any wait for the other side.",
        tables: vec![table],
        below,
    }
}
