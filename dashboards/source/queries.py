"""PromQL of the panels, from a family's name: which of the variables a selector takes is what labels the family has."""

from .catalogue import FAMILIES, PREFIX

STEP, RANGE = "$__rate_interval", "$__range"
# By whose doing a request ended so. The words are those of README.md.
FAULTS = {
    "provider": "truncated|error_event|upstream_reset|unreachable|upstream_timeout|upstream_5xx",
    "provider, rate limit": "rate_limited",
    "client or provider, 4xx": "upstream_4xx",
    "client": "client_gone|client_error",
    "gauge": "refused|drained|gateway_error",
}
# A client that leaves or is malformed says nothing of the provider.
NOT_THE_CLIENTS = 'outcome!~"client_.*"'
# The stages of a request by who had it in hand.
HANDS = {
    "client": "receive|client_stall",
    "gauge": "gateway_request|gateway_response",
    "network and connecting": "dns|tcp|tls|pool_wait|upload",
    "provider": "first_output_wait|generation|tail",
    "earlier attempts": "retry",
}
BEFORE_OUTPUT = "retry|dns|tcp|tls|pool_wait|upload|receive|gateway_request|first_output_wait"
PAIR = ("upstream", "model")


def select(family, where=""):
    """The braces of a family's selector."""
    labels = FAMILIES[PREFIX + family].labels
    parts = ['job=~"$job"'] + [f'{label}=~"${label}"' for label in PAIR if label in labels]
    return "{" + ",".join([*parts, *([where] if where else [])]) + "}"


def gauge(family, where=""):
    return PREFIX + family + select(family, where)


def rises(family, by=(), over=STEP, where="", part=""):
    """What a counter (or a `part` of a histogram: _bucket, _count, _sum) rose by: per second, or over the range."""
    how = "rate" if over == STEP else "increase"
    return f"sum{grouped(by)} ({how}({PREFIX}{family}{part}{select(family, where)}[{over}]))"


def buckets(family):
    """For a heatmap: what each bucket took in, in the step."""
    return f"sum by (le) (increase({PREFIX}{family}_bucket{select(family)}[{STEP}]))"


def quantile(q, family, by=(), over=STEP, where=""):
    return f"histogram_quantile({q}, {rises(family, (*by, 'le'), over, where, '_bucket')})"


def mean(family, by=(), over=STEP, where=""):
    return f"{rises(family, by, over, where, '_sum')} / {rises(family, by, over, where, '_count')}"


def count(family, by=(), over=STEP, where=""):
    """How many values a histogram took in, or a counter counted, in the step or the range."""
    part = "_count" if FAMILIES[PREFIX + family].kind == "histogram" else ""
    return f"sum{grouped(by)} (increase({PREFIX}{family}{part}{select(family, where)}[{over}]))"


def share(family, part, whole="", by=(), over=STEP):
    """Share of a counter: 0 where the part never occurred, no value where nothing did."""
    all_of_it = rises(family, by, over, whole)
    return f"({rises(family, by, over, part)} or 0 * {all_of_it}) / {all_of_it}"


def per_request(family, by=(), where="", over=STEP):
    """A counter by finished request. Tunnels have no stages and would thin the mean."""
    requests = rises("requests_total", over=over, where='endpoint!="tunnel"')
    joined = " / on () group_left () " if by else " / "
    return rises(family, by, over, where) + joined + requests


def recorded(name, where=""):
    """A recording rule's series; they have no job, as they add all gauges up."""
    parts = [f'{label}=~"${label}"' for label in PAIR] + ([where] if where else [])
    return f"streamgauge:{name}{{{','.join(parts)}}}"


def grouped(by):
    return f" by ({', '.join(by)})" if by else ""
