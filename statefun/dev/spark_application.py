# SPDX-License-Identifier: Apache-2.0
"""Runs an application under test on Spark and an embedded broker: slow, but with the real engine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message as ClientRecord
from confluent_kafka import TopicPartition as Place

from statefun.dev.kafka import EmbeddedKafka
from statefun.engine.sinks import EgressRecord
from statefun.module.location import Location
from statefun.module.model import (
    AutoOffsetReset,
    FromSpecificOffsets,
    KafkaIngress,
    Module,
    TopicPartition,
)
from statefun.module.topic_routes import TopicRoute, route_of
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.kafka.client import read_committed
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import open_session
from statefun.runtime.spark.shipping import own_modules
from statefun.runtime.spark_internals.closures import pickle_by_value
from statefun.runtime.stored.stored_state import stored_state
from statefun.sdk.address import Address, TypeName
from statefun.sdk.errors import DefinitionError, KafkaError
from statefun.sdk.times import from_epoch_millis, to_epoch_millis
from statefun.sdk.types import Type
from statefun.testing.arguments import Content, checked_address, checked_function, written_record
from statefun.testing.in_process import START
from statefun.testing.outcomes import PublishedRecord, argument_of, content
from statefun.testing.tested import LoadedProgram, TestedApplication, not_read, route_in

_PATIENCE = timedelta(seconds=30)
_OWNER = "a test"


@attrs.frozen
class FileClock:
    """A clock that tests set; the time is in a file, so that all processes read the same time."""

    file: Path

    def now(self) -> int:
        """Return the time that was set last, in milliseconds since the epoch."""
        return int(self.file.read_text())

    def monotonic(self) -> int:
        """Always return 0, as no time passes between two calls of :meth:`set`."""
        return 0

    def set(self, seconds: float) -> None:
        """Set the time, in seconds since the epoch."""
        # Replace the file in one step: other processes may read it at any time.
        new = self.file.with_suffix(".new")
        new.write_text(str(round(seconds * 1000)))
        new.replace(self.file)


class SparkApplication(TestedApplication):
    """An application under test; each :meth:`drain` runs it on Spark until all messages are processed.

    All of its ingresses, and its egresses to Kafka, use the embedded broker, also if its module files declare
    other clusters; egresses of connectors stay as declared. Ingresses read only records that were written after
    this object was created.
    """

    def __init__(self, program: LoadedProgram, kafka: EmbeddedKafka, folder: Path) -> None:
        """Create the topics of an application; the first ``drain`` starts it.

        Args:
            program: the functions and components of the application.
            kafka: a running broker.
            folder: an empty folder, for the checkpoint and the file of the clock.
        """
        self._declared = program.module
        self._functions = program.functions
        self._kafka = kafka
        self._clock = FileClock(folder / "clock")
        self._clock.set(START.timestamp())
        self._settings = Settings.resolve(
            {}, None, checkpoint=folder / "checkpoint", available_now=True, quiet=True
        )
        self._pending: list[dict[str, Any]] = []
        """The records that :meth:`drain` writes before the next run."""
        self._own = f"statefun-test-{uuid4().hex[:12]}"
        self._sent: dict[tuple[str, str], TopicRoute] = {}
        """The routes of messages that :meth:`send` sends, by the typenames of target and value."""
        routes = [
            route for ingress in program.module.connector_ingresses for route in ingress.topics
        ]
        self._substitutes = {
            route.topic: f"{self._own}-other-{number}" for number, route in enumerate(routes)
        }
        """The topics that replace the sources of connectors, by the name of a stream or path of a file."""
        self._create(self._topics())
        self._begin = self._ends()
        """The end offsets that all partitions had when this object was created."""
        self._next_timer: datetime | None = None
        for name in own_modules(program.functions):
            pickle_by_value(sys.modules[name])

    @property
    def now(self) -> datetime:
        """The time of the test's clock, in UTC."""
        return from_epoch_millis(self._clock.now())

    @property
    def module(self) -> Module:
        """The module of the application: its declared ingresses and egresses."""
        return self._declared

    def send(
        self,
        typename: str,
        id: str,  # noqa: A002 - as addresses have it
        value: Any,
        value_type: Type[Any] | None = None,
    ) -> None:
        """Send a value to an address, through a topic that only this test uses; ``drain`` delivers it."""
        function = self._functions.for_typename(checked_function(typename))
        target = Address(typename, id)
        argument = argument_of(target, value, value_type)
        if not function.takes(argument.typename):
            raise DefinitionError(
                f"no handler of function {typename} takes values of type {argument.typename}, so Spark "
                "cannot deliver this message; send a value of another type, or test this without Spark"
            )
        kinds = (typename, argument.typename)
        if kinds not in self._sent:
            topic = f"{self._own}-{len(self._sent)}"
            self._create([topic])
            self._sent[kinds] = TopicRoute(
                topic, TypeName.parse(argument.typename), (TypeName.parse(typename),), _nowhere()
            )
        self._write(self._sent[kinds].topic, id.encode(), argument.value, ())

    def produce(  # noqa: PLR0913 - the parts of a record
        self,
        topic: str,
        key: Content,
        value: Content,
        *,
        headers: Mapping[str, Content] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> None:
        """Write a record to a topic that an ingress reads; ``drain`` processes it."""
        written = written_record(key, value, headers, timestamp, partition)
        topics = {
            self._topic_of(route, topic)
            for ingress in self._declared.routed
            if (route := route_in(ingress, topic)) is not None
        }
        if not topics:
            raise not_read(self._declared, topic)
        for each in topics:
            self._write(each, written.key, written.value, written.headers)
            if written.timestamp is not None:
                self._pending[-1]["timestamp"] = to_epoch_millis(written.timestamp)
            if written.partition is not None:
                self._pending[-1]["partition"] = written.partition

    def _write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        record = {
            "topic": topic,
            "value": value,
            "key": key,
            "headers": list(headers),
            "timestamp": self._clock.now(),
        }
        self._pending.append(record)

    def drain(self) -> None:
        """Run the application until it has processed all records and messages that are waiting."""
        self._write_all()
        application = Application(self._module(), self._functions, self._settings, self._clock)
        self._next_timer = application.run().next_timer

    def _write_all(self) -> None:
        """Write the pending records to their topics, and wait until the broker has confirmed them."""
        refused: list[str] = []

        def delivered(error: ClientError | None, record: ClientRecord) -> None:
            if error is not None:
                refused.append(f"topic {record.topic()}: {error.str()}")

        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers, "linger.ms": 5})
        for record in self._pending:
            producer.produce(**record, on_delivery=delivered)
        if producer.flush(_PATIENCE.total_seconds()):
            raise TimeoutError(
                f"the embedded broker has not confirmed the records of the test within {_PATIENCE}"
            )
        if refused:
            raise KafkaError(
                f"the embedded broker refuses {len(refused)} of the test's records, the first for {refused[0]}"
            )
        self._pending.clear()

    @property
    def next_timer(self) -> datetime | None:
        """About when the next timer of the clock is due, as of the last ``drain``; None if no such timer waits."""
        return self._next_timer

    @property
    def watermark(self) -> datetime | None:
        """The watermark after the last ``drain``, in UTC; None if there is none."""
        log = CommitLog(self._settings.checkpoint)
        event = feedback_offset(log, log.newest()).event
        if event is None or event.watermark is None:
            return None
        return from_epoch_millis(event.watermark)

    def _set_time(self, now: datetime) -> None:
        self._clock.set(now.timestamp())

    def egress(self, topic: str) -> list[PublishedRecord]:
        """Return the records that were published to a topic so far, sorted by partition and offset."""
        consumer = self._consumer()
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions or {}
        finally:
            consumer.close()
        begins = {
            number: self._begin.get(TopicPartition(topic, number), OFFSET_BEGINNING)
            for number in partitions
        }
        ranges = {(topic, number): (begin, None) for number, begin in begins.items()}
        address = self._kafka.bootstrap_servers
        records = list(read_committed(_OWNER, address, {}, ranges, _PATIENCE))
        records.sort(key=lambda record: (record.partition() or 0, record.offset() or 0))
        return [PublishedRecord.of(_egress_record(topic, each)) for each in records]

    def state(self, address: Address) -> dict[str, Any]:
        """Return the stored values of an address, decoded, by their names."""
        address = checked_address("the argument of state", address)
        session = open_session(debug=False, state_partitions=None)
        function = self._functions.find(address.typename)  # None: it may be behind an endpoint
        specs = function.specs if function else {}
        with stored_state(session, Folder.at(self._settings.checkpoint.location)) as state:
            stored_name = self._functions.stored_name(address.typename)
            values = state.at(Address(stored_name, address.id), self._clock)
        return {
            name: specs[name].type.decode(*value) if name in specs else content(value)
            for name, value in sorted(values.items())
        }

    def _module(self) -> Module:
        """Return the declared module, with its ingresses and Kafka egresses changed to use the embedded broker."""
        address = self._kafka.bootstrap_servers
        ingresses = [
            attrs.evolve(
                ingress,
                address=address,
                properties={},
                startup_position=FromSpecificOffsets(
                    {place: end for place, end in self._begin.items() if _reads(ingress, place)}
                ),
                auto_offset_reset=AutoOffsetReset.EARLIEST,
                consumer_group_id=ingress.consumer_group_id or self._own,
                commit_offsets=False,
            )
            for ingress in self._declared.ingresses
        ]
        for other in self._declared.connector_ingresses:
            routes = [
                attrs.evolve(each, topic=self._substitutes[each.topic]) for each in other.topics
            ]
            ingresses.append(
                attrs.evolve(
                    self._own_ingress(other.id, routes), failure_policy=other.failure_policy
                )
            )
        if self._sent:
            own = TypeName("io.statefun.testing", "sent")
            ingresses.append(self._own_ingress(own, self._sent.values()))
        egresses = [
            attrs.evolve(
                egress,
                address=address,
                properties={},
                replay_topic=egress.replay_topic and f"{self._own}-replays",
            )
            for egress in self._declared.egresses
        ]
        return attrs.evolve(
            self._declared,
            ingresses=tuple(ingresses),
            egresses=tuple(egresses),
            connector_ingresses=(),
        )

    def _own_ingress(self, id_: TypeName, routes: Iterable[TopicRoute]) -> KafkaIngress:
        """Return an ingress that reads ``routes`` from the embedded broker; only the test writes to their topics."""
        return KafkaIngress(
            id_,
            self._kafka.bootstrap_servers,
            tuple(routes),
            _nowhere(),
            consumer_group_id=self._own,
            startup_position=FromSpecificOffsets({}),
            auto_offset_reset=AutoOffsetReset.EARLIEST,
            commit_offsets=False,
        )

    def _topic_of(self, route: TopicRoute, topic: str) -> str:
        """Return the topic of the embedded broker to which a test's record for ``route`` is written.

        The result is ``topic``; for a route of a connector, the topic that replaces its stream or file.
        """
        return self._substitutes.get(route.topic, topic)

    def _topics(self) -> Iterable[str]:
        """Yield the topics that the application needs; topics that only a pattern matches are left out."""
        for ingress in self._declared.ingresses:
            for route in ingress.topics:
                if not route.is_pattern:
                    yield route.topic
        yield from self._substitutes.values()
        for egress in self._declared.egresses:
            if egress.dead_letter_topic is not None:
                yield egress.dead_letter_topic
            if egress.replay_topic is not None:
                yield f"{self._own}-replays"

    def _create(self, topics: Iterable[str]) -> None:
        consumer = self._consumer()
        try:
            existing_topics = set(consumer.list_topics(timeout=30).topics)
        finally:
            consumer.close()
        for topic in sorted({*topics} - existing_topics):
            self._kafka.create_topic(topic)

    def _ends(self) -> dict[TopicPartition, int]:
        consumer = self._consumer()
        try:
            return {
                TopicPartition(name, number): consumer.get_watermark_offsets(
                    Place(name, number), timeout=30
                )[1]
                for name, topic in consumer.list_topics(timeout=30).topics.items()
                if not name.startswith("_")
                for number in topic.partitions or {}
            }
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self._kafka.bootstrap_servers, "group.id": self._own})


def _reads(ingress: KafkaIngress, place: TopicPartition) -> bool:
    return route_of(ingress.topics, place.topic) is not None


def _nowhere() -> Location:
    return Location("the test", 1, 1)


def _egress_record(topic: str, record: Any) -> EgressRecord:
    key, value = record.key(), record.value()
    return EgressRecord(
        topic,
        key.encode() if isinstance(key, str) else key,
        value.encode() if isinstance(value, str) else value,
        record.headers() or [],
    )
