"""Cases of the alerts on how times change: one that fires, and silent ones that differ from it in one thing."""

from .rules_alerts import TTFT_IS
from .rules_tests import Fires, Silent, counter, gauge, histogram

OF = 'upstream="a",model="m"'
LABELS = {"upstream": "a", "model": "m"}
HOUR, DAY, WEEK = 60, 24 * 60, 7 * 24 * 60
# Minutes from an hour on in which something is as it should not be.
LATE = 130


def ttft(*phases):
    return histogram("ttft_seconds", OF, *phases)


def by_input(size, *phases):
    return histogram("ttft_by_input_seconds", f'{OF},input="{size}"', *phases)


def by_load(load, *phases):
    return histogram("ttft_by_load_seconds", f'{OF},load="{load}"', *phases)


def tokens(kind, *phases):
    return {f'streamgauge_tokens_total{{{OF},type="{kind}"}}': counter(*phases)}


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
