"""Panels that look back, over days of made history with the shipped rules evaluated by promtool: they show the right values.

Medians of now, yesterday and a week ago; by hour of day; of 72 hours by workload. What is right is computed here, from the
same made requests.
"""

import bisect
import math
import random
import time

import yaml

import grafana
from monitoring import prometheus, promtool
from parts import Fault, check, stop, table
from promql import FAMILIES

HOUR, DAY, WEEK = 3600, 86400, 7 * 86400
# The requests that were made: for how many days (and an hour a week ago), how often, and how often they were scraped.
DAYS, EVERY, SCRAPED = 2.5, 30, 120
WORKLOAD_DAYS, WORKLOAD_EVERY = 5.2, 180
# Rules are evaluated so often; promtool chooses the second, so the last is that old at most, and a query still finds it.
RULES_EVERY = 300
TURNS = (8, 20)  # the hours at which night becomes day, and day night
UPSTREAM, MODEL, WORKLOAD, JOB = "old.example", "m-1", "bench_1k", "streamgauge"
CHOSEN = {"job": "$__all", "upstream": [UPSTREAM], "model": "$__all", "workload": WORKLOAD, "deadline": "0.6"}
TTFT, LOADED = "streamgauge_ttft_seconds", "streamgauge_workload_ttft_seconds"
SPEED = "streamgauge_workload_output_tokens_per_second"
MEDIANS = ("ttft_seconds:p50_30m", "ttft_seconds:n_30m")
INCREASES = tuple(f"workload_{what}_bucket:increase5m" for what in ("ttft_seconds", "output_tokens_per_second"))
OF_72H = tuple(
    f"workload_{what}:{how}" for what in ("ttft_seconds", "output_tokens_per_second") for how in ("median_72h", "n_72h")
)
# Recording rules in the order in which one reads the other: evaluated from so many seconds before the end to so many.
PASSES = (
    (MEDIANS, 2 * DAY, 0),
    (MEDIANS, WEEK + RULES_EVERY, WEEK),
    (INCREASES, 5 * DAY, 0),
    (("ttft_seconds:p50_30m_sampled",), 2 * DAY, 0),
    (("ttft_seconds:p50_30m_by_hour",), 2 * DAY, 0),
    (("ttft_seconds:baseline_median_7d", "ttft_seconds:baseline_sigma_7d"), RULES_EVERY, 0),
    (OF_72H, RULES_EVERY, 0),
    (OF_72H, 2 * DAY + RULES_EVERY, 2 * DAY),
)


def prove(parts):
    end = int(time.time()) // DAY * DAY - 10 * HOUR  # yesterday at 14:00 UTC: blocks of the past, and the same hours every day
    storage, began = parts.file("storage"), time.monotonic()
    made = requests(end)
    text = parts.file("history.txt")
    text.write_text(openmetrics(made, end))
    promtool("tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=96h", "--quiet", text, storage)
    print(f"    {WORKLOAD_DAYS} days in {text.stat().st_size / 1e6:.0f} MB: {time.monotonic() - began:.0f} s")
    for names, since, until in PASSES:
        rules = parts.file("rules.yml")
        rules.write_text(yaml.safe_dump({"groups": [{"name": "back", "interval": f"{RULES_EVERY}s", "rules": shipped(names)}]}))
        server = prometheus(parts, storage=storage)
        words = ["--url", server.url, "--start", end - since, "--end", end - until, "--output-dir", storage, "--quiet", rules]
        promtool("tsdb", "create-blocks-from", "rules", *words)
        stop(server.process)
    print(f"    {len({name for names, *_ in PASSES for name in names})} rules over it: {time.monotonic() - began:.0f} s\n")
    server, boards = prometheus(parts, storage=storage), grafana.dashboards()
    values = Shown(server, boards, end)
    medians(values, made[TTFT], end)
    hours(values, made[TTFT], end)
    usual(values, made[TTFT], end)
    workload(values, made, end)
    print()
    table([["what the panel shows", "shown", "right"], *values.rows])


def shipped(names):
    found = {rule["record"]: rule for group in grafana.rule_groups() for rule in group["rules"] if "record" in rule}
    return [found[f"streamgauge:{name}"] for name in names]


# --- the made requests ---------------------------------------------------------------------------------------------------


def spans(name, end):
    """From when to when there were requests, and scrapes."""
    if name == TTFT:
        return [(end - WEEK - HOUR, end - WEEK), (end - int(DAYS * DAY), end)]
    return [(end - int(WORKLOAD_DAYS * DAY), end)]


def requests(end):
    """Of each family, (time, value) of each request. Nights are quick, yesterday and a week ago were quicker."""
    chance = random.Random(3)

    def ttft(at):
        back, hour = (end - at) // DAY, at // HOUR % 24
        day = 0.55 if TURNS[0] <= hour < TURNS[1] else 0.28
        return day * (0.8 if back == 1 else 0.33 if back >= 7 else 1) * chance.uniform(0.9, 1.1)

    seconds = [at for since, until in spans(TTFT, end) for at in range(since, until, EVERY)]
    # At times of their own, as clients come: regular ones would beat with the scrapes.
    ((since, until),) = spans(LOADED, end)
    times = sorted(chance.uniform(since, until) for _ in range((until - since) // WORKLOAD_EVERY))
    # Until three days before the end it was ten times as slow: a median of more than 72 hours shows it.
    slow = {at: 10 if at < end - 3 * DAY else 1 for at in times}
    return {
        TTFT: [(at, ttft(at)) for at in seconds],
        LOADED: [(at, slow[at] * chance.lognormvariate(math.log(0.4), 0.4)) for at in times],
        SPEED: [(at, chance.lognormvariate(math.log(150), 0.2) / slow[at]) for at in times],
    }


def openmetrics(made, end):
    """The histograms as they would have been scraped."""
    lines = []
    for name, asked in made.items():
        more = f',workload="{WORKLOAD}"' if "workload" in name else ""
        labels = f'job="{JOB}",instance="old:9464",upstream="{UPSTREAM}",model="{MODEL}"{more}'
        bounds = FAMILIES[name].bounds
        lines.append(f"# TYPE {name} histogram")
        counts, place, total = [0] * (len(bounds) + 1), 0, 0.0
        pages = []
        for at in (at for since, until in spans(name, end) for at in range(since, until + 1, SCRAPED)):
            while place < len(asked) and asked[place][0] <= at:
                counts[bisect.bisect_left(bounds, asked[place][1])] += 1
                total += asked[place][1]
                place += 1
            pages.append((at, list(counts), total))
        for number, bound in enumerate([*map(str, bounds), "+Inf"]):
            lines += [f'{name}_bucket{{{labels},le="{bound}"}} {sum(counts[: number + 1])} {at}' for at, counts, _ in pages]
        lines += [f"{name}_count{{{labels}}} {sum(counts)} {at}" for at, counts, _ in pages]
        lines += [f"{name}_sum{{{labels}}} {total} {at}" for at, _, total in pages]
    return "\n".join([*lines, "# EOF", ""])


def in_window(asked, end, seconds):
    return [value for at, value in asked if end - seconds < at <= end]


def median(values):
    """The middle, which a histogram shows within its bucket."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


# --- what panels show ----------------------------------------------------------------------------------------------------


class Shown:
    """Asks a panel's queries at the end of the history, and keeps what was shown beside what is right."""

    def __init__(self, server, boards, end):
        self.server, self.boards, self.end, self.rows = server, boards, end, []

    def ask(self, board, title, ref, end=None):
        """Labels and values of one query of a panel; the only upstream and model there are is left out."""
        panel = next(panel for panel in grafana.panels(self.boards[board]) if panel["title"] == title)
        target = next(target for target in panel["targets"] if target["refId"] == ref)
        expr = grafana.filled(target["expr"], self.boards[board], CHOSEN)
        found = self.server.query(expr, time=end or self.end)
        if not found:
            raise Fault(f"{board}, {title}, {ref}: no answer")
        return found

    def times(self, name, seconds):
        """When a rule was evaluated."""
        found = self.server.ask("query", query=f"{name}[{seconds}s]", time=self.end)["result"]
        return sorted({at for series in found for at, _ in series["values"]})

    def holds(self, what, shown, right, tolerance):
        self.rows.append([what, f"{shown:.4g}", f"{right:.4g}"])
        check(f"{what}: {shown:.4g} is {right:.4g} within {tolerance:.0%}", math.isclose(shown, right, rel_tol=tolerance))


# A median between 50 ms and 3 s is read within 1.2 % of what it is with our bounds; here values lie closer together.
OFF = 0.05


def medians(values, asked, end):
    title = "TTFT, median of 30 minutes: now, yesterday, a week ago"
    for ref, name, back in (("A", "now", 0), ("B", "yesterday", DAY), ("C", "a week ago", WEEK)):
        found = values.ask("overview", title, ref)
        right = median(in_window(asked, end - back, HOUR / 2))
        values.holds(f"median of 30 minutes, {name}", found[0][1], right, OFF)
    right = len(in_window(asked, end, HOUR / 2))
    values.holds("requests of 30 minutes", values.ask("overview", title, "n")[0][1], right, OFF)


def hours(values, asked, end):
    title = "TTFT by hour of day"
    shown, counts = ({metric["utc_hour"]: value for metric, value in values.ask("capacity", title, ref)} for ref in "AB")
    check("each of 24 hours has its bar, and as text they are in order", sorted(shown) == [f"{hour:02}" for hour in range(24)])
    points = values.times("streamgauge:ttft_seconds:p50_30m_by_hour", DAY * 3)
    off = 0
    for hour in range(24):
        here = [at for at in points if at // HOUR % 24 == hour]
        right = sum(median(in_window(asked, at, HOUR / 2)) for at in here) / len(here)
        if counts[f"{hour:02}"] != len(here):
            raise Fault(f"hour {hour:02} has {counts[f'{hour:02}']} medians, not {len(here)}")
        if hour in TURNS:
            continue  # half of a window is day, half is night: the middle is anywhere between
        off = max(off, abs(shown[f"{hour:02}"] / right - 1))
        if hour in (3, 13):
            values.holds(f"hour {hour:02}, mean of {len(here)} medians", shown[f"{hour:02}"], right, OFF)
    check(f"{24 - len(TURNS)} hours are right within {OFF:.0%}: {off:.1%} at most", off <= OFF)


def usual(values, asked, end):
    title = "TTFT against its usual range"
    points = [at for at in values.times("streamgauge:ttft_seconds:p50_30m_sampled", DAY * 3) if at <= end - HOUR]
    every = sorted(median(in_window(asked, at, HOUR / 2)) for at in points)
    values.holds("usual median", values.ask("capacity", title, "B")[0][1], median(every), OFF)
    sigma = (every[len(every) * 3 // 4] - every[len(every) // 4]) / 1.349
    values.holds("usual, and four sigmas", values.ask("capacity", title, "C")[0][1], median(every) + 4 * sigma, OFF)


def workload(values, made, end):
    three = {name: in_window(made[name], end, 3 * DAY) for name in (LOADED, SPEED)}
    ttft, speed = median(three[LOADED]), median(three[SPEED])
    asked = {
        ("TTFT of $workload", "A"): ttft,
        ("TTFT of $workload", "B"): len(three[LOADED]),
        ("Output speed of $workload", "A"): speed,
        ("Time for 500 output tokens of $workload", "B"): 500 / speed,
    }
    for (title, ref), right in asked.items():
        found = values.ask("providers", title, ref)
        check(
            f"{title}, {ref}: one bar, named after its provider",
            [m["name"] for m, _ in found] == [f"{UPSTREAM} / {MODEL}"],
            found,
        )
        values.holds(f"{title}, {ref}", found[0][1], right, 2 * OFF)
    spread = sorted(three[LOADED])
    for ref, q in zip("BCDEF", (0.05, 0.25, 0.5, 0.75, 0.95)):
        found = values.ask("providers", "TTFT of $workload, spread", ref)
        values.holds(f"spread, P{q * 100:.0f}", found[0][1], spread[int(len(spread) * q)], 2 * OFF)
    # Two days earlier, two of the three days behind it were slow.
    earlier = median(in_window(made[LOADED], end - 2 * DAY, 3 * DAY))
    found = values.ask("providers", "TTFT of $workload, day by day", "A", end - 2 * DAY)
    values.holds("TTFT of $workload, two days earlier", found[0][1], earlier, 2 * OFF)
