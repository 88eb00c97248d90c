"""Prometheus and Alertmanager of a proof: processes of their own, on free ports of 127.0.0.1."""

import contextlib
import http.server
import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from parts import Fault

READY_SECONDS, ANSWER_SECONDS = 30, 60
LISTENING = r'msg="Listening on"[^\n]*address=(127\.0\.0\.1:\d+)'


def prometheus(
    parts, targets=(), rules=(), scrape="1s", storage=None, alertmanager=None, features=(), job="streamgauge"
):
    """A `Prometheus` that scrapes these targets ("127.0.0.1:PORT") and evaluates these rule files.

    `storage` is a folder that may hold blocks of earlier days, a new one unless given; `alertmanager` is where alerts go
    (an `Alertmanager`); `features` are names for `--enable-feature`.
    """
    asked = {
        "global": {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": scrape},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}]}],
    }
    if alertmanager:
        asked["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.address]}]}]}
    config = parts.file("prometheus.yml")
    config.write_text(json.dumps(asked))  # which is YAML
    words = [
        installed("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={storage or parts.file('prometheus')}",
        "--storage.tsdb.retention.time=10y", "--web.listen-address=127.0.0.1:0",
        *([f"--enable-feature={','.join(features)}"] if features else []),
    ]  # fmt: skip
    return started(parts, words, Prometheus)


def alertmanager(parts, receiver_url, group_by=("alertname", "upstream", "model"), seconds=1):
    """An `Alertmanager` that posts to this address what it is sent, ends of alerts too, grouped so and after so long."""
    receiver = {"name": "receiver", "webhook_configs": [{"url": receiver_url, "send_resolved": True}]}
    waits = {"group_wait": f"{seconds}s", "group_interval": f"{seconds}s", "repeat_interval": "1h"}
    config = parts.file("alertmanager.yml")
    config.write_text(
        json.dumps({"route": {"receiver": "receiver", "group_by": list(group_by)} | waits, "receivers": [receiver]})
    )
    words = [
        installed("prometheus-alertmanager"), f"--config.file={config}", f"--storage.path={parts.file('alertmanager')}",
        "--cluster.listen-address=", "--web.listen-address=127.0.0.1:0",
    ]  # fmt: skip
    return started(parts, words, Alertmanager)


def started(parts, words, kind, seconds=READY_SECONDS):
    """The `Server` of this kind that these words start, once it is ready."""
    process, found = parts.start(words, LISTENING)
    server = kind(process, found[1])
    until(f"{kind.__name__} is ready", server.is_ready, seconds)
    return server


class Server:
    """A running program that answers HTTP at `address`; `url` is the same with its scheme."""

    def __init__(self, process, address):
        self.process, self.address, self.url = process, address, f"http://{address}"

    def is_ready(self):
        with contextlib.suppress(OSError):
            return fetch(f"{self.url}/-/ready") is not None


class Prometheus(Server):
    def ask(self, path, **parameters):
        """The data of an answer of its API; lists are repeated parameters."""
        answer = json.loads(fetch(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"))
        if answer["status"] != "success":
            raise Fault(f"{path} {parameters}: {answer['errorType']}: {answer['error']}")
        if answer.get("warnings"):
            raise Fault(f"{path} {parameters}: {answer['warnings']}")
        return answer["data"]

    def query(self, expr, **parameters):
        """What an instant query gives: pairs of labels and value."""
        data = self.ask("query", query=expr, **parameters)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def range(self, expr, start, end, step):
        """What a range query gives: pairs of labels and a list of (time, value); times are Unix seconds."""
        data = self.ask("query_range", query=expr, start=start, end=end, step=step)
        return [(s["metric"], [(at, float(value)) for at, value in s["values"]]) for s in data["result"]]

    def rules(self):
        """All rules as the API has them: `name`, `type`, `query`, `health`, `lastError`, `state` …"""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]


class Alertmanager(Server):
    def alerts(self):
        """The alerts that it now holds to be active, as its API has them."""
        return json.loads(fetch(f"{self.url}/api/v2/alerts?active=true"))


class Webhook:
    """Takes Alertmanager's notifications at `url`; `notes` are their alerts: `status`, `labels`, `annotations`, `at`."""

    def __init__(self, parts):
        self.notes = []
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                webhook.notes.extend(alert | {"at": time.monotonic()} for alert in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        parts.callback(server.server_close)
        parts.callback(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def notes_of(self, names, status):
        """The alerts of these names, by status: firing or resolved."""
        return [note for note in self.notes if note["labels"]["alertname"] in names and note["status"] == status]


def promtool(*words, seconds=300, may_fail=False):
    """Runs promtool; returns what it said, and that must be no failure unless it may be."""
    words = [installed("promtool"), *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    said = (done.stdout + done.stderr).strip()
    if done.returncode != 0 and not may_fail:
        raise Fault(f"promtool {words[1]} {words[2]} ended with {done.returncode}: {said[-3000:]}")
    return said


def installed(name):
    """The program's path, or what to do to have it."""
    found = shutil.which(name)
    if not found:
        package = "prometheus-alertmanager" if name == "prometheus-alertmanager" else "prometheus"
        raise Fault(f"{name} is not here (Debian: apt-get install {package})")
    return found


def until(what, is_so, seconds):
    """Waits for a condition; returns what it gives once that is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = is_so()
        if found:
            return found
        time.sleep(0.2)
    raise Fault(f"not within {seconds} s: {what}")


def fetch(url):
    """The body of an answer, also of one that says what was wrong with a query."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        if "json" in error.headers.get("content-type", ""):
            return error.read()
        raise
