//! Tables with a row per upstream and model.

use super::{Head, MODEL, Room, Section, Table, UPSTREAM, pair_and};
use crate::{
    figures::{ABSENT, percent, significant, time},
    report::{
        shown::{name, shown, title, whole},
        tally::{Pair, Report},
    },
};

pub(super) fn first_output(report: &Report, room: Room) -> Section {
    let mut times = Table::new(
        2,
        [
            UPSTREAM,
            MODEL,
            Head("n", "streams that had an output event"),
            Head("TTFT p50", "from the request's departure to the upstream to the first output event's arrival"),
            Head("p90", "nine in ten streams were as fast"),
            Head("p99", "99 in 100 streams were as fast; from 100 streams on"),
            Head("max", "the slowest of all"),
            Head("p99/p50", "how consistent it is: below 4 is good, above 10 is not"),
            Head(
                "answer p50",
                "from the request's departure to the first event of the answer: behind any reasoning and tool calls",
            ),
            Head(
                "client p50",
                report.either(
                    "from the request head's arrival to the first output event's departure to the client",
                    "from when the request was due or begun to the first output event in bench's hands",
                ),
            ),
        ],
    );
    let mut deadlines = Table::new(
        2,
        [
            UPSTREAM,
            MODEL,
            Head("streams", "requests that asked for a stream, whatever became of them"),
            Head(
                "≤\u{a0}300\u{a0}ms",
                "share with a first output within 0.3 s, of all that asked but those whose client left before",
            ),
            Head("≤\u{a0}600\u{a0}ms", "the same within 0.6 s"),
            Head("≤\u{a0}1\u{a0}s", "the same within 1 s"),
            Head("never", "streams that never had an output event: failed, empty, or the client left"),
        ],
    );
    for (index, pair) in report.pairs.iter().enumerate() {
        let room = index < room.pairs;
        times.row_of(pair.ttft_s.n as u64, room, || {
            pair_and(
                pair,
                [
                    pair.ttft_s.n.to_string(),
                    shown(pair.ttft_s.p50, time),
                    shown(pair.ttft_s.p90, time),
                    shown(pair.ttft_s.p99, time),
                    shown(pair.ttft_s.max, time),
                    shown(pair.ttft_s.p99_over_p50, significant),
                    shown(pair.answer_ttft_s.p50, time),
                    shown(pair.client_ttft_s.p50, time),
                ],
            )
        });
        deadlines.row_of(pair.streams, room, || {
            let met = pair.deadlines.iter().map(|deadline| shown(deadline.met_share, percent));
            let mut row = pair_and(pair, [pair.streams.to_string()]);
            row.extend(met);
            row.push(pair.streams.saturating_sub(pair.ttft_s.n as u64).to_string());
            row
        });
    }
    let assumed: u64 = report.pairs.iter().map(|pair| pair.streams_assumed).sum();
    let mut below = Vec::new();
    if assumed > 0 {
        below.push(format!(
            "{assumed} failures were answered without a stream: their records don't say whether one was asked for, and they \
             count as streams that missed every deadline"
        ));
    }
    Section {
        id: "ttft",
        title: "Time to first token",
        note: "TTFT runs from the request's departure to the arrival of the first event with generated content. It knows \
               only requests that got one: the second table counts all that asked for a stream, and a failure as missed.",
        tables: vec![times, deadlines],
        below,
    }
}

/// Outcomes in six kinds, each with whose it is.
pub(in crate::report) const KINDS: [(&str, &str, &[&str]); 6] = [
    ("ok", "the protocol's own end was seen", &["complete"]),
    ("429", "rate limited: 429, or 529", &["rate_limited"]),
    (
        "failed",
        "the provider's: truncated, error event, reset, unreachable, timed out, 5xx",
        &["truncated", "error_event", "upstream_reset", "unreachable", "upstream_timeout", "upstream_5xx"],
    ),
    ("4xx", "any other 4xx of the provider's", &["upstream_4xx"]),
    ("client", "the client left, or its request was refused as malformed", &["client_gone", "client_error"]),
    (
        "gauge",
        "refused by the gauge's own limit, cut by its shutdown, or its fault",
        &["refused", "drained", "gateway_error"],
    ),
];

/// How many of a pair's requests ended in each of [`KINDS`].
pub(in crate::report) fn by_kind(pair: &Pair) -> [u64; 6] {
    KINDS.map(|(_, _, outcomes)| outcomes.iter().filter_map(|outcome| pair.outcomes.get(*outcome)).sum())
}

pub(super) fn outcomes(report: &Report, room: Room) -> Section {
    let mut head = vec![UPSTREAM, MODEL, Head("requests", "accepted requests, tunnels left out")];
    head.extend(KINDS.map(|(name, meaning, _)| Head(name, meaning)));
    let mut table = Table::new(2, head);
    let mut below = Vec::new();
    for pair in report.pairs.iter().take(room.pairs) {
        let kinds =
            by_kind(pair).map(|n| if n == 0 { ABSENT.to_owned() } else { percent(n as f64 / pair.requests as f64) });
        let mut row = pair_and(pair, [pair.requests.to_string()]);
        row.extend(kinds);
        table.row(row);
        let others: Vec<_> = pair
            .outcomes
            .iter()
            .filter(|(outcome, _)| *outcome != "complete")
            .map(|(outcome, n)| format!("{n} {}", name(Some(outcome))))
            .collect();
        if !others.is_empty() {
            below.push(format!("{}: {}", title(pair.upstream.as_ref(), pair.model.as_ref()), others.join(", ")));
        }
    }
    table.left_out = report.pairs.len().saturating_sub(room.pairs);
    if !report.limits.is_empty() {
        let limits: Vec<_> = report.limits.iter().map(|(limit, n)| format!("{n} {}", name(Some(limit)))).collect();
        below.push(format!("limits that fired: {}", limits.join(", ")));
    }
    Section {
        id: "outcomes",
        title: "Requests and how they ended",
        note: "Exactly one outcome per request: the first cause of its end.",
        tables: vec![table],
        below,
    }
}

pub(super) fn speed(report: &Report, room: Room) -> Section {
    let mut table = Table::new(
        2,
        [
            UPSTREAM,
            MODEL,
            Head("n", "streams with a token count and output that came over time"),
            Head("tokens/s p50", "output tokens per second after the first, from the first to the last output event"),
            Head("p10", "one in ten streams was as slow as this, or slower"),
            Head("p1", "one in 100 was as slow as this, or slower; from 100 streams on"),
            Head("p50/p1", "how consistent it is: how many times slower the slow tail is than the median"),
            Head("TPOT p50", "time per output token: (last − first output event) / (output tokens − 1)"),
            Head("replies", "complete replies with a token count"),
            Head("end\u{a0}to\u{a0}end tokens/s", "median of output tokens over the upstream duration, TTFT included"),
        ],
    );
    let mut ends = Table::new(
        2,
        [
            UPSTREAM,
            MODEL,
            Head("n", "complete requests that were delivered whole"),
            Head(
                "client\u{a0}duration p50",
                report.either(
                    "from the request head's arrival to the last byte's departure to the client",
                    "from when the request was due or begun to its end",
                ),
            ),
            Head("p99", "99 in 100 took no longer; from 100 requests on"),
            Head("streams", "streams with a gap between output events"),
            Head("max\u{a0}gap p50", "the longest time between two output events of a stream"),
            Head("p99", "99 in 100 streams had no longer one"),
        ],
    );
    for (index, pair) in report.pairs.iter().enumerate() {
        let room = index < room.pairs;
        let (speed, whole) = (&pair.output_tokens_per_second, &pair.end_to_end_tokens_per_second);
        table.row_of(speed.n.max(whole.n) as u64, room, || {
            pair_and(
                pair,
                [
                    speed.n.to_string(),
                    shown(speed.p50, significant),
                    shown(speed.p10, significant),
                    shown(speed.p1, significant),
                    shown(speed.p50_over_p1, significant),
                    shown(pair.tpot_s.p50, time),
                    whole.n.to_string(),
                    shown(whole.p50, significant),
                ],
            )
        });
        ends.row_of(pair.client_duration_s.n.max(pair.max_gap_s.n) as u64, room, || {
            pair_and(
                pair,
                [
                    pair.client_duration_s.n.to_string(),
                    shown(pair.client_duration_s.p50, time),
                    shown(pair.client_duration_s.p99, time),
                    pair.max_gap_s.n.to_string(),
                    shown(pair.max_gap_s.p50, time),
                    shown(pair.max_gap_s.p99, time),
                ],
            )
        });
    }
    Section {
        id: "speed",
        title: "Output speed, duration, gaps",
        note: "Speed is that of the output after its first token, by the provider's token counts; it is absent where tokens and \
               events don't compare (hidden reasoning, bursts, streams the client held back). Client duration is of complete \
               requests only: a quick refusal is no quick answer.",
        tables: vec![table, ends],
        below: Vec::new(),
    }
}

pub(super) fn server(report: &Report, room: Room) -> Section {
    let mut both = Table::new(
        2,
        [
            UPSTREAM,
            MODEL,
            Head("n", "streams of which both sides' TTFT are known and compare"),
            Head(
                "measured p50",
                "our TTFT of these streams: from the request's departure to the first output event's arrival",
            ),
            Head("server p50", "the provider's own: from the request's arrival there to its first token, by its clock"),
            Head(
                "outside p50",
                "ours less the provider's, stream by stream: the network, and what it does not account for",
            ),
            Head("outside p99", "99 in 100 streams lost no more outside"),
        ],
    );
    let mut phases = Table::new(
        3,
        [
            UPSTREAM,
            MODEL,
            Head("phase", "by the provider's own clock"),
            Head("n", "requests for which the provider says it"),
            Head("p50", "half took no longer"),
            Head("p90", "nine in ten took no longer"),
            Head("p99", "99 in 100 took no longer"),
        ],
    );
    for (index, reported) in report.server_reported.iter().enumerate() {
        let room = index < room.pairs;
        let names = || [name(reported.upstream.as_ref()), name(reported.model.as_ref())];
        both.row_of(reported.outside_server_s.n as u64, room, || {
            let [upstream, model] = names();
            vec![
                upstream,
                model,
                reported.outside_server_s.n.to_string(),
                shown(reported.gateway_ttft_s.p50, time),
                shown(reported.server_ttft_s.p50, time),
                shown(reported.outside_server_s.p50, time),
                shown(reported.outside_server_s.p99, time),
            ]
        });
        let mut shown_names = names();
        for (phase, spread) in &reported.phases {
            phases.row_of(spread.n as u64, room, || {
                let [upstream, model] = std::mem::take(&mut shown_names);
                vec![
                    upstream,
                    model,
                    (*phase).to_owned(),
                    spread.n.to_string(),
                    shown(spread.p50, time),
                    shown(spread.p90, time),
                    shown(spread.p99, time),
                ]
            });
        }
    }
    Section {
        id: "server",
        title: "What providers say, beside what was measured",
        note: "Two clocks, each in its own column. A wide gap outside the server is network, or a queue that the provider does not count.",
        tables: vec![both, phases],
        below: Vec::new(),
    }
}

pub(super) fn tokens(report: &Report, room: Room) -> Section {
    let mut table = Table::new(
        2,
        [
            UPSTREAM,
            MODEL,
            Head("input", "sum of the provider's counts, cached ones included"),
            Head("cached", "of the input: read from a cache"),
            Head("output", "sum of the provider's counts, reasoning included"),
            Head("reasoning", "of the output"),
            Head("replies", "complete replies that should come with token counts"),
            Head("no usage", "of them, without any: speeds leave these out"),
        ],
    );
    for (index, pair) in report.pairs.iter().enumerate() {
        let tokens = &pair.tokens;
        let without = (tokens.replies > 0).then(|| tokens.without_usage as f64 / tokens.replies as f64);
        table.row_of(tokens.replies.max(tokens.input).max(tokens.output), index < room.pairs, || {
            pair_and(
                pair,
                [
                    whole(tokens.input as f64),
                    whole(tokens.cached as f64),
                    whole(tokens.output as f64),
                    whole(tokens.reasoning as f64),
                    tokens.replies.to_string(),
                    shown(without, percent),
                ],
            )
        });
    }
    Section {
        id: "tokens",
        title: "Tokens",
        note: "The provider's own counts, never an estimate. Cached lie inside input, reasoning inside output.",
        tables: vec![table],
        below: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        observation::Outcome,
        report::{
            rows::Log,
            tables::{self, Head},
            tally::Scope,
        },
    };

    /// Of each pair everything a record can say.
    fn report_of(pairs: usize) -> Report {
        let line = |index: usize| {
            format!(
                r#"{{"time":"2026-01-31T12:00:00Z","upstream":"u","model":"m{index}","endpoint":"chat","dialect":"openai_chat","status":200,
                    "stream":true,"outcome":"complete","wall_s":1.0,"ttft_s":0.2,"client_duration_s":1.0,"max_gap_s":0.1,
                    "output_tokens_per_second":50.0,"end_to_end_tokens_per_second":40.0,"input_tokens":5,"output_tokens":40,
                    "server_reported_s":{{"ttft":0.1,"queue":0.05}}}}"#
            )
        };
        let lines: Vec<String> = (0..pairs).map(line).collect();
        let log = Log::of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        Report::of(&log, Scope::default())
    }

    #[test]
    fn every_table_that_is_cut_says_by_how_much() {
        let room = Room { pairs: 3, sliced: 2 };
        let report = report_of(5);
        for section in tables::sections(&report, room) {
            for table in section.tables.iter().filter(|table| table.head.iter().any(|Head(name, _)| *name == "model")) {
                let models = report.pairs.iter().filter(|pair| {
                    let model = name(pair.model.as_ref());
                    table.rows.iter().any(|row| row.contains(&model))
                });
                assert!(models.count() < 5 && table.left_out > 0, "{}: {:?}", section.id, table.head[2]);
            }
        }
        assert!(
            tables::sections(&report, Room { pairs: 9, sliced: 9 })
                .iter()
                .flat_map(|s| &s.tables)
                .all(|t| t.left_out == 0)
        );
    }

    #[test]
    fn every_outcome_is_of_one_kind() {
        for outcome in Outcome::ALL {
            let kinds = KINDS.iter().filter(|(_, _, outcomes)| outcomes.contains(&outcome.as_str())).count();
            assert_eq!(kinds, 1, "{outcome:?}");
        }
        assert_eq!(KINDS.iter().map(|(_, _, outcomes)| outcomes.len()).sum::<usize>(), Outcome::ALL.len());
    }
}
