//! What clients report, read and matched with exchanges.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    clock::Nanos,
    dialect::Endpoint,
    forward,
    observation::ExchangeId,
    recent::{ClientPhase, Remembered},
    record::Recorder,
};

/// Reports in one body.
const MOST: usize = 100;
/// How much more than the exchange's own wall time a client may have seen: its own network, queue and retries are in its
/// figure, but what is beyond an hour is no such thing.
const BEYOND_WALL: Nanos = Nanos(3_600_000_000_000);

/// The reports of one body, on their way to be taken or refused.
#[derive(Debug)]
pub(super) struct Batch(Vec<State>);

#[derive(Debug)]
enum State {
    /// Its exchange was not found yet.
    Waiting(Report),
    Taken,
    Refused(String),
}

/// One report whose numbers are numbers.
#[derive(PartialEq, Debug)]
struct Report {
    of: Key,
    ttft: Option<Nanos>,
    total: Option<Nanos>,
}

/// Which exchange a report is of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Id(ExchangeId),
    Trace(String),
}

/// A report as it is written.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Written {
    id: Option<String>,
    traceparent: Option<String>,
    trace_id: Option<String>,
    ttft_s: Option<f64>,
    total_s: Option<f64>,
}

impl Batch {
    /// One report, or a list of them.
    ///
    /// # Errors
    /// If it is neither, or too many: a sentence for whoever sent it. What is wrong with a single report is in the
    /// [answer](Batch::answer).
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let reports = match serde_json::from_slice(body) {
            Ok(Value::Array(reports)) => reports,
            Ok(report @ Value::Object(_)) => vec![report],
            Ok(_) => return Err("wanted is a JSON object, or a list of them".to_owned()),
            Err(error) => return Err(format!("this is no JSON: {error}")),
        };
        if reports.len() > MOST {
            return Err(format!("{} reports; at most {MOST} at once", reports.len()));
        }
        let read = |report| Report::read(report).map_or_else(State::Refused, State::Waiting);
        Ok(Self(reports.into_iter().map(read).collect()))
    }

    /// Whether the exchange of any is not found yet.
    pub(super) fn waits(&self) -> bool {
        self.0.iter().any(|state| matches!(state, State::Waiting(_)))
    }

    /// Takes or refuses the reports of exchanges that are remembered. All are looked for at once, as the ring may be long.
    pub(super) fn take(&mut self, recorder: &Recorder) {
        let waiting = self.0.iter().filter_map(|state| match state {
            State::Waiting(report) => Some(report.of.clone()),
            _ => None,
        });
        let found = find(&waiting.collect(), recorder);
        for state in &mut self.0 {
            if let State::Waiting(report) = state
                && let Some(exchanges) = found.get(&report.of)
            {
                *state = match report.take(exchanges, recorder) {
                    Ok(()) => State::Taken,
                    Err(why) => State::Refused(why),
                };
            }
        }
    }

    /// How many were taken, and why the others were not.
    pub(super) fn answer(&self) -> String {
        let mut refused = Vec::new();
        for (index, state) in self.0.iter().enumerate() {
            let why = match state {
                State::Taken => continue,
                State::Refused(why) => why,
                State::Waiting(_) => {
                    "no exchange that is remembered fits: it has not ended, is too long ago, or never was"
                }
            };
            refused.push(json!({ "index": index, "why": why }));
        }
        json!({ "accepted": self.0.len() - refused.len(), "refused": refused }).to_string()
    }
}

/// The remembered exchanges by what they are looked for.
fn find(wanted: &HashSet<Key>, recorder: &Recorder) -> HashMap<Key, Vec<Arc<Remembered>>> {
    let mut found: HashMap<Key, Vec<_>> = HashMap::new();
    let traces = wanted.iter().any(|key| matches!(key, Key::Trace(_)));
    let keys = |exchange: &Remembered| {
        let trace = exchange.observation.trace_id.clone().filter(|_| traces).map(Key::Trace);
        // A tunnel's connection has neither a first token nor an end that a client would time: its turns have.
        let trace = trace.filter(|_| exchange.observation.endpoint != Endpoint::Tunnel);
        [Some(Key::Id(exchange.observation.id)), trace].into_iter().flatten().filter(|key| wanted.contains(key))
    };
    let known = recorder.recent().newest(usize::MAX, |exchange| keys(exchange).next().is_some());
    for exchange in known {
        for key in keys(&exchange) {
            found.entry(key).or_default().push(Arc::clone(&exchange));
        }
    }
    found
}

impl Report {
    fn read(written: Value) -> Result<Self, String> {
        let written: Written = serde_json::from_value(written).map_err(|error| error.to_string())?;
        let hexadecimal = |text: &str| text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let of = match (&written.id, &written.traceparent, &written.trace_id) {
            (Some(id), ..) => Key::Id(ExchangeId::parse(id).ok_or("`id` has 16 hexadecimal digits")?),
            (None, Some(traceparent), _) => {
                Key::Trace(forward::trace_id_of(traceparent).ok_or("`traceparent` is not as W3C has it: 00-…-…-01")?)
            }
            (None, None, Some(trace)) if trace.len() == 32 && hexadecimal(trace) => {
                Key::Trace(trace.to_ascii_lowercase())
            }
            (None, None, Some(_)) => return Err("`trace_id` has 32 hexadecimal digits".to_owned()),
            (None, None, None) => return Err("of which exchange? Give `id`, `traceparent` or `trace_id`".to_owned()),
        };
        let ttft = written.ttft_s.map(|ttft| seconds("ttft_s", ttft)).transpose()?;
        let total = written.total_s.map(|total| seconds("total_s", total)).transpose()?;
        match (ttft, total) {
            (None, None) => Err("nothing is reported: give `ttft_s`, `total_s` or both".to_owned()),
            (Some(ttft), Some(total)) if ttft > total => Err("`ttft_s` is more than `total_s`".to_owned()),
            _ => Ok(Self { of, ttft, total }),
        }
    }

    /// Takes all of the report or nothing.
    fn take(&self, exchanges: &[Arc<Remembered>], recorder: &Recorder) -> Result<(), String> {
        let [exchange] = exchanges else {
            return Err(format!("{} exchanges have this trace id: give `id`", exchanges.len()));
        };
        if exchange.observation.endpoint == Endpoint::Tunnel {
            return Err("this is a tunnel, whose turns are exchanges of their own".to_owned());
        }
        let said = [(ClientPhase::Ttft, self.ttft), (ClientPhase::Total, self.total)];
        let said = said.into_iter().filter_map(|(phase, span)| Some((phase, span?)));
        let wall = exchange.observation.wall();
        for (phase, span) in said.clone() {
            if exchange.client_reported(phase).is_some() {
                return Err(format!("`{}_s` of this exchange was reported before", phase.as_str()));
            }
            if span > wall + BEYOND_WALL {
                return Err(format!("`{}_s` is over an hour more than the exchange took", phase.as_str()));
            }
        }
        for (phase, span) in said {
            recorder.client_reported(exchange, phase, span);
        }
        Ok(())
    }
}

/// Seconds that are a span of time.
fn seconds(key: &str, seconds: f64) -> Result<Nanos, String> {
    let span = std::time::Duration::try_from_secs_f64(seconds);
    span.map(Nanos::from).map_err(|_| format!("`{key}` must be a number of seconds, 0 or more"))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::SystemTime};

    use super::*;
    use crate::{
        clock::{Clock, Stamp},
        config::{Config, Overrides},
        observation::{Observation, Outcome},
        timeline::Timeline,
    };

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn recorder() -> Recorder {
        let text = "[client_timings]\naddress = \"127.0.0.1:0\"\n[[upstreams]]\nname = \"u\"\nurl = \"http://h\"";
        let config = Config::from_toml(text, Path::new("f.toml"), &Overrides::default()).unwrap();
        Recorder::new(&config, Clock::start()).unwrap()
    }

    /// An exchange of this id and trace has ended.
    fn ended(recorder: &Recorder, id: u64, endpoint: Endpoint) -> Arc<Remembered> {
        let timeline = Timeline::begin(Stamp::ORIGIN);
        let mut exchange = Observation::begin(ExchangeId(id), SystemTime::UNIX_EPOCH, timeline, Outcome::Complete);
        exchange.endpoint = endpoint;
        exchange.trace_id = Some(TRACE.to_owned());
        recorder.finish(None, None, exchange);
        recorder.recent().newest(1, |_| true).remove(0)
    }

    fn batch(report: Value) -> Batch {
        Batch::read(report.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_report_waits_until_its_exchange_has_ended() {
        let recorder = recorder();
        let mut batch = batch(json!([{ "id": "0000000000000007", "ttft_s": 0.5 }, { "id": "x", "total_s": 1 }]));
        batch.take(&recorder);
        assert!(batch.waits());
        let exchange = ended(&recorder, 7, Endpoint::Chat);
        batch.take(&recorder);
        assert!(!batch.waits());
        assert!(batch.answer().starts_with("{\"accepted\":1,\"refused\":[{\"index\":1,"), "{}", batch.answer());
        assert_eq!(exchange.client_reported(ClientPhase::Ttft), Some(Nanos(500_000_000)));
        batch.take(&recorder);
        let text = recorder.encode(false, Stamp::ORIGIN);
        let labels = "{upstream=\"_none\",model=\"_none\",phase=\"ttft\"}";
        assert!(text.contains(&format!("streamgauge_client_reported_seconds_count{labels} 1\n")), "once: {text}");
    }

    #[test]
    fn a_trace_finds_the_turn_and_not_its_tunnel_which_takes_nothing() {
        let recorder = recorder();
        let turn = ended(&recorder, 1, Endpoint::Realtime);
        ended(&recorder, 2, Endpoint::Tunnel);
        let mut batch = batch(json!([{ "trace_id": TRACE, "total_s": 1 }, { "id": "0000000000000002", "total_s": 1 }]));
        batch.take(&recorder);
        assert!(batch.answer().contains("\"accepted\":1,") && batch.answer().contains("this is a tunnel"));
        assert_eq!(turn.client_reported(ClientPhase::Total), Some(Nanos(1_000_000_000)));
    }
}
