"""Latency anatomy: where does the time go?"""

from .catalogue import FAMILIES
from .frame import board
from .panels import TTFT_STEPS, about, classes, heatmap, query, samples, series
from .queries import BEFORE_OUTPUT, PAIR, RANGE, STEP, buckets, count, mean, per_request, quantile, rises, share

STAGES = FAMILIES["streamgauge_stage_seconds_total"].labels["stage"]
INPUTS = FAMILIES["streamgauge_ttft_by_input_seconds"].labels["input"]
OUTPUTS = FAMILIES["streamgauge_output_tokens_per_second"].labels["output"]
NO_MODEL = "It knows no model, so only the upstream is chosen."
EACH = "{{upstream}} {{model}}"
BY_ALL = "n {{upstream}} {{model}}"


def spread(family, by=(), legend=""):
    """The median and P99, for each value of the labels `by`."""
    return [query(quantile(q, family, by), f"{name} {legend}".strip()) for name, q in (("P50", 0.5), ("P99", 0.99))]


def whole():
    mean_of_all = "Mean of the requests that ended, of all kinds; the layers add up to the whole time."
    yield series(
        "A request's time, by stage",
        about("stage_seconds_total", mean_of_all),
        [query(per_request("stage_seconds_total", ("stage",)), "{{stage}}"), samples(count("requests_total"))],
        stack="normal",
        fill=60,
        w=16,
        h=10,
    )
    by_stage = {stage: f'stage="{stage}"' for stage in STAGES}
    total = rises("stage_seconds_total", over=RANGE)
    yield classes(
        "Share of all time, by stage",
        about("stage_seconds_total", "Over the chosen time; how many requests it is made of is beside it."),
        {
            stage: f"{rises('stage_seconds_total', over=RANGE, where=where)} / {total}"
            for stage, where in by_stage.items()
        },
        "percentunit",
        decimals=1,
        w=8,
        h=10,
    )
    yield series(
        "Upstream duration, by result",
        about("request_duration_seconds", "The provider's time and the network's."),
        [
            *spread("request_duration_seconds", ("result",), "{{result}}"),
            samples(count("request_duration_seconds", ("result",)), "n {{result}}"),
        ],
        log=True,
    )
    yield series(
        "Client duration",
        about("client_duration_seconds", "All that the client waits for, its own slowness in reading included."),
        [*spread("client_duration_seconds"), samples(count("client_duration_seconds"))],
        log=True,
    )


def first_token():
    yield series(
        "A request's time up to its first output, by stage",
        about(
            "stage_seconds_total",
            "Only the stages before the output: means of all that ended. Plain answers wait until their first byte.",
        ),
        [
            query(per_request("stage_seconds_total", ("stage",), f'stage=~"{BEFORE_OUTPUT}"'), "{{stage}}"),
            samples(count("requests_total")),
        ],
        stack="normal",
        fill=60,
        h=9,
    )
    says = 'phase="ttft"'
    yield series(
        "The first token at four places",
        about(
            "client_ttft_seconds",
            "ttft_seconds",
            "Medians. The client and the provider go by their own clocks; only clients and providers that",
            "say so are in their lines.",
        ),
        [
            query(quantile(0.5, "client_reported_seconds", where=says), "the client says"),
            query(quantile(0.5, "client_ttft_seconds"), "gauge, towards the client"),
            query(quantile(0.5, "ttft_seconds"), "gauge, from the provider", exemplar=True),
            query(quantile(0.5, "server_reported_seconds", where=says), "the provider says"),
            samples(count("ttft_seconds")),
        ],
        steps=TTFT_STEPS,
        h=9,
    )
    yield series(
        "First byte, event, token, answer",
        about(
            "ttfb_seconds",
            "first_event_seconds",
            "answer_ttft_seconds",
            "Medians. Events before the first token are a prelude that tells nothing; what lies between",
            "token and answer is thinking.",
        ),
        [
            query(quantile(0.5, "ttfb_seconds"), "first byte"),
            query(quantile(0.5, "first_event_seconds"), "first event"),
            query(quantile(0.5, "ttft_seconds"), "first token (TTFT)"),
            query(quantile(0.5, "answer_ttft_seconds"), "first answer"),
            samples(count("answer_ttft_seconds")),
        ],
        steps=TTFT_STEPS,
        h=9,
    )
    yield series(
        "TTFT, P99: the client's and the provider's",
        about(
            "client_ttft_seconds",
            "ttft_seconds",
            "What lies between the two is the gauge, connecting, and the client's upload.",
        ),
        [
            query(quantile(0.99, "client_ttft_seconds"), "client's", exemplar=True),
            query(quantile(0.99, "ttft_seconds"), "provider's", exemplar=True),
            samples(count("client_ttft_seconds")),
        ],
        steps=TTFT_STEPS,
        h=9,
    )
    yield classes(
        "TTFT, median by prompt length",
        about("ttft_by_input_seconds", "Over the chosen time. Cached prompts answer sooner: see the cached share."),
        by_class("input", INPUTS, lambda where: quantile(0.5, "ttft_by_input_seconds", over=RANGE, where=where)),
        steps=TTFT_STEPS,
        w=8,
        h=9,
    )
    yield classes(
        "Samples, by prompt length",
        about("ttft_by_input_seconds", "How many are behind each median beside this."),
        by_class("input", INPUTS, lambda where: count("ttft_by_input_seconds", over=RANGE, where=where)),
        "locale",
        decimals=0,
        w=4,
        h=9,
    )
    yield series(
        "Cached share of input tokens",
        about("tokens_total", "By the provider's own count; its prefix cache shortens TTFT. Bars: input tokens."),
        [
            query(share("tokens_total", 'type="cached_input"', 'type="input"', PAIR), EACH),
            samples(count("tokens_total", PAIR, where='type="input"'), BY_ALL),
        ],
        "percentunit",
        h=9,
    )


def by_class(label, known, expr):
    """A class's name → its expression."""
    return {value.replace("_", "–", 1): expr(f'{label}="{value}"') for value in known}


def account():
    pair, server, ours = "paired_ttft_seconds", 'side="server"', 'side="gateway"'
    n = samples(count(pair, PAIR, where=ours), BY_ALL)
    apart = f"({rises(pair, PAIR, where=ours, part='_sum')} - {rises(pair, PAIR, where=server, part='_sum')})"
    yield series(
        "TTFT: gauge ÷ provider",
        about(pair, "The ratio of both sums, of the same requests. At 1 the provider accounts for all of the wait."),
        [
            query(
                f"{rises(pair, PAIR, where=ours, part='_sum')} / {rises(pair, PAIR, where=server, part='_sum')}", EACH
            ),
            n,
        ],
        "none",
        (("green", None), ("yellow", 1.2), ("red", 1.5)),
    )
    yield series(
        "TTFT that the provider does not account for",
        about(
            pair,
            "Mean by request. Beside it the median round trip:",
            "what is above that is neither network nor in the provider's account.",
        ),
        [
            query(f"{apart} / {rises(pair, PAIR, where=ours, part='_count')}", EACH),
            query(quantile(0.5, "upstream_rtt_seconds", ("upstream",)), "round trip: {{upstream}}"),
            n,
        ],
    )
    yield series(
        "What the provider says of its own time",
        about("server_reported_seconds", "Means."),
        [
            query(mean("server_reported_seconds", ("phase",)), "{{phase}}"),
            samples(count("server_reported_seconds", ("phase",)), "n {{phase}}"),
        ],
    )
    yield series(
        "An engine's own TTFT (vLLM)",
        "Median of vllm:time_to_first_token_seconds: from the request's arrival at the engine to its first token, "
        "by the engine, of all its requests. Only where Prometheus scrapes a vLLM too, under the same model names.",
        [
            query(
                f"histogram_quantile(0.5, sum by (model_name, le) (rate({VLLM}_bucket{{{SAME_MODEL}}}[{STEP}])))",
                "{{model_name}}",
            ),
            samples(
                f"sum by (model_name) (increase({VLLM}_count{{{SAME_MODEL}}}[{STEP}]))",
                "n {{model_name}}",
            ),
        ],
        steps=TTFT_STEPS,
        none="no vLLM is scraped here",
    )


VLLM = "vllm:time_to_first_token_seconds"
SAME_MODEL = 'model_name=~"$model"'


def network():
    yield series(
        "Round trips",
        about("upstream_rtt_seconds", "client_rtt_seconds", NO_MODEL),
        [
            *spread("upstream_rtt_seconds", ("upstream",), "provider {{upstream}}"),
            query(quantile(0.5, "client_rtt_seconds"), "P50 clients"),
            samples(count("upstream_rtt_seconds")),
        ],
        log=True,
    )
    yield series(
        "Dialling, by phase",
        about("connect_seconds", f"P99. {NO_MODEL}"),
        [
            query(quantile(0.99, "connect_seconds", ("upstream", "phase")), "{{upstream}} {{phase}}"),
            samples(count("connect_seconds", ("upstream", "phase")), "n {{upstream}} {{phase}}"),
        ],
        log=True,
    )
    yield series(
        "Connections that were new",
        about(
            "connections_total",
            f"Share of all got. Each new one costs its dialling before the request can leave. {NO_MODEL}",
        ),
        [
            query(share("connections_total", 'reused="false"', by=("upstream",)), "{{upstream}}"),
            samples(count("connections_total", ("upstream",)), "n {{upstream}}"),
        ],
        "percentunit",
        w=8,
    )
    yield series(
        "Wait for a connection",
        about("pool_wait_seconds", f"P99. {NO_MODEL}"),
        [
            query(quantile(0.99, "pool_wait_seconds", ("upstream",)), "{{upstream}}"),
            samples(count("pool_wait_seconds", ("upstream",)), "n {{upstream}}"),
        ],
        log=True,
        w=8,
    )
    yield series(
        "Sendings that did not go well",
        about("attempts_total", f"Per second, beside all sendings as bars. {NO_MODEL}"),
        [
            query(rises("attempts_total", ("upstream", "result"), where='result!="ok"'), "{{upstream}} {{result}}"),
            samples(count("attempts_total", ("upstream",)), "n {{upstream}}"),
        ],
        "reqps",
        w=8,
    )


def ours():
    yield series(
        "The gauge's overhead, by phase",
        about("overhead_seconds", NO_MODEL),
        [
            *spread("overhead_seconds", ("phase",), "{{phase}}"),
            samples(count("overhead_seconds", ("phase",)), "n {{phase}}"),
        ],
        steps=(("green", None), ("yellow", 0.001), ("red", 0.005)),
        log=True,
    )
    yield series(
        "How late the gauge's workers run",
        about(
            "runtime_delay_seconds",
            "Of the whole program. If this rises with the overhead, the machine is short of cores.",
        ),
        [*spread("runtime_delay_seconds"), samples(count("runtime_delay_seconds"))],
        steps=(("green", None), ("yellow", 0.001), ("red", 0.005)),
        log=True,
    )


def cadence():
    n = {"by": PAIR}
    gap, tpot = "inter_event_seconds", "time_per_output_token_seconds"
    yield series(
        "Gap between output events",
        about(gap, "The provider's time and the network's."),
        [*spread(gap, PAIR, EACH), samples(count(gap, **n), BY_ALL)],
        log=True,
        h=9,
    )
    yield heatmap("Gaps, distribution", about(gap, "Each cell: gaps in that bucket."), buckets(gap), h=9)
    yield series(
        "Time per output token",
        about(tpot, "Not moved by events that come together; the provider's time."),
        [*spread(tpot, PAIR, EACH), samples(count(tpot, **n), BY_ALL)],
        log=True,
    )
    yield series(
        "Longest gap of a stream",
        about(
            "max_gap_seconds",
            "P99: how long the worst streams stood still. Half of that is what a reader takes for a hang.",
        ),
        [
            query(quantile(0.99, "max_gap_seconds", PAIR), EACH),
            samples(count("max_gap_seconds", **n), BY_ALL),
        ],
        log=True,
    )
    yield classes(
        "Output speed, median by answer length",
        about("output_tokens_per_second", "By output tokens; over the chosen time."),
        by_class("output", OUTPUTS, lambda where: quantile(0.5, "output_tokens_per_second", over=RANGE, where=where)),
        "suffix:tok/s",
        decimals=0,
        w=8,
    )
    yield classes(
        "Samples, by answer length",
        about("output_tokens_per_second", "How many are behind each median beside this."),
        by_class("output", OUTPUTS, lambda where: count("output_tokens_per_second", over=RANGE, where=where)),
        "locale",
        decimals=0,
        w=4,
    )
    events = samples(count("output_events_total", **n), BY_ALL)
    yield series(
        "Events that came together",
        about(
            "coalesced_events_total",
            "Share of all output events; the more, the less do gaps say of the provider's cadence.",
        ),
        [
            query(f"{rises('coalesced_events_total', PAIR)} / {rises('output_events_total', PAIR)}", EACH),
            events,
        ],
        "percentunit",
    )
    tokens = rises("tokens_total", PAIR, where='type="output"')
    yield series(
        "Tokens by output event, events by read",
        about(
            "output_events_total", "reads_total", "Where an event holds many tokens, a gap is no time between tokens."
        ),
        [
            query(f"{tokens} / {rises('output_events_total', PAIR)}", f"tokens by event: {EACH}"),
            query(f"{rises('events_total', PAIR)} / {rises('reads_total', PAIR)}", f"events by read: {EACH}"),
            events,
        ],
        "none",
        w=8,
    )
    yield series(
        "Stalls: who did not take bytes",
        about(
            "stall_seconds_total",
            "Seconds of standing still by second; bars: stalls. The client's stalls are its own slowness.",
        ),
        [
            query(rises("stall_seconds_total", ("side",)), "{{side}}"),
            samples(count("stalls_total", ("side",)), "n {{side}}"),
        ],
        "short",
        w=8,
    )
    yield series(
        "Voice: first audio",
        about(
            "voice_first_audio_seconds",
            "The provider's time and the network's; only sessions with server-side voice detection have it.",
        ),
        [*spread("voice_first_audio_seconds", PAIR, EACH), samples(count("voice_first_audio_seconds", **n), BY_ALL)],
        steps=TTFT_STEPS,
        none="no voice sessions",
        w=8,
    )


def anatomy():
    rows = {
        "The whole request": whole(),
        "Up to the first token": first_token(),
        "The provider's own account": account(),
        "Network and connections": network(),
        "The gauge in between": ours(),
        "Behind the first token": cadence(),
    }
    return board("anatomy", "Latency anatomy", "Where does the time go?", "6h", [], rows)
