"""A provider becomes half as fast: the alerts fire in Alertmanager and reach a webhook; it recovers, and they end.

The rules are the shipped ones with every duration divided by thirty. A week of medians as they were is written before, since
none can be waited for; what is compared with it is measured.
"""

import http.client
import json
import math
import subprocess
import sys
import threading
import time

import grafana
from monitoring import Webhook, alertmanager, prometheus, promtool, until
from parts import check, stop, table

SCALE = 30
WEEK, HOUR = 7 * 86400 / SCALE, 3600 / SCALE
# Seconds in the middle of a bucket each, so that the median of the histogram is the provider's.
USUAL, SLOW = 0.35, 0.7
CLIENTS, PAUSE = 8, 0.5
EXPECTED = (
    "LLMTTFTDeadlineBurnFast",
    "LLMTTFTRegressionVsLastWeek",
    "LLMTTFTRegressionVsBaseline",
    "LLMTTFTRegressionMixAdjusted",
)
# The longest span and wait of these, the hour of the first, and a machine that has other things to do.
PATIENCE = 2 * HOUR
PAIR = 'upstream="sim",model="sim-1"'


def prove(parts):
    folder = parts.file("rules")
    words = [sys.executable, grafana.FOLDER / "generate", "--out", folder, "--time-scale", SCALE]
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    sim, port = provider(parts, USUAL)
    gauge = parts.gauge(port)
    webhook = Webhook(parts)
    manager = alertmanager(parts, webhook.url)
    storage = history(parts)
    server = prometheus(
        parts, [f"127.0.0.1:{gauge.admin}"], sorted(folder.glob("rules/*.yml")), storage=storage, alertmanager=manager
    )
    clients(parts, gauge.port)

    until("half an hour's median, with enough behind it", lambda: ready(server), PATIENCE)
    print(f"    usual: TTFT {ready(server):.3f} s by the rules, {USUAL} s by the provider")
    time.sleep(30 * 60 / SCALE / 2)
    check(
        "as it is, none of them fires", not active(manager) and not webhook.notes_of(EXPECTED, "firing"), webhook.notes
    )

    stop(sim)
    sim, _ = provider(parts, SLOW, port)
    slowed = time.monotonic()
    until(
        "all are at the webhook",
        lambda: {n["labels"]["alertname"] for n in webhook.notes_of(EXPECTED, "firing")} == set(EXPECTED),
        PATIENCE,
    )
    check("Alertmanager holds them to be active", active(manager) == set(EXPECTED), active(manager))
    said(webhook, slowed)

    stop(sim)
    provider(parts, USUAL, port)
    recovered = time.monotonic()
    until(
        "the ends of all are at the webhook",
        lambda: {n["labels"]["alertname"] for n in webhook.notes_of(EXPECTED, "resolved")} == set(EXPECTED),
        PATIENCE,
    )
    check("Alertmanager holds none of them to be active", not active(manager), active(manager))
    rows = [["alert", "fired after, s", "ended after, s"]]
    for name in EXPECTED:
        ends = [first(webhook, name, status) - since for status, since in (("firing", slowed), ("resolved", recovered))]
        rows.append([name, *(f"{seconds:.0f}" for seconds in ends)])
    print()
    table(rows)
    print()
    faults = [rule["name"] for rule in server.rules() if rule["health"] != "ok"]
    check(f"all of {len(server.rules())} rules are evaluated without a fault", not faults, faults)


def provider(parts, ttft, port=0):
    flags = ("--ttft", f"{ttft * 1000:.0f}ms", "--tokens-per-second", "500", "--output-tokens", "10")
    return parts.sim(*flags, port=port)


def history(parts):
    """A folder with blocks of a week (divided) that ends before now: medians of `USUAL`, and deadlines that were kept."""
    pages = {
        f"streamgauge:ttft_seconds:p50_30m{{{PAIR}}}": USUAL,
        f"streamgauge:ttft_seconds:n_30m{{{PAIR}}}": 60,
        f"streamgauge:ttft_seconds:p50_30m_sampled{{{PAIR}}}": USUAL,
        f'streamgauge:ttft_by_input_seconds:p50_30m_sampled{{{PAIR},input="0_200"}}': 0.375,
        f'streamgauge:ttft_deadline:missed_ratio_1h_sampled{{{PAIR},deadline="0.6"}}': 0,
    }
    end = int(time.time() - 60)
    text = parts.file("history.om")
    with text.open("w") as out:
        for series, value in pages.items():
            out.write(f"# TYPE {series.split('{')[0]} gauge\n")
            out.writelines(f"{series} {value} {at}\n" for at in range(end - int(WEEK + HOUR), end, 4))
        out.write("# EOF\n")
    storage = parts.file("storage")
    promtool("tsdb", "create-blocks-from", "openmetrics", text, storage)
    return storage


def clients(parts, port):
    """Ask for streams one after the other until the end of the proof; if a provider is away for a moment, no matter."""
    over = threading.Event()
    body = {
        "model": "sim-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "how far can one go " * 10}],
    }

    def ask():
        while not over.wait(PAUSE):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            try:
                connection.request(
                    "POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"}
                )
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
        parts.callback(thread.join)
    parts.callback(over.set)


def ready(server):
    """The median, once there is all that the alerts compare."""
    needed = f"""
        streamgauge:ttft_seconds:p50_30m{{{PAIR}}}
        and streamgauge:ttft_seconds:n_30m >= 30
        and streamgauge:ttft_seconds:baseline_points_7d >= 720
        and streamgauge:ttft_seconds:p50_30m offset {WEEK:.0f}s
        and streamgauge:ttft_seconds:by_mix_usual_7d
        and on (upstream, model) streamgauge:ttft_deadline:missed_ratio_1h_median_7d{{deadline="0.6"}} < 0.1
    """
    found = server.query(needed)
    return found[0][1] if found and not math.isnan(found[0][1]) else None


def active(manager):
    return {alert["labels"]["alertname"] for alert in manager.alerts()} & set(EXPECTED)


def first(webhook, name, status):
    return next(note["at"] for note in webhook.notes_of([name], status))


def said(webhook, slowed):
    """What the notes say: the right upstream and model, numbers that were looked up, and twice as slow."""
    print()
    for name in EXPECTED:
        note = webhook.notes_of([name], "firing")[0]
        print(
            f"    {name}, after {note['at'] - slowed:.0f} s: {note['annotations']['summary']}.\n      {note['annotations']['description']}"
        )
    print()
    notes = [webhook.notes_of([name], "firing")[0] for name in EXPECTED]
    where = {(note["labels"]["upstream"], note["labels"]["model"]) for note in notes}
    check("they name the provider and the model", where == {("sim", "sim-1")}, where)
    texts = " ".join(text for note in notes for text in note["annotations"].values())
    check("all that their texts look up was found", "unknown" not in texts and "error" not in texts, texts)
