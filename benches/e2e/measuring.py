"""One measurement: provider, proxy and load as processes, what the load saw, and what the kernel says each used."""

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from dataclasses import replace

from processes import Fault, Processes, account, free_port, machine, memory, stop

LIMIT_SECONDS = 60  # what a load may take beyond its warm-up and its window


class Bench(Processes):
    """The provider, and what all measurements share."""

    def __init__(self, parts, workers):
        super().__init__()
        self.parts, self.workers = parts, workers
        self.certificates = self.folder
        subprocess.run([parts, "certificate", self.folder], check=True, timeout=20)
        self.provider_port = free_port()
        log = self.folder / "provider"
        self.provider = self.start([parts, "provider", "--port", self.provider_port], log)
        self.listening(self.provider, self.provider_port, log)

    def measure(self, proxy, scenario, window, seed, count_series=False):
        """A fresh process of the proxy (none for `direct`) under a scenario: a row of figures, or why there is none."""
        try:
            return self.attempt(proxy, scenario, window, seed, count_series)
        except (Fault, OSError, subprocess.SubprocessError) as fault:
            return {"failed": str(fault) or type(fault).__name__}

    def attempt(self, proxy, scenario, window, seed, count_series):
        process, facts = None, {"port": self.provider_port}
        if proxy:
            process, facts = proxy.start(
                self, self.provider_port, self.certificates, self.workers, http2=scenario.http2, routes=scenario.routes
            )
        try:
            tls = ["--tls", self.certificates / "cert.pem"] if scenario.tls and proxy else []
            port = facts["tls_port" if tls else "port"]
            self.warm_up(port, scenario, tls)
            idle = memory(process.pid) if process and scenario.hold else None
            words = ["--port", port, "--seed", seed, *scenario.words, *tls]
            words += ["--warm-up", scenario.warm_up, "--window", window]
            row = figures(self.run_load(words, scenario.warm_up + window, process), scenario, idle)
            return row | ({"series": series(facts["admin"])} if process and count_series else {})
        finally:
            if process:
                stop(process)
                shutil.rmtree(facts["folder"], ignore_errors=True)

    def warm_up(self, port, scenario, tls):
        """It listens; now it must answer as well."""
        for play in ("0,0,0,4,0", "1,1000,1000,4,0"):
            only = replace(scenario, load=("--mode", "closed", "--connections", 1, "--requests", 8), play=play)
            words = ["--port", port, *only.words, *tls]
            saw = self.run_load([*words, "--warm-up", 9], 10, None)
            if saw["exact"] != 8:
                raise Fault(f"no good answer: {saw['faults']}")

    def run_load(self, words, seconds, proxy):
        words = [str(word) for word in [self.parts, "load", *words]]
        load = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        guard = threading.Timer(seconds + LIMIT_SECONDS, load.kill)
        guard.start()
        try:
            looked, saw = {}, None
            for line in load.stdout:
                if line.strip() in ("begin", "end"):
                    looked[line.strip()] = self.look(load, proxy)
                    if line.strip() == "end" and proxy:
                        looked["memory"] = memory(proxy.pid)
                    if line.strip() == "end" and "hold" in words:
                        load.stdin.write("\n")
                        load.stdin.flush()
                else:
                    saw = json.loads(line)
            if load.wait(timeout=10) != 0 or not saw:
                raise Fault(f"the load ended with {load.returncode}")
            if looked and not saw["window_s"]:
                raise Fault("the window never ended")
            return saw | {"looked": looked}
        finally:
            guard.cancel()
            if load.poll() is None:
                load.kill()
            load.wait()
            load.stdin.close()
            load.stdout.close()

    def look(self, load, proxy):
        pids = {"proxy": proxy and proxy.pid, "provider": self.provider.pid, "load": load.pid}
        looked = {name: account(pid) for name, pid in pids.items() if pid}
        return looked | {"machine": machine(), "driver": time.process_time(), "at": time.monotonic()}


def figures(saw, scenario, idle):
    """One row. Absent is what there is none of: costs of no proxy, delays of a plain answer."""
    begin, end = saw["looked"]["begin"], saw["looked"]["end"]
    seconds = end["at"] - begin["at"]
    used = {part: end[part]["ns"] - begin[part]["ns"] for part in ("proxy", "provider", "load") if part in end}
    busy, stolen = (end["machine"][what] - begin["machine"][what] for what in ("busy", "steal"))
    others = busy - sum(used.values()) / 1e9 - (end["driver"] - begin["driver"])
    count = saw["events"] if scenario.per == "chunk" else saw["requests"]
    row = {
        "count": count, "per_second": count / saw["window_s"], "active": saw["active"], "window_s": saw["window_s"],
        "events": saw["events"], "merged": saw["merged"], "exact": saw["exact"], "inexact": saw["inexact"],
        "altered_requests": saw["altered_requests"], "errors": saw["errors"], "overdue": saw["overdue"],
        "faults": saw["faults"],
        "delay": saw["event_delay_us"], "first": saw["ttft_us"] if scenario.streams else saw["latency_us"],
        "provider_cores": used["provider"] / 1e9 / seconds, "load_cores": used["load"] / 1e9 / seconds,
        "others_cores": max(0.0, others / seconds), "stolen_cores": stolen / seconds, "cores": os.cpu_count(),
    }  # fmt: skip
    if "proxy" in used and count:
        ticks = {side: end["proxy"][side] - begin["proxy"][side] for side in ("user", "system")}
        row["cpu_us"] = used["proxy"] / 1000 / count
        row["system_share"] = ticks["system"] / max(1, sum(ticks.values()))
        row["switches"] = (end["proxy"]["switches"] - begin["proxy"]["switches"]) / count
        row["memory_kib"] = saw["looked"]["memory"]
        if idle and saw["active"]:
            row["kib_per_stream"] = (saw["looked"]["memory"] - idle) / saw["active"]
    return row


def series(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return sum(not line.startswith(b"#") for line in answer)


def unfaithful(row):
    """What in a row is not as it must be, whatever the machine does; nothing if all is well."""
    if "failed" in row:
        return row["failed"]
    wrong = [f"{row[what]} {what.replace('_', ' ')}" for what in ("errors", "inexact", "altered_requests") if row[what]]
    if not row["exact"]:
        wrong.append("no answer")
    return ", ".join(wrong) + (f" ({row['faults']})" if wrong and row["faults"] else "")
