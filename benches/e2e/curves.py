"""How cost and delay grow: with streams, requests, sizes of requests and of events, and the series of the metrics."""

import resource
from dataclasses import dataclass

from processes import Fault
from scenarios import Scenario, held, opened


@dataclass(frozen=True)
class Curve:
    """`scenario` makes of a place on the axis what is asked there."""

    title: str
    axis: str
    places: tuple
    scenario: object
    delay: str  # of events ("delay"), or to an answer or its first token ("first")
    gauges_only: bool = False


def streams(count):
    # As many chunks in all, 10,000/s, however many streams: only their number differs.
    gap = count * 100
    load = ("--mode", "hold", "--rate", min(2500, count * 2), "--connections", count)
    until_all = max(1, count / 2000) + 2 * gap / 1e6
    return Scenario("", load, f"1,{gap},{gap},100000000,0", "chunk", until_all, 3, 1, hold=count)


def requests(rate):
    return Scenario("", opened(rate), "0,0,0,16,0", "request", 1, max(3, min(8, 60 / rate)), 1)


def request_bytes(size):
    rate = max(2, min(200, 40 * 2**20 // size))
    return Scenario("", (*opened(rate), "--body-bytes", size), "1,5000,2000,4,0", "request", 1, 3, 1)


def event_bytes(size):
    # 20 streams; 40 MiB/s or 10,000 events/s in all, whichever is less.
    total = max(20, min(10000, 40 * 2**20 // size))
    return Scenario("", held(20), f"1,10000,{20 * 10**6 // total},100000000,{size}", "chunk", 1, 3, 1)


def series(models):
    # Series are told apart for so many models of an upstream, and beyond for as many of another.
    upstreams = -(-models // MODELS_PER_UPSTREAM)
    load = ("--mode", "closed", "--connections", 16, "--models", models // upstreams)
    return Scenario("", load, "1,0,0,4,0", "request", 1, 3, 1, routes=upstreams)


def most_streams():
    """Two descriptors a stream by HTTP/1.1, and some for what else there is."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 10000 if hard == resource.RLIM_INFINITY else min(10000, (hard - 1000) // 2)


MODELS_PER_UPSTREAM = 32

CURVES = {
    "streams": Curve("Streams at once, 10,000 chunks/s in all", "streams", (10, 100, 1000, most_streams()), streams, "delay"),
    "requests": Curve("Short requests", "requests/s", (1, 10, 100, 1000, 2500, 5000), requests, "first"),
    "request-bytes": Curve("Size of requests, 40 MiB/s at the most", "bytes of a request",
                           (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 24), request_bytes, "first"),
    "event-bytes": Curve("Size of events, 20 streams, 40 MiB/s at the most", "bytes of an event",
                         (62, 250, 1 << 10, 1 << 13, 1 << 16, 1 << 20), event_bytes, "delay"),
    "series": Curve("Series of the metrics, by 1 to 96 models", "series", (1, 4, 16, 64, 96), series, "first", True),
}  # fmt: skip


def measure(bench, proxies, asked):
    """Repetition by repetition, place by place, one proxy after another."""
    names = asked.scenarios.split(",") if asked.scenarios else list(CURVES)
    unknown = [name for name in names if name not in CURVES]
    if unknown:
        raise Fault(f"no such curve: {', '.join(unknown)}")
    for repetition in range(asked.reps):
        for name in names:
            curve = CURVES[name]
            for place in curve.places:
                scenario = curve.scenario(place)
                window = scenario.quick if asked.quick else scenario.window
                order = [proxy for proxy in proxies.values() if proxy.is_gauge or not curve.gauges_only]
                for proxy in [None, *(order if repetition % 2 == 0 else reversed(order))]:
                    row = bench.measure(proxy, scenario, window, repetition + 1, count_series=curve.gauges_only)
                    named = {"scenario": name, "place": place, "proxy": proxy.name if proxy else "direct"}
                    yield named | {"repetition": repetition} | row
