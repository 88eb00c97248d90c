"""Programs as processes of their own, ended by their own id, and what the kernel's accounts say of them."""

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

START_SECONDS, STOP_SECONDS = 20, 10
TICKS = os.sysconf("SC_CLK_TCK")


class Fault(Exception):
    """Something could not be measured, or is not as it must be."""


class Processes(contextlib.ExitStack):
    """Starts programs and ends them in the reverse order, whatever happens; owns a folder for their files."""

    def __init__(self):
        super().__init__()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="e2e-")))
        # Two descriptors a stream: what is started has as many as may be had.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def start(self, words, log, **more):
        with open(log, "ab") as out:
            more = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out} | more
            process = subprocess.Popen([str(word) for word in words], **more)
        self.callback(stop, process)
        return process

    def listening(self, process, port, log, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        said = Path(log).read_text(errors="replace").strip()[-600:]
        raise Fault(f"{process.args[0]} does not listen on {port}: {said}")


def stop(process, how=signal.SIGTERM):
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        for pid in reversed(tree(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def found(command):
    """Where a program is; Debian keeps servers where users do not look."""
    return shutil.which(command) or shutil.which(command, path="/usr/sbin:/sbin:/usr/local/sbin")


# --- the kernel's accounts --------------------------------------------------------------------------------------------


def tree(root):
    """A process and all that came of it."""
    pids = [root]
    for pid in pids:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids += map(int, children.read_text().split())
    return pids


def account(root):
    """What a process and all that came of it have used until now."""
    spent = {"ns": 0, "user": 0, "system": 0, "switches": 0}
    for pid in tree(root):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent["user"] += int(fields[11])
            spent["system"] += int(fields[12])
            for task in Path(f"/proc/{pid}/task").iterdir():
                spent["ns"] += int((task / "schedstat").read_text().split()[0])
                switches = re.findall(r"ctxt_switches:\s*(\d+)", (task / "status").read_text())
                spent["switches"] += sum(map(int, switches))
    return spent


def machine():
    """Busy and stolen seconds of all cores together."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return {"busy": (user + nice + system + irq + softirq) / TICKS, "steal": steal / TICKS}


def memory(root):
    """Proportional set size of a process and all that came of it, in KiB, without the kernel's memory of sockets."""
    sizes = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in tree(root)]
    return sum(int(line.split()[1]) for size in sizes for line in size.splitlines() if line.startswith("Pss:"))
