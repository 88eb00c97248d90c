//! The marks of one exchange and the cadence of its output events. Takes stamps, knows no clock.
//!
//! The formulas over these marks stand in [`crate::observation`] and nowhere else.

use std::ops::Range;

use crate::clock::{Nanos, Stamp};

/// The marks of one exchange. Each is set once; absent means that it never happened.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Arrival of the last byte of the request head.
    pub request_head: Stamp,
    /// Arrival of the last byte of the request (= `request_head` without a body).
    pub request_end: Option<Stamp>,
    /// The gateway asked for an upstream connection (last attempt).
    pub lease_wanted: Option<Stamp>,
    /// It had one (last attempt).
    pub lease_got: Option<Stamp>,
    /// Name resolution, when this exchange dialled.
    pub dns: Option<Interval>,
    /// TCP connect, when this exchange dialled.
    pub tcp: Option<Interval>,
    /// TLS handshake, when this exchange dialled.
    pub tls: Option<Interval>,
    /// Arrival of the provider's word that the client's speech had stopped, where that began the exchange.
    pub speech_stopped: Option<Stamp>,
    /// Departure of the request's first byte towards the upstream.
    pub sent_first: Option<Stamp>,
    /// Departure of the request's last byte towards the upstream.
    pub sent_last: Option<Stamp>,
    /// Arrival of the final response head's last byte.
    pub head_back: Option<Stamp>,
    /// Arrival of the first body byte.
    pub first_byte: Option<Stamp>,
    /// Arrival of the last byte of the first event.
    pub first_event: Option<Stamp>,
    /// Arrival of the last byte of the first output event.
    pub first_output: Option<Stamp>,
    /// Arrival of the last byte of the first output event with answer, refusal or audio.
    pub first_answer: Option<Stamp>,
    /// Arrival of the last byte of the first output event with audio itself.
    pub first_audio: Option<Stamp>,
    /// Arrival of the last byte of the last output event.
    pub last_output: Option<Stamp>,
    /// Arrival of the end of the response body.
    pub response_end: Option<Stamp>,
    /// Downstream departure of the first output event.
    pub first_output_delivered: Option<Stamp>,
    /// Downstream departure of the whole response.
    pub delivered: Option<Stamp>,
    /// `delivered`, else the instant the exchange closed for whatever reason.
    pub end: Option<Stamp>,
    /// Amounts of waiting inside the marks above.
    pub waits: Waits,
}

/// A span with both its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Its beginning.
    pub start: Stamp,
    /// Its end.
    pub end: Stamp,
}

impl Interval {
    /// How long it lasted.
    pub const fn span(self) -> Nanos {
        self.end.since(self.start)
    }
}

/// How long a side did not take what was ready for it, cut at the marks that need it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Waits {
    /// An upstream write was pending, or a 100 was awaited, between `lease_got` and the request's departure.
    pub upload: Nanos,
    /// The part of `upload` before `request_end`.
    pub upload_before_request_end: Nanos,
    /// A downstream write was pending between `first_output` and `first_output_delivered`.
    pub first_output: Nanos,
    /// A downstream write was pending between `response_end` and `end`.
    pub tail: Nanos,
    /// All of the downstream writes' pending time.
    pub client: Nanos,
    /// All of the upstream writes' pending time.
    pub upstream: Nanos,
    /// Stalls (pending for longer than 10 ms) of the client.
    pub client_stalls: u32,
    /// Stalls (pending for longer than 10 ms) of the upstream.
    pub upstream_stalls: u32,
}

impl Timeline {
    /// A timeline that has only begun.
    pub const fn begin(request_head: Stamp) -> Self {
        Self {
            request_head,
            request_end: None,
            lease_wanted: None,
            lease_got: None,
            dns: None,
            tcp: None,
            tls: None,
            speech_stopped: None,
            sent_first: None,
            sent_last: None,
            head_back: None,
            first_byte: None,
            first_event: None,
            first_output: None,
            first_answer: None,
            first_audio: None,
            last_output: None,
            response_end: None,
            first_output_delivered: None,
            delivered: None,
            end: None,
            waits: Waits {
                upload: Nanos::ZERO,
                upload_before_request_end: Nanos::ZERO,
                first_output: Nanos::ZERO,
                tail: Nanos::ZERO,
                client: Nanos::ZERO,
                upstream: Nanos::ZERO,
                client_stalls: 0,
                upstream_stalls: 0,
            },
        }
    }
}

/// The rhythm of one exchange's output events: gaps, their spread, and what came together.
///
/// Bounded: the spread is a log-linear histogram (8 steps an octave, so a quantile is within 6 % of the true gap),
/// allocated at the first gap and never again.
#[derive(Clone, Default, Debug)]
pub struct Cadence {
    last: Option<Stamp>,
    max_gap: Option<Nanos>,
    gaps: u64,
    coalesced: u64,
    first_shared: bool,
    spread: Option<Box<[u32; SPREAD]>>,
}

/// From a microsecond, below which two arrivals are as good as one, to two minutes.
const OCTAVES: Range<u32> = 10..37;
const SPREAD: usize = (OCTAVES.end - OCTAVES.start) as usize * 8;

impl Cadence {
    /// An output event arrived. Returns the gap since the one before, unless there was none or both share a stamp
    /// (they came in one read, so the time between them was not observed).
    pub fn output(&mut self, arrival: Stamp) -> Option<Nanos> {
        let last = self.last.replace(arrival)?;
        let gap = arrival.since(last);
        if gap == Nanos::ZERO {
            self.coalesced += 1;
            self.first_shared |= self.gaps == 0;
            return None;
        }
        self.gaps += 1;
        if self.max_gap.is_none_or(|max| gap > max) {
            self.max_gap = Some(gap);
        }
        let spread = self.spread.get_or_insert_with(|| Box::new([0; SPREAD]));
        let slot = &mut spread[bucket(gap.0)];
        *slot = slot.saturating_add(1);
        Some(gap)
    }

    /// An output event arrived at a time that is not the provider's: the gap before it is not observed.
    pub fn unobserved(&mut self, arrival: Stamp) -> Option<Nanos> {
        if self.last.replace(arrival) == Some(arrival) {
            self.coalesced += 1;
        }
        None
    }

    /// The longest gap; absent below two distinct output stamps.
    pub const fn max_gap(&self) -> Option<Nanos> {
        self.max_gap
    }

    /// How many gaps were observed.
    pub const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Output events that came in the same read as the one before.
    pub const fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// The read that brought the first output event brought more of them. A socket says when the last of what it holds came:
    /// the first output came then or earlier.
    pub const fn first_shared(&self) -> bool {
        self.first_shared
    }

    /// How many gaps lie between two lengths, the shorter one included: shortest first, without those that have none.
    pub fn spread(&self) -> impl Iterator<Item = (Nanos, Nanos, u32)> {
        let counts = self.spread.iter().flat_map(|spread| spread.iter().enumerate()).filter(|(_, count)| **count > 0);
        counts.map(|(index, count)| (Nanos(bucket_start(index)), Nanos(bucket_start(index + 1)), *count))
    }

    /// The gap below which a share `q` (0 to 1) of the gaps lie; absent without a gap. Never above the longest gap.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let spread = self.spread.as_ref()?;
        let rank = ((self.gaps as f64 * q).ceil() as u64).clamp(1, self.gaps);
        let mut seen = 0;
        for (index, count) in spread.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                let middle = u64::midpoint(bucket_start(index), bucket_start(index + 1));
                return Some(Nanos(middle).min(self.max_gap?));
            }
        }
        self.max_gap
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bounded by SPREAD")]
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(1 << OCTAVES.start);
    let octave = nanos.ilog2();
    let step = (nanos >> (octave - 3)) & 7;
    ((u64::from(octave - OCTAVES.start) * 8 + step) as usize).min(SPREAD - 1)
}

fn bucket_start(index: usize) -> u64 {
    let (octave, step) = (index / 8 + OCTAVES.start as usize, (index % 8) as u64);
    (8 + step) << (octave - 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Stamp {
        Stamp::from_nanos(nanos).unwrap()
    }

    #[test]
    fn events_of_one_read_are_coalesced_not_gaps() {
        let mut cadence = Cadence::default();
        assert_eq!(cadence.output(at(100)), None);
        assert_eq!(cadence.output(at(100)), None);
        assert_eq!(cadence.output(at(150)), Some(Nanos(50)));
        assert_eq!((cadence.gaps(), cadence.coalesced()), (1, 1));
        assert_eq!(cadence.max_gap(), Some(Nanos(50)));
        assert!(cadence.first_shared());
    }

    #[test]
    fn the_first_output_shares_its_read_only_with_what_came_before_any_gap() {
        let mut cadence = Cadence::default();
        cadence.output(at(100));
        cadence.output(at(150));
        cadence.output(at(150));
        assert_eq!(cadence.coalesced(), 1);
        assert!(!cadence.first_shared());
    }

    #[test]
    fn no_gap_no_number() {
        let mut cadence = Cadence::default();
        cadence.output(at(100));
        assert_eq!(cadence.max_gap(), None);
        assert_eq!((cadence.quantile(0.5), cadence.spread().count()), (None, 0));
    }

    #[test]
    fn the_spread_has_every_gap_once() {
        let mut cadence = Cadence::default();
        for nanos in [1, 2_000_001, 4_000_001, 1_004_000_001] {
            cadence.output(at(nanos));
        }
        let [(from, to, 2), (later, _, 1)] = cadence.spread().collect::<Vec<_>>()[..] else { panic!("{cadence:?}") };
        assert!(from.0 <= 2_000_000 && 2_000_000 < to.0 && to < later && later.0 <= 1_000_000_000);
    }

    #[test]
    fn quantiles_lie_within_six_percent() {
        let mut cadence = Cadence::default();
        let mut now = 1;
        cadence.output(at(now));
        for i in 1..=1000_u64 {
            now += i * 20_000;
            cadence.output(at(now));
        }
        for (q, exact) in [(0.5, 10_000_000.0), (0.99, 19_800_000.0)] {
            let seen = cadence.quantile(q).unwrap().0 as f64;
            assert!((seen / exact - 1.0).abs() < 0.0626, "q {q}: {seen} against {exact}");
        }
    }

    proptest::proptest! {
        #[test]
        fn buckets_hold_their_values(nanos in 1_u64 << OCTAVES.start..1 << OCTAVES.end) {
            let index = bucket(nanos);
            proptest::prop_assert!(bucket_start(index) <= nanos && nanos < bucket_start(index + 1));
        }
    }
}
