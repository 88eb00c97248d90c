"""What must be here before anything is measured, and what there is: programs, versions, the machine."""

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

from processes import Fault, found

ROOT = Path(__file__).resolve().parents[2]
BUILD_SECONDS = 60 * 60
# While this says so, Debian's packages start no service at their installation.
POLICY = Path("/usr/sbin/policy-rc.d")


def install(peers, counters):
    """Installs what is missing, where that can be done without asking."""
    wanted = (["nginx", "haproxy"] if peers else []) + (["valgrind", "strace"] if counters else [])
    missing = [name for name in wanted if not found(name)]
    if not missing or not found("apt-get"):
        return
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if root and subprocess.run([*root, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print(f"not here, and not measured: {', '.join(missing)}", file=sys.stderr)
        return
    print(f"installing {', '.join(missing)}", file=sys.stderr)
    ours = not POLICY.exists()
    if ours:
        refuse = f"printf '#!/bin/sh\\nexit 101\\n' >{POLICY} && chmod 755 {POLICY}"
        subprocess.run([*root, "sh", "-c", refuse], check=True)
    try:
        apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "timeout": 900}
        subprocess.run([*apt, "update"], **more)
        subprocess.run([*apt, "install", "-y", "--no-install-recommends", *missing], **more)
    finally:
        if ours:
            subprocess.run([*root, "rm", "-f", POLICY], check=True)
    missing = [name for name in missing if not found(name)]
    if missing:
        print(f"could not be installed, and is not measured: {', '.join(missing)}", file=sys.stderr)


def programs(asked):
    """Builds of the gauge by their names, and the program with the provider and the load."""
    gauges = {}
    for program in asked.program:
        name, _, file = program.rpartition("=")
        gauges[name or "streamgauge"] = Path(file).resolve()
    # One after the other: together, the program would be built with the features of the tests' parts.
    gauges = gauges or {"streamgauge": build("--bin", "streamgauge")}
    return gauges, Path(asked.parts).resolve() if asked.parts else build_parts(asked)


def build_parts(asked):
    """Where times are not looked at, as the tests are built: what they need has been compiled for them already."""
    return build("--example", "e2e", profile="release-checks" if asked.check else "release")


def build(*what, profile="release"):
    words = ["cargo", "build", "--profile", profile, "--locked", *what, "--message-format=json-render-diagnostics"]
    print(" ".join(words[:-1]), file=sys.stderr)
    built = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL)
    if built.returncode != 0:
        raise Fault("it could not be built")
    said = (json.loads(line) for line in built.stdout.splitlines())
    return Path([message["executable"] for message in said if message.get("executable")][-1])


def facts(gauges, asked):
    """With what the figures were taken."""
    processor = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", processor)
    kind = "virtual machine" if re.search(r"\bhypervisor\b", processor) else "machine"
    memory = int(re.search(r"MemTotal: *(\d+)", Path("/proc/meminfo").read_text())[1]) / 2**20
    system = re.search(r'PRETTY_NAME="?([^"\n]*)', Path("/etc/os-release").read_text())
    versions = {name: first_line([program, "--version"]) for name, program in gauges.items()}
    for name in ("nginx", "haproxy"):
        if found(name):
            versions[name] = first_line([found(name), "-v"])
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{kind}, {os.cpu_count()} cores ({model[1] if model else platform.machine()}), {memory:.0f} GiB",
        "system": f"{system[1] if system else platform.system()}, kernel {platform.release()}",
        "compiler": first_line(["rustc", "--version"]),
        "commit": first_line(["git", "-C", ROOT, "describe", "--always", "--dirty"]),
        "versions": versions,
        "workers": asked.workers,
    }


def first_line(words):
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except OSError:
        return "unknown"
    return ((said.stdout + said.stderr).strip().splitlines() or ["unknown"])[0]
