//! One line of an access log, read back. `docs/record.md` says what each key is; a key that is not there was not observed.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The record of an exchange, as far as tables and plots are made of it. Seconds are `f64`.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the key of the same name")]
pub struct Record {
    pub time: String,
    pub id: String,
    pub upstream: Option<String>,
    pub endpoint: String,
    pub dialect: String,
    pub status: Option<u16>,
    pub stream: bool,
    pub asked_stream: Option<bool>,
    pub outcome: String,
    pub limit: Option<String>,
    pub model: Option<String>,
    pub wall_s: f64,
    pub attempts: u32,
    pub request_s: Option<f64>,
    pub ttfb_s: Option<f64>,
    pub ttft_s: Option<f64>,
    pub answer_ttft_s: Option<f64>,
    pub client_ttft_s: Option<f64>,
    pub duration_s: Option<f64>,
    pub client_duration_s: Option<f64>,
    pub tpot_s: Option<f64>,
    pub output_tokens_per_second: Option<f64>,
    pub end_to_end_tokens_per_second: Option<f64>,
    pub max_gap_s: Option<f64>,
    pub input_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub reasoning_tokens: Option<u64>,
    pub overhead_s: BTreeMap<String, f64>,
    /// In seconds, by stage; together `wall_s`.
    pub stages_s: Stages,
    pub server_reported_s: BTreeMap<String, f64>,
    pub connection: Connection,
    pub stamp: BTreeMap<String, String>,
    pub flags: Vec<String>,
    pub workload: Option<String>,
    pub load_class: Option<String>,
    pub trace_id: Option<String>,
    pub session: Option<String>,
}

/// The connection to the upstream that an exchange used.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the key of the same name")]
pub struct Connection {
    pub reused: Option<bool>,
    pub upstream_rtt_s: Option<f64>,
    pub upstream_retransmits: Option<u64>,
}

/// Seconds by stage.
pub type Stages = BTreeMap<String, f64>;

impl Record {
    /// Reads one line. Keys it does not know are passed over: a newer gauge may have written them.
    ///
    /// # Errors
    /// If the line is no JSON object, or a key it knows has another shape.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }

    /// The provider's own TTFT in seconds, if it begins and ends where ours does; absent where
    /// [`crate::observation::Observation::paired_ttft`] is for what the provider says.
    pub fn comparable_server_ttft(&self) -> Option<f64> {
        const NOT: [&str; 4] =
            ["hidden_reasoning", "summarised_reasoning", "server_ttft_of_head", "server_ttft_behind_queue"];
        let comparable = !self.flags.iter().any(|flag| NOT.contains(&flag.as_str()));
        self.server_reported_s.get("ttft").copied().filter(|_| comparable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_ttft_of_something_else_is_not_compared() {
        for flag in ["server_ttft_of_head", "server_ttft_behind_queue", "hidden_reasoning", "summarised_reasoning"] {
            let mut gauge = Record::default();
            gauge.server_reported_s.insert("ttft".to_owned(), 0.18);
            assert_eq!(gauge.comparable_server_ttft(), Some(0.18));
            gauge.flags.push(flag.to_owned());
            assert_eq!(gauge.comparable_server_ttft(), None, "{flag}");
        }
    }
}
