# SPDX-License-Identifier: Apache-2.0
"""Routes of topics: targets, and how keys and values are decoded and transformed."""

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
    """Makes the values of messages from records."""

    name: str
    """The name of the deserializer in error texts."""
    read: Callable[[KafkaRecord], Any]
    """A function that returns the value of a record, or None to leave the record out."""
    value_type: Type[Any]
    """The type of the values that the deserializer returns."""
    takes_tombstones: bool = False
    """Whether the deserializer also reads records without a value (tombstones)."""
    read_content: Callable[[bytes], Any] | None = None
    """A function that does the same as ``read``, and needs only the bytes of a record's value; it always ends soon.

    None if there is none: records with all of their parts take longer to make."""


@attrs.frozen
class JsonValues:
    """The format of values that are JSON documents in UTF-8."""

    have_schemas: bool = False
    """Whether documents are objects with schema and payload, as with Kafka Connect's ``schemas.enable``."""


@attrs.frozen
class ProtobufValues:
    """The format of values that are Protobuf messages, which a descriptor set of ``protoc`` describes."""

    descriptor_set: bytes = attrs.field(repr=lambda content: f"{len(content)} bytes")
    message: str


@attrs.frozen
class AvroValues:
    """The format of values in Avro's binary encoding, with one schema for all values."""

    schema: str


def names_only(properties: Mapping[str, str]) -> str:
    """Return a repr of properties without their values, which may contain passwords."""
    return repr(dict.fromkeys(properties, "..."))


@attrs.frozen
class RegistryValues:
    """The format of values in Avro or JSON whose schemas are in a schema registry."""

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
    """The name of a topic, or a regular expression that matches whole names of topics."""
    value_type: TypeName
    targets: tuple[TypeName, ...]
    location: Location
    failure_policy: OnFailure | None = None
    """The policy for records that no function can receive; None: the ingress's policy."""
    is_pattern: bool = False
    partitions: tuple[int, ...] = ()
    """The partitions to read; if empty, all partitions are read, also partitions added later."""
    deserializer: Deserializer | None = None
    """The deserializer that makes the values of messages; None: a message has the value of its record."""
    value_format: ValueFormat | None = None
    """The format that defines the value type; None: the type is registered in Python."""
    key_type: TypeName | None = None
    """The type that decodes keys to ids of addresses; None: a key is UTF-8 text and becomes the id."""
    chain: Chain | None = None
    """The transforms of the records; the deserializer applies the transforms of values."""
    alias: str = ""
    """The topic's name in the module file, if it differs from ``topic``, such as a relative path."""
    delivers_tombstones: bool = False
    """Whether records without a value (tombstones) become messages without a value."""

    @property
    def takes_tombstones(self) -> bool:
        """Whether functions can receive records without a value."""
        reads_them = self.deserializer is not None and self.deserializer.takes_tombstones
        return reads_them or self.delivers_tombstones

    @property
    def changes_key(self) -> bool:
        """Whether the chain changes the keys of records."""
        return self.chain is not None and self.chain.changes_key

    def takes(self, topic: str) -> bool:
        """Return whether the route is for the records of a topic."""
        return _is_named(topic, self.topic, is_pattern=self.is_pattern)

    def read_by(self, deserializer: Deserializer) -> TopicRoute:
        """Return a copy of the route with a deserializer, which defines the type of the values.

        The copy has no value format. The route may have a value format only for transforms that make keys
        from values.

        Raises:
            DefinitionError: if transforms change values, or if no transform of keys needs the value format.
        """
        is_format_for_keys = self.chain is not None and self.chain.reads_value
        has_own_values = self.value_format is not None and not is_format_for_keys
        if self.deserializer is not None or has_own_values:
            raise DefinitionError(
                f"topic {self.topic}: the deserializer of the ingress decodes the values, so that "
                "the topic can have neither transforms of values, nor a valueFormat that no "
                "transform of keys reads; remove them, or remove the deserializer"
            )
        return attrs.evolve(self, deserializer=deserializer, value_format=None)


@attrs.frozen
class TransformedTopic:
    """The transforms of an egress for a topic, or for all topics that a pattern matches."""

    topic: str
    """The name of a topic, or a regular expression that matches whole names of topics."""
    chain: Chain | None
    """The transforms; None: records are not changed."""
    is_pattern: bool = False

    def takes(self, topic: str) -> bool:
        """Return whether these transforms apply to the records of a topic."""
        return _is_named(topic, self.topic, is_pattern=self.is_pattern)


def _is_named(topic: str, name: str, *, is_pattern: bool) -> bool:
    return re.fullmatch(name, topic) is not None if is_pattern else topic == name


class _TakesTopics(Protocol):
    @property
    def is_pattern(self) -> bool: ...

    def takes(self, topic: str) -> bool: ...


R = TypeVar("R", bound=_TakesTopics)


def route_of(routes: Iterable[R], topic: str) -> R | None:
    """Return the route of a topic: a route with its name, or else the first route whose pattern matches.

    None is returned if no route is for the topic.

    >>> here = Location("module.yaml", 1, 1)
    >>> pattern = TopicRoute("user.*", TypeName("example", "A"), (), here, is_pattern=True)
    >>> name = TopicRoute("users", TypeName("example", "B"), (), here)
    >>> [route_of([pattern, name], topic) == route for topic, route in
    ...  (("users", name), ("user-2", pattern), ("orders", None))]
    [True, True, True]
    """
    matches = [route for route in routes if route.takes(topic)]
    return min(matches, key=lambda route: route.is_pattern, default=None)
