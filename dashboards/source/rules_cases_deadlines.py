"""Cases of the alerts on deadlines and waits: one that fires, and silent ones that differ from it in one thing."""

from .rules_cases import HOUR, LABELS, OF, ttft
from .rules_tests import MODEL, Fires, Silent, counter, gauge, histogram


def deadline(met, missed, of=OF, seconds="0.6"):
    family = f'streamgauge_ttft_deadline_total{{{of},deadline="{seconds}",result='
    return {f'{family}"met"}}': counter(*met), f'{family}"missed"}}': counter(*missed)}


WAIT = f"streamgauge_ttft_oldest_wait_seconds{{{OF}}}"


# Two streams a minute; at two hours nine in ten become late, for so many minutes.
def fast(rate=2.0, usual=0.0, minutes=70, seconds="0.6"):
    late = [(120, rate * usual), (minutes, rate * 0.9), (70 - minutes, 0)]
    late = [phase for phase in late if phase[0]]
    return deadline([(length, rate - missed) for length, missed in late], late, seconds=seconds)


# Well for so many hours, then nine in ten are late, until eleven hours have passed.
def outage(hours):
    return deadline([(hours * HOUR, 2), ((12 - hours) * HOUR, 0.2)], [(hours * HOUR, 0), ((12 - hours) * HOUR, 1.8)])


def refusals():
    family = f'streamgauge_requests_total{{{OF},endpoint="chat",stream="true",outcome='
    ended = {"complete": (2, 0.5), "rate_limited": (0, 0.5), "upstream_5xx": (0, 1)}
    return {f'{family}"{outcome}"}}': counter((120, usual), (70, late)) for outcome, (usual, late) in ended.items()}


BURN = [
    (
        Fires(
            "LLMTTFTDeadlineBurnFast", 175, 130, {"deadline": fast(), "requests": refusals()}, LABELS | {"deadline": "0.6"},
            "90% of the streams of m at a had no first token within 0.6 s",
            """
            Of the streams asked for in 5m; in 1h it was 82.5% of 120, and usually (the middle hour of 7 days) 0%.
            Counted from the departure of the request, with those that failed or never answered; clients who left before
            are not in it. Of all requests that ended in 5m, 75% failed or were refused (upstream_4xx, upstream_5xx,
            upstream_timeout, upstream_reset, unreachable, rate_limited). What that does not explain is time: the
            provider's and the network's.
            """,
        ),
        [
            Silent("a sixth of the traffic", {"deadline": fast(rate=0.33)}),
            Silent("a deadline that this model usually misses", {"deadline": fast(usual=0.2)}),
            Silent("a deadline that is not promised", {"deadline": fast(seconds="0.3")}),
            Silent("it is over since ten minutes", {"deadline": fast(minutes=45)}),
        ],
    ),
    (
        Fires(
            "LLMTTFTDeadlineBurnFast", 11 * HOUR, 5 * HOUR, {"deadline": outage(6)}, LABELS | {"deadline": "0.6"},
            "90% of the streams of m at a had no first token within 0.6 s",
            """
            Of the streams asked for in 5m; in 1h it was 90% of 120, and usually (the middle hour of 7 days) 0%.
            Counted from the departure of the request, with those that failed or never answered; clients who left before
            are not in it. Of all requests that ended in 5m, none failed or were refused (upstream_4xx, upstream_5xx,
            upstream_timeout, upstream_reset, unreachable, rate_limited). What that does not explain is time: the
            provider's and the network's.
            """,
        ),
        [Silent("it has been so for most of what is known", {"deadline": outage(1)})],
    ),
    (
        Fires(
            "LLMTTFTDeadlineNotCounted", 80, 10,
            {"deadline": deadline([(90, 2)], [(90, 0)], seconds="1"), "ttft": ttft((90, {0.28: 2}))},
            LABELS, "The deadline of 0.6 s is not counted for m at a, so its alerts can't fire",
            """
            First tokens come (60 in 30 minutes), but no series of streamgauge_ttft_deadline_total of that model has
            deadline="0.6". Put it into the gauge's metrics.deadlines, or one that is there into these rules.
            """,
        ),
        [
            Silent("the deadline that is counted", {"deadline": deadline([(90, 2)], [(90, 0)], seconds="0.6")}),
            Silent("a quarter of the traffic", {"ttft": ttft((90, {0.28: 0.5}))}),
        ],
    ),
]  # fmt: skip


# Streams that get no first token from 100 minutes on: through two gauges, of four models, or left by their clients.
def by_two_gauges(missed):
    gauges = [deadline([(100, 2), (10, 0)], [(100, 0), (10, missed)], of=f'{OF},instance="{n}:1"') for n in "ab"]
    return gauges[0] | gauges[1]


def of_models(missed):
    lost = [deadline([(100, 2), (10, 0)], [(100, 0), (10, missed)], of=OF.replace('"m"', f'"m{n}"')) for n in range(4)]
    return lost[0] | lost[1] | lost[2] | lost[3]


def gave_up(seconds, rate):
    return histogram("ttft_abandoned_wait_seconds", OF, (100, {seconds: 0}), (10, {seconds: rate}))


def ended(rate):
    return {
        f'streamgauge_requests_total{{{OF},endpoint="chat",stream="true",outcome="complete"}}': counter((111, rate))
    }


UNREAD = Silent("streams that the gauge can't read", {"ended": ended(1)})
WAITS = [
    (
        Fires(
            "LLMNoFirstTokens", 105, 99,
            {
                "wait": {WAIT: gauge((100, 0), (1, 20), (10, 65))},
                "deadline": by_two_gauges(0.4),
                "ttft": ttft((97, {0.28: 2}), (14, {0.28: 0})),
                "ended": ended(0),
            },
            LABELS, "No stream of m at a gets a first token; the oldest has waited 1m 5s",
            """
            At least three streams missed a deadline in 5 minutes, and none had a first token. The wait runs from
            the request's departure to the scrape: the provider's time and the network's.
            """,
        ),
        [
            Silent("a model that thinks for 14 s", {"ttft": ttft((97, {14: 2}), (14, {14: 0}))}),
            Silent("one that does, asked three times an hour", {"ttft": ttft((97, {14: 0.05}), (14, {14: 0}))}),
            Silent("other streams still get their first token", {"ttft": ttft((97, {0.28: 2}), (14, {0.28: 0.5}))}),
            UNREAD,
            Silent("two streams that wait", {"deadline": by_two_gauges(0.2)}),
            Silent("a wait of 28 s", {"wait": {WAIT: gauge((100, 0), (1, 20), (10, 28))}}),
            # Its name makes the difference; the second more is only for the eye.
            Silent("_other", {"wait": {WAIT: gauge((100, 0), (1, 20), (10, 66))}}),
        ],
    ),
    (
        Fires(
            "LLMUpstreamSilent", 105, 99,
            {
                "wait": {WAIT: gauge((100, 0), (1, 20), (10, 65))},
                "deadline": of_models(0.2),
                "ttft": ttft((97, {0.28: 2}), (14, {0.28: 0})),
                "ended": ended(0),
            },
            {"upstream": "a"}, "No stream of any model at a gets a first token; the oldest has waited 1m 5s",
            """
            At least three streams, of all its models, missed a deadline in 5 minutes, and none had a first token. The
            wait runs from the request's departure to the scrape: the provider's time and the network's.
            """,
        ),
        [
            Silent("a model that thinks for 14 s", {"ttft": ttft((97, {14: 2}), (14, {14: 0}))}),
            Silent("other streams still get their first token", {"ttft": ttft((97, {0.28: 2}), (14, {0.28: 0.5}))}),
            UNREAD,
            Silent("half of the streams", {"deadline": of_models(0.1)}),
            Silent("a wait of 28 s", {"wait": {WAIT: gauge((100, 0), (1, 20), (10, 28))}}),
            Silent("_other", {"wait": {WAIT.replace(MODEL, 'model="_other"'): gauge((100, 0), (1, 20), (10, 65))}}),
        ],
    ),
    (
        Fires(
            "LLMClientsGiveUp", 106, 99,
            {"left": gave_up(14, 2), "ttft": ttft((97, {0.28: 2}), (14, {0.28: 0})), "ended": ended(0)},
            LABELS, "Clients give up on m at a before its first token, and nobody gets one",
            """
            10 in 5 minutes. Usual is a TTFT of 275ms (median of a day). From the request's departure to the client's
            leaving: the provider's time and the network's.
            """,
        ),
        [
            Silent("three of them", {"left": gave_up(14, 0.6)}),
            Silent("other streams still get their first token", {"ttft": ttft((97, {0.28: 2}), (14, {0.28: 0.5}))}),
            UNREAD,
            Silent("they leave after half a second", {"left": gave_up(0.5, 2)}),
            Silent("a model that thinks for 14 s", {"ttft": ttft((97, {14: 2}), (14, {14: 0}))}),
        ],
    ),
    (
        Fires(
            "LLMFirstTokenOverdue", 105, 99,
            {"wait": {WAIT: gauge((100, 0), (1, 20), (10, 65))}, "ttft": ttft((111, {0.28: 1}))},
            LABELS, "A stream of m at a has waited 1m 5s for its first token",
            """
            The longest wait now, from the request's departure to the scrape. Usual is a TTFT of 275ms (median of a
            day); first tokens in the last 5 minutes: 5. The provider's time and the network's. One request that
            hangs among many that don't is often a lost connection: limits.head ends a wait for the response's head,
            limits.idle one behind it.
            """,
        ),
        [
            Silent("a wait of 28 s", {"wait": {WAIT: gauge((100, 0), (1, 20), (10, 28))}}),
            Silent("a model that thinks for 14 s", {"ttft": ttft((111, {14: 1}))}),
            Silent("one that does, asked three times an hour", {"ttft": ttft((111, {14: 0.05}))}),
        ],
    ),
]  # fmt: skip


# A day of four streams a minute; then three in ten are late for five hours.
def slow(rate=1.0, usual=0.0, end=0):
    late = [(18 * HOUR, 4 * rate * usual), (5 * HOUR - end, 1.2 * rate), (20 + end, 0 if end else 1.2 * rate)]
    return deadline([(minutes, 4 * rate - missed) for minutes, missed in late], late)


BURN_SLOW = [
    (
        Fires(
            "LLMTTFTDeadlineBurnSlow",
            23 * HOUR,
            20 * HOUR,
            {"deadline": slow()},
            LABELS | {"deadline": "0.6"},
            "30% of the streams of m at a had no first token within 0.6 s",
            """
            Of the streams asked for in 30m; in 6h it was 25% of 1440, and usually (the middle hour of 7 days) 0%.
            Counted from the departure of the request, with those that failed or never answered; clients who left before
            are not in it. Of all requests that ended in 30m, none failed or were refused (upstream_4xx, upstream_5xx,
            upstream_timeout, upstream_reset, unreachable, rate_limited). What that does not explain is time: the
            provider's and the network's.
            """,
        ),
        [
            Silent("a twentieth of the traffic", {"deadline": slow(rate=0.05)}),
            Silent("a deadline that this model usually misses", {"deadline": slow(usual=0.2)}),
            Silent("it is over since fifty minutes", {"deadline": slow(end=50)}),
        ],
    ),
]
