//! The numbers that are compared and served, each with its two ends; and how cells and times are written.

use super::plan::{Cell, Load};
use crate::{
    cli::Arrivals,
    figures::{Record, time},
};

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Seconds: less is better.
    Seconds,
    /// Tokens per second: more is better.
    TokensPerSecond,
}

/// One number of a request.
#[derive(Debug)]
pub(super) struct Number {
    /// As tables call it.
    pub(super) name: &'static str,
    /// As JSON and metrics call it, with its unit.
    pub(super) key: &'static str,
    /// Its two ends, in words.
    pub(super) ends: &'static str,
    pub(super) unit: Unit,
    /// Absent where it was not observed.
    of: fn(&Record, Wait) -> Option<f64>,
}

/// What a request waited before it departed, in seconds: only of the open loop, where it counts.
type Wait = f64;

/// All of them. In the open loop times begin when the request was due, so that a wait for the provider's sake counts.
pub(super) const NUMBERS: [Number; 5] = [
    Number {
        name: "TTFT",
        key: "ttft_seconds",
        ends: "from the request's departure (open loop: from when it was due) to the first output event",
        unit: Unit::Seconds,
        of: |record, wait| Some(record.ttft_s? + wait),
    },
    Number {
        name: "answer TTFT",
        key: "answer_ttft_seconds",
        ends: "from the request's departure (open loop: from when it was due) to the first event with answer",
        unit: Unit::Seconds,
        of: |record, wait| Some(record.answer_ttft_s? + wait),
    },
    Number {
        name: "output tokens/s",
        key: "output_tokens_per_second",
        ends: "output tokens after the first by the time from the first to the last output event",
        unit: Unit::TokensPerSecond,
        of: |record, _| record.output_tokens_per_second,
    },
    Number {
        name: "TPOT",
        key: "time_per_output_token_seconds",
        ends: "time from the first to the last output event by the output tokens after the first",
        unit: Unit::Seconds,
        of: |record, _| record.tpot_s,
    },
    Number {
        name: "end to end",
        key: "duration_seconds",
        ends: "from the request's departure (open loop: from when it was due) to the end of the response",
        unit: Unit::Seconds,
        of: |record, wait| Some(record.duration_s? + wait),
    },
];

impl Number {
    /// The number of this request, made at this load.
    pub(super) fn of(&self, record: &Record, load: Load) -> Option<f64> {
        let wait = match load {
            Load::Closed(_) => 0.0,
            // What lies between due and departure is in the one and not in the other; the way from the first output's
            // arrival to the client's own hands, microseconds, as well.
            Load::Open(..) => match (record.client_ttft_s, record.ttft_s) {
                (Some(from_due), Some(from_departure)) => from_due - from_departure,
                _ => record.client_duration_s? - record.duration_s?,
            },
        };
        (self.of)(record, wait)
    }
}

/// A cell as headings have it.
pub(super) fn heading(cell: &Cell) -> String {
    match cell.load {
        Load::Closed(1) => format!("{}, one at a time", cell.workload.name),
        Load::Closed(at_once) => format!("{}, {at_once} at once", cell.workload.name),
        Load::Open(rate, Arrivals::Poisson) => format!("{}, {rate} a second at random", cell.workload.name),
        Load::Open(rate, Arrivals::Even) => format!("{}, {rate} a second evenly", cell.workload.name),
    }
}

/// A load as JSON and metrics have it: `8` at once, or `5/s`.
pub(super) fn load_label(load: Load) -> String {
    match load {
        Load::Closed(at_once) => at_once.to_string(),
        Load::Open(rate, Arrivals::Poisson) => format!("{rate}/s"),
        Load::Open(rate, Arrivals::Even) => format!("{rate}/s even"),
    }
}

/// A difference of times, with its sign.
pub(super) fn signed_time(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "−" } else { "+" };
    format!("{sign}{}", time(seconds.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_loop_counts_from_when_a_request_was_due() {
        let record = Record {
            ttft_s: Some(0.2),
            answer_ttft_s: Some(0.3),
            client_ttft_s: Some(2.2),
            duration_s: Some(1.0),
            client_duration_s: Some(3.0),
            tpot_s: Some(0.01),
            ..Record::default()
        };
        let all = |record: &Record, load| NUMBERS.map(|number| number.of(record, load));
        assert_eq!(all(&record, Load::Closed(1)), [Some(0.2), Some(0.3), None, Some(0.01), Some(1.0)]);
        let open = all(&record, Load::Open(5.0, Arrivals::Even)).map(|value| value.map(|value| (value * 1e9).round()));
        assert_eq!(open, [Some(2.2e9), Some(2.3e9), None, Some(1e7), Some(3e9)]);
        // A plain answer has no first output.
        let plain = Record { duration_s: Some(1.0), client_duration_s: Some(3.0), ..Record::default() };
        assert_eq!(all(&plain, Load::Open(5.0, Arrivals::Even))[4], Some(3.0));
        assert_eq!(all(&Record::default(), Load::Open(5.0, Arrivals::Even)), [None; 5]);
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!([0.0123, -0.0123, -2e-6, 0.0].map(signed_time), ["+12.3 ms", "−12.3 ms", "−2.00 µs", "+0.00 µs"]);
    }
}
