"""Every query of every dashboard against a real Prometheus that scrapes the real gauge: each gives numbers, under every choice.

Traffic of every kind goes through the gauge; the rules are the shipped ones with their durations divided, so that hours pass in
seconds. Then each panel is asked as Grafana would, with one upstream and model chosen, with several, and with all.
"""

import math
import re
import subprocess
import sys
import time
from collections import Counter

import grafana
import lint
from monitoring import fetch, prometheus, until
from parts import Fault, check, table
from traffic import MODELS, PROVIDERS, WORKLOAD, Traffic, gauge

SECONDS, SCALE, SCRAPE = 45, 120, 0.5
SPAN, STEP, RATE = 120, 1, 2
ONE = {"job": "streamgauge", "deadline": "0.6", "workload": WORKLOAD}
CHOICES = {
    "all": {**ONE, "job": "$__all", "upstream": "$__all", "model": "$__all"},
    "one": {**ONE, "upstream": next(iter(PROVIDERS)), "model": MODELS[0]},
    "several": {**ONE, "job": ["streamgauge"], "upstream": list(PROVIDERS), "model": list(MODELS)},
}
# Panels that may be empty here, and why.
OPTIONAL = {
    "An engine's own TTFT (vLLM)": "no vLLM runs beside the proof; what it would say is vLLM's",
    "Voice: first audio": "the simulated provider speaks no voice API",
}
# Queries that look further back than a minute of traffic goes: the proof `history` has them.
PAST = r"offset 1[dw]$"


def prove(parts):
    port, admin, timings = gauge(parts)
    rules = parts.file("rules")
    generate = [sys.executable, grafana.FOLDER / "generate", "--out", rules, "--time-scale", str(SCALE)]
    subprocess.run(list(map(str, generate)), check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    server = prometheus(
        parts, [f"127.0.0.1:{admin}"], sorted(rules.glob("rules/*.yml")), f"{SCRAPE * 1000:.0f}ms", features=["exemplar-storage"]
    )
    began = time.time()
    traffic = Traffic(port, timings, SECONDS)
    traffic.run()
    print(f"    {sum(traffic.sent.values())} requests in {time.time() - began:.0f} s")
    live = fetch(f"http://127.0.0.1:{admin}/metrics").decode()
    ended = time.time()
    until("Prometheus has what came last", lambda: scraped_since(server, ended), 30)
    last = began + SECONDS - 1  # while there was traffic: alerts fire
    print(Counter((m["alertname"], m["alertstate"], m.get("upstream"), m.get("model"), len(v)) for m, v in server.range("ALERTS", began, ended, 1)))
    families(live)
    health = [rule for rule in server.rules() if rule["health"] != "ok"]
    check(f"all of {len(server.rules())} rules are evaluated without a fault", not health, str(health)[:500])
    boards = grafana.dashboards()
    for choice, chosen in CHOICES.items():
        asked(server, boards, choice, chosen, last)
    annotations(server, boards, last)
    exemplars(server, boards, traffic.traces, began, last)


def scraped_since(server, when):
    found = server.query('timestamp(up{job="streamgauge"} == 1)')
    return found and found[0][1] > when and found[0][1]


def families(live):
    """Each family is there as docs/metrics.md has it, and has a series."""
    said = lint.drift(live)
    check("the program exposes what docs/metrics.md says, with these labels and bounds", not said, "; ".join(said[:20]))
    there = set(re.findall(r"^(streamgauge_\w+?)(?:_bucket|_sum|_count)?(?:\{| )", live, re.M))
    missing = {name for name, family in lint.FAMILIES.items() if name not in there}
    voice = {"streamgauge_voice_first_audio_seconds"}
    check(f"{len(lint.FAMILIES) - len(missing)} of {len(lint.FAMILIES)} families have series, all but voice", missing == voice, missing)


def asked(server, boards, choice, chosen, end):
    """Asks every query; each gives a number that is one, but for what is said above."""
    rows, empty, count = [["board", "queries", "with numbers", "series", "panels", "with numbers"]], [], 0
    for name, board in boards.items():
        full, series, panels = 0, 0, {}
        queries = grafana.queries({name: board})
        for query in queries:
            found = numbers(server, board, query, chosen, end)
            series += found
            full += found > 0
            title = query.panel["title"]
            panels[title] = panels.get(title, 0) + found
            if not found and title not in OPTIONAL and not re.search(PAST, query.target["expr"]):
                empty.append(f"{title}, {query.target['refId']}: {query.target['expr']}")
        rows.append([name, len(queries), full, series, len(panels), sum(1 for n in panels.values() if n)])
        count += len(queries)
    print()
    table(rows)
    print()
    check(f"{choice}: {count} queries, each with numbers but for two optional panels and the past", not empty, "\n".join(empty))


def numbers(server, board, query, chosen, end):
    """How many series of a query's answer have a number."""
    expr = grafana.filled(query.target["expr"], board, chosen, f"{SPAN}s", f"{STEP}s", f"{RATE}s")
    try:
        if query.target.get("instant"):
            return sum(not math.isnan(value) for _, value in server.query(expr, time=end))
        found = server.range(expr, end - SPAN, end, STEP)
        return sum(any(not math.isnan(value) for _, value in values) for _, values in found)
    except Fault as fault:
        raise Fault(f"{query.board}, {query.panel['title']}: {fault}") from None


def annotations(server, boards, end):
    """They run, and the alerts among them are there: the traffic has faults enough."""
    found = Counter()
    for board in boards.values():
        for annotation in board["annotations"]["list"]:
            expr = grafana.filled(annotation["expr"], board, CHOICES["all"], f"{SPAN}s", f"{STEP}s", f"{RATE}s")
            found[annotation["name"]] += len(server.range(expr, end - SPAN, end, STEP))
    check("annotations run, and alerts are among them", found["Alerts"] > 0, found)
    values = Counter()
    for board in boards.values():
        for variable in grafana.variables(board):
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]) if variable["type"] == "query" else None
            if asked:
                match = grafana.filled(asked[1], board, CHOICES["all"])
                values[variable["name"]] = len(server.ask(f"label/{asked[2]}/values", **{"match[]": match}))
    least = {"job": 1, "upstream": len(PROVIDERS), "model": len(MODELS), "deadline": 3, "workload": 1}
    check(f"variables find their values: {dict(values)}", all(values[name] >= n for name, n in least.items()), values)


def exemplars(server, boards, traces, began, end):
    """What Prometheus stored of single requests, asked as Grafana asks: by the panel's own query."""
    count, known = Counter(), 0
    for query in grafana.queries(boards):
        if query.target.get("exemplar"):
            expr = grafana.filled(query.target["expr"], boards[query.board], CHOICES["all"], rate=f"{RATE}s")
            for series in server.ask("query_exemplars", query=expr, start=began, end=end):
                labels = [exemplar["labels"] for exemplar in series["exemplars"]]
                count[query.panel["title"]] += len(labels)
                known += sum(label.get("trace_id") in traces for label in labels)
    check(f"exemplars of {len(count)} panels are stored ({sum(count.values())}), and name traces that were sent ({known})", count and known)
