"""Dashboards drawn by Grafana's own packages in a browser, from a real Prometheus fed by the real gauge.

The page in render/ gives the dashboards' JSON to Grafana's code: transformations, field config, units, thresholds,
legends and components. What it then shows is read from the page and held against Prometheus' own answers to the same
queries. Pictures of all boards are left in target/proofs/screenshots.
"""

import functools
import http.server
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time

import boards
import grafana
import packages
from monitoring import prometheus, until
from parts import HERE, Fault, check, table
from playwright.sync_api import sync_playwright
from rendered import NOTHING, PANELS, Shown, overridden
from traffic import Traffic, gauge

SOURCES = HERE / "render"
PICTURES = packages.FOLDER / "screenshots"
# Seconds of traffic, and what durations in the rules are divided by.
SECONDS, SCALE = 45, 120
# For pictures in the documentation, as docs/dashboards.md says: minutes of calmer traffic, with the rules as shipped.
MINUTES = int(os.environ.get("PICTURE_MINUTES", "0"))
PICTURED, TOP = ("overview", "anatomy"), {"x": 0, "y": 0, "width": 1600, "height": 2484}
GOOD = {"Alerts that fire now"} if MINUTES else set()
POINTS, WIDTH = 100, 1600
BROWSER = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BUNDLE = [
    "--bundle",
    "--format=esm",
    "--jsx=automatic",
    "--loader:.ttf=empty",
    '--define:process.env.NODE_ENV="development"',
]


def prove(parts):
    url = served(parts, bundled(parts))
    server, began, busy, ended = fed(parts)
    PICTURES.mkdir(parents=True, exist_ok=True)
    rows = [["board", "panels", "with data", "series drawn", "values shown", "in their colour", "threshold lines"]]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=BROWSER)
        for name, board in grafana.dashboards().items():
            if MINUTES and name not in PICTURED:
                continue
            with browser.new_page(viewport={"width": WIDTH, "height": 1000}, timezone_id="UTC") as page:
                shown = drawn(page, url, server, board, began, busy)
                page.screenshot(path=PICTURES / f"{name}.png", clip=TOP if MINUTES else None)
                rows.append([name, *judged(shown, board)])
        board = grafana.dashboards()["overview"]
        with browser.new_page(viewport={"width": WIDTH, "height": 1000}, timezone_id="UTC") as page:
            quiet(drawn(page, url, server, board, began - 5 * QUIET, began))
        browser.close()
    print()
    table(rows)
    print(f"\n    pictures: {PICTURES}; {ended - began:.0f} s of traffic")


def bundled(parts):
    """The folder of the page, made of these sources and Grafana's packages."""
    node = installed("node", "nodejs")
    npm = installed("npm", "npm")
    lists = [SOURCES / "package.json", SOURCES / "package-lock.json"]
    began = time.monotonic()

    def install(folder):
        print("  installing the packages of tests/real/render/package-lock.json", flush=True)
        folder.mkdir(parents=True)
        for path in lists:
            shutil.copy(path, folder)
        shutil.copytree(SOURCES / "empty", folder / "empty")
        packages.run(
            npm,
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            cwd=folder,
            hint="Debian: apt-get install npm",
        )

    modules = packages.made("render", b"".join(path.read_bytes() for path in lists), install) / "node_modules"
    print(f"    packages are there after {time.monotonic() - began:.0f} s")
    page = parts.file("page")
    (page / "public/fonts/inter").mkdir(parents=True)
    # Where Grafana's components look for their icons and its font.
    (page / "public/build").symlink_to(modules / "@grafana/ui/dist/public")
    for weight in ("Regular", "Medium"):
        font = modules / "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2"
        (page / f"public/fonts/inter/Inter-{weight}.woff2").symlink_to(font)
    shutil.copy(SOURCES / "page.html", page)
    words = [
        node,
        modules / "esbuild/bin/esbuild",
        SOURCES / "page.jsx",
        *BUNDLE,
        f"--outfile={page / 'page.js'}",
        "--log-level=warning",
    ]
    made = subprocess.run(
        list(map(str, words)),
        env=os.environ | {"NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    check("esbuild bundles the page without a warning", made.returncode == 0 and not made.stderr, made.stderr[-2000:])
    return page


def served(parts, folder):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    parts.callback(server.server_close)
    parts.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}"


def installed(name, package):
    found = shutil.which(name)
    if not found:
        raise Fault(f"{name} is not here (Debian: apt-get install {package})")
    return found


def chromium():
    return installed("chromium", "chromium")


# Pages of metrics from before the first request.
QUIET = 6


def fed(parts):
    """A Prometheus that has seen the gauge before, during and behind traffic of every kind, and when that was."""
    port, admin, timings, _ = gauge(parts)
    rules = parts.file("rules")
    generate = [
        sys.executable,
        grafana.FOLDER / "generate",
        "--out",
        rules,
        "--time-scale",
        "1" if MINUTES else str(SCALE),
    ]
    subprocess.run(list(map(str, generate)), check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    server = prometheus(parts, [f"127.0.0.1:{admin}"], sorted(rules.glob("rules/*.yml")), "1s")
    until(
        "Prometheus has pages from before all traffic",
        lambda: server.query(f'count_over_time(up{{job="streamgauge"}}[1m]) > {QUIET}'),
        60,
    )
    began = time.time()
    (Calm(port, timings, MINUTES * 60) if MINUTES else Traffic(port, timings, SECONDS)).run()
    ended = time.time()
    until(
        "Prometheus has what came last", lambda: server.query(f'timestamp(up{{job="streamgauge"}} == 1) > {ended}'), 30
    )
    return server, began, ended if MINUTES else boards.busy_at(server, began, ended), ended


class Calm(Traffic):
    """The same, but nobody asks at once, and nothing hangs."""

    def ask(self, *asked, **more):
        time.sleep(self.chance.uniform(0, 2))
        super().ask(*asked, **more)

    def hung(self, pair):
        pass


def drawn(page, url, server, board, begin, end):
    """The board on the page, from one time to the other, without a complaint of the browser's console."""
    said = []
    page.on("console", lambda message: message.type in ("error", "warning") and said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("response", lambda answer: answer.status >= 400 and said.append(f"{answer.status} {answer.url}"))
    page.goto(f"{url}/page.html")
    step = max(1, math.ceil((end - begin) / POINTS))
    begin, end = math.floor(begin / step) * step, math.floor(end / step) * step
    full = filled(board, end - begin, step)
    times = {"from": begin, "to": end, "step": step}
    height = page.evaluate("asked => window.draw(asked)", {"board": full, "server": server.url, "choice": "", **times})
    # As tall as the board, so that tables, too, draw all their rows.
    page.set_viewport_size({"width": WIDTH, "height": math.ceil(height)})
    page.evaluate("window.settled()")
    check(f"{board['title']}: nothing in the browser's console", not said, "; ".join(said)[:2000])
    return Shown(page, server, full, begin, end, step)


def filled(board, span, step):
    """The board with its variables put in, as far as it is drawn: all is chosen, or the default."""
    fill = functools.partial(
        grafana.filled,
        board=board,
        chosen=boards.CHOICES["all"],
        span=f"{span:.0f}s",
        step=f"{step}s",
        rate=f"{max(4, 2 * step)}s",
    )
    full = json.loads(json.dumps(board))
    for panel in full["panels"]:
        panel["title"] = fill(panel["title"])
        for target in panel.get("targets", ()):
            target.update({key: fill(target[key]) for key in ("expr", "legendFormat")})
    return full


def judged(shown, board):
    """Each panel by its kind; counts of what was held against Prometheus."""
    faults, count = [], {"data": 0, "series": 0, "values": 0, "coloured": 0, "lines": 0}
    for panel in grafana.panels(shown.board):
        try:
            overridden(shown, panel)
            for what, number in PANELS[panel["type"]](shown, panel).items():
                count[what] += number
        except Fault as fault:
            faults.append(f"{panel['title']}: {fault}")
    panels = len(grafana.panels(board))
    title = board["title"]
    empty = [panel["title"] for panel in grafana.panels(shown.board) if shown.is_empty(panel)]
    check(f"{title}: {panels} panels show what Prometheus says", not faults, "\n        ".join(["", *faults]))
    check(f"{title}: none is empty but what may be", set(empty) <= set(boards.OPTIONAL) | GOOD, empty)
    return [panels, *count.values()]


def quiet(shown):
    """Before the first request tiles say so in words and in grey, all but that of the longest wait, which is none."""
    tiles = [panel for panel in grafana.panels(shown.board) if not panel["title"].startswith("Longest wait")]
    tiles = [panel for panel in tiles if panel["type"] == "stat"]
    texts = {panel["title"]: shown.values(panel)[0]["text"] for panel in tiles}
    other = {title: text for title, text in texts.items() if text != NOTHING}
    check(f"before the first request {len(tiles)} tiles say {NOTHING!r}", tiles and not other, other)
    mapped = [panel for panel in tiles if any(math.isnan(number) for _, number in shown.answers(panel)[0])]
    colours = {shown.values(panel)[0]["colour"] for panel in mapped}
    grey = mapped[0]["fieldConfig"]["defaults"]["mappings"][0]["options"]["result"]["color"] if mapped else None
    check(f"{len(mapped)} of them in grey, for a value that is no number", colours == {shown.colour(grey)}, colours)
