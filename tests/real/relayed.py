"""What lies outside the server: a relay holds every byte for a known time on the way, the provider reports its own times.

`ttft_s - server_reported_s.ttft` of a record must be the time that the relay says it really held the request and the answer.
"""

import json
import sys

from parts import HERE, check, quantile, stop, table
from ruler import load, records

DELAYS_MS = (0, 2, 20)
STREAMS, SECONDS, TOKENS, EVENTS_PER_SECOND, TTFT_MS = 4, 5, 10, 100, (20, 60)


def prove(parts):
    _, upstream = parts.sim("--reports", "groq")
    rows = [["outside server, ms", "n", "relay up", "relay down", "relay", "p50", "p90", "p50 − relay"]]
    off = []
    for number, delay in enumerate(DELAYS_MS):
        relay, found = parts.start([sys.executable, HERE / "relay.py", upstream, delay], r"relay on (\d+)")
        gauge = parts.gauge(int(found[1]))
        load(gauge.port, STREAMS, SECONDS, number + 1, TOKENS, EVENTS_PER_SECOND, *TTFT_MS)
        stop(gauge.process)
        stop(relay)
        held = json.loads(relay.said.read_text().splitlines()[-1])
        up, down = (held[way]["mean_s"] * 1e3 for way in ("up", "down"))
        outside = [
            (record["ttft_s"] - record["server_reported_s"]["ttft"]) * 1e3
            for record in records(gauge.log).values()
            if record["outcome"] == "complete"
        ]
        off.append(quantile(outside, 0.5) - up - down)
        figures = (up, down, up + down, quantile(outside, 0.5), quantile(outside, 0.9))
        rows.append([f"{delay} ms each way", len(outside), *(f"{value:.3f}" for value in figures), f"{off[-1]:+.3f}"])
    print()
    table(rows)
    print()
    check("what the records show outside the server is what the relay added, within 1 ms", all(abs(ms) <= 1 for ms in off))
