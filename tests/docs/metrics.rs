//! `docs/metrics.md`, from the catalogue and from what a recorder exposes at its start.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use streamgauge::{
    clock::Clock,
    config::{Config, Overrides},
    dialect::{Endpoint, Reported, limits::Kind},
    metrics::{
        Catalogue, Plan,
        bounds::{CADENCE, COARSE, DURATION, FINE, LOAD, MAX_GAP, OVERHEAD, SMALL, SPEED},
        family::{self, Desc, Exposed, Unit},
    },
    observation::{Outcome, STAGES, input_class, load_class, output_class},
    recent::ClientPhase,
    record::Recorder,
};

use crate::path;

const NETWORK: &str =
    "exchanges without a response head; turns of a WebSocket session; all on other systems than Linux.";
const FILE: &str = "docs/metrics.md";

const INTRODUCTION: &str = "\
# Metrics

<!-- Written by `UPDATE_DOCS=1 cargo test --test docs`. Change the catalogue or tests/docs/metrics.rs, not this file. -->

What `/metrics` on the admin address serves: Prometheus text 0.0.4, or OpenMetrics 1.0 (with exemplars) to who asks for
it. The marks and formulas behind these numbers are in [numbers.md](numbers.md); one exchange's own numbers are in its
[record](record.md).

* **Times are in seconds** and every `HELP` text, which is given here word for word, names both ends of its span.
* **Absent is not zero.** A latency that was not observed is no sample. \"Left out\" says what is not in a family.
* **From the start** means: for each configured upstream, and each model named in its `models`, the series is there at 0
  as soon as the gauge runs, so that the first event is visible to `increase()`. Others appear with their first value.
* **When.** TTFT, gaps and deadlines are observed when they happen, not at the end of a stream that may last ten minutes.
  What needs token counts is observed at the end.
* **`upstream`** is the configured name; `_none` where no route was found. **`model`** is the requested one, as a label only
  if it is configured or an upstream has answered 2xx for it, at most 64 per upstream, printable, up to 128 bytes; else
  `_other`: so the first exchange of a model that is not configured is in flight under `_other`. Requests that name none
  have `_none`. No key, user, path, prompt or request id is ever a label.
* **Series are bounded** by `metrics.max_series`. Label sets beyond it fold into `_other`, and
  `streamgauge_series_overflow_total` counts them.
* **Tunnels** (upgraded connections) are counted as requests, in flight, and in `streamgauge_bytes_total`, and are
  in no latency, no stage and no load: their hours would drown those of exchanges. The turns of a WebSocket session are
  exchanges of their own, in all families ([what a turn is](numbers.md#turns-of-a-websocket)); their bytes and stalls are
  theirs and not their tunnel's again.
* The usual `process_…` metrics (CPU, memory, descriptors, start time, threads) follow, on Linux.

## Bounds

";

/// The sets of bounds, by the name the sections use.
const BOUNDS: [(&str, &str, &[f64]); 9] = [
    ("fine", "TTFT", FINE),
    ("coarse", "slices and pairs of TTFT, first bytes", COARSE),
    ("load", "slices by load", LOAD),
    ("cadence", "gaps, time per token", CADENCE),
    ("max gap", "the longest gap of an exchange", MAX_GAP),
    ("speed", "in tokens per second", SPEED),
    ("duration", "whole exchanges", DURATION),
    ("overhead", "the gauge's own time", OVERHEAD),
    ("small", "connections, providers' own times", SMALL),
];

const AS_TTFT: &str = "streams without an output event; whatever is not a stream, or is not read.";
const AS_TPOT: &str = "as `streamgauge_time_per_output_token_seconds`; replies that came in one burst.";
const AS_STARTED: &str = "exchanges without an upstream: no route, a head that could not be read.";
const WORKLOAD: &str = "exchanges that are not complete, or fit no declared workload. Not there without one.";

type Notes = &'static [(&'static str, &'static str)];

/// The families in the catalogue's order, by subject: what is left out of each.
const NOTES: [(&str, Notes); 10] = [
    (
        "Requests and load",
        &[
            ("requests_total", "nothing: every exchange ends once."),
            ("requests_started_total", AS_STARTED),
            ("in_flight", AS_STARTED),
            ("in_flight_seconds_total", AS_STARTED),
            ("in_flight_peak", AS_STARTED),
        ],
    ),
    (
        "First token",
        &[
            ("ttft_seconds", AS_TTFT),
            ("answer_ttft_seconds", "as TTFT; streams with reasoning and tool calls only."),
            (
                "client_ttft_seconds",
                "as TTFT; clients who left before it departed; turns that no request of the client's began.",
            ),
            (
                "voice_first_audio_seconds",
                "turns that the client asked for: when its user fell silent it does not say. Turns without audio.",
            ),
            ("ttfb_seconds", "responses without a body; turns of a WebSocket."),
            ("first_event_seconds", "whatever is not a stream, or is not read; streams without an event."),
            ("ttft_by_input_seconds", "as TTFT. Without a count from the provider: `input=\"unknown\"`."),
            ("ttft_by_load_seconds", AS_TTFT),
            ("ttft_deadline_total", "requests that ask for no stream; clients who left, or were refused, before it."),
            ("ttft_abandoned_wait_seconds", "all other exchanges; requests that were never sent."),
            ("ttft_oldest_wait_seconds", "nothing: 0 when nobody waits."),
        ],
    ),
    (
        "Cadence and speed",
        &[
            (
                "inter_event_seconds",
                "events that came in one read; what comes after the client held the stream back for more than 10 ms.",
            ),
            (
                "time_per_output_token_seconds",
                "replies without a token count, with fewer than two tokens, with output that all came at once, with reasoning \
                 that is hidden or summarised, with several choices; streams the client held back.",
            ),
            ("max_gap_seconds", "exchanges without a gap."),
            ("output_tokens_per_second", AS_TPOT),
        ],
    ),
    (
        "Durations, overhead and stages",
        &[
            ("request_duration_seconds", "responses that never ended; requests that were never sent."),
            (
                "client_duration_seconds",
                "responses that did not reach the client whole; the gauge's own answers; turns that no request of the client's \
                 began.",
            ),
            (
                "overhead_seconds",
                "`request`: requests answered early, retried or never sent. `first_output`, `event`: as TTFT. All: turns that no \
                 request of the client's began. With HTTP/2 on a side it is a lower bound.",
            ),
            ("stage_seconds_total", "nothing."),
        ],
    ),
    (
        "Connections",
        &[
            ("connections_total", "exchanges that got none."),
            ("connect_seconds", "phases that did not take place, or that another exchange waited for."),
            ("pool_wait_seconds", "exchanges that got no connection."),
            ("upstream_rtt_seconds", NETWORK),
            ("client_rtt_seconds", NETWORK),
            ("attempts_total", "requests answered without trying: no route, over a limit."),
        ],
    ),
    (
        "Tokens, events and bytes",
        &[
            ("tokens_total", "what the provider does not report: nothing is estimated."),
            ("events_total", "whatever is not a stream, or is not read."),
            ("output_events_total", "as `streamgauge_events_total`."),
            ("reads_total", "nothing."),
            ("coalesced_events_total", "as `streamgauge_events_total`."),
            ("bytes_total", "nothing."),
        ],
    ),
    (
        "Stalls, and what can't be compared",
        &[
            ("stalls_total", "nothing."),
            ("stall_seconds_total", "nothing."),
            ("no_usage_total", "endpoints that generate nothing, dialects that are not read."),
            ("no_output_total", "as `streamgauge_no_usage_total`; streams that were given up or never ended."),
            ("hidden_reasoning_total", "nothing."),
        ],
    ),
    (
        "What the provider and the client say",
        &[
            (
                "server_reported_seconds",
                "what it does not say; answers with a status that is no 2xx. See [numbers.md](numbers.md#what-the-provider-says-of-itself).",
            ),
            (
                "paired_ttft_seconds",
                "as TTFT; providers that state no TTFT, or state it in a stream's head; hidden or summarised reasoning, whose \
                 first token is not the first that is seen.",
            ),
            (
                "client_reported_seconds",
                "what no client sends in. Not there without a [listener for it](record.md#the-clients-own-timings).",
            ),
            ("ratelimit_limit", "what response heads do not state."),
            ("ratelimit_remaining", "as `streamgauge_ratelimit_limit`."),
        ],
    ),
    (
        "Declared workloads",
        &[
            ("workload_ttft_seconds", WORKLOAD),
            ("workload_output_tokens_per_second", WORKLOAD),
            ("workload_duration_seconds", WORKLOAD),
        ],
    ),
    (
        "The gauge itself",
        &[
            ("observer_off_total", "nothing."),
            ("unobserved_requests_total", "all that is measured."),
            ("series_overflow_total", "nothing."),
            ("measurements_dropped_total", "nothing."),
            ("log_dropped_total", "nothing."),
            ("runtime_delay_seconds", "all on other systems than Linux: their timers are late by themselves."),
            ("build_info", "nothing."),
            ("config_last_reload_successful", "nothing."),
            ("config_last_reload_timestamp_seconds", "nothing."),
        ],
    ),
];

#[test]
fn metrics_md_is_what_the_catalogue_says() {
    let page = page();
    let file = path(FILE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let differs = written.lines().zip(page.lines()).find(|(written, page)| written != page);
    assert!(
        written == page,
        "{FILE} is not up to date: {differs:?}\nUPDATE_DOCS=1 cargo test --test docs writes it anew"
    );
}

fn page() -> String {
    let plan = Plan { max_series: 32_000, upstreams: 1, deadlines: 3, workloads: 1, client_timings: true };
    let catalogue = Catalogue::new(plan).unwrap();
    let exposition = exposition();
    let mut page = INTRODUCTION.to_owned();
    page.push_str(
        "Upper bounds in seconds unless said; `+Inf` is always there too.\n\n| name | for | bounds |\n|---|---|---|\n",
    );
    for (name, what, bounds) in BOUNDS {
        let bounds = bounds.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        writeln!(page, "| {name} | {what} | {bounds} |").unwrap();
    }
    let mut families = catalogue.families().iter();
    for (subject, notes) in NOTES {
        writeln!(page, "\n## {subject}").unwrap();
        for (name, left_out) in notes {
            let family = families.next().unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            assert_eq!(family.desc().name, format!("streamgauge_{name}"), "the notes follow the catalogue");
            describe(&mut page, &**family, left_out, &exposition);
        }
    }
    assert!(families.next().is_none(), "a family is missing in the notes");
    page
}

/// One family's section.
fn describe(page: &mut String, family: &dyn Exposed, left_out: &str, exposition: &str) {
    let Desc { name, help, labels, bounds, exemplars, unit, .. } = family.desc();
    let unit = match unit {
        Unit::One => "a number",
        Unit::Seconds => "seconds",
        Unit::TokensPerSecond => "tokens per second",
    };
    let mut facts = vec![family.kind().as_str().to_owned(), unit.to_owned()];
    if family.kind() == family::Kind::Histogram {
        let (bounds, ..) = BOUNDS.iter().find(|(_, _, known)| known == bounds).unwrap();
        facts.push(format!("bounds: [{bounds}](#bounds)"));
    }
    if *exemplars {
        facts.push("exemplars: exchange id, trace id".to_owned());
    }
    let from_start = exposition.contains(&format!("# TYPE {name} "));
    facts.push(if from_start { "from the start" } else { "from its first value" }.to_owned());
    writeln!(page, "\n### `{name}`\n\n{help}\n\n* {}", facts.join(" · ")).unwrap();
    let labels: Vec<_> = labels.iter().map(|label| labelled(name, label, exposition)).collect();
    writeln!(page, "* Labels: {}", if labels.is_empty() { "none".to_owned() } else { labels.join("; ") }).unwrap();
    writeln!(page, "* Left out: {left_out}").unwrap();
}

/// A label with its values, if those are a closed set.
fn labelled(family: &str, label: &str, exposition: &str) -> String {
    let values: Vec<String> = match label {
        "upstream" | "model" => return format!("`{label}`"),
        "deadline" => return "`deadline`: the configured ones, in seconds (`0.3`, `0.6`, `1` unless set)".to_owned(),
        "workload" => return "`workload`: the declared ones".to_owned(),
        "version" => return "`version`: the program's".to_owned(),
        "kind" => owned(Kind::ALL.map(Kind::as_str)),
        "phase" if family.contains("server_reported") => owned(Reported::default().named().map(|(phase, _)| phase)),
        "phase" if family.contains("client_reported") => owned(ClientPhase::ALL.map(ClientPhase::as_str)),
        "side" if family.contains("paired") => owned(["gateway", "server"]),
        "outcome" => owned(Outcome::ALL.map(Outcome::as_str)),
        "endpoint" => owned(ENDPOINTS.map(Endpoint::as_str)),
        "stage" => owned(STAGES),
        "input" => classes(|tokens| input_class(Some(tokens)), Some(input_class(None))),
        "output" => classes(|tokens| output_class(Some(tokens)), None),
        "load" => classes(|load| load_class(u32::try_from(load).unwrap()), None),
        _ => exposed(family, label, exposition).into_iter().collect(),
    };
    assert!(values.len() > 1, "{family} {label}: {values:?}");
    format!("`{label}`: `{}`", values.join("`, `"))
}

const ENDPOINTS: [Endpoint; 14] = [
    Endpoint::Chat,
    Endpoint::Completions,
    Endpoint::Responses,
    Endpoint::Messages,
    Endpoint::Generate,
    Endpoint::Realtime,
    Endpoint::Embeddings,
    Endpoint::Rerank,
    Endpoint::Images,
    Endpoint::Audio,
    Endpoint::Models,
    Endpoint::Batch,
    Endpoint::Tunnel,
    Endpoint::Other,
];

fn owned<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.map(str::to_owned).to_vec()
}

/// The classes of all numbers up to a million, then the one of an unknown number.
fn classes(class: impl Fn(u64) -> &'static str, unknown: Option<&str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for number in 0..1_000_000 {
        if found.last().is_none_or(|last| last != class(number)) {
            found.push(class(number).to_owned());
        }
    }
    found.extend(unknown.map(str::to_owned));
    found
}

/// The values a label has in a family from the start.
fn exposed(family: &str, label: &str, exposition: &str) -> BTreeSet<String> {
    let series = exposition.lines().filter(|line| {
        let rest = line.strip_prefix(family).unwrap_or_default();
        rest.starts_with('{') || rest.starts_with("_count{")
    });
    let value = |line: &str| {
        let labels = line.split_once('{')?.1;
        // Behind a quote come a comma and the next name; no value here has a quote of its own.
        let mut named = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
        let (_, value) = named.find(|(name, _)| *name == label)?;
        value.split('"').next().map(str::to_owned)
    };
    series.filter_map(value).collect()
}

/// What a gauge with one upstream, one model and one workload exposes before its first request.
fn exposition() -> String {
    let text = "[[upstreams]]\nurl = \"http://127.0.0.1:1\"\nmodels = [\"m\"]\n\
                [[metrics.workloads]]\nname = \"w\"\ninput_tokens = [1, 2]\noutput_tokens = [1, 2]\n";
    let config = Config::from_toml(text, "docs.toml".as_ref(), &Overrides::default()).unwrap();
    let clock = Clock::start();
    Recorder::new(&config, clock).unwrap().encode(false, clock.now())
}
