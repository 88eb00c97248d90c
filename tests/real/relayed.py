"""What lies outside the server: a relay holds every byte for a known time on the way, the provider reports its own times.

`ttft_s - server_reported_s.ttft` of a record must be the time that the relay says it really held this request and the first
text of its answer.
"""

import json
import sys

from parts import HERE, bench, check, quantile, stop, table
from ruler import load, records

DELAYS_MS = (0, 2, 20)
STREAMS, SECONDS, TOKENS, EVENTS_PER_SECOND, TTFT_MS = 4, 5, 10, 100, (20, 60)


def prove(parts):
    _, upstream = parts.sim("--reports", "groq")
    rows = [["ms", "n", "relay: up", "down", "both", "outside server", "− relay: p50", "p90"]]
    off = []
    for number, delay in enumerate(DELAYS_MS):
        relay, found = parts.start([sys.executable, HERE / "relay.py", upstream, delay], r"relay on (\d+)")
        gauge = parts.gauge(int(found[1]))
        load(gauge.port, STREAMS, SECONDS, number + 1, TOKENS, EVENTS_PER_SECOND, *TTFT_MS)
        stop(gauge.process)
        stop(relay)
        held = json.loads(relay.said.read_text().splitlines()[-1])
        said = records(gauge.log)
        check(f"{delay} ms: the relay knows each of {len(said)} exchanges", said.keys() == held.keys())
        up, down = ([held[trace][way] * 1e3 for trace in said] for way in ("up", "down"))
        both = [a + b for a, b in zip(up, down)]
        outside = [(record["ttft_s"] - record["server_reported_s"]["ttft"]) * 1e3 for record in said.values()]
        rest = [a - b for a, b in zip(outside, both)]
        off.append(quantile(rest, 0.5))
        medians = (f"{quantile(values, 0.5):.3f}" for values in (up, down, both, outside))
        rows.append([f"{delay} ms each way", len(said), *medians, f"{off[-1]:+.3f}", f"{quantile(rest, 0.9):+.3f}"])
    print()
    table(rows)
    print()
    check("what the records show outside the server is what the relay added, within 1 ms", all(abs(ms) <= 1 for ms in off))
    # The same by the client's ruler, which asks the gauge for its records of the same requests: the three columns.
    _, found = parts.start([sys.executable, HERE / "relay.py", upstream, DELAYS_MS[-1]], r"relay on (\d+)")
    gauge = parts.gauge(int(found[1]))
    bench(parts, gauge.port, "--output-tokens", 20, "--runs", 30, "--via", f"127.0.0.1:{gauge.admin}")
