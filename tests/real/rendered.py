"""What a page of render/ shows, panel by panel, held against Prometheus' own answers to the panel's queries."""

import itertools
import math
import re

from parts import Fault

SPANS = {
    "ns": 1e-9,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "min": 60,
    "mins": 60,
    "hour": 3600,
    "hours": 3600,
    "day": 86400,
    "days": 86400,
}
# A unit's name in the JSON → what it can be written as → how many of the query's unit that is.
UNITS = {
    "s": SPANS,
    "percentunit": {"%": 0.01},
    "none": {"": 1},
    "locale": {"": 1},
    "short": {"": 1, "K": 1e3, "Mil": 1e6},
    "suffix:tok/s": {"tok/s": 1},
}
LEAST_SHARE = 0.08
NOTHING, NO_LABEL = "no traffic", "–"


class Shown:
    """A board on a page, from one time to another. All it says of the page is read from its elements and canvases."""

    def __init__(self, page, server, board, begin, end, step):
        self.page, self.server, self.board = page, server, board
        self.begin, self.end, self.step, self.answered = begin, end, step, {}

    def answers(self, panel):
        """For each query of a panel its series: labels and value, or values where it is asked over time."""
        if panel["id"] not in self.answered:
            begin = self.end - seconds(panel["timeFrom"]) if "timeFrom" in panel else self.begin
            step = max(self.step, seconds(panel.get("interval", "1s")))
            self.answered[panel["id"]] = [
                self.server.query(target["expr"], time=self.end)
                if target.get("instant")
                else self.server.range(target["expr"], begin, self.end, step)
                for target in panel["targets"]
            ]
        return self.answered[panel["id"]]

    def read(self, what, panel):
        return self.page.evaluate(f"id => window.shown.{what}(id)", panel["id"])

    def values(self, panel):
        """Of a panel of single values: `title`, `text`, `colour` (as the browser has it) of each."""
        return self.read("values", panel)

    def is_empty(self, panel):
        return self.page.locator(f'[data-panel="{panel["id"]}"] [data-empty]').count() > 0

    def colour(self, name):
        return self.page.evaluate("name => window.shown.colour(name)", name)


def seconds(span):
    return int(span[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[span[-1]]


def single(shown, panel):
    """Stat and bar gauge: a value for each query, its text and colour by the JSON's unit and thresholds."""
    found = [(target["legendFormat"], answer) for target, answer in zip(panel["targets"], shown.answers(panel))]
    values, coloured = shown.values(panel), 0
    want = [(legend, number) for legend, answer in found for _, number in answer]
    same("values", [value["title"] for value in values], [legend for legend, _ in want])
    for value, (legend, number) in zip(values, want):
        config = told(panel, legend, "n" if legend in counted(panel) else None)
        says(value["text"], number, config["unit"], f"{panel['title']}, {legend}")
        same(f"colour of {legend} at {number}", value["colour"], shown.colour(due(config, number)))
        coloured += 1
    return {"data": 1, "series": len(values), "values": len(values), "coloured": coloured}


def overridden(shown, panel):
    """Each override is for some field, unless it is for what is missing, or for a query that gives nothing now."""
    if not all(shown.answers(panel)):
        return
    counts = zip(panel["fieldConfig"]["overrides"], shown.read("overrides", panel))
    idle = [override for override, count in counts if not count]
    idle = [one["matcher"]["options"] for one in idle if {prop["id"] for prop in one["properties"]} != {"noValue"}]
    same("overrides for no field", idle, [])


def counted(panel):
    return {target["legendFormat"] for target in panel["targets"] if target["refId"] == "n"}


def told(panel, name, ref=None):
    """What the JSON says of a field, by its name or its query's letter."""
    config = dict(panel["fieldConfig"]["defaults"])
    for override in panel["fieldConfig"]["overrides"]:
        matcher = (override["matcher"]["id"], override["matcher"]["options"])
        if matcher in (("byName", name), ("byFrameRefID", ref)):
            config.update({prop["id"]: prop["value"] for prop in override["properties"]})
    return config


def due(config, number):
    """The colour's name that a number has by these thresholds."""
    if math.isnan(number):
        return config["mappings"][0]["options"]["result"]["color"]
    if config["color"]["mode"] == "fixed":
        return config["color"]["fixedColor"]
    return [
        step["color"] for step in config["thresholds"]["steps"] if step["value"] is None or number >= step["value"]
    ][-1]


def says(text, number, unit, what):
    """The text is that number in that unit, to the last digit it shows."""
    if number is None or math.isnan(number):
        return same(what, text, NOTHING)
    found = re.fullmatch(r"(-?[\d,]+)(\.\d+)?\s?([^\d.]*)", text)
    if not found or found[3] not in UNITS[unit]:
        raise Fault(f"{what}: {text!r} is no number in {unit}")
    factor, digits = UNITS[unit][found[3]], len(found[2] or ".") - 1
    shown = float(found[1].replace(",", "") + (found[2] or ""))
    if abs(shown * factor - number) > 0.501 * factor * 10**-digits:
        raise Fault(f"{what}: {text!r} is not {number}")
    return None


def over_time(shown, panel):
    """A line for each series, and a dashed line at each threshold that lies within the axis."""
    answers = shown.answers(panel)
    if nothing(shown, panel, answers):
        return {"data": 0}
    facts = shown.read("plot", panel)
    same("series", facts["series"], sum(map(len, answers)))
    hidden = len(answers[[target["refId"] for target in panel["targets"]].index("n")]) if counted(panel) else 0
    same("names in the legend", facts["legend"], facts["series"] - hidden)
    defaults = panel["fieldConfig"]["defaults"]
    dashed = defaults["custom"]["thresholdsStyle"]["mode"] == "dashed"
    steps = [step for step in defaults["thresholds"]["steps"] if step["value"] is not None] if dashed else []
    same("thresholds", [line["value"] for line in facts["lines"]], [step["value"] for step in steps])
    lines = [line for line in facts["lines"] if line["inside"]]
    # Half of a dashed line is gaps, and bars and other lines lie over it.
    missing = [line for line in lines if line["share"] < LEAST_SHARE]
    if missing or not facts["pixels"]:
        raise Fault(f"of {facts['pixels']} pixels none are the lines {missing}")
    return {"data": 1, "series": facts["series"], "lines": len(lines)}


def rows(shown, panel):
    """A row for each set of labels, and in each column the number of its query."""
    answers = shown.answers(panel)
    if nothing(shown, panel, answers):
        return {"data": 0}
    cells = shown.read("cells", panel)
    heads = next(one for one in panel["transformations"] if one["id"] == "organize")["options"]["renameByName"].values()
    keys = [head for head in cells["heads"] if head not in heads]
    same("columns", cells["heads"], [*keys, *heads])
    known = [{tuple(labels.get(key, "") for key in keys): number for labels, number in answer} for answer in answers]
    found = {
        tuple(cell["text"].replace(NO_LABEL, "") for cell in row[: len(keys)]): row[len(keys) :]
        for row in cells["rows"]
    }
    same("rows", sorted(found), sorted(set(itertools.chain(*known))))
    same("rows that are shown once", len(found), len(cells["rows"]))
    coloured = 0
    for key, row in found.items():
        for head, numbers, cell in zip(heads, known, row):
            config, number = told(panel, head), numbers.get(key)
            if config["unit"] == "dateTimeFromNow":
                continue
            says(cell["text"], number, config["unit"], f"{panel['title']}, {head} of {key}")
            if "custom.cellOptions" in config:
                name = due(config, math.nan if number is None else number)
                same(f"colour of {head} of {key}", cell["colour"], shown.colour(name))
                coloured += 1
    return {"data": 1, "series": len(found), "values": len(found) * len(known), "coloured": coloured}


def grouped(shown, panel):
    """A bar for each query at each name, with its number as text; drawn by us, its texts and colours by Grafana."""
    answers = shown.answers(panel)
    if nothing(shown, panel, answers):
        return {"data": 0}
    drawn, label = shown.read("bars", panel), panel["options"]["xField"]
    heads = next(one for one in panel["transformations"] if one["id"] == "organize")["options"]["renameByName"].values()
    want = {(labels[label], head): number for head, answer in zip(heads, answers) for labels, number in answer}
    same("bars", sorted((bar["at"], bar["field"]) for bar in drawn), sorted(want))
    for bar in drawn:
        says(
            bar["text"],
            want[bar["at"], bar["field"]],
            told(panel, bar["field"])["unit"],
            f"{panel['title']}, {bar['at']}",
        )
    return {"data": 1, "series": len(set(field for _, field in want)), "values": len(drawn)}


def heat(shown, panel):
    """A cell for each bucket and step in which something fell into it; drawn by us."""
    answers = shown.answers(panel)
    if nothing(shown, panel, answers):
        return {"data": 0}
    buckets = [dict(points) for _, points in sorted(answers[0], key=lambda series: float(series[0]["le"]))]
    filled = sum(
        count - below.get(at, 0) > panel["options"]["filterValues"]["le"]
        for below, bucket in zip([{}, *buckets], buckets)
        for at, count in bucket.items()
    )
    same("cells", shown.page.locator(f'[data-panel="{panel["id"]}"] [data-cell]').count(), filled)
    return {"data": 1, "series": len(buckets)}


def nothing(shown, panel, answers):
    """Whether the queries give no series, which the panel then has to say in the JSON's words."""
    if any(answers):
        return False
    same(
        "text",
        shown.page.locator(f'[data-panel="{panel["id"]}"] [data-empty]').inner_text(),
        panel["fieldConfig"]["defaults"]["noValue"],
    )
    return True


def same(what, found, expected):
    if found != expected:
        raise Fault(f"{what}: {found}, not {expected}")


PANELS = {
    "stat": single,
    "bargauge": single,
    "timeseries": over_time,
    "table": rows,
    "barchart": grouped,
    "heatmap": heat,
}
