"""The Python packages of proofs (packages.txt), in a virtual environment under target/ that is made once."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIST = HERE / "packages.txt"
INSTALL_SECONDS = 10 * 60


def enter():
    """Runs this script again with the environment's Python, unless that is what runs it already."""
    kept = hashlib.sha256(LIST.read_bytes() + sys.version.encode()).hexdigest()[:12]
    target = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent.parent / "target").resolve()
    folder = target / "proofs" / f"python-{kept}"
    if Path(sys.prefix) == folder:
        return
    if not folder.exists():
        print("  installing the packages of tests/real/packages.txt", flush=True)
        # Under another name until it is whole, so that an end in the middle leaves none that looks so.
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        run(sys.executable, "-m", "venv", unfinished)
        run(unfinished / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", LIST)
        unfinished.rename(folder)
    sys.stdout.flush()
    os.execv(folder / "bin" / "python", [folder / "bin" / "python", *sys.argv])


def run(*words):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS)
    if done.returncode != 0:
        sys.exit(f"could not be installed: {' '.join(map(str, words))} (Debian: apt-get install python3-venv)")
