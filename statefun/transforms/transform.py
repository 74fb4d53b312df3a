# SPDX-License-Identifier: Apache-2.0
"""The interface of transforms, and the record that they change."""

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

    __hash__ = object.__hash__  # that of Enum is a slow Python function


class Traits(NamedTuple):
    """The properties of a transform that decide when it has to be applied."""

    writes: Part
    """The part that the transform changes."""
    reads: frozenset[Part]
    """The parts that the changed part depends on."""
    reads_time: bool = False
    """Whether the changed part depends on the record's time as well."""
    reads_offset: bool = False
    """Whether the transform needs the record's offset, which a record of an egress does not have."""
    takes_null: bool = False
    """Whether the transform makes a value from null."""


@attrs.define
class Record:
    """A record between transforms, each of which changes it in place."""

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
        TransformError: from all methods, if the transform cannot take a record or schema.
    """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """The properties of the transform."""

    @abstractmethod
    def apply(self, record: Record) -> None:
        """Change a record."""

    @abstractmethod
    def check(self, schemas: Schemas) -> None:
        """Replace the schemas by those after the transform.

        Raises:
            TransformError: if the transform fails on all records with these schemas.
        """


@attrs.define
class Schemas:
    """The schemas of keys and values, as far as they are known before there are records."""

    key: Schema | None
    value: Schema | None
    without: frozenset[Part]
    """The parts that never have a schema. Other parts with an unknown schema may have one."""

    def of(self, part: Part) -> Schema | None:
        """Return the schema of a part."""
        return self.key if part is Part.KEY else self.value


@attrs.frozen(cache_hash=True)
class PartTransform(Transform):
    """Changes the key or the value."""

    part: Part

    @property
    def traits(self) -> Traits:
        """The transform reads and changes its part."""
        return Traits(self.part, frozenset({self.part}))

    @abstractmethod
    def schema(self, schema: Schema) -> Schema:
        """Return the schema after the transform."""

    @abstractmethod
    def changed(self, data: Data, record: Record) -> Data:
        """Return the key or value after the transform."""

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
    """Return the schema after a transform; results are cached."""
    return transform.schema(schema)
