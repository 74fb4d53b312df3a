# SPDX-License-Identifier: Apache-2.0
"""The published package, apache-flink-statefun, in a virtual environment of its own."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parents[1] / "build" / "published"
PROGRAMS = Path(__file__).resolve().parent / "published"
PINNED = ("apache-flink-statefun==3.3.0", "protobuf==3.20.3")


def published_python() -> list[str]:
    """Return the command of a Python that has it; it is installed when it is missing."""
    VENV.parent.mkdir(exist_ok=True)
    python = VENV / "bin" / "python"
    with Path(f"{VENV}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes of tests, one makes it
        if not (VENV / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *PINNED], check=True)
            (VENV / "complete").touch()
    return [str(python), "-E"]
