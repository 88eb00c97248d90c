"""Packages of proofs, under target/proofs: Python's (packages.txt) in a virtual environment, and what else is made once."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIST = HERE / "packages.txt"
FOLDER = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent.parent / "target").resolve() / "proofs"
INSTALL_SECONDS = 10 * 60


def enter():
    """Runs this script again with the environment's Python, unless that is what runs it already."""
    folder = made("python", LIST.read_bytes() + sys.version.encode(), environment)
    if Path(sys.prefix) == folder:
        return
    sys.stdout.flush()
    os.execv(folder / "bin" / "python", [folder / "bin" / "python", *sys.argv])


def environment(folder):
    print("  installing the packages of tests/real/packages.txt", flush=True)
    hint = "Debian: apt-get install python3-venv"
    run(sys.executable, "-m", "venv", folder, hint=hint)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", LIST)
    run(folder / "bin" / "python", *pip, hint=hint)


def made(kind, sources, fill):
    """The folder that `fill` has filled, once for what these sources say."""
    folder = FOLDER / f"{kind}-{hashlib.sha256(sources).hexdigest()[:12]}"
    if not folder.exists():
        # Under another name until it is whole, so that an end in the middle leaves none that looks so.
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        fill(unfinished)
        unfinished.rename(folder)
    return folder


def run(*words, hint, **more):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS, **more)
    if done.returncode != 0:
        sys.exit(f"could not be installed: {' '.join(map(str, words))} ({hint})")
