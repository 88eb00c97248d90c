"""Recording rules: what alerts compare and dashboards draw."""

from .rules_parts import PAIR, Record

ABOUT = """
What alerts.yml compares and the dashboards draw. Times are in seconds, `n` is a number of requests, and names end in
the span they are taken over. `sampled`: only where so many requests stand behind the value that it means something.
`same_hour_7d`: the median of the same time of day on each of the last seven days, so that neither a daily wave nor one
bad day moves it; with less history, of the days there are.
"""

TTFT = "streamgauge:ttft_seconds"
TPOT = "streamgauge:time_per_output_token_seconds"
INPUT, LOAD = "streamgauge:ttft_by_input_seconds", "streamgauge:ttft_by_load_seconds"
DEADLINE = "streamgauge:ttft_deadline"
REQUESTS, TOKENS, PAIRED = "streamgauge:requests", "streamgauge:tokens", "streamgauge:paired_ttft_seconds"
# Requests by class of prompt length, of the classes that a mix is compared by.
COMPARABLE = f'{INPUT}:rate_30m and {INPUT}:p50_30m_sampled{{input!="unknown"}} and {INPUT}:p50_30m_same_hour_7d'
WORKLOADS = ("ttft_seconds", "output_tokens_per_second", "duration_seconds")
# Requests behind a half hour's median: its standard error is then some 12 % at the spread that TTFT usually has.
ENOUGH = 30
# Behind the median of one class of such a half hour, of which several are put together.
ENOUGH_OF_A_CLASS = 10


def quantile(q, family, window, by=PAIR):
    return f"histogram_quantile({q}, sum by ({by}, le) (rate(streamgauge_{family}_bucket[{window}])))"


def count(family, window, by=PAIR):
    return f"sum by ({by}) (increase(streamgauge_{family}_count[{window}]))"


def mean(family, window, by=PAIR):
    return f"""
        sum by ({by}) (rate(streamgauge_{family}_sum[{window}]))
          / (sum by ({by}) (rate(streamgauge_{family}_count[{window}])) > 0)
    """


def same_hour(series, by=PAIR):
    # Not a subquery: its steps of a day would all be at midnight.
    days = "\n          or ".join(
        f'label_replace({series} offset {day}d, "day", "{day}", "upstream", ".*")' for day in range(1, 8)
    )
    return f"""
        quantile by ({by}) (0.5,
          {days}
        )
    """


def share(window):
    return f"""
        sum by (upstream, model, outcome) (rate(streamgauge_requests_total[{window}]))
          / on (upstream, model) group_left ()
        (sum by (upstream, model) (rate(streamgauge_requests_total[{window}])) > 0)
    """


def missed(window):
    return f"""
        (
          sum by (upstream, model, deadline) (rate(streamgauge_ttft_deadline_total{{result="missed"}}[{window}]))
          or 0 * sum by (upstream, model, deadline) (rate(streamgauge_ttft_deadline_total[{window}]))
        ) / (sum by (upstream, model, deadline) (rate(streamgauge_ttft_deadline_total[{window}])) > 0)
    """


SIGNALS = [
    Record(
        f"{TTFT}:p50_5m",
        quantile(0.5, "ttft_seconds", "5m"),
        "TTFT: request sent → first output event arrived, the upstream's time.",
    ),
    Record(
        f"{TTFT}:p99_5m", quantile(0.99, "ttft_seconds", "5m"), "Two of two hundred lie above it: read n_5m beside it."
    ),
    Record(
        f"{TTFT}:n_5m", count("ttft_seconds", "5m"), "First tokens. Requests that never got one are in ttft_deadline."
    ),
    Record(
        f"{TTFT}:p50_30m",
        quantile(0.5, "ttft_seconds", "30m"),
        "Half an hour: enough for a median at one request a minute.",
    ),
    Record(f"{TTFT}:n_30m", count("ttft_seconds", "30m"), "As n_5m."),
    Record(f"{REQUESTS}:share_5m", share("5m"), "Of all requests that ended, by whoever's fault."),
    Record(f"{REQUESTS}:share_30m", share("30m"), "As share_5m: a rare fault takes half an hour to be seen."),
    Record(
        f"{REQUESTS}:n_30m",
        f"sum by ({PAIR}) (increase(streamgauge_requests_total[30m]))",
        "What share_30m is a share of.",
    ),
    Record(f"{INPUT}:mean_30m", mean("ttft_by_input_seconds", "30m", f"{PAIR}, input"), "TTFT by input tokens."),
    Record(
        f"{INPUT}:rate_30m",
        f"sum by ({PAIR}, input) (rate(streamgauge_ttft_by_input_seconds_count[30m]))",
        "The mix of prompt lengths, in requests per second.",
    ),
    Record(
        f"{LOAD}:mean_30m",
        mean("ttft_by_load_seconds", "30m", f"{PAIR}, load"),
        "TTFT by requests in flight at the start.",
    ),
    Record(f"{LOAD}:n_30m", count("ttft_by_load_seconds", "30m", f"{PAIR}, load"), "What mean_30m is of."),
    Record(
        f"{TPOT}:p50_30m",
        quantile(0.5, "time_per_output_token_seconds", "30m"),
        "Time per output token: (last - first output event) / (output tokens - 1), one value per request.",
    ),
    Record(f"{TPOT}:n_30m", count("time_per_output_token_seconds", "30m"), "Requests with a token count."),
    *(
        Record(
            f"{DEADLINE}:missed_ratio_{window}",
            missed(window),
            "Of the requests for a stream, those without a first token in time, also for want of any. No miss yet: 0."
            if window == "5m"
            else "As over 5 minutes.",
        )
        for window in ("5m", "30m", "1h", "6h")
    ),
    *(
        Record(
            f"{DEADLINE}:n_{window}",
            f"sum by ({PAIR}, deadline) (increase(streamgauge_ttft_deadline_total[{window}]))",
            f"What missed_ratio_{window} is of.",
        )
        for window in ("1h", "6h")
    ),
]

SAMPLES = [
    Record(f"{TTFT}:p50_30m_sampled", f"{TTFT}:p50_30m and {TTFT}:n_30m >= {ENOUGH}", "What the baseline learns from."),
    Record(
        f"{DEADLINE}:missed_ratio_1h_sampled",
        f"{DEADLINE}:missed_ratio_1h and {DEADLINE}:n_1h >= {ENOUGH_OF_A_CLASS}",
        "The same for the deadlines.",
    ),
    Record(f"{TPOT}:p50_30m_sampled", f"{TPOT}:p50_30m and {TPOT}:n_30m >= {ENOUGH}", "The same for the speed."),
    Record(
        f"{TTFT}:tail_ratio_5m_sampled",
        f"{TTFT}:p99_5m / {TTFT}:p50_5m and {TTFT}:n_5m >= 200",
        "P99 over P50. Below 200 the P99 is one request.",
    ),
    Record(
        f"{INPUT}:p50_30m_sampled",
        f"""
        {quantile(0.5, "ttft_by_input_seconds", "30m", f"{PAIR}, input")}
          and {count("ttft_by_input_seconds", "30m", f"{PAIR}, input")} >= {ENOUGH_OF_A_CLASS}
        """,
        "Medians: of so few, a mean would follow a single slow request.",
    ),
    Record(
        f"{LOAD}:p50_30m_sampled",
        f"""
        {quantile(0.5, "ttft_by_load_seconds", "30m", f"{PAIR}, load")}
          and {LOAD}:n_30m >= {ENOUGH_OF_A_CLASS}
        """,
        "As by input tokens.",
    ),
    Record(
        f"{TOKENS}:cached_share_30m",
        f"""
        sum by ({PAIR}) (rate(streamgauge_tokens_total{{type="cached_input"}}[30m]))
          / (sum by ({PAIR}) (rate(streamgauge_tokens_total{{type="input"}}[30m])) > 0)
          and {TTFT}:n_30m >= {ENOUGH}
        """,
        "Of the input tokens, those the provider had in its cache, as it says. Left out where it says nothing.",
    ),
    Record(
        f"{PAIRED}:n_30m",
        f'sum by ({PAIR}) (increase(streamgauge_paired_ttft_seconds_count{{side="gateway"}}[30m]))',
        "Requests that have both.",
    ),
    Record(
        f"{PAIRED}:outside_30m",
        f"""
        (
          sum by ({PAIR}) (rate(streamgauge_paired_ttft_seconds_sum{{side="gateway"}}[30m]))
          - sum by ({PAIR}) (rate(streamgauge_paired_ttft_seconds_sum{{side="server"}}[30m]))
        ) / (sum by ({PAIR}) (rate(streamgauge_paired_ttft_seconds_count{{side="gateway"}}[30m])) > 0)
          and {PAIRED}:n_30m >= {ENOUGH}
        """,
        "Mean of TTFT minus the server's own, of the same requests: the network, and what the provider leaves out.",
    ),
    Record(
        f"{PAIRED}:server_mean_30m",
        f"""
        sum by ({PAIR}) (rate(streamgauge_paired_ttft_seconds_sum{{side="server"}}[30m]))
          / (sum by ({PAIR}) (rate(streamgauge_paired_ttft_seconds_count{{side="server"}}[30m])) > 0)
        """,
        "The other part of that mean.",
    ),
    Record(
        f"{TTFT}:p50_30m_by_hour",
        f'{TTFT}:p50_30m_sampled * on () group_left (utc_hour) count_values("utc_hour", hour())',
        "The hour of the day as a label, without a rule for each.",
    ),
]

BASELINES = [
    Record(
        f"{TTFT}:baseline_median_7d",
        f"quantile_over_time(0.5, {TTFT}:p50_30m_sampled[7d] offset 1h)",
        "What is usual. It ends an hour ago, so that what happens now does not teach it.",
    ),
    Record(
        f"{TTFT}:p50_1d",
        f"histogram_quantile(0.5, sum by ({PAIR}, le) (increase(streamgauge_ttft_seconds_bucket[1d]))) > 0",
        "Of whatever first tokens a day had, be it one: a model that is asked seldom is known too.",
    ),
    Record(
        f"{TTFT}:baseline_sigma_7d",
        f"""
        (
          quantile_over_time(0.75, {TTFT}:p50_30m_sampled[7d] offset 1h)
          - quantile_over_time(0.25, {TTFT}:p50_30m_sampled[7d] offset 1h)
        ) / 1.349
        """,
        "A standard deviation that outliers don't move: of a normal distribution with these quartiles.",
    ),
    Record(
        f"{TTFT}:baseline_points_7d",
        f"count_over_time({TTFT}:p50_30m_sampled[7d] offset 1h)",
        "Two minutes each: 720 are a day.",
    ),
    Record(f"{TPOT}:p50_30m_same_hour_7d", same_hour(f"{TPOT}:p50_30m_sampled"), "Usual at this hour."),
    Record(f"{TTFT}:tail_ratio_5m_same_hour_7d", same_hour(f"{TTFT}:tail_ratio_5m_sampled"), "Usual at this hour."),
    Record(
        f"{INPUT}:p50_30m_same_hour_7d", same_hour(f"{INPUT}:p50_30m_sampled", f"{PAIR}, input"), "Usual at this hour."
    ),
    Record(
        f"{LOAD}:p50_30m_same_hour_7d", same_hour(f"{LOAD}:p50_30m_sampled", f"{PAIR}, load"), "Usual at this hour."
    ),
    Record(
        f"{LOAD}:idle_p50_1d",
        f'quantile_over_time(0.5, {LOAD}:p50_30m_sampled{{load="1"}}[1d])',
        "TTFT of requests that were alone, over a day: in a busy hour none may be.",
    ),
    Record(f"{TOKENS}:cached_share_30m_same_hour_7d", same_hour(f"{TOKENS}:cached_share_30m"), "Usual at this hour."),
    Record(f"{PAIRED}:outside_30m_same_hour_7d", same_hour(f"{PAIRED}:outside_30m"), "Usual at this hour."),
    # Direct standardisation. Both sides have the mix of now, so a change of the mix cancels out.
    Record(
        f"{TTFT}:by_mix_now_30m",
        f"""
        sum by ({PAIR}) (
          {INPUT}:p50_30m_sampled{{input!="unknown"}} * {INPUT}:rate_30m and {INPUT}:p50_30m_same_hour_7d
        ) / sum by ({PAIR}) (
          {COMPARABLE}
        )
        """,
        "Medians of the classes of prompt length, weighted by the mix of now; only of classes known from before.",
    ),
    Record(
        f"{TTFT}:by_mix_usual_7d",
        f"""
        sum by ({PAIR}) (
          {INPUT}:p50_30m_same_hour_7d * {INPUT}:rate_30m and {INPUT}:p50_30m_sampled{{input!="unknown"}}
        ) / sum by ({PAIR}) (
          {COMPARABLE}
        )
        """,
        "What the mix of now would usually have at this hour: the same weights, the same classes.",
    ),
    Record(
        f"{TTFT}:by_mix_coverage_30m",
        f"""
        sum by ({PAIR}) (
          {COMPARABLE}
        ) / (sum by ({PAIR}) ({INPUT}:rate_30m) > 0)
        """,
        "Share of the requests that by_mix speaks of.",
    ),
    Record(
        f"{DEADLINE}:missed_ratio_1h_median_7d",
        f"quantile_over_time(0.5, {DEADLINE}:missed_ratio_1h_sampled[7d] offset 1h)",
        "Whether the model usually keeps the deadline: the middle one of its hours, which a long outage does not move.",
    ),
]

INCREASES = [
    Record(
        f"streamgauge:workload_{family}_bucket:increase5m",
        f"sum by ({PAIR}, workload, le) (increase(streamgauge_workload_{family}_bucket[5m]))",
        "",
    )
    for family in WORKLOADS
]


def over_72h(family):
    bucket = f"streamgauge:workload_{family}_bucket:increase5m"
    yield Record(
        f"streamgauge:workload_{family}:median_72h",
        f"histogram_quantile(0.5, sum by ({PAIR}, workload, le) (sum_over_time({bucket}[72h])))",
        "",
    )
    yield Record(
        f"streamgauge:workload_{family}:n_72h",
        f'sum by ({PAIR}, workload) (sum_over_time({bucket}{{le="+Inf"}}[72h]))',
        "",
    )


GROUPS = [
    ("streamgauge-signals", "30s", "What is now.", SIGNALS),
    # A value is found for five minutes behind its evaluation: rules that others look up are evaluated more often.
    ("streamgauge-samples", "2m", "What is kept of it for comparisons, with enough behind it.", SAMPLES),
    ("streamgauge-baselines", "2m", "What is usual.", BASELINES),
    (
        "streamgauge-increases",
        "5m",
        "Evaluated once per span, so that spans lie end to end and a sum over days costs little. Not to be looked up singly.",
        INCREASES,
    ),
    (
        "streamgauge-workloads",
        "2m",
        "Declared workloads, as rankings of providers publish them: the median of three days, and its n.",
        [rule for family in WORKLOADS for rule in over_72h(family)],
    ),
]
