"""Medians over the repetitions as one Markdown table."""

from statistics import median

from scenarios import SCENARIOS

HEAD = [
    "proxy", "runs", "CPU µs", "least to most", "× nginx", "system", "switches", "added TTFT µs p50", "p99",
    "added delay µs p50", "p99", "merged", "KiB per stream", "faults", "exact", "per second", "others",
]  # fmt: skip


def report(rows):
    """All of it: a table, its rows grouped by scenario, and a line under it where there is something to distrust."""
    lines = ["| " + " | ".join(["", *HEAD]) + " |", "|---|---|" + "---:|" * (len(HEAD) - 1)]
    for scenario in SCENARIOS:
        for proxy in dict.fromkeys(row["proxy"] for row in rows if row["scenario"] == scenario):
            cells = [scenario, proxy, *summary(rows, scenario, proxy)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(rows, scenario, proxy):
    mine = chosen(rows, scenario, proxy)
    cost = [row["cpu_us"] for row in mine if "cpu_us" in row]
    exact = sum(row["exact"] for row in mine)
    merged = [100 * row["merged"] / row["events"] for row in mine if row["events"]]
    faults = sum(row[what] for row in mine for what in ("errors", "overdue", "inexact", "altered_requests"))
    return [
        str(len(mine)),
        number(middle(cost), 2),
        f"{min(cost):.2f}–{max(cost):.2f}" if cost else "",
        number(ratio(rows, scenario, proxy, "nginx"), 2),
        percent([100 * row["system_share"] for row in mine if "system_share" in row], 0),
        number(middle([row["switches"] for row in mine if "switches" in row]), 3),
        *(number(added(rows, scenario, proxy, what, q), 0) for what in ("first", "delay") for q in ("p50", "p99")),
        percent(merged, 2),
        number(middle([row["kib_per_stream"] for row in mine if "kib_per_stream" in row]), 1),
        str(faults),
        f"{exact} of {exact + sum(row['inexact'] for row in mine)}",
        number(middle([row["per_second"] for row in mine]), 0),
        number(middle([row["others_cores"] for row in mine]), 2),
    ]


def chosen(rows, scenario, proxy):
    return [row for row in rows if (row["scenario"], row["proxy"]) == (scenario, proxy)]


def ratio(rows, scenario, proxy, ruler):
    """The median of the ratios of each repetition, which met the same moments of the machine."""
    theirs = {row["repetition"]: row["cpu_us"] for row in chosen(rows, scenario, ruler) if row.get("cpu_us")}
    mine = {row["repetition"]: row["cpu_us"] for row in chosen(rows, scenario, proxy) if row.get("cpu_us")}
    return middle([mine[at] / theirs[at] for at in mine if at in theirs])


def added(rows, scenario, proxy, what, q):
    """A percentile with the proxy less the same without, of the same repetition: a difference of percentiles."""
    direct = {row["repetition"]: row[what][q] for row in chosen(rows, scenario, "direct") if row[what]["n"]}
    mine = {row["repetition"]: row[what][q] for row in chosen(rows, scenario, proxy) if row[what]["n"]}
    if proxy == "direct":
        return None
    return middle([mine[at] - direct[at] for at in mine if at in direct])


def middle(values):
    return median(values) if values else None


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def percent(values, digits):
    return f"{median(values):.{digits}f} %" if values else ""
