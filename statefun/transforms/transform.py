# SPDX-License-Identifier: Apache-2.0
"""The record that transforms change, and what a transform is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol

import attrs

from statefun.transforms.data import Data, Schema


class Part(Enum):
    """A part of a record that transforms change."""

    KEY = "Key"
    VALUE = "Value"
    TOPIC = "Topic"

    __hash__ = object.__hash__  # an enumeration's own is Python's, and as slow


class Traits(NamedTuple):
    """The facts about a transform that decide when it has to be applied."""

    writes: Part
    """The part that it changes."""
    reads: frozenset[Part]
    """The parts that decide what comes out."""
    reads_time: bool = False
    """Whether the record's time decides it as well."""
    reads_offset: bool = False
    """Whether it needs the record's offset, which a record on its way out does not have."""
    takes_null: bool = False
    """Whether it makes something of a part that is missing."""


@attrs.define
class Record:
    """A record on its way through transforms, each of which changes it."""

    topic: str
    partition: int | None
    offset: int | None
    timestamp: int | None
    """Milliseconds since the epoch."""
    key: Data
    value: Data


class Transform(ABC):
    """Changes records.

    Raises:
        TransformError: from all methods, if it cannot take a record or schema.
    """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """The facts about it."""

    @abstractmethod
    def apply(self, record: Record) -> None:
        """Change a record."""

    @abstractmethod
    def check(self, schemas: Schemas) -> None:
        """Make sure that the transform takes records of these schemas, and change them as it does."""


@attrs.define
class Schemas:
    """The schemas of a record's parts, as far as they are known before there are records."""

    key: Schema | None
    value: Schema | None
    without: frozenset[Part]
    """The parts that never have a schema; of another part, each record may have its own."""

    def of(self, part: Part) -> Schema | None:
        """Return the schema of a part."""
        return self.key if part is Part.KEY else self.value


@attrs.frozen(cache_hash=True)
class PartTransform(Transform):
    """Changes the key or the value."""

    part: Part

    @property
    def traits(self) -> Traits:
        """It changes its part, and looks at no other one."""
        return Traits(self.part, frozenset({self.part}))

    @abstractmethod
    def schema(self, schema: Schema) -> Schema:
        """Return the schema that comes out of another."""

    @abstractmethod
    def changed(self, data: Data, record: Record) -> Data:
        """Return what becomes of the key or value."""

    def apply(self, record: Record) -> None:
        """Change the key or value of a record."""
        if self.part is Part.VALUE:
            record.value = self.changed(record.value, record)
        else:
            record.key = self.changed(record.key, record)

    def check(self, schemas: Schemas) -> None:
        """Change the schema of the key or value."""
        schema = schemas.of(self.part)
        if schema is not None:
            setattr(schemas, self.part.name.lower(), self.schema(schema))


class _MakesSchemas(Protocol):
    def schema(self, schema: Schema) -> Schema: ...


@lru_cache(maxsize=256)
def schema_after(transform: _MakesSchemas, schema: Schema) -> Schema:
    """Return the schema that comes out of another; known ones are remembered."""
    return transform.schema(schema)
