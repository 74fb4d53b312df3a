# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

TWO_TASKS = """
import pyspark.worker

from statefun.runtime.dispatch import daemon

daemon.install()
watches = pyspark.worker.read_udfs, pyspark.worker.read_command
daemon.install()
assert watches == (pyspark.worker.read_udfs, pyspark.worker.read_command)
assert {watch.__module__ for watch in watches} == {daemon.MODULE}
"""


def test_a_worker_process_serves_any_number_of_tasks() -> None:
    """What watches the worker's functions is put around them once, not once for every task."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_TASKS], check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


GONE = """
import os
import socket
import sys

from pyspark import daemon as sparks

from statefun.runtime.dispatch import daemon

theirs, ours = socket.socketpair()
theirs.close()
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "true"  # as Spark sets it
sys.argv[1:] = ["pyspark.worker"]
sparks.manager = lambda: sys.exit(sparks.worker(ours, True))
daemon.main()
"""


def test_a_worker_that_spark_has_left_ends_quietly() -> None:
    """When a query ends, Spark closes the connection to workers that still have to answer."""
    done = subprocess.run([sys.executable, "-c", GONE], check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "")
