# SPDX-License-Identifier: Apache-2.0
"""Which functions get the records of a topic, and what becomes of their keys and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import attrs

from statefun.module.location import Location
from statefun.sdk.address import TypeName
from statefun.sdk.errors import DefinitionError
from statefun.sdk.failure import OnFailure
from statefun.sdk.record import KafkaRecord
from statefun.sdk.types import Type
from statefun.transforms.chain import Chain


@attrs.frozen
class Deserializer:
    """Makes the values of messages out of records."""

    name: str
    """Its name in error texts."""
    read: Callable[[KafkaRecord], Any]
    """Returns the value, or None to leave the record out."""
    value_type: Type[Any]
    """The type of the values that it returns."""
    takes_tombstones: bool = False


@attrs.frozen
class JsonValues:
    """JSON documents in UTF-8."""

    have_schemas: bool = False
    """Whether each is a schema and a payload, as Kafka Connect writes with ``schemas.enable``."""


@attrs.frozen
class ProtobufValues:
    """Protobuf messages, described by a descriptor set of ``protoc``."""

    descriptor_set: bytes = attrs.field(repr=lambda content: f"{len(content)} bytes")
    message: str


@attrs.frozen
class AvroValues:
    """Avro's binary encoding, by a known schema."""

    schema: str


def names_only(properties: Mapping[str, str]) -> str:
    """Return a repr of properties without their values, which may be passwords."""
    return repr(dict.fromkeys(properties, "..."))


@attrs.frozen
class RegistryValues:
    """Avro or JSON, by schemas in a registry."""

    url: str = attrs.field(repr=False)  # it may have a password in it
    schema: str | None
    subject: str | None
    properties: Mapping[str, str] = attrs.field(repr=names_only, hash=False)


ValueFormat = JsonValues | ProtobufValues | AvroValues | RegistryValues
"""Formats that define the type of a topic's values."""


@attrs.frozen
class TopicRoute:
    """The route of the records of a topic, or of all topics that a pattern matches."""

    topic: str
    """A topic's name, or a regular expression for the whole name."""
    value_type: TypeName
    targets: tuple[TypeName, ...]
    location: Location
    failure_policy: OnFailure | None = None
    """The policy for records that no function can receive; None: the ingress's policy."""
    is_pattern: bool = False
    partitions: tuple[int, ...] = ()
    """The partitions to read; if empty, all partitions, also later ones."""
    deserializer: Deserializer | None = None
    """Makes the messages' values; without it, records' values are taken as they are."""
    value_format: ValueFormat | None = None
    """Defines the value type; None if it is defined elsewhere."""
    key_type: TypeName | None = None
    """The type of keys; a key's string form is the id. None for UTF-8 text, which is the id."""
    chain: Chain | None = None
    """Transforms of its records; those of values are the deserializer."""
    alias: str = ""
    """The name that the module file has for it, where that is another one, such as a path."""

    @property
    def changes_key(self) -> bool:
        """Whether transforms change the keys of its records."""
        return self.chain is not None and self.chain.changes_key

    def takes(self, topic: str) -> bool:
        """Return whether the route takes the records of a topic."""
        return _is_named(topic, self.topic, is_pattern=self.is_pattern)

    def read_by(self, deserializer: Deserializer) -> TopicRoute:
        """Return the route with another deserializer.

        Raises:
            DefinitionError: if transforms read its values already.
        """
        if self.chain is not None and self.chain.changes_value:
            raise DefinitionError(
                f"topic {self.topic}: a deserializer and transforms of values exclude each other"
            )
        return attrs.evolve(self, deserializer=deserializer)


@attrs.frozen
class TransformedTopic:
    """The transforms of the records for a topic, or for all topics that a pattern matches."""

    topic: str
    """A topic's name, or a regular expression for the whole name."""
    chain: Chain | None
    """None if they stay as they are."""
    is_pattern: bool = False

    def takes(self, topic: str) -> bool:
        """Return whether the records for a topic are transformed."""
        return _is_named(topic, self.topic, is_pattern=self.is_pattern)


def _is_named(topic: str, name: str, *, is_pattern: bool) -> bool:
    return re.fullmatch(name, topic) is not None if is_pattern else topic == name


class _TakesTopics(Protocol):
    @property
    def is_pattern(self) -> bool: ...

    def takes(self, topic: str) -> bool: ...


R = TypeVar("R", bound=_TakesTopics)


def route_of(routes: Iterable[R], topic: str) -> R | None:
    """Return a topic's route: a name wins over patterns; among patterns, the first one wins.

    >>> here = Location("module.yaml", 1, 1)
    >>> pattern = TopicRoute("user.*", TypeName("example", "A"), (), here, is_pattern=True)
    >>> name = TopicRoute("users", TypeName("example", "B"), (), here)
    >>> [route_of([pattern, name], topic) == route for topic, route in
    ...  (("users", name), ("user-2", pattern), ("orders", None))]
    [True, True, True]
    """
    taking = [route for route in routes if route.takes(topic)]
    return min(taking, key=lambda route: route.is_pattern, default=None)
