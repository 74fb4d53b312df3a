# SPDX-License-Identifier: Apache-2.0
"""Encodes values that people write, as text or JSON, in the form in which functions store and receive them."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from google.protobuf.message import Message

from statefun.runtime.stored.typed_values import ValueDecoder, primitive_type
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.primitives import BoolType, BytesType, DoubleType, FloatType, StringType
from statefun.sdk.raised import line_of
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import Type

_DECODERS: Mapping[str, Callable[[str], bytes]] = {
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": bytes.fromhex,
}
ENCODINGS = tuple(_DECODERS)
"""The names of the forms in which people write bytes."""


@attrs.frozen
class RawValue:
    """A value that a person gives as bytes, in the form in which it is stored."""

    content: bytes

    @classmethod
    def of(cls, text: str, encoding: str) -> RawValue:
        """Decode bytes that are written in base64 or hex.

        Raises:
            ConfigurationError: if the text has another form.
        """
        try:
            return cls(_DECODERS[encoding](text))
        except (binascii.Error, ValueError) as error:
            # The text is not quoted: it may be that of a secret value.
            raise ConfigurationError(f"the value is not {encoding}: {error}") from error


def written_value(text: str, type_: Type[Any] | None) -> Any:
    """Return the value that a person has written on a command line: text for a type of text, else JSON.

    >>> from statefun import IntType
    >>> written_value("7", IntType), written_value("7", StringType)
    (7, '7')

    Raises:
        ValueError: if the text is not JSON, or an object in it has a key twice.
    """
    if type_ is not None and type_.typename == StringType.typename:
        return text
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except ValueError as error:
        raise ValueError(f"{text!r} is not JSON ({error})") from error


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; refuse one that would lose a value.

    Raises:
        ValueError: if a key occurs twice.
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return content


def encoded_value(value: Any, type_: Type[Any] | None, typename: str) -> bytes:
    """Encode a value that a person has written, in the form in which functions store it.

    >>> from statefun import IntType
    >>> encoded_value(7, IntType, IntType.typename) == IntType.serializer().serialize(7)
    True

    Args:
        value: bytes, as a :class:`RawValue`, or what a JSON document can have.
        type_: the type; None if nothing is known about it, so that only bytes can be given.
        typename: the typename with which the value is stored.

    Raises:
        ValueError: if the type does not have the value; the text is the reason.
    """
    if type_ is None and not isinstance(value, RawValue):
        raise ValueError(
            f"its type, {typename}, is known only to a program: give the program with --program, or the stored bytes in "
            "base64 or hex"
        )
    if isinstance(value, RawValue):
        is_bytes = type_ is not None and type_.typename == BytesType.typename
        content = BytesType.serializer().serialize(value.content) if is_bytes else value.content
    else:
        content = _serialized(value, type_)
    if type_ is not None:
        problem = ValueDecoder(type_).decode(type_.typename, content).problem
        if problem is not None:
            raise ValueError(problem)
    return content


def _serialized(value: Any, type_: Any) -> bytes:
    try:
        serializer = type_.serializer()
        if primitive_type(type_.typename) is not None:
            return bytes(serializer.serialize(_primitive(value, type_)))
        if isinstance(type_, StructuredType):
            value = serializer.deserialize(_as_stored(value, type_))
        elif isinstance(type_.python_type, type) and issubclass(type_.python_type, Message):
            from google.protobuf import json_format  # noqa: PLC0415 - slow to import, rarely needed

            value = json_format.ParseDict(value, type_.python_type())
        return bytes(serializer.serialize(value))
    except Exception as error:
        raise ValueError(f"it is no value of type {type_.typename}: {line_of(error)}") from error


def _primitive(value: Any, type_: Type[Any]) -> Any:
    """Convert a value from JSON for a primitive type: a whole number may have to become a float."""
    if type_.typename == BytesType.typename:
        raise TypeError("bytes must be given in base64 or hex")
    if type_.typename == BoolType.typename and type(value) is not bool:
        raise TypeError(f"it must be true or false, not {value!r}")
    if type_.typename in {FloatType.typename, DoubleType.typename} and type(value) is int:
        return float(value)
    return value


def _as_stored(value: Any, type_: StructuredType[Any]) -> bytes:
    if type_.is_json:
        return json.dumps(value).encode()
    import msgspec  # noqa: PLC0415 - a type with MessagePack has imported it

    return msgspec.msgpack.encode(value)
