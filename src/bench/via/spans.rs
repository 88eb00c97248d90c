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

pub(super) const BETWEEN: [Between; 8] = [
    Between {
        name: "client − gauge",
        key: "client_less_gauge",
        ends: "the one's TTFT less the other's, in four parts",
        of: |client, gauge| Some(client.ttft_s? - gauge.ttft_s?),
    },
    Between {
        name: "  the way",
        key: "way_to_gauge",
        ends: "client out → gauge in, gauge out → client in",
        of: |client, gauge| {
            // The gauge's own client TTFT begins with the request's head; the client's with the request's end.
            Some(client.ttft_s? - (gauge.client_ttft_s? - stage(gauge, "receive").unwrap_or(0.0)))
        },
    },
    Between {
        name: "  gauge, request",
        key: "gauge_request",
        ends: "in → out, without the connection's part",
        of: |_, gauge| gauge.overhead_s.get("request").copied(),
    },
    Between {
        name: "  gauge, connection",
        key: "gauge_connection",
        ends: "wanted → had",
        of: |_, gauge| {
            let had = |name: &&str| gauge.stages_s.get(*name).copied();
            Some(["pool_wait", "dns", "tcp", "tls"].iter().filter_map(had).sum())
        },
    },
    Between {
        name: "  gauge, first output",
        key: "gauge_first_output",
        ends: "in → out",
        of: |_, gauge| gauge.overhead_s.get("first_output").copied(),
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
    use super::*;

    #[test]
    fn the_stages_are_those_of_records() {
        assert_eq!(STAGES.map(|(name, _)| name), crate::observation::STAGES);
    }
}
