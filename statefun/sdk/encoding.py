# SPDX-License-Identifier: Apache-2.0
"""Encodes values with their types, and checks values that are to be sent or stored."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

from statefun.sdk.address import RESERVED, is_reserved, is_unicode
from statefun.sdk.errors import DefinitionError, caused
from statefun.sdk.secrecy import SECRET, contains_secret, reason, shown_cause
from statefun.sdk.types import SimpleType, Type, TypedValue

_make_value: Final = partial(tuple.__new__, TypedValue)
MAX_VALUE_BYTES: Final = 64 * 1024 * 1024
"""The largest value, in bytes, that a message or a state can hold."""


def typed(value: Any, type_: object) -> TypedValue:
    """Encode ``value`` with ``type_``.

    Raises:
        DefinitionError: if the type is missing or cannot encode the value.
    """
    if not isinstance(type_, Type):
        shown = SECRET if contains_secret(value) else repr(value)
        raise DefinitionError(
            f"value {shown} needs a value_type, which must be a Type, not {type_!r}"
        )
    return encoded(value, type_)


def encoded(value: Any, type_: Type[Any]) -> TypedValue:
    """Encode ``value`` with ``type_``, without a check that ``type_`` is a :class:`~statefun.Type`.

    Raises:
        DefinitionError: if the type cannot encode the value.
    """
    try:
        if type(type_) is SimpleType:  # it saves a call in Python
            serialize: Any = type_.serialize_fn  # the user's, which may return anything
        else:
            serializer: Any = type_.serializer()  # the user's as well
            serialize = serializer.serialize
        content = serialize(value)
        if not isinstance(content, bytes):
            raise TypeError(f"the serializer returned {type(content).__name__}, not bytes")
    except Exception as error:  # noqa: BLE001 - as below, it may be left out
        hiding = type_.as_secret() if contains_secret(value) else type_
        shown = SECRET if hiding.is_secret else repr(value)
        text = f"{shown} does not encode as {type_.typename}: {reason(error, hiding)}"
        cause = shown_cause(error, hiding)
        raise caused(DefinitionError(text), cause) from cause
    return check_value(_make_value((type_.typename, content)))


def check_value(typed_value: TypedValue) -> TypedValue:
    """Check that a value can be sent and stored, and return it.

    Raises:
        DefinitionError: if the value has more than 64 MiB, is not a typed value, or has a typename
            that the runtime reserves.
    """
    parts: Any = typed_value
    typename, content = parts
    if not (isinstance(typename, str) and isinstance(content, bytes)):
        raise DefinitionError(f"a typed value must be a typename and bytes, not {typed_value!r}")
    problem = _typename_problem(typename)
    if problem:
        raise DefinitionError(problem)
    if len(content) > MAX_VALUE_BYTES:
        raise DefinitionError(
            f"a value of type {typename} has {len(content):,} bytes, but at most "
            f"{MAX_VALUE_BYTES:,} can be sent or stored; store the value elsewhere, and send its location"
        )
    return typed_value


@lru_cache
def _typename_problem(typename: str) -> str:
    """Return why a typename is not allowed for values; empty if it is allowed."""
    if not is_unicode(typename):
        return f"typename {typename!r} contains a lone surrogate, which UTF-8 cannot encode"
    return f"typename {typename!r} {RESERVED}" if is_reserved(typename) else ""


def as_typed_value(value: Any) -> TypedValue:
    """Convert a typed value of the request-reply protocol to a :class:`TypedValue`, unless it is one already.

    Raises:
        DefinitionError: if the value is of neither class.
    """
    if isinstance(value, TypedValue):
        return value
    try:
        content: Any = value.value if value.has_value else None
        return TypedValue(value.typename, content)
    except AttributeError:
        raise DefinitionError(
            f"a typed value must be a typename and bytes, not {value!r}"
        ) from None
