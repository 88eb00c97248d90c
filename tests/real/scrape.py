"""`/metrics` under fire: what ten scrapes a second do to the gaps of 2,000 streams.

The streams stay open while seconds with scrapes and without take turns. The ruler is a client that has its events'
times from the kernel. Each scrape is what Prometheus asks for (OpenMetrics, gzip), of a gauge that has seen many
models.
"""

import array
import contextlib
import gzip
import http.client
import json
import subprocess
import sys
import time
import urllib.request

from parts import HERE, Fault, check, quantile, table

# Fewer where the machine can't carry more: events then come late whoever scrapes.
STREAMS, EVENTS_PER_SECOND, RAMP = (2000, 1000, 500, 250, 100), 5, 5
TURNS, SECONDS, SETTLE, EVERY = 5, 2.5, 0.3, 0.1
MODELS = 60
# A bound of ratios, not of times.
MOST_GAP = 1.05


def prove(parts):
    _, upstream = parts.sim()
    gauge = parts.gauge(upstream)
    for number in range(MODELS):
        request(gauge.port, f"model-{number}")
    streams = next((streams for streams in STREAMS if carries(parts, gauge, streams)), None)
    if streams is None:
        raise Fault(f"this machine can't carry {STREAMS[-1]} streams")
    # without, with, with, without …: a machine that gets slower meets both.
    turns, scrapes = hold(parts, gauge, streams, [turn % 4 in (1, 2) for turn in range(2 * TURNS)])
    report(streams, turns, scrapes)


def carries(parts, gauge, streams):
    """Whether nearly all events of so many streams come when they should while nobody scrapes."""
    turns, _ = hold(parts, gauge, streams, [False])
    gaps = turns[0][1] if turns else []
    carried = len(gaps) > 0.8 * streams * EVENTS_PER_SECOND * SECONDS and quantile(gaps, 0.9) < 1.25 / EVENTS_PER_SECOND
    if not carried:
        print(f"    this machine can't carry {streams:,} streams beside what else it does: fewer", flush=True)
    return carried


def request(port, model):
    body = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "messages": []}
    headers = {"content-type": "application/json", "x-sim-tokens": "5", "x-sim-ttft-ms": "1", "x-sim-tps": "1000"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        answer.read()


def hold(parts, gauge, streams, plan):
    """Holds so many streams open for a turn with scrapes for each true of the plan, and one without for each false.

    Returns whether scrapes were made and the gaps, for each turn (none if the streams did not come about), and the
    scrapes.
    """
    tokens = round((RAMP + len(plan) * (SECONDS + SETTLE) + 60) * EVENTS_PER_SECOND)
    file = parts.file("gaps")
    words = [sys.executable, HERE / "gaps.py", gauge.port, streams, RAMP, tokens, EVENTS_PER_SECOND, file]
    client, _ = parts.start(words, "", stdin=subprocess.PIPE)
    opened = wait_for("open", client)
    spans, scrapes = [], []
    for scraped in plan if opened else []:
        time.sleep(SETTLE)
        begin = time.time()
        if scraped:
            scrapes += fire(gauge.admin)
        else:
            time.sleep(SECONDS)
        spans.append((scraped, begin, time.time()))
    client.stdin.close()
    client.wait(20)
    said = client.said.read_text().splitlines()[-1]
    print(f"    {streams:,} streams of {EVENTS_PER_SECOND} events/s, {len(spans)} turns: {said}", flush=True)
    check("the client ended with 0", client.returncode == 0)
    return by_turn(file, spans) if spans else [], scrapes


def wait_for(word, client):
    """Whether the client says that before its patience is over."""
    deadline = time.monotonic() + 3 * RAMP
    while client.poll() is None and time.monotonic() < deadline:
        if word in client.said.read_text():
            return True
        time.sleep(0.1)
    return False


def fire(admin):
    """Scrapes every 100 ms for a turn, as one Prometheus does, on one connection: (seconds, body, coding) of each."""
    headers = {"accept": "application/openmetrics-text;version=1.0.0", "accept-encoding": "gzip"}
    made, begin = [], time.monotonic()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", admin, timeout=10)) as connection:
        while (asked := time.monotonic()) < begin + SECONDS:
            connection.request("GET", "/metrics", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            made.append((time.monotonic() - asked, body, answer.headers["content-encoding"]))
            time.sleep(max(0, begin + len(made) * EVERY - time.monotonic()))
    return made


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
    check(f"{len(scrapes)} of {expected} scrapes were made in time", 2 * len(scrapes) >= expected)
    check("all were answered with gzip", all(coding == "gzip" for *_, coding in scrapes))
    last = scrapes[-1][1]
    series = sum(not line.startswith(b"#") for line in gzip.decompress(last).splitlines())
    took = quantile([seconds for seconds, *_ in scrapes], 0.5) * 1e3
    print(f"    a scrape of {series:,} series: {took:.1f} ms (median), {len(last):,} bytes\n")
    rows = [["ms", "n", "p50", "p90", "p99", "p99.9"]]
    quantiles = (0.5, 0.9, 0.99, 0.999)
    for scraped, name in ((False, "without"), (True, "with scrapes")):
        gaps = [gap for one, found in turns for gap in found if one == scraped]
        late = [abs(gap - nominal) for gap in gaps]
        rows.append([f"gap, {name}", len(gaps), *(f"{quantile(gaps, q) * 1e3:.3f}" for q in quantiles)])
        rows.append([f"off by, {name}", len(late), *(f"{quantile(late, q) * 1e3:.3f}" for q in quantiles)])
    rows[2], rows[3] = rows[3], rows[2]
    pairs = list(zip([g for one, g in turns if not one], [g for one, g in turns if one]))

    def ratios(q, measure):
        """With scrapes / without, of each pair of turns."""
        return [quantile(list(map(measure, b)), q) / quantile(list(map(measure, a)), q) for a, b in pairs]

    def off(gap):
        return abs(gap - nominal)

    gap, late = ([ratios(q, measure) for q in quantiles] for measure in (float, off))
    rows.append(["gap, with / without", len(pairs), *(f"{quantile(each, 0.5):.4f}" for each in gap)])
    rows.append(["off by, with / without", len(pairs), *(f"{quantile(each, 0.5):.3f}" for each in late)])
    table(rows)
    print("\n    the ratios are medians of pairs of turns\n")
    # Whatever else the machine does falls on turns of either kind: what scrapes do is in every pair.
    for q, each in ((0.5, gap[0]), (0.99, gap[2])):
        check(
            f"p{q * 100:.0f} of the gaps of {streams:,} streams is not longer by {MOST_GAP - 1:.0%} in every turn",
            min(each) <= MOST_GAP,
            each,
        )
