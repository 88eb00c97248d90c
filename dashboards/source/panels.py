"""Panels of Grafana's classic JSON: only what our boards need of it."""

from .catalogue import FAMILIES, PREFIX

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Grey, or it would have the lowest threshold's colour, which is the best or the worst.
NOTHING = {"text": "no traffic", "color": "#8e8e8e", "index": 0}
NO_LABEL = "–"
IDLE = [{"type": "special", "options": {"match": "null+nan", "result": NOTHING}}]
# What feels instant, fine, noticed, broken. In seconds.
TTFT_STEPS = (("green", None), ("yellow", 0.3), ("orange", 0.6), ("red", 1))
GOOD_SHARE = (("red", None), ("orange", 0.9), ("yellow", 0.95), ("green", 0.99))
NEUTRAL = (("text", None),)
# Up to where an axis goes at least, or Grafana draws one of 0 to 100 for values that are all 0, which is 10,000 %.
LEAST_AXIS = {"s": 0.01, "percentunit": 0.05}
LETTERS = "ABCDEFGHIJKLMOPQRSTUVWXYZ"  # of queries; `samples` have N


def about(*parts):
    """A panel's description: for a family's name what its own HELP says of both ends, and sentences as they are."""
    return " ".join(FAMILIES[PREFIX + part].help if PREFIX + part in FAMILIES else part for part in parts if part)


def query(expr, legend="", ref=None, **more):
    return {"expr": expr, "legendFormat": legend or "__auto", "refId": ref, **more}


def now(expr, legend="", ref=None, **more):
    """One value for the end of the range, instead of a series."""
    return query(expr, legend, ref, instant=True, range=False, **more)


def samples(expr, legend="n"):
    """How many samples are behind the panel's other queries."""
    return query(expr, legend, "n")


def panel(
    kind, title, description, queries, unit, steps=NEUTRAL, custom=None, options=None, overrides=(), w=12, h=8, **more
):
    """What all kinds share. Queries without a letter get one, in their order. `w` and `h` are of a grid 24 wide."""
    letters = iter(LETTERS)
    targets = [{"datasource": SOURCE, "editorMode": "code", "range": True, **asked} for asked in queries]
    for target in targets:
        target["refId"] = target["refId"] or next(letters)
    decimals = more.pop("decimals", None)
    least, color = more.pop("least", None), more.pop("color", "thresholds" if len(steps) > 1 else "palette-classic")
    defaults = {
        "unit": unit,
        "color": {"mode": color},
        "mappings": IDLE,
        "noValue": more.pop("none", "no traffic"),
        "thresholds": {"mode": "absolute", "steps": [{"color": hue, "value": value} for hue, value in steps]},
        "custom": custom or {},
    }
    if least is not None:
        defaults["min"] = least
    if decimals is not None:
        defaults["decimals"] = decimals
    return {
        "type": kind,
        "title": title,
        "description": description,
        "gridPos": {"h": h, "w": w},
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options or {},
        **more,
    }


def named(name, *properties):
    """What holds for the field of that name."""
    return {"matcher": {"id": "byName", "options": name}, "properties": list(properties)}


def matching(pattern, *properties):
    """What holds for fields in whose name this is found; without the slashes it would have to be the whole name."""
    return {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": list(properties)}


def asked_by(ref, *properties):
    """What holds for all fields of one query."""
    return {"matcher": {"id": "byFrameRefID", "options": ref}, "properties": list(properties)}


def prop(name, value):
    return {"id": name, "value": value}


def hue(name):
    return prop("color", {"mode": "fixed", "fixedColor": name})


def fixed(hues):
    """Overrides that give fields their colours."""
    return [named(name, hue(color)) for name, color in hues.items()]


DASHED = prop("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})
GREY = hue("#8e8e8e")
COUNTED = [prop("unit", "locale"), prop("decimals", 0)]
REDUCED = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def stat(title, description, value, n=None, unit="s", steps=NEUTRAL, **more):
    """A number, and beside it how many samples it is made of. `value` and `n` are (legend, expression)."""
    queries = [now(value[1], value[0])] + ([now(n[1], n[0], "n")] if n else [])
    quiet = [asked_by("n", GREY, *COUNTED)] if n else []
    options = {
        "reduceOptions": REDUCED,
        "textMode": "value_and_name",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "vertical",
    }
    more = {"w": 6, "h": 4, **more}
    return panel(
        "stat", title, description, queries, unit, steps, options=options, overrides=quiet, color="thresholds", **more
    )


def series(title, description, queries, unit="s", steps=NEUTRAL, stack=None, log=False, width=1, fill=0, **more):
    """Lines over time; a query made by `samples` becomes grey bars on an axis of its own, named in the tooltip."""
    custom = {
        **({} if log else {"axisSoftMax": LEAST_AXIS.get(unit, 1)}),
        "drawStyle": "line",
        "lineWidth": width,
        "fillOpacity": fill,
        "showPoints": "auto",
        "pointSize": 4,
        "spanNulls": False,
        "axisPlacement": "auto",
        "stacking": {"mode": stack or "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "thresholdsStyle": {"mode": "dashed" if len(steps) > 1 else "off"},
    }
    bars = [
        GREY,
        *COUNTED,
        prop("custom.drawStyle", "bars"),
        prop("custom.lineWidth", 0),
        prop("custom.fillOpacity", 18),
        prop("custom.axisPlacement", "right"),
        prop("custom.axisLabel", "samples"),
        prop("custom.axisGridShow", False),
        prop("custom.stacking", {"mode": "normal", "group": "n"}),
        prop("custom.scaleDistribution", {"type": "linear"}),
        prop("custom.thresholdsStyle", {"mode": "off"}),
        prop("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    counted = any(asked["refId"] == "n" for asked in queries)
    overrides = [*more.pop("overrides", ()), *([asked_by("n", *bars)] if counted else [])]
    more.setdefault("color", "palette-classic")
    if not log:
        more.setdefault("least", 0)
    return panel("timeseries", title, description, queries, unit, steps, custom, options, overrides, **more)


def classes(title, description, by_class, unit="s", steps=NEUTRAL, **more):
    """A bar for each class of a label, in the label's own order. `by_class`: legend → expression."""
    queries = [now(expr, legend) for legend, expr in by_class.items()]
    options = {
        "reduceOptions": REDUCED,
        "orientation": "horizontal",
        "displayMode": "basic",
        "showUnfilled": True,
        "minVizWidth": 0,
        "minVizHeight": 10,
        "valueMode": "color",
    }
    more.setdefault("least", 0)
    return panel("bargauge", title, description, queries, unit, steps, options=options, color="thresholds", **more)


def bars(title, description, queries, unit="s", by="name", order=None, stack="none", apart=None, **more):
    """A group of bars for each value of the label `by`, in the order of a column: one bar a query.

    They are asked as tables and merged. The query called `apart` counts samples and goes by a scale of its own.
    """
    asked = [now(expr, legend, format="table") for legend, expr in queries.items()]
    transformations = [
        {"id": "merge", "options": {}},
        organized(queries, [by]),
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": order or by}]}},
    ]
    options = {
        "xField": by,
        "orientation": "horizontal" if by == "name" else "vertical",
        "stacking": stack,
        "showValue": "auto",
        "barWidth": 0.8,
        "groupWidth": 0.8,
        "xTickLabelRotation": 0,
        "xTickLabelSpacing": 0,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "none"},
    }
    custom = {"lineWidth": 1, "fillOpacity": 70, "axisPlacement": "auto"}
    aside = [GREY, *COUNTED, prop("custom.axisPlacement", "hidden"), prop("custom.fillOpacity", 15)]
    overrides = [named(apart, *aside)] if apart else []
    more.setdefault("least", 0)
    return panel("barchart", title, description, asked, unit, custom=custom, options=options, overrides=overrides,
                 transformations=transformations, **more)  # fmt: skip


def heatmap(title, description, expr, unit="s", **more):
    """How many samples fell into each bucket, over time."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": "short", "decimals": 0},
        "color": {"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange", "scale": "exponential", "exponent": 0.5,
                  "reverse": False, "steps": 64},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"show": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }  # fmt: skip
    asked = [query(expr, "{{le}}", format="heatmap")]
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}}
    return panel("heatmap", title, description, asked, unit, custom=custom, options=options, **more)


def table(title, description, columns, keys=("upstream", "model"), order=None, links=(), **more):
    """A row for each value of `keys`. `columns`: head → (expression, unit, decimals, thresholds)."""
    asked = [now(column[0], head, format="table") for head, column in columns.items()]
    overrides = [named(head, *cell(*column[1:])) for head, column in columns.items()]
    # A label that a row does not have is no missing number.
    overrides += [named(key, prop("noValue", NO_LABEL)) for key in keys]
    overrides.append(named(keys[0], prop("custom.minWidth", 170)))  # the longest names
    if links:
        overrides.append(named(keys[0], prop("links", list(links))))
    transformations = [{"id": "merge", "options": {}}, organized(columns, keys)]
    sort = [{"displayName": order or next(iter(columns)), "desc": True}]
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": sort,
        "footer": {"show": False, "reducer": ["sum"], "fields": ""},
    }
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True, "minWidth": 90}
    return panel("table", title, description, asked, "short", custom=custom, options=options, overrides=overrides,
                 transformations=transformations, **more)  # fmt: skip


def cell(unit, decimals=None, steps=None):
    properties = [prop("unit", unit)] + ([prop("decimals", decimals)] if decimals is not None else [])
    if steps:
        found = {"mode": "absolute", "steps": [{"color": hue, "value": value} for hue, value in steps]}
        properties += [
            prop("thresholds", found),
            prop("color", {"mode": "thresholds"}),
            prop("custom.cellOptions", {"type": "color-text"}),
        ]
    return properties


def organized(heads, keys):
    """Merged tables with their columns in order and by name."""
    values = {f"Value #{letter}" if len(heads) > 1 else "Value": head for letter, head in zip(LETTERS, heads)}
    order = {name: place for place, name in enumerate([*keys, *values])}
    left_out = {"Time": True, "__name__": True}
    return {"id": "organize", "options": {"excludeByName": left_out, "indexByName": order, "renameByName": values}}
