"""Overview: is it slow, and whose fault is it?"""

from .frame import ALERTING, DEADLINE, SINCE, board, link
from .panels import (
    DASHED,
    GOOD_SHARE,
    TTFT_STEPS,
    about,
    fixed,
    heatmap,
    hue,
    matching,
    query,
    samples,
    series,
    stat,
    table,
)
from .queries import (
    FAULTS,
    HANDS,
    NOT_THE_CLIENTS,
    PAIR,
    RANGE,
    buckets,
    count,
    gauge,
    mean,
    per_request,
    quantile,
    recorded,
    rises,
    share,
)

TTFT = "ttft_seconds"
OURS = "Its time is the provider's, and the network's to it; the gauge's own is not in it."
HUES = {
    "provider": "red",
    "provider, rate limit": "orange",
    "client or provider, 4xx": "yellow",
    "client": "blue",
    "gauge": "purple",
}
HAND_HUES = {
    "client": "blue",
    "gauge": "purple",
    "network and connecting": "yellow",
    "provider": "orange",
    "earlier attempts": "red",
}
SIDES = {"gateway": "by the gauge", "server": "by the provider"}
ALERT = ("alertname", "severity", "upstream", "model")


def tiles():
    over = {"over": RANGE}
    deadline = 'deadline="$deadline"'
    yield stat(
        "TTFT, median",
        about(TTFT, f"{OURS} Over the chosen time."),
        ("median", quantile(0.5, TTFT, **over)),
        ("n", count(TTFT, **over)),
        steps=TTFT_STEPS,
    )
    yield stat(
        "TTFT, P99 ÷ P50",
        about(TTFT, "How much longer the slowest in a hundred wait than the median: under 4 is even, over 10 is not."),
        ("P99 ÷ P50", f"{quantile(0.99, TTFT, **over)} / {quantile(0.5, TTFT, **over)}"),
        ("n", count(TTFT, **over)),
        "none",
        (("green", None), ("yellow", 4), ("red", 10)),
        decimals=1,
    )
    yield stat(
        "First token within $deadline s",
        about("ttft_deadline_total", "Requests that never got a token are in it, which no histogram of TTFT knows of."),
        ("share", share("ttft_deadline_total", f'{deadline},result="met"', deadline, **over)),
        ("n", count("ttft_deadline_total", where=deadline, **over)),
        "percentunit",
        GOOD_SHARE,
        decimals=1,
    )
    yield stat(
        "Output speed, median",
        about("output_tokens_per_second", "It begins behind the first token, so it is the provider's alone."),
        ("median", quantile(0.5, "output_tokens_per_second", **over)),
        ("n", count("output_tokens_per_second", **over)),
        "suffix:tok/s",
    )
    yield stat(
        "Success",
        about("requests_total", "Complete ones among all that the client neither left nor spoilt."),
        ("share", share("requests_total", 'outcome="complete"', NOT_THE_CLIENTS, **over)),
        ("n", count("requests_total", where=NOT_THE_CLIENTS, **over)),
        "percentunit",
        GOOD_SHARE,
        decimals=2,
    )
    yield stat(
        "Rate-limited",
        about(
            "requests_total", "Answered with 429, or 529 for overload: the provider's limit, reached by your traffic."
        ),
        ("share", share("requests_total", 'outcome="rate_limited"', **over)),
        ("n", count("requests_total", **over)),
        "percentunit",
        (("green", None), ("yellow", 0.01), ("red", 0.05)),
        decimals=2,
    )
    first = 'phase="first_output"'
    yield stat(
        "Gauge's overhead, P99",
        about(
            "overhead_seconds",
            "Here of the first output. What the gauge cost; it knows no model, so only the upstream is chosen.",
        ),
        ("P99", quantile(0.99, "overhead_seconds", where=first, **over)),
        ("n", count("overhead_seconds", where=first, **over)),
        steps=(("green", None), ("yellow", 0.001), ("red", 0.005)),
    )
    yield stat(
        "Longest wait for a first token, now",
        about("ttft_oldest_wait_seconds", "The provider's time, not over yet; beside it the requests under way now."),
        ("longest wait", f"max({gauge('ttft_oldest_wait_seconds')})"),
        ("in flight", f"sum({gauge('in_flight')})"),
        steps=(("green", None), ("yellow", 10), ("red", 30)),
    )


def slow():
    ends = about(TTFT, OURS)
    percentiles = [query(quantile(q, TTFT), f"P{q * 100:.0f}", exemplar=True) for q in (0.5, 0.95, 0.99)]
    yield series(
        "TTFT",
        f"{ends} Bars: samples in each step. Points: single requests, by trace or exchange id.",
        [*percentiles, samples(count(TTFT))],
        steps=TTFT_STEPS,
        h=9,
    )
    yield series(
        "TTFT, median of 5 minutes, by upstream and model",
        ends,
        [
            query(recorded("ttft_seconds:p50_5m"), "{{upstream}} {{model}}"),
            samples(recorded("ttft_seconds:n_5m"), "n {{upstream}} {{model}}"),
        ],
        steps=TTFT_STEPS,
        h=9,
    )
    half_hour = recorded("ttft_seconds:p50_30m")
    yield series(
        "TTFT, median of 30 minutes: now, yesterday, a week ago",
        f"{ends} Yesterday and last week at the same time of day, as dashes; absent as long as there is no such past.",
        [
            query(half_hour, "{{upstream}} {{model}}"),
            query(f"{half_hour} offset 1d", "yesterday: {{upstream}} {{model}}"),
            query(f"{half_hour} offset 1w", "last week: {{upstream}} {{model}}"),
            samples(recorded("ttft_seconds:n_30m"), "n {{upstream}} {{model}}"),
        ],
        steps=TTFT_STEPS,
        overrides=[
            matching("^yesterday", DASHED, hue("#b0b0b0")),
            matching("^last week", DASHED, hue("#707070")),
        ],
        h=9,
    )
    yield heatmap(
        "TTFT, distribution",
        f"{ends} Each cell: samples in that bucket. Two bands are two kinds of request, which a median hides.",
        buckets(TTFT),
        h=9,
    )


def fault():
    yield series(
        "Where a request's time goes, by whose hands it is in",
        about("stage_seconds_total", "Mean of the requests that ended, of all kinds; the layers add up to the whole."),
        [query(per_request("stage_seconds_total", where=f'stage=~"{stages}"'), who) for who, stages in HANDS.items()]
        + [samples(count("requests_total", where='endpoint!="tunnel"'))],
        stack="normal",
        fill=60,
        overrides=fixed(HAND_HUES),
        h=9,
    )
    yield series(
        "Requests that did not end well, by whose doing",
        about(
            "requests_total", "Share of all that ended. Which outcome is whose is in the README; a 4xx can be either's."
        ),
        [query(share("requests_total", f'outcome=~"{outcomes}"'), who) for who, outcomes in FAULTS.items()]
        + [samples(count("requests_total"))],
        "percentunit",
        stack="normal",
        fill=60,
        overrides=fixed(HUES),
        h=9,
    )
    yield series(
        "Requests by outcome",
        about("requests_total"),
        [query(f'{rises("requests_total", ("outcome",))} > 0', "{{outcome}}"), samples(count("requests_total"))],
        "reqps",
        stack="normal",
        fill=40,
        overrides=fixed({"complete": "green"}),
    )
    wait = 'deadline="$deadline"'
    yield series(
        "Error budget burnt: first token within $deadline s for 95 %",
        about(
            "ttft_deadline_total",
            "Share of missed ones over 5 %: at 1 the budget is used up exactly in time; alerts go off at 4 and 10.",
        ),
        [
            query(recorded("ttft_deadline:missed_ratio_1h", wait) + " / 0.05", "1 h: {{upstream}} {{model}}"),
            query(recorded("ttft_deadline:missed_ratio_6h", wait) + " / 0.05", "6 h: {{upstream}} {{model}}"),
            samples(count("ttft_deadline_total", PAIR, where=wait), "n {{upstream}} {{model}}"),
        ],
        "none",
        (("green", None), ("yellow", 1), ("orange", 4), ("red", 10)),
        overrides=[matching("^6 h", DASHED)],
    )
    paired = "paired_ttft_seconds"
    yield series(
        "The same first tokens by the gauge and by the provider",
        about(
            paired,
            "Means. The gap between the lines is the network and what the provider leaves out of its own account.",
        ),
        [query(mean(paired, where=f'side="{side}"'), name) for side, name in SIDES.items()]
        + [samples(count(paired, where='side="gateway"'))],
        steps=TTFT_STEPS,
    )
    yield table(
        "Alerts that fire now",
        "From the rules of dashboards/rules. Nothing here is the good case.",
        {
            "firing since": (
                f"1000 * max by ({', '.join(ALERT)}) ({SINCE} and ignoring (alertstate) {ALERTING})",
                "dateTimeFromNow",
            )
        },
        keys=ALERT,
        none="no alert fires",
    )


def each():
    over = {"by": PAIR, "over": RANGE}
    columns = {
        "n": (count("requests_total", **over), "locale", 0, None),
        "TTFT P50": (quantile(0.5, TTFT, **over), "s", None, TTFT_STEPS),
        "TTFT P99": (quantile(0.99, TTFT, **over), "s", None, TTFT_STEPS),
        "with a first token": (count(TTFT, **over), "locale", 0, None),
        "tok/s P50": (quantile(0.5, "output_tokens_per_second", **over), "none", 0, None),
        "success": (
            share("requests_total", 'outcome="complete"', NOT_THE_CLIENTS, **over),
            "percentunit",
            1,
            GOOD_SHARE,
        ),
        "rate-limited": (share("requests_total", 'outcome="rate_limited"', **over), "percentunit", 1, None),
    }
    yield table(
        "By upstream and model",
        about(
            TTFT, f"{OURS} Over the chosen time; n: requests that ended. Click an upstream for its anatomy or capacity."
        ),
        columns,
        order="n",
        links=[link("anatomy", "Where its time goes"), link("capacity", "How it bears load")],
        w=24,
        h=9,
    )


def overview():
    return board(
        "overview",
        "Overview",
        "Is it slow, and whose fault is it?",
        "1h",
        [DEADLINE],
        {
            "Now": tiles(),
            "Is it slow?": slow(),
            "Whose fault is it?": fault(),
            "Each upstream and model": each(),
        },
    )
