"""What all boards have in common: variables, links, annotations, and the flow of panels into a grid."""

from .panels import SOURCE

WIDTH = 24
# The frame's own queries: series that exist from the start, so that a variable is never without a value.
JOBS = "label_values(streamgauge_build_info, job)"
UPSTREAMS = 'label_values(streamgauge_requests_started_total{job=~"$job"}, upstream)'
MODELS = 'label_values(streamgauge_requests_started_total{job=~"$job",upstream=~"$upstream"}, model)'
DEADLINES = 'label_values(streamgauge_ttft_deadline_total{job=~"$job"}, deadline)'
WORKLOADS = 'label_values(streamgauge_workload_ttft_seconds_count{job=~"$job"}, workload)'


def many(name, query, match):
    """A variable of which any number can be chosen; all, unless one is."""
    return {
        **one(name, query),
        "multi": True,
        "includeAll": True,
        "allValue": match,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def one(name, query, value=None, sort=1):
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "sort": sort,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "regex": "",
        "skipUrlSync": False,
        "current": {"selected": True, "text": value, "value": value} if value else {},
    }


DATASOURCE = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "refresh": 1,
    "hide": 0,
    "multi": False,
    "includeAll": False,
    "regex": "",
    "skipUrlSync": False,
    "current": {},
}
# A series without a model, or an alert without an upstream, is there under "All" too.
COMMON = [many("job", JOBS, ".+"), many("upstream", UPSTREAMS, ".*"), many("model", MODELS, ".*")]
DEADLINE = one("deadline", DEADLINES, "0.6", sort=3)
WORKLOAD = one("workload", WORKLOADS)


def annotation(name, expr, color, title, text, tags="", value_is_time=False):
    # Newer Grafanas read `target`, 10.4 the fields beside it.
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "iconColor": color,
        "expr": expr,
        "step": "60s",
        "target": {
            "datasource": SOURCE,
            "expr": expr,
            "interval": "60s",
            "refId": "Anno",
            "range": True,
            "instant": False,
        },
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": tags,
        "useValueForTime": value_is_time,
    }


OUR_ALERTS = 'alertname=~"LLM.*",upstream=~"$upstream|",model=~"$model|"'
ALERTING = f'ALERTS{{{OUR_ALERTS},alertstate="firing"}}'
SINCE = f"ALERTS_FOR_STATE{{{OUR_ALERTS}}}"
STARTED = 'process_start_time_seconds{job=~"$job"} * 1000'
ANNOTATIONS = [
    annotation("Alerts", ALERTING, "red", "{{alertname}}", "{{upstream}} {{model}}", "severity"),
    annotation("Starts", STARTED, "blue", "the gauge started", "{{instance}}", value_is_time=True),
]


def board(uid, title, question, since, variables, rows):
    """A dashboard. `rows`: heading → panels, which flow from left to right."""
    return {
        "uid": f"streamgauge-{uid}",
        "title": f"streamgauge / {title}",
        "description": question,
        "tags": ["streamgauge"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "weekStart": "",
        "fiscalYearStartMonth": 0,
        "refresh": "30s",
        "time": {"from": f"now-{since}", "to": "now"},
        "timepicker": {},
        "liveNow": False,
        "links": [links()],
        "annotations": {"list": ANNOTATIONS},
        "templating": {"list": [DATASOURCE, *COMMON, *variables]},
        "panels": list(placed(rows)),
    }


def links():
    return {
        "type": "dashboards",
        "title": "streamgauge",
        "tags": ["streamgauge"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def link(uid, title):
    """From a table's row to another board, with that row's upstream and model."""
    chosen = "var-upstream=${__data.fields.upstream}&var-model=${__data.fields.model}"
    return {"title": title, "url": f"/d/streamgauge-{uid}?{chosen}&var-job=${{job:queryparam}}&${{__url_time_range}}"}


def placed(rows):
    """The panels, numbered, each beside the one before or below what stands there."""
    x = y = height = number = 0
    for heading, panels in rows.items():
        y, x, number = y + height, 0, number + 1
        grid = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        yield {"type": "row", "title": heading, "id": number, "gridPos": grid, "collapsed": False, "panels": []}
        y, height = y + 1, 0
        for panel in panels:
            size = panel["gridPos"]
            if x + size["w"] > WIDTH:
                x, y, height = 0, y + height, 0
            number += 1
            yield {**panel, "id": number, "gridPos": {**size, "x": x, "y": y}}
            x, height = x + size["w"], max(height, size["h"])
