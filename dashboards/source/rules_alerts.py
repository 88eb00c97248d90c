"""Alerts on times: the first token, the speed behind it, and what both depend on."""

from .rules_parts import PAIR, Alert, now, percent, seconds
from .rules_recording import DEADLINE, ENOUGH, LOAD, REQUESTS, TOKENS, TPOT, TTFT

AT_LOAD = ("upstream", "model", "load")
# The promise: so many seconds to the first token, missed by no more than this share.
PROMISE, BUDGET = "0.6", 0.05
OF = 'deadline="' + PROMISE + '"'
WHERE = "{{ $labels.model }} at {{ $labels.upstream }}"
TTFT_IS = """
    TTFT runs from the departure of the request to the arrival of the first output event, both at the gauge: the
    provider's time and the network's, neither the client's nor the gauge's own.
"""
P50 = seconds(f"{TTFT}:p50_30m")
N = now(f"{TTFT}:n_30m")

# A change that has a reason of its own is no regression of the provider.
LONGER_PROMPTS = f"""unless (
          {TTFT}:by_mix_now_30m < 1.2 * {TTFT}:by_mix_usual_7d
          and {TTFT}:by_mix_coverage_30m > 0.5
        )"""
# The longest wait; a model that thinks for a minute is not late after half of one.
WAIT = "streamgauge_ttft_oldest_wait_seconds"
# In _other a model that thinks waits until its first answer's head has made its name a label.
KNOWN = 'model!="_other"'
PATIENT = f"unless max by ({PAIR}) ({WAIT}) <= 10 * {TTFT}:p50_1d"
GAVE_UP = "streamgauge_ttft_abandoned_wait_seconds"


def missed(by):
    """The requests for a stream without a first token in time, in five minutes; of the deadline that has most."""
    late = 'increase(streamgauge_ttft_deadline_total{result="missed"}[5m])'
    return f"max by ({by}) (sum by ({by}, deadline) ({late}))"


def completed(by):
    """Streams that end well, of which the gauge sees no first token: it can't read them."""
    return f'sum by ({by}) (increase(streamgauge_requests_total{{stream="true",outcome="complete"}}[5m])) > 0'


def refused(window):
    outcomes = 'outcome=~"upstream_.*|unreachable|rate_limited"'
    return now(f"{REQUESTS}:share_{window}", "humanizePercentage", more=outcomes, around=("sum(", ")"), nothing="none")


def less_cached(now, usual):
    """A cache that holds less explains twice the usual, not any number of times."""
    return f"""unless (
          {TOKENS}:cached_share_30m_same_hour_7d - {TOKENS}:cached_share_30m > 0.1
          and {now} <= 2 * {usual}
        )"""


def burn(name, factor, short, long, enough, wait, severity, why):
    return Alert(
        name,
        f"""
        {DEADLINE}:missed_ratio_{short}{{{OF}}} > {factor} * {BUDGET}
        and {DEADLINE}:missed_ratio_{long}{{{OF}}} > {factor} * {BUDGET}
        and {DEADLINE}:n_{long}{{{OF}}} >= {enough}
        and {DEADLINE}:missed_ratio_1h_median_7d{{{OF}}} < {2 * BUDGET:g}
        """,
        wait,
        severity,
        why,
        f"{{{{ $value | humanizePercentage }}}} of the streams of {WHERE} had no first token within {PROMISE} s",
        f"""
        Of the streams asked for in {short}; in {long} it was {percent(f"{DEADLINE}:missed_ratio_{long}", more=OF)} of
        {now(f"{DEADLINE}:n_{long}", more=OF)}, and usually (the middle hour of 7 days)
        {percent(f"{DEADLINE}:missed_ratio_1h_median_7d", more=OF)}. Counted from the departure of the request, with
        those that failed or never answered; clients who left before are not in it. Of all requests that ended in
        {short}, {refused(short)} failed or were refused (upstream_4xx, upstream_5xx, upstream_timeout,
        upstream_reset, unreachable, rate_limited). What that does not explain is time: the provider's and the network's.
        """,
        "overview",
    )


DEADLINES = [
    burn(
        "LLMTTFTDeadlineBurnFast",
        10,
        "5m",
        "1h",
        50,
        "2m",
        "page",
        """
        Ten times the budget of 5 %: half of all streams late. (14.4, the usual factor, is for 99.9 %: it would be 72 %
        here.) The hour says that it matters, the five minutes that it goes on. The last line: a deadline that this
        model usually misses is no promise.
        """,
    ),
    burn(
        "LLMTTFTDeadlineBurnSlow",
        4,
        "30m",
        "6h",
        100,
        "15m",
        "ticket",
        "One stream in five late for six hours: too little for the other, but the budget of a month is gone in a week.",
    ),
    Alert(
        "LLMTTFTDeadlineNotCounted",
        f"""
        {TTFT}:n_30m >= {ENOUGH}
        unless sum by ({PAIR}) (streamgauge_ttft_deadline_total{{{OF}}})
        """,
        "15m",
        "ticket",
        "Deadlines are a setting of the gauge. Without theirs the two rules above are silent for ever.",
        f"The deadline of {PROMISE} s is not counted for {WHERE}, so its alerts can't fire",
        f"""
        First tokens come ({{{{ $value | printf "%.0f" }}}} in 30 minutes), but no series of
        streamgauge_ttft_deadline_total of that model has deadline="{PROMISE}". Put it into the gauge's
        metrics.deadlines, or one that is there into these rules.
        """,
        "overview",
    ),
    Alert(
        "LLMFirstTokenOverdue",
        f"""
        max by ({PAIR}) ({WAIT}) > 30
        {PATIENT}
        """,
        "1m",
        "ticket",
        """
        Histograms know only who got a token; this looks at who still waits, so it sees a hang at any traffic: one
        request is enough. 30 s is beyond patience; ten medians are beyond chance, also where a model thinks before it
        speaks.
        """,
        f"A stream of {WHERE} has waited {{{{ $value | humanizeDuration }}}} for its first token",
        f"""
        The longest wait now, from the request's departure to the scrape. Usual is a TTFT of
        {seconds(f"{TTFT}:p50_1d")} (median of a day); first tokens in the last 5 minutes:
        {now(f"{TTFT}:n_5m")}. The provider's time and the network's. One request that hangs among many that don't is
        often a lost connection: limits.head ends a wait for the response's head, limits.idle one behind it.
        """,
        "overview",
    ),
    Alert(
        "LLMNoFirstTokens",
        f"""
        max by ({PAIR}) ({WAIT}{{{KNOWN}}}) > 30
        {PATIENT}
        unless {TTFT}:n_5m > 0
        unless {completed(PAIR)}
        and {missed(PAIR)} >= 3
        """,
        "1m",
        "page",
        """
        The same, and three streams or more came in five minutes and none got a token: it is not one connection. Streams
        that the gauge can't read have no first token either, but they end well.
        """,
        f"No stream of {WHERE} gets a first token; the oldest has waited {{{{ $value | humanizeDuration }}}}",
        """
        At least three streams missed a deadline in 5 minutes, and none had a first token. The wait runs from the
        request's departure to the scrape: the provider's time and the network's.
        """,
        "overview",
    ),
    Alert(
        "LLMUpstreamSilent",
        f"""
        max by (upstream) (
          max by ({PAIR}) ({WAIT}{{{KNOWN}}}) > 30
          {PATIENT}
        )
        unless sum by (upstream) ({TTFT}:n_5m) > 0
        unless {completed("upstream")}
        and {missed("upstream")} >= 3
        """,
        "1m",
        "page",
        "The same of an upstream as a whole: of thirty models each may be asked too seldom to be counted alone.",
        "No stream of any model at {{ $labels.upstream }} gets a first token; the oldest has waited "
        "{{ $value | humanizeDuration }}",
        """
        At least three streams, of all its models, missed a deadline in 5 minutes, and none had a first token. The wait
        runs from the request's departure to the scrape: the provider's time and the network's.
        """,
        "overview",
        ("upstream",),
    ),
    Alert(
        "LLMClientsGiveUp",
        f"""
        sum by ({PAIR}) (increase({GAVE_UP}_count[5m])) >= 5
        unless {TTFT}:n_5m > 0
        unless {completed(PAIR)}
        unless sum by ({PAIR}) (increase({GAVE_UP}_sum[5m]))
          / sum by ({PAIR}) (increase({GAVE_UP}_count[5m])) <= 2 * {TTFT}:p50_1d
        """,
        "2m",
        "page",
        """
        Where clients leave before the 30 s of the alerts above, nobody waits long and no deadline need be missed. Not
        where they leave no later than first tokens usually come: then they did not wait for one.
        """,
        f"Clients give up on {WHERE} before its first token, and nobody gets one",
        f"""
        {{{{ $value | printf "%.0f" }}}} in 5 minutes. Usual is a TTFT of {seconds(f"{TTFT}:p50_1d")} (median of a day).
        From the request's departure to the client's leaving: the provider's time and the network's.
        """,
        "overview",
    ),
]

REGRESSIONS = [
    Alert(
        "LLMTTFTRegressionVsLastWeek",
        f"""
        {TTFT}:p50_30m / ({TTFT}:p50_30m offset 1w) > 1.5
        and {TTFT}:p50_30m - ({TTFT}:p50_30m offset 1w) > 0.1
        and {TTFT}:n_30m >= {ENOUGH}
        and ({TTFT}:n_30m offset 1w) >= {ENOUGH}
        {LONGER_PROMPTS}
        {less_cached(f"{TTFT}:p50_30m", f"({TTFT}:p50_30m offset 1w)")}
        """,
        "10m",
        "ticket",
        """
        The same hour of the same weekday: the shape of day and week cancels out. Half as much again is beyond the noise
        of a median of 30; a tenth of a second is the least that anybody notices, so a chip that goes from 20 to 50 ms
        is let be. Not where prompt lengths explain it, or a cache that holds less (up to twice the usual).
        """,
        f'TTFT of {WHERE} is {{{{ $value | printf "%.2f" }}}} times that of last week',
        f"The median of 30 minutes is {P50} (n = {N}). {TTFT_IS}",
        "overview",
    ),
    Alert(
        "LLMTTFTRegressionVsBaseline",
        f"""
        {TTFT}:p50_30m > {TTFT}:baseline_median_7d + 4 * clamp_min({TTFT}:baseline_sigma_7d, 0.01)
        and {TTFT}:p50_30m > 1.25 * {TTFT}:baseline_median_7d
        and {TTFT}:p50_30m - {TTFT}:baseline_median_7d > 0.1
        and {TTFT}:n_30m >= {ENOUGH}
        and {TTFT}:baseline_points_7d >= 720
        {LONGER_PROMPTS}
        {less_cached(f"{TTFT}:p50_30m", f"{TTFT}:baseline_median_7d")}
        """,
        "15m",
        "ticket",
        """
        Against all of the last seven days, where last week's hour may itself have been the bad one. Median and
        quartiles, which a bad day does not move, and which know the daily wave: it makes sigma wide. 720 points of two
        minutes are a day.
        """,
        f"TTFT of {WHERE} is {{{{ $value | humanizeDuration }}}}, more than it is in a usual week",
        f"""
        The median of 30 minutes (n = {N}); the median of 7 days is {seconds(f"{TTFT}:baseline_median_7d")}, its spread
        (sigma) {seconds(f"{TTFT}:baseline_sigma_7d")}. {TTFT_IS}
        """,
        "overview",
    ),
    Alert(
        "LLMTTFTRegressionMixAdjusted",
        f"""
        {TTFT}:by_mix_now_30m / {TTFT}:by_mix_usual_7d > 1.4
        and {TTFT}:by_mix_now_30m - {TTFT}:by_mix_usual_7d > 0.1
        and {TTFT}:by_mix_coverage_30m > 0.5
        and {TTFT}:n_30m >= {ENOUGH}
        {less_cached(f"{TTFT}:by_mix_now_30m", f"{TTFT}:by_mix_usual_7d")}
        """,
        "15m",
        "ticket",
        """
        Each class of prompt length against itself at this hour, weighted by the mix of now: longer prompts alone don't
        raise it, and shorter ones don't hide it. 1.4 leaves room for lengths that move within a class.
        """,
        f'Prompts of the same length wait {{{{ $value | printf "%.2f" }}}} times as long for {WHERE}',
        f"""
        Usual for the prompts of now, at this hour: {seconds(f"{TTFT}:by_mix_usual_7d")}; it is
        {seconds(f"{TTFT}:by_mix_now_30m")}. Means of the medians of classes of input tokens, of
        {percent(f"{TTFT}:by_mix_coverage_30m")} of n = {N}. {TTFT_IS}
        """,
        "anatomy",
    ),
    Alert(
        "LLMTTFTSlowerLessCached",
        f"""
        {TOKENS}:cached_share_30m_same_hour_7d - {TOKENS}:cached_share_30m > 0.1
        and {TTFT}:p50_30m > 1.25 * {TTFT}:baseline_median_7d
        and {TTFT}:p50_30m - {TTFT}:baseline_median_7d > 0.1
        """,
        "15m",
        "info",
        """
        Beside the three above, or in their place: TTFT has risen, and the provider had less of the prompts in its cache
        than usual at this hour. A new prompt, or a balancer that no longer keeps sessions together, does that; the
        model is as fast as before.
        """,
        f"TTFT of {WHERE} has risen to {P50}, with {{{{ $value | humanizePercentage }}}} less of the input cached",
        f"""
        Cached is {percent(f"{TOKENS}:cached_share_30m")} of the input tokens as the provider counts them, usual at this
        hour is {percent(f"{TOKENS}:cached_share_30m_same_hour_7d")}. Median TTFT of 30 minutes, n = {N}. {TTFT_IS}
        """,
        "anatomy",
    ),
    Alert(
        "LLMSpeedRegression",
        f"""
        {TPOT}:p50_30m_sampled / {TPOT}:p50_30m_same_hour_7d > 1.3
        and {TPOT}:p50_30m_sampled - {TPOT}:p50_30m_same_hour_7d > 0.0005
        """,
        "15m",
        "ticket",
        """
        A third slower is what readers and agents feel; usual is taken at this hour, because speed follows the
        provider's load. Half a millisecond a token: below, 500 tokens differ by less than a quarter of a second.
        """,
        f'Output of {WHERE} takes {{{{ $value | printf "%.2f" }}}} times as long per token as usual at this hour',
        f"""
        Median of 30 minutes {seconds(f"{TPOT}:p50_30m_sampled")} a token, usual
        {seconds(f"{TPOT}:p50_30m_same_hour_7d")} (n = {now(f"{TPOT}:n_30m")}). From the first to the last output event,
        divided by the tokens between: the provider's time. Streams that a client held back are left out.
        """,
        "anatomy",
    ),
]

SHAPE = [
    Alert(
        "LLMTTFTTailInconsistent",
        f"""
        {TTFT}:tail_ratio_5m_sampled > 10
        and {TTFT}:p99_5m - {TTFT}:p50_5m > 1
        unless {TTFT}:tail_ratio_5m_sampled <= 1.5 * {TTFT}:tail_ratio_5m_same_hour_7d
        """,
        "15m",
        "ticket",
        """
        A steady provider has some 3. At 10 one request in a hundred is in another world, as with a queue or a cold
        replica. From 200 requests in five minutes, where the P99 is more than one of them; a second, because below it
        nobody minds. Short and long prompts mixed have a long tail by themselves: not where it is usual at this hour.
        """,
        f'One stream in a hundred of {WHERE} waits {{{{ $value | printf "%.0f" }}}} times as long as the middle one',
        f"""
        P99 {seconds(f"{TTFT}:p99_5m")}, median {seconds(f"{TTFT}:p50_5m")} of TTFT in 5 minutes (n =
        {now(f"{TTFT}:n_5m")}). {TTFT_IS}
        """,
        "capacity",
    ),
    Alert(
        "LLMTTFTDegradesUnderLoad",
        f"""
        {LOAD}:p50_30m_sampled{{load!~"1|2_4"}} / on (upstream, model) group_left () {LOAD}:idle_p50_1d > 3
        and {LOAD}:p50_30m_sampled - on (upstream, model) group_left () {LOAD}:idle_p50_1d > 0.1
        and {LOAD}:n_30m >= {ENOUGH}
        unless {LOAD}:p50_30m_sampled <= 1.5 * {LOAD}:p50_30m_same_hour_7d
        """,
        "15m",
        "ticket",
        """
        Requests at once share a server's prefill, so some slowdown is right; three times what a request has alone means
        that they queue. Not where so many at once are usually so slow at this hour: a server's size is no news.
        """,
        f'{WHERE} is {{{{ $value | printf "%.1f" }}}} times as slow to start with {{{{ $labels.load }}}} requests at once',
        f"""
        Median TTFT of 30 minutes {seconds(f"{LOAD}:p50_30m_sampled", AT_LOAD)} (n =
        {now(f"{LOAD}:n_30m", labels=AT_LOAD)}), of requests that were alone {seconds(f"{LOAD}:idle_p50_1d")} (a day).
        Requests in flight are those through this gauge, at the request's start. {TTFT_IS}
        """,
        "capacity",
        ("upstream", "model", "load"),
    ),
]

TIMES = [
    ("streamgauge-deadlines", "30s", "Is the promise kept, for all who asked?", DEADLINES),
    ("streamgauge-regressions", "30s", "Is it slower than it was?", REGRESSIONS),
    ("streamgauge-shape", "30s", "Is it steady, and does it carry what it is given?", SHAPE),
]
