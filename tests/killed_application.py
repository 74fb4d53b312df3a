# SPDX-License-Identifier: Apache-2.0
"""An application in processes of its own, which are killed in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the application in processes of its own, and kill them at the end of the block."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,  # with its JVM and workers
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
