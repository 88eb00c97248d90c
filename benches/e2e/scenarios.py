"""What is asked of the proxies. Open loops have Poisson arrivals: the phases of the streams spread, as in life."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """`play` is what each request asks of the provider: streamed, us to the first token, us between tokens, tokens,
    bytes of an event (0: as a provider's usually are). `quick` and `check` are the window's seconds in such runs.
    `http2`: on which sides it is spoken, by prior knowledge."""

    what: str
    load: tuple
    play: str
    per: str  # what the cost is of: "request" or "chunk"
    warm_up: float
    window: float
    quick: float
    check: float = 1
    most: int = 99  # repetitions: memory does not vary as times do
    tls: bool = False
    hold: int = 0
    http2: tuple = ()
    routes: int = 0  # providers behind the proxy, told apart by their paths

    @property
    def streams(self):
        return self.play.startswith("1")

    @property
    def words(self):
        """What the load is told."""
        ways = ("--http2", STREAMS_PER_CONNECTION) if "clients" in self.http2 else ()
        return ("--play", self.play, *self.load, *ways, *(("--routes", self.routes) if self.routes else ()))

    def fits(self, proxy):
        return proxy is None or proxy.speaks_http2 or not self.http2


STREAMS_PER_CONNECTION = 100
BOTH = ("clients", "providers")


def opened(rate):
    return ("--mode", "open", "--rate", rate)


def held(streams):
    return ("--mode", "hold", "--rate", 2500, "--connections", streams)


SCENARIOS = {
    "S1": Scenario("short plain requests, closed loop, 64 connections",
                   ("--mode", "closed", "--connections", 64), "0,0,0,16,0", "request", 1, 4, 2),
    "S2": Scenario("SSE, 200 streams of 100 tokens/s: 20,000 chunks/s",
                   opened(100), "1,20000,10000,200,0", "chunk", 2.3, 20, 4),
    "S3": Scenario("fast chip, 20 streams of 2,000 tokens/s: 40,000 chunks/s",
                   opened(10), "1,5000,500,4000,0", "chunk", 2.3, 5, 2),
    "S4": Scenario("5,000 held streams of 1 token/s",
                   held(5000), "1,500000,1000000,1000000,0", "chunk", 3.2, 3, 2, most=3, hold=5000),
    "S4b": Scenario("9,500 held streams of 1 token/s",
                    held(9500), "1,500000,1000000,1000000,0", "chunk", 5.5, 3, 2, most=1, hold=9500),
    "S4c": Scenario("10,000 held streams of 1 token/s, HTTP/2 to the provider",
                    held(10000), "1,500000,1000000,1000000,0", "chunk", 5.5, 3, 2, most=1, hold=10000,
                    http2=("providers",)),
    "S4d": Scenario("10,000 held streams of 1 token/s, HTTP/2 on both sides",
                    held(10000), "1,500000,1000000,1000000,0", "chunk", 5.5, 3, 2, most=1, hold=10000, http2=BOTH),
    "S4e": Scenario("5,000 held streams of 1 token/s, TLS 1.3 to the client",
                    held(5000), "1,500000,1000000,1000000,0", "chunk", 5.5, 3, 2, most=1, tls=True, hold=5000),
    "S5": Scenario("requests of 1 MiB with short SSE answers, 40/s",
                   (*opened(40), "--body-bytes", 1 << 20), "1,20000,5000,16,0", "request", 1, 5, 2),
    "S6": Scenario("S2 with TLS 1.3 to the client",
                   opened(100), "1,20000,10000,200,0", "chunk", 2.3, 6, 2, tls=True),
    "S7": Scenario("S2 by HTTP/2 on both sides, 100 streams a connection",
                   opened(100), "1,20000,10000,200,0", "chunk", 2.3, 6, 2, http2=BOTH),
}  # fmt: skip
