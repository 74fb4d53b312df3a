# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of whole applications: topics, module files, published records."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from patience import SECONDS
from pyspark.sql import SparkSession

from statefun.dev import EmbeddedKafka
from statefun.dev.records import placed_records
from statefun.engine.clock import Clock, SystemClock
from statefun.module.loader import parse_module
from statefun.module.model import Module
from statefun.runtime.application import Application
from statefun.runtime.reporting.metrics import SOURCE
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.sdk.errors import TopicError
from statefun.sdk.functions import StatefulFunctions

Record = tuple[str | bytes | None, str | bytes | None]
"""Key and value."""


@attrs.frozen
class Received:
    """A record as a consumer sees it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str
    headers: dict[str, str]


class KafkaHarness:
    """The session's broker, as one test uses it, with topic names of the test."""

    def __init__(self, broker: EmbeddedKafka, prefix: str) -> None:
        self.broker = broker
        self.address = broker.bootstrap_servers
        self._prefix = re.sub(r"[^A-Za-z0-9._-]", "_", prefix)

    def topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and return its full name."""
        full = f"{self._prefix}.{name}"
        self.broker.create_topic(full, partitions=partitions)
        return full

    def renew(self, topic: str) -> None:
        """Delete a topic, and create another one of its name."""
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.delete_topics([topic])[topic].result(SECONDS)
        wait(lambda: topic not in self.broker_topics())
        self.broker.create_topic(topic)

    def broker_topics(self) -> set[str]:
        """Return all topics that there are, also of other tests."""
        return set(
            AdminClient({"bootstrap.servers": self.address}).list_topics(timeout=SECONDS).topics
        )

    def send(self, topic: str, records: Iterable[Record], partition: int | None = None) -> None:
        """Write records, in order."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5})
        for key, value in records:
            producer.produce(topic, value, key, partition=-1 if partition is None else partition)
            producer.poll(0)
        assert producer.flush(30) == 0

    def receive(self, topic: str) -> list[Received]:
        """Read a topic from its beginning to its present end, partition by partition; nothing if there is no such topic."""
        try:
            records = placed_records(self.address, topic)
        except TopicError:
            return []
        return [
            Received(
                topic,
                record.partition,
                record.offset,
                None if record.key is None else record.key.decode(errors="backslashreplace"),
                (record.value or b"").decode(errors="backslashreplace"),
                {name: (value or b"").decode() for name, value in record.headers},
            )
            for record in records
        ]

    def group_offsets(self, group: str, topic: str, partitions: int = 1) -> list[int]:
        """Return the committed offsets of a consumer group, by partition."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        committed: list[TopicPartition] = []

        def have_come() -> bool:
            try:
                committed.extend(consumer.committed(asked, timeout=SECONDS))
            except KafkaException as error:
                # A broker that was frozen is nobody's coordinator for a moment.
                if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
            return bool(committed)

        wait(have_come)
        consumer.close()
        return [partition.offset for partition in committed]

    def module(
        self,
        targets: Mapping[str, Sequence[str]],
        *,
        start: str = "{type: earliest}",
        group: str = "tests",
        reset: str = "latest",
        value_type: str = "io.statefun.types/string",
        semantic: str = "at-least-once",
        dead_letters: str = "",
        on_failure: str = "",
    ) -> str:
        """Write a module file: one ingress, ``targets`` by topic, and the egress ``test/out``."""
        topics = "".join(
            f"    - {{topic: '{topic}', valueType: {value_type}, targets: [{', '.join(names)}]}}\n"
            for topic, names in targets.items()
        )
        return (
            "kind: io.statefun.kafka.v1/ingress\n"
            "spec:\n"
            "  id: test/in\n"
            f"  address: {self.address}\n"
            f"  consumerGroupId: {group}\n"
            f"  startupPosition: {start}\n"
            f"  autoOffsetResetPosition: {reset}\n"
            + (f"  failurePolicy: {on_failure}\n" if on_failure else "")
            + f"  topics:\n{topics}"
            "---\n"
            "kind: io.statefun.kafka.v1/egress\n"
            "spec:\n"
            "  id: test/out\n"
            f"  address: {self.address}\n"
            f"  deliverySemantic: {{type: {semantic}}}\n"
            + (f"  deadLetterTopic: {dead_letters}\n" if dead_letters else "")
        )


def wait(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, and look less often the longer it takes: a look may cost the broker much."""
    deadline = time.monotonic() + SECONDS
    pause = 0.05
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(pause)
        pause = min(1.2 * pause, 0.5)


def run(
    module: str | Module,
    functions: StatefulFunctions,
    checkpoint: Path | str,
    *,
    clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    **settings: Any,
) -> Summary:
    """Run an application on the present records of its topics."""
    arguments: dict[str, object] = {
        "checkpoint": checkpoint,
        "available_now": True,
        "kafka_timeout": timedelta(seconds=10),
        **settings,
    }
    resolved = Settings.resolve({}, None, **arguments)
    declared = parse_module(module) if isinstance(module, str) else module
    return Application(declared, functions, resolved, clock).run()


@contextmanager
def running(application: Application) -> Iterator[None]:
    """Run an application during the block."""
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(application.run)
        try:
            yield
        finally:
            application.stop()
            with pytest.raises(KeyboardInterrupt):
                ended.result(SECONDS)


def metrics(spark: SparkSession) -> dict[str, int]:
    """Return the values that a sink of Spark's metrics system gets, by name."""
    jvm: Any = spark._jvm  # noqa: SLF001 - classes of the JVM have no other door
    sources = jvm.org.apache.spark.SparkEnv.get().metricsSystem().getSourcesByName(SOURCE)
    if sources.isEmpty():
        return {}
    registry = sources.head().metricRegistry()
    gauges, counters = registry.getGauges(), registry.getCounters()
    return {
        **{name: gauges[name].getValue() for name in gauges},
        **{name: counters[name].getCount() for name in counters},
    }
