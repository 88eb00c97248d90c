//! A provider that freezes for two seconds. The open loop goes on asking, and every wait is seen; a closed loop waits with
//! the provider, asks once in all that time, and its percentiles know nothing of it.

use std::{
    process::{Output, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use rustix::process::Signal;
use serde_json::Value;
use streamgauge::{clock::Clock, figures::Record};

use crate::support::{Records, Started, bench, json};

const FROZEN: Duration = Duration::from_secs(2);

#[test]
fn a_freeze_is_seen_by_all_who_were_due_in_it_and_hides_from_a_closed_loop() {
    let flags = "--input-tokens 50 --output-tokens 5 --runs 100 --json -q";
    let open = frozen(&format!("{flags} --rate 20 --arrivals even"));
    // All were due when they should be, the freeze or not: forty in two seconds, less a tenth for the signal to arrive.
    let mut due: Vec<f64> = open.records.iter().map(|record| since(record, open.stopped)).collect();
    due.sort_by(f64::total_cmp);
    assert!(due.windows(2).all(|pair| (pair[1] - pair[0] - 0.05).abs() < 0.001), "{due:?}");
    let waited = open.begun_in_it();
    assert!(waited.len() >= 30, "{}", waited.len());
    let thaw = open.thawing.duration_since(open.stopped).unwrap().as_secs_f64();
    for record in waited {
        let until = since(record, open.stopped) + record.client_ttft_s.unwrap();
        assert!(until >= thaw, "nobody was answered before it went on: {until} {thaw}");
    }
    // To the end, for the freeze may meet an answer between its first token and its last.
    let figure = |result: &Value, of: &str| result["cells"][0]["figures"]["client_duration_s"][of].as_f64().unwrap();
    assert!(figure(&open.result, "p99") > 1.5, "{:#}", open.result);

    let closed = frozen(&format!("{flags} --concurrency 1"));
    assert!(closed.begun_in_it().len() <= 1, "the next one begins when one has ended");
    assert!(figure(&closed.result, "max") > 1.5, "{:#}", closed.result);
    println!(
        "end to end from due, frozen 2 s: open p50 {:.3} p99 {:.3}; closed p50 {:.3} p90 {:.3} max {:.3}",
        figure(&open.result, "p50"),
        figure(&open.result, "p99"),
        figure(&closed.result, "p50"),
        figure(&closed.result, "p90"),
        figure(&closed.result, "max"),
    );
}

/// A bench whose provider froze once ten answers had come.
struct Frozen {
    result: Value,
    records: Vec<Record>,
    /// From here on it could answer nothing …
    stopped: SystemTime,
    /// … until some time after this.
    thawing: SystemTime,
}

impl Frozen {
    fn begun_in_it(&self) -> Vec<&Record> {
        let length = self.thawing.duration_since(self.stopped).unwrap().as_secs_f64();
        self.records.iter().filter(|record| (0.0..length).contains(&since(record, self.stopped))).collect()
    }
}

fn frozen(flags: &str) -> Frozen {
    let sim = Started::sim("--ttft 30ms --tokens-per-second 1000");
    let records = Records::new();
    let clock = Clock::start();
    let mut command = bench(&sim.url(), flags);
    let child = command.args(["--records", records.path()]).stdout(Stdio::piped()).spawn().unwrap();
    while records.read().len() < 10 {
        thread::sleep(Duration::from_millis(10));
    }
    sim.signal(Signal::STOP);
    thread::sleep(FROZEN / 20);
    let stopped = clock.wall(clock.now());
    thread::sleep(FROZEN / 20 * 19);
    let thawing = clock.wall(clock.now());
    sim.signal(Signal::CONT);
    let output: Output = child.wait_with_output().unwrap();
    let records = records.read();
    assert!(records.len() == 100 && records.iter().all(|record| record.outcome == "complete"));
    Frozen { result: json(&output), records, stopped, thawing }
}

/// Seconds from `start` to when the request was due or begun; negative before.
fn since(record: &Record, start: SystemTime) -> f64 {
    let due = humantime::parse_rfc3339(&record.time).unwrap();
    match due.duration_since(start) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}
