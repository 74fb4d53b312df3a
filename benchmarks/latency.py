# SPDX-License-Identifier: Apache-2.0
"""From end to end: how long after a record was sent its answer can be read, exactly once.

Records come in at a steady rate, each with the time at which it was sent; a function that counts
sends them on. The reader is a read-committed consumer in the same process, and so by the same
clock. Compared with the same application that publishes at least once.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from applications import running_application
from confluent_kafka import Consumer, Producer, TopicPartition
from report import Case, alternate, report

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

WARM_UP_SECONDS = 5
"""For so long at the start of a run records do not count."""
KEYS = 50_000
runs = itertools.count()


def functions(topic: str) -> StatefulFunctions:
    """Return a function that counts its messages and sends them on."""
    registry = StatefulFunctions()

    @registry.bind("bench/echo", [ValueSpec("seen", IntType)])
    def echo(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        value = message.raw_value()
        ctx.send(KafkaEgressMessage("bench/out", topic=topic, key=ctx.address.id, value=value))

    return registry


def application(kafka: EmbeddedKafka, name: str, semantic: str, folder: Path) -> Application:
    """Return an application with topics of its own."""
    for topic in (f"{name}-in", f"{name}-out"):
        kafka.create_topic(topic, partitions=2)
    address = kafka.bootstrap_servers
    module = parse_module(
        "kind: io.statefun.kafka.v1/ingress\n"
        f"spec: {{id: bench/in, address: '{address}', consumerGroupId: {name},\n"
        f"  startupPosition: {{type: earliest}}, topics: [{{topic: {name}-in,\n"
        "  valueType: bench/bytes, targets: [bench/echo]}]}\n"
        "---\n"
        "kind: io.statefun.kafka.v1/egress\n"
        f"spec: {{id: bench/out, address: '{address}', deliverySemantic: {{type: {semantic}}}}}\n"
    )
    settings = Settings.resolve({}, None, checkpoint=folder / name)
    return Application(module, functions(f"{name}-out"), settings)


def receive(kafka: EmbeddedKafka, topic: str, count: int, found: list[tuple[float, float]]) -> None:
    """Read so many records; add when each was sent and when it came."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    while len(found) < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append((float(message.value() or b""), time.time()))
    consumer.close()


class Load(NamedTuple):
    """The load: a rate of records for some time."""

    rate: int
    """Records a second."""
    seconds: int
    warm_up: int = WARM_UP_SECONDS
    """For so many seconds at the start, records do not count."""
    keys: int = KEYS
    """The number of keys."""


def latencies(kafka: EmbeddedKafka, app: Application, name: str, load: Load) -> list[float]:
    """Run an application while records come at a steady rate; return the latency of each, in seconds.

    Args:
        kafka: the broker.
        app: reads the topic ``<name>-in``, and writes each value to ``<name>-out``.
        name: the first part of the names of both topics.
        load: the records; those of the warm-up do not count.
    """
    pairs: list[tuple[float, float]] = []
    count = load.rate * load.seconds + 1
    reader = threading.Thread(target=receive, args=(kafka, f"{name}-out", count, pairs))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    producer.produce(f"{name}-in", repr(time.time()), "first")
    producer.flush()
    reader.start()
    with running_application(app):
        while not pairs:
            time.sleep(0.1)
        begin = time.time()
        for number in range(load.rate * load.seconds):
            producer.produce(f"{name}-in", repr(time.time()), f"{number % load.keys}")
            producer.poll(0)
            time.sleep(max(0.0, begin + (number + 1) / load.rate - time.time()))
        producer.flush()
        reader.join()
    return [came - sent for sent, came in pairs if sent > begin + load.warm_up]


def latency(
    kafka: EmbeddedKafka, folder: Path, load: Load, found: list[float], semantic: str
) -> float:
    """Run an application for a while; return its median latency in seconds."""
    name = f"latency-{next(runs)}"
    counted = latencies(kafka, application(kafka, name, semantic, folder), name, load)
    found.extend(counted)
    return float(np.median(counted))


def main() -> None:
    """Measure both semantics in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    exactly: list[float] = []
    at_least: list[float] = []
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
    ):
        load = Load(arguments.rate, arguments.seconds)
        measure = partial(latency, kafka, Path(name), load)
        figures = alternate(
            arguments.runs,
            lambda: measure(exactly, "exactly-once"),
            lambda: measure(at_least, "at-least-once"),
        )
    notes = []
    for semantic, found in (("exactly-once", exactly), ("at-least-once", at_least)):
        counted = np.array(found[len(found) // (arguments.runs + 1) :]) * 1000
        p50, p99 = np.percentile(counted, [50, 99])
        notes.append(f"{semantic}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, {len(counted):,} records")
    title = f"{arguments.rate:,} records/s, exactly-once vs at-least-once"
    report("latency", [Case(title, "s", *figures)], notes)


if __name__ == "__main__":
    main()
