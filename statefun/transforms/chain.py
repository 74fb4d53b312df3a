# SPDX-License-Identifier: Apache-2.0
"""The chain of a topic: decodes a record, applies the topic's transforms, and encodes the record."""

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
    """The encoded key and value, and the topic, of a record after the transforms of a chain.

    If only the key or only the value was to be computed, the other one is as before the transforms.
    """

    key: bytes | None
    value: bytes | None
    topic: str


_make_transformed = partial(tuple.__new__, Transformed)


class _Step(NamedTuple):
    """A transform, and its position in the list of transforms."""

    number: int
    transform: Transform

    def error(self, cause: TransformError) -> TransformError:
        """Return an error that names the transform and its position before the text of ``cause``."""
        name = type(self.transform).__name__
        return TransformError(f"transforms[{self.number}], {name}: {cause}")


class _Plan(NamedTuple):
    """The steps that have to be applied to compute some parts of a record."""

    steps: Sequence[tuple[Callable[[Record], None], _Step]]
    """For each step: the method that applies its transform, and the step itself, for errors."""
    reads_key: bool
    reads_value: bool
    makes_key: bool
    makes_value: bool


class _Plans(dict[frozenset[Part], _Plan]):
    """The plans of a chain, by the parts of records that each plan computes.

    A plan has only the transforms on which these parts depend; it is made when it is first looked up.

    Args:
        steps: the steps of all transforms of the chain.
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
    """The transforms of a topic, and the codecs of its keys and values."""

    transforms: tuple[Transform, ...]
    key_codec: Codec = attrs.field(factory=TextCodec)
    value_codec: Codec = attrs.field(factory=OpaqueCodec)
    is_value_read: bool = False
    """Whether values are decoded and encoded even if no transform changes them."""

    @cached_property
    def _steps(self) -> Sequence[_Step]:
        return [_Step(number, transform) for number, transform in enumerate(self.transforms)]

    @cached_property
    def changes(self) -> frozenset[Part]:
        """The parts of records that the chain changes."""
        changed = {transform.traits.writes for transform in self.transforms}
        if self.key_codec != TextCodec():
            changed.add(Part.KEY)
        if self.is_value_read:
            changed.add(Part.VALUE)
        return frozenset(changed)

    @property
    def changes_key(self) -> bool:
        """Whether the chain changes keys."""
        return Part.KEY in self.changes

    @property
    def changes_value(self) -> bool:
        """Whether the chain changes values."""
        return Part.VALUE in self.changes

    @property
    def changes_topic(self) -> bool:
        """Whether the chain changes topics."""
        return Part.TOPIC in self.changes

    @property
    def reads_value(self) -> bool:
        """Whether the value of a record is needed to compute the parts that the chain changes."""
        return self._plans[self.changes].reads_value

    @property
    def reads_value_for_key(self) -> bool:
        """Whether keys after the transforms depend on values before the transforms."""
        return self._plans[frozenset({Part.KEY})].reads_value

    @property
    def reads_time(self) -> bool:
        """Whether a transform reads the time of a record."""
        return any(transform.traits.reads_time for transform in self.transforms)

    @property
    def reads_offset(self) -> bool:
        """Whether a transform needs the offset of a record."""
        return any(transform.traits.reads_offset for transform in self.transforms)

    @property
    def makes_values_of_nothing(self) -> bool:
        """Whether a record without a value can have one after the transforms."""
        of_values = (each.traits for each in self.transforms if each.traits.writes is Part.VALUE)
        return any(traits.takes_null for traits in of_values)

    def after(self) -> Schemas:
        """Return the schemas after the transforms, as far as they are known before any record is read.

        Raises:
            TransformError: if a transform does not support the schemas that the preceding transforms produce.
        """
        codecs = {Part.KEY: self.key_codec, Part.VALUE: self.value_codec}
        without = frozenset(part for part, codec in codecs.items() if not codec.has_schemas)
        schemas = Schemas(self.key_codec.schema, self.value_codec.schema, without)
        for step in self._steps:
            try:
                step.transform.check(schemas)
            except TransformError as error:
                raise step.error(error) from None
        return schemas

    def for_function(self, record: EncodedRecord, parts: frozenset[Part]) -> Transformed:
        """Transform a record of an ingress for a function; the key becomes the id of the address.

        Args:
            record: the record.
            parts: the parts to compute: keys before Spark's shuffle, and values after the shuffle.

        Raises:
            TransformError: if a transform fails on the record, or the key becomes null.
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
        """Transform a record that a function has sent, for the topic of an egress.

        Raises:
            TransformError: if a transform fails on the record.
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
        """Decode a record, and apply the transforms of a plan to the record."""
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
                raise step.error(error) from None
            except Exception as error:
                # Any content of a record, such as too large a number, fails this record only.
                text = f"{type(error).__name__}: {error}"
                raise step.error(TransformError(text)) from error
        return after

    @cached_property
    def _plans(self) -> _Plans:
        return _Plans(self._steps)


def id_of(key: Data) -> str:
    """Return the id of an address for a key: a text as it is, and any other key as JSON.

    Raises:
        TransformError: if the key is null.

    >>> id_of(Data(None, "Ada")), id_of(Data(None, 7)), id_of(Data(None, {"name": "Ada"}))
    ('Ada', '7', '{"name":"Ada"}')
    """
    if key.value is None:
        raise TransformError("the key must not be null, since it becomes the id of an address")
    # Sorted, so that objects with the same fields are the same id.
    return key.value if isinstance(key.value, str) else json_of(key, order="sorted").decode()
