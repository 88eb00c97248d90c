"""The ruler against a packet capture: TTFT of the records beside TTFT of the same exchanges on the wire.

200 streams of 50 events a second go through three gauges in turns, one with the kernel's stamps, one with them and the
scheduler's preference, one without, beside a busy loop on every core. Both records and captured packets carry the request's
trace id.
"""

import calendar
import json
import subprocess
import sys
import time

from capture import exchanges
from parts import HERE, check, quantile, stop, table

STREAMS, EVENTS_PER_SECOND, TOKENS, TTFT_MS = 200, 50, 100, (100, 400)
ROUNDS, SECONDS = 3, 6
LEAST = 1000
NEAR, FAR = 50, 250  # µs
UNFLAGGED = ", unflagged"
# Before the request has left, by the stages' definition.
BEFORE = ("retry", "dns", "tcp", "tls", "pool_wait", "upload", "receive", "gateway_request")


def prove(parts):
    _, upstream = parts.sim()
    gauges = {kind: parts.gauge(upstream, *flags, before=before) for kind, (before, flags) in KINDS.items()}
    parts.hogs()
    # So many streams are under way at a time if those that wait for their first token are not counted.
    slots = round(STREAMS * (1 + sum(TTFT_MS) / 2e3 / (TOKENS / EVENTS_PER_SECOND)))
    wire = {kind: [] for kind in gauges}
    for turn in range(ROUNDS):
        for number, (kind, gauge) in enumerate(gauges.items()):
            capture = parts.capture(upstream)
            tag = turn * len(gauges) + number + 1
            load(gauge.port, slots, SECONDS, tag, TOKENS, EVENTS_PER_SECOND, *TTFT_MS)
            wire[kind] += exchanges(capture.finish(), upstream)
    errors = {}
    for kind, gauge in gauges.items():
        stop(gauge.process)
        errors[kind] = compare(kind, records(gauge.log), wire[kind])
    report(errors)


# What each is started by, and its flags.
KINDS = {
    "kernel stamps": ((), ("--kernel-stamps", "true")),
    "kernel stamps, nice -20": (("nice", "-n", "-20"), ("--kernel-stamps", "true")),
    "user stamps": ((), ("--kernel-stamps", "false")),
}


def load(port, *numbers):
    """Puts the load on that port, in a process of its own, until it has ended; what it says of it."""
    words = [sys.executable, HERE / "load.py", port, *numbers]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    check(f"load on port {port}: {done.stdout.strip()}", done.returncode == 0, done.stderr.strip())
    return json.loads(done.stdout)


def records(log):
    """The records by trace id."""
    found = (json.loads(line) for line in log.read_text().splitlines())
    return {record["trace_id"]: record for record in found}


def compare(kind, said, wire):
    """What each record says less what the wire says, in microseconds."""
    seen = {exchange.trace: exchange for exchange in wire}
    check(f"{kind}: each of {len(said)} records is in the capture", said.keys() == seen.keys(), f"{len(seen)} are")
    check(f"{kind}: at least {LEAST:,} exchanges, all complete", len(said) >= LEAST and all(r["outcome"] == "complete" for r in said.values()))
    want = "kernel" if kind.startswith("kernel") else "user"
    check(f"{kind}: stamp.upstream is {want} in every record", all(r["stamp"]["upstream"] == want for r in said.values()))
    found = {"ttft": [], "exact": [], "sent": [], "output": [], "ours": [], "wire": []}
    for trace, record in said.items():
        exchange = seen[trace]
        ours, wires = record["ttft_s"] * 1e6, (exchange.first_output() - exchange.sent) / 1e3
        before = sum(record["stages_s"][stage] for stage in BEFORE) * 1e6
        sent = instant(record["time"]) / 1e3 + before - exchange.sent / 1e3
        for name, value in (("ttft", ours - wires), ("sent", sent), ("output", sent + ours - wires), ("ours", ours), ("wire", wires)):
            found[name].append(value)
        if "ttft_upper_bound" not in record.get("flags", ()):
            found["exact"].append(ours - wires)
    return found


def instant(text):
    """Nanoseconds since the Unix epoch of a record's `time`, which is in microseconds."""
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    return calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) * 1_000_000_000 + int(fraction) * 1000


def report(errors):
    far = {}
    for kind, found in errors.items():
        far[kind] = [abs(value) for value in found["ttft"]]
        far[kind + UNFLAGGED] = [abs(value) for value in found["exact"]]
    over = {kind: sum(value > FAR for value in values) / max(1, len(values)) for kind, values in far.items()}
    print(f"\n    {STREAMS} streams of {EVENTS_PER_SECOND} events/s beside a busy loop on every core; µs\n")
    rows = [["|TTFT(gauge) − TTFT(capture)|", "n", "p50", "p90", "p99", "max", f"over {FAR}"]]
    for kind, values in far.items():
        rows.append([kind, len(values), *(f"{quantile(values, q):,.1f}" for q in (0.5, 0.9, 0.99, 1)), f"{over[kind]:.2%}"])
    table(rows)
    print()
    rows = [["gauge − capture", "leg", "p1", "p50", "p99", "max"]]
    for kind, found in errors.items():
        for leg, name in (("sent", "request sent"), ("output", "first output"), ("ttft", "TTFT")):
            rows.append([kind, name, *(f"{quantile(found[leg], q):+,.1f}" for q in (0.01, 0.5, 0.99, 1))])
    table(rows)
    print()
    rows = [["TTFT", "by", "p50", "p99"]]
    for kind, found in errors.items():
        for side, name in (("ours", "gauge"), ("wire", "capture")):
            rows.append([kind, name, *(f"{quantile(found[side], q):,.1f}" for q in (0.5, 0.99))])
    table(rows)
    print()
    kernel, preferred, user = KINDS
    for kind in (kernel, preferred):
        half = quantile(far[kind], 0.5)
        check(f"{kind}: half of the TTFTs are within {NEAR} µs of the capture's", half <= NEAR, f"{half:.1f} µs")
        check(f"{kind}: fewer are off by more than {FAR} µs than with user stamps", over[kind] < over[user])
        check(f"{kind}: no more of those without the flag ttft_upper_bound are", over[kind + UNFLAGGED] <= over[kind])
