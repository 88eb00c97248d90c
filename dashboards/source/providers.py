"""Provider comparison: which is faster, for the same work?"""

from .catalogue import FAMILIES
from .frame import DEADLINE, WORKLOAD, board, link
from .panels import GOOD_SHARE, NEUTRAL, TTFT_STEPS, about, bars, query, samples, series, table
from .queries import NOT_THE_CLIENTS, PAIR, RANGE, count, quantile, recorded, share

INPUTS = FAMILIES["streamgauge_ttft_by_input_seconds"].labels["input"]
MINE = 'workload="$workload"'
TTFT, SPEED, DURATION = "workload_ttft_seconds", "workload_output_tokens_per_second", "workload_duration_seconds"
# Fewer are no median: eight runs a day give 24.
LEAST = 12
NONE = "no workload is declared, or it has not run twelve times"
THREE_DAYS = (
    "Median of 72 hours of the declared workload, so that all have the same work; "
    f"providers with fewer than {LEAST} samples are left out."
)


def median(family):
    """The 72 h median where there are samples enough."""
    n = recorded(f"{family}:n_72h", MINE)
    return f"({recorded(f'{family}:median_72h', MINE)} and on (upstream, model, workload) {n} >= {LEAST})"


def name(expr):
    """With upstream and model as one label, to stand at a bar."""
    return f'max by (name) (label_join({expr}, "name", " / ", "upstream", "model"))'


def plain(expr):
    """Without the series' name, which would keep a table's columns in rows of their own."""
    return f"max by (upstream, model) ({expr})"


def medians(title, family, *unit):
    """A provider's median beside the next one's, each with its n."""
    shown = {"median": name(median(family)), "n": name(recorded(f"{family}:n_72h", MINE))}
    return bars(title, about(family, THREE_DAYS), shown, *unit, order="median", none=NONE, apart="n", w=8, h=9)


def declared():
    yield medians("TTFT of $workload", TTFT)
    yield medians("Output speed of $workload", SPEED, "suffix:tok/s")
    yield bars(
        "Time for 500 output tokens of $workload",
        f"{about(TTFT)} {about(SPEED)} The median TTFT, and behind it 500 tokens at the median speed. {THREE_DAYS}",
        {"TTFT": name(median(TTFT)), "500 tokens": name(f"500 / {median(SPEED)}")},
        order="500 tokens",
        stack="normal",
        none=NONE,
        w=8,
        h=9,
    )
    yield table(
        "TTFT of $workload, spread",
        about(TTFT, "Quantiles of 72 hours. A narrow spread is worth more than a good median."),
        {
            "n": (plain(recorded(f"{TTFT}:n_72h", MINE)), "locale", 0, None),
            **{f"P{q * 100:.0f}": (within(TTFT, q), "s", None, TTFT_STEPS) for q in (0.05, 0.25, 0.5, 0.75, 0.95)},
            "speed P50": (plain(recorded(f"{SPEED}:median_72h", MINE)), "suffix:tok/s", 0, None),
            "duration P50": (plain(recorded(f"{DURATION}:median_72h", MINE)), "s", None, None),
        },
        order="n",
        none=NONE,
        w=16,
    )
    yield series(
        "TTFT of $workload, day by day",
        about(TTFT, "The median of the 72 hours before each point, over 30 days whatever time is chosen."),
        [
            query(recorded(f"{TTFT}:median_72h", MINE), "{{upstream}} {{model}}"),
            samples(recorded(f"{TTFT}:n_72h", MINE), "n {{upstream}} {{model}}"),
        ],
        steps=TTFT_STEPS,
        timeFrom="30d",
        interval="6h",
        none=NONE,
        w=8,
    )


def within(family, q):
    """A quantile over 72 hours, from the increases that a rule keeps."""
    increases = recorded(f"{family}_bucket:increase5m", MINE)
    return f"histogram_quantile({q}, sum by (upstream, model, le) (sum_over_time({increases}[72h])))"


def prompts():
    family = "ttft_by_input_seconds"
    heads = {value: value.replace("_", "–", 1) for value in INPUTS}
    yield table(
        "TTFT, median by prompt length",
        about(family, "In classes of input tokens. Read along a column: across it the work differs."),
        {
            head: (quantile(0.5, family, PAIR, RANGE, f'input="{value}"'), "s", None, TTFT_STEPS)
            for value, head in heads.items()
        },
        w=24,
    )
    yield table(
        "Samples, by prompt length",
        about(family, "How many are behind each median above."),
        {head: (count(family, PAIR, RANGE, f'input="{value}"'), "locale", 0, None) for value, head in heads.items()},
        w=24,
    )


def everything():
    over = {"by": PAIR, "over": RANGE}
    speed, ttft = "output_tokens_per_second", "ttft_seconds"
    deadline = 'deadline="$deadline"'
    met = share("ttft_deadline_total", f'{deadline},result="met"', deadline, **over)
    yield table(
        "All requests",
        about(
            ttft,
            "Whatever was asked, over the chosen time: how your traffic fared, no comparison where the work differs.",
            "In time: within $deadline s.",
        ),
        {
            "requests": (count("requests_total", **over), "locale", 0, None),
            "with a first token": (count(ttft, **over), "locale", 0, None),
            "TTFT P50": (quantile(0.5, ttft, **over), "s", None, TTFT_STEPS),
            "TTFT P95": (quantile(0.95, ttft, **over), "s", None, TTFT_STEPS),
            "TTFT P99": (quantile(0.99, ttft, **over), "s", None, TTFT_STEPS),
            "in time": (met, "percentunit", 1, GOOD_SHARE),
            "tok/s P50": (quantile(0.5, speed, **over), "none", 0, None),
            "success": (
                share("requests_total", 'outcome="complete"', NOT_THE_CLIENTS, **over),
                "percentunit",
                1,
                GOOD_SHARE,
            ),
            "rate-limited": (share("requests_total", 'outcome="rate_limited"', **over), "percentunit", 1, LIMITED),
        },
        order="requests",
        links=[link("anatomy", "Where its time goes"), link("capacity", "How it bears load")],
        w=24,
        h=9,
    )
    yield series(
        "TTFT, median of 30 minutes, by upstream and model",
        about(ttft),
        [
            query(recorded("ttft_seconds:p50_30m"), "{{upstream}} {{model}}"),
            samples(recorded("ttft_seconds:n_30m"), "n {{upstream}} {{model}}"),
        ],
        steps=TTFT_STEPS,
        h=9,
    )
    yield series(
        "Rate-limited and failed, share of 30 minutes",
        about("requests_total", "Everything the client had no part in but the complete ones."),
        [
            query(
                f"{recorded('requests:share_30m', SPOILT)} > 0",
                "{{outcome}}: {{upstream}} {{model}}",
            ),
            samples(recorded("requests:n_30m"), "n {{upstream}} {{model}}"),
        ],
        "percentunit",
        h=9,
    )


SPOILT = 'outcome!~"complete|client_.*"'
LIMITED = (*NEUTRAL, ("yellow", 0.01), ("red", 0.05))


def providers():
    rows = {"The same work: $workload": declared(), "By prompt length": prompts(), "All traffic": everything()}
    return board(
        "providers",
        "Provider comparison",
        "Which provider is faster, for the same work?",
        "24h",
        [WORKLOAD, DEADLINE],
        rows,
    )
