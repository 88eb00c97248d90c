"""Cases of the alerts on how requests end, on whose time it was, and on the gauge itself."""

from .rules_cases import DAY, HOUR, LABELS, OF
from .rules_tests import Fires, Silent, counter, gauge, histogram


# Complete ones all the time; the others from 60 minutes on.
def requests(outcome, complete, others, minutes=60, of=OF):
    family = f'streamgauge_requests_total{{{of},endpoint="chat",stream="true",outcome='
    return {
        f'{family}"complete"}}': counter((60 + minutes, complete)),
        f'{family}"{outcome}"}}': counter((60, 0), (minutes, others)),
    }


def ends(alert, outcome, complete, others, summary, description, silences, given=requests, labels=LABELS):
    fires = Fires(alert, 100, 60, {"requests": given(outcome, complete, others)}, labels, summary, description)
    return fires, [Silent(only, {"requests": given(*words)}) for only, words in silences]


def of_models(*words):
    """The same of four models."""
    models = [OF.replace('"m"', f'"m{number}"') for number in range(4)]
    return {name: values for of in models for name, values in requests(*words, of=of).items()}


def of_gauge(*words):
    return requests(*words, of=OF + ',instance="a:1",job="streamgauge"')


ENDS = [
    ends(
        "LLMTruncatedShare", "truncated", 10, 0.5,
        "4.762% of the requests of m at a broke off",
        """
        Of n = 315 requests that ended in 30m. Outcomes truncated (a clean end without the protocol's own) and
        upstream_reset, seen at the gauge's side of the provider. A limit between the two, on time or idling, cuts at
        the same second: compare the records' duration_s.
        """,
        [
            ("one in a hundred", ("truncated", 10, 0.1)),
            ("a quarter of the traffic", ("truncated", 1.25, 0.0625)),
            ("clients who leave instead", ("client_gone", 10, 0.5)),
        ],
    ),
    ends(
        "LLMErrorInStreamShare", "error_event", 10, 0.5,
        "4.762% of the requests of m at a had an error inside a 2xx answer",
        """
        Of n = 315 requests that ended in 30m. Outcome error_event: an error inside a 2xx answer, written by the
        provider. Its text is in no record, for it may quote the prompt; the client has it.
        """,
        [
            ("one in a hundred", ("error_event", 10, 0.1)),
            ("an eighth of the traffic", ("error_event", 1.25, 0.0625)),
            ("errors of the client instead", ("client_error", 10, 0.5)),
        ],
    ),
    ends(
        "LLMModelFailing", "upstream_5xx", 20, 4,
        "16.67% of the requests of m at a fail",
        """
        Of n = 120 requests that ended in 5m. Outcomes upstream_5xx (its status), unreachable (no connection) and
        upstream_timeout (one of the gauge's own limits, which the record names). The gauge's overload and the clients'
        faults are not in it.
        """,
        [
            ("one in twenty", ("upstream_5xx", 20, 1)),
            ("an eighth of the traffic", ("upstream_5xx", 2.5, 0.5)),
            ("the gauge's own overload", ("refused", 20, 4)),
            ("it is over since half an hour", ("upstream_5xx", 20, 4, 10)),
        ],
    ),
    ends(
        "LLMUpstreamFailing", "upstream_5xx", 4, 0.8,
        "16.67% of the requests at a, of all its models, fail",
        """
        Of n = 96 requests that ended in 5m. Outcomes upstream_5xx (its status), unreachable (no connection) and
        upstream_timeout (one of the gauge's own limits, which the record names). The gauge's overload and the clients'
        faults are not in it.
        """,
        [
            ("one in twenty", ("upstream_5xx", 8, 0.4)),
            ("a quarter of the traffic", ("upstream_5xx", 1, 0.2)),
            ("the gauge's own overload", ("refused", 4, 0.8)),
        ],
        of_models, {"upstream": "a"},
    ),
    ends(
        "LLMUpstreamRefuses", "upstream_4xx", 0.5, 2,
        "80% of the requests of m at a are refused",
        """
        Of n = 12 requests that ended in 5m. Outcome upstream_4xx: the provider's status, which the record has, and
        which is no rate limit. 401 and 403 speak of the key, 404 of the model or the path, 400 of what the client
        sends. A model that was never answered is in _other.
        """,
        [
            ("two in five", ("upstream_4xx", 3, 2)),
            ("a quarter of the traffic", ("upstream_4xx", 0.125, 0.5)),
            ("rate limits instead", ("rate_limited", 0.5, 2)),
        ],
    ),
    ends(
        "LLMRateLimitedShare", "rate_limited", 20, 2,
        "9.091% of the requests of m at a are turned away by its rate limit",
        """
        Of n = 110 requests that ended in 5m. Outcome rate_limited: the provider's status 429 or 529 (overloaded). What
        is left of which limit is in streamgauge_ratelimit_remaining.
        """,
        [
            ("one in fifty", ("rate_limited", 20, 0.4)),
            ("an eighth of the traffic", ("rate_limited", 2.5, 0.25)),
            ("another refusal", ("upstream_4xx", 20, 2)),
        ],
    ),
]  # fmt: skip


# What the server states stays; what is outside of it grows for the last 90 minutes.
def paired(usual=0.35, now=0.9, server=0.3, rate=2.0, length=90):
    def side(name, *values):
        minutes = (3 * HOUR, DAY - 3 * HOUR, HOUR, length)
        seen = [(m, None if value is None else {value: rate}) for m, value in zip(minutes, values)]
        return histogram("paired_ttft_seconds", f'{OF},side="{name}"', *seen)

    return side("gateway", usual, None, 0.35, now) | side("server", server, None, server, server)


# Two events in a hundred are held up, for so many minutes of an hour.
def overhead(seconds=0.007, rate=60.0, minutes=40, others=60.0):
    usual, seen = {0.00008: rate}, {seconds: rate * 0.02, 0.00008: rate * 0.98}
    phases = (60, usual), (minutes, seen), (60 - minutes, usual)
    of, well = 'upstream="a",phase="first_output",instance=', (120, {0.00008: others})
    both = histogram("overhead_seconds", f'{of}"a:1"', *phases), histogram("overhead_seconds", f'{of}"b:1"', well)
    return both[0] | both[1]


OVERFLOW = 'streamgauge_series_overflow_total{instance="a:1",job="streamgauge"}'
UP = 'up{instance="a:1",job="streamgauge"}'
WHOSE = [
    (
        Fires(
            "LLMServerVsGatewayTTFTGap", DAY + 2 * HOUR + 30, DAY + HOUR, {"paired": paired()}, LABELS,
            "600ms of the TTFT of m at a is not in what the server says",
            """
            Mean of 30 minutes over n = 60 requests that have both: from the request's departure to the first output
            event at the gauge, minus what the provider states from the request's arrival there to the first token, mean
            300ms. Usual at this hour: 50ms. It is the network (streamgauge_upstream_rtt_seconds), or the provider's
            front end, or a queue that it does not count.
            """,
        ),
        [
            Silent("a tenth of the traffic", {"paired": paired(rate=0.2)}),
            Silent("this hour usually has it", {"paired": paired(usual=0.9)}),
            Silent("0.15 s", {"paired": paired(now=0.45)}),
            Silent("less than half of what the server states", {"paired": paired(usual=1.35, server=1.3, now=1.9)}),
        ],
    ),
]  # fmt: skip
OVERHEADS = [
    (
        Fires(
            "LLMGaugeOverheadHigh", 95, 60, {"overhead": overhead()},
            {"instance": "a:1", "upstream": "a", "phase": "first_output"},
            "The gauge at a:1 itself adds 7.5ms for a (P99, first_output)",
            """
            P99 of 10 minutes. request: from the request's arrival to its departure; first_output, event: from an output
            event's arrival to its departure to the client; connecting and waiting for either side are not in it. The
            gauge's own time: its processor is short (streamgauge_runtime_delay_seconds, process_cpu_seconds_total), or
            its connections are HTTP/2.
            """,
        ),
        [
            Silent("an eighth of the traffic", {"overhead": overhead(rate=7.5)}),
            Silent("0.7 ms", {"overhead": overhead(0.0007)}),
            Silent("a minute of it", {"overhead": overhead(minutes=1)}),
        ],
    ),
]  # fmt: skip
NOT_SCRAPED = """
    Prometheus could not scrape it for two minutes, or has no job with this name (job=streamgauge). The proxy may run
    all the same: look at /healthz and /readyz, and at the target in Prometheus.
"""
ONE_GAUGE = {"instance": "a:1", "job": "streamgauge"}
ITSELF = [
    ends(
        "LLMGaugeRefuses", "refused", 60, 2,
        "The gauge at a:1 refuses 3.226% of the requests",
        """
        Of n = 310 requests that ended in 5m. Outcomes refused (more in flight than limits.max_in_flight) and
        gateway_error (a fault of the gauge, which its log has). Neither is the provider's.
        """,
        [
            ("one in two hundred", ("refused", 400, 2)),
            ("a fifth of the traffic", ("refused", 12, 0.4)),
            ("the client's own faults", ("client_error", 60, 2)),
        ],
        of_gauge, {"instance": "a:1"},
    ),
    (
        Fires(
            "LLMSeriesOverflow", 200, 20, {OVERFLOW: gauge((30, 0), (180, 5))}, ONE_GAUGE,
            'The gauge at a:1 folds series into "_other"',
            """
            Label sets folded since it started: 5. More upstreams, models or workloads than metrics.max_series has room
            for. Their numbers are in "_other", and this alert stays, until a restart with a higher one.
            """,
        ),
        [Silent("none are folded", {OVERFLOW: gauge((210, 0))})],
    ),
    (
        Fires(
            "LLMSeriesOverflow", 10, 2, {OVERFLOW: gauge((3, None), (20, 5))}, ONE_GAUGE,
            'The gauge at a:1 folds series into "_other"',
            """
            Label sets folded since it started: 5. More upstreams, models or workloads than metrics.max_series has room
            for. Their numbers are in "_other", and this alert stays, until a restart with a higher one.
            """,
        ),
        [Silent("none are folded before the first scrape", {OVERFLOW: gauge((3, None), (20, 0))})],
    ),
    (
        Fires(
            "LLMGaugeDown", 15, 10, {UP: gauge((10, 1), (20, 0))}, {"instance": "a:1", "job": "streamgauge"},
            "No metrics from the gauge at a:1",
            NOT_SCRAPED,
        ),
        [Silent("a minute of it", {UP: gauge((13, 1), (1, 0), (16, 1))})],
    ),
    (
        # Prometheus finds a value for five minutes.
        Fires(
            "LLMGaugeDown", 20, 14, {UP: gauge((10, 1), (20, None))}, {"job": "streamgauge"},
            "No gauge is scraped at all",
            NOT_SCRAPED,
        ),
        [Silent("it stays", {UP: gauge((30, 1))})],
    ),
]  # fmt: skip
