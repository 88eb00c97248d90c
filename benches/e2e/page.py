"""What docs/performance.md says of a run. Its prose is its own; what lies between its marks is written here."""

import plot
from curves import CURVES
from prepare import ROOT
from processes import Fault
from scenarios import SCENARIOS
from table import added, chosen, middle, number, report

PAGE = ROOT / "docs" / "performance.md"


def taken(facts):
    """With what the figures were taken."""
    return (
        f"{facts['date']}, commit {facts['commit']}: {facts['machine']}; {facts['system']}; {facts['compiler']}. "
        + "; ".join(f"{name}: {version}" for name, version in facts["versions"].items())
        + f". Each with {facts['workers']} workers."
    )


def table(rows, facts):
    said = [
        taken(facts),
        "",
        report(rows),
        "",
        "| | what | window |",
        "|---|---|---|",
    ]
    for name, scenario in SCENARIOS.items():
        windows = [row["window_s"] for row in rows if row["scenario"] == name]
        if windows:
            said.append(f"| {name} | {scenario.what} | {middle(windows):.0f} s |")
    return "\n".join(said)


def curves(rows, facts, write):
    """A table of the places of each curve, and its drawing."""
    said = [taken(facts), ""]
    for name, curve in CURVES.items():
        mine = [row for row in rows if row["scenario"] == name]
        if not mine:
            continue
        per = "request" if curve.delay == "first" else "chunk"
        cost, delay, lines = {}, {}, []
        for proxy in dict.fromkeys(row["proxy"] for row in mine if row["proxy"] != "direct"):
            for place in curve.places:
                here = [row for row in mine if row["place"] == place]
                at = middle([row["series"] for row in here if row["proxy"] == proxy and "series" in row]) or place
                costs = [row["cpu_us"] for row in chosen(here, name, proxy) if row.get("cpu_us")]
                extra = added(here, name, proxy, curve.delay, "p50")
                if costs:
                    cost.setdefault(proxy, []).append((at, middle(costs), min(costs), max(costs)))
                if extra and extra > 0:
                    delay.setdefault(proxy, []).append((at, extra, extra, extra))
                lines.append(f"| {proxy} | {at:.0f} | {number(middle(costs), 2)} | {number(extra, 0)} |")
        if write:
            panels = [(f"CPU µs per {per}", curve.axis, cost), ("added p50 µs", curve.axis, delay)]
            (PAGE.parent / f"performance-{name}.svg").write_text(plot.draw(curve.title, panels))
            said += [f"![{curve.title}](performance-{name}.svg)", ""]
        head = f"| {curve.title} | {curve.axis} | CPU µs per {per} | added p50 µs |"
        said += [head, "|---|---:|---:|---:|", *lines, ""]
    return "\n".join(said).rstrip()


def write(section, text):
    """Puts it between the marks of that section."""
    begin, end = f"<!-- {section}: written by benches/e2e/run --write -->\n", f"<!-- end of {section} -->"
    page = PAGE.read_text()
    if begin not in page or end not in page:
        raise Fault(f"{PAGE} has no marks of the section {section}")
    before, after = page.split(begin)[0], page.split(end)[1]
    PAGE.write_text(f"{before}{begin}\n{text}\n\n{end}{after}")
