"""Consistency and capacity: is it steady, and how much does it bear?"""

from .catalogue import FAMILIES
from .frame import board
from .panels import DASHED, GREY, TTFT_STEPS, about, bars, classes, matching, query, samples, series
from .queries import PAIR, RANGE, STEP, count, gauge, quantile, recorded, rises

LOADS = FAMILIES["streamgauge_ttft_by_load_seconds"].labels["load"]
EACH = "{{upstream}} {{model}}"
BY_ALL = "n {{upstream}} {{model}}"
JOB = '{job=~"$job"}'


def steady():
    ttft = "ttft_seconds"
    yield series(
        "TTFT, P99 ÷ P50",
        about(ttft, "Of 5 minutes. Under 4 is even, over 10 is not; with few samples it says little."),
        [
            query(f"{recorded('ttft_seconds:p99_5m')} / {recorded('ttft_seconds:p50_5m')}", EACH),
            samples(recorded("ttft_seconds:n_5m"), BY_ALL),
        ],
        "none",
        (("green", None), ("yellow", 4), ("red", 10)),
        h=9,
    )
    hours = recorded("ttft_seconds:p50_30m_by_hour")
    yield bars(
        "TTFT by hour of day",
        about(ttft, "Mean of the medians of 30 minutes, over 14 days, by the hour in UTC; n: how many of them."),
        {
            "TTFT": two_digits(f"avg by (utc_hour) (avg_over_time({hours}[14d]))"),
            "n": two_digits(f"sum by (utc_hour) (count_over_time({hours}[14d]))"),
        },
        by="utc_hour",
        apart="n",
        h=9,
    )
    yield series(
        "TTFT against its usual range",
        about(
            ttft,
            "Median of 30 minutes, beside the median of seven days,",
            "and four sigmas above that, where the baseline alert begins.",
        ),
        [
            query(recorded("ttft_seconds:p50_30m"), EACH),
            query(recorded("ttft_seconds:baseline_median_7d"), f"usual: {EACH}"),
            query(
                f"{recorded('ttft_seconds:baseline_median_7d')} + 4 * {recorded('ttft_seconds:baseline_sigma_7d')}",
                f"usual + 4 σ: {EACH}",
            ),
            samples(recorded("ttft_seconds:n_30m"), BY_ALL),
        ],
        steps=TTFT_STEPS,
        overrides=[matching("^usual:", DASHED), matching("^usual \\+", DASHED, GREY)],
        h=9,
    )
    yield series(
        "Clients that left without a token",
        about(
            "ttft_abandoned_wait_seconds",
            "Median wait; bars: how many. The wait is the provider's time, the leaving the client's.",
        ),
        [
            query(quantile(0.5, "ttft_abandoned_wait_seconds", PAIR), EACH),
            samples(count("ttft_abandoned_wait_seconds", PAIR), BY_ALL),
        ],
        h=9,
    )


def two_digits(expr):
    """So that hours sort as text."""
    return f'label_replace({expr}, "utc_hour", "0$1", "utc_hour", "(.)")'


def load():
    family = "ttft_by_load_seconds"

    def at(value):
        return quantile(0.5, family, over=RANGE, where=f'load="{value}"')

    names = {value: value.replace("_", "–", 1) for value in LOADS}
    yield classes(
        "TTFT, median by requests in flight",
        about(family, "Of the same upstream and model. Over the chosen time."),
        {name: at(value) for value, name in names.items()},
        steps=TTFT_STEPS,
        w=8,
    )
    yield classes(
        "Samples, by load",
        about(family, "How many are behind each median beside this."),
        {name: count(family, over=RANGE, where=f'load="{value}"') for value, name in names.items()},
        "locale",
        decimals=0,
        w=4,
    )
    yield classes(
        "How much slower than alone",
        about(family, "Each median over that of requests that were alone. At 1 the load costs nothing."),
        {name: f"{at(value)} / {at('1')}" for value, name in names.items()},
        "none",
        (("green", None), ("yellow", 1.5), ("red", 3)),
        decimals=2,
    )
    yield series(
        "Requests in flight",
        about(
            "in_flight_seconds_total",
            "Its rate, so no request between two scrapes is missed; dashed: the most at once.",
        ),
        [
            query(rises("in_flight_seconds_total", PAIR), EACH),
            query(f"max by (upstream, model) (max_over_time({gauge('in_flight_peak')}[$__interval]))", f"peak: {EACH}"),
            samples(count("requests_started_total", PAIR), BY_ALL),
        ],
        "short",
        overrides=[matching("^peak", DASHED)],
    )
    yield series(
        "Little's law: two ways to the same number",
        about(
            "stage_seconds_total",
            "Arrivals by second times mean time is what is in flight, over times much longer than a request;",
            "a lasting difference is requests that hang.",
        ),
        [
            query(rises("in_flight_seconds_total", ("upstream",)), "in flight: {{upstream}}"),
            query(rises("stage_seconds_total", ("upstream",)), "seconds of ended requests by second: {{upstream}}"),
            samples(count("requests_total", ("upstream",)), "n {{upstream}}"),
        ],
        "short",
    )
    headroom = f"min by (upstream, model, kind) ({gauge('ratelimit_remaining')} / ({gauge('ratelimit_limit')} > 0))"
    yield series(
        "What is left of the provider's limits",
        about("ratelimit_remaining", "Share of the limit; by itself it refills, and is as old as the last answer."),
        [query(headroom, "{{kind}}: {{upstream}} {{model}}")],
        "percentunit",
        (("red", None), ("yellow", 0.1), ("green", 0.3)),
    )
    yield series(
        "Tokens by second",
        about("tokens_total"),
        [query(rises("tokens_total", ("type",)), "{{type}}"), samples(count("requests_total"))],
        "short",
        w=6,
    )
    yield series(
        "Bytes of bodies",
        about("bytes_total"),
        [query(rises("bytes_total", ("direction",)), "{{direction}}"), samples(count("requests_total"))],
        "Bps",
        w=6,
    )


def unmeasured():
    yield series(
        "What could not be measured",
        about(
            "no_usage_total",
            "no_output_total",
            "hidden_reasoning_total",
            "Share of finished requests; they are in no speed.",
        ),
        [
            query(f"{rises('no_usage_total')} / {rises('requests_total')}", "no token counts"),
            query(f"{rises('no_output_total')} / {rises('requests_total')}", "no output"),
            query(f"{rises('hidden_reasoning_total')} / {rises('requests_total')}", "hidden reasoning"),
            samples(count("requests_total")),
        ],
        "percentunit",
    )
    yield series(
        "What the gauge could not read or keep",
        about(
            "observer_off_total",
            "series_overflow_total",
            "measurements_dropped_total",
            "log_dropped_total",
            "Each should stay at 0; the bytes went on all the same.",
        ),
        [
            query(rises("observer_off_total", ("reason",)), "not read: {{reason}}"),
            query(rises("series_overflow_total"), "series folded"),
            query(rises("measurements_dropped_total"), "values dropped"),
            query(rises("log_dropped_total"), "records dropped"),
        ],
        "cps",
    )
    yield series(
        "The gauge's processor and its scrapes",
        "From one scrape to the next: processor time by second (1 is a core), "
        "and how long Prometheus took from asking for /metrics to having it. The gauge's own.",
        [
            query(f"sum by (instance) (rate(process_cpu_seconds_total{JOB}[{STEP}]))", "processor: {{instance}}"),
            query(f"max by (instance) (scrape_duration_seconds{JOB})", "scrape: {{instance}}"),
        ],
        w=8,
    )
    yield series(
        "The gauge's memory",
        "Resident memory of the process at each scrape. The gauge's own.",
        [query(f"sum by (instance) (process_resident_memory_bytes{JOB})", "{{instance}}")],
        "bytes",
        w=8,
    )
    yield series(
        "Series and descriptors",
        "Samples that the last scrape brought (bounded by metrics.max_series), and open descriptors: "
        "two for each request in flight, or so.",
        [
            query(f"sum by (instance) (scrape_samples_scraped{JOB})", "series: {{instance}}"),
            query(f"sum by (instance) (process_open_fds{JOB})", "descriptors: {{instance}}"),
        ],
        "short",
        log=True,
        w=8,
    )


def capacity():
    rows = {"Is it steady?": steady(), "What does load do to it?": load(), "The instrument itself": unmeasured()}
    return board("capacity", "Consistency and capacity", "Is it steady, and how much does it bear?", "6h", [], rows)
