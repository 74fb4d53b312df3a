# SPDX-License-Identifier: Apache-2.0
"""Running the application for so many micro-batches, with everything around it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import attrs
from confluent_kafka import Consumer, TopicPartition
from kinesis_server import KinesisHarness, kinesalite
from local_servers import free_port
from patience import SECONDS

from endurance.outside import Endpoint, Outside
from statefun.dev import EmbeddedKafka

TOPICS = ("in", "out", "later", "dead")
STREAMS = ("in", "out")
_BACK = "can be reached again"
"""What the application logs when its endpoint is back."""
_LOOK_SECONDS = 1.0
_END_SECONDS = 300
_JAVA = "-XX:+UseSerialGC -Xms1g -XX:+AlwaysPreTouch -XX:SoftRefLRUPolicyMSPerMB=10 -XX:TieredStopAtLevel=1"
"""Memory that the heap may take is taken at once: what is more is none of the heap's.

Soft references that nobody uses last ten seconds. The first compiler alone compiles the code: the second one goes on for hours.
"""
_SPARK = "--conf spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB=1"
"""The cache of state that was read is full from the start on, instead of hours later."""
_MALLOC = {"MALLOC_ARENA_MAX": "1"}
"""One arena, instead of 16 with their own free memory, whichever threads allocate."""


@attrs.frozen
class Used:
    """How much of everything a run has used."""

    counts: dict[str, int]

    @property
    def missing(self) -> list[str]:
        """What was not used."""
        return [name for name, count in self.counts.items() if not count]


def endure(
    folder: Path,
    batches: int,
    every: timedelta,
    absence: timedelta,
    show: Callable[[str], None] = lambda _: None,
) -> Used:
    """Run the application, and sample it.

    Args:
        folder: a new folder for everything.
        batches: the number of micro-batches.
        every: the time between two samples.
        absence: for how long the endpoint is away each time.
        show: takes how far it is.

    Raises:
        AssertionError: if the application ends by itself, or does not end.
    """
    folder.mkdir(parents=True)
    with EmbeddedKafka() as kafka, kinesalite() as server:
        for topic in TOPICS:
            kafka.create_topic(topic)
        kinesis = KinesisHarness(server.port)
        for stream in STREAMS:
            kinesis.create(stream)
        port, endpoint = free_port(), Endpoint(free_port(), absence)
        options = {
            "folder": str(folder),
            "kafka": kafka.bootstrap_servers,
            "kinesis": kinesis.url,
            "port": port,
            "endpoint": f"http://127.0.0.1:{endpoint.port}/",
            "every": every.total_seconds(),
        }
        with (
            _started(folder, options) as program,
            Outside(folder, kafka.bootstrap_servers, kinesis, port, endpoint) as outside,
        ):
            while not outside.begin():
                _check(program, folder)
                time.sleep(_LOOK_SECONDS)
            while (
                (batch := newest(folder)) < batches
                or not outside.has_come_and_gone
                or _BACK not in _log(folder)
            ):
                _check(program, folder)
                show(f"{max(batch, 0):,} of {batches:,} micro-batches, in {folder}")
                time.sleep(_LOOK_SECONDS)
            program.send_signal(signal.SIGTERM)
            program.wait(_END_SECONDS)
        log = _log(folder)
        return Used(
            {
                **{f"topic {topic}": _records(kafka, topic) for topic in TOPICS},
                "stream out": len(kinesis.read("out")),
                "playground": outside.taken,
                "files out": outside.removed + len(list((folder / "out").glob("part-*"))),
                "endpoint down": log.count("cannot be reached"),
                "endpoint up": log.count(_BACK),
                "stopped in order": program.returncode == 0,
            }
        )


def newest(folder: Path) -> int:
    """Return the newest committed micro-batch; -1 before the first one."""
    commits = folder / "checkpoint" / "commits"
    names = (path.name for path in commits.iterdir()) if commits.exists() else ()
    return max((int(name) for name in names if name.isdecimal()), default=-1)


@contextmanager
def _started(folder: Path, options: Mapping[str, object]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        **_MALLOC,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --driver-memory 1g "
        f"--conf spark.ui.enabled=false {_SPARK} --driver-java-options '{_JAVA}' pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (folder / "driver.log").open("w") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "endurance.application", json.dumps(options)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield program
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def _log(folder: Path) -> str:
    return (folder / "driver.log").read_text(errors="replace")


def _check(program: subprocess.Popen[bytes], folder: Path) -> None:
    if program.poll() is not None:
        log = _log(folder)
        raise AssertionError(f"the application has ended: {log[-3000:]}")


def _records(kafka: EmbeddedKafka, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "endurance"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS)
    finally:
        consumer.close()
    return int(end)
