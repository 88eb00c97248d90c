"""What /metrics serves, read from docs/metrics.md, which the program's own tests keep true."""

import re
from collections import namedtuple
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
PREFIX = "streamgauge_"
# `labels`: name → its values, or None where they come from a configuration. `bounds`: of a histogram, in order.
# `whole`: each configured model has its series from the start. `exemplars`: single exchanges are named in it.
Family = namedtuple("Family", "name kind help labels bounds whole exemplars")


def families(page=PAGE):
    """Every family by its name."""
    text = page.read_text()
    bounds = {
        name.strip(): [float(bound) for bound in listed.split()]
        for name, listed in re.findall(r"^\| ([a-z ]+?) \| [^|]+ \| ([\d. ]+) \|$", text, re.M)
    }
    found = {}
    for name, about in re.findall(rf"^### `({PREFIX}\w+)`\n\n(.*?)(?=^##|\Z)", text, re.M | re.S):
        said, kind = about.split("\n\n")[0], re.search(r"^\* (\w+) ·", about, re.M)[1]
        layout = re.search(r"bounds: \[([a-z ]+)\]", about)
        listed = bounds[layout[1]] if layout else None
        found[name] = Family(
            name, kind, said, labels(about), listed, "· from the start" in about, "· exemplars:" in about
        )
    return found


def labels(about):
    listed = re.search(r"^\* Labels: (.*)$", about, re.M)[1]
    given = {}
    for part in listed.split("; "):
        name = re.match(r"`(\w+)`", part)
        if name:
            closed = re.match(r"`\w+`: ((?:`[^`]+`(?:, )?)+)$", part)
            given[name[1]] = re.findall(r"`([^`]+)`", closed[1]) if closed else None
    return given


FAMILIES = families()
