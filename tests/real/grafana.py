"""What Grafana makes of a dashboard before anything is drawn: its queries, with its variables put in."""

import itertools
import json
import re
from collections import namedtuple

import yaml

from parts import HERE

FOLDER = HERE.parent.parent / "dashboards"
# The names of files in dashboards/ and the uids that alerts and other boards link to.
UIDS = {
    "overview": "streamgauge-overview",
    "anatomy": "streamgauge-anatomy",
    "providers": "streamgauge-providers",
    "capacity": "streamgauge-capacity",
}
# One query of a panel; `board` is the file's name.
Query = namedtuple("Query", "board panel target")


def dashboards(folder=FOLDER):
    """Name → dashboard, of every file there is."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def rule_groups(folder=FOLDER):
    return [group for path in sorted(folder.glob("rules/*.yml")) for group in yaml.safe_load(path.read_text())["groups"]]


def panels(board):
    """Its panels without the headings between them."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(boards):
    return [
        Query(name, panel, target) for name, board in boards.items() for panel in panels(board) for target in panel["targets"]
    ]


def variables(board):
    return board["templating"]["list"]


def filled(text, board, chosen, span="1h", step="15s", rate="1m"):
    """The text with variables put in as Grafana's Prometheus data source does it; `chosen`: name → value or list of values.

    Of a variable of which several can be chosen, values are regular expressions, so what is special in them is escaped.
    """
    known = {variable["name"]: variable for variable in variables(board)}
    given = {"__rate_interval": rate, "__interval": step, "__range": span}

    def value(found):
        name = found[1] or found[2]
        if name in given:
            return given[name]
        picked = chosen[name]
        if not (known[name]["multi"] or known[name]["includeAll"]):
            return picked.replace("\\", "\\\\").replace("'", "\\\\'")
        if picked == "$__all":
            return known[name]["allValue"]
        several = [escaped(one) for one in ([picked] if isinstance(picked, str) else picked)]
        return several[0] if len(several) == 1 else f"({'|'.join(several)})"

    return re.sub(r"\$([a-z_]\w*)|\$\{([a-z_]\w*)\}", value, text)


def escaped(value):
    """For a regular expression in a PromQL string, in which a backslash is two."""
    return re.sub(r"[$^*{}\[\]+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def overlaps(board):
    """Pairs of panels that lie on each other, by their titles."""
    for one, other in itertools.combinations(board["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        if all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h"))):
            yield one["title"], other["title"]
