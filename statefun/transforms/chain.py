# SPDX-License-Identifier: Apache-2.0
"""Transforms in their order, between the encodings of a topic's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import attrs

from statefun.sdk.record import EncodedRecord
from statefun.transforms.codecs import Codec, OpaqueCodec, TextCodec, json_of, read_part
from statefun.transforms.data import NOTHING, Data, TransformError
from statefun.transforms.transform import Part, Record, Schemas, Transform


class Transformed(NamedTuple):
    """The parts of a record that come out of transforms; those not asked for are as they were."""

    key: bytes | None
    value: bytes | None
    topic: str


_make_transformed = partial(tuple.__new__, Transformed)


class _Step(NamedTuple):
    """A transform, and its place in the list of them."""

    number: int
    transform: Transform

    def failed(self, error: TransformError) -> TransformError:
        """Return an error that names the transform and its place."""
        name = type(self.transform).__name__
        return TransformError(f"transforms[{self.number}], {name}: {error}")


class _Plan(NamedTuple):
    """How to make some parts of a record."""

    steps: Sequence[tuple[Callable[[Record], None], _Step]]
    """The transforms to apply, and their places."""
    reads_key: bool
    reads_value: bool
    makes_key: bool
    makes_value: bool


class _Plans(dict[frozenset[Part], _Plan]):
    """How to make parts of a record, by these parts: by the transforms that decide them.

    Args:
        steps: all transforms.
    """

    def __init__(self, steps: Sequence[_Step]) -> None:
        self._steps = steps

    def __missing__(self, parts: frozenset[Part]) -> _Plan:
        needed, steps = {*parts, Part.TOPIC}, list[tuple[Callable[[Record], None], _Step]]()
        for step in reversed(self._steps):
            if step.transform.traits.writes in needed:
                steps.append((step.transform.apply, step))
                needed |= step.transform.traits.reads
        key, value = Part.KEY, Part.VALUE
        plan = _Plan(steps[::-1], key in needed, value in needed, key in parts, value in parts)
        return self.setdefault(parts, plan)


@attrs.frozen(slots=False)
class Chain:
    """The transforms of a topic, and how its records are read for them."""

    transforms: tuple[Transform, ...]
    key_codec: Codec = attrs.field(factory=TextCodec)
    value_codec: Codec = attrs.field(factory=OpaqueCodec)
    is_value_read: bool = False
    """Whether values are read and written even if no transform changes them."""

    @cached_property
    def _steps(self) -> Sequence[_Step]:
        return [_Step(number, transform) for number, transform in enumerate(self.transforms)]

    @cached_property
    def changes(self) -> frozenset[Part]:
        """The parts of records that change."""
        written = {transform.traits.writes for transform in self.transforms}
        if self.key_codec != TextCodec():
            written.add(Part.KEY)
        if self.is_value_read:
            written.add(Part.VALUE)
        return frozenset(written)

    @property
    def changes_key(self) -> bool:
        """Whether keys change."""
        return Part.KEY in self.changes

    @property
    def changes_value(self) -> bool:
        """Whether values change."""
        return Part.VALUE in self.changes

    @property
    def changes_topic(self) -> bool:
        """Whether topics change."""
        return Part.TOPIC in self.changes

    @property
    def reads_value(self) -> bool:
        """Whether values have to be read."""
        return self._plans[self.changes].reads_value

    @property
    def reads_value_for_key(self) -> bool:
        """Whether keys depend on values."""
        return self._plans[frozenset({Part.KEY})].reads_value

    @property
    def reads_time(self) -> bool:
        """Whether what comes out depends on the time of a record."""
        return any(transform.traits.reads_time for transform in self.transforms)

    @property
    def reads_offset(self) -> bool:
        """Whether records need an offset."""
        return any(transform.traits.reads_offset for transform in self.transforms)

    @property
    def makes_values_of_nothing(self) -> bool:
        """Whether a record without a value may have one after the transforms."""
        of_values = (each.traits for each in self.transforms if each.traits.writes is Part.VALUE)
        return any(traits.takes_null for traits in of_values)

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

    def for_function(self, record: EncodedRecord, parts: frozenset[Part]) -> Transformed:
        """Return what functions get of a record from the topic: an id as key, and a value.

        Args:
            record: the record.
            parts: the parts that are asked for: they are not needed at the same place.

        Raises:
            TransformError: if a transform cannot take the record, or leaves no key.
            StatefunError: if a schema registry does not answer.
        """
        plan = self._plans[parts]
        after = self._applied(record, plan)
        return _make_transformed(
            (
                id_of(after.key).encode() if plan.makes_key else record.key,
                self.value_codec.message(after.value) if plan.makes_value else record.value,
                after.topic,
            )
        )

    def for_topic(self, record: EncodedRecord) -> Transformed:
        """Return what the topic gets of a record that a function sends.

        Raises:
            TransformError: if a transform cannot take the record.
            StatefunError: if a schema registry does not answer.
        """
        plan = self._plans[self.changes]
        after = self._applied(record, plan)
        return Transformed(
            self.key_codec.write(after.key) if plan.makes_key else record.key,
            self.value_codec.write(after.value) if plan.makes_value else record.value,
            after.topic,
        )

    def _applied(self, record: EncodedRecord, plan: _Plan) -> Record:
        """Return a record after the transforms of a plan."""
        topic, partition, offset, timestamp, key, value = record
        after = Record(
            topic,
            partition,
            offset,
            timestamp,
            read_part(self.key_codec, key, "key") if plan.reads_key else NOTHING,
            read_part(self.value_codec, value, "value") if plan.reads_value else NOTHING,
        )
        for apply, step in plan.steps:
            try:
                apply(after)
            except TransformError as error:
                raise step.failed(error) from None
            except Exception as error:
                # Whatever is in a record, such as a number that is too large, it is its own fault.
                text = f"{type(error).__name__}: {error}"
                raise step.failed(TransformError(text)) from error
        return after

    @cached_property
    def _plans(self) -> _Plans:
        return _Plans(self._steps)


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
