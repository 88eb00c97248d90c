//! What a provider says of its own time in this very exchange, in whatever unit it says it.

use super::reply::TIME;
use crate::{clock::Nanos, framing::json::Value};

/// Durations by the provider's own clock. What it does not say stays absent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reported {
    /// From the request's arrival there to the beginning of its prefill.
    pub queue: Option<Nanos>,
    /// Work on the prompt.
    pub prefill: Option<Nanos>,
    /// From the first to the last token, or work on the output, as the provider has it.
    pub decode: Option<Nanos>,
    /// From the request's arrival there to the first token: stated, or queue and prefill together.
    pub ttft: Option<Nanos>,
    /// The whole call, as the provider has it.
    pub total: Option<Nanos>,
    /// `ttft` comes from a header, which was fixed before the first byte: it compares with the head, not with the output.
    pub ttft_of_head: bool,
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
    Micros,
    Nanos,
}

const PHASES: usize = 6;
const UNITS: u8 = 4;

/// The field of a tree that holds this time in this unit (of [`crate::framing::json::Want::Count`]).
pub(super) const fn time(phase: Phase, unit: Unit) -> u8 {
    TIME + phase as u8 * UNITS + unit as u8
}

/// The last value of each stated time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Times([Option<Nanos>; PHASES]);

impl Times {
    /// Takes the value of a field made by [`time`]: a number, or a string that is one.
    pub(super) fn take(&mut self, field: u8, value: Value<'_>) {
        let (Value::Number(text) | Value::Text(text)) = value else { return };
        let place = field - TIME;
        let unit = [1e9, 1e6, 1e3, 1.0][usize::from(place % UNITS)];
        if let (Some(slot), Some(nanos)) = (self.0.get_mut(usize::from(place / UNITS)), nanos(text, unit)) {
            *slot = Some(nanos);
        }
    }

    pub(super) fn reported(&self) -> Reported {
        let [queue, prefill, decode, ttft, behind_queue, total] = self.0;
        let sum = |rest: Option<Nanos>| Some(queue? + rest?);
        Reported {
            queue,
            prefill,
            decode,
            ttft: ttft.or_else(|| sum(behind_queue)).or_else(|| sum(prefill)),
            total,
            ttft_of_head: false,
        }
    }
}

/// A span of `text` units of so many nanoseconds each; absent if it is no number, negative or longer than a year.
fn nanos(text: &[u8], unit: f64) -> Option<Nanos> {
    const YEAR: f64 = 365.0 * 86_400.0 * 1e9;
    let number: f64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    let nanos = number * unit;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
    (0.0..=YEAR).contains(&nanos).then(|| Nanos(nanos.round() as u64))
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
        take(&mut times, Phase::Decode, Unit::Micros, "7");
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
        assert_eq!(times.reported().ttft, None, "nobody knows how long it queued");
        take(&mut times, Phase::Queue, Unit::Millis, "2");
        assert_eq!(times.reported().ttft, Some(Nanos(42_000_000)));
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
