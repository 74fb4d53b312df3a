# SPDX-License-Identifier: Apache-2.0
"""Helpers of the demos: launching a program with spark-submit, sending, and receiving."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer

from statefun.dev import EmbeddedKafka

HERE = Path(__file__).resolve().parent
LOG = HERE.parent / "build" / "demo.log"
PATIENCE_SECONDS = 120
DRAIN = ("--conf", "spark.statefun.available-now=true")


@contextmanager
def submitted(
    kafka: EmbeddedKafka | None,
    example: str,
    checkpoint: Path,
    *options: str,
    is_short: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run an example's program with ``spark-submit``; stop it if it still runs at the end.

    Args:
        kafka: the broker that the program finds in its environment, if it needs one.
        example: the folder of the program.
        checkpoint: the folder where the program keeps its state.
        options: of ``spark-submit``.
        is_short: whether the program has little to do, so that compiling it well takes Java
            longer than running it.
    """
    bin_ = Path(sys.executable).parent
    environment = {
        **os.environ,
        **({} if kafka is None else {"KAFKA_ADDRESS": kafka.bootstrap_servers}),
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if is_short:
        environment.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        command = [
            *(str(bin_ / "spark-submit"), *options),
            *("--conf", f"spark.statefun.checkpoint={checkpoint}"),
            str(HERE / example / "app.py"),
        ]
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextmanager
def fresh_checkpoint() -> Iterator[Path]:
    """Return where a demo's programs keep their state until it ends."""
    with tempfile.TemporaryDirectory(prefix="statefun-demo-") as folder:
        yield Path(folder) / "checkpoint"


def produce(kafka: EmbeddedKafka, topic: str, records: Iterable[tuple[str, bytes]]) -> None:
    """Send records to a topic."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "linger.ms": 20,
            "enable.idempotence": True,
            "log_level": 3,  # errors: a broker that has just started is not worth a warning
        }
    )
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def consume(
    kafka: EmbeddedKafka, process: subprocess.Popen[bytes], topic: str, count: int
) -> Iterator[tuple[str, str]]:
    """Yield ``count`` records (key and text) as they arrive in an egress topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while count > 0:
            messages = consumer.consume(10_000, timeout=0.5)
            for message in messages:
                yield (message.key() or b"").decode(), (message.value() or b"").decode()
            count -= len(messages)
            if messages:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif process.poll() not in {None, 0} or time.monotonic() > deadline:
                sys.exit(f"the program has failed; what it said:\n{LOG.read_text()}")
    finally:
        consumer.close()


def drained(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program that ends by itself; end the demo if it has failed."""
    if process.wait() != 0:
        sys.exit(f"the program has failed; what it said:\n{LOG.read_text()}")


def wait_for_interrupt(process: subprocess.Popen[bytes]) -> None:
    """Wait for Ctrl-C, or the end of the program."""
    try:
        process.wait()
    except KeyboardInterrupt:
        print()
