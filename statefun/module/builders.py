# SPDX-License-Identifier: Apache-2.0
"""Builders that declare ingresses and egresses in Python, beside a module file or in its place.

A builder collects the keys of a module file and passes them to the same readers: keys, checks
and messages are the same, and messages give the location of the call of ``for_id``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

import attrs

from statefun.module import model
from statefun.module.kinds.kafka_egress import read_kafka_egress
from statefun.module.kinds.kafka_ingress import read_kafka_ingress
from statefun.module.location import Location
from statefun.module.topic_routes import Deserializer
from statefun.module.yaml.components import Component
from statefun.module.yaml.nodes import Entry, ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.errors import DefinitionError, ModuleError
from statefun.sdk.failure import OnFailure
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import Type

C = TypeVar("C")


class KafkaStartupPosition:
    """Where an ingress starts to read, on a fresh checkpoint.

    >>> KafkaStartupPosition.from_specific_offsets({("users", 0): 123})
    KafkaStartupPosition({'type': 'specific-offsets', 'offsets': {'users/0': 123}})
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        """As a module file has it."""

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
        """Start behind the last record of every partition."""
        return cls({"type": "latest"})

    @classmethod
    def from_specific_offsets(cls, offsets: Mapping[tuple[str, int], int]) -> KafkaStartupPosition:
        """Start at given offsets by topic and partition; the others at the group's offsets."""
        named = {f"{topic}/{partition}": offset for (topic, partition), offset in offsets.items()}
        return cls({"type": "specific-offsets", "offsets": named})

    @classmethod
    def from_date(cls, date: datetime) -> KafkaStartupPosition:
        """Start at the first record whose timestamp is at or after ``date``, with a time zone."""
        return cls({"type": "date", "date": date.isoformat()})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec})"


class _Builder:
    """Collects the keys of a component."""

    def __init__(self, id_: str, location: Location) -> None:
        self._location = location
        self._spec: dict[str, Any] = {"id": id_}

    def _read(self, kind: str, read: Callable[[Component, Problems], C]) -> C:
        problems = Problems()
        spec = _node(self._spec, self._location, "spec")
        try:
            component = read(Component(kind, spec, self._location), problems)
        except Invalid:
            raise self._refused(problems) from None
        if problems.in_file_order([self._location.file]):
            raise self._refused(problems)
        return component

    def _refused(self, problems: Problems) -> ModuleError:
        return ModuleError(problems.in_file_order([self._location.file]))

    def _properties(self, properties: Mapping[str, Any]) -> None:
        self._spec.setdefault("properties", {}).update(properties)


class KafkaIngressBuilder(_Builder):
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
        """Set the brokers to start from, comma-separated ``host:port``."""
        return self._with(address=address)

    def with_consumer_group_id(self, group: str) -> KafkaIngressBuilder:
        """Set the consumer group that gets the committed offsets."""
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
            topic: its name.
            targets: the functions that get every record, ``namespace/name`` each.
            value_type: the type of its values; not with a deserializer, which has its own.
            keys: further keys that ``topics`` of a module file takes, such as ``partitions=[0]``.
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
        """Add all topics, also later ones, that a regular expression matches by their whole names.

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
        """Let a function make the values of messages out of records.

        It runs beside the functions, in Spark's Python workers. A record on which it raises is
        handled as the failure policy says; it gets tombstones as well.

        Args:
            deserializer: returns the value of a record, or None to leave the record out.
            value_type: the type of these values.
        """
        self._deserializer = (deserializer, value_type)
        return self

    def with_startup_position(self, position: KafkaStartupPosition) -> KafkaIngressBuilder:
        """Set where to start on a fresh checkpoint."""
        return self._with(startupPosition=position.spec)

    def with_stop_position(self, position: KafkaStartupPosition) -> KafkaIngressBuilder:
        """Set where to stop: where reading would begin with the same startup position."""
        return self._with(stopPosition=position.spec)

    def with_auto_offset_reset_position(
        self, position: model.AutoOffsetReset | str
    ) -> KafkaIngressBuilder:
        """Set where to start when an offset is missing or out of range; latest if not set."""
        return self._with(autoOffsetResetPosition=position)

    def with_failure_policy(self, policy: OnFailure) -> KafkaIngressBuilder:
        """Set the policy for records that no function can receive."""
        return self._with(failurePolicy=policy)

    def with_properties(self, properties: Mapping[str, Any]) -> KafkaIngressBuilder:
        """Add Kafka consumer properties, in Kafka's names; the other methods go before them."""
        self._properties(properties)
        return self

    def with_option(self, key: str, value: Any) -> KafkaIngressBuilder:
        """Set any other key that an ingress has in a module file, such as ``onDataLoss``."""
        return self._with(**{key: value})

    def build(self) -> KafkaIngress:
        """Return the ingress, for :func:`statefun.run`.

        Raises:
            ModuleError: with everything that is missing or wrong.
            DefinitionError: if the deserializer is no function, or has no type.
        """
        ingress = self._read("io.statefun.kafka.v1/ingress", read_kafka_ingress)
        if self._deserializer is None:
            return KafkaIngress(**attrs.asdict(ingress, recurse=False))
        read, value_type = self._deserializer
        if not callable(read) or not isinstance(value_type, Type):
            raise DefinitionError(
                f"{ingress.label}: a deserializer is a function with the Type of what it "
                f"returns, not {read!r} with {value_type!r}"
            )
        made = Deserializer(str(ingress.id), read, value_type, takes_tombstones=True)
        topics = tuple(route.read_by(made) for route in ingress.topics)
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
                route.setdefault("valueType", self._deserializer[1])
        return super()._read(kind, read)


class KafkaEgressBuilder(_Builder):
    """Collects the settings of a Kafka egress; every method returns the builder itself.

    >>> builder = KafkaEgress.for_id("com.example/out").with_kafka_address("localhost:9092")
    >>> builder.with_option("deadLetterTopic", "dead").build().dead_letter_topic
    'dead'
    """

    def __init__(self, id_: str, location: Location) -> None:
        super().__init__(id_, location)
        self._serializer: Callable[[Any], KafkaEgressMessage | None] | None = None

    def with_kafka_address(self, address: str) -> KafkaEgressBuilder:
        """Set the brokers to start from, comma-separated ``host:port``."""
        return self._with(address=address)

    def with_serializer(
        self, serializer: Callable[[Any], KafkaEgressMessage | None]
    ) -> KafkaEgressBuilder:
        """Let a function make records of the values that functions send.

        Functions send values by ``egress_message_builder``, which calls the serializer: its
        exceptions are failures of the function. A value that is a record already is taken as it is.

        Args:
            serializer: returns the record of a value, or None to send nothing.
        """
        self._serializer = serializer
        return self

    def with_no_producer_semantics(self) -> KafkaEgressBuilder:
        """Promise nothing: records can be lost and come twice."""
        return self._with(deliverySemantic={"type": "none"})

    def with_at_least_once_producer_semantics(self) -> KafkaEgressBuilder:
        """Lose no record; the default."""
        return self._with(deliverySemantic={"type": "at-least-once"})

    def with_exactly_once_producer_semantics(
        self, transaction_timeout: timedelta
    ) -> KafkaEgressBuilder:
        """Lose no record and write none twice, by Kafka's transactions.

        Args:
            transaction_timeout: how long one may stay open.
        """
        millis = round(transaction_timeout / timedelta(milliseconds=1))
        return self._with(
            deliverySemantic={"type": "exactly-once", "transactionTimeoutMillis": millis}
        )

    def with_properties(self, properties: Mapping[str, Any]) -> KafkaEgressBuilder:
        """Add Kafka producer properties, in Kafka's names; the other methods go before them."""
        self._properties(properties)
        return self

    def with_option(self, key: str, value: Any) -> KafkaEgressBuilder:
        """Set any other key that an egress has in a module file, such as ``deadLetterTopic``."""
        return self._with(**{key: value})

    def build(self) -> KafkaEgress:
        """Return the egress, for :func:`statefun.run`.

        Raises:
            ModuleError: with everything that is missing or wrong.
            DefinitionError: if the serializer is no function.
        """
        egress = self._read("io.statefun.kafka.v1/egress", read_kafka_egress)
        if not (self._serializer is None or callable(self._serializer)):
            raise DefinitionError(
                f"{egress.label}: a serializer is a function, not {self._serializer!r}"
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
        """Begin to declare the ingress of that name, ``namespace/name``."""
        return KafkaIngressBuilder(id_, _caller())


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
        """Begin to declare the egress of that name, ``namespace/name``."""
        return KafkaEgressBuilder(id_, _caller())


def _caller() -> Location:
    """Return where in the user's program a builder is made."""
    frame = sys._getframe(2)  # noqa: SLF001 - the inspect module would read source files for it
    return Location(frame.f_code.co_filename, frame.f_lineno, 1)


def _node(value: Any, location: Location, path: str) -> Node:
    """Convert a value to the nodes that the readers of module files take."""
    if isinstance(value, Mapping):
        entries = [
            Entry(
                ScalarNode(location, f"{path}.{name}", str(name), str(name)),
                _node(item, location, f"{path}.{name}"),
            )
            for name, item in value.items()
        ]
        return MapNode(location, path, tuple(entries))
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [_node(item, location, f"{path}[{n}]") for n, item in enumerate(value)]
        return ListNode(location, path, tuple(items))
    text = _text(value)
    return ScalarNode(location, path, text, text, is_null=value is None)


def _text(value: Any) -> str:
    if isinstance(value, Type):
        return value.typename
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
