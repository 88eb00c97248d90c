"""The shipped rules: promtool takes them, all that they name exists, each alert fires and is silent where it should.

Each alert has a case in which it fires, and others that differ from it in one family of series, in which it is silent.
"""

import os
import re
import shutil
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

import grafana
import promql
import yaml
from monitoring import fetch, promtool
from parts import HERE, check, table

RULES = grafana.FOLDER / "rules"
DOCS = HERE.parent.parent / "docs" / "alerts.md"
GAUGE = """
[[upstreams]]
name = "a"
url = "http://127.0.0.1:9"
models = ["m"]
"""
# A test of promtool: the alert, whether it fires, and family of series → its series and their values.
Case = namedtuple("Case", "file name alert fires given")


def prove(parts):
    files = sorted(RULES.glob("*.yml"))
    found = re.findall(r"SUCCESS: (\d+) rules found", promtool("check", "rules", *files))
    groups = grafana.rule_groups()
    rules = [rule for group in groups for rule in group["rules"]]
    alerts = {rule["alert"]: rule for rule in rules if "alert" in rule}
    check(
        f"promtool takes {len(rules) - len(alerts)} recording rules and {len(alerts)} alerts",
        sum(map(int, found)) == len(rules),
        found,
    )
    config = parts.file("gauge.toml")
    config.write_text(GAUGE)
    words = [parts.program, "run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", config]
    _, port = parts.start(words, r"metrics at http://127\.0\.0\.1:(\d+)")
    known = promql.vocabulary(fetch(f"http://127.0.0.1:{port[1]}/metrics").decode(), groups)
    cases = read_cases()
    names(rules, cases, known)
    texts(alerts, known)
    kinds(alerts, cases)
    run(cases)
    needed(parts, groups, cases)


def names(rules, cases, known):
    """Every metric, label, label value and bound exists: in rules, and in what their cases give them."""
    faults = [
        f"{rule.get('record', rule.get('alert'))}: {fault}"
        for rule in rules
        for fault in promql.faults(rule["expr"], known)
    ]
    check(f"all that {len(rules)} rules name is there", not faults, "; ".join(faults[:10]))
    given = sorted({series for case in cases for family in case.given.values() for series in family})
    faults = [f"{series}: {fault}" for series in given for fault in promql.faults(series, known)]
    check(f"and so is all that {len(given)} series of the cases are called", not faults, "; ".join(faults[:10]))
    wrong = promql.faults(
        'rate(streamgauge_ttft_seconds_bucket{le="0.7",colour="red"}[5m]) > streamgauge_nothing', known
    )
    check(
        "a bound, a label and a name that are not there, and a join that never matches, would be found",
        len(wrong) == 4,
        wrong,
    )


def texts(alerts, known):
    """What an alert says can be said, and where it points to is there."""
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower())
        for line in DOCS.read_text().splitlines()
        if line.startswith("#")
    }
    dashboards = grafana.dashboards().values()
    boards = {board["uid"]: grafana.variables(board) for board in dashboards}
    titles = {panel["title"] for board in dashboards for panel in grafana.panels(board)}
    shown = re.findall(r'(?:panels?|and)\s"([^"]+)"', DOCS.read_text())
    faults, asked = [f"no panel {title}" for title in (" ".join(s.split()) for s in shown) if title not in titles], 0
    for name, rule in alerts.items():
        labels, _ = promql.read(rule["expr"], known)
        notes = rule["annotations"]
        for used in re.findall(r"\$labels\.(\w+)", " ".join(notes.values())):
            faults += [f"{name} has no label {used}"] if used not in labels else []
        for selector in re.findall(r"printf `([^`]+)`", " ".join(notes.values())):
            asked += 1
            faults += [f"{name}: {fault}" for fault in promql.faults(selector.replace("%q", '"$value"'), known)]
        board, _, variables = notes["dashboard"].removeprefix("/d/").partition("?")
        there = {variable["name"] for variable in boards.get(board, ())}
        missing = set(re.findall(r"var-(\w+)=", variables)) - there
        faults += [f"{name}: {board} has no {missing or 'such uid'}"] if missing or not there else []
        page, _, anchor = notes["runbook"].partition("#")
        faults += [f"{name}: {page} has no {anchor}"] if page != "docs/alerts.md" or anchor not in headings else []
    check(
        f"their texts' {asked} look-ups, labels, boards and pages are there, and {len(shown)} panels",
        not faults,
        "; ".join(faults[:10]),
    )


def kinds(alerts, cases):
    """Each alert has both kinds of case, and a silent one differs from the one that fires in one family of series."""
    fires, silent = (Counter(case.alert for case in cases if case.fires is kind) for kind in (True, False))
    rows = [["alert", "severity", "fires", "silent"]]
    rows += [[name, rule["labels"]["severity"], fires[name], silent[name]] for name, rule in alerts.items()]
    print()
    table(rows)
    print()
    lacking = [name for name in alerts if not fires[name] or not silent[name]]
    check(f"each of {len(alerts)} alerts has cases of both kinds", not lacking, lacking)
    faults, fired = [], None
    for case in cases:
        if case.fires:
            fired = case
            continue
        changed = {family for family in case.given | fired.given if case.given.get(family) != fired.given.get(family)}
        if case.alert != fired.alert or len(changed) != 1:
            faults.append(f"{case.name}: {sorted(changed)}")
    check("each silent case differs from the one that fires in one family", not faults, "; ".join(faults))


def read_cases():
    """The cases in their files' order, one that fires before its silent ones. Models of one test are cases of their own."""
    found = []
    for path in sorted(RULES.glob("tests/*.yml")):
        for test in yaml.safe_load(path.read_text())["tests"]:
            checks, given = test["alert_rule_test"], {}
            fired = [alert["exp_labels"].get("model") for one in checks for alert in one["exp_alerts"]]
            keeps = any(fired)  # or all is one case, of an alert that keeps no model
            for series in test["input_series"]:
                model = keeps and re.search(r'model="([^"]*)"', series["series"])
                family = re.sub(r"(_bucket|_sum|_count)?\{.*", "", series["series"])
                name = series["series"].replace(model[0], 'model="m"') if model else series["series"]
                key = model[1] if model else "" if not fired else None
                given.setdefault(key, {}).setdefault(family, {})[name] = series["values"]
            alert = checks[0]["alertname"]
            found += [
                Case(path, f"{test['name']}: {model}", alert, model in fired, series) for model, series in given.items()
            ]
    return found


def run(cases):
    files = sorted({case.file for case in cases})
    tested(files)
    fired = sum(case.fires for case in cases)
    check(
        f"promtool: {len(cases)} cases in {len(files)} files hold: {fired} fire, {len(cases) - fired} are silent",
        cases,
    )


def tested(files, may_fail=False):
    """What promtool says of test files, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda path: promtool("test", "rules", path, seconds=600, may_fail=may_fail), files))


def needed(parts, groups, cases):
    """Without any one of its conditions an alert would fire in a case in which it is silent, so each has its case."""
    folder = parts.file("rules")
    (folder / "tests").mkdir(parents=True)
    shutil.copy(RULES / "recording.yml", folder)
    recording = [group["name"] for group in groups if "record" in group["rules"][0]]
    rules = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    conditions = {}
    for path in {case.file for case in cases}:
        lesser = {name: words for case in cases if case.file == path for name, *words in lessened(rules[case.alert])}
        conditions |= {name: condition for name, (_, condition) in lesser.items()}
        groups = [{"name": name, "rules": [rule]} for name, (rule, _) in lesser.items()]
        (folder / path.name).write_text(yaml.safe_dump({"groups": groups}))
        page = yaml.safe_load(path.read_text())
        page |= {"rule_files": ["../recording.yml", f"../{path.name}"], "group_eval_order": recording + list(lesser)}
        for test in page["tests"]:
            checks = test["alert_rule_test"]
            test["alert_rule_test"] = [one | {"alertname": name} for one in checks for name in lesser if of(name, one)]
        (folder / "tests" / path.name).write_text(yaml.safe_dump(page, sort_keys=False))
    said = tested(folder.glob("tests/*.yml"), may_fail=True)
    found = set(re.findall(r"alertname: (\w+), time", "".join(said)))
    whole = {name for name, condition in conditions.items() if not condition}
    check("whole, under other names, the alerts do as in the cases", not found & whole, found & whole)
    idle = {name: condition for name, condition in conditions.items() if condition and name not in found}
    count = len(conditions) - len(whole)
    check(f"each of {count} further conditions is needed: without it a case fails", not idle, idle)


def of(name, one):
    """Whether that is a lesser form of the alert that is tested."""
    return name.split("_")[0] == one["alertname"]


def lessened(rule):
    """The alert as it is, and without each of its conditions but the first: a name, the rule, what is left out."""
    conditions = []
    for line in rule["expr"].strip().splitlines():
        opened = "\n".join(conditions[-1:])
        if not conditions or re.match(r"(and|unless|or) ", line) and opened.count("(") == opened.count(")"):
            conditions.append(line)
        else:
            conditions[-1] += "\n" + line
    yield f"{rule['alert']}_whole", rule | {"alert": f"{rule['alert']}_whole"}, ""
    for left_out in range(1, len(conditions)):
        name, kept = f"{rule['alert']}_{left_out}", conditions[:left_out] + conditions[left_out + 1 :]
        yield name, rule | {"alert": name, "expr": "\n".join(kept)}, conditions[left_out]
