"""A provider that stands still for two seconds: the open loop's p99 has it, the closed loop's cannot.

The closed loop asks nothing while it waits, so a freeze costs it one request for each it keeps under way. In the open loop all
that were due meanwhile have waited. Then the gauge itself against the provider alone, request by request in turns.
"""

import json
import signal
import threading
import time

from parts import bench, check, quantile, table

FREEZE_SECONDS, RATE, RUNS = 2, 40, 300
LONG = 0.5  # seconds that no request waits without the freeze


LOOPS = {"open loop": ("--rate", RATE, "--arrivals", "even"), "closed loop": ("--concurrency", 1)}


def prove(parts):
    rows = [["end to end by the client, s", "n", f"over {LONG} s", "p50", "p90", "p99", "max"]]
    waits, held = {}, {}
    for name, flags in LOOPS.items():
        sim, upstream = parts.sim("--ttft", "20ms", "--tokens-per-second", "300", "--output-tokens", "10")
        log = parts.file("records.jsonl")
        frozen = []
        freeze = threading.Timer(2, stand_still, [sim, frozen])
        freeze.start()
        parts.callback(freeze.cancel)
        bench(parts, upstream, "--output-tokens", 10, "--runs", RUNS, "--records", log, *flags)
        found = [json.loads(line) for line in log.read_text().splitlines()]
        check(f"{name}: {RUNS} requests, all complete", [record["outcome"] for record in found] == ["complete"] * RUNS)
        waits[name] = [record["client_duration_s"] for record in found]
        held[name] = frozen[0]
        figures = [f"{quantile(waits[name], q):.3f}" for q in (0.5, 0.9, 0.99, 1)]
        rows.append([name, RUNS, sum(wait > LONG for wait in waits[name]), *figures])
    print()
    table(rows)
    print()
    opened, closed = waits["open loop"], waits["closed loop"]
    due = RATE * (held["open loop"] - LONG)
    check(f"the open loop's p99 has the freeze of {FREEZE_SECONDS} s", quantile(opened, 0.99) >= 0.9 * FREEZE_SECONDS)
    long = {name: sum(wait > LONG for wait in found) for name, found in waits.items()}
    check(f"all of the {due:.0f} that were due then waited, but for two", long["open loop"] >= due - 2, long)
    few = 1 <= long["closed loop"] <= long["open loop"] / 10
    check("the closed loop has one that waited, or few", few and max(closed) > FREEZE_SECONDS / 2, long)
    compare(parts)


def stand_still(sim, frozen):
    """Stops the provider for a while; keeps how long it was."""
    sim.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    time.sleep(FREEZE_SECONDS)
    frozen.append(time.monotonic() - began)
    sim.send_signal(signal.SIGCONT)


def compare(parts):
    """Through the gauge against directly: the ratio of TTFT, with its interval."""
    _, upstream = parts.sim("--ttft", "20ms", "--tokens-per-second", "300", "--output-tokens", "10")
    gauge = parts.gauge(upstream)
    bench(parts, gauge.port, "--output-tokens", 10, "--compare", f"http://127.0.0.1:{upstream}", "--runs", 100)
