# SPDX-License-Identifier: Apache-2.0
"""A cluster of Spark's own kind on this machine: a master, and workers that start executors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyspark
from class_archive import SHORT_LIVED
from local_servers import connected, free_port
from patience import SECONDS
from soak_processes import arguments, processes, send

_SPARK = Path(pyspark.__path__[0])
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_REGISTERED = "Successfully registered with master"
_APPLICATIONS = 2
"""So many find room for an executor on each worker: one that was stopped, and keeps its executors, and its successor."""
_MEMORY = 640
"""Megabytes of an executor."""


@attrs.define
class StandaloneCluster:
    """The processes of a cluster; each worker starts one executor with one core for an application.

    Args:
        folder: for files and logs of all processes.
    """

    folder: Path
    port: int = attrs.field(factory=free_port)
    _master: subprocess.Popen[str] | None = None
    _workers: list[subprocess.Popen[str]] = attrs.Factory(list)
    _killed: list[int] = attrs.Factory(list)
    _started: int = 0

    @property
    def submit_arguments(self) -> str:
        """The arguments of spark-submit for an application on this cluster, whose driver is on this machine."""
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.cores.max": str(self.worker_count),
            "spark.executor.cores": "1",
            "spark.executor.memory": f"{_MEMORY}m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.decommission.enabled": "true",
            "spark.ui.enabled": "false",
        }
        settings = " ".join(f'--conf "{key}={value}"' for key, value in conf.items())
        return f"--master spark://127.0.0.1:{self.port} --driver-memory 1g {settings}"

    def start(self, workers: int) -> None:
        """Start the master and so many workers; return when the workers have registered."""
        master = "org.apache.spark.deploy.master.Master"
        self._master = self._run("master", master, "--port", str(self.port))
        connected(self.port, self._master).close()
        for _ in range(workers):
            self.start_worker()

    def start_worker(self) -> None:
        """Start one more worker; return when it has registered."""
        name = f"worker-{self._started}"
        self._started += 1
        worker = self._run(
            name,
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", str(_APPLICATIONS), "--memory", f"{_APPLICATIONS * _MEMORY}m"),
            *("--work-dir", str(self.folder / name), f"spark://127.0.0.1:{self.port}"),
        )
        self._workers.append(worker)
        deadline = time.monotonic() + SECONDS
        while _REGISTERED not in (log := (self.folder / f"{name}.log").read_text()):
            assert worker.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.1)

    def decommission_worker(self, number: int) -> list[int]:
        """Let a worker run no more executors; return its own ones, which finish their tasks, and end."""
        worker = self._workers[number].pid
        send(worker, signal.SIGPWR)
        return self._executors({worker})

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its executor notices that, and ends."""
        worker = self._workers.pop(number)
        worker.kill()
        worker.wait()
        self._killed.append(worker.pid)

    @property
    def worker_count(self) -> int:
        """How many workers run."""
        return len(self._workers)

    def executors(self) -> list[int]:
        """Return the processes of all executors."""
        return self._executors({worker.pid for worker in self._workers})

    def _executors(self, workers: set[int]) -> list[int]:
        return [
            number
            for number, process in processes().items()
            if process.parent in workers and _EXECUTOR in arguments(number)
        ]

    def close(self) -> None:
        """End all processes, also executors that have not yet noticed the end of their worker."""
        started = [*self._workers, *filter(None, [self._master])]
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for number, found in processes().items():
            if found.group in self._killed and _EXECUTOR in arguments(number):
                send(number, signal.SIGKILL)

    def _run(self, name: str, class_: str, *options: str) -> subprocess.Popen[str]:
        """Start a process of Spark's with a process group of its own, which its executors belong to."""
        environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
        with (self.folder / f"{name}.log").open("w") as log:
            return subprocess.Popen(
                [
                    *(str(_SPARK / "bin" / "spark-class"), class_),
                    *("--host", "127.0.0.1", "--webui-port", "0", *options),
                ],
                env={
                    **environment,
                    "SPARK_HOME": str(_SPARK),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(self.folder / "local"),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} -Dspark.decommission.enabled=true",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[StandaloneCluster]:
    """Run a cluster during the block."""
    folder.mkdir(exist_ok=True)
    cluster = StandaloneCluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.close()
