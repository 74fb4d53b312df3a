# SPDX-License-Identifier: Apache-2.0
"""The interface of transforms, and the record that transforms change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol

import attrs

from statefun.transforms.data import Data, Schema


class Part(Enum):
    """A part of a record that a transform can change: key, value or topic."""

    KEY = "Key"
    VALUE = "Value"
    TOPIC = "Topic"

    __hash__ = object.__hash__  # that of Enum is a slow Python function


class Traits(NamedTuple):
    """The properties of a transform that decide when it has to be applied."""

    writes: Part
    """The part that the transform changes."""
    reads: frozenset[Part]
    """The parts of the record (key, value, topic) from which the transform computes the changed part."""
    reads_time: bool = False
    """Whether the transform computes the changed part also from the record's time."""
    reads_offset: bool = False
    """Whether the transform needs the record's offset, which a record of an egress does not have."""
    takes_null: bool = False
    """Whether the transform can replace null by a key or value that is not null."""


@attrs.define
class Record:
    """A decoded record, which the transforms of a chain change in place, one after another."""

    topic: str
    partition: int | None
    offset: int | None
    timestamp: int | None
    """The record's time in milliseconds since the epoch."""
    key: Data
    value: Data


class Transform(ABC):
    """A single-message transform of Kafka Connect, which changes records.

    Raises:
        TransformError: all methods raise it if the transform fails on a record or a schema.
    """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """The properties of the transform that decide when it has to be applied."""

    @abstractmethod
    def apply(self, record: Record) -> None:
        """Change a record in place."""

    @abstractmethod
    def check(self, schemas: Schemas) -> None:
        """Replace the schemas before the transform by the schemas after the transform.

        Raises:
            TransformError: if the transform fails on all records with these schemas.
        """


@attrs.define
class Schemas:
    """The schemas of keys and values, as far as they are known before any record is read."""

    key: Schema | None
    value: Schema | None
    without: frozenset[Part]
    """The parts that never have a schema; other parts can have a schema that is not known yet."""

    def of(self, part: Part) -> Schema | None:
        """Return the schema of the key or value; None if it is not known."""
        return self.key if part is Part.KEY else self.value


@attrs.frozen(cache_hash=True)
class PartTransform(Transform):
    """A transform that changes the key or the value of a record, as ``part`` says."""

    part: Part

    @property
    def traits(self) -> Traits:
        """The traits: the transform reads and changes the key or the value, as ``part`` says."""
        return Traits(self.part, frozenset({self.part}))

    @abstractmethod
    def schema(self, schema: Schema) -> Schema:
        """Return the schema that a key or value with ``schema`` has after the transform."""

    @abstractmethod
    def changed(self, data: Data, record: Record) -> Data:
        """Return the key or value after the transform."""

    def apply(self, record: Record) -> None:
        """Change the key or value of a record in place."""
        if self.part is Part.VALUE:
            record.value = self.changed(record.value, record)
        else:
            record.key = self.changed(record.key, record)

    def check(self, schemas: Schemas) -> None:
        """Replace the schema of the key or value by the schema after the transform."""
        schema = schemas.of(self.part)
        if schema is not None:
            setattr(schemas, self.part.name.lower(), self.schema(schema))


class _MakesSchemas(Protocol):
    def schema(self, schema: Schema) -> Schema: ...


@lru_cache(maxsize=256)
def schema_after(transform: _MakesSchemas, schema: Schema) -> Schema:
    """Return the schema that data with ``schema`` has after a transform; results are cached."""
    return transform.schema(schema)
