"""Cases of the alerts on times: one that fires, and silent ones that differ from it in one thing."""

from .rules_alerts import TTFT_IS
from .rules_tests import MODEL, Fires, Silent, counter, gauge, histogram

OF = 'upstream="a",model="m"'
LABELS = {"upstream": "a", "model": "m"}
HOUR, DAY, WEEK = 60, 24 * 60, 7 * 24 * 60
# Minutes from an hour on in which something is as it should not be.
LATE = 130


def deadline(met, missed, of=OF, seconds="0.6"):
    family = f'streamgauge_ttft_deadline_total{{{of},deadline="{seconds}",result='
    return {f'{family}"met"}}': counter(*met), f'{family}"missed"}}': counter(*missed)}


def ttft(*phases):
    return histogram("ttft_seconds", OF, *phases)


def by_input(size, *phases):
    return histogram("ttft_by_input_seconds", f'{OF},input="{size}"', *phases)


def by_load(load, *phases):
    return histogram("ttft_by_load_seconds", f'{OF},load="{load}"', *phases)


def tokens(kind, *phases):
    return {f'streamgauge_tokens_total{{{OF},type="{kind}"}}': counter(*phases)}


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


WAITS = [
    (
        Fires(
            "LLMNoFirstTokens", 105, 99,
            {
                "wait": {WAIT: gauge((100, 0), (1, 20), (10, 65))},
                "deadline": by_two_gauges(0.4),
                "ttft": ttft((97, {0.28: 2}), (14, {0.28: 0})),
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
            Silent("half of the streams", {"deadline": of_models(0.1)}),
            Silent("a wait of 28 s", {"wait": {WAIT: gauge((100, 0), (1, 20), (10, 28))}}),
            Silent("_other", {"wait": {WAIT.replace(MODEL, 'model="_other"'): gauge((100, 0), (1, 20), (10, 65))}}),
        ],
    ),
    (
        Fires(
            "LLMClientsGiveUp", 106, 99,
            {"left": gave_up(14, 2), "ttft": ttft((97, {0.28: 2}), (14, {0.28: 0}))},
            LABELS, "Clients give up on m at a before its first token, and nobody gets one",
            """
            10 in 5 minutes. Usual is a TTFT of 275ms (median of a day). From the request's departure to the client's
            leaving: the provider's time and the network's.
            """,
        ),
        [
            Silent("three of them", {"left": gave_up(14, 0.6)}),
            Silent("other streams still get their first token", {"ttft": ttft((97, {0.28: 2}), (14, {0.28: 0.5}))}),
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


# Three hours a week ago, and now: twice as slow from an hour on.
def week(then=0.28, now=0.55, rate=2.0, rate_then=2.0):
    return ttft((3 * HOUR, {then: rate_then}), (WEEK - 3 * HOUR, None), (HOUR, {then: rate}), (LATE, {now: rate}))


AT_WEEK = WEEK + 3 * HOUR
LONG, SHORT = 1.3, 0.25  # TTFT of prompts of 5k to 20k tokens, and of up to 200


# Of two lengths of prompt, a day (or a week) ago and now: the share of the short ones, then and now.
def mix(share, then=0.7, slower=1.0, rate=2.0, day=DAY, short=SHORT, long=LONG):
    def phases(value, before, after):
        return (
            (3 * HOUR, {value: rate * before}),
            (day - 3 * HOUR, None),
            (HOUR, {value: rate * before}),
            (LATE, {value * slower: rate * after}),
        )

    return by_input("0_200", *phases(short, then, share)) | by_input("5k_20k", *phases(long, 1 - then, 1 - share))


def unknown(given):
    """The same without one of the classes' names."""
    return {name.replace("5k_20k", "unknown"): values for name, values in given.items() if "0_200" not in name}


def mixed_ttft(share, then=0.7, slower=1.0, rate=2.0, day=DAY):
    def seen(part, factor=1.0):
        return {SHORT * factor: rate * part, LONG * factor: rate * (1 - part)}

    return ttft((3 * HOUR, seen(then)), (day - 3 * HOUR, None), (HOUR, seen(then)), (LATE, seen(share, slower)))


def cached(share, day=DAY, then=0.6):
    amount = ((3 * HOUR, then), (day - 3 * HOUR, None), (HOUR, then), (LATE, share))
    hits = tokens("cached_input", *((m, None if s is None else 1000 * s) for m, s in amount))
    return hits | tokens("input", *((m, None if s is None else 1000) for m, s in amount))


LAST_WEEK = [
    (
        Fires(
            "LLMTTFTRegressionVsLastWeek", AT_WEEK, WEEK + HOUR,
            {"ttft": week(), "input": mix(0.7, slower=2, day=WEEK), "tokens": cached(0.6, WEEK)},
            LABELS, "TTFT of m at a is 2.00 times that of last week",
            f"""
            The median of 30 minutes is 550ms (n = 60). {TTFT_IS}
            """,
        ),
        [
            Silent("a tenth of the traffic", {"ttft": week(rate=0.2)}),
            Silent("a tenth of the traffic last week", {"ttft": week(rate_then=0.2)}),
            Silent("last week was as slow at this hour", {"ttft": week(then=0.55)}),
            Silent("a fast chip, from 25 to 45 ms", {"ttft": week(0.025, 0.045)}),
            Silent("prompts of each length are as fast as last week", {"input": mix(0.3, slower=1, day=WEEK)}),
        ],
    ),
    (
        Fires(
            "LLMTTFTRegressionVsLastWeek", AT_WEEK, WEEK + HOUR,
            {"ttft": week(now=0.9), "input": mix(0.7, slower=3, day=WEEK), "tokens": cached(0.2, WEEK)},
            LABELS, "TTFT of m at a is 3.27 times that of last week",
            f"""
            The median of 30 minutes is 900ms (n = 60). {TTFT_IS}
            """,
        ),
        [Silent("less than twice as slow", {"ttft": week(now=0.45)})],
    ),
]  # fmt: skip
MIX = [
    (
        Fires(
            "LLMTTFTRegressionMixAdjusted", DAY + 2 * HOUR + 15, DAY + HOUR,
            {"input": mix(0.3, slower=2), "ttft": mixed_ttft(0.3, slower=2), "tokens": cached(0.6)},
            LABELS, "Prompts of the same length wait 2.38 times as long for m at a",
            f"""
            Usual for the prompts of now, at this hour: 1.02s; it is 2.432s. Means of the medians of classes of input
            tokens, of 100% of n = 60. {TTFT_IS}
            """,
        ),
        [
            Silent("the prompts have become longer, each length is as fast", {"input": mix(0.3, slower=1)}),
            Silent("no length is known", {"input": unknown(mix(0.3, slower=2))}),
            Silent("most lengths are not known", {"input": mix(0.3, slower=2) | unknown(mix(0.3, slower=2, rate=4))}),
            Silent("a fast chip, from 25 to 75 ms", {"input": mix(0.3, slower=2, short=0.04, long=0.04)}),
            Silent("a tenth of the traffic", {"ttft": mixed_ttft(0.3, slower=2, rate=0.2)}),
        ],
    ),
    (
        Fires(
            "LLMTTFTRegressionMixAdjusted", DAY + 2 * HOUR + 15, DAY + HOUR,
            {"input": mix(0.3, slower=3), "ttft": mixed_ttft(0.3, slower=3), "tokens": cached(0.2)},
            LABELS, "Prompts of the same length wait 2.44 times as long for m at a",
            f"""
            Usual for the prompts of now, at this hour: 1.02s; it is 2.485s. Means of the medians of classes of input
            tokens, of 100% of n = 60. {TTFT_IS}
            """,
        ),
        [Silent("less than twice as slow", {"input": mix(0.3, slower=1.7)})],
    ),
]  # fmt: skip


# A day of medians, as the rules have kept them, and two hours more; slower from an hour on.
def history(*phases):
    return {f"streamgauge:ttft_seconds:p50_30m_sampled{{{OF}}}": gauge(*phases)}


def day(usual=0.28, now=0.55, rate=2.0):
    return ttft((DAY, None), (2 * HOUR, {usual: rate}), (LATE, {now: rate}))


def day_mix(slower):
    return by_input("0_200", (DAY + 2 * HOUR, {0.25: 2}), (LATE, {0.25 * slower: 2}))


def day_cached(share):
    kept = {f"streamgauge:tokens:cached_share_30m{{{OF}}}": gauge((DAY, 0.6))}
    hits = tokens("cached_input", (DAY, None), (2 * HOUR, 600), (LATE, 1000 * share))
    return kept | hits | tokens("input", (DAY, None), (2 * HOUR + LATE, 1000))


AT_DAY = DAY + 3 * HOUR + 15
BASELINES = [
    (
        Fires(
            "LLMTTFTRegressionVsBaseline", AT_DAY, DAY + 2 * HOUR,
            {"usual": history((DAY, 0.275)), "ttft": day(), "input": day_mix(2), "tokens": day_cached(0.6)},
            LABELS, "TTFT of m at a is 550ms, more than it is in a usual week",
            f"""
            The median of 30 minutes (n = 60); the median of 7 days is 275ms, its spread (sigma) 0s. {TTFT_IS}
            """,
        ),
        [
            Silent("a tenth of the traffic", {"ttft": day(rate=0.2)}),
            Silent("hours so slow are usual", {"usual": history((16 * HOUR, 0.275), (8 * HOUR, 0.55))}),
            Silent("a history of half a day", {"usual": history((13 * HOUR, None), (11 * HOUR, 0.275))}),
            Silent("a step from 0.275 to 0.35 s", {"ttft": day(now=0.35)}),
            Silent("a step from 0.445 to 0.55 s", {"usual": history((DAY, 0.445))}),
            Silent("prompts of each length are as fast as usual", {"input": day_mix(1)}),
        ],
    ),
    (
        Fires(
            "LLMTTFTRegressionVsBaseline", AT_DAY, DAY + 2 * HOUR,
            {"usual": history((DAY, 0.275)), "ttft": day(now=0.9), "input": day_mix(3), "tokens": day_cached(0.2)},
            LABELS, "TTFT of m at a is 900ms, more than it is in a usual week",
            f"""
            The median of 30 minutes (n = 60); the median of 7 days is 275ms, its spread (sigma) 0s. {TTFT_IS}
            """,
        ),
        [Silent("less than twice as slow", {"ttft": day(now=0.45)})],
    ),
    (
        Fires(
            "LLMTTFTSlowerLessCached", AT_DAY, DAY + 2 * HOUR,
            {"usual": history((DAY, 0.275)), "ttft": day(), "tokens": day_cached(0.2)},
            LABELS, "TTFT of m at a has risen to 550ms, with 40% less of the input cached",
            f"""
            Cached is 20% of the input tokens as the provider counts them, usual at this hour is 60%. Median TTFT of
            30 minutes, n = 60. {TTFT_IS}
            """,
        ),
        [
            Silent("the cache holds as much", {"tokens": day_cached(0.6)}),
            Silent("it is no slower", {"ttft": day(now=0.28)}),
            Silent("a step from 0.275 to 0.35 s", {"ttft": day(now=0.35)}),
            Silent("a step from 0.445 to 0.55 s", {"usual": history((DAY, 0.445))}),
            Silent("a tenth of the traffic", {"ttft": day(rate=0.2)}),
        ],
    ),
]  # fmt: skip


def tpot(then=0.0145, first=0.0145, now=0.0225, rate=2.0):
    phases = (3 * HOUR, {then: rate}), (DAY - 3 * HOUR, None), (HOUR, {first: rate}), (LATE, {now: rate})
    return histogram("time_per_output_token_seconds", OF, *phases)


# 60 requests a minute, of which two in a hundred are in another world; a day ago, `usual` of them.
def tail(usual=0.0, now=0.02, near=0.28, far=7.0, rate=60.0):
    def seen(part):
        return {near: rate * (1 - part), far: rate * part}

    return ttft((3 * HOUR, seen(usual)), (DAY - 3 * HOUR, None), (HOUR, seen(usual)), (LATE, seen(now)))


def load(busy=(1.3,), usual=0.45, alone=0.25, rate=2.0, of="9_16"):
    seen = {value: rate / len(busy) for value in busy}
    crowd = (3 * HOUR, {usual: rate}), (DAY - 3 * HOUR, None), (HOUR, {usual: rate}), (LATE, seen)
    single = (3 * HOUR, {alone: 1}), (DAY - 3 * HOUR, None), (HOUR, {alone: 1}), (LATE, {alone: 1})
    return {"crowd": by_load(of, *crowd), "alone": by_load("1", *single)}


SHAPE = [
    (
        Fires(
            "LLMSpeedRegression",
            DAY + 2 * HOUR + 15,
            DAY + HOUR,
            {"tpot": tpot()},
            LABELS,
            "Output of m at a takes 1.55 times as long per token as usual at this hour",
            """
            Median of 30 minutes 22.5ms a token, usual 14.5ms (n = 60). From the first to the last output event,
            divided by the tokens between: the provider's time. Streams that a client held back are left out.
            """,
        ),
        [
            Silent("a tenth of the traffic", {"tpot": tpot(rate=0.2)}),
            Silent("this hour is usually so slow", {"tpot": tpot(then=0.0225)}),
            Silent("a fast chip, from 0.6 to 0.9 ms a token", {"tpot": tpot(0.0006, 0.0006, 0.0009)}),
        ],
    ),
    (
        Fires(
            "LLMTTFTTailInconsistent",
            DAY + 2 * HOUR + 15,
            DAY + HOUR,
            {"ttft": tail()},
            LABELS,
            "One stream in a hundred of m at a waits 26 times as long as the middle one",
            f"""
            P99 7.2s, median 275.5ms of TTFT in 5 minutes (n = 300). {TTFT_IS}
            """,
        ),
        [
            Silent("half of the requests", {"ttft": tail(rate=30)}),
            Silent("a tail that is usual at this hour", {"ttft": tail(usual=0.02)}),
            Silent("a tail nearer by", {"ttft": tail(far=2.2)}),
            Silent("a fast chip, 45 ms and 0.6 s", {"ttft": tail(near=0.045, far=0.55)}),
            Silent("one request in two hundred in it", {"ttft": tail(now=0.005)}),
        ],
    ),
    (
        Fires(
            "LLMTTFTDegradesUnderLoad",
            DAY + 2 * HOUR + 15,
            DAY + HOUR,
            load(),
            LABELS | {"load": "9_16"},
            "m at a is 5.2 times as slow to start with 9_16 requests at once",
            f"""
            Median TTFT of 30 minutes 1.3s (n = 60), of requests that were alone 250ms (a day). Requests in flight
            are those through this gauge, at the request's start. {TTFT_IS}
            """,
        ),
        [
            Silent("half as slow", {"crowd": load(busy=(0.45,))["crowd"]}),
            Silent("a third of the traffic", {"crowd": load(rate=0.6)["crowd"]}),
            Silent("so many at once are usually so slow at this hour", {"crowd": load(usual=1.3)["crowd"]}),
            Silent("requests that are alone are as slow", {"alone": load(alone=1.3)["alone"]}),
            Silent("a fast chip, from 25 to 100 ms", load(busy=(0.09, 0.15), usual=0.04, alone=0.04)),
            Silent("fewer at once", {"crowd": load(of="2_4")["crowd"]}),
        ],
    ),
]
