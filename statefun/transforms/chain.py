# SPDX-License-Identifier: Apache-2.0
"""Transforms in their order, between the encodings of a topic's records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs

from statefun.transforms.codecs import Codec, OpaqueCodec, TextCodec, json_of, read_part
from statefun.transforms.data import NOTHING, Data, TransformError
from statefun.transforms.field_transforms import InsertField, ValueToKey
from statefun.transforms.nesting import HoistField
from statefun.transforms.routers import Router, TimestampRouter
from statefun.transforms.transform import Part, PartTransform, Record, Schemas, Transform


@attrs.frozen
class Step:
    """A transform, and its place in the list of them."""

    number: int
    transform: Transform

    @property
    def is_for_key(self) -> bool:
        """Whether it changes the key."""
        of = self.transform
        return isinstance(of, ValueToKey) or (isinstance(of, PartTransform) and of.part is Part.KEY)

    @property
    def is_for_value(self) -> bool:
        """Whether it changes the value."""
        return isinstance(self.transform, PartTransform) and self.transform.part is Part.VALUE

    @property
    def is_for_topic(self) -> bool:
        """Whether it changes the topic."""
        return isinstance(self.transform, Router)

    def failed(self, error: TransformError) -> TransformError:
        """Return an error that names the transform and its place."""
        name = type(self.transform).__name__
        return TransformError(f"transforms[{self.number}], {name}: {error}")


@attrs.frozen(slots=False)
class Chain:
    """The transforms of a topic, and how its records are read for them."""

    transforms: tuple[Transform, ...]
    key_codec: Codec = attrs.field(factory=TextCodec)
    value_codec: Codec = attrs.field(factory=OpaqueCodec)
    is_value_read: bool = False
    """Whether values are read and written even if no transform changes them."""

    @cached_property
    def _steps(self) -> Sequence[Step]:
        return [Step(number, transform) for number, transform in enumerate(self.transforms)]

    @cached_property
    def changes_key(self) -> bool:
        """Whether keys change."""
        return any(step.is_for_key for step in self._steps) or self.key_codec != TextCodec()

    @cached_property
    def changes_value(self) -> bool:
        """Whether values change."""
        return self.is_value_read or any(step.is_for_value for step in self._steps)

    @cached_property
    def changes_topic(self) -> bool:
        """Whether topics change."""
        return any(step.is_for_topic for step in self._steps)

    @cached_property
    def reads_value(self) -> bool:
        """Whether values have to be read."""
        return self.changes_value or self._is_key_of_value

    @cached_property
    def reads_time(self) -> bool:
        """Whether what comes out depends on the time of a record."""
        return any(
            isinstance(each, TimestampRouter)
            or (isinstance(each, InsertField) and each.timestamp is not None)
            for each in self.transforms
        )

    @cached_property
    def makes_values_of_nothing(self) -> bool:
        """Whether a record without a value may have one after the transforms."""
        return any(isinstance(step.transform, HoistField) for step in self._value_steps)

    @cached_property
    def _is_key_of_value(self) -> bool:
        return any(isinstance(step.transform, ValueToKey) for step in self._steps)

    @cached_property
    def _key_steps(self) -> Sequence[Step]:
        """What decides a key: of the transforms of values, those before a value becomes a key."""
        places = [
            place
            for place, step in enumerate(self._steps)
            if isinstance(step.transform, ValueToKey)
        ]
        last = places[-1] if places else -1
        return [
            step for place, step in enumerate(self._steps) if not step.is_for_value or place < last
        ]

    @cached_property
    def _value_steps(self) -> Sequence[Step]:
        return [step for step in self._steps if not step.is_for_key]

    @cached_property
    def _topic_steps(self) -> Sequence[Step]:
        return [step for step in self._steps if step.is_for_topic]

    def after(self) -> Schemas:
        """Return the schemas that come out, as far as they are known before there are records.

        Raises:
            TransformError: if a transform cannot take what comes out of those before it.
        """
        codecs = {Part.KEY: self.key_codec, Part.VALUE: self.value_codec}
        without = frozenset(part for part, codec in codecs.items() if not codec.has_schemas)
        schemas = Schemas(self.key_codec.schema, self.value_codec.schema, without)
        for step in self._steps:
            try:
                step.transform.check(schemas)
            except TransformError as error:
                raise step.failed(error) from None
        return schemas

    def key_of(self, record: Record, key: bytes | None, value: bytes | None) -> Data:
        """Return what becomes of a record's key."""
        record.key = read_part(self.key_codec, key, "key")
        record.value = (
            read_part(self.value_codec, value, "value") if self._is_key_of_value else NOTHING
        )
        return _applied(self._key_steps, record).key

    def value_of(self, record: Record, value: bytes | None) -> Data:
        """Return what becomes of a record's value."""
        record.key, record.value = NOTHING, read_part(self.value_codec, value, "value")
        return _applied(self._value_steps, record).value

    def topic_of(self, record: Record) -> str:
        """Return what becomes of a record's topic."""
        record.key = record.value = NOTHING
        return _applied(self._topic_steps, record).topic


def id_of(key: Data) -> str:
    """Return the id that a key stands for: a text as it is, and anything else in JSON.

    Raises:
        TransformError: if it is null.

    >>> id_of(Data(None, "Ada")), id_of(Data(None, 7)), id_of(Data(None, {"name": "Ada"}))
    ('Ada', '7', '{"name":"Ada"}')
    """
    if key.value is None:
        raise TransformError("the key is null, and it becomes the id of an address")
    # Objects with the same fields are one id.
    return key.value if isinstance(key.value, str) else json_of(key, order="sorted").decode()


def _applied(steps: Sequence[Step], record: Record) -> Record:
    for step in steps:
        try:
            step.transform.apply(record)
        except TransformError as error:
            raise step.failed(error) from None
        except Exception as error:
            # Whatever is in a record, such as a number that is too large, it is that record's fault.
            raise step.failed(TransformError(f"{type(error).__name__}: {error}")) from error
    return record
