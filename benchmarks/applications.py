# SPDX-License-Identifier: Apache-2.0
"""Applications for several benchmarks: one that records when its functions are called, and any in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
from confluent_kafka import Consumer, Producer, TopicPartition

from statefun import KafkaEgressMessage, StatefulFunctions
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings


@attrs.define
class TimedApplication:
    """An application with its own topics in and out, and a checkpoint with its state."""

    kafka: EmbeddedKafka
    name: str
    typename: str
    checkpoint: Path
    _received: int = 0

    def __attrs_post_init__(self) -> None:
        for topic in (self.source, self.sink):
            self.kafka.create_topic(topic)

    @property
    def source(self) -> str:
        """The topic of the ingress."""
        return f"{self.name}-in"

    @property
    def sink(self) -> str:
        """The topic of the egress."""
        return f"{self.name}-out"

    def run(
        self, functions: StatefulFunctions, values: Sequence[bytes], **settings: object
    ) -> None:
        """Send values and process them."""
        address = self.kafka.bootstrap_servers
        producer = Producer({"bootstrap.servers": address})
        for value in values:
            producer.produce(self.source, value, b"start")
        producer.flush()
        module = parse_module(
            "kind: io.statefun.kafka.v1/ingress\n"
            f"spec: {{id: bench/in, address: '{address}', consumerGroupId: {self.name},\n"
            f"  startupPosition: {{type: earliest}}, topics: [{{topic: {self.source},\n"
            f"  valueType: bench/bytes, targets: [{self.typename}]}}]}}\n"
            "---\n"
            "kind: io.statefun.kafka.v1/egress\n"
            f"spec: {{id: bench/out, address: '{address}'}}\n"
        )
        resolved = Settings.resolve(
            {}, None, checkpoint=self.checkpoint, available_now=True, **settings
        )
        Application(module, functions, resolved).run()

    def times(self, count: int) -> list[float]:
        """Wait for so many new records, each a time, and return them in order."""
        consumer = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": self.name}
        )
        consumer.assign([TopicPartition(self.sink, 0, self._received)])
        times: list[float] = []
        while len(times) < count:
            times += [float(record.value() or b"") for record in consumer.consume(100, timeout=1.0)]
        consumer.close()
        self._received += len(times)
        return sorted(times)


def time_record(topic: str, seconds: float) -> KafkaEgressMessage:
    """Return the record that :meth:`TimedApplication.times` reads."""
    return KafkaEgressMessage("bench/out", topic=topic, value=repr(seconds))


@contextmanager
def running_application(application: Application) -> Iterator[None]:
    """Run an application of ours in a thread until the block ends."""

    def run() -> None:
        with suppress(KeyboardInterrupt):
            application.run()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        application.stop()
        thread.join()
