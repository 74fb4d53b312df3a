# SPDX-License-Identifier: Apache-2.0
"""Builders that declare Kafka ingresses and egresses in Python, with or without a module file.

A builder collects keys of a module file and passes them to the readers of module files: keys, checks
and error texts are the same, and error texts give the location of the call of ``for_id``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import attrs

from statefun.module import model
from statefun.module.component_builder import ComponentBuilder, caller
from statefun.module.kinds.kafka_egress import read_kafka_egress
from statefun.module.kinds.kafka_ingress import read_kafka_ingress
from statefun.module.location import Location
from statefun.module.topic_routes import Deserializer
from statefun.module.yaml.components import Component
from statefun.module.yaml.problems import Problems
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.failure import OnFailure
from statefun.sdk.record import KafkaRecord
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import Type

C = TypeVar("C")


class KafkaStartupPosition:
    """The position at which an ingress starts to read on a fresh checkpoint.

    >>> KafkaStartupPosition.from_specific_offsets({("users", 0): 123})
    KafkaStartupPosition({'type': 'specific-offsets', 'offsets': {'users/0': 123}})
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        """The position, as the mapping that a module file would have."""

    @classmethod
    def from_group_offsets(cls) -> KafkaStartupPosition:
        """Start at the offsets that the consumer group has committed."""
        return cls({"type": "group-offsets"})

    @classmethod
    def from_earliest(cls) -> KafkaStartupPosition:
        """Start at the earliest offset of every partition."""
        return cls({"type": "earliest"})

    @classmethod
    def from_latest(cls) -> KafkaStartupPosition:
        """Start after the last record of every partition."""
        return cls({"type": "latest"})

    @classmethod
    def from_specific_offsets(cls, offsets: Mapping[tuple[str, int], int]) -> KafkaStartupPosition:
        """Start at given offsets by topic and partition; other partitions start at committed offsets."""
        named = {f"{topic}/{partition}": offset for (topic, partition), offset in offsets.items()}
        return cls({"type": "specific-offsets", "offsets": named})

    @classmethod
    def from_date(cls, date: datetime) -> KafkaStartupPosition:
        """Start at the first record whose timestamp is at or after ``date``, which must have a time zone."""
        return cls({"type": "date", "date": date.isoformat()})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec})"


class KafkaIngressBuilder(ComponentBuilder):
    """Collects the settings of a Kafka ingress; every method returns the builder itself.

    >>> builder = KafkaIngress.for_id("com.example/users").with_kafka_address("localhost:9092")
    >>> builder = builder.with_consumer_group_id("greeter")
    >>> builder.with_topic("users", value_type="a/User", targets=["a/b"]).build().address
    'localhost:9092'
    """

    def __init__(self, id_: str, location: Location) -> None:
        super().__init__(id_, location)
        self._deserializer: tuple[Callable[[KafkaRecord], Any], Type[Any]] | None = None

    def with_kafka_address(self, address: str) -> KafkaIngressBuilder:
        """Set the brokers that clients connect to first, as comma-separated ``host:port``."""
        return self._with(address=address)

    def with_consumer_group_id(self, group: str) -> KafkaIngressBuilder:
        """Set the consumer group that offsets are committed to."""
        return self._with(consumerGroupId=group)

    def with_topic(
        self,
        topic: str,
        *,
        targets: Sequence[str],
        value_type: Type[Any] | str | None = None,
        **keys: Any,
    ) -> KafkaIngressBuilder:
        """Add a topic.

        Args:
            topic: the name of the topic.
            targets: the functions that get every record, each ``namespace/name``.
            value_type: the type of the topic's values; leave the type out if the ingress has a
                deserializer, which has a type.
            keys: further keys of an entry of ``topics`` in a module file, such as
                ``partitions=[0]``.
        """
        return self._route("topic", topic, targets, value_type, keys)

    def with_topic_pattern(
        self,
        pattern: str,
        *,
        targets: Sequence[str],
        value_type: Type[Any] | str | None = None,
        **keys: Any,
    ) -> KafkaIngressBuilder:
        """Add all topics whose whole names a regular expression matches, also topics created later.

        Args:
            pattern: the regular expression.
            targets: as for :meth:`with_topic`.
            value_type: as for :meth:`with_topic`.
            keys: as for :meth:`with_topic`.
        """
        return self._route("topicPattern", pattern, targets, value_type, keys)

    def with_deserializer(
        self, deserializer: Callable[[KafkaRecord], Any], value_type: Type[Any]
    ) -> KafkaIngressBuilder:
        """Set a function that makes the values of messages from records.

        The deserializer runs in Spark's Python workers, as functions do. If the deserializer raises an
        exception, the failure policy decides what happens to the record. The deserializer also gets
        records without a value (tombstones).

        Args:
            deserializer: a function that returns the value of a record, or None to leave the record
                out.
            value_type: the type of the values that the deserializer returns.
        """
        self._deserializer = (deserializer, value_type)
        return self

    def with_startup_position(self, position: KafkaStartupPosition) -> KafkaIngressBuilder:
        """Set the position at which reading starts on a fresh checkpoint."""
        return self._with(startupPosition=position.spec)

    def with_stop_position(self, position: KafkaStartupPosition) -> KafkaIngressBuilder:
        """Set where reading stops: before the record at which a start at this position would begin."""
        return self._with(stopPosition=position.spec)

    def with_bootstrap_from(self, *ingresses: str) -> KafkaIngressBuilder:
        """Let other ingresses, such as those of tables, be read to their present ends before this one is read."""
        return self._with(bootstrapFrom=list(ingresses))

    def with_event_time(  # noqa: PLR0913 - the keys of eventTime
        self,
        *,
        field: str | None = None,
        out_of_order: timedelta | None = None,
        idle: timedelta | None = None,
        max_future: timedelta | None = None,
        max_hold: timedelta | None = None,
        when_all_idle: str | None = None,
    ) -> KafkaIngressBuilder:
        """Give the records event times, which move the watermark, as the key ``eventTime`` of a module file does.

        Args:
            field: the field of the value that has the event time; if not given, the record's timestamp.
            out_of_order: by how much a record may be older than the newest one of its partition.
            idle: for how long a partition must have no unread record before the watermark stops waiting for it.
            max_future: how far a record may be ahead of the clock and still move the watermark.
            max_hold: how long messages between functions can keep the watermark from rising.
            when_all_idle: while all partitions are idle, ``hold`` keeps the watermark at the time of the newest
                partition; ``follow`` lets it rise from there with the clock.
        """
        durations = {
            "outOfOrder": out_of_order,
            "idle": idle,
            "maxFuture": max_future,
            "maxHold": max_hold,
        }
        settings: dict[str, Any] = {
            name: f"{in_milliseconds(each)}ms"
            for name, each in durations.items()
            if each is not None
        }
        if field is not None:
            settings["field"] = field
        if when_all_idle is not None:
            settings["whenAllIdle"] = when_all_idle
        return self._with(eventTime=settings)

    def with_auto_offset_reset_position(
        self, position: model.AutoOffsetReset | str
    ) -> KafkaIngressBuilder:
        """Set where reading starts if an offset is missing or out of range; the default is latest."""
        return self._with(autoOffsetResetPosition=position)

    def with_failure_policy(self, policy: OnFailure) -> KafkaIngressBuilder:
        """Set the policy for records that no function can receive."""
        return self._with(failurePolicy=policy)

    def with_properties(self, properties: Mapping[str, Any]) -> KafkaIngressBuilder:
        """Add properties of the Kafka consumer, by Kafka's names; settings of other methods have priority."""
        self._add_properties(properties)
        return self

    def with_option(self, key: str, value: Any) -> KafkaIngressBuilder:
        """Set any other key of an ingress in a module file, such as ``onDataLoss``."""
        return self._with(**{key: value})

    def build(self) -> KafkaIngress:
        """Return the ingress, for :func:`statefun.run`.

        Raises:
            ModuleError: if a setting is missing or wrong; the error lists all problems.
            DefinitionError: if the deserializer is not a function, or its ``value_type`` is not a
                Type, or if a topic also has a ``valueFormat`` or transforms that decode values.
        """
        ingress = self._read("io.statefun.kafka.v1/ingress", read_kafka_ingress)
        if self._deserializer is None:
            return KafkaIngress(**attrs.asdict(ingress, recurse=False))
        read, value_type = self._deserializer
        if not callable(read) or not isinstance(value_type, Type):
            raise DefinitionError(
                f"{ingress.label}: a deserializer must be a function with the Type of its values, "
                f"not {read!r} with {value_type!r}"
            )
        deserializer = Deserializer(str(ingress.id), read, value_type, takes_tombstones=True)
        topics = tuple(route.read_by(deserializer) for route in ingress.topics)
        return KafkaIngress(**attrs.asdict(ingress, recurse=False) | {"topics": topics})

    def _route(
        self,
        key: str,
        topic: str,
        targets: Sequence[str],
        value_type: Type[Any] | str | None,
        keys: Mapping[str, Any],
    ) -> KafkaIngressBuilder:
        route = {key: topic, "targets": list(targets), **keys}
        if value_type is not None:
            route["valueType"] = value_type
        self._spec.setdefault("topics", []).append(route)
        return self

    def _with(self, **keys: Any) -> KafkaIngressBuilder:
        self._spec |= keys
        return self

    def _read(self, kind: str, read: Callable[[Component, Problems], C]) -> C:
        if self._deserializer is not None:
            for route in self._spec.get("topics", ()):
                if route.get("valueFormat") != {"type": "text"}:  # which must not have a valueType
                    route.setdefault("valueType", self._deserializer[1])
        return super()._read(kind, read)


class KafkaEgressBuilder(ComponentBuilder):
    """Collects the settings of a Kafka egress; every method returns the builder itself.

    >>> builder = KafkaEgress.for_id("com.example/out").with_kafka_address("localhost:9092")
    >>> builder.with_option("deadLetterTopic", "dead").build().dead_letter_topic
    'dead'
    """

    def __init__(self, id_: str, location: Location) -> None:
        super().__init__(id_, location)
        self._serializer: Callable[[Any], KafkaEgressMessage | None] | None = None

    def with_kafka_address(self, address: str) -> KafkaEgressBuilder:
        """Set the brokers that clients connect to first, as comma-separated ``host:port``."""
        return self._with(address=address)

    def with_serializer(
        self, serializer: Callable[[Any], KafkaEgressMessage | None]
    ) -> KafkaEgressBuilder:
        """Set a function that makes records from the values that functions send.

        Functions send values with ``egress_message_builder``, which calls the serializer; an
        exception of the serializer is a failure of the function. A value that is
        already a ``KafkaEgressMessage`` is sent without the serializer.

        Args:
            serializer: a function that returns the record of a value, or None to send nothing.
        """
        self._serializer = serializer
        return self

    def with_no_producer_semantics(self) -> KafkaEgressBuilder:
        """Use the delivery semantic ``none``: records can be lost or written twice."""
        return self._with(deliverySemantic={"type": "none"})

    def with_at_least_once_producer_semantics(self) -> KafkaEgressBuilder:
        """Write each record at least once; this is the default."""
        return self._with(deliverySemantic={"type": "at-least-once"})

    def with_exactly_once_producer_semantics(
        self, transaction_timeout: timedelta
    ) -> KafkaEgressBuilder:
        """Write each record exactly once, with Kafka's transactions.

        Args:
            transaction_timeout: how long a transaction may stay open.
        """
        millis = in_milliseconds(transaction_timeout)
        return self._with(
            deliverySemantic={"type": "exactly-once", "transactionTimeoutMillis": millis}
        )

    def with_properties(self, properties: Mapping[str, Any]) -> KafkaEgressBuilder:
        """Add properties of the Kafka producer, by Kafka's names; settings of other methods have priority."""
        self._add_properties(properties)
        return self

    def with_option(self, key: str, value: Any) -> KafkaEgressBuilder:
        """Set a key that has no method here, by its name in module files, such as ``deadLetterTopic``."""
        return self._with(**{key: value})

    def build(self) -> KafkaEgress:
        """Return the egress, for :func:`statefun.run`.

        Raises:
            ModuleError: if a setting is missing or wrong; the error lists all problems.
            DefinitionError: if the serializer is not a function.
        """
        egress = self._read("io.statefun.kafka.v1/egress", read_kafka_egress)
        if not (self._serializer is None or callable(self._serializer)):
            raise DefinitionError(
                f"{egress.label}: a serializer must be a function, not {self._serializer!r}"
            )
        parts = attrs.asdict(egress, recurse=False)
        return KafkaEgress(**parts | {"serializer": self._serializer})

    def _with(self, **keys: Any) -> KafkaEgressBuilder:
        self._spec |= keys
        return self


@attrs.frozen
class KafkaIngress(model.KafkaIngress):
    """A Kafka ingress; :meth:`for_id` begins its declaration in Python.

    >>> ingress = (
    ...     KafkaIngress.for_id("com.example/users")
    ...     .with_kafka_address("localhost:9092")
    ...     .with_consumer_group_id("greetings")
    ...     .with_topic("users", targets=["com.example.fns/greeter"], value_type="com.example/User")
    ...     .with_startup_position(KafkaStartupPosition.from_latest())
    ...     .build()
    ... )
    >>> ingress.topics[0].topic
    'users'
    """

    @staticmethod
    def for_id(id_: str) -> KafkaIngressBuilder:
        """Return the builder of an ingress with this id, ``namespace/name``."""
        return KafkaIngressBuilder(id_, caller())


@attrs.frozen
class KafkaEgress(model.KafkaEgress):
    """A Kafka egress; :meth:`for_id` begins its declaration in Python.

    >>> egress = (
    ...     KafkaEgress.for_id("com.example/greetings")
    ...     .with_kafka_address("localhost:9092")
    ...     .with_exactly_once_producer_semantics(timedelta(minutes=15))
    ...     .build()
    ... )
    >>> egress.delivery_semantic
    <DeliverySemantic.EXACTLY_ONCE: 'exactly-once'>
    """

    @staticmethod
    def for_id(id_: str) -> KafkaEgressBuilder:
        """Return the builder of an egress with this id, ``namespace/name``."""
        return KafkaEgressBuilder(id_, caller())
