# SPDX-License-Identifier: Apache-2.0
"""Transforms that leave out, rename, mask, insert and copy fields.

They do what the classes with the same names in ``org.apache.kafka.connect.transforms`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import attrs

from statefun.transforms.data import (
    CONNECT_TIMESTAMP,
    FLOATS,
    INTEGERS,
    LOGICAL,
    OPAQUE,
    Data,
    Field,
    Moment,
    Schema,
    SchemaKind,
    TransformError,
    copied,
    description_of,
    fields_in,
    fields_of,
    or_default,
    required,
    struct,
)
from statefun.transforms.java_numbers import single, wrapped
from statefun.transforms.transform import (
    Part,
    PartTransform,
    Record,
    Schemas,
    Traits,
    Transform,
    schema_after,
)


@attrs.frozen(cache_hash=True)
class ReplaceField(PartTransform):
    """Leaves out and renames fields of a key or value."""

    exclude: frozenset[str] = frozenset()
    include: frozenset[str] = frozenset()
    """The fields to keep; if empty, all fields that are not excluded."""
    renames: tuple[tuple[str, str], ...] = ()
    replace_null_with_default: bool = True

    def schema(self, schema: Schema) -> Schema:
        """Remove the left-out fields from a schema, and rename the renamed fields."""
        renames = dict(self.renames)
        fields = [field for field in fields_in(schema, "ReplaceField") if self._keeps(field.name)]
        return struct(
            schema, [field._replace(name=renames.get(field.name, field.name)) for field in fields]
        )

    def changed(self, data: Data, record: Record) -> Data:
        """Leave out and rename fields of a key or value."""
        del record
        if data.value is None:
            return data
        fields, schema = fields_of(data, "ReplaceField"), data.schema
        renames = dict(self.renames)
        if schema is None:
            named = {renames.get(name, name): fields[name] for name in fields if self._keeps(name)}
            return Data(None, named)
        after = schema_after(self, schema)
        names = [name for name, _ in schema.fields if self._keeps(name)]
        replaced = self.replace_null_with_default
        value = {
            field.name: copied(field, fields[old], replaced=replaced)
            for old, field in zip(names, after.fields, strict=True)
        }
        return Data(after, value)

    def _keeps(self, name: str) -> bool:
        return name not in self.exclude and (not self.include or name in self.include)


def _integer(bits: int) -> Callable[[str], int]:
    return lambda text: wrapped(int(Decimal(text)), bits)


_PARSED: Mapping[SchemaKind, Callable[[str], Any]] = {
    **{kind: _integer(bits) for kind, bits in INTEGERS.items()},
    SchemaKind.FLOAT32: lambda text: single(float(Decimal(text))),
    SchemaKind.FLOAT64: lambda text: float(Decimal(text)),
    SchemaKind.STRING: str,
}
"""Functions that parse a replacement, by the kind (schema type) of the masked value."""
_EMPTY: Mapping[SchemaKind, Any] = {
    **dict.fromkeys(INTEGERS, 0),
    **dict.fromkeys(FLOATS, 0.0),
    SchemaKind.BOOLEAN: False,
    SchemaKind.STRING: "",
    SchemaKind.ARRAY: [],
    SchemaKind.MAP: {},
}


@attrs.frozen(cache_hash=True)
class MaskField(PartTransform):
    """Replaces the values of fields, in order to hide these values."""

    fields: frozenset[str]
    replacement: str | None = None
    """The replacement; None: each value is replaced by the empty value of its type."""
    replace_null_with_default: bool = True

    def schema(self, schema: Schema) -> Schema:
        """Check that the schema is the schema of a struct, and return it unchanged."""
        fields_in(schema, "MaskField")
        return schema

    def check(self, schemas: Schemas) -> None:
        """Check that the values of the fields can be masked; the schema does not change."""
        schema = schemas.of(self.part)
        for name, each in fields_in(schema, "MaskField") if schema is not None else ():
            if name in self.fields and (OPAQUE in dict(each.parameters) or each.kind not in _EMPTY):
                if each.name in LOGICAL:
                    continue
                raise TransformError(
                    f"field {name!r} cannot be masked: the field has {description_of(Data(each, 0))}; MaskField "
                    "supports neither objects, nor bytes, nor types that only Avro has, such as enum"
                )

    def changed(self, data: Data, record: Record) -> Data:
        """Replace the values of the fields to mask."""
        del record
        before, schema = fields_of(data, "MaskField"), data.schema
        if schema is None:
            masked = {
                name: self._masked(name, Data(None, before.get(name)))
                for name in sorted(self.fields)
            }
            return Data(None, before | masked)
        value = {}
        for name, each in schema.fields:
            field = or_default(each, before[name], replaced=self.replace_null_with_default)
            if name in self.fields:
                field = self._masked(name, Data(each, field))
            value[name] = required(name, each, field)
        return Data(schema, value)

    def _masked(self, name: str, data: Data) -> Any:
        if data.value is None:
            return None
        kind = kind_of(data)
        is_moment, is_decimal = isinstance(data.value, Moment), isinstance(data.value, Decimal)
        if self.replacement is None:
            if is_moment:
                return Moment(0)
            if is_decimal:
                return Decimal(0)
            if kind in _EMPTY:
                return _EMPTY[kind]
            raise TransformError(
                f"field {name!r} cannot be masked: MaskField does not support {description_of(data)}"
            )
        try:
            if is_decimal:
                return Decimal(self.replacement)
            if kind in _PARSED and not is_moment:
                return _PARSED[kind](self.replacement)
        except (InvalidOperation, OverflowError, ValueError):
            raise TransformError(
                f"field {name!r} cannot be masked: the replacement is not a number, and the field has "
                f"{description_of(data)}"
            ) from None
        raise TransformError(
            f"field {name!r} has {description_of(data)}, but the option replacement can mask only numbers and "
            "texts"
        )


def kind_of(data: Data) -> SchemaKind:
    """Return the kind (schema type) of a value; without a schema, the value's Python class decides."""
    schema, value = data
    if schema is not None:
        return schema.kind
    if isinstance(value, bool):
        return SchemaKind.BOOLEAN
    kinds = {
        int: SchemaKind.INT64,
        float: SchemaKind.FLOAT64,
        str: SchemaKind.STRING,
        list: SchemaKind.ARRAY,
    }
    return kinds.get(type(value), SchemaKind.MAP)


class Insertion(NamedTuple):
    """The name of a field to insert, and whether the field is optional."""

    name: str
    is_optional: bool = True

    @classmethod
    def parse(cls, text: str) -> Insertion:
        """Parse the name of a field; ``!`` after the name makes the field required, ``?`` optional.

        >>> Insertion.parse("topic!")
        Insertion(name='topic', is_optional=False)
        """
        is_marked = text.endswith(("!", "?"))
        return cls(text[:-1] if is_marked else text, not text.endswith("!"))


@attrs.frozen(cache_hash=True)
class InsertField(PartTransform):
    """Inserts fields with properties of the record, or with a fixed text."""

    topic: Insertion | None = None
    partition: Insertion | None = None
    offset: Insertion | None = None
    timestamp: Insertion | None = None
    static: Insertion | None = None
    static_value: str | None = None
    replace_null_with_default: bool = True

    @property
    def traits(self) -> Traits:
        """The traits: the transform reads and changes the key or value, and reads the inserted properties."""
        reads = frozenset({self.part} if self.topic is None else {self.part, Part.TOPIC})
        has_time, has_offset = self.timestamp is not None, self.offset is not None
        return Traits(self.part, reads, has_time, has_offset)

    def schema(self, schema: Schema) -> Schema:
        """Return the schema with the inserted fields."""
        kinds = (
            (self.topic, SchemaKind.STRING, None),
            (self.partition, SchemaKind.INT32, None),
            (self.offset, SchemaKind.INT64, None),
            (self.timestamp, SchemaKind.INT64, CONNECT_TIMESTAMP),
            (self.static, SchemaKind.STRING, None),
        )
        inserted = [
            Field(field.name, Schema(kind, field.is_optional, name, 1 if name else None))
            for field, kind, name in kinds
            if field is not None
        ]
        return struct(schema, [*fields_in(schema, "InsertField"), *inserted])

    def changed(self, data: Data, record: Record) -> Data:
        """Insert the fields into the key or value."""
        if data.value is None:
            return data
        before, schema = fields_of(data, "InsertField"), data.schema
        time: Any = record.timestamp
        if schema is not None and time is not None:
            time = Moment(time)
        if self.offset is not None and record.offset is None:
            raise TransformError(
                "offset.field is not possible for an egress: a record has no offset before it is written"
            )
        insertions = (
            (self.topic, record.topic),
            (self.partition, record.partition),
            (self.offset, record.offset),
            (self.timestamp, time),
            (self.static, self.static_value),
        )
        inserted = {
            field.name: value
            for field, value in insertions
            if field is not None and value is not None
        }
        if schema is None:
            return Data(None, before | inserted)
        after = schema_after(self, schema)
        fields = {
            name: or_default(each, before[name], replaced=self.replace_null_with_default)
            for name, each in schema.fields
        }
        fields |= inserted
        return Data(
            after, {name: required(name, each, fields.get(name)) for name, each in after.fields}
        )


@attrs.frozen(cache_hash=True)
class ValueToKey(Transform):
    """Makes the key from fields of the value."""

    fields: tuple[str, ...]
    replace_null_with_default: bool = True

    @property
    def traits(self) -> Traits:
        """The traits: the transform changes the key, and reads the value."""
        return Traits(Part.KEY, frozenset({Part.VALUE}))

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of the new key, for a schema of the value."""
        schemas = dict(fields_in(schema, "ValueToKey"))
        for name in self.fields:
            if name not in schemas:
                raise TransformError(f"the value has no field {name!r}")
        return struct(None, [Field(name, schemas[name]) for name in self.fields])

    def apply(self, record: Record) -> None:
        """Replace the record's key by an object with the fields of the value."""
        data = record.value
        before, schema = fields_of(data, "ValueToKey"), data.schema
        if schema is None:
            record.key = Data(None, {name: before.get(name) for name in self.fields})
            return
        after = schema_after(self, schema)
        replaced = self.replace_null_with_default
        key = {
            field.name: copied(field, before[field.name], replaced=replaced)
            for field in after.fields
        }
        record.key = Data(after, key)

    def check(self, schemas: Schemas) -> None:
        """Replace the schema of the key by the schema of the new key."""
        schemas.key = None if schemas.value is None else self.schema(schemas.value)
        schemas.without = schemas.without - {Part.KEY} | (
            {Part.KEY} if Part.VALUE in schemas.without else frozenset()
        )
