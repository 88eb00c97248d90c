"""The Prometheus rules: how they are written down. What they are is in rules_recording.py and rules_alerts.py."""

import re

from . import (
    rules_alerts,
    rules_alerts_ends,
    rules_cases,
    rules_cases_deadlines,
    rules_cases_ends,
    rules_recording,
    rules_tests,
)
from .rules_parts import Alert

ALERTS_ABOUT = """
Severities: page (somebody is woken), ticket (in working hours), info (it explains another). Each alert has a least
number of requests and says it. What each means and how to tune it: docs/alerts.md.
"""
HEAD = "# Written by dashboards/generate from dashboards/source. Change those, not this file.\n"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
# A range, an offset, or the value of `for` and `interval`: every place where a rule file has a duration.
DURATION = re.compile(r"(\[|\boffset |\bfor: |\binterval: )(\d+)([smhdw])\b")

# Test files: how often rules are evaluated in them (10 ms each time, so seldom where days pass), and their cases.
CASES = {
    "burn": ("5m", rules_cases_deadlines.BURN),
    "burn_slow": ("15m", rules_cases_deadlines.BURN_SLOW),
    "waits": ("1m", rules_cases_deadlines.WAITS),
    "last_week": ("60m", rules_cases.LAST_WEEK),
    "baseline": ("15m", rules_cases.BASELINES),
    "mix": ("15m", rules_cases.MIX),
    "shape": ("15m", rules_cases.SHAPE),
    "ends": ("5m", rules_cases_ends.ENDS),
    "whose": ("15m", rules_cases_ends.WHOSE + rules_cases_ends.OVERHEADS),
    "gauge": ("1m", rules_cases_ends.ITSELF),
}


def files(time_scale):
    """Name from dashboards/ → text."""
    alerts = rules_alerts.TIMES + rules_alerts_ends.OTHERS
    pages = {
        "rules/recording.yml": page(rules_recording.ABOUT, rules_recording.GROUPS),
        "rules/alerts.yml": page(ALERTS_ABOUT, alerts),
    }
    if time_scale != 1:
        return {name: scaled(text, time_scale) for name, text in pages.items()}
    groups = [name for name, *_ in rules_recording.GROUPS + alerts]
    rules = {rule.name: rule for *_, rules in alerts for rule in rules}
    return pages | {
        f"rules/tests/{name}.yml": rules_tests.page(groups, rules, interval, cases)
        for name, (interval, cases) in CASES.items()
    }


def scaled(text, time_scale):
    """Every duration divided by that. Counts and the seconds that are measured stay."""

    def shorter(found):
        return f"{found[1]}{max(1, round(int(found[2]) * SECONDS[found[3]] * 1000 / time_scale))}ms"

    return DURATION.sub(shorter, text)


def page(about, groups):
    return HEAD + comment(about, 0) + "groups:\n" + "\n".join(group(*words) for words in groups)


def group(name, interval, about, rules):
    head = f"{comment(about, 2)}  - name: {name}\n    interval: {interval}\n    rules:\n"
    return head + "\n".join(alert(rule) if isinstance(rule, Alert) else record(rule) for rule in rules)


def record(rule):
    return f"{comment(rule.why, 6)}      - record: {rule.name}\n{block('expr', '|', rule.expr, 8)}"


def alert(rule):
    head = f"{comment(rule.why, 6)}      - alert: {rule.name}\n{block('expr', '|', rule.expr, 8)}"
    rest = f"        for: {rule.wait}\n        labels:\n          severity: {rule.severity}\n        annotations:\n"
    return head + rest + "".join(block(name, ">-", text, 10) for name, text in rule.annotations().items())


def comment(text, depth):
    return "".join(f"{' ' * depth}# {line.strip()}\n" for line in text.strip().splitlines())


def block(key, kind, text, depth):
    """A key whose value is this text: `|` line by line, `>-` as one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    lines = [line[margin:].rstrip() if kind == "|" else line.strip() for line in lines]
    return f"{' ' * depth}{key}: {kind}\n" + "".join(f"{' ' * (depth + 2)}{line}\n" for line in lines)
