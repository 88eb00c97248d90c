//! What is shown: spans that several clocks have timed, what lies between the clocks, and the stages; each with its two
//! ends in words.

use crate::figures::Record;

/// A number of a record, in seconds, where it was observed.
type Of = fn(&Record) -> Option<f64>;

/// One span that up to three clocks have timed, each by itself.
pub(super) struct Clocks {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    /// Of the client's record and of the gauge's.
    pub(super) ours: Option<Of>,
    /// Of the gauge's record.
    pub(super) provider: Option<Of>,
    /// Why it may have no value.
    pub(super) absent: &'static str,
}

/// A span of one record's stages, if there was one.
fn stage(record: &Record, name: &str) -> Option<f64> {
    record.stages_s.get(name).copied().filter(|seconds| *seconds > 0.0)
}

const NO_DIAL: &str = "no measured request needed this step to open a connection";
const NO_STREAM: &str = "no answer had one";

pub(super) const CLOCKS: [Clocks; 12] = [
    Clocks {
        name: "DNS",
        key: "dns",
        from: "name",
        to: "address",
        ours: Some(|record| stage(record, "dns")),
        provider: None,
        absent: NO_DIAL,
    },
    Clocks {
        name: "TCP",
        key: "tcp",
        from: "address",
        to: "connected",
        ours: Some(|record| stage(record, "tcp")),
        provider: None,
        absent: NO_DIAL,
    },
    Clocks {
        name: "TLS",
        key: "tls",
        from: "connected",
        to: "secured",
        ours: Some(|record| stage(record, "tls")),
        provider: None,
        absent: NO_DIAL,
    },
    Clocks {
        name: "queue",
        key: "queue",
        from: "request in",
        to: "work begins",
        ours: None,
        provider: Some(|record| record.server_reported_s.get("queue").copied()),
        absent: "",
    },
    Clocks {
        name: "prefill",
        key: "prefill",
        from: "work begins",
        to: "prompt read",
        ours: None,
        provider: Some(|record| record.server_reported_s.get("prefill").copied()),
        absent: "",
    },
    Clocks {
        name: "TTFB",
        key: "ttfb",
        from: "request out",
        to: "first body byte",
        ours: Some(|record| record.ttfb_s),
        provider: None,
        absent: "no answer had a body",
    },
    Clocks {
        name: "TTFT",
        key: "ttft",
        from: "request out",
        to: "first output",
        ours: Some(|record| record.ttft_s),
        provider: Some(Record::comparable_server_ttft),
        absent: NO_STREAM,
    },
    Clocks {
        name: "answer TTFT",
        key: "answer_ttft",
        from: "request out",
        to: "first answer",
        ours: Some(|record| record.answer_ttft_s),
        provider: None,
        absent: NO_STREAM,
    },
    Clocks {
        name: "decode",
        key: "decode",
        from: "first output",
        to: "last output",
        ours: Some(|record| stage(record, "generation")),
        provider: Some(|record| record.server_reported_s.get("decode").copied()),
        absent: NO_STREAM,
    },
    Clocks {
        name: "TPOT",
        key: "time_per_output_token",
        from: "output token",
        to: "the next",
        ours: Some(|record| record.tpot_s),
        provider: None,
        absent: "no token counts, or none that go with what was seen",
    },
    Clocks {
        name: "longest gap",
        key: "max_gap",
        from: "output event",
        to: "the next",
        ours: Some(|record| record.max_gap_s),
        provider: None,
        absent: NO_STREAM,
    },
    Clocks {
        name: "total",
        key: "total",
        from: "request out",
        to: "response's end",
        ours: Some(|record| record.duration_s),
        provider: Some(|record| record.server_reported_s.get("total").copied()),
        absent: "no answer had an end",
    },
];

/// What lies between two clocks: formed of each request by itself, client's record first.
pub(super) struct Between {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) ends: &'static str,
    pub(super) of: fn(&Record, &Record) -> Option<f64>,
}

pub(super) const BETWEEN: [Between; 11] = [
    Between {
        name: "client − gauge",
        key: "client_less_gauge",
        ends: "the one's TTFT less the other's",
        of: |client, gauge| Some(client.ttft_s? - gauge.ttft_s?),
    },
    Between {
        name: "client's TTFT",
        key: "ttft",
        ends: "request out → first output in, as the next six",
        of: |client, gauge| parts(client, gauge).map(|parts| seconds(parts.iter().sum())),
    },
    Between {
        name: "  the way",
        key: "way_to_gauge",
        ends: "client out → gauge in, gauge out → client in",
        of: |client, gauge| part(client, gauge, 0),
    },
    Between {
        name: "  gauge, request",
        key: "gauge_request",
        ends: "in → out, own time",
        of: |client, gauge| part(client, gauge, 1),
    },
    Between {
        name: "  gauge, waiting",
        key: "gauge_waiting",
        ends: "in → out, for a connection or the upload",
        of: |client, gauge| part(client, gauge, 2),
    },
    Between {
        name: "  gauge's TTFT",
        key: "gauge_ttft",
        ends: "request out → first output in",
        of: |client, gauge| part(client, gauge, 3),
    },
    Between {
        name: "  gauge, first output",
        key: "gauge_first_output",
        ends: "in → out, own time",
        of: |client, gauge| part(client, gauge, 4),
    },
    Between {
        name: "  gauge, not taken",
        key: "gauge_not_taken",
        ends: "in → out, for the client to take it",
        of: |client, gauge| part(client, gauge, 5),
    },
    Between {
        name: "outside server",
        key: "outside_server",
        ends: "the gauge's TTFT less the provider's",
        of: |_, gauge| Some((gauge.ttft_s? - gauge.comparable_server_ttft()?).max(0.0)),
    },
    Between {
        name: "outside server, by the client",
        key: "outside_server_from_client",
        ends: "its TTFT less the provider's",
        of: |client, gauge| Some((client.ttft_s? - gauge.comparable_server_ttft()?).max(0.0)),
    },
    Between {
        name: "total, client − gauge",
        key: "client_less_gauge_total",
        ends: "request out → response's end, likewise",
        of: |client, gauge| Some(client.duration_s? - gauge.duration_s?),
    },
];

fn part(client: &Record, gauge: &Record, index: usize) -> Option<f64> {
    parts(client, gauge).map(|parts| seconds(parts[index]))
}

/// The client's TTFT in nanoseconds, as it went by: the way both ways, the gauge's own time on the request, its waits in
/// it, its TTFT, its own time on the first output, its wait there for the client. Their sum is the client's TTFT, for the
/// five at the gauge are all that lies there between the request's end and the first output's departure, and the way is
/// the rest. Absent where the gauge does not know its own time on the request: sent twice, or answered before its end.
fn parts(client: &Record, gauge: &Record) -> Option<[i64; 6]> {
    let of = |phase: &str| gauge.overhead_s.get(phase).copied().map(nanos);
    let (whole, ttft) = (nanos(client.ttft_s?), nanos(gauge.ttft_s?));
    let (at_gauge, received) = (nanos(gauge.client_ttft_s?), nanos(gauge.request_s?));
    // These stages are from the request's head to its departure, whatever happened at the same time.
    let departed: i64 =
        STAGES[..8].iter().filter_map(|(stage, _)| gauge.stages_s.get(*stage).copied().map(nanos)).sum();
    let (request, first_output) = (of("request")?, of("first_output")?);
    Some([
        whole - (at_gauge - received),
        request,
        departed - received - request,
        ttft,
        first_output,
        at_gauge - departed - ttft - first_output,
    ])
}

/// Records have whole nanoseconds: as such they add up.
#[expect(clippy::cast_possible_truncation, reason = "saturates; nanoseconds of 292 years fit")]
fn nanos(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

/// The stages of a record's wall time and their two ends.
pub(super) const STAGES: [(&str, &str); 13] = [
    ("retry", "first attempt → last attempt"),
    ("dns", "name → address"),
    ("tcp", "address → connected"),
    ("tls", "connected → secured"),
    ("pool_wait", "connection wanted → had, without dialling"),
    ("upload", "bytes ready → taken by the other side"),
    ("receive", "request's head in → its end in"),
    ("gateway_request", "own time until the request is out"),
    ("first_output_wait", "request out → first output in"),
    ("generation", "first output in → last output in"),
    ("tail", "last output in → response's end in"),
    ("client_stall", "response's end in → out, bytes not taken"),
    ("gateway_response", "response's end in → out, own time"),
];

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        access_log::record_json,
        clock::{Nanos, Stamp},
        observation::{ExchangeId, Observation, Outcome},
        timeline::{Interval, Timeline},
    };

    #[test]
    fn the_stages_are_those_of_records() {
        assert_eq!(STAGES.map(|(name, _)| name), crate::observation::STAGES);
    }

    fn record(timeline: Timeline) -> Record {
        let mut seen = Observation::begin(ExchangeId(1), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete);
        (seen.stream, seen.attempts) = (true, 1);
        Record::parse(&record_json(&seen)).unwrap()
    }

    proptest! {
        /// Whatever happens at the same time: a dial while the body still comes, writes that are not taken, a client that
        /// does not read.
        #[test]
        fn the_parts_add_up_to_the_clients_ttft(
            spans in prop::collection::vec(0_u64..50_000_000_000, 9),
            body in 0_u64..100_000_000_000,
            waits in prop::collection::vec(0_u64..60_000_000_000, 4),
            client_ttft in 1_u64..1_000_000_000_000,
        ) {
            let begin = Stamp::from_nanos(1_000).unwrap();
            let mut marks = Timeline::begin(begin);
            let at = |place: usize| begin + Nanos(spans[..=place].iter().sum());
            let (wanted, got) = (at(0), at(4));
            marks.lease_wanted = Some(wanted);
            let phase = |from: usize| Some(Interval { start: at(from), end: at(from + 1) });
            (marks.dns, marks.tcp, marks.tls) = (phase(0), phase(1), phase(2));
            marks.lease_got = Some(got);
            marks.request_end = Some(begin + Nanos(body));
            // The last byte leaves behind the lease and behind its own arrival.
            let sent = got.max(begin + Nanos(body)) + Nanos(spans[5]);
            (marks.sent_first, marks.sent_last) = (Some(got), Some(sent));
            let first_output = sent + Nanos(spans[6]);
            marks.first_output = Some(first_output);
            let delivered = first_output + Nanos(spans[7]);
            marks.first_output_delivered = Some(delivered);
            marks.end = Some(delivered + Nanos(spans[8]));
            marks.waits.upload = Nanos(waits[0].min(sent.since(got).0));
            marks.waits.upload_before_request_end = Nanos(waits[1].min(marks.waits.upload.0));
            marks.waits.first_output = Nanos(waits[2].min(spans[7]));

            let mut client = Timeline::begin(begin);
            (client.request_end, client.sent_last) = (Some(begin), Some(begin + Nanos(waits[3])));
            client.first_output = client.sent_last.map(|sent| sent + Nanos(client_ttft));
            client.end = client.first_output;
            let parts = parts(&record(client), &record(marks)).unwrap();
            prop_assert_eq!(parts.iter().sum::<i64>(), i64::try_from(client_ttft).unwrap());
            let span = |from: Stamp, to: Stamp| i64::try_from(to.since(from).0).unwrap();
            let received = begin + Nanos(body);
            prop_assert_eq!(parts[0], i64::try_from(client_ttft).unwrap() - span(received, delivered), "the way is the way");
            prop_assert_eq!(parts[1] + parts[2], span(received, sent));
            prop_assert_eq!(parts[3], span(sent, first_output));
            prop_assert_eq!(parts[4] + parts[5], span(first_output, delivered));
            prop_assert!(parts[1..].iter().all(|part| *part >= 0), "{:?}", parts);
        }
    }
}
