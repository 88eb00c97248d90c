"""The tests of the alerts, for `promtool test rules`: how they are written down. What they are is in rules_cases*.py."""

from dataclasses import dataclass

HEAD = """\
# Written by dashboards/generate from dashboards/source. Change those, not this file.
# promtool test rules dashboards/rules/tests/*.yml
"""
# The bounds of the gauge's histograms, as it writes them.
FINE = (
    "0.005 0.01 0.02 0.03 0.04 0.05 0.065 0.08 0.1 0.125 0.16 0.2 0.25 0.3 0.4 0.5 0.6 0.8 1.0 1.25 1.6 2.0 2.5 3.2 4.0 5.0 6.4 8.0 10.0"
    " 16.0 24.0 32.0 48.0 64.0 96.0 128.0"
).split()
COARSE = "0.05 0.1 0.2 0.3 0.45 0.6 0.8 1.1 1.6 2.5 4.0 6.4 10.0 20.0 50.0 128.0".split()
LOADS = "0.05 0.1 0.2 0.3 0.6 1.0 1.6 2.5 5.0 10.0 32.0 128.0".split()
CADENCE = "0.0005 0.00065 0.0008 0.001 0.0015 0.002 0.003 0.004 0.005 0.0065 0.008 0.01 0.013 0.016 0.02 0.025 0.032 0.04 0.05".split()
OVERHEAD = "5e-05 7.5e-05 0.0001 0.0002 0.0005 0.001 0.002 0.005 0.01 0.025 0.1".split()


@dataclass(frozen=True)
class Fires:
    """An alert that fires at `at` (minutes from the start) and not yet at `before`, with these labels and texts."""

    alert: str
    at: int
    before: int
    given: dict
    labels: dict
    summary: str
    description: str


@dataclass(frozen=True)
class Silent:
    """The same with one thing changed: then it is silent."""

    only: str
    changed: dict


def page(groups, rules, interval, cases):
    """A test file: `cases` are pairs of a `Fires` and its list of `Silent`; `interval` is between evaluations."""
    order = "".join(f"  - {name}\n" for name in groups)
    head = f"rule_files:\n  - ../recording.yml\n  - ../alerts.yml\nevaluation_interval: {interval}\ngroup_eval_order:\n{order}"
    tests = []
    for fires, silences in cases:
        tests.append(test(f"{fires.alert} fires", fires, fires.given, True, rules))
        for silent in silences:
            unknown = set(silent.changed) - set(fires.given)
            if unknown:
                raise ValueError(f"{fires.alert}, {silent.only}: adds {unknown}")
            tests.append(test(f"{fires.alert} is silent: only {silent.only}", fires, fires.given | silent.changed, False, rules))
    return HEAD + head + "tests:\n" + "\n".join(tests)


def test(name, fires, given, is_fired, rules):
    series = "".join(f"      - series: {quoted(name)}\n        values: {quoted(values)}\n" for name, values in flat(given))
    checks = [(fires.before, "[]"), (fires.at, "[]")]
    if is_fired:
        rule = rules[fires.alert]
        texts = rule.annotations() | {"summary": fires.summary, "description": fires.description}
        for label in ("upstream", "model"):
            value = fires.labels.get(label, "")
            texts["dashboard"] = texts["dashboard"].replace(f"{{{{ $labels.{label} | urlquery }}}}", value)
        labels = {"severity": rule.severity} | fires.labels
        checks[1] = (fires.at, "\n          - exp_labels:\n" + mapping(labels) + "            exp_annotations:\n" + mapping(texts))
    alerts = "".join(
        f"      - eval_time: {minutes}m\n        alertname: {fires.alert}\n        exp_alerts:{found if found[0] == chr(10) else ' ' + found + chr(10)}"
        for minutes, found in checks
    )
    return f"  - name: {quoted(name)}\n    interval: 1m\n    input_series:\n{series}    alert_rule_test:\n{alerts}"


def mapping(values):
    return "".join(f"              {key}: {quoted(' '.join(value.split()))}\n" for key, value in values.items())


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def flat(given):
    """Series and their values, of a mapping that has single series and, by a name for it, whole histograms."""
    for name, values in given.items():
        yield from values.items() if isinstance(values, dict) else [(name, values)]


# --- series, a sample a minute -----------------------------------------------------------------------------------------


def counter(*phases):
    """Phases of (minutes, increase a minute); None for the increase is a gap."""
    total, parts = 0, []
    for minutes, step in phases:
        parts.append(f"_x{minutes}" if step is None else f"{total:g}+{step:g}x{minutes - 1}")
        total = round(total + minutes * (step or 0), 6)
    return " ".join(parts)


def gauge(*phases):
    """Phases of (minutes, value); None is a gap."""
    return " ".join(f"_x{minutes}" if value is None else f"{value:g}x{minutes - 1}" for minutes, value in phases)


def histogram(family, labels, bounds, *phases):
    """Phases of (minutes, {value: observations a minute}); None is a gap. Only the bounds around the values are written."""
    values = sorted({value for _, seen in phases for value in seen or ()})
    near = {bound for value in values for bound in around(value, bounds)}
    series = {}
    for bound in [*sorted(near, key=float), "+Inf"]:
        below = [(m, None if s is None else sum(n for value, n in s.items() if value <= float(bound))) for m, s in phases]
        series[f'streamgauge_{family}_bucket{{{labels},le="{bound}"}}'] = counter(*below)
    series[f"streamgauge_{family}_count{{{labels}}}"] = series[f'streamgauge_{family}_bucket{{{labels},le="+Inf"}}']
    sums = [(m, None if s is None else sum(value * n for value, n in s.items())) for m, s in phases]
    return series | {f"streamgauge_{family}_sum{{{labels}}}": counter(*sums)}


def around(value, bounds):
    """The bounds next to a value, below and above."""
    below = [bound for bound in bounds if float(bound) < value]
    return below[-1:] + [bound for bound in bounds if float(bound) >= value][:1]
