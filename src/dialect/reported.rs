//! What a provider says of its own time in this very exchange, in whatever unit it says it.

#[cfg(test)]
mod shapes;

use std::time::Duration;

use super::reply::TIME;
use crate::{
    clock::Nanos,
    framing::json::{Value, Want},
};

/// Durations by the provider's own clock. What it does not say stays absent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reported {
    /// From the request's arrival there to the beginning of its prefill.
    pub queue: Option<Nanos>,
    /// Work on the prompt.
    pub prefill: Option<Nanos>,
    /// From the first to the last token, or work on the output, as the provider has it.
    pub decode: Option<Nanos>,
    /// From the request's arrival there to the first token: stated, or the sum of the queue and what came behind it. The
    /// two flags below say where it is less than that.
    pub ttft: Option<Nanos>,
    /// The whole call, as the provider has it.
    pub total: Option<Nanos>,
    /// `ttft` comes from a header, which was fixed before the first byte: it compares with the head, not with the output.
    pub ttft_of_head: bool,
    /// `ttft` begins behind the queue, whose time was not said: it compares with no TTFT that has the queue in it.
    pub ttft_behind_queue: bool,
}

impl Reported {
    /// Each of its times, or where it has none that of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        let whose = if self.ttft.is_some() { self } else { other };
        Self {
            queue: self.queue.or(other.queue),
            prefill: self.prefill.or(other.prefill),
            decode: self.decode.or(other.decode),
            ttft: whose.ttft,
            total: self.total.or(other.total),
            ttft_of_head: whose.ttft_of_head,
            ttft_behind_queue: whose.ttft_behind_queue,
        }
    }

    /// By their names in metrics and records.
    pub const fn named(&self) -> [(&'static str, Option<Nanos>); 5] {
        [
            ("queue", self.queue),
            ("prefill", self.prefill),
            ("decode", self.decode),
            ("ttft", self.ttft),
            ("total", self.total),
        ]
    }
}

/// What a stated time is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Queue,
    Prefill,
    Decode,
    Ttft,
    /// A TTFT that begins when the request is scheduled, behind the queue.
    TtftBehindQueue,
    Total,
}

/// What a stated time is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Nanos,
}

const PHASES: usize = 6;
const UNITS: u8 = 3;

/// The field of a tree that holds this time in this unit (of [`crate::framing::json::Want::Count`]).
pub(super) const fn time(phase: Phase, unit: Unit) -> u8 {
    TIME + phase as u8 * UNITS + unit as u8
}

/// A stated time: the name of its field, what it is of, its unit.
pub(super) type Stated = (&'static str, Phase, Unit);

/// vLLM, with metrics per request: its TTFT begins when the request is scheduled.
pub(super) const VLLM: [Stated; 3] = [
    ("queue_time_ms", Phase::Queue, Unit::Millis),
    ("time_to_first_token_ms", Phase::TtftBehindQueue, Unit::Millis),
    ("generation_time_ms", Phase::Decode, Unit::Millis),
];

/// Fields for a tree: these times, at each of these places.
pub(super) fn times(places: &[&str], stated: &[Stated]) -> Vec<(String, u8, Want)> {
    let field = |place: &str, (name, phase, unit): Stated| (format!("{place}.{name}"), time(phase, unit), Want::Count);
    places.iter().flat_map(|place| stated.iter().map(move |stated| field(place, *stated))).collect()
}

/// The last value of each stated time.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct Times([Option<Nanos>; PHASES]);

impl Times {
    /// Takes the value of a field made by [`time`]: a number, or a string that is one.
    pub(super) fn take(&mut self, field: u8, value: Value<'_>) {
        let (Value::Number(text) | Value::Text(text)) = value else { return };
        let place = field - TIME;
        self.set(usize::from(place / UNITS), usize::from(place % UNITS), text);
    }

    /// Takes a time that is no field: of a header.
    pub(super) fn state(&mut self, phase: Phase, unit: Unit, text: &[u8]) {
        self.set(phase as usize, unit as usize, text);
    }

    fn set(&mut self, phase: usize, unit: usize, text: &[u8]) {
        const NANOS: [f64; UNITS as usize] = [1e9, 1e6, 1.0];
        if let (Some(slot), Some(nanos)) = (self.0.get_mut(phase), nanos(text, NANOS[unit])) {
            *slot = Some(nanos);
        }
    }

    pub(super) fn reported(&self) -> Reported {
        let [queue, prefill, decode, ttft, behind_queue, total] = self.0;
        let sum = |rest: Option<Nanos>| Some(queue? + rest?);
        let whole = ttft.or_else(|| sum(behind_queue)).or_else(|| sum(prefill));
        Reported {
            queue,
            prefill,
            decode,
            ttft: whole.or(behind_queue),
            total,
            ttft_of_head: false,
            ttft_behind_queue: whole.is_none() && behind_queue.is_some(),
        }
    }
}

/// What is stated to take longer is no span of this exchange, nor of a limit.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A span of `text` units of so many nanoseconds each; absent if it is no number, negative or longer than a year.
fn nanos(text: &[u8], unit: f64) -> Option<Nanos> {
    let number: f64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    let nanos = number * unit;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
    (0.0..=YEAR.as_nanos() as f64).contains(&nanos).then(|| Nanos(nanos.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(times: &mut Times, phase: Phase, unit: Unit, text: &str) {
        times.take(time(phase, unit), Value::Number(text.as_bytes()));
    }

    #[test]
    fn units_are_made_nanoseconds() {
        let mut times = Times::default();
        take(&mut times, Phase::Queue, Unit::Seconds, "0.25");
        take(&mut times, Phase::Prefill, Unit::Millis, "1.5");
        take(&mut times, Phase::Decode, Unit::Millis, "0.007");
        take(&mut times, Phase::Total, Unit::Nanos, "12");
        let reported = times.reported();
        assert_eq!(reported.queue, Some(Nanos(250_000_000)));
        assert_eq!(reported.prefill, Some(Nanos(1_500_000)));
        assert_eq!(reported.decode, Some(Nanos(7_000)));
        assert_eq!(reported.total, Some(Nanos(12)));
        assert_eq!(reported.ttft, Some(Nanos(251_500_000)), "queue and prefill");
    }

    #[test]
    fn a_ttft_is_stated_or_follows_from_queue_and_work() {
        let mut times = Times::default();
        take(&mut times, Phase::TtftBehindQueue, Unit::Millis, "40");
        let marked = times.reported();
        assert_eq!((marked.ttft, marked.ttft_behind_queue), (Some(Nanos(40_000_000)), true), "nobody knows the queue");
        take(&mut times, Phase::Queue, Unit::Millis, "2");
        let whole = times.reported();
        assert_eq!((whole.ttft, whole.ttft_behind_queue), (Some(Nanos(42_000_000)), false));
        // Of two sources the flag goes with the TTFT it is of.
        let stated = Reported { ttft: Some(Nanos(1)), ttft_of_head: true, ..Reported::default() };
        assert_eq!(marked.or(stated), marked);
        assert_eq!(Reported::default().or(marked), marked);
        take(&mut times, Phase::Ttft, Unit::Millis, "41");
        assert_eq!(times.reported().ttft, Some(Nanos(41_000_000)));
    }

    #[test]
    fn what_is_no_span_is_not_taken() {
        let mut times = Times::default();
        for text in ["-1", "1e99", "x", "NaN", "inf", ""] {
            take(&mut times, Phase::Total, Unit::Seconds, text);
        }
        times.take(time(Phase::Total, Unit::Seconds), Value::Null);
        assert_eq!(times.reported(), Reported::default());
        times.take(time(Phase::Total, Unit::Seconds), Value::Text(b"0.5"));
        assert_eq!(times.reported().total, Some(Nanos(500_000_000)), "some write numbers as strings");
    }
}
