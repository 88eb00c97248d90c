"""Every query of every dashboard against a real Prometheus that scrapes the real gauge: each gives numbers, under every choice.

Traffic of every kind goes through the gauge; the rules are the shipped ones with their durations divided, so that hours pass in
seconds. Then each panel is asked as Grafana would, with one upstream and model chosen, with several, and with all.
"""

import json
import math
import re
import subprocess
import sys
import time
from collections import Counter, namedtuple

import grafana
import lint
from monitoring import fetch, prometheus, until
from parts import Fault, check, quantile, stop, table
from promql import FAMILIES
from traffic import MODELS, PROVIDERS, WORKLOAD, Traffic, gauge

SECONDS, SCALE, SCRAPE = 36, 120, 0.5
STEP, RATE = 3, 4
ONE = {"job": "streamgauge", "deadline": "0.6", "workload": WORKLOAD}
CHOICES = {
    "all": {**ONE, "job": "$__all", "upstream": "$__all", "model": "$__all"},
    "one": {**ONE, "upstream": next(iter(PROVIDERS)), "model": MODELS[0]},
    "several": {**ONE, "job": ["streamgauge"], "upstream": list(PROVIDERS), "model": list(MODELS)},
}
# Unix seconds: before the first request, and behind the last.
Times = namedtuple("Times", "began ended")
# What is rare must have come twice before the traffic ends: each class of the one upstream and model, and an alert.
MINE = f'upstream="{next(iter(PROVIDERS))}",model="{MODELS[0]}"'
HANGS = 'ALERTS{alertname="LLMFirstTokenOverdue",alertstate="firing"}'
RARE = {
    f"increase(streamgauge_output_tokens_per_second_count{{{MINE}}}[5m]) > 0": 5,
    f"increase(streamgauge_ttft_by_input_seconds_count{{{MINE}}}[5m]) > 0": 9,
    f"increase(streamgauge_ttft_by_load_seconds_count{{{MINE}}}[5m]) > 0": 6,
    HANGS: 1,
}
# Panels that may be empty here, and why.
OPTIONAL = {
    "An engine's own TTFT (vLLM)": "no vLLM runs beside the proof; what it would say is vLLM's",
    "Voice: first audio": "the simulated provider speaks no voice API",
}
# Queries that look further back than a minute of traffic goes: the proof `history` has them.
PAST = r"offset 1[dw]$"


def prove(parts):
    port, admin, timings, log = gauge(parts)
    rules = parts.file("rules")
    generate = [sys.executable, grafana.FOLDER / "generate", "--out", rules, "--time-scale", str(SCALE)]
    subprocess.run(list(map(str, generate)), check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    storage, features = parts.file("storage"), ["exemplar-storage"]
    pages = sorted(rules.glob("rules/*.yml"))
    server = prometheus(parts, [f"127.0.0.1:{admin}"], pages, f"{SCRAPE * 1000:.0f}ms", storage, features=features)
    # It begins with what is there before the first request, so that nothing rises unseen.
    until("Prometheus has the gauge's first page", lambda: server.query('up{job="streamgauge"} == 1'), 30)
    began = time.time()
    traffic = Traffic(port, timings)
    traffic.run(SECONDS, lambda: until("what is rare has come twice", lambda: enough(server), 150))
    print(f"    {sum(traffic.sent.values())} requests and clients' reports in {time.time() - began:.0f} s")
    families(fetch(f"http://127.0.0.1:{admin}/metrics").decode())
    quiet = time.time()
    ended = until("Prometheus has what came last, and the alert still fires", lambda: settled(server, quiet), 60)
    health = [rule for rule in server.rules() if rule["health"] != "ok"]
    check(f"all of {len(server.rules())} rules are evaluated without a fault", not health, str(health)[:500])
    # All is in its storage. Without rules four times a second there is time for questions.
    stop(server.process)
    server = prometheus(parts, storage=storage, features=features)
    boards, times = grafana.dashboards(), Times(began, ended)
    tiles(server, boards["overview"], [json.loads(line) for line in log.read_text().splitlines()], times)
    for choice, chosen in CHOICES.items():
        asked(server, boards, choice, chosen, times)
    annotations(server, boards, times)
    exemplars(server, boards, traffic.traces, times)


def enough(server):
    return all(len(server.query(expr)) >= least for expr, least in RARE.items())


def settled(server, quiet):
    """The time, if then the last scrape was good and is newer than that, and the stream that hangs is an alert."""
    now = time.time()
    seen = f'timestamp(up{{job="streamgauge"}} == 1) > {quiet} and on () {HANGS}'
    return now if server.query(seen, time=now) else None


def tiles(server, board, records, times):
    """What the Overview's numbers say of one upstream and model, against the gauge's own records of the same requests."""
    chosen = CHOICES["one"]
    mine = [record for record in records if (record["upstream"], record.get("model")) == (chosen["upstream"], chosen["model"])]
    ttft, speed = (
        [record[key] for record in mine if key in record and flag not in record.get("flags", [])]
        for key, flag in (("ttft_s", ""), ("output_tokens_per_second", "burst"))
    )
    outcomes = Counter(record["outcome"] for record in mine)
    judged = len(mine) - outcomes["client_gone"] - outcomes["client_error"]
    expected = {
        "TTFT, median": (about_median(ttft, "streamgauge_ttft_seconds"), len(ttft)),
        "Output speed, median": (about_median(speed, "streamgauge_output_tokens_per_second"), len(speed)),
        "Success": (near(outcomes["complete"] / judged, 0.02), judged),
        "Rate-limited": (near(outcomes["rate_limited"] / len(mine), 0.02), len(mine)),
    }
    rows = [["tile", "shows", "by the records", "n", "by the records"]]
    for title, ((least, most), count) in expected.items():
        panel = next(panel for panel in grafana.panels(board) if panel["title"] == title)
        values = [
            server.query(filled(target["expr"], board, chosen, times.ended - times.began), time=times.ended)[0][1]
            for target in panel["targets"]
        ]
        rows.append([title, f"{values[0]:.3f}", f"{least:.3f} to {most:.3f}", f"{values[1]:.0f}", count])
        check(
            f"{title}: as the records have it",
            least <= values[0] <= most and math.isclose(values[1], count, rel_tol=0.05),
            rows[-1],
        )
    print()
    table(rows)
    print()


def filled(expr, board, chosen, span=60):
    return grafana.filled(expr, board, chosen, f"{span:.0f}s", f"{STEP}s", f"{RATE}s")


def about_median(values, family):
    """The ends of the buckets in which the middle of these lies."""
    bounds = [0, *FAMILIES[family].bounds]
    low, high = quantile(values, 0.48), quantile(values, 0.52)
    return max(bound for bound in bounds if bound < low), min(bound for bound in bounds if bound >= high)


def near(value, by):
    return value - by, value + by


def families(live):
    """Each family is there as docs/metrics.md has it, and has a series."""
    said = lint.drift(live)
    check("the program exposes what docs/metrics.md says, with these labels and bounds", not said, "; ".join(said[:20]))
    there = set(re.findall(r"^(streamgauge_\w+?)(?:_bucket|_sum|_count)?(?:\{| )", live, re.M))
    missing = {name for name, family in FAMILIES.items() if name not in there}
    voice = {"streamgauge_voice_first_audio_seconds"}
    check(
        f"{len(FAMILIES) - len(missing)} of {len(FAMILIES)} families have series, all but voice",
        missing == voice,
        missing,
    )


def asked(server, boards, choice, chosen, times):
    """Asks every query; each gives a number that is one, but for what is said above."""
    rows, empty, count = [["board", "queries", "with numbers", "series", "panels", "with numbers"]], [], 0
    for name, board in boards.items():
        full, series, panels = 0, 0, {}
        queries = grafana.queries({name: board})
        for query in queries:
            found = numbers(server, board, query, chosen, times)
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


def numbers(server, board, query, chosen, times):
    """How many series of a query's answer have a number."""
    expr = filled(query.target["expr"], board, chosen, times.ended - times.began)
    try:
        if query.target.get("instant"):
            return sum(not math.isnan(value) for _, value in server.query(expr, time=times.ended))
        found = server.range(expr, times.began, times.ended, STEP)
        return sum(any(not math.isnan(value) for _, value in values) for _, values in found)
    except Fault as fault:
        raise Fault(f"{query.board}, {query.panel['title']}: {fault}") from None


def annotations(server, boards, times):
    """They run, and the alerts among them are there: the traffic has faults enough."""
    found = Counter()
    for board in boards.values():
        for annotation in board["annotations"]["list"]:
            expr = filled(annotation["expr"], board, CHOICES["all"])
            found[annotation["name"]] += len(server.range(expr, times.began, times.ended, STEP))
    check("annotations run, and alerts are among them", found["Alerts"] > 0, found)
    values = Counter()
    for board in boards.values():
        for variable in grafana.variables(board):
            asked = (
                re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
                if variable["type"] == "query"
                else None
            )
            if asked:
                match = filled(asked[1], board, CHOICES["all"])
                values[variable["name"]] = len(server.ask(f"label/{asked[2]}/values", **{"match[]": match}))
    least = {"job": 1, "upstream": len(PROVIDERS), "model": len(MODELS), "deadline": 3, "workload": 1}
    check(f"variables find their values: {dict(values)}", all(values[name] >= n for name, n in least.items()), values)


def exemplars(server, boards, traces, times):
    """What Prometheus stored of single requests, asked as Grafana asks: by the panel's own query."""
    count, known = Counter(), 0
    for query in grafana.queries(boards):
        if query.target.get("exemplar"):
            expr = filled(query.target["expr"], boards[query.board], CHOICES["all"])
            for series in server.ask("query_exemplars", query=expr, start=times.began, end=times.ended):
                labels = [exemplar["labels"] for exemplar in series["exemplars"]]
                count[query.panel["title"]] += len(labels)
                known += sum(label.get("trace_id") in traces for label in labels)
    check(
        f"exemplars of {len(count)} panels are stored ({sum(count.values())}), and name traces that were sent ({known})",
        count and known,
    )
