"""A provider that stands still for two seconds: the open loop's p99 has it, the closed loop's cannot.

The closed loop asks nothing while it waits, so a freeze costs it one request for each it keeps under way. In the open loop all
that were due meanwhile have waited. Then the gauge itself against the provider alone, request by request in turns.
"""

import json
import signal
import threading

from parts import bench, check, quantile, table

FREEZE_SECONDS, RATE, RUNS = 2, 40, 300
LONG = 0.5  # seconds that no request waits without the freeze


LOOPS = {"open loop": ("--rate", RATE, "--arrivals", "even"), "closed loop": ("--concurrency", 1)}


def prove(parts):
    rows = [["end to end by the client, s", "n", f"over {LONG} s", "p50", "p90", "p99", "max"]]
    waits = {}
    for name, flags in LOOPS.items():
        sim, upstream = parts.sim("--ttft", "20ms", "--tokens-per-second", "300", "--output-tokens", "10")
        thaw = threading.Timer(2 + FREEZE_SECONDS, sim.send_signal, [signal.SIGCONT])
        freeze = threading.Timer(2, sim.send_signal, [signal.SIGSTOP])
        log = parts.file("records.jsonl")
        for timer in (freeze, thaw):
            timer.start()
            parts.callback(timer.cancel)
        bench(parts, upstream, "--output-tokens", 10, "--runs", RUNS, "--records", log, *flags)
        found = [json.loads(line) for line in log.read_text().splitlines()]
        check(f"{name}: {RUNS} requests, all complete", [record["outcome"] for record in found] == ["complete"] * RUNS)
        waits[name] = [record["client_duration_s"] for record in found]
        figures = [f"{quantile(waits[name], q):.3f}" for q in (0.5, 0.9, 0.99, 1)]
        rows.append([name, RUNS, sum(wait > LONG for wait in waits[name]), *figures])
    print()
    table(rows)
    print()
    opened, closed = waits["open loop"], waits["closed loop"]
    due = RATE * (FREEZE_SECONDS - LONG)
    check(f"the open loop's p99 has the freeze of {FREEZE_SECONDS} s", quantile(opened, 0.99) >= 0.9 * FREEZE_SECONDS)
    check(f"all of the {due:.0f} that were due then waited, but for two", sum(wait > LONG for wait in opened) >= due - 2)
    check("the closed loop has one that waited", sum(wait > LONG for wait in closed) == 1 and max(closed) > FREEZE_SECONDS / 2)
    compare(parts)


def compare(parts):
    """Through the gauge against directly: the ratio of TTFT, with its interval."""
    _, upstream = parts.sim("--ttft", "20ms", "--tokens-per-second", "300", "--output-tokens", "10")
    gauge = parts.gauge(upstream)
    bench(parts, gauge.port, "--output-tokens", 10, "--compare", f"http://127.0.0.1:{upstream}", "--runs", 100)
