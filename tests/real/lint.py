"""Dashboards by the rules of Grafana's dashboard-linter and our own: each rule holds, and finds what is broken on purpose.

Names, labels, label values and bounds of every query are held against the program's live /metrics and the recording rules.
"""

import copy
import re
from collections import Counter

from grafana_foundation_sdk.models import units

import grafana
import promql
from monitoring import fetch
from parts import check
from promql import FAMILIES, PREFIX


UNITS = {value for value in vars(units).values() if isinstance(value, str)}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
BUILT_IN = {"__rate_interval", "__interval", "__range", "__data", "__url_time_range"}
# These count, or are one reading of a gauge: there are no samples behind them to say.
NO_SAMPLES = {
    "Alerts that fire now": "a list",
    "Share of all time, by stage": "a sum, beside the panel that has their number",
    "What is left of the provider's limits": "the provider's own number",
    "What the gauge could not read or keep": "counters",
    "The gauge's processor and its scrapes": "one reading a scrape",
    "The gauge's memory": "one reading a scrape",
    "Series and descriptors": "one reading a scrape",
    "TTFT, median by prompt length": "the panel behind it has them",
    "TTFT, median by requests in flight": "the panel behind it has them",
    "How much slower than alone": "the panel before it has them",
    "Output speed, median by answer length": "the panel behind it has them",
    "Time for 500 output tokens of $workload": "the two panels before it have them",
}


def prove(parts):
    _, upstream = parts.sim()
    gauge = parts.gauge(upstream)
    live = fetch(f"http://127.0.0.1:{gauge.admin}/metrics").decode()
    check("the page the boards are made from says what the program exposes", not drift(live), drift(live))
    boards, known = grafana.dashboards(), promql.vocabulary(live, grafana.rule_groups())
    uids = {name: board["uid"] for name, board in boards.items()}
    check("there are the boards that alerts link to", uids == grafana.UIDS)
    found = [f"{name}: {fault}" for name, board in boards.items() for fault in faults(board, known)]
    check("no board has a fault", not found, "; ".join(found[:20]))
    titles = {panel["title"] for board in boards.values() for panel in grafana.panels(board)}
    check("panels that are excused from a number of samples are there", NO_SAMPLES.keys() <= titles, NO_SAMPLES.keys() - titles)
    unused = set(FAMILIES) - named(boards)
    check("every family is on a board, or said not to be", unused == set(NOT_SHOWN), sorted(unused ^ set(NOT_SHOWN)))
    for name, (spoil, rule) in BROKEN.items():
        board = copy.deepcopy(boards["overview"])
        spoil(board)
        said = faults(board, known)
        check(f"{name}: is found", any(re.search(rule, fault) for fault in said), f"only {said}")
    kinds = Counter(panel["type"] for board in boards.values() for panel in grafana.panels(board))
    by_kind = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    print(f"\n    {len(boards)} boards, {sum(kinds.values())} panels ({by_kind}), "
          f"{len(grafana.queries(boards))} queries; {len(BROKEN)} boards broken on purpose")  # fmt: skip


NOT_SHOWN = {
    "streamgauge_build_info": "the variables' own",
    "streamgauge_config_last_reload_successful": "there is no reloading by itself to watch",
    "streamgauge_config_last_reload_timestamp_seconds": "the same",
    "streamgauge_unobserved_requests_total": "of routes that are not measured on purpose there is nothing else to show beside it",
}


def named(boards):
    """The families that queries name, themselves or by a part of a histogram or a rule made of them."""
    text = " ".join(query.target["expr"] for query in grafana.queries(boards)).replace("streamgauge:", PREFIX)
    words = set(re.findall(rf"{PREFIX}\w+", text))
    return {name for name in FAMILIES if {name, name + "_bucket", name + "_count", name + "_sum"} & words}


def drift(live):
    """How a live /metrics differs from docs/metrics.md: families, labels, bounds."""
    said, shown = [], set()
    for line in live.splitlines():
        series = re.match(rf"({PREFIX}\w+)(?:\{{(.*)\}})? ", line)
        if not series:
            continue
        family = FAMILIES.get(series[1]) or FAMILIES.get(re.sub(r"_(bucket|sum|count)$", "", series[1]))
        if not family:
            said.append(f"{series[1]} is not on the page")
            continue
        shown.add(family.name)
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', series[2] or ""))
        bound = labels.pop("le", None)
        if bound and bound not in {promql.le(limit) for limit in [*family.bounds, float("inf")]}:
            said.append(f"{family.name} has no bound {bound}")
        if labels.keys() != family.labels.keys():
            said.append(f"{family.name} has the labels {sorted(labels)}")
        for name, value in labels.items():
            if family.labels.get(name) and value not in family.labels[name]:
                said.append(f"{family.name} has {name}={value}")
    # `whole` is of configured models; of these families there is at least one label set, or none is needed.
    said += [f"{name} is not exposed" for name in REGARDLESS - shown]
    return said


REGARDLESS = {name for name, family in FAMILIES.items() if family.whole and "model" not in family.labels}


def faults(board, known):
    """What a board's rules say against it."""
    return [
        *frame_faults(board),
        *asked_faults(board, known),
        *(fault for panel in grafana.panels(board) for fault in panel_faults(board, panel, known)),
    ]


def frame_faults(board):
    by_name = {variable["name"]: variable for variable in grafana.variables(board)}
    if board.get("editable") is not False:
        yield "editable"
    if board.get("schemaVersion") != 39:
        yield "schemaVersion is not 39"
    if by_name.get("datasource", {}).get("query") != "prometheus":
        yield "no datasource variable"
    for name, match in (("job", ".+"), ("upstream", ".*"), ("model", ".*")):
        variable = by_name.get(name, {})
        if not (variable.get("multi") and variable.get("includeAll") and variable.get("allValue") == match):
            yield f"variable {name} is not for all"
    for name, variable in by_name.items():
        if variable["type"] == "query" and not (variable["refresh"] == 2 and variable["datasource"] == SOURCE):
            yield f"variable {name} is not read anew"
    used = set(
        re.findall(r"\$\{?([a-z_]\w*)", str([board["panels"], board["annotations"], *map(without_name, by_name.values())]))
    )
    yield from (f"no variable {name}" for name in used - set(by_name) - BUILT_IN)
    yield from (f"variable {name} is not used" for name in set(by_name) - used)
    yield from (f"{one!r} lies on {other!r}" for one, other in grafana.overlaps(board))
    for what in ("id", "title"):
        counted = Counter(panel[what] for panel in board["panels"])
        yield from (f"{what} {value!r} is there {n} times" for value, n in counted.items() if n > 1)
    for panel in board["panels"]:
        grid = panel["gridPos"]
        if grid["x"] < 0 or grid["x"] + grid["w"] > 24:
            yield f"{panel['title']!r} is outside the grid"
    if not any(link["keepTime"] and link["includeVars"] for link in board["links"]):
        yield "no link to the other boards"


def asked_faults(board, known):
    """What annotations and variables ask."""
    for annotation in board["annotations"]["list"]:
        labels, said = promql.read(annotation["expr"], known)
        named = re.findall(r"\{\{(\w+)\}\}", annotation["titleFormat"] + annotation["textFormat"])
        said += [f"nothing in it has the label {name}" for name in named if name not in labels]
        yield from (f"annotation {annotation['name']}: {fault}" for fault in said)
        if annotation["target"]["expr"] != annotation["expr"] or annotation["datasource"] != SOURCE:
            yield f"annotation {annotation['name']} asks for two things, or a fixed data source"
    for variable in grafana.variables(board):
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            labels, said = promql.read(asked[1], known)
            said += [f"it has no label {asked[2]}"] if asked[2] not in labels else []
            yield from (f"variable {variable['name']}: {fault}" for fault in said)


def without_name(variable):
    return [variable.get("query"), variable.get("regex")]


def panel_faults(board, panel, known):
    where = f"panel {panel['title']!r}"
    if not panel["title"]:
        yield f"{where} has no title"
    if len(panel.get("description", "")) < 40:
        yield f"{where} has no description"
    default = panel["fieldConfig"]["defaults"]
    if default.get("unit") not in UNITS and not default.get("unit", "").startswith("suffix:"):
        yield f"{where} has no unit that Grafana knows"
    if default["unit"] == "s" and not re.search(r"\bfrom\b.* to\b", panel["description"], re.I | re.S):
        yield f"{where} does not say from what to what its time is"
    if not any("no " in str(text) for text in (default.get("noValue"), default.get("mappings"))):
        yield f"{where} says nothing where there is no traffic"
    refs = [target["refId"] for target in panel["targets"]]
    if len(set(refs)) != len(refs):
        yield f"{where} has a refId twice"
    if not counts(panel) and panel["title"] not in NO_SAMPLES:
        yield f"{where} does not say how many samples it has"
    for target in panel["targets"]:
        yield from (f"{where}, query {target['refId']}: {fault}" for fault in target_faults(panel, target, known))


def counts(panel):
    """Whether a number of samples is in a panel: a query of its own, a column, or all of it."""
    if panel["type"] == "heatmap" or panel["title"].startswith("Samples, "):
        return True
    heads = {head for step in panel.get("transformations", []) for head in step["options"].get("renameByName", {}).values()}
    return bool({"n", "requests"} & ({target["refId"] for target in panel["targets"]} | heads))


def target_faults(panel, target, known):
    expr = target["expr"]
    if panel["datasource"] != SOURCE or target["datasource"] != SOURCE:
        yield "not the datasource variable"
    labels, said = promql.read(expr, known)
    yield from said
    for function, over in re.findall(r"\b(rate|irate|increase|delta)\s*\([^\[\]]*\[([^\]]+)\]", expr):
        if over != "$__rate_interval" and not (function == "increase" and over == "$__range"):
            yield f"{function}() over {over}"
    if bool(target.get("instant")) != ("$__range" in expr or panel["type"] in ("stat", "table", "bargauge", "barchart")):
        yield "a range where an instant is meant, or the other way round"
    for selector in re.findall(rf"{PREFIX}\w+(\{{[^}}]*\}}|)", expr):
        if 'job=~"$job"' not in selector:
            yield f"no job in {selector or 'a selector'}"
    for name in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        if name not in labels:
            yield f"its legend names the label {name}, which it does not have"
    if target.get("exemplar"):
        families = [FAMILIES.get(name.replace("_bucket", "")) for name in re.findall(rf"{PREFIX}\w+", expr)]
        if not all(family and family.exemplars for family in families):
            yield "asks for exemplars where there are none"
    if target.get("format") == "table":
        columns = next(step["options"] for step in panel["transformations"] if step["id"] == "organize")["indexByName"]
        keys = {name for name in columns if not name.startswith("Value")}
        if labels.keys() != keys:
            yield f"its columns are {sorted(labels)}, not {sorted(keys)}"


# --- broken on purpose ---------------------------------------------------------------------------------------------------


def query(board):
    """The first query over time of the board."""
    return next(panel for panel in grafana.panels(board) if panel["type"] == "timeseries")["targets"][0]


def replaced(old, new):
    def spoil(board):
        target = query(board)
        assert old in target["expr"], target["expr"]
        target["expr"] = target["expr"].replace(old, new)

    return spoil


def first(board, **changes):
    grafana.panels(board)[0].update(changes)


def variable(board, name, **changes):
    next(one for one in grafana.variables(board) if one["name"] == name).update(changes)


def spoil_annotation(board, expr):
    board["annotations"]["list"][0]["expr"] = expr


def moved(board):
    grafana.panels(board)[1]["gridPos"] = dict(grafana.panels(board)[0]["gridPos"])


BROKEN = {
    "a name nothing exposes": (replaced("ttft_seconds", "tttf_seconds"), "nothing exposes"),
    "a label the family has not": (replaced("model=~", "modell=~"), "no label modell"),
    "a label in by () that nothing has": (replaced("by (le)", "by (le, phase)"), "names the label phase"),
    "a bound there is not": (replaced("model=~", 'le="1",model=~'), "no le='1'"),
    "a quantile without le": (replaced("by (le)", "by (model)"), "without le"),
    "a rate of a gauge": (replaced("ttft_seconds_bucket", "in_flight"), "no counter"),
    "a join that never matches": (
        replaced("histogram", "sum by (upstream) (streamgauge_in_flight) / histogram"),
        "never matches",
    ),
    "no PromQL": (replaced("histogram_quantile(", "histogram_quantile(("), "no PromQL"),
    "a fixed window": (replaced("$__rate_interval", "5m"), r"rate\(\) over 5m"),
    "a selector without the job": (replaced('job=~"$job",', ""), "no job"),
    "a value that is none of a label's": (
        lambda board: query(board).update(expr='streamgauge_requests_total{job=~"$job",outcome="done"}'),
        "no outcome='done'",
    ),
    "a legend with a label that is gone": (lambda board: query(board).update(legendFormat="{{model}}"), "its legend names"),
    "a fixed data source": (lambda board: query(board).update(datasource={"type": "prometheus", "uid": "x"}), "datasource"),
    "exemplars of a family without": (replaced("ttft_seconds", "ttfb_seconds"), "exemplars where"),
    "no description": (lambda board: first(board, description=""), "no description"),
    "a description that names no ends": (lambda board: first(board, description="How slow it is. " * 5), "from what to what"),
    "no title": (lambda board: first(board, title=""), "no title"),
    "a unit Grafana does not know": (
        lambda board: grafana.panels(board)[0]["fieldConfig"]["defaults"].update(unit="sec"),
        "no unit",
    ),
    "no sample count": (lambda board: grafana.panels(board)[0]["targets"].pop(), "how many samples"),
    "two queries of one name": (lambda board: grafana.panels(board)[0]["targets"][1].update(refId="A"), "refId twice"),
    "panels on each other": (moved, "lies on"),
    "panels of one number": (lambda board: first(board, id=3), "id 3 is there 2 times"),
    "a board that can be edited": (lambda board: board.update(editable=True), "editable"),
    "a model that can't be all": (lambda board: variable(board, "model", includeAll=False), "variable model is not for all"),
    "a variable nobody uses": (
        lambda board: board["templating"]["list"].append({**grafana.variables(board)[1], "name": "pod"}),
        "pod is not used",
    ),  # fmt: skip
    "a variable that is not there": (replaced("$upstream", "$provider"), "no variable provider"),
    "a variable read once": (lambda board: variable(board, "model", refresh=1), "not read anew"),
    "an annotation of nothing": (
        lambda board: spoil_annotation(board, "streamgauge_starts_total"),
        "annotation Alerts: nothing exposes",
    ),
    "a variable of a label that is not": (
        lambda board: variable(board, "model", query={"query": "label_values(streamgauge_in_flight, modell)"}),
        "no label modell",
    ),
    "no way to the other boards": (lambda board: board.update(links=[]), "no link"),
}
