"""The tests of the alerts, for `promtool test rules`: how they are written down. They are in rules_cases*.py."""

from dataclasses import dataclass

from .catalogue import FAMILIES

HEAD = """\
# Written by dashboards/generate from dashboards/source. Change those, not this file.
# promtool test rules dashboards/rules/tests/*.yml
"""
# The model in a case that fires. Silent ones stand beside it, as models that are called by what is different.
MODEL = 'model="m"'


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
    files = "rule_files:\n  - ../recording.yml\n  - ../alerts.yml\n"
    head = f"{files}evaluation_interval: {interval}\ngroup_eval_order:\n{order}"
    return (
        HEAD
        + head
        + "tests:\n"
        + "\n".join(text for fires, silences in cases for text in tests(fires, silences, rules))
    )


def tests(fires, silences, rules):
    """All in one where series have a model, since a test takes long; else a test for each."""
    others = {silent.only: changed(fires, silent) for silent in silences}
    expected = found(fires, rules[fires.alert])
    if fires.labels.get("model"):
        beside = {
            f"{only}, {name}": renamed(series, only) for only, given in others.items() for name, series in given.items()
        }
        return [test(f"{fires.alert} fires for m, and for no other", fires, fires.given | beside, expected)]
    return [test(f"{fires.alert} fires", fires, fires.given, expected)] + [
        test(f"{fires.alert} is silent: only {only}", fires, given, " []\n") for only, given in others.items()
    ]


def changed(fires, silent):
    unknown = set(silent.changed) - set(fires.given)
    if unknown:
        raise ValueError(f"{fires.alert}, {silent.only}: adds {unknown}")
    return fires.given | silent.changed


def renamed(series, only):
    return {name.replace(MODEL, f'model="{only}"'): values for name, values in series.items()}


def test(name, fires, given, expected):
    series = "".join(
        f"      - series: {quoted(name)}\n        values: {quoted(values)}\n" for name, values in flat(given)
    )
    checks = "".join(
        f"      - eval_time: {minutes}m\n        alertname: {fires.alert}\n        exp_alerts:{alerts}"
        for minutes, alerts in ((fires.before, " []\n"), (fires.at, expected))
    )
    return f"  - name: {quoted(name)}\n    interval: 1m\n    input_series:\n{series}    alert_rule_test:\n{checks}"


def found(fires, rule):
    """What promtool is to find."""
    texts = rule.annotations() | {"summary": fires.summary, "description": fires.description}
    for label in ("upstream", "model"):
        texts["dashboard"] = texts["dashboard"].replace(
            f"{{{{ $labels.{label} | urlquery }}}}", fires.labels.get(label, "")
        )
    labels = {"severity": rule.severity} | fires.labels
    return f"\n          - exp_labels:\n{mapping(labels)}            exp_annotations:\n{mapping(texts)}"


def mapping(values):
    return "".join(f"              {key}: {quoted(' '.join(value.split()))}\n" for key, value in values.items())


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def flat(given):
    """Series and their values, of a mapping that has single series and, by a name for it, whole histograms."""
    for name, values in given.items():
        yield from values.items() if isinstance(values, dict) else [(name, values)]


# --- series, a sample a minute ---


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


def histogram(family, labels, *phases):
    """Phases of (minutes, {value: observations a minute}); None is a gap. With the bounds around the values only."""
    bounds = FAMILIES[f"streamgauge_{family}"].bounds
    values = sorted({value for _, seen in phases for value in seen or ()})
    near = {bound for value in values for bound in around(value, bounds)}
    series = {}
    for bound in [*sorted(near), float("inf")]:
        below = [(m, None if s is None else sum(n for value, n in s.items() if value <= bound)) for m, s in phases]
        spelt = "+Inf" if bound == float("inf") else repr(float(bound))
        series[f'streamgauge_{family}_bucket{{{labels},le="{spelt}"}}'] = counter(*below)
    series[f"streamgauge_{family}_count{{{labels}}}"] = series[f'streamgauge_{family}_bucket{{{labels},le="+Inf"}}']
    sums = [(m, None if s is None else sum(value * n for value, n in s.items())) for m, s in phases]
    return series | {f"streamgauge_{family}_sum{{{labels}}}": counter(*sums)}


def around(value, bounds):
    """The bounds next to a value, below and above."""
    return [bound for bound in bounds if bound < value][-1:] + [bound for bound in bounds if bound >= value][:1]
