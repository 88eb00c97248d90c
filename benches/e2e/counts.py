"""What does not depend on how busy the machine is: system calls, and user instructions, per chunk and per request.

Each is the difference of a shorter and a longer run of the same kind, so that start-up is in neither."""

import contextlib
import os
import re
import signal
from dataclasses import dataclass

from processes import Fault, found, stop, tree

SHOWN = 0.005  # calls that are rarer are not


@dataclass(frozen=True)
class Kind:
    """The shorter and the longer run, each so many requests of so many tokens."""

    connections: int
    play: str
    shorter: tuple
    longer: tuple

    @property
    def between(self):
        """Chunks, or requests, that the longer run has more."""
        return self.longer[0] - self.shorter[0] or self.longer[0] * (self.longer[1] - self.shorter[1])


STREAMED, PLAIN = "1,5000,10000,{},0", "0,0,0,{},0"
TRACED = {"chunk": Kind(20, STREAMED, (20, 50), (20, 300)), "request": Kind(20, PLAIN, (200, 16), (1200, 16))}
WALKED = {"chunk": Kind(1, STREAMED, (1, 100), (1, 600)), "request": Kind(1, PLAIN, (100, 16), (600, 16))}


def report(bench, proxies):
    lines = []
    if found("strace"):
        lines += ["| | per | system calls | futex | reads in vain | which |", "|---|---|---:|---:|---:|---|"]
        lines += [calls(bench, proxy, per, kind) for proxy in proxies.values() for per, kind in TRACED.items()]
    if found("valgrind"):
        lines += ["", "| | user instructions per chunk | per request |", "|---|---:|---:|"]
        for proxy in proxies.values():
            counted = [difference(bench, proxy, kind, walk)["instructions"] for kind in WALKED.values()]
            lines.append(f"| {proxy.name} | {counted[0]:,.0f} | {counted[1]:,.0f} |")
    if not lines:
        raise Fault("neither strace nor valgrind is here")
    return "\n".join(lines)


def difference(bench, proxy, kind, count):
    shorter, longer = (count(bench, proxy, kind, requests, tokens) for requests, tokens in (kind.shorter, kind.longer))
    return {key: (longer.get(key, 0) - shorter.get(key, 0)) / kind.between for key in shorter.keys() | longer.keys()}


def calls(bench, proxy, per, kind):
    counted = difference(bench, proxy, kind, trace)
    made = {name: n for (name, what), n in counted.items() if what == "calls"}
    vain = sum(n for (name, what), n in counted.items() if what == "errors" and name.startswith(("read", "recv")))
    which = ", ".join(f"{name} {n:.2f}" for name, n in sorted(made.items(), key=lambda one: -one[1]) if n >= SHOWN)
    return f"| {proxy.name} | {per} | {sum(made.values()):.2f} | {made.get('futex', 0):.3f} | {vain:.3f} | {which} |"


def trace(bench, proxy, kind, requests, tokens):
    told = bench.folder / "strace"
    with started(bench, proxy, [found("strace"), "-f", "-c", "-o", told], bench.workers) as (process, port):
        ask(bench, proxy, port, kind, requests, tokens)
        os.kill(tree(process.pid)[1], signal.SIGTERM)  # what is traced; strace ends with it
        process.wait(30)
    counted = {}
    for line in told.read_text().splitlines():
        match = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(\d+)?\s*([a-z]\w*)$", line)
        if match and match[3] != "total":
            counted[match[3], "calls"], counted[match[3], "errors"] = int(match[1]), int(match[2] or 0)
    return counted


def walk(bench, proxy, kind, requests, tokens):
    told = bench.folder / "callgrind"
    told.unlink(missing_ok=True)
    tool = [found("valgrind"), "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={told}"]
    with started(bench, proxy, tool, 1) as (_, port):
        ask(bench, proxy, port, kind, requests, tokens)
    return {"instructions": int(re.search(r"Collected : (\d+)", told.read_text())[1])}


@contextlib.contextmanager
def started(bench, proxy, tool, workers):
    """A proxy under the tool that counts; with one worker, in one process."""
    master = "on" if workers > 1 else "off"
    process, facts = proxy.start(bench, bench.provider_port, bench.certificates, workers, tool, master=master)
    try:
        yield process, facts["port"]
    finally:
        stop(process)


def ask(bench, proxy, port, kind, requests, tokens):
    words = ["--port", port, "--mode", "closed", "--connections", kind.connections, "--requests", requests]
    saw = bench.run_load([*words, "--warm-up", 100, "--play", kind.play.format(tokens)], 100, None)
    if saw["exact"] < requests:
        raise Fault(f"{proxy.name}: no good answer: {saw['faults']}")
