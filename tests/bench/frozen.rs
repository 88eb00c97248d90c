//! A provider that freezes for two seconds. The open loop goes on asking, and every wait is seen; a closed loop waits with
//! the provider, asks once in all that time, and its percentiles know nothing of it.

use std::{
    process::{Output, Stdio},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use streamgauge::figures::Record;

use crate::support::{Records, Started, bench, json};

const FROZEN: Duration = Duration::from_secs(2);

#[test]
fn a_freeze_shows_in_the_open_loops_tail_and_hides_from_a_closed_loop() {
    let flags = "--input-tokens 50 --output-tokens 5 --runs 100 --json -q";
    let (open, waits) = frozen(&format!("{flags} --rate 20 --arrivals even"));
    // Forty were due while it was frozen, twenty of them more than a second before it went on.
    let open_waits = long(&waits);
    assert!((15..=60).contains(&open_waits), "{open_waits} of {}", waits.len());
    let figure = |result: &Value, of: &str| result["cells"][0]["figures"]["ttft_from_due_s"][of].as_f64().unwrap();
    assert!(figure(&open, "p99") > 1.5 && figure(&open, "p50") < 1.0, "{open:#}");
    // All were due when they should be, the freeze or not.
    let mut due: Vec<f64> = waits.iter().map(|record| seconds(&record.time)).collect();
    due.sort_by(f64::total_cmp);
    assert!(due.windows(2).all(|pair| (pair[1] - pair[0] - 0.05).abs() < 0.001), "{due:?}");

    let (closed, waits) = frozen(&format!("{flags} --concurrency 1"));
    // One was under way; a few more are a busy machine's own.
    assert!(long(&waits) * 3 <= open_waits, "{} and {open_waits}", long(&waits));
    assert!(figure(&closed, "max") > 1.5, "{closed:#}");
    println!(
        "TTFT from due, frozen 2 s: open p50 {:.3} p99 {:.3}; closed p50 {:.3} p90 {:.3} max {:.3}",
        figure(&open, "p50"),
        figure(&open, "p99"),
        figure(&closed, "p50"),
        figure(&closed, "p90"),
        figure(&closed, "max"),
    );
}

/// How many waited for more than a second.
fn long(records: &[Record]) -> usize {
    records.iter().filter(|record| record.client_ttft_s.is_some_and(|ttft| ttft > 1.0)).count()
}

/// Result and records of a bench whose provider freezes once ten answers have come.
fn frozen(flags: &str) -> (Value, Vec<Record>) {
    let sim = Started::sim("--ttft 30ms --tokens-per-second 1000");
    let records = Records::new();
    let mut command = bench(&sim.url(), flags);
    let child = command.args(["--records", records.path()]).stdout(Stdio::piped()).spawn().unwrap();
    while records.read().len() < 10 {
        thread::sleep(Duration::from_millis(10));
    }
    sim.signal(Signal::STOP);
    thread::sleep(FROZEN);
    sim.signal(Signal::CONT);
    let output: Output = child.wait_with_output().unwrap();
    let records = records.read();
    assert!(records.len() == 100 && records.iter().all(|record| record.outcome == "complete"));
    (json(&output), records)
}

/// Of the minute: the test is shorter.
fn seconds(time: &str) -> f64 {
    let [minutes, seconds] = [&time[14..16], &time[17..26]].map(|part| part.parse::<f64>().unwrap());
    minutes * 60.0 + seconds
}
