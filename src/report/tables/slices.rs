//! Tables of classes: prompt length, load, hour, workload.

use super::{Head, MODEL, Room, Section, Table, UPSTREAM};
use crate::{
    figures::{ABSENT, percent, significant, time},
    report::{
        shown::{class_name, name, shown},
        tally::{Report, Slice},
    },
};

pub(super) fn by_input(report: &Report, room: Room) -> Section {
    let class = Head("input tokens", "the provider's count, cached ones included");
    let note = "By the provider's count of input tokens. What has no count, failures above all, is unknown: so shares of ok say \
                little here. Cached input is read faster.";
    section(report, room.sliced, &report.by_input, class, ("input", "By prompt length", note))
}

pub(super) fn by_load(report: &Report, room: Room) -> Section {
    let class =
        Head("in\u{a0}flight", "requests under way to the same upstream and model at the start, itself included");
    let note = "How many requests were under way to the same upstream and model when one began: how TTFT and speed change \
                with load.";
    section(report, room.sliced, &report.by_load, class, ("load", "By load", note))
}

/// A day has many hours: these are of half as many pairs.
pub(super) fn by_hour(report: &Report, room: Room) -> Section {
    let class = Head("hour", "in which the request's head arrived, UTC");
    let note = "All days together. Compare hours of one upstream and model only, and see n.";
    section(report, room.sliced.div_ceil(2), &report.by_hour, class, ("hours", "By hour of day, UTC", note))
}

pub(super) fn workloads(report: &Report, room: Room) -> Section {
    let class = Head("workload", "as the configuration declares it");
    let note =
        "Requests that fit a workload which the configuration declares: these compare over time and between providers.";
    section(report, room.sliced, &report.workloads, class, ("workloads", "Declared workloads, complete requests", note))
}

fn section(
    report: &Report,
    most: usize,
    slices: &[Slice],
    class: Head,
    (id, title, note): (&'static str, &'static str, &'static str),
) -> Section {
    let mut table = Table::new(
        3,
        [
            UPSTREAM,
            MODEL,
            class,
            Head("requests", "in this class"),
            Head("ok", "share of complete requests"),
            Head("429", "share of rate-limited requests"),
            Head("n", "streams that had an output event"),
            Head("TTFT p50", "from the request's departure to the first output event's arrival"),
            Head("p99", "99 in 100 streams were as fast"),
            Head("tokens/s p50", "output tokens per second after the first"),
            Head(
                "client\u{a0}duration p50",
                report.either(
                    "of complete requests, from the request head's arrival to the last byte's departure",
                    "of complete requests, from when one was due or begun to its end",
                ),
            ),
        ],
    );
    let kept: Vec<_> = report.pairs.iter().take(most).map(|pair| (&pair.upstream, &pair.model)).collect();
    let mut last = None;
    for slice in slices {
        let pair = (&slice.upstream, &slice.model);
        if !kept.contains(&pair) {
            table.left_out += 1;
            continue;
        }
        let of = |n: u64| if n == 0 { ABSENT.to_owned() } else { percent(n as f64 / slice.requests as f64) };
        let names = if last == Some(pair) {
            [String::new(), String::new()]
        } else {
            [name(pair.0.as_ref()), name(pair.1.as_ref())]
        };
        last = Some(pair);
        let [upstream, model] = names;
        table.row([
            upstream,
            model,
            class_name(&slice.class),
            slice.requests.to_string(),
            of(slice.complete),
            of(slice.rate_limited),
            slice.ttft_s.n.to_string(),
            shown(slice.ttft_s.p50, time),
            shown(slice.ttft_s.p99, time),
            shown(slice.output_tokens_per_second.p50, significant),
            shown(slice.client_duration_s.p50, time),
        ]);
    }
    Section { id, title, note, tables: vec![table], below: Vec::new() }
}
