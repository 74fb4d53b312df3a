# SPDX-License-Identifier: Apache-2.0
"""Values in Avro's binary encoding, without the schema, which writers and readers have to know.

See "Binary Encoding" in https://avro.apache.org/docs/1.12.0/specification/.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

import attrs

from statefun.formats import optional_package
from statefun.formats.avro_integers import finder_of
from statefun.sdk.errors import ConfigurationError, DefinitionError
from statefun.sdk.types import SimpleType, default_types


@attrs.frozen
class _Avro:
    schema: str

    def serialize(self, value: Any) -> bytes:
        return encode_exactly(value, self.schema)

    def deserialize(self, content: bytes) -> Any:
        return decode(content, self.schema)


class AvroType(SimpleType[Any]):
    """A type that encodes values in Avro.

    Args:
        typename: ``namespace/name``.
        schema: the Avro schema, as JSON text.
    """

    def __init__(self, typename: str, schema: str) -> None:
        avro = _Avro(schema)
        super().__init__(typename, avro.serialize, avro.deserialize)
        self._schema = schema

    def shape(self) -> str:
        """Return a digest of the schema, without which no value can be read."""
        content = json.dumps(json.loads(self._schema), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def make_avro_type(typename: str, schema: str | Mapping[str, Any]) -> SimpleType[Any]:
    r"""Make and register a type that encodes values in Avro.

    Args:
        typename: ``namespace/name``.
        schema: the Avro schema, as JSON text or as parsed JSON.

    Raises:
        DefinitionError: if the schema is not an Avro schema, or the typename belongs to another
            type.
        ConfigurationError: if fastavro is not installed.

    >>> fields = [{"name": "name", "type": "string"}]
    >>> schema = {"type": "record", "name": "User", "fields": fields}
    >>> user = make_avro_type("com.example/avro-user", schema)
    >>> user.serializer().serialize({"name": "Ada"})
    b'\x06Ada'
    """
    text = schema if isinstance(schema, str) else json.dumps(schema)
    check_schema(typename, text)
    return default_types.add(AvroType(typename, text))


def check_schema(typename: str, schema: str) -> None:
    """Check that a schema is an Avro schema.

    Args:
        typename: the name of the schema's type, for error texts.
        schema: the schema, as JSON text.

    Raises:
        DefinitionError: if the schema is not an Avro schema.
    """
    try:
        _parsed(schema)
    except ConfigurationError:
        raise
    except Exception as error:
        raise DefinitionError(
            f"the schema of {typename} is not an Avro schema: {type(error).__name__}: {error}"
        ) from error


def encode(value: Any, schema: str) -> bytes:
    """Encode a value in Avro's binary encoding; ``schema`` is the Avro schema, as JSON text."""
    buffer = io.BytesIO()
    _library().schemaless_writer(buffer, _parsed(schema), value, strict=True)
    return buffer.getvalue()


def encode_exactly(value: Any, schema: str) -> bytes:
    """Encode a value as :func:`encode` does, but refuse one that would be read as another value, or not by all readers.

    Raises:
        Exception: if the value does not fit the schema.
    """
    content = encode(value, schema)
    again = decode(content, schema)
    if not (_is_equal(value, again) or _is_read_as(value, again)):
        raise TypeError(f"decoding would return another value, {again!r}")
    find = _finder(schema)
    if find is not None and find(again):  # fastavro writes longer integers as well
        optional_package("fastavro.validation", "avro").validate(again, _parsed(schema))
    return content


def _is_equal(value: Any, again: Any) -> bool:
    """Return whether two values are equal, which is much faster than to compare their parts."""
    try:
        return bool(value == again)
    except Exception:  # noqa: BLE001 - whatever a class raises, such as an array of numbers that has no truth
        return False


def _is_read_as(value: Any, again: Any) -> bool:
    """Return whether ``again``, which was decoded, stands for the encoded value: a float may be rounded."""
    if isinstance(value, tuple) and (not isinstance(again, list) or value[:1] == ("array",)):
        value = value[1]  # after the name of its type, which is one of a union
    match again:
        case bool() | int():
            return bool(value == again)
        case float():
            return math.isfinite(again) or not math.isfinite(float(value))
        case list():
            is_list = isinstance(value, list | tuple) and len(value) == len(again)
            if not is_list or _is_equal(value, again):
                return True
            return all(map(_is_read_as, value, again))
        case dict():
            return all(_is_read_as(value[name], each) for name, each in again.items())
        case _:
            return True


def decode(
    content: bytes, written_as: str, read_as: str | None = None, *, names_branches: bool = False
) -> Any:
    """Decode a value from Avro's binary encoding.

    Args:
        content: the encoded value, without further bytes.
        written_as: the schema that the value was encoded with.
        read_as: the schema of the returned value; None if it is ``written_as``.
        names_branches: whether a value of a union of several named types is returned as a pair of
            type name and value.

    Raises:
        ValueError: if there are further bytes after the value.
    """
    buffer = io.BytesIO(content)
    reader = None if read_as is None else _parsed(read_as)
    value = _library().schemaless_reader(
        buffer,
        _parsed(written_as),
        reader,
        return_named_type=names_branches,
        return_named_type_override=names_branches,
    )
    excess = len(content) - buffer.tell()
    if excess:
        raise ValueError(
            f"the value must be the whole content, but {excess} bytes follow the value"
        )
    return value


@lru_cache
def _parsed(schema: str) -> Any:
    return _library().parse_schema(json.loads(schema))


@lru_cache
def _finder(schema: str) -> Callable[[Any], bool] | None:
    return finder_of(_parsed(schema))


def _library() -> ModuleType:
    return optional_package("fastavro", "avro")
