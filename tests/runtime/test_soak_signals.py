# SPDX-License-Identifier: Apache-2.0
"""What a signal leaves of a soak: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import wait
from patience import SECONDS
from soak_processes import arguments, processes

TESTS = Path(__file__).parents[1]
SOAK = """
import argparse, random, sys
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from soak_run import Soak
from soak_seeds import exit_at_signals, judged, soak_all


@contextmanager
def sleeping(folder):
    soak = Soak(None, "", folder, random.Random(0), "", program=Path("sleeps.py"))
    with closing(soak):
        yield soak


def trouble(soak):
    while True:
        soak.wait_for(soak.start(), lambda: False)


exit_at_signals()
arguments = argparse.Namespace(seed=0, seeds=3, jobs=2)
sys.exit(soak_all(lambda seed, seeds: judged("signals", seed, seeds, sleeping, trouble), arguments))
"""
SLEEPS = "import time; time.sleep(3600)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_applications_of_all_seeds(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Two seeds run and a third one waits: their programs, each in a session of its own, end, and no other begins."""
    (tmp_path / "soak.py").write_text(SOAK)
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    with subprocess.Popen(
        [sys.executable, "soak.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as soak:
        try:
            wait(lambda: len(_children(soak.pid)) == 2)
            programs = _children(soak.pid)
            os.kill(soak.pid, number)
            os.kill(soak.pid, number)  # as `timeout` and `make` do
            _, errors = soak.communicate(timeout=SECONDS)
        finally:
            soak.kill()

    assert soak.returncode == 128 + number
    assert f"ended by {number.name}" in errors
    assert "Traceback" not in errors
    assert not programs & processes().keys()
    assert len(list(tmp_path.glob("statefun-signals-*"))) == 2
    assert len(list(tmp_path.glob("statefun-signals-*/driver-*.log"))) == 2


def _children(parent: int) -> set[int]:
    return {
        number
        for number, process in processes().items()
        if process.parent == parent and b"sleeps.py" in arguments(number)
    }
