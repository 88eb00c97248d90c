"""Cases of the alerts on how requests end, on whose time it was, and on the gauge itself."""

from .rules_cases import DAY, HOUR, LABELS, NO_TEXT, OF
from .rules_tests import COARSE, OVERHEAD, Fires, Silent, counter, gauge, histogram


# Complete ones all the time; the others from 60 minutes on.
def requests(outcome, complete, others, minutes=60):
    family = f'streamgauge_requests_total{{{OF},endpoint="chat",stream="true",outcome='
    return {
        f'{family}"complete"}}': counter((60 + minutes, complete)),
        f'{family}"{outcome}"}}': counter((60, 0), (minutes, others)),
    }


def ends(alert, outcome, complete, others, silences):
    fires = Fires(alert, 100, 60, {"requests": requests(outcome, complete, others)}, LABELS, NO_TEXT, NO_TEXT)
    return fires, [Silent(only, {"requests": requests(*words)}) for only, words in silences]


ENDS = [
    ends(
        "LLMTruncatedShare", "truncated", 10, 0.5,
        [
            ("one in a hundred", ("truncated", 10, 0.1)),
            ("a quarter of the traffic", ("truncated", 1.25, 0.0625)),
            ("clients who leave instead", ("client_gone", 10, 0.5)),
        ],
    ),
    ends(
        "LLMErrorInStreamShare", "error_event", 10, 0.5,
        [
            ("one in a hundred", ("error_event", 10, 0.1)),
            ("an eighth of the traffic", ("error_event", 1.25, 0.0625)),
            ("errors of the client instead", ("client_error", 10, 0.5)),
        ],
    ),
    ends(
        "LLMUpstreamFailing", "upstream_5xx", 20, 4,
        [
            ("one in twenty", ("upstream_5xx", 20, 1)),
            ("an eighth of the traffic", ("upstream_5xx", 2.5, 0.5)),
            ("the gauge's own overload", ("refused", 20, 4)),
            ("it is over since half an hour", ("upstream_5xx", 20, 4, 10)),
        ],
    ),
    ends(
        "LLMRateLimitedShare", "rate_limited", 20, 2,
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
        return histogram("paired_ttft_seconds", f'{OF},side="{name}"', COARSE, *seen)

    return side("gateway", usual, None, 0.35, now) | side("server", server, None, server, server)


# Two events in a hundred are held up, for so many minutes of an hour.
def overhead(seconds=0.007, rate=60.0, minutes=40):
    usual, seen = {0.00008: rate}, {seconds: rate * 0.02, 0.00008: rate * 0.98}
    phases = (60, usual), (minutes, seen), (60 - minutes, usual)
    return histogram("overhead_seconds", 'upstream="a",phase="first_output"', OVERHEAD, *phases)


OVERFLOW = 'streamgauge_series_overflow_total{instance="a:1",job="streamgauge"}'
UP = 'up{instance="a:1",job="streamgauge"}'
WHOSE = [
    (
        Fires("LLMServerVsGatewayTTFTGap", DAY + 2 * HOUR + 30, DAY + HOUR, {"paired": paired()}, LABELS, NO_TEXT, NO_TEXT),
        [
            Silent("a tenth of the traffic", {"paired": paired(rate=0.2)}),
            Silent("this hour usually has it", {"paired": paired(usual=0.9)}),
            Silent("0.15 s", {"paired": paired(now=0.45)}),
            Silent("the server states most of it", {"paired": paired(server=0.85, usual=0.9, now=1.2)}),
        ],
    ),
]
OVERHEADS = [
    (
        Fires(
            "LLMGaugeOverheadHigh", 95, 60, {"overhead": overhead()}, {"upstream": "a", "phase": "first_output"}, NO_TEXT, NO_TEXT
        ),
        [
            Silent("an eighth of the traffic", {"overhead": overhead(rate=7.5)}),
            Silent("0.7 ms", {"overhead": overhead(0.0007)}),
            Silent("a minute of it", {"overhead": overhead(minutes=1)}),
        ],
    ),
]
ITSELF = [
    (
        Fires("LLMSeriesOverflow", 40, 20, {OVERFLOW: counter((30, 0), (5, 1), (30, 0))}, {"instance": "a:1"}, NO_TEXT, NO_TEXT),
        [Silent("none are folded", {OVERFLOW: counter((65, 0))})],
    ),
    (
        Fires("LLMGaugeDown", 15, 10, {UP: gauge((10, 1), (20, 0))}, {"instance": "a:1", "job": "streamgauge"}, NO_TEXT, NO_TEXT),
        [Silent("a minute of it", {UP: gauge((13, 1), (1, 0), (16, 1))})],
    ),
    (
        Fires("LLMGaugeDown", 15, 10, {UP: gauge((10, 1), (20, None))}, {"job": "streamgauge"}, NO_TEXT, NO_TEXT),
        [Silent("it stays", {UP: gauge((30, 1))})],
    ),
]
