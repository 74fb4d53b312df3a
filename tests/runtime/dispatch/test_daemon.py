# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

TWO_TASKS = """
import pyspark.worker

from statefun.runtime.dispatch import daemon
from statefun.runtime.spark_internals.worker import watch_functions

daemon.install()
watches = pyspark.worker.read_udfs, pyspark.worker.read_command
daemon.install()
assert watches == (pyspark.worker.read_udfs, pyspark.worker.read_command)
assert {watch.__module__ for watch in watches} == {watch_functions.__module__}
"""


def test_a_worker_process_serves_any_number_of_tasks() -> None:
    """The worker's functions are wrapped once, not once for every task."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_TASKS], check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
import signal
import pyspark.worker

from statefun.runtime.dispatch import daemon
from statefun.runtime.dispatch.operator import Operator

class Commands:
    def _read_with_length(self, file):
        return operator.__call__, None

operator = object.__new__(Operator)
object.__setattr__(operator, "arrow", False)
daemon.install()
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
pyspark.worker.read_command(Commands(), None)
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


def test_an_interruption_of_the_terminal_is_for_the_driver() -> None:
    """A worker that runs functions does not report the signal as a failure of a function."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


GONE = """
import os
import socket
import sys

from pyspark import daemon as sparks

from statefun.runtime.dispatch.daemon import install
from statefun.runtime.spark_internals.worker import run_daemon

theirs, ours = socket.socketpair()
theirs.close()
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "true"  # as Spark sets it
sys.argv[1:] = ["pyspark.worker"]
sparks.manager = lambda: sys.exit(sparks.worker(ours, True))
run_daemon(install)
"""


def test_a_worker_that_spark_has_left_ends_quietly() -> None:
    """When a query ends, Spark closes the connection to workers that still have to answer."""
    done = subprocess.run([sys.executable, "-c", GONE], check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "")


PRELOADED = """
import gc
import os
import sys
from pathlib import Path

from statefun.runtime.dispatch.daemon import PRELOADED, PRELOADED_ON_LINUX, install
from statefun.runtime.spark_internals.worker import preload

preload((*PRELOADED, *PRELOADED_ON_LINUX))
print(sorted(path.joinpath("comm").read_text().strip() for path in Path("/proc/self/task").iterdir()))

import pyarrow as pa

before = set(sys.modules)
worker = os.fork()
if worker == 0:
    install()
    pa.array([1])
    late = {name.partition(".")[0] for name in set(sys.modules) - before}
    print({"pandas", "numpy", "statefun"} & late, "yaml" in sys.modules, gc.get_freeze_count() > 10_000)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(worker, 0)[1] == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, it is imported after the fork")
def test_what_is_imported_before_the_fork_serves_after_it() -> None:
    """No thread is lost but one that jemalloc starts again; a worker has nothing large to import."""
    done = subprocess.run(
        [sys.executable, "-c", PRELOADED],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as Spark sets it
    )

    threads, imported = done.stdout.splitlines()
    assert set(ast.literal_eval(threads)) - {"jemalloc_bg_thd"} == {Path(sys.executable).name}
    assert imported == "set() False True"
