# SPDX-License-Identifier: Apache-2.0
"""Decodes and encodes the keys and values of records for transforms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import attrs

from statefun.formats import avro, schema_registry
from statefun.sdk.errors import StatefunError
from statefun.transforms import json_text
from statefun.transforms.avro_data import (
    avro_of_schema,
    encodable,
    logical,
    schema_of_avro,
    without_logical_types,
)
from statefun.transforms.connect_json import (
    json_of_schema,
    json_of_value,
    schema_of_json,
    value_of_json,
)
from statefun.transforms.data import (
    NOTHING,
    OPTIONAL_STRING,
    Data,
    Schema,
    TransformError,
)


class Codec(ABC):
    """Decodes the keys or values of records for transforms, and encodes the transformed ones."""

    schema: Schema | None = None
    """The schema of all keys or values; None if it is not known before a record is read."""
    has_schemas: bool = True
    """Whether decoded keys or values can have a schema."""

    @abstractmethod
    def read(self, content: bytes) -> Data:
        """Decode a key or value.

        Raises:
            Exception: if the content is malformed.
        """

    def write(self, data: Data) -> bytes | None:
        """Encode a transformed key or value for a record; return None for null."""
        return None if data.value is None else json_of(data)

    def message(self, data: Data) -> bytes:
        """Encode a transformed value as the value of a message to a function."""
        return json_of(data)


def json_of(data: Data, order: Literal["sorted"] | None = None) -> bytes:
    """Encode a key or value in JSON, without its schema.

    Args:
        data: the key or value.
        order: ``"sorted"`` to sort the fields of objects by name.

    Raises:
        TransformError: if JSON cannot represent the key or value.
    """
    schema, value = data
    try:
        if schema is not None:
            return json_text.encode(json_of_value(schema, value), order=order)
        content = json_text.encode(value, _millis, order)
        if b"null" in content:
            _check_finite(value)  # msgspec writes infinity and NaN as null
    except TransformError:
        raise
    except Exception as error:
        raise TransformError(
            f"the key or value cannot be written in JSON: {type(error).__name__}: {error}"
        ) from error
    return content


def _millis(value: Any) -> Any:
    return json_of_value(None, value)


def _check_finite(value: Any) -> None:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        for each in value:
            _check_finite(each)
    elif isinstance(value, float) and not math.isfinite(value):
        raise TransformError(f"JSON cannot represent the number {value}")


@attrs.frozen
class TextCodec(Codec):
    """Texts in UTF-8; transformed data that is not a text becomes JSON."""

    schema: Schema | None = attrs.field(default=OPTIONAL_STRING, init=False)

    def read(self, content: bytes) -> Data:
        """Decode a text."""
        return Data(OPTIONAL_STRING, content.decode())

    def write(self, data: Data) -> bytes | None:
        """Encode a text as it is, and anything else in JSON."""
        return data.value.encode() if isinstance(data.value, str) else super().write(data)


@attrs.frozen
class JsonCodec(Codec):
    """JSON without schemas."""

    has_schemas: bool = attrs.field(default=False, init=False)

    def read(self, content: bytes) -> Data:
        """Decode JSON."""
        return Data(None, json_text.decode(content))


_REMEMBERED_BYTES = 16 * 1024


@attrs.frozen
class JsonWithSchemaCodec(Codec):
    """JSON objects with schema and payload, as Connect's JsonConverter writes with ``schemas.enable``."""

    def read(self, content: bytes) -> Data:
        """Decode the schema of a JSON object, and then the payload with this schema."""
        raw, payload = json_text.read_envelope(content)
        # Schemas come from outside: only small ones are cached, as the cache counts schemas.
        schema = _json_schema(raw) if len(raw) <= _REMEMBERED_BYTES else _read_schema(raw)
        if schema is None:
            return Data(None, json_text.decode(payload))
        return Data(schema, value_of_json(schema, json_text.decode_exactly(payload)))

    def write(self, data: Data) -> bytes | None:
        """Encode a JSON object with the schema and the payload."""
        if data == NOTHING:
            return None
        return b'{"schema":%b,"payload":%b}' % (_schema_json(data.schema), json_of(data))


def _read_schema(content: bytes) -> Schema | None:
    return schema_of_json(json_text.decode_exactly(content))


_json_schema = lru_cache(maxsize=128)(_read_schema)


@lru_cache(maxsize=128)
def _schema_json(schema: Schema | None) -> bytes:
    return json_text.encode(json_of_schema(schema))


@attrs.frozen
class AvroCodec(Codec):
    """Avro's binary encoding, with one schema for all values."""

    text: str
    schema: Schema | None = attrs.field(init=False)
    _plain: str = attrs.field(init=False, repr=False)

    @schema.default
    def _read_schema(self) -> Schema:
        return schema_of_avro(self.text)

    @_plain.default
    def _plain_schema(self) -> str:
        return without_logical_types(self.text)

    def read(self, content: bytes) -> Data:
        """Decode a key or value that was written with the codec's schema."""
        return self.data_of(avro.decode(content, self._plain, names_branches=True))

    def plain(self, content: bytes) -> Any:
        """Decode a value as functions get it from topics without transforms."""
        return avro.decode(content, self.text)

    def data_of(self, value: Any) -> Data:
        """Add the codec's schema to a value, and convert encoded moments and decimal numbers to objects.

        Args:
            value: the value, decoded without logical types: moments are numbers, and decimals are bytes.
        """
        return Data(self.schema, None if self.schema is None else logical(self.schema, value))

    def read_as_written(self, content: bytes, schema: str) -> Data:
        """Decode a value that was written with another schema, and convert it to the codec's schema.

        Args:
            content: the encoded value.
            schema: the Avro schema, as JSON text, with which the value was written.
        """
        writer_schema = without_logical_types(schema)
        return self.data_of(avro.decode(content, writer_schema, self._plain, names_branches=True))

    def write(self, data: Data) -> bytes | None:
        """Encode a key or value with the schema that it has after the transforms."""
        return None if data.value is None else self.message(data)

    def message(self, data: Data) -> bytes:
        """Encode a key or value with the schema that it has after the transforms."""
        if data.schema is None:
            raise TransformError("the transformed key or value has no schema, which Avro needs")
        bare = without_logical_types(avro_schema(data.schema))
        return avro.encode(encodable(data.schema, data.value), bare)


@lru_cache(maxsize=128)
def avro_schema(schema: Schema) -> str:
    """Convert a schema to an Avro schema, as JSON text; results are cached.

    Raises:
        TransformError: if two different types have the same name.
    """
    return avro_of_schema(schema)


@attrs.frozen
class RegistryCodec(Codec):
    """Avro with the schemas of a schema registry; all decoded values are converted to the same schema."""

    url: str = attrs.field(repr=False)  # it may have a password in it
    properties: Mapping[str, str] = attrs.field(repr=False, hash=False)
    avro: AvroCodec
    subject: str | None = None
    """The subject under which schemas of written values are registered; None: values are only read."""
    schema: Schema | None = attrs.field(init=False)

    @schema.default
    def _read_schema(self) -> Schema | None:
        return self.avro.schema

    def read(self, content: bytes) -> Data:
        """Decode a value with the schema that it was written with."""
        schema, payload = schema_registry.written_avro(content, self.url, self.properties)
        return self.avro.read_as_written(payload, schema)

    def plain(self, content: bytes) -> Any:
        """Decode a value as functions get it from topics without transforms."""
        schema, payload = schema_registry.written_avro(content, self.url, self.properties)
        return avro.decode(payload, schema, self.avro.text)

    def write(self, data: Data) -> bytes | None:
        """Register the schema of a value; encode the schema's number in the registry, and then the value."""
        if data.value is None:
            return None
        if data.schema is None or self.subject is None:
            raise TransformError(
                "the transformed value cannot be written with a schema registry: the value has no schema, "
                "or the option valueFormat has no subject"
            )
        return schema_registry.registered_avro(
            encodable(data.schema, data.value),
            avro_schema(data.schema),
            self.url,
            self.subject,
            self.properties,
        )

    def message(self, data: Data) -> bytes:
        """Encode a value in Avro, without the number of its schema."""
        return self.avro.message(data)


@attrs.frozen
class OpaqueCodec(Codec):
    """Bytes in a format that transforms cannot read."""

    def read(self, content: bytes) -> Data:
        """Raise a TransformError, since transforms cannot decode the bytes."""
        raise TransformError(f"transforms cannot decode the format of these {len(content)} bytes")


def read_part(codec: Codec, content: bytes | None, what: str) -> Data:
    """Decode the key or value of a record; null stays null.

    Args:
        codec: decodes the key or value.
        content: the encoded key or value.
        what: "key" or "value", for error texts.

    Raises:
        TransformError: if the content is malformed.
        StatefunError: if a schema registry does not answer.
    """
    if content is None:
        return Data(codec.schema, None)
    try:
        return codec.read(content)
    except StatefunError:
        raise
    except TransformError as error:
        raise TransformError(f"the {what} of the record cannot be decoded: {error}") from None
    except Exception as error:
        raise TransformError(
            f"the {what} of the record cannot be decoded: {type(error).__name__}: {error}"
        ) from error
