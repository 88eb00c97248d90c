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
    """An alert; `severity` is page, ticket or info (see alerts.yml), `board` what it links to, `labels` what it keeps."""

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
        variables = "&".join(
            f"var-{label}={{{{ $labels.{label} | urlquery }}}}" for label in self.labels if label in PAIR
        )
        return {
            "summary": self.summary,
            "description": self.description,
            "dashboard": f"/d/streamgauge-{self.board}" + (f"?{variables}" if variables else ""),
            "runbook": f"docs/alerts.md#{self.name.lower()}",
        }


def now(series, shown='printf "%.0f"', labels=("upstream", "model"), more="", around=("", ""), nothing="unknown"):
    """In a text: what this series (or `around` it) has now for the labels of the alert, or that there is `nothing`."""
    wanted = ",".join([f"{label}=%q" for label in labels] + ([more] if more else []))
    values = " ".join(f"$labels.{label}" for label in labels)
    asked = f"printf `{around[0]}{series}{{{wanted}}}{around[1]}` {values} | query"
    return f"{{{{ with {asked} }}}}{{{{ . | first | value | {shown} }}}}{{{{ else }}}}{nothing}{{{{ end }}}}"


def seconds(series, labels=("upstream", "model"), more=""):
    return now(series, "humanizeDuration", labels, more)


def percent(series, more=""):
    return now(series, "humanizePercentage", more=more)
