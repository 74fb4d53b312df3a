# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: the greeter against Flink StateFun 3.3 with its published Python SDK.

See ``kafka_runs`` for what is measured. One JVM with a MiniCluster of Flink 1.16 runs all jobs, so
that they are warm after the first, like ours; two processes serve the function, which keeps both
cores busy. Flink's jars come through Maven, which has to be on the PATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import final

from kafka_runs import (
    BUILD,
    EO,
    PARTITIONS,
    PATIENCE_SECONDS,
    PEERS,
    Bench,
    Goals,
    greetings,
    run_ours,
    running,
    venv,
)
from report import report

from statefun.dev import EmbeddedKafka

SOURCES = PEERS / "flink"
MAIN = "org.apache.flink.statefun.flink.core.PeerMain"
SDK = "apache-flink-statefun==3.3.0"
SERVING = ("uvloop==0.23.0", "httptools==0.9.0", "uvicorn==0.54.0")
KEYS, SIZE = 50_000, 100
SERVERS = 2
GOALS = {"published": 12.0, "tuned": 3.0}
"""The ratios of rates to reach, by the server of Flink's function."""
OPENED = (  # packages that Flink 1.16 reflects on and Java 17 closes
    "java.lang java.lang.reflect java.lang.invoke java.io java.net java.nio java.math java.text "
    "java.time java.util java.util.concurrent java.util.concurrent.atomic "
    "java.util.concurrent.locks sun.net.util sun.nio.ch"
)
OPTIONS: Mapping[str, object] = {
    "parallelism.default": PARTITIONS,
    "taskmanager.numberOfTaskSlots": PARTITIONS,
    "execution.checkpointing.interval": "1s",
    "execution.checkpointing.timeout": "2min",
    "state.backend": "hashmap",
    "taskmanager.memory.managed.size": "16m",
    "restart-strategy": "none",
    # StateFun refuses to start without these, in one class loader, too.
    "classloader.parent-first-patterns.additional": (
        "org.apache.flink.statefun;org.apache.kafka;com.google.protobuf"
    ),
    "statefun.async.max-per-task": 4096,
    "statefun.feedback.memory.size": "128m",
}
"""The options that were found to be the fastest, with state on the heap."""


@final
class Flink:
    """A JVM that runs one job after another; it ends when its standard input does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = BUILD / "flink.log"

    def __enter__(self) -> Flink:
        command = ["java", "-Xms3g", "-Xmx3g", "-XX:+UseSerialGC"]
        command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()]
        command += [f"-Djava.io.tmpdir={self._folder}", "-cp", class_path(), MAIN]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    @contextmanager
    def job(self, module: str, name: str) -> Iterator[None]:
        """Run a job until the block ends."""
        folder = self._folder / name
        folder.mkdir()
        (folder / "module.yaml").write_text(module)
        options = {
            **OPTIONS,
            "io.tmp.dirs": folder,
            "state.checkpoints.dir": (folder / "checkpoints").as_uri(),
            "statefun.remote.module-name": (folder / "module.yaml").as_uri(),
        }
        file = folder / "flink.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        logged = self._log.stat().st_size
        self._say(str(file))
        yield
        self._say("cancel")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"PEER cancelled" not in self._log.read_bytes()[logged:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"Flink's job does not end; see {self._log}")
            time.sleep(0.1)

    def _say(self, line: str) -> None:
        print(line, file=self._process.stdin, flush=True)


def class_path() -> str:
    """Return the class path of Flink's jars and of PeerMain, which is compiled when it is missing."""
    folder = BUILD / "flink"
    jars, compiled = folder / "jars.txt", folder / "classes"
    if not compiled.exists():
        folder.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={jars}"]
        pom = ["-f", str(SOURCES / "pom.xml")]
        subprocess.run(["mvn", "-q", "-B", "-Dstyle.color=never", *pom, *goal], check=True)
        javac = ["javac", "--release", "11", "-d", str(compiled), "-cp", jars.read_text().strip()]
        subprocess.run([*javac, str(SOURCES / "PeerMain.java")], check=True)
    return os.pathsep.join([str(SOURCES), str(compiled), jars.read_text().strip()])


def published() -> list[str]:
    """Return the command of a server of what the SDK asks for: protobuf in pure Python, uvicorn."""
    return [venv("flink-published", "protobuf==3.20.3", *SERVING, forced=SDK), "uvicorn"]


def tuned() -> list[str]:
    """Return the command of the fastest server, with a protobuf that the SDK does not allow."""
    return [venv("flink-tuned", "protobuf==4.25.8", *SERVING, forced=SDK), "raw"]


def module_of(bench: Bench, sink: str, port: int) -> str:
    """Return a module.yaml."""
    address = bench.kafka.bootstrap_servers
    return f"""\
kind: io.statefun.endpoints.v2/http
spec:
  functions: bench/*
  urlPathTemplate: http://127.0.0.1:{port}/statefun
  maxNumBatchRequests: 10000
  transport:
    type: io.statefun.transports.v1/async
    call: 2min
    connect: 20s
    pool_ttl: 10min
    pool_size: 64
---
kind: io.statefun.kafka.v1/ingress
spec:
  id: bench/in
  address: {address}
  consumerGroupId: {sink}
  startupPosition: {{type: earliest}}
  properties:
    - isolation.level: read_committed
  topics:
    - topic: {bench.source}
      valueType: bench/bytes
      targets: [bench/greeter]
---
kind: io.statefun.kafka.v1/egress
spec:
  id: bench/out
  address: {address}
  deliverySemantic: {{type: exactly-once, transactionTimeout: 15min}}
  properties:
    - linger.ms: '5'
    - batch.size: '131072'
    - buffer.memory: '67108864'
"""


@contextmanager
def served(server: list[str], sink: str) -> Iterator[int]:
    """Run the servers of a function until the block ends; yield their port."""
    python, http = server
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python, str(SOURCES / "server.py"), str(port), sink, http]
    with running([command] * SERVERS):
        wait_until_served(port)
        yield port


@contextmanager
def run_flink(bench: Bench, flink: Flink, server: list[str], sink: str) -> Iterator[None]:
    """Run a job and the servers of its function until the block ends."""
    with served(server, sink) as port, flink.job(module_of(bench, sink, port), sink):
        yield


def wait_until_served(port: int) -> None:
    """Wait until somebody listens on a port."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            sys.exit("the server of Flink StateFun's function does not start")
        time.sleep(0.05)


def main() -> None:
    """Compare with both servers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--servers", default="published,tuned")
    arguments = parser.parse_args()
    if not shutil.which("mvn"):
        sys.exit("no mvn: Maven fetches Flink; install it (apt-get install maven)")
    cases, notes = [], []
    servers = {"published": published, "tuned": tuned}
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
        Flink(Path(name)) as flink,
    ):
        bench = Bench(kafka, greetings(arguments.records, KEYS, SIZE))
        ours = bench.side("ours", run_ours(bench, Path(name), EO))
        for server in arguments.servers.split(","):
            peer = f"Flink StateFun, {server}"
            work = partial(run_flink, bench, flink, servers[server]())
            title = f"{SIZE} B, {100_000 // KEYS} per address and batch, {EO}, vs {peer}"
            other = bench.side(peer, work)
            compared = bench.compare(title, arguments.runs, ours, other, Goals(GOALS[server]))
            cases += compared[0]
            notes += compared[1]
    report("flink", cases, notes)


if __name__ == "__main__":
    main()
