"""Programs of a proof: each a process of its own on a free port of 127.0.0.1, ended by its own id."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_SECONDS, STOP_SECONDS = 20, 20
# A capture without a hole needs room for what comes while tcpdump waits for the processor, in KiB.
CAPTURE_BUFFER = 128 * 1024


class Fault(Exception):
    """A proof does not hold, or could not be made."""


def check(what, right, otherwise=""):
    if not right:
        raise Fault(f"{what}: {otherwise}" if otherwise else f"not so: {what}")
    print(f"      ok  {what}", flush=True)


class Parts(contextlib.ExitStack):
    """Starts programs and ends them in the reverse order, whatever happens; owns a folder for their files."""

    def __init__(self, program):
        super().__init__()
        self.program = program
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="real-")))
        self.count = 0

    def file(self, name):
        self.count += 1
        return self.folder / f"{self.count}-{name}"

    def start(self, words, ready, **more):
        """Starts a program; returns it and the match of `ready` in what it says, on either stream."""
        said = self.file("said")
        with said.open("wb") as out:
            more = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out} | more
            process = subprocess.Popen([str(word) for word in words], **more)
        process.said = said
        self.callback(stop, process)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(ready, said.read_text(errors="replace"))
            if found:
                return process, found
            if process.poll() is not None:
                break
            time.sleep(0.02)
        raise Fault(f"{words[0]} did not start: {said.read_text(errors='replace').strip()[-500:]}")

    def sim(self, *flags, port=0):
        """A simulated provider: its process and port, a free one unless given."""
        words = [self.program, "sim", "--listen", f"127.0.0.1:{port}", *flags]
        process, found = self.start(words, r"http://127\.0\.0\.1:(\d+)\n")
        return process, int(found[1])

    def gauge(self, upstream, *flags, before=()):
        """The gauge before that port, as a `Gauge`; `before` is what it is started by."""
        log = self.file("records.jsonl")
        words = [
            *before, self.program, "run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
            "--upstream", f"sim=http://127.0.0.1:{upstream}", "--access-log", log, *flags,
        ]  # fmt: skip
        ready = r"clients connect to http://127\.0\.0\.1:(\d+)(?:.|\n)*metrics at http://127\.0\.0\.1:(\d+)"
        process, found = self.start(words, ready, env=os.environ | {"NO_COLOR": "1"})
        return Gauge(process, int(found[1]), int(found[2]), log)

    def hogs(self):
        """One busy loop for each core this process may use."""
        for _ in os.sched_getaffinity(0):
            self.callback(stop, subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL))

    def capture(self, *ports):
        """A running packet capture of what these ports carry; `finish` gives the file."""
        return Capture(self, ports)


class Gauge:
    """A running gauge."""

    def __init__(self, process, port, admin, log):
        self.process, self.port, self.admin, self.log = process, port, admin, log


class Capture:
    """tcpdump on the loopback interface: segments with data only, stamped by the kernel in nanoseconds."""

    LAST = b"the capture ends here"

    def __init__(self, parts, ports):
        self.file = parts.file("capture.pcap")
        self.end = parts.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.end.bind(("127.0.0.1", 0))
        # Without the bare acknowledgements: half as many packets.
        data = "(ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2)) != 0"
        wanted = " or ".join(f"tcp port {port}" for port in ports)
        wanted = f"(({wanted}) and {data}) or udp port {self.end.getsockname()[1]}"
        words = ["tcpdump", "-i", "lo", "-n", "-p", "-U", "--nano", "-B", CAPTURE_BUFFER, "-w", self.file, wanted]
        if os.geteuid() == 0:
            words[1:1] = ["-Z", "root"]  # it would write the file as a user who may not enter the folder
        self.process, _ = parts.start(words, r"listening on ")

    def finish(self):
        """Ends the capture; returns its file once it is known to be whole."""
        self.end.sendto(self.LAST, self.end.getsockname())
        deadline = time.monotonic() + STOP_SECONDS
        while not self.has_come():
            if time.monotonic() > deadline:
                raise Fault(f"the capture lags behind by more than {STOP_SECONDS} s")
            time.sleep(0.1)
        stop(self.process, signal.SIGINT)
        said = self.process.said.read_text()
        dropped = re.search(r"(\d+) packets dropped by kernel", said)
        if not dropped or dropped[1] != "0":
            raise Fault(f"the capture has holes: {said.strip()}")
        return self.file

    def has_come(self):
        """Whether the packet behind all others is in the file, where the kernel hands them over a block at a time."""
        with self.file.open("rb") as file:
            file.seek(max(0, self.file.stat().st_size - 1024))
            return self.LAST in file.read()


def no_capture(program):
    """Why there can be no capture here; nothing if there can."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    if not shutil.which("tcpdump"):
        return "tcpdump is not here (Debian: apt-get install tcpdump)"
    try:
        with Parts(program) as parts:
            parts.capture(9).finish()
    except Fault as fault:
        return f"root or the right to capture (CAP_NET_RAW) is needed: {fault}"
    return ""


def bench(parts, port, *flags):
    """Runs the program's own `bench` against that port to its end, and shows what it says."""
    flags = [str(flag) for flag in ("--url", f"http://127.0.0.1:{port}", "--model", "sim-1", "--input-tokens", 100, *flags)]
    words = [parts.program, "bench", "--quiet", *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    print("\n    $ streamgauge bench " + " ".join(flags))
    print("".join(f"    {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
    check("bench ended with 0", done.returncode == 0, done.stderr.strip()[-500:])
    return done.stdout


def stop(process, how=signal.SIGTERM):
    """Ends a program and waits for it."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGCONT)
    process.send_signal(how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- figures -------------------------------------------------------------------------------------------------------------


def quantile(values, q):
    """Nearest rank: a value that really occurred."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1)]


def table(rows):
    """Prints rows of cells, the first of which is their head."""
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [str(row[0]).ljust(widths[0])] + [str(cell).rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("    " + "  ".join(cells), flush=True)
        if number == 0:
            print("    " + "  ".join("-" * width for width in widths))
