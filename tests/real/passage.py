"""The gauge's own overhead against an outside ruler: a packet capture of both its sides.

Every event is on the wire twice: when it reaches the gauge, and when it leaves it. The span between is what the gauge really
adds, by nobody's clock but the kernel's; `overhead_seconds{phase="event"}` is what it says it adds.
"""

import re
import urllib.request

from capture import exchanges
from parts import check, quantile, stop, table
from ruler import load, records

STREAMS, TOKENS, EVENTS_PER_SECOND, TTFT_MS, SECONDS = 200, 200, 100, (20, 120), 8


def prove(parts):
    _, upstream = parts.sim()
    gauge = parts.gauge(upstream)
    capture = parts.capture(upstream, gauge.port)
    load(gauge.port, STREAMS, SECONDS, 1, TOKENS, EVENTS_PER_SECOND, *TTFT_MS)
    file = capture.finish()
    buckets = histogram(gauge.admin)
    stop(gauge.process)
    said = records(gauge.log)
    entered = {exchange.trace: exchange for exchange in exchanges(file, upstream)}
    left = {exchange.trace: exchange for exchange in exchanges(file, gauge.port)}
    check(f"each of {len(said)} exchanges is on both sides of the capture", said.keys() == entered.keys() == left.keys())

    together = sum(record["coalesced_events"] for record in said.values()) / sum(record["output_events"] for record in said.values())
    delays, wire, ours = [], [], []
    for trace, record in said.items():
        own = [(b - a) / 1e3 for a, b in zip(entered[trace].outputs(), left[trace].outputs(), strict=True)]
        delays += own
        wire.append(sum(own) / len(own))
        ours.append(record["overhead_s"]["event_mean"] * 1e6)
    total = round(buckets[-1][1])
    check(f"overhead_seconds has the {len(delays)} events of the capture", total == len(delays), total)
    report(delays, wire, ours, buckets, together)


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


def report(delays, wire, ours, buckets, together):
    print(f"\n    {STREAMS} streams of {EVENTS_PER_SECOND} events/s; what the gauge adds to an event, in µs\n")
    rows = [["", "n", "p50", "p90", "p99"]]
    rows.append(["events, capture", len(delays), *(f"{quantile(delays, q):,.1f}" for q in (0.5, 0.9, 0.99))])
    between = [bracket(buckets, q) for q in (0.5, 0.9, 0.99)]
    rows.append(["events, /metrics", len(delays), *(f"{value:,.1f} ({low:,.0f}–{high:,.0f})" for low, high, value in between)])
    rows.append(["mean of an exchange, capture", len(wire), *(f"{quantile(wire, q):,.1f}" for q in (0.5, 0.9, 0.99))])
    rows.append(["mean of an exchange, record", len(ours), *(f"{quantile(ours, q):,.1f}" for q in (0.5, 0.9, 0.99))])
    ratios = [mine / outside for mine, outside in zip(ours, wire, strict=True)]
    rows.append(["the same, record / capture", len(ratios), *(f"{quantile(ratios, q):.3f}" for q in (0.5, 0.9, 0.99))])
    table(rows)
    ratio = quantile(ratios, 0.5)
    # Events of one read have one arrival, that of the last: the earlier ones' overhead is a lower bound.
    print(f"\n    {together:.1%} of the events came in one read with the one before\n")
    late = "; this machine can't carry the load, so that events pile up" if together > 0.1 else ""
    check("overhead is what the capture sees added, within 15 %", 0.85 <= ratio <= 1.15, f"the ratio is {ratio:.3f}{late}")
