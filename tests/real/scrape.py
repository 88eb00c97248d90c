"""`/metrics` under fire: what ten scrapes a second do to the gaps of 2,000 streams.

The streams stay open while seconds with scrapes and without take turns. The ruler is a client that has its events' times from the
kernel. Each scrape is what Prometheus asks for (OpenMetrics, gzip), of a gauge that has seen many models.
"""

import array
import json
import subprocess
import sys
import threading
import time
import urllib.request

from parts import HERE, Fault, check, quantile, table

# Fewer where the machine can't carry more: events then come late whoever scrapes.
STREAMS, EVENTS_PER_SECOND, RAMP = (2000, 1000, 500, 250), 5, 5
TURNS, SECONDS, SETTLE, EVERY = 5, 2.5, 0.3, 0.1
MODELS = 60
# No timing of this machine: with scrapes beside without, half of the turns on either side.
MOST_GAP, MOST_LATE = 1.05, 1.5


def prove(parts):
    _, upstream = parts.sim()
    gauge = parts.gauge(upstream)
    for number in range(MODELS):
        request(gauge.port, f"model-{number}")
    for streams in STREAMS:
        turns, scrapes = measure(parts, gauge, streams)
        if turns is not None:
            return report(streams, turns, scrapes)
        print(f"    this machine can't carry {streams:,} streams beside what else it does: fewer\n", flush=True)
    raise Fault(f"this machine can't carry {STREAMS[-1]} streams")


def request(port, model):
    body = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "messages": []}
    headers = {"content-type": "application/json", "x-sim-tokens": "5", "x-sim-ttft-ms": "1", "x-sim-tps": "1000"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        answer.read()


def measure(parts, gauge, streams):
    """Gaps by turn, without scrapes and with them, and what was scraped; none if the machine could not carry that."""
    nominal = 1 / EVENTS_PER_SECOND
    tokens = round((RAMP + 2 * TURNS * (SECONDS + SETTLE) + 60) * EVENTS_PER_SECOND)
    file = parts.file("gaps")
    words = [sys.executable, HERE / "gaps.py", gauge.port, streams, RAMP, tokens, EVENTS_PER_SECOND, file]
    with parts.file("client").open("w+") as said:
        client, _ = parts.start(words, r"open\n", stdin=subprocess.PIPE, stdout=said, stderr=said)
        spans, scrapes = [], []
        for turn in range(2 * TURNS):
            # without, with, with, without …: a machine that gets slower meets both.
            scraped = turn % 4 in (1, 2)
            time.sleep(SETTLE)
            begin = time.time()
            if scraped:
                scrapes += fire(gauge.admin)
            else:
                time.sleep(SECONDS)
            spans.append((scraped, begin, time.time()))
        client.stdin.close()
        client.wait(20)
        said.seek(0)
        print(f"    {streams:,} streams of {EVENTS_PER_SECOND} events/s: {said.read().splitlines()[-1]}", flush=True)
    check("the client ended with 0", client.returncode == 0)
    turns = by_turn(file, spans)
    calm = [gap for scraped, gaps in turns for gap in gaps if not scraped]
    carried = len(calm) > 0.9 * streams * EVENTS_PER_SECOND * TURNS * SECONDS and quantile(calm, 0.99) < 1.25 * nominal
    return (turns if carried else None), scrapes


def fire(admin):
    """Scrapes every 100 ms for a turn: (seconds, bytes on the wire, series) of each."""
    made, threads, begin = [], [], time.monotonic()
    for number in range(round(SECONDS / EVERY)):
        time.sleep(max(0, begin + number * EVERY - time.monotonic()))
        # A thread for each, so that a slow one does not make them fewer.
        threads.append(threading.Thread(target=scrape, args=(admin, made)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return made


def scrape(admin, made):
    headers = {"accept": "application/openmetrics-text;version=1.0.0", "accept-encoding": "gzip"}
    begin = time.monotonic()
    asked = urllib.request.Request(f"http://127.0.0.1:{admin}/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        coding, body = answer.headers["content-encoding"], answer.read()
    made.append((time.monotonic() - begin, len(body), coding))


def by_turn(file, spans):
    """(whether scrapes were made, the gaps that lie within) of each turn."""
    values = array.array("d", file.read_bytes())
    pairs = sorted(zip(values[::2], values[1::2]))
    turns = [(scraped, []) for scraped, _, _ in spans]
    at = 0
    for end, gap in pairs:
        while at < len(spans) - 1 and end > spans[at][2]:
            at += 1
        if end - gap >= spans[at][1] and end <= spans[at][2]:
            turns[at][1].append(gap)
    return turns


def report(streams, turns, scrapes):
    nominal = 1 / EVENTS_PER_SECOND
    expected = round(SECONDS / EVERY) * TURNS
    check(f"{len(scrapes)} scrapes were answered, all with gzip", len(scrapes) == expected and all(c == "gzip" for *_, c in scrapes))
    print(f"    a scrape: {quantile([s for s, *_ in scrapes], 0.5) * 1e3:.1f} ms, {scrapes[-1][1]:,} bytes (medians)\n")
    rows = [["ms", "n", "p50", "p90", "p99", "p99.9"]]
    quantiles = (0.5, 0.9, 0.99, 0.999)
    for scraped, name in ((False, "without"), (True, "with scrapes")):
        gaps = [gap for one, found in turns for gap in found if one == scraped]
        late = [abs(gap - nominal) for gap in gaps]
        rows.append([f"gap, {name}", len(gaps), *(f"{quantile(gaps, q) * 1e3:.3f}" for q in quantiles)])
        rows.append([f"off by, {name}", len(late), *(f"{quantile(late, q) * 1e3:.3f}" for q in quantiles)])
    rows[2], rows[3] = rows[3], rows[2]
    pairs = list(zip([g for one, g in turns if not one], [g for one, g in turns if one], strict=True))

    def ratio(q, measure):
        """The median, over the turns, of with / without."""
        return quantile([quantile(list(map(measure, b)), q) / quantile(list(map(measure, a)), q) for a, b in pairs], 0.5)

    gap = [ratio(q, float) for q in quantiles]
    late = [ratio(q, lambda gap: abs(gap - nominal)) for q in quantiles]
    rows.append(["gap, with / without", len(pairs), *(f"{value:.4f}" for value in gap)])
    rows.append(["off by, with / without", len(pairs), *(f"{value:.3f}" for value in late)])
    table(rows)
    print()
    check(f"scrapes leave the gaps where they are: p50 and p99 of {streams:,} streams within {MOST_GAP - 1:.0%}", max(gap[0], gap[2]) <= MOST_GAP, gap)
    check(f"and how far off they are: p50 times {late[0]:.2f}, at most {MOST_LATE}", late[0] <= MOST_LATE)
