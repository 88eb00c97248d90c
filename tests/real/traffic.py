"""Traffic in which everything occurs that has a number: APIs, prompt and answer lengths, loads, faults, clients that leave.

Several providers behind one gauge, several models each. Clients send in what they measured. It checks nothing itself.
"""

import contextlib
import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter

# A dot, a colon and a plus: what a label value may hold and a regular expression means something else by.
MODELS = ("llama-3.1-8b", "qwen2.5:7b+")
# Name → flags of the simulated provider. The first has all its requests' times to tell.
PROVIDERS = {
    "groq.eu": ("--reports", "groq", "--ttft", "60ms", "--tokens-per-second", "400", "--jitter", "0.3"),
    "vllm": ("--reports", "vllm", "--ttft", "90ms", "--tokens-per-second", "150", "--concurrency", "24", "--jitter", "0.3"),
}
WORKLOAD = "bench_1k"
CONFIG = """
access_log = "{log}"

[client_timings]
address = "127.0.0.1:0"

{upstreams}
[[metrics.workloads]]
name = "{workload}"
input_tokens = [900, 1100]
"""
UPSTREAM = """
[[upstreams]]
name = "{name}"
url = "http://127.0.0.1:{port}"
models = {models}

[[routes]]
path_prefix = "/{name}"
strip_prefix = true
upstream = "{name}"
exchange_id = true
"""
# Input tokens of prompts, in turns; the provider counts a token for four bytes of a body.
PROMPTS = (60, 1000, 300, 1000, 3000, 1000, 10_000, 1000)
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
# What is asked for beside plain chats, in turns: the API, and the headers that script the provider.
ODD = (
    ("chat", {"x-sim-tokens": "120", "x-sim-tps": "500"}),
    ("responses", {"x-sim-reasoning": "6"}),
    ("chat", {"x-sim-fail": "status:429"}),
    ("messages", {"x-sim-reasoning": "6"}),
    ("chat", {"x-sim-tokens": "400", "x-sim-tps": "800"}),
    ("chat", {"x-sim-fail": "cut@3"}),
    ("chat", {"x-sim-fail": "error_event@3"}),
    ("chat", {"x-sim-usage": "off"}),
    ("chat", {"x-sim-tokens": "900", "x-sim-tps": "1200"}),
    ("chat", {"x-sim-fail": "status:404"}),
    ("chat", {"x-sim-fail": "truncate@2"}),
    ("chat", {"x-sim-ttft-ms": "800"}),
    ("chat", {"x-sim-fail": "status:503"}),
    ("chat", {"x-sim-ttft-ms": "1200", "x-sim-tool": "on"}),
    ("chat", {"x-sim-fail": "close_before_head"}),
    ("chat", {"x-sim-tokens": "2500", "x-sim-tps": "1400", "x-sim-tokens-per-event": "8"}),
)
LONG_PROMPTS = (30_000, 100_000, 250_000)
BURSTS = (3, 7, 14, 40, 80)


def gauge(parts):
    """Providers and the gauge before them: its port, its admin's, the one for clients' timings; the file of its records."""
    upstreams = ""
    for name, flags in PROVIDERS.items():
        _, port = parts.sim("--output-tokens", "20", *flags)
        upstreams += UPSTREAM.format(name=name, port=port, models=json.dumps(MODELS))
    config, log = parts.file("gauge.toml"), parts.file("records.jsonl")
    config.write_text(CONFIG.format(log=log, upstreams=upstreams, workload=WORKLOAD))
    words = [parts.program, "run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", config]
    ready = r"(?:.|\n)*".join(f"{what} http://127\\.0\\.0\\.1:(\\d+)" for what in ("connect to", "metrics at", "timings to"))
    _, found = parts.start(words, ready)
    return *(int(port) for port in found.groups()), log


class Traffic:
    """Requests of every kind to every provider and model, for so many seconds and until it is `enough`.

    `sent` counts the kinds, `traces` has the trace ids of what was asked. One stream hangs to the end of the gauge.
    """

    def __init__(self, port, timings):
        self.port, self.timings, self.over = port, timings, threading.Event()
        self.sent, self.traces, self.chance = Counter(), set(), random.Random(7)

    def run(self, seconds, enough):
        pairs = list(itertools.product(PROVIDERS, MODELS))
        for _ in range(4):  # alone, before the others
            self.ask(pairs[0], "chat", 200, {})
            time.sleep(0.7)
        threading.Thread(target=self.hang, args=(pairs[0],), daemon=True).start()
        threads = [threading.Thread(target=work, args=(pair,)) for pair in pairs for work in (self.plain, self.plain, self.odd)]
        threads += [threading.Thread(target=work, args=(pairs[0],)) for work in (self.bursts, self.long, self.impatient)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(seconds)
            enough()
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def turns(self, things):
        """These again and again, until it is over."""
        return itertools.takewhile(lambda _: not self.over.is_set(), itertools.cycle(things))

    def plain(self, pair):
        for tokens in self.turns(PROMPTS):
            self.ask(pair, "chat", tokens, {})
            time.sleep(0.05)

    def odd(self, pair):
        for number, (api, headers) in enumerate(self.turns(ODD)):
            self.ask(pair, api, 100, headers, stream=number % 5 != 4)
            time.sleep(0.1)

    def bursts(self, pair):
        for size in self.turns(BURSTS):
            slow = {"x-sim-ttft-ms": "400"}  # so that the last has begun before the first has ended
            threads = [threading.Thread(target=self.ask, args=(pair, "chat", 200, slow)) for _ in range(size)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(1)

    def long(self, pair):
        for tokens in self.turns(LONG_PROMPTS):
            self.ask(pair, "chat", tokens, {})
            time.sleep(1)

    def impatient(self, pair):
        for _ in self.turns([None]):
            self.ask(pair, "chat", 50, {"x-sim-stall": "0@30s"}, patience=0.4)

    def hang(self, pair):
        self.ask(pair, "chat", 50, {"x-sim-stall": "0@10min"}, patience=600)

    def ask(self, pair, api, tokens, headers, stream=True, patience=30):
        """Asks once and reads the answer, or leaves when its patience ends; sends in what it measured of an answer."""
        upstream, model = pair
        trace = f"{self.chance.getrandbits(128) | 1:032x}"
        self.traces.add(trace)
        body = {
            "model": model,
            "stream": stream,
            "max_tokens": 4000,
            "messages": [{"role": "user", "content": "word " * (tokens * 4 // 5)}],
        }
        if api == "chat" and stream:
            body["stream_options"] = {"include_usage": True}
        began, first = time.monotonic(), None
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            self.sent[api, headers.get("x-sim-fail", "")] += 1
            heads = {"content-type": "application/json", "traceparent": f"00-{trace}-{trace[:16]}-01", **headers}
            connection.request("POST", f"/{upstream}{PATHS[api]}", json.dumps(body), heads)
            answer = connection.getresponse()
            while answer.read1(65536):
                first = first or time.monotonic()
            if answer.status == 200 and first:
                said = {"id": answer.headers["x-streamgauge-id"], "ttft_s": first - began, "total_s": time.monotonic() - began}
                self.tell(said)

    def tell(self, said):
        connection = http.client.HTTPConnection("127.0.0.1", self.timings, timeout=10)
        with contextlib.closing(connection):
            connection.request("POST", "/client-timings", json.dumps(said))
            status = connection.getresponse().status
            self.sent["client timings", status] += 1
