//! Agent sessions: what many calls of one task come to.

use serde::Serialize;

use super::rows::{Column, Log, Row, groups, whole_part};
use crate::figures::{Quantiles, Sample};

/// Sessions that are listed one by one, those with most inference time.
const LISTED: usize = 20;
/// Tokens per second at which generation is worked out.
pub(super) const SPEEDS: [u32; 3] = [100, 400, 1_000];

/// All sessions: requests whose record has one.
#[expect(clippy::struct_field_names, reason = "each is a key of the JSON")]
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Sessions {
    pub(super) sessions: usize,
    pub(super) calls: Quantiles,
    pub(super) inference_s: Quantiles,
    pub(super) output_tokens: Quantiles,
    /// The sum of all.
    pub(super) total: Session,
    /// Those with most inference time, at most twenty.
    pub(super) longest: Vec<Session>,
}

/// One session, or all together.
#[expect(clippy::struct_field_names, reason = "each is a key of the JSON")]
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Session {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    pub(super) calls: u64,
    /// Calls that are complete.
    pub(super) complete: u64,
    /// The sum of the calls' wall time: what they take one after the other.
    pub(super) inference_s: f64,
    /// Time in which a call was under way: less than `inference_s` where calls overlap. Absent of all together, and of
    /// calls without a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) busy_s: Option<f64>,
    /// From the first call's begin to the last one's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) span_s: Option<f64>,
    /// The stage `first_output_wait` of its calls.
    pub(super) waiting_s: f64,
    /// The stage `generation` of its calls.
    pub(super) generation_s: f64,
    pub(super) output_tokens: u64,
    /// Output tokens per second of inference time; absent without either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens_per_second: Option<f64>,
    /// Streams whose tokens are counted and came over time: those whose generation would change with its speed.
    pub(super) streamed_tokens: u64,
    pub(super) streamed_generation_s: f64,
    /// Worked out, not measured: inference time if only these streams' tokens came at such a speed. Absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) inference_at: Vec<At>,
}

/// Inference time at a speed of generation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct At {
    pub(super) tokens_per_second: u32,
    pub(super) inference_s: f64,
}

/// The sessions of a log.
pub(super) fn of(log: &Log) -> Sessions {
    let by_session = groups(&log.rows, |row| row.session);
    let mut sessions: Vec<Session> = by_session
        .into_iter()
        .map(|(name, rows)| {
            let mut session = Session { session: Some(log.text(name).to_owned()), ..Session::default() };
            for row in &rows {
                session.add(log, row);
            }
            (session.span_s, session.busy_s) = spans(&rows);
            session.work_out();
            session
        })
        .collect();
    sessions.sort_by(|a, b| b.inference_s.total_cmp(&a.inference_s));
    let mut total = Session::default();
    for row in log.rows.iter().filter(|row| row.session.is_some()) {
        total.add(log, row);
    }
    total.work_out();
    let spread = |number: fn(&Session) -> f64| sessions.iter().map(number).collect::<Sample>().quantiles();
    Sessions {
        sessions: sessions.len(),
        calls: spread(|session| session.calls as f64),
        inference_s: spread(|session| session.inference_s),
        output_tokens: spread(|session| session.output_tokens as f64),
        total,
        longest: sessions.into_iter().take(LISTED).collect(),
    }
}

impl Session {
    fn add(&mut self, log: &Log, row: &Row) {
        let seconds = |column| row.get(column).unwrap_or(0.0);
        let tokens = whole_part(row.get(Column::OutputTokens).unwrap_or(0.0));
        self.calls += 1;
        self.complete += u64::from(log.text(row.outcome) == "complete");
        self.inference_s += seconds(Column::Wall);
        self.waiting_s += seconds(Column::Waiting);
        self.generation_s += seconds(Column::Generation);
        self.output_tokens = self.output_tokens.saturating_add(tokens);
        // Of an answer in one piece the generation lies in its wait, and of a burst or of hidden tokens nobody knows it:
        // only where a speed was observed is it the time that tokens took.
        if row.get(Column::Speed).is_some() {
            self.streamed_tokens = self.streamed_tokens.saturating_add(tokens.saturating_sub(1));
            self.streamed_generation_s += seconds(Column::Generation);
        }
    }

    fn work_out(&mut self) {
        self.tokens_per_second =
            (self.inference_s > 0.0 && self.output_tokens > 0).then(|| self.output_tokens as f64 / self.inference_s);
        if self.streamed_tokens > 0 {
            let rest = (self.inference_s - self.streamed_generation_s).max(0.0);
            let at = |tokens_per_second: u32| At {
                tokens_per_second,
                inference_s: rest + self.streamed_tokens as f64 / f64::from(tokens_per_second),
            };
            self.inference_at = SPEEDS.map(at).to_vec();
        }
    }
}

/// From the first begin to the last end, and how much of it a call was under way.
fn spans(rows: &[&Row]) -> (Option<f64>, Option<f64>) {
    let begin_and_end = |row: &&Row| Some((row.time()?, row.time()? + row.get(Column::Wall)?));
    let Some(mut calls) = rows.iter().map(begin_and_end).collect::<Option<Vec<_>>>() else { return (None, None) };
    calls.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(first) = calls.first().map(|(begin, _)| *begin) else { return (None, None) };
    let (mut busy, mut until) = (0.0, first);
    for (begin, end) in calls {
        busy += (end - begin.max(until)).max(0.0);
        until = until.max(end);
    }
    // Times are told to the microsecond.
    let micros = |seconds: f64| Some((seconds * 1e6).round() / 1e6);
    (micros(until - first), micros(busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_the_sum_of_its_calls() {
        let log = Log::of(&[
            r#"{"time":"2026-01-31T12:00:00Z","outcome":"complete","session":"a","wall_s":11.0,"output_tokens":1001,
                "output_tokens_per_second":100.0,"stages_s":{"first_output_wait":1.0,"generation":10.0}}"#,
            r#"{"time":"2026-01-31T12:00:10Z","outcome":"rate_limited","session":"a","wall_s":5.0,
                "stages_s":{"first_output_wait":5.0}}"#,
            r#"{"time":"2026-01-31T12:00:20Z","outcome":"complete","session":"a","wall_s":4.0,"output_tokens":99,
                "stages_s":{"first_output_wait":3.0,"generation":1.0}}"#,
            r#"{"time":"2026-01-31T12:00:00Z","outcome":"complete","wall_s":100.0}"#,
        ]);
        let sessions = of(&log);
        assert_eq!((sessions.sessions, sessions.calls.p50), (1, Some(3.0)));
        let session = &sessions.longest[0];
        assert_eq!((session.calls, session.complete, session.inference_s), (3, 2, 20.0));
        assert_eq!((session.waiting_s, session.generation_s, session.output_tokens), (9.0, 11.0, 1_100));
        assert_eq!((session.span_s, session.busy_s), (Some(24.0), Some(19.0)), "one second overlaps");
        assert_eq!(session.tokens_per_second, Some(55.0));
        // Ten seconds of streamed generation become 2.5; all else stays.
        let at: Vec<_> = session.inference_at.iter().map(|at| (at.tokens_per_second, at.inference_s)).collect();
        assert_eq!(at, [(100, 20.0), (400, 12.5), (1_000, 11.0)]);
    }

    #[test]
    fn what_can_t_be_worked_out_is_absent() {
        let log = Log::of(&[r#"{"outcome":"complete","session":"a","wall_s":1.0}"#]);
        let session = &of(&log).longest[0];
        assert!(session.inference_at.is_empty() && session.span_s.is_none() && session.tokens_per_second.is_none());
        assert_eq!(of(&Log::default()).sessions, 0);
    }
}
