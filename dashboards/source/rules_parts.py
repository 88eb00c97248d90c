"""What rules are made of."""

from dataclasses import dataclass

PAIR = "upstream, model"


@dataclass(frozen=True)
class Record:
    """A recording rule: the name of the series, what it is, and why it is so."""

    name: str
    expr: str
    why: str


@dataclass(frozen=True)
class Alert:
    """An alert; `severity` is page (somebody is woken), ticket (this week) or info (it explains another)."""

    name: str
    expr: str
    wait: str
    severity: str
    why: str
    summary: str
    description: str
    board: str
    labels: tuple = ("upstream", "model")

    def annotations(self):
        variables = "&".join(f"var-{label}={{{{ $labels.{label} | urlquery }}}}" for label in self.labels)
        return {
            "summary": self.summary,
            "description": " ".join(line.strip() for line in self.description.strip().splitlines()),
            "dashboard": f"/d/streamgauge-{self.board}" + (f"?{variables}" if variables else ""),
            "runbook": f"docs/alerts.md#{self.name.lower()}",
        }
