"""Dashboards by Grafana's own schema: read by its foundation SDK and written again, nothing is lost or changed.

What the SDK's types don't know they drop, so a key that is misspelt or in the wrong place is missing afterwards.
"""

import copy
import json
import re

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

import grafana
from parts import check

# What the Prometheus data source puts into annotations is in no schema of Grafana's; its source reads these names.
OUTSIDE = r"\.annotations\.list\[\]\.(step|titleFormat|textFormat|tagKeys|useValueForTime|target\.\w+)$"


def prove(_):
    plugins.register_default_plugins()
    boards = grafana.dashboards()
    known = 0
    for name, board in boards.items():
        said = sorted({change for path, change in changes(board, again(board)) if not re.search(OUTSIDE, path)})
        check(f"{name}: nothing is lost or changed", not said, "; ".join(said[:20]))
        known += sum(1 for _ in leaves(board))
    for name, (spoil, path) in MISSPELT.items():
        board = copy.deepcopy(boards["overview"])
        spoil(grafana.panels(board))
        lost = [at for at, _ in changes(board, again(board))]
        check(f"{name}: is found", path in lost, f"only {lost}")
    print(f"\n    {len(boards)} boards, {known} values went through; {len(MISSPELT)} misspelt on purpose")


MISSPELT = {
    "a field's setting": (lambda panels: default(panels).update(unitt="s"), ".panels[].fieldConfig.defaults.unitt"),
    "a panel's option": (lambda panels: panels[0]["options"].update(graphMod="none"), ".panels[].options.graphMod"),
    "a query's setting": (lambda panels: panels[0]["targets"][0].update(exprr="1"), ".panels[].targets[].exprr"),
    "a line's setting": (
        lambda panels: over_time(panels)["custom"].update(fill=1),
        ".panels[].fieldConfig.defaults.custom.fill",
    ),
}


def default(panels):
    return panels[0]["fieldConfig"]["defaults"]


def over_time(panels):
    return next(panel for panel in panels if panel["type"] == "timeseries")["fieldConfig"]["defaults"]


def again(board):
    """The board, through the SDK's types and back."""
    return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))


def changes(one, other, path=""):
    """Pairs of a place and what became of it."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key, value in one.items():
            if key in other:
                yield from changes(value, other[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}", f"{path}.{key} is lost"
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for value, back in zip(one, other):
            yield from changes(value, back, f"{path}[]")
    elif one != other:
        yield path, f"{path}: {one!r} became {other!r}"


def leaves(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not inner:
        yield value
    for one in inner:
        yield from leaves(one)
