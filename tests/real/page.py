"""The live page in Chromium: rows while streams run, stages that add up, filter, keys, both schemes, a phone, strangers' names.

What the page shows is held against the access log of the same gauge.
"""

import http.client
import json
import shutil
import threading
import time
from decimal import Decimal
from pathlib import Path

from packages import FOLDER
from parts import Fault, check, quantile, stop, table
from playwright.sync_api import sync_playwright

MARKUP = "<img src=x onerror=alert(1)>"
LINE_ENDS = "a\u2028b\u2029c"
LOADS, EXCHANGES, PATIENCE_MS = 5, 500, 60_000
PICTURES = FOLDER / "page"

# Run before anything of the page: the longest task, whatever the page does.
WATCH = """
window.longest = 0;
new PerformanceObserver((list) => list.getEntries().forEach((task) => { window.longest = Math.max(window.longest, task.duration); }))
  .observe({ type: "longtask", buffered: true });
"""
WEIGHT = """
performance.getEntries().filter((entry) => entry.transferSize && !entry.name.endsWith("/live"))
  .reduce((sum, entry) => sum + entry.transferSize, 0)
"""
# Every text that is seen, with the contrast of its colour to what is painted behind it. Text on a picture has none to look at.
CONTRAST = """
() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let least = [Infinity, ""], seen = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest("noscript, option, title")) continue;
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [luminance(ink), luminance(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    seen += 1;
    if (ratio < least[0]) least = [ratio, texts.currentNode.data.trim().slice(0, 40)];
  }
  return [seen, ...least];
}
"""


def prove(parts):
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        raise Fault("Chromium is not here (Debian: apt-get install chromium)")
    _, upstream = parts.sim("--reports", "groq", "--ttft", "5ms", "--tokens-per-second", "200", "--output-tokens", "20")
    gauge = parts.gauge(upstream)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        nobody_looks(gauge, Viewer(browser))
        page = Viewer(browser)
        page.open(gauge.admin)
        runs(page, gauge)
        opens(page, gauge)
        strangers(page, gauge)
        filters(page, gauge)
        keys(page)
        holds_still(page, gauge)
        looks(browser, gauge)
        smooth(browser, gauge)
        token(parts, browser, upstream)
        check("no error, no warning and no dialog in any of these pages", not Viewer.said, "; ".join(Viewer.said))
        stop(gauge.process)
        page.wait("#state.bad")
        check("the page says so when the gauge is gone", "no connection" in page.text("#state"))


class Viewer:
    """A page in a browser window of its own, and what its console said."""

    said = []

    def __init__(self, browser, scheme="light", width=1280, height=1000, watch=""):
        self.page = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height}).new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.add_init_script(watch)
        for event in ("console", "pageerror", "dialog"):
            self.page.on(event, self.hear)

    def hear(self, what):
        said = getattr(what, "text", None) or getattr(what, "message", None) or str(what)
        # What a proof asks for on purpose, or does when it has ended a gauge.
        if "401 (Unauthorized)" not in said and "ERR_" not in said:
            Viewer.said.append(said)

    def open(self, port):
        answer = self.page.goto(f"http://127.0.0.1:{port}/")
        self.wait("#state.good")
        return answer

    def wait(self, selector, **more):
        return self.page.wait_for_selector(selector, **more)

    def text(self, selector):
        return self.page.inner_text(selector)

    def count(self, selector):
        return self.page.locator(selector).count()

    def js(self, script):
        return self.page.evaluate(script)

    def until(self, what, condition):
        """Waits for a condition on the page; a proof fails if it does not come."""
        self.page.wait_for_function(condition)
        check(what, True)

    def close(self):
        self.page.context.close()


def ask(port, model="sim-1", connection=None, **wishes):
    """One stream, read to its end."""
    connection = connection or http.client.HTTPConnection("127.0.0.1", port)
    body = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "messages": []}
    headers = {"content-type": "application/json"} | {f"x-sim-{name.replace('_', '-')}": str(wish) for name, wish in wishes.items()}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    connection.getresponse().read()


def records(gauge):
    return {record["id"]: record for record in map(json.loads, gauge.log.read_text().splitlines())}


# --- what is shown --------------------------------------------------------------------------------------------------------


def nobody_looks(gauge, viewer):
    """The admin thread sleeps through traffic, unless somebody looks."""
    thread = next(path for path in threads(gauge) if (path / "comm").read_text().strip() == "admin")

    def wakes():
        before = switches(thread)
        for _ in range(20):
            ask(gauge.port)
            time.sleep(0.1)
        return switches(thread) - before

    alone = wakes()
    viewer.open(gauge.admin)
    watched = wakes()
    viewer.close()
    check(f"20 streams wake the admin thread {alone} times while nobody looks, {watched} times when somebody does", alone == 0 < watched)


def threads(gauge):
    return Path(f"/proc/{gauge.process.pid}/task").iterdir()


def switches(thread):
    lines = (thread / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")))


def runs(page, gauge):
    before = page.count("#past > .row")
    stream = threading.Thread(target=ask, args=(gauge.port,), kwargs={"ttft_ms": 1500, "tps": 10, "tokens": 20})
    stream.start()
    page.until("a row appears while the request waits", "() => /waiting/.test(document.querySelector('#running > .row')?.innerText)")
    page.until("and streams, with its TTFT", "() => /streaming\\s+1\\.[0-9]+ s/.test(document.querySelector('#running > .row')?.innerText)")
    in_flight = page.text("#in-flight")
    check("the head counts it", in_flight == "1", in_flight)
    stream.join()
    page.until("it has left those in flight", "() => !document.querySelector('#running > .row')")
    page.until("and stands among those that ended", f"() => document.querySelectorAll('#past > .row').length > {before}")


def opens(page, gauge):
    """Every row's waterfall adds up, to the nanosecond, to the wall time in the access log."""
    rows = page.page.locator("#past > .row")
    count, known, sums = rows.count(), records(gauge), 0
    for number in range(min(count, 10)):
        rows.nth(number).click()
        page.wait(".opened .gaps")
        values = page.js(
            "[...document.querySelectorAll('.opened .waterfall tbody data')].map((data) => data.value)"
            ".concat(document.querySelector('.opened .waterfall tfoot data').value)"
        )
        *stages, wall = map(Decimal, values)
        record = known[rows.nth(number).get_attribute("data-id")]
        sums += sum(stages) == wall == Decimal(str(record["wall_s"])) and len(stages) > 3
        server = page.js("document.querySelector('.opened .clocks tbody tr td:last-child data').value")
        sums += Decimal(server) == Decimal(str(record["server_reported_s"]["ttft"]))
        rows.nth(number).click()
    check(f"the stages shown of {min(count, 10)} exchanges add up to the log's wall time, the provider's word is the log's", sums == 2 * min(count, 10))
    check("all are closed again", page.count(".opened") == 0)


def strangers(page, gauge):
    # JavaScript takes these for ends of lines, JSON does not.
    ask(gauge.port, LINE_ENDS)
    page.wait("#now .model[title='a\ufffdb\ufffdc']", state="attached")
    ask(gauge.port, MARKUP)
    page.page.mouse.move(5, 5)
    page.wait(f"#past .model[title='{MARKUP}']", state="attached")
    shown = page.js("document.querySelector('#past > .row .model').textContent")
    check("a model's name is text, whatever it is", shown == MARKUP and page.count("main img") == 0, shown)
    answer = page.page.request.get(page.page.url, headers={"accept": "text/html"})
    policy = answer.headers["content-security-policy"]
    check("scripts and styles are the page's own files only", "script-src 'self'; style-src 'self'" in policy and "unsafe" not in policy, policy)
    refused = page.js("() => { try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; } }")
    check("and the browser lets no text become markup", refused == "TypeError", refused)
    Viewer.said[:] = [said for said in Viewer.said if "TrustedHTML" not in said]


def filters(page, gauge):
    ask(gauge.port, fail="status:500")
    page.wait("#outcome option[value=upstream_5xx]", state="attached")
    shown = "[...document.querySelectorAll('#past > .row:not([hidden])')].map((row) => row.dataset.id)"
    everything = len(page.js(shown))
    known = records(gauge)

    def only(what, takes):
        right = {key for key, record in known.items() if takes(record)}
        check(f"{what}: {len(right)} of {len(known)} rows", set(page.js(shown)) == right and 0 < len(right) < len(known))

    page.page.select_option("#outcome", "upstream_5xx")
    only("by outcome", lambda record: record["outcome"] == "upstream_5xx")
    page.page.click("#clear")
    page.until("cleared", f"() => {shown}.length === {everything}")
    page.page.select_option("#model", MARKUP)
    only("by model", lambda record: record.get("model") == MARKUP)
    page.until("the figures, too", "() => document.querySelectorAll('#now tbody tr').length === 1")
    check("they are that model's", MARKUP in page.text("#now tbody"))
    page.page.click("#clear")
    page.page.fill("#words", MARKUP[:6].upper())
    only("by words", lambda record: record.get("model") == MARKUP)
    page.page.fill("#words", "")
    page.page.click("#clear")


def keys(page):
    press, active = page.page.keyboard.press, "document.activeElement.id || document.activeElement.className"
    page.js("document.activeElement.blur()")
    press("/")
    walk = [page.js(active)]
    press("Escape")
    walk.append(page.js(active))
    press("ArrowDown")
    press("ArrowDown")
    third = "[...document.querySelectorAll('#past > .row')].indexOf(document.activeElement)"
    walk.append(page.js(third))
    press("Enter")
    page.wait(".opened .gaps")
    walk.append(page.js("document.activeElement.getAttribute('aria-expanded')"))
    press("Escape")
    walk += [page.js("document.activeElement.getAttribute('aria-expanded')"), page.count(".opened")]
    press("End")
    last = page.js("document.activeElement === [...document.querySelectorAll('#past > .row')].at(-1)")
    press("Home")
    walk += [last, page.js(third)]
    check("by keys alone: find, back, two down, open, close, end, home", walk == ["words", "row", 2, "true", "false", 0, True, 0], walk)
    press("p")
    page.until("p pauses", "() => document.querySelector('#state').innerText.includes('paused')")
    press("p")
    page.wait("#state.good")
    page.js("document.activeElement.blur()")


def holds_still(page, gauge):
    """Rows do not run away from whoever is at them."""
    page.page.hover("#past > .row >> nth=0")
    first = page.js("document.querySelector('#past > .row').dataset.id")
    ask(gauge.port)
    page.wait("#newer:not([hidden])")
    same = page.js("document.querySelector('#past > .row').dataset.id") == first
    # By key: a pointer that goes there leaves the rows, and they are no longer held.
    page.page.press("#newer", "Enter")
    page.page.mouse.move(5, 5)
    page.page.wait_for_function(f"() => document.querySelector('#past > .row').dataset.id !== '{first}'")
    check("under the pointer rows stay where they are until the newer ones are asked for", same)


# --- how it looks ---------------------------------------------------------------------------------------------------------


def looks(browser, gauge):
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 360)):
        viewer = Viewer(browser, scheme, width)
        viewer.open(gauge.admin)
        viewer.wait("#past > .row")
        viewer.js("document.querySelectorAll('#past > .row')[2].click()")
        viewer.wait(".opened .gaps svg")
        wide = viewer.js("document.documentElement.scrollWidth")
        # Rows that are not in sight are not laid out: they are brought there, so that nothing hides.
        viewer.js("document.querySelectorAll('#past > .row').forEach((row) => { row.style.contentVisibility = 'visible'; })")
        seen, least, text = viewer.js(CONTRAST)
        check(f"{scheme}, {width} px: no scrolling sideways; least contrast of {seen} texts {least:.2f} ({text!r})", wide <= width and least >= 4.5 and seen > 100)
        viewer.page.screenshot(path=PICTURES / f"{scheme}-{width}.png", full_page=True)
        viewer.close()
    print(f"    pictures in {PICTURES}", flush=True)


def smooth(browser, gauge):
    """With all of its rows, under traffic, filtered and opened: no task that a person would feel.

    A task's length is the processor's time for it: by the clock it also waits for whatever else runs on this machine.
    """
    many(gauge, EXCHANGES)
    going = threading.Event()
    traffic = threading.Thread(target=trickle, args=(gauge, going))
    traffic.start()
    rows = [["load", "first paint, ms", "KB over the wire", "rows", "longest task, ms of processor", "by the clock"]]
    paints, tasks, weights, shown = [], [], [], []
    try:
        for number in range(LOADS):
            viewer = Viewer(browser, watch=WATCH)
            browser.start_tracing(page=viewer.page, categories=["toplevel"])
            viewer.open(gauge.admin)
            viewer.page.wait_for_function(f"() => document.querySelectorAll('#past > .row').length >= {EXCHANGES}")
            viewer.page.fill("#words", "sim")
            viewer.js("document.querySelectorAll('#past > .row')[1].click()")
            viewer.wait(".opened .gaps")
            viewer.page.keyboard.press("Escape")
            viewer.page.fill("#words", "")
            time.sleep(1.5)
            paints.append(viewer.js("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            tasks.append(longest_task(json.loads(browser.stop_tracing())["traceEvents"]))
            weights.append(viewer.js(WEIGHT) / 1000)
            shown.append(viewer.count("#past > .row"))
            rows.append([number + 1, f"{paints[-1]:.0f}", f"{weights[-1]:.1f}", shown[-1], f"{tasks[-1]:.0f}", f"{viewer.js('window.longest'):.0f}"])
            viewer.close()
    finally:
        going.set()
        traffic.join()
    print()
    table(rows)
    print()
    check("at most 150 KB over the wire", 5 < max(weights) <= 150)
    check(f"each load shows {EXCHANGES} rows", min(shown) >= EXCHANGES)
    # Times are this machine's and this moment's: shown, not held.
    print(f"    medians: first paint {quantile(paints, 0.5):.0f} ms (the aim: 1 s), longest task {quantile(tasks, 0.5):.0f} ms (100 ms)", flush=True)


def longest_task(events):
    """The most processor time that one task of a page's main thread took, in milliseconds."""
    named = [event for event in events if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"]
    mains = {(event["pid"], event["tid"]) for event in named}
    tasks = [event for event in events if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in mains]
    check(f"the trace has {len(tasks)} tasks", len(tasks) > 100)
    return max(event.get("tdur", 0) for event in tasks) / 1000


def many(gauge, count):
    def some():
        connection = http.client.HTTPConnection("127.0.0.1", gauge.port)
        for _ in range(count // 8 + 1):
            ask(gauge.port, connection=connection, ttft_ms=1, tokens=5)

    clients = [threading.Thread(target=some) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def trickle(gauge, ends):
    while not ends.wait(0.05):
        ask(gauge.port, ttft_ms=1, tokens=5)


def token(parts, browser, upstream):
    file = parts.file("token")
    file.write_text("open-sesame\n")
    gauge = parts.gauge(upstream, "--admin-token-file", file)
    viewer = Viewer(browser)
    viewer.page.goto(f"http://127.0.0.1:{gauge.admin}/")
    viewer.wait("#ask:not([hidden])")
    viewer.page.fill("#token", "wrong")
    viewer.page.keyboard.press("Enter")
    viewer.page.wait_for_function("() => document.querySelector('#asked').innerText.includes('not the token')")
    viewer.page.fill("#token", "open-sesame")
    viewer.page.keyboard.press("Enter")
    viewer.wait("#state.good")
    ask(gauge.port)
    viewer.wait("#past > .row")
    viewer.page.locator("#past > .row").click()
    viewer.wait(".opened .gaps svg")
    viewer.page.reload()
    viewer.wait("#state.good")
    check("with a token the page asks for it, refuses a wrong one, opens, and keeps it", not viewer.page.is_visible("#ask"))
    metrics = viewer.page.request.get(f"http://127.0.0.1:{gauge.admin}/metrics")
    refused = viewer.page.request.get(f"http://127.0.0.1:{gauge.admin}/exchanges")
    check("without it there are metrics and no records", (metrics.status, refused.status) == (200, 401))
    viewer.close()
