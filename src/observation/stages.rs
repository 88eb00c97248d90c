//! Where the wall time of one exchange went: stages whose sum is the wall time, to the nanosecond.

use super::Observation;
use crate::{
    clock::{Nanos, Stamp},
    timeline::Timeline,
};

/// The stages of [`Observation::stages`], in order.
pub const STAGES: [&str; 13] = [
    "retry",
    "dns",
    "tcp",
    "tls",
    "pool_wait",
    "upload",
    "receive",
    "gateway_request",
    "first_output_wait",
    "generation",
    "tail",
    "client_stall",
    "gateway_response",
];

impl Observation {
    /// The wall time by [`STAGES`]. Their sum is [`Observation::wall`] exactly, whatever marks are missing or out of
    /// order: each mark is moved up to the one before it, and none lies behind the end.
    pub fn stages(&self) -> [Nanos; 13] {
        self.stages_until(self.timeline.end.unwrap_or(self.timeline.request_head))
    }

    /// The same of an exchange that is still under way, as if it ended here.
    pub fn stages_until(&self, end: Stamp) -> [Nanos; 13] {
        let marks = &self.timeline;
        let end = end.max(marks.request_head);
        let departed = [marks.sent_last, marks.head_back].into_iter().flatten().fold(end, Stamp::min);
        let departed = departed.max(marks.request_head);

        let [retry, dns, tcp, tls, pool_wait, upload, receive, gateway_request] = self.before(departed);
        let [first_output_wait, generation, tail, client_stall, gateway_response] = self.after(departed, end);
        [
            retry,
            dns,
            tcp,
            tls,
            pool_wait,
            upload,
            receive,
            gateway_request,
            first_output_wait,
            generation,
            tail,
            client_stall,
            gateway_response,
        ]
    }

    /// From `request_head` until the request has departed, or was answered or closed without.
    fn before(&self, departed: Stamp) -> [Nanos; 8] {
        let marks = &self.timeline;
        let begin = match marks.lease_wanted {
            Some(wanted) if self.retried() => wanted.clamp(marks.request_head, departed),
            _ => marks.request_head,
        };
        let retry = begin.since(marks.request_head);

        // The lease, which has its own names for whatever happens in it. One that was never got was waited for until now.
        let (wanted, got) = match marks.lease_wanted {
            Some(wanted) => {
                let wanted = wanted.clamp(begin, departed);
                (wanted, marks.lease_got.unwrap_or(departed).clamp(wanted, departed))
            }
            None => (begin, begin),
        };
        let [dns, tcp, tls] = dialling(marks, wanted, got);
        let pool_wait = got.since(wanted).less(dns).less(tcp).less(tls);

        // The rest is what lies before the lease and behind it. Pending writes are known as amounts, not as intervals:
        // they lie behind the lease, and it is known how much of them lies before the request's end.
        let received = marks.request_end.unwrap_or(departed).clamp(begin, departed);
        let ahead = wanted.since(begin);
        let behind = departed.since(got);
        let upload = marks.waits.upload.min(behind);
        let behind_receiving = received.since(got);
        let both = marks.waits.upload_before_request_end.min(upload).min(behind_receiving);
        let receive = wanted.min(received).since(begin) + behind_receiving.less(both).min(behind.less(upload));
        let gateway_request = (ahead + behind).less(upload).less(receive);
        [retry, dns, tcp, tls, pool_wait, upload, receive, gateway_request]
    }

    /// From the request's departure to the end.
    fn after(&self, departed: Stamp, end: Stamp) -> [Nanos; 5] {
        let marks = &self.timeline;
        let (first, last) =
            if self.stream { (marks.first_output, marks.last_output) } else { (marks.first_byte, marks.response_end) };
        // Nothing came: all of it was waiting for it.
        let last = if first.is_none() { marks.response_end } else { last };
        let first = first.or(marks.response_end);
        let first = first.unwrap_or(end).clamp(departed, end);
        let last = last.unwrap_or(end).clamp(first, end);
        let ended = marks.response_end.unwrap_or(end).clamp(last, end);
        let client_stall = marks.waits.tail.min(end.since(ended));
        [first.since(departed), last.since(first), ended.since(last), client_stall, end.since(ended).less(client_stall)]
    }
}

/// Name resolution, connect and handshake inside the lease, one after the other.
fn dialling(marks: &Timeline, wanted: Stamp, got: Stamp) -> [Nanos; 3] {
    let mut from = wanted;
    [marks.dns, marks.tcp, marks.tls].map(|phase| {
        let Some(phase) = phase else { return Nanos::ZERO };
        let start = phase.start.clamp(from, got);
        from = phase.end.clamp(start, got);
        from.since(start)
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        observation::{ExchangeId, Outcome},
        timeline::Interval,
    };

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos(ms * MS).unwrap()
    }

    fn span(from: u64, to: u64) -> Interval {
        Interval { start: at(from), end: at(to) }
    }

    /// A stream from 1,000 ms to 2,000 ms without a cause for anything: own time 1 ms on each side.
    fn plain_sailing() -> Observation {
        let mut timeline = Timeline::begin(at(1_000));
        timeline.request_end = Some(at(1_000));
        timeline.lease_wanted = Some(at(1_001));
        timeline.lease_got = Some(at(1_001));
        timeline.sent_first = Some(at(1_001));
        timeline.sent_last = Some(at(1_001));
        timeline.head_back = Some(at(1_200));
        timeline.first_byte = Some(at(1_200));
        timeline.first_output = Some(at(1_251));
        timeline.last_output = Some(at(1_950));
        timeline.response_end = Some(at(1_999));
        timeline.delivered = Some(at(2_000));
        timeline.end = Some(at(2_000));
        let mut observation = Observation::begin(ExchangeId(1), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete);
        observation.stream = true;
        observation.attempts = 1;
        observation
    }

    /// The stages that took any time, in milliseconds.
    fn stages(observation: &Observation) -> Vec<(&'static str, u64)> {
        let stages = observation.stages();
        let sum: u64 = stages.iter().map(|stage| stage.0).sum();
        assert_eq!(sum, observation.wall().0, "the sum is the wall time");
        STAGES.into_iter().zip(stages).filter(|(_, span)| span.0 > 0).map(|(name, span)| (name, span.0 / MS)).collect()
    }

    #[test]
    fn a_stream_without_a_cause() {
        let expected = [
            ("gateway_request", 1),
            ("first_output_wait", 250),
            ("generation", 699),
            ("tail", 49),
            ("gateway_response", 1),
        ];
        assert_eq!(stages(&plain_sailing()), expected);
    }

    #[test]
    fn each_dialled_phase_carries_its_own_time_and_the_rest_of_the_lease_is_pool_wait() {
        let mut observation = plain_sailing();
        let marks = &mut observation.timeline;
        marks.lease_got = Some(at(1_191));
        (marks.dns, marks.tcp, marks.tls) =
            (Some(span(1_011, 1_051)), Some(span(1_051, 1_081)), Some(span(1_081, 1_151)));
        marks.sent_last = Some(at(1_191));
        let expected = [("dns", 40), ("tcp", 30), ("tls", 70), ("pool_wait", 50), ("gateway_request", 1)];
        assert_eq!(stages(&observation)[..5], expected);
    }

    #[test]
    fn waiting_for_a_busy_pool_is_pool_wait() {
        let mut observation = plain_sailing();
        observation.timeline.lease_got = Some(at(1_201));
        observation.timeline.sent_last = Some(at(1_202));
        observation.timeline.head_back = Some(at(1_210));
        assert_eq!(stages(&observation)[..2], [("pool_wait", 200), ("gateway_request", 2)]);
    }

    #[test]
    fn a_slow_client_is_receive_but_not_while_the_lease_is_waited_for() {
        let mut observation = plain_sailing();
        observation.timeline.request_end = Some(at(1_301));
        observation.timeline.lease_got = Some(at(1_021));
        observation.timeline.sent_last = Some(at(1_303));
        observation.timeline.head_back = Some(at(1_400));
        observation.timeline.first_output = Some(at(1_400));
        // 1 ms before the lease and 280 ms behind it.
        assert_eq!(stages(&observation)[..3], [("pool_wait", 20), ("receive", 281), ("gateway_request", 2)]);
    }

    #[test]
    fn a_slow_upstream_socket_is_upload_also_while_the_client_still_sends() {
        let mut observation = plain_sailing();
        observation.timeline.request_end = Some(at(1_201));
        observation.timeline.sent_last = Some(at(1_401));
        observation.timeline.head_back = Some(at(1_500));
        observation.timeline.first_output = Some(at(1_500));
        observation.timeline.waits.upload = Nanos(300 * MS);
        observation.timeline.waits.upload_before_request_end = Nanos(120 * MS);
        // 201 ms until the request's end, 120 of them uploading; 200 ms behind it, 180 of them uploading.
        assert_eq!(stages(&observation)[..3], [("upload", 300), ("receive", 81), ("gateway_request", 20)]);
    }

    #[test]
    fn an_early_answer_ends_the_sending_stages() {
        let mut observation = plain_sailing();
        observation.flags.early_response = true;
        observation.timeline.request_end = None;
        observation.timeline.sent_last = Some(at(1_301));
        assert_eq!(stages(&observation)[..2], [("receive", 200), ("first_output_wait", 51)]);
    }

    #[test]
    fn everything_before_the_last_attempt_is_retry() {
        let mut observation = plain_sailing();
        observation.attempts = 2;
        observation.timeline.lease_wanted = Some(at(1_151));
        observation.timeline.lease_got = Some(at(1_161));
        observation.timeline.sent_last = Some(at(1_162));
        assert_eq!(stages(&observation)[..3], [("retry", 151), ("pool_wait", 10), ("gateway_request", 1)]);
    }

    #[test]
    fn an_unreachable_provider_keeps_the_lease_waiting_to_the_end() {
        let mut timeline = Timeline::begin(at(1_000));
        timeline.request_end = Some(at(1_000));
        timeline.lease_wanted = Some(at(1_002));
        timeline.dns = Some(span(1_002, 1_022));
        timeline.end = Some(at(1_032));
        let mut observation = Observation::begin(ExchangeId(1), SystemTime::UNIX_EPOCH, timeline, Outcome::Unreachable);
        observation.attempts = 1;
        assert_eq!(stages(&observation), [("dns", 20), ("pool_wait", 10), ("gateway_request", 2)]);
    }

    #[test]
    fn a_client_that_does_not_read_the_end_is_client_stall() {
        let mut observation = plain_sailing();
        observation.timeline.delivered = Some(at(2_403));
        observation.timeline.end = Some(at(2_403));
        observation.timeline.waits.tail = Nanos(400 * MS);
        assert_eq!(stages(&observation)[4..], [("client_stall", 400), ("gateway_response", 4)]);
    }

    #[test]
    fn a_plain_answer_is_generated_from_its_first_byte() {
        let mut observation = plain_sailing();
        observation.stream = false;
        (observation.timeline.first_output, observation.timeline.last_output) = (None, None);
        let expected =
            [("gateway_request", 1), ("first_output_wait", 199), ("generation", 799), ("gateway_response", 1)];
        assert_eq!(stages(&observation), expected);
    }

    #[test]
    fn a_stream_that_never_put_out_anything_was_waited_for() {
        let mut observation = plain_sailing();
        (observation.timeline.first_output, observation.timeline.last_output) = (None, None);
        assert_eq!(stages(&observation), [("gateway_request", 1), ("first_output_wait", 998), ("gateway_response", 1)]);
        observation.timeline.response_end = None;
        assert_eq!(stages(&observation), [("gateway_request", 1), ("first_output_wait", 999)]);
    }

    #[test]
    fn a_client_that_leaves_amid_the_stream_leaves_a_tail() {
        let mut observation = plain_sailing();
        (observation.timeline.response_end, observation.timeline.delivered) = (None, None);
        assert_eq!(stages(&observation)[2..], [("generation", 699), ("tail", 50)]);
    }

    proptest! {
        #[test]
        fn stages_add_up_whatever_the_marks(
            marks in proptest::collection::vec(proptest::option::of(1_u64..5_000), 20),
            waits in proptest::array::uniform4(0_u64..3_000),
            (head, stream, attempts) in (1_u64..5_000, any::<bool>(), 0_u32..3),
        ) {
            let mark = |index: usize| marks[index].and_then(Stamp::from_nanos);
            let phase = |index: usize| Some(Interval { start: mark(index)?, end: mark(index + 1)? });
            let mut timeline = Timeline::begin(Stamp::from_nanos(head).unwrap());
            timeline.request_end = mark(0);
            timeline.lease_wanted = mark(1);
            timeline.lease_got = mark(2);
            timeline.sent_first = mark(3);
            timeline.sent_last = mark(4);
            timeline.head_back = mark(5);
            timeline.first_byte = mark(6);
            timeline.first_event = mark(7);
            timeline.first_output = mark(8);
            timeline.first_answer = mark(9);
            timeline.last_output = mark(10);
            timeline.response_end = mark(11);
            timeline.first_output_delivered = mark(12);
            (timeline.dns, timeline.tcp, timeline.tls) = (phase(13), phase(15), phase(17));
            timeline.delivered = mark(18);
            timeline.end = mark(19);
            timeline.waits.upload = Nanos(waits[0]);
            timeline.waits.upload_before_request_end = Nanos(waits[1]);
            timeline.waits.tail = Nanos(waits[2]);
            timeline.waits.first_output = Nanos(waits[3]);
            let mut observation =
                Observation::begin(ExchangeId(1), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete);
            (observation.stream, observation.attempts) = (stream, attempts);
            observation.facts.usage.output = Some(waits[3]);

            let wall = observation.wall();
            prop_assert_eq!(observation.stages().iter().map(|stage| stage.0).sum::<u64>(), wall.0);
            for value in [observation.output_speed(), observation.end_to_end_speed()].into_iter().flatten() {
                prop_assert!(value.is_finite() && value >= 0.0, "{}", value);
            }
            prop_assert!(observation.overhead_request() <= Some(Nanos(5_000)));
        }
    }
}
