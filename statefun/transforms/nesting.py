# SPDX-License-Identifier: Apache-2.0
"""Transforms that wrap, extract and flatten values, and name their schemas.

They do what the classes with the same names in ``org.apache.kafka.connect.transforms`` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from statefun.transforms.data import (
    Data,
    Field,
    Schema,
    SchemaKind,
    TransformError,
    basics,
    copied,
    fields_in,
    fields_of,
    or_default,
    required,
    struct,
)
from statefun.transforms.transform import PartTransform, Record, Schemas, Traits, schema_after


@attrs.frozen(cache_hash=True)
class HoistField(PartTransform):
    """Replaces a key or value by an object that contains it as the only field."""

    field: str

    @property
    def traits(self) -> Traits:
        """The traits: the transform reads and changes the key or value, and also wraps null in an object."""
        return super().traits._replace(takes_null=True)

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of the object whose only field is the key or value."""
        return struct(None, [Field(self.field, schema)])

    def changed(self, data: Data, record: Record) -> Data:
        """Return an object whose only field is the key or value of the record."""
        del record
        schema, value = data
        if schema is None:
            return Data(None, {self.field: value})
        return Data(schema_after(self, schema), {self.field: required(self.field, schema, value)})


@attrs.frozen(cache_hash=True)
class ExtractField(PartTransform):
    """Replaces an object by one of its fields."""

    path: tuple[str, ...]
    """The path to the field: the names of the outer fields, outermost first, then the field's own name."""
    replace_null_with_default: bool = True

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of the extracted field."""
        for name in self.path:
            fields_in(schema, "ExtractField")
            field = schema.field(name)
            if field is None:
                raise TransformError(f"the object has no field {name!r}")
            schema = field.schema
        return schema

    def changed(self, data: Data, record: Record) -> Data:
        """Return the extracted field of an object; null if the object is null."""
        del record
        after = None if data.schema is None else schema_after(self, data.schema)
        for number, name in enumerate(self.path, start=1):
            schema = data.schema
            if data.value is None:
                break
            value = fields_of(data, "ExtractField").get(name)
            field = None if schema is None else schema.field(name)
            if field is None:
                data = Data(None, value)
            else:
                # Null in an outer field is always replaced by its default.
                replaced = self.replace_null_with_default or number < len(self.path)
                data = Data(field.schema, or_default(field.schema, value, replaced=replaced))
        return Data(after, data.value)


_SCALARS = frozenset(SchemaKind) - {SchemaKind.STRUCT, SchemaKind.MAP, SchemaKind.UNION}


@attrs.frozen(cache_hash=True)
class Flatten(PartTransform):
    """Replaces nested objects by their fields; names become ``outer.inner``."""

    delimiter: str = "."

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of the object without nested objects."""
        fields_in(schema, "Flatten")
        fields = self._fields(schema, "", schema.default, is_optional=schema.is_optional)
        return struct(schema, fields)

    def changed(self, data: Data, record: Record) -> Data:
        """Return the object without nested objects."""
        del record
        schema, value = data
        if value is None:
            return data
        fields_of(data, "Flatten")
        if schema is None:
            return Data(None, dict(self._flat(value, "")))
        after = schema_after(self, schema)
        flat = dict(self._values(schema, value, ""))
        return Data(
            after, {name: required(name, each, flat.get(name)) for name, each in after.fields}
        )

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.delimiter}{name}" if prefix else name

    def _flat(self, value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, each in value.items():
            joined = self._name(prefix, name)
            if isinstance(each, dict):
                yield from self._flat(each, joined)
            else:
                yield joined, each

    def _fields(
        self, schema: Schema, prefix: str, outer: Mapping[str, Any] | None, *, is_optional: bool
    ) -> Iterator[Field]:
        """Yield the fields of the flat schema that replaces a schema with nested objects.

        A field without a default gets the value that the field has in the default of its outer object. A
        field is optional if one of its outer objects is optional.
        """
        for name, each in schema.fields:
            joined = self._name(prefix, name)
            optional = is_optional or each.is_optional
            default = each.default
            if default is None and outer is not None:
                default = outer.get(name)
            if each.kind is SchemaKind.STRUCT:
                yield from self._fields(each, joined, default, is_optional=optional)
            elif each.kind in _SCALARS:
                flat = attrs.evolve(basics(each), is_optional=optional, default=default)
                yield Field(joined, flat)
            else:
                raise TransformError(
                    f"Flatten supports neither maps nor unions, but field {joined!r} is of type "
                    f"{each.kind.value}; to leave out the field, put ReplaceField before Flatten"
                )

    def _values(
        self, schema: Schema, value: Mapping[str, Any], prefix: str
    ) -> Iterator[tuple[str, Any]]:
        for name, each in schema.fields:
            joined = self._name(prefix, name)
            inner = or_default(each, value[name], replaced=True)
            if each.kind is not SchemaKind.STRUCT:
                yield joined, inner
            elif inner is not None:
                yield from self._values(each, inner, joined)


@attrs.frozen(cache_hash=True)
class SetSchemaMetadata(PartTransform):
    """Sets the name and the version of the schema of a key or value."""

    schema_name: str | None = None
    schema_version: int | None = None
    replace_null_with_default: bool = True

    def schema(self, schema: Schema) -> Schema:
        """Return a copy of the schema with the new name and version."""
        fields_in(schema, "SetSchemaMetadata")
        return attrs.evolve(
            schema,
            name=schema.name if self.schema_name is None else self.schema_name,
            version=schema.version if self.schema_version is None else self.schema_version,
        )

    def changed(self, data: Data, record: Record) -> Data:
        """Return the key or value with the new schema."""
        del record
        schema, value = data
        if schema is None:
            if value is None:
                return data
            raise TransformError(_NO_SCHEMA)
        after = schema_after(self, schema)
        if value is not None:
            replaced = self.replace_null_with_default
            value = {
                field.name: copied(field, value[field.name], replaced=replaced)
                for field in schema.fields
            }
        return Data(after, value)

    def check(self, schemas: Schemas) -> None:
        """Check that there is a schema, and replace it in ``schemas`` by one with the new name and version."""
        if self.part in schemas.without:
            raise TransformError(_NO_SCHEMA)
        super().check(schemas)


_NO_SCHEMA = (
    "SetSchemaMetadata needs a schema, but this part of the record (key or value) has no schema"
)
