"""Alerts on how requests end, on whose time it was, and on the gauge itself."""

from .rules_alerts import WHERE
from .rules_parts import PAIR, Alert, now, seconds
from .rules_recording import PAIRED

GAUGE = 'job="streamgauge"'  # the job's name in Prometheus


def share(name, outcomes, window, above, severity, why, summary, description, board="overview", by=PAIR):
    ended, labels = "increase(streamgauge_requests_total", tuple(by.split(", "))
    n = now("streamgauge_requests_total", labels=labels, around=("sum(increase(", f"[{window}]))"))
    return Alert(
        name,
        f"""
        sum by ({by}) ({ended}{{outcome=~"{outcomes}"}}[{window}])) / sum by ({by}) ({ended}[{window}])) > {above}
        and sum by ({by}) ({ended}{{outcome=~"{outcomes}"}}[{window}])) >= 5
        """,
        "5m", severity, why, summary,
        f"""
        Of n = {n} requests that ended in {window}. {description}
        """,
        board, labels,
    )  # fmt: skip


SHARE = "{{ $value | humanizePercentage }} of the requests"
FAILED = "upstream_5xx|unreachable|upstream_timeout"
FAILED_IS = """
    Outcomes upstream_5xx (its status), unreachable (no connection) and upstream_timeout (one of the gauge's own limits,
    which the record names). The gauge's overload and the clients' faults are not in it.
"""

ENDS = [
    share(
        "LLMTruncatedShare", "truncated|upstream_reset", "30m", 0.02, "ticket",
        """
        One answer in fifty that breaks off is felt, and nothing else shows it: the status was 200. Five of them:
        two cuts may be chance. Half an hour, because it is rare.
        """,
        f"{SHARE} of {WHERE} broke off",
        """
        Outcomes truncated (a clean end without the protocol's own) and upstream_reset, seen at the gauge's side of the
        provider. A limit between the two, on time or idling, cuts at the same second: compare the records' duration_s.
        """,
    ),
    share(
        "LLMErrorInStreamShare", "error_event", "30m", 0.02, "ticket",
        "The status was 200: no log of status codes has them. Bounds as above.",
        f"{SHARE} of {WHERE} had an error inside a 2xx answer",
        """
        Outcome error_event: an error inside a 2xx answer, written by the provider. Its text is in no record, for it may
        quote the prompt; the client has it.
        """,
    ),
    share(
        "LLMModelFailing", FAILED, "5m", 0.1, "page",
        "One request in ten lost for five minutes, five of them at least: an outage, and clients retry into it.",
        f"{SHARE} of {WHERE} fail",
        FAILED_IS,
    ),
    share(
        "LLMUpstreamFailing", FAILED, "5m", 0.1, "page",
        "The same of an upstream as a whole: of thirty models each may fail too seldom to be counted alone.",
        f"{SHARE} at {{{{ $labels.upstream }}}}, of all its models, fail",
        FAILED_IS,
        by="upstream",
    ),
    share(
        "LLMUpstreamRefuses", "upstream_4xx", "5m", 0.5, "page",
        "Most of the requests: a key that is revoked, or a model that is removed. Single clients' faults are fewer.",
        f"{SHARE} of {WHERE} are refused",
        """
        Outcome upstream_4xx: the provider's status, which the record has, and which is no rate limit. 401 and 403 speak
        of the key, 404 of the model or the path, 400 of what the client sends. A model that was never answered is in
        _other.
        """,
    ),
    share(
        "LLMRateLimitedShare", "rate_limited", "5m", 0.05, "ticket",
        "One in twenty is more than a client's first retry hides. Five of them at least, so a burst is none.",
        f"{SHARE} of {WHERE} are turned away by its rate limit",
        """
        Outcome rate_limited: the provider's status 429 or 529 (overloaded). What is left of which limit is in
        streamgauge_ratelimit_remaining.
        """,
        "capacity",
    ),
]  # fmt: skip

WHOSE = [
    Alert(
        "LLMServerVsGatewayTTFTGap",
        f"""
        {PAIRED}:outside_30m > 0.2
        and {PAIRED}:outside_30m > 0.5 * {PAIRED}:server_mean_30m
        unless {PAIRED}:outside_30m <= 1.5 * {PAIRED}:outside_30m_same_hour_7d
        """,
        "35m", "ticket",
        """
        Both sides are of the same requests, so lengths and load cancel out. 0.2 s is more than a network across an
        ocean; half of what the server states, so that it matters; and not where it is usual. Longer than the span of
        the mean: one slow request of the thirty that it takes can't fire it alone.
        """,
        f"{{{{ $value | humanizeDuration }}}} of the TTFT of {WHERE} is not in what the server says",
        f"""
        Mean of 30 minutes over n = {now(f"{PAIRED}:n_30m")} requests that have both: from the request's departure to
        the first output event at the gauge, minus what the provider states from the request's arrival there to the
        first token, mean {seconds(f"{PAIRED}:server_mean_30m")}. Usual at this hour:
        {seconds(f"{PAIRED}:outside_30m_same_hour_7d")}. It is the network (streamgauge_upstream_rtt_seconds), or the
        provider's front end, or a queue that it does not count.
        """,
        "anatomy",
    ),
    Alert(
        "LLMGaugeOverheadHigh",
        """
        histogram_quantile(
          0.99, sum by (instance, upstream, phase, le) (rate(streamgauge_overhead_seconds_bucket[10m]))
        ) > 0.005
        and sum by (instance, upstream, phase) (increase(streamgauge_overhead_seconds_count[10m])) >= 100
        """,
        "15m", "ticket",
        """
        Usual is a tenth of a millisecond. At 5 ms the gauge is a part of what it measures. Longer than the span, so
        that one bad burst among the hundred can't do it.
        """,
        "The gauge at {{ $labels.instance }} itself adds {{ $value | humanizeDuration }} for {{ $labels.upstream }} "
        "(P99, {{ $labels.phase }})",
        """
        P99 of 10 minutes. request: from the request's arrival to its departure; first_output, event: from an output
        event's arrival to its departure to the client; connecting and waiting for either side are not in it. The
        gauge's own time: its processor is short (streamgauge_runtime_delay_seconds, process_cpu_seconds_total), or its
        connections are HTTP/2.
        """,
        "anatomy",
        ("instance", "upstream", "phase"),
    ),
]  # fmt: skip

ITSELF = [
    share(
        "LLMGaugeRefuses", "refused|gateway_error", "5m", 0.01, "page",
        "What the gauge itself takes from its users; none is usual. By gauge, as it refuses before it knows a model.",
        f"The gauge at {{{{ $labels.instance }}}} refuses {SHARE}",
        """
        Outcomes refused (more in flight than limits.max_in_flight) and gateway_error (a fault of the gauge, which its
        log has). Neither is the provider's.
        """,
        "capacity", "instance",
    ),
    Alert(
        "LLMSeriesOverflow",
        "max by (instance, job) (streamgauge_series_overflow_total) > 0",
        "0s", "ticket",
        """
        One is enough: from there on some series are sums of what should stand apart, for every rule here. No increase:
        what was folded before the first scrape would be in none.
        """,
        'The gauge at {{ $labels.instance }} folds series into "_other"',
        """
        Label sets folded since it started: {{ $value | printf "%.0f" }}. More upstreams, models or workloads than
        metrics.max_series has room for. Their numbers are in "_other", and this alert stays, until a restart with a
        higher one.
        """,
        "capacity", (),
    ),
    Alert(
        "LLMGaugeDown",
        f"up{{{GAUGE}}} == 0 or absent(up{{{GAUGE}}})",
        "2m", "page",
        "Without it all the others are blind, and silent. absent: where the job itself has gone, nothing is 0.",
        "{{ with $labels.instance }}No metrics from the gauge at {{ . }}{{ else }}No gauge is scraped at all{{ end }}",
        f"""
        Prometheus could not scrape it for two minutes, or has no job with this name ({GAUGE.replace('"', "")}). The
        proxy may run all the same: look at /healthz and /readyz, and at the target in Prometheus.
        """,
        "capacity", (),
    ),
]  # fmt: skip

OTHERS = [
    ("streamgauge-ends", "30s", "How do requests end?", ENDS),
    ("streamgauge-whose", "30s", "Whose time is it?", WHOSE),
    ("streamgauge-gauge", "30s", "Is the gauge itself well?", ITSELF),
]
