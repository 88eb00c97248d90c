//! `GET /exchanges`: the last exchanges' records, for whoever joins them with numbers of their own.

use serde_json::{Value, json};

use crate::{
    clock::Nanos,
    framing::percent_decoded,
    observation::{ExchangeId, Observation, Outcome},
    recent::Recent,
};

/// What is said of a query that can't be answered.
const KNOWN: &str = "known are trace_id (32 hexadecimal digits), id (16 hexadecimal digits), upstream, model, outcome, \
                     and limit (how many at most, up to 1000; 100 if it is left out)";
const DEFAULT_LIMIT: usize = 100;
/// Some 2 MiB of text. More would keep the admin's one thread from `/healthz` and `/metrics` for too long.
const MOST: usize = 1000;

/// Which records are asked for: those that fit everything that was said.
#[derive(Default, Debug)]
struct Wanted {
    trace_id: Option<String>,
    id: Option<ExchangeId>,
    upstream: Option<String>,
    model: Option<String>,
    outcome: Option<Outcome>,
    limit: Option<usize>,
}

/// The records that a query asks for, newest first, as a JSON array.
///
/// # Errors
/// If the query has a parameter that is not known, is there twice, or can't be read: a sentence for whoever asked.
pub(super) fn page(recent: &Recent, query: &str) -> Result<String, String> {
    let wanted = Wanted::read(query)?;
    let found =
        recent.newest(wanted.limit.unwrap_or(DEFAULT_LIMIT).min(MOST), |exchange| wanted.takes(&exchange.observation));
    Ok(Recent::json(&found))
}

/// One exchange's record, with the spread of its gaps: how many lie between two lengths in seconds, shortest first. As a JSON
/// object `{"record", "gaps": [[from, to, count], …]}`, or `null` if nothing fits.
///
/// # Errors
/// As [`page`].
pub(super) fn one(recent: &Recent, query: &str) -> Result<String, String> {
    let wanted = Wanted::read(query)?;
    let found = recent.newest(1, |exchange| wanted.takes(&exchange.observation));
    let Some(exchange) = found.first() else { return Ok("null".to_owned()) };
    let gap = |(from, to, count): (Nanos, Nanos, u32)| json!([from.seconds(), to.seconds(), count]);
    let gaps: Value = exchange.observation.cadence.spread().map(gap).collect();
    Ok(format!("{{\"record\":{},\"gaps\":{gaps}}}", exchange.json()))
}

impl Wanted {
    fn read(query: &str) -> Result<Self, String> {
        let mut wanted = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            // As forms write it: a space is a plus.
            let value = percent_decoded(value.replace('+', " ").as_bytes());
            let value = String::from_utf8(value).map_err(|_| format!("`{key}` is not UTF-8; {KNOWN}"))?;
            let twice = match key {
                "trace_id" => wanted.trace_id.replace(hexadecimal(key, &value, 32)?).is_some(),
                "id" => {
                    let id = ExchangeId::parse(&value);
                    wanted.id.replace(id.ok_or_else(|| format!("`id` has 16 hexadecimal digits; {KNOWN}"))?).is_some()
                }
                "upstream" => wanted.upstream.replace(value).is_some(),
                "model" => wanted.model.replace(value).is_some(),
                "outcome" => wanted.outcome.replace(outcome(&value)?).is_some(),
                "limit" => {
                    let limit = value.parse().map_err(|_| format!("`limit` is a whole number; {KNOWN}"))?;
                    wanted.limit.replace(limit).is_some()
                }
                other => return Err(format!("`{other}` is no parameter of /exchanges; {KNOWN}")),
            };
            if twice {
                return Err(format!("`{key}` is there twice; {KNOWN}"));
            }
        }
        Ok(wanted)
    }

    fn takes(&self, observation: &Observation) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| wanted.is_none() || wanted.as_deref() == value;
        self.id.is_none_or(|id| observation.id == id)
            && self.outcome.is_none_or(|outcome| observation.outcome == outcome)
            && is(&self.trace_id, observation.trace_id.as_deref())
            && is(&self.upstream, observation.upstream.as_deref())
            && is(&self.model, observation.model.as_deref())
    }
}

/// So many digits, in the lower case that records have.
fn hexadecimal(key: &str, value: &str, digits: usize) -> Result<String, String> {
    if value.len() == digits && value.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        Ok(value.to_ascii_lowercase())
    } else {
        Err(format!("`{key}` has {digits} hexadecimal digits; {KNOWN}"))
    }
}

fn outcome(value: &str) -> Result<Outcome, String> {
    let found = Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == value);
    found.ok_or_else(|| format!("`outcome` is one of {}", Outcome::ALL.map(Outcome::as_str).join(", ")))
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::SystemTime};

    use super::*;
    use crate::{clock::Stamp, recent::Remembered, timeline::Timeline};

    fn remembered() -> Recent {
        let recent = Recent::new(4);
        for id in 1..=5 {
            let begin = Timeline::begin(Stamp::ORIGIN);
            let outcome = if id % 2 == 0 { Outcome::Complete } else { Outcome::RateLimited };
            let mut observation = Observation::begin(ExchangeId(id), SystemTime::UNIX_EPOCH, begin, outcome);
            observation.upstream = Some(if id == 4 { "b".into() } else { "a".into() });
            observation.model = Some(format!("org/m {id}").into());
            observation.trace_id = Some(format!("{:032x}", 0xab + id / 4));
            recent.push(Arc::new(Remembered::new(Box::new(observation))));
        }
        recent
    }

    fn ids(query: &str) -> Vec<String> {
        let page = page(&remembered(), query).unwrap();
        let records: Vec<Value> = serde_json::from_str(&page).unwrap();
        records.iter().map(|record| record["id"].as_str().unwrap().trim_start_matches('0').to_owned()).collect()
    }

    #[test]
    fn records_come_newest_first_and_each_parameter_leaves_some_out() {
        assert_eq!(ids(""), ["5", "4", "3", "2"]);
        assert_eq!(ids("limit=2"), ["5", "4"]);
        assert_eq!(ids("limit=99999"), ["5", "4", "3", "2"]);
        assert_eq!(ids("outcome=complete"), ["4", "2"]);
        assert_eq!(ids("outcome=complete&limit=1"), ["4"]);
        assert_eq!(ids("upstream=a"), ["5", "3", "2"]);
        assert_eq!(ids("model=org%2fm+4"), ["4"]);
        assert_eq!(ids("trace_id=000000000000000000000000000000AB"), ["3", "2"]);
        assert_eq!(ids("id=0000000000000003"), ["3"]);
        assert_eq!(ids("id=0000000000000001"), [""; 0], "no longer remembered");
        assert_eq!(page(&remembered(), "model=none").unwrap(), "[]");
        assert_eq!(one(&remembered(), "model=none").unwrap(), "null");
    }

    #[test]
    fn one_comes_with_its_gaps() {
        let mut begin = Timeline::begin(Stamp::ORIGIN);
        begin.end = Stamp::from_nanos(9);
        let mut observation = Observation::begin(ExchangeId(7), SystemTime::UNIX_EPOCH, begin, Outcome::Complete);
        for nanos in [1, 20_000_001, 40_000_001, 1_040_000_001] {
            observation.cadence.output(Stamp::from_nanos(nanos).unwrap());
        }
        let recent = Recent::new(4);
        recent.push(Arc::new(Remembered::new(Box::new(observation))));
        let one: Value = serde_json::from_str(&one(&recent, "id=0000000000000007").unwrap()).unwrap();
        assert_eq!(one["record"]["wall_s"], 8e-9);
        let [short, long] = one["gaps"].as_array().unwrap().as_slice() else { panic!("{one}") };
        assert!(short[0].as_f64().unwrap() <= 0.02 && 0.02 < short[1].as_f64().unwrap() && short[2] == 2, "{one}");
        assert!(long[0].as_f64().unwrap() <= 1.0 && 1.0 < long[1].as_f64().unwrap() && long[2] == 1, "{one}");
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let queries = [
            "trace=1",
            "limit",
            "limit=-1",
            "limit=many",
            "id=3",
            "id=000000000000000g",
            "trace_id=ab",
            "model=%ff",
            "upstream=a&upstream=b",
            "%69d=0000000000000003",
        ];
        for query in queries {
            let why = page(&remembered(), query).unwrap_err();
            assert!(why.contains("trace_id (32 hexadecimal digits)"), "{query}: {why}");
        }
        assert!(page(&remembered(), "outcome=ok").unwrap_err().contains("complete, truncated"));
    }
}
