"""The gauge's own overhead against an outside ruler: a packet capture of both its sides.

Every event is on the wire twice: when it reaches the gauge, and when it leaves it. The span between is what the gauge really
adds, by nobody's clock but the kernel's; `overhead_seconds{phase="event"}` is what it says it adds.
"""

import re
import urllib.request

from capture import exchanges
from parts import Fault, check, quantile, stop, table
from ruler import load, records

TOKENS, EVENTS_PER_SECOND, TTFT_MS, SECONDS = 200, 100, (20, 120), 8
# Fewer where the machine can't carry more: events that pile up are read together, and then all but the last of a read have a
# lower bound for their overhead.
STREAMS, TOGETHER = (200, 100, 50, 25), 0.03
# The gauge's span ends with the return of its write, the capture's inside it. On loopback a write also wakes the client, which
# may take the processor first: some µs that only the gauge sees.
RETURN_US = 25


def prove(parts):
    for streams in STREAMS:
        ratio, more, together = measure(parts, streams)
        if together <= TOGETHER:
            near = 0.85 <= ratio <= 1.15 or abs(more) <= RETURN_US
            seen = f"the ratio is {ratio:.3f}, the difference {more:+.1f} µs"
            check(f"overhead is what the capture sees added, within 15 % or {RETURN_US} µs: {seen}", near)
            return
        print("    this machine can't carry so many beside what else it does: fewer\n")
    raise Fault(f"this machine can't carry {STREAMS[-1]} streams")


def measure(parts, streams):
    """Medians of the ratio and the difference of an exchange, and which part of the events was read together with the one before."""
    sim, upstream = parts.sim()
    gauge = parts.gauge(upstream)
    capture = parts.capture(upstream, gauge.port)
    load(gauge.port, streams, SECONDS, 1, TOKENS, EVENTS_PER_SECOND, *TTFT_MS)
    file = capture.finish()
    buckets = histogram(gauge.admin)
    stop(gauge.process)
    stop(sim)
    said = records(gauge.log)
    entered = {exchange.trace: exchange for exchange in exchanges(file, upstream)}
    left = {exchange.trace: exchange for exchange in exchanges(file, gauge.port)}
    check(f"each of {len(said)} exchanges is on both sides of the capture", said.keys() == entered.keys() == left.keys())

    delays, wire, ours, together = [], [], [], 0
    for trace, record in said.items():
        own = [(b - a) / 1e3 for a, b in zip(entered[trace].outputs(), left[trace].outputs())]
        check_same(record, own)
        delays += own
        wire.append(sum(own) / len(own))
        ours.append(record["overhead_s"]["event_mean"] * 1e6)
        together += record["coalesced_events"]
    total = round(buckets[-1][1])
    check(f"overhead_seconds has the {len(delays)} events of the capture", total == len(delays), total)
    together /= len(delays)
    ratio = report(streams, delays, wire, ours, buckets, together)
    return ratio, quantile([mine - outside for mine, outside in zip(ours, wire, strict=True)], 0.5), together


def check_same(record, delays):
    if len(delays) != record["output_events"]:
        raise Fault(f"{record['trace_id']}: {record['output_events']} output events in the record, {len(delays)} passed")


def histogram(admin):
    """(bound in µs, how many were not above it) of the overhead of events."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    line = r'^streamgauge_overhead_seconds_bucket\{(?=[^}]*phase="event")[^}]*le="([^"]+)"\} (\S+)'
    return [(float(bound) * 1e6, float(count)) for bound, count in re.findall(line, text, re.M)]


def bracket(buckets, q):
    """(lower bound, upper bound, value by interpolation) of a quantile of a histogram."""
    rank, lower, below = q * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            return lower, bound, lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    raise ValueError("an empty histogram")


def report(streams, delays, wire, ours, buckets, together):
    print(f"\n    {streams} streams of {EVENTS_PER_SECOND} events/s; what the gauge adds to an event, in µs\n")
    rows = [["", "n", "p50", "p90", "p99"]]
    rows.append(["events, capture", len(delays), *(f"{quantile(delays, q):,.1f}" for q in (0.5, 0.9, 0.99))])
    between = [bracket(buckets, q) for q in (0.5, 0.9, 0.99)]
    rows.append(["events, /metrics", len(delays), *(f"{value:,.1f} ({low:,.0f}–{high:,.0f})" for low, high, value in between)])
    rows.append(["mean of an exchange, capture", len(wire), *(f"{quantile(wire, q):,.1f}" for q in (0.5, 0.9, 0.99))])
    rows.append(["mean of an exchange, record", len(ours), *(f"{quantile(ours, q):,.1f}" for q in (0.5, 0.9, 0.99))])
    ratios = [mine / outside for mine, outside in zip(ours, wire, strict=True)]
    rows.append(["the same, record / capture", len(ratios), *(f"{quantile(ratios, q):.3f}" for q in (0.5, 0.9, 0.99))])
    table(rows)
    print(f"\n    {together:.1%} of the events came in one read with the one before\n")
    return quantile(ratios, 0.5)
