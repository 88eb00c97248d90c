"""Holds a PromQL expression against what there is: names, labels, label values, bounds, and joins that can match.

`vocabulary` knows the gauge's families (docs/metrics.md, and a live /metrics) and what recording rules make of them; `faults`
says what in an expression is not so. Panels and rules go through the same two.
"""

import re
import sys
from collections import namedtuple

import promql_parser as ast

from parts import HERE

sys.path.insert(0, str(HERE.parent.parent / "dashboards"))
from source.catalogue import FAMILIES, PREFIX  # noqa: E402, F401

# What a name's series have. `labels`: name → the values there can be, None: any. `counts`: it only rises, for rate().
Series = namedtuple("Series", "labels counts")
TARGET = {"job": None, "instance": None}
ALERT = ("alertname", "severity", "upstream", "model")
# What Prometheus itself makes, and what stands beside the gauge where it is scraped too.
FOREIGN = {
    **{name: Series(TARGET, False) for name in ("up", "scrape_duration_seconds", "scrape_samples_scraped")},
    "ALERTS": Series({**dict.fromkeys((*ALERT, "alertstate")), **TARGET}, False),
    "ALERTS_FOR_STATE": Series({**dict.fromkeys(ALERT), **TARGET}, False),
    "vllm:time_to_first_token_seconds_bucket": Series({"model_name": None, "engine": None, "le": None, **TARGET}, True),
    "vllm:time_to_first_token_seconds_count": Series({"model_name": None, "engine": None, **TARGET}, True),
}
NEEDS_COUNTER = {"rate", "irate", "increase", "resets"}
KEEPS_ALL = {"topk", "bottomk", "limitk"}
VARIABLES = {"$__rate_interval": "4m", "$__interval": "1m", "$__range": "6h"}


def le(bound):
    """The bound as /metrics spells it."""
    return "+Inf" if bound == float("inf") else repr(float(bound))


def vocabulary(live, groups=()):
    """Name → `Series`: of the gauge whose /metrics said `live`, of rule groups as YAML reads them, and of others."""
    known = dict(FOREIGN)
    for family in FAMILIES.values():
        labels = {**TARGET, **{name: values and set(values) for name, values in family.labels.items()}}
        if family.kind == "histogram":
            bounds = {le(bound) for bound in [*family.bounds, float("inf")]}
            known[family.name + "_bucket"] = Series({**labels, "le": bounds}, True)
            known.update({family.name + end: Series(labels, True) for end in ("_sum", "_count")})
        else:
            known[family.name] = Series(labels, family.kind == "counter")
    for name, kind in re.findall(r"^# TYPE (process_\w+) (\w+)$", live, re.M):
        known[name] = Series(TARGET, kind == "counter")
    # Configured, so no page has them; each configured model has its series from the start.
    deadlines = set(re.findall(r'^streamgauge_ttft_deadline_total\{.*deadline="([^"]+)"', live, re.M))
    known["streamgauge_ttft_deadline_total"].labels["deadline"] = deadlines
    return known | recorded(groups, known)


def recorded(groups, known):
    """What recording rules make; in any order, as a rule may read a later group's."""
    waiting = [rule for group in groups for rule in group["rules"] if "record" in rule]
    made = {}
    while waiting:
        ready = [rule for rule in waiting if not unknown_names(rule["expr"], known | made)]
        if not ready:
            break  # what they name is nowhere: `faults` says so of each
        for rule in ready:
            labels, _ = Reader(known | made).read(ast.parse(rule["expr"]))
            made[rule["record"]] = Series({**labels, **{name: None for name in rule.get("labels", {})}}, False)
        waiting = [rule for rule in waiting if rule not in ready]
    return made


def unknown_names(expr, known):
    return {selector.name for selector in selectors(ast.parse(expr))} - set(known)


def selectors(tree):
    found = []
    ast.walk(tree, lambda node: found.append(node) if isinstance(node, ast.VectorSelector) else None)
    return found


def plain(expr):
    """With values for Grafana's own variables, which stand where PromQL wants a duration."""
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    return expr


def faults(expr, known):
    """What is wrong with an expression, as sentences; none if it can be right."""
    return read(expr, known)[1]


def read(expr, known):
    """The labels of what an expression yields, and what is wrong with it."""
    try:
        tree = ast.parse(plain(expr))
    except ValueError as fault:
        return {}, [f"is no PromQL: {fault}"]
    reader = Reader(known)
    labels, _ = reader.read(tree)
    return labels, reader.faults


class Reader:
    """Follows an expression from its leaves up: which labels each part has, and whether it is a vector at all."""

    def __init__(self, known):
        self.known, self.faults = known, []

    def read(self, node):
        """The labels of what a node yields, and whether it is a vector."""
        for kind, way in self.WAYS.items():
            if isinstance(node, kind):
                return way(self, node)
        return {}, False  # a number or a text

    def fault(self, text):
        if text not in self.faults:
            self.faults.append(text)

    def selector(self, node):
        if node.name not in self.known:
            self.fault(f"nothing exposes or records {node.name}")
            return dict.fromkeys(("upstream", "model", "le")), True
        labels = self.known[node.name].labels
        for matcher in node.matchers.matchers:
            self.matcher(node.name, labels, matcher)
        return dict(labels), True

    def matcher(self, name, labels, matcher):
        if matcher.name not in labels:
            return self.fault(f"{name} has no label {matcher.name}")
        values = labels[matcher.name]
        if values is None or "$" in matcher.value:
            return None
        if matcher.op in (ast.MatchOp.Equal, ast.MatchOp.NotEqual):
            if matcher.value not in values:
                self.fault(f"{name} has no {matcher.name}={matcher.value!r}")
        else:
            for part in [matcher.value] if "(" in matcher.value else matcher.value.split("|"):
                if not any(re.fullmatch(part, value) for value in values):
                    self.fault(f"{name} has no {matcher.name} that {part!r} matches")
        return None

    def matrix(self, node):
        return self.selector(node.vector_selector)

    def inner(self, node):
        return self.read(node.expr)

    def call(self, node):
        name = node.func.name
        read = [self.read(part) for part in node.args]
        vectors = [labels for labels, vector in read if vector]
        labels = dict(vectors[0]) if vectors else {}
        if name in NEEDS_COUNTER:
            for selector in selectors(node):
                if selector.name in self.known and not self.known[selector.name].counts:
                    self.fault(f"{name}() of {selector.name}, which is no counter")
        if name == "histogram_quantile":
            if "le" not in labels:
                self.fault("histogram_quantile() of something without le")
            labels.pop("le", None)
        if name in ("label_replace", "label_join"):
            target, *sources = (part.val for part in node.args[1:] if isinstance(part, ast.StringLiteral))
            sources = sources[1:2] if name == "label_replace" else sources[1:]
            self.needs(filter(None, sources), labels, name)  # none: a label that is always there
            labels[target] = None
        return labels, name not in ("scalar", "time", "pi")

    def aggregate(self, node):
        labels, _ = self.read(node.expr)
        op = str(node.op)
        if node.modifier is None:
            kept = labels if op in KEEPS_ALL else {}
        else:
            self.needs(node.modifier.labels, labels, op)
            named = set(node.modifier.labels)
            by = node.modifier.type == ast.AggModifierType.By
            kept = labels if op in KEEPS_ALL else {name: labels[name] for name in labels if (name in named) == by}
        if op == "count_values":
            kept = {**kept, node.param.val: None}
        return dict(kept), True

    def needs(self, names, labels, who):
        for name in names:
            if name not in labels:
                self.fault(f"{who} names the label {name}, which nothing in it has")

    def binary(self, node):
        (left, left_vector), (right, right_vector) = self.read(node.lhs), self.read(node.rhs)
        if not (left_vector and right_vector):
            return (left if left_vector else right), left_vector or right_vector
        how, op = node.modifier, str(node.op)
        if how is None or how.matching is None:
            if set(left) != set(right) and op != "or":
                self.fault(f"{op} never matches: {sorted(left)} on one side, {sorted(right)} on the other")
            return (left | right if op == "or" else left), True
        names = how.matching.labels
        if how.matching.type == ast.LabelModifierType.Include:
            for side in (left, right):
                self.needs(names, side, f"on () of {op}")
            joined = {name: left.get(name) for name in names}
        else:
            self.needs(names, left | right, f"ignoring () of {op}")
            if set(left) - set(names) != set(right) - set(names):
                self.fault(f"{op} never matches: {sorted(left)} and {sorted(right)} ignoring {sorted(names)}")
            joined = {name: left[name] for name in left if name not in names}
        if op in ("and", "unless"):
            return left, True
        if op == "or":
            return left | right, True
        if how.card != ast.VectorMatchCardinality.OneToOne:
            side, other = (left, right) if how.card == ast.VectorMatchCardinality.ManyToOne else (right, left)
            self.needs(how.group_labels or [], other, "group_left () or group_right ()")
            return {**side, **{name: None for name in how.group_labels or []}}, True
        return joined, True

    WAYS = {
        ast.VectorSelector: selector,
        ast.MatrixSelector: matrix,
        ast.SubqueryExpr: inner,
        ast.ParenExpr: inner,
        ast.UnaryExpr: inner,
        ast.Call: call,
        ast.AggregateExpr: aggregate,
        ast.BinaryExpr: binary,
    }
