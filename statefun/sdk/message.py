# SPDX-License-Identifier: Apache-2.0
"""Messages to functions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from statefun.sdk.address import Address, checked_typename
from statefun.sdk.annotations import type_of_value
from statefun.sdk.encoding import as_typed_value, typed
from statefun.sdk.errors import DefinitionError, FunctionError, ValueDecodeError, caused
from statefun.sdk.primitives import (
    WRAPPED,
    BoolType,
    DoubleType,
    FloatType,
    IntType,
    LongType,
    StringType,
)
from statefun.sdk.record import IngressRecord
from statefun.sdk.secrecy import reason
from statefun.sdk.types import Type, TypedValue, default_types

T = TypeVar("T")

_OTHER_PRIMITIVE = "read the value as the type with which it was sent, or send it as this type"

FindRecord = Callable[[int], IngressRecord | None]
"""A function that returns the ingress record of a message by its index in the invocation batch."""


class Message:
    """A typed value for a function instance, before or after its delivery.

    >>> message = message_builder("com.example.fns/greeter", "Ada", str_value="hello")
    >>> message.as_string(), message.value(), message.is_int()
    ('hello', 'hello', False)
    """

    __slots__ = (
        "_index",
        "_record",
        "_type",
        "event_time",
        "target_id",
        "target_typename",
        "trace",
        "typed_value",
    )

    def __init__(self, target_typename: str, target_id: str, typed_value: TypedValue) -> None:
        _check_id(target_typename, target_id)
        self.target_typename = checked_typename(target_typename)
        self.target_id = target_id
        self.typed_value = as_typed_value(typed_value)
        self.trace: str | None = None
        """The trace-context headers of the message: ``name=value``, one per line."""
        self.event_time: int | None = None
        """The event time of a message that a function sends, in milliseconds since the epoch; None for none."""
        self._record: FindRecord | None = None
        self._index = 0
        self._type: Type[Any] | None = None

    def __copy__(self) -> Message:
        # A function may change the object and send it again: a copy is sent, so that this must not take long.
        made = object.__new__(type(self))
        made.target_typename = self.target_typename
        made.target_id = self.target_id
        made.typed_value = self.typed_value
        made.trace, made.event_time = self.trace, self.event_time
        made._record, made._index, made._type = self._record, self._index, self._type
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self.target_typename, self.target_id, self.typed_value
        state = self.trace, self.event_time, self._record, self._index, self._type
        return Message, parts, state

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.trace, self.event_time, self._record, self._index, self._type = state

    @property
    def record(self) -> IngressRecord | None:
        """The ingress record that became this message; None if a function has sent the message."""
        return None if self._record is None else self._record(self._index)

    @property
    def timestamp(self) -> datetime | None:
        """The ingress record's time, in UTC; None if a function has sent the message."""
        record = self.record
        return None if record is None else record.timestamp

    def value_typename(self) -> str:
        """Return the name of the value's type."""
        return self.typed_value.typename

    def raw_value(self) -> bytes:
        """Return the encoded value: the bytes that its type has made of it."""
        return self.typed_value.value

    def is_type(self, tpe: Type[Any]) -> bool:
        """Return whether the value's typename is that of ``tpe``, or of a type that ``tpe`` upgrades."""
        return tpe.reads(self.typed_value.typename)

    def as_type(self, tpe: Type[T]) -> T:
        """Decode the value as a value of the type ``tpe``.

        The value may have another typename, if its bytes decode as this type. But no primitive type decodes a value of
        another primitive type: the bytes of a long are those of another number as a double. The result is None if the
        message has no value; SDKs of other languages can send such messages.

        Raises:
            ValueDecodeError: if the type cannot decode the bytes.
            FunctionError: if a service that the type needs, such as a schema registry, does not
                answer.
        """
        typename, value = self.typed_value
        if value is None:
            return None
        try:
            if typename in WRAPPED and tpe.typename in WRAPPED and not tpe.reads(typename):
                raise TypeError(_OTHER_PRIMITIVE)
            return tpe.decode(typename, value)
        except FunctionError:  # the value may be right, but cannot be decoded now
            raise
        except Exception as error:  # noqa: BLE001 - it is the cause, or may not be shown
            failure = does_not_decode(self, tpe, error)
            raise failure from failure.__cause__

    def value(self) -> Any:
        """Decode the value with the registered type that has the value's typename.

        Raises:
            ValueDecodeError: if no such type is registered, or the type cannot decode the bytes.
        """
        type_ = default_types.find(self.typed_value.typename)
        if type_ is None:
            raise ValueDecodeError(
                f"message to {self.target_typename}/{self.target_id}: "
                f"no type named {self.typed_value.typename!r} is registered; define it with "
                "SimpleType.simple_immutable_type_from, or read the bytes with raw_value()"
            )
        return self.as_type(type_)

    def is_bool(self) -> bool:
        """Return whether the value is a bool."""
        return self.is_type(BoolType)

    def as_bool(self) -> bool:
        """Decode the value as a bool."""
        return self.as_type(BoolType)

    def is_int(self) -> bool:
        """Return whether the value is a 32-bit integer."""
        return self.is_type(IntType)

    def as_int(self) -> int:
        """Decode the value as a 32-bit integer."""
        return self.as_type(IntType)

    def is_long(self) -> bool:
        """Return whether the value is a 64-bit integer."""
        return self.is_type(LongType)

    def as_long(self) -> int:
        """Decode the value as a 64-bit integer."""
        return self.as_type(LongType)

    def is_float(self) -> bool:
        """Return whether the value is a 32-bit float."""
        return self.is_type(FloatType)

    def as_float(self) -> float:
        """Decode the value as a 32-bit float."""
        return self.as_type(FloatType)

    def is_double(self) -> bool:
        """Return whether the value is a 64-bit float."""
        return self.is_type(DoubleType)

    def as_double(self) -> float:
        """Decode the value as a 64-bit float."""
        return self.as_type(DoubleType)

    def is_string(self) -> bool:
        """Return whether the value is a string."""
        return self.is_type(StringType)

    def as_string(self) -> str:
        """Decode the value as a string."""
        return self.as_type(StringType)

    def __repr__(self) -> str:
        value = self.typed_value
        size = f"{len(value.value)} bytes" if value.has_value else "no value"
        return (
            f"Message({self.target_typename!r}, {self.target_id!r}, "
            f"{self.typed_value.typename!r}, {size})"
        )


def does_not_decode(
    message: Message,
    type_: Type[Any] | None,
    error: Exception,
    reader: Type[Any] | None = None,
) -> ValueDecodeError:
    """Return the error, with its cause, for a message whose value cannot be decoded as a type.

    Args:
        message: the message.
        type_: the type; None for the registered type that has the value's typename.
        error: the exception that the type has raised.
        reader: the type that has raised it, if that is neither of these two: the type of a handler's annotation.
    """
    typename = message.typed_value.typename
    declared = default_types.find(typename)
    # The bytes are a secret if one of the types says so.
    hiding = next((each for each in (type_, reader, declared) if each and each.is_secret), None)
    text = (
        f"message to {message.target_typename}/{message.target_id}: its value "
        f"(declared as {typename}, {len(message.typed_value.value)} bytes) "
        f"does not decode as {type_.typename if type_ else typename}: "
    )
    if hiding is None:
        return caused(ValueDecodeError(f"{text}{type(error).__name__}: {error}"), error)
    return caused(ValueDecodeError(text + reason(error, hiding)), None)


class ReceivedMessage(Message):
    """A message as its target receives it; nothing is checked, as the sender has done so.

    Args:
        target: the address that receives the message.
        typed_value: the value.
        find_record: returns the ingress record of a message by its index; None if a function sent it.
        index: the index of the message, with which ``find_record`` is called.
    """

    __slots__ = ()

    def __init__(
        self, target: Address, typed_value: TypedValue, find_record: FindRecord | None, index: int
    ) -> None:
        self.target_typename = target.typename
        self.target_id = target.id
        self.typed_value = typed_value
        self.trace = None
        self.event_time = None
        self._record = find_record
        self._index = index
        self._type = None


def _check_id(target_typename: str, target_id: Any) -> None:
    if not (isinstance(target_id, str) and target_id):
        raise DefinitionError(
            f"a message to {target_typename} needs an id, which must be a string that is not "
            f"empty, not {target_id!r}"
        )
    try:
        target_id.encode()
    except UnicodeEncodeError as error:
        raise DefinitionError(
            f"a message cannot be sent to the id {target_id!r}, which UTF-8 cannot encode: {error}"
        ) from None


def message_to_send(message: Message) -> Message:
    """Return a copy of a message: the function may change its own object, and send it again.

    Raises:
        DefinitionError: if the function has given it an invalid target.
    """
    checked_typename(message.target_typename)
    id_ = message.target_id
    if not (type(id_) is str and id_ and id_.isascii()):  # a short way for most of them
        _check_id(message.target_typename, id_)
    return message.__copy__()


def type_of(message: Message) -> Type[Any] | None:
    """Return the type that has encoded the value of a message; None if the type is not known."""
    return message._type  # noqa: SLF001 - no part of the API


def message_to(target: Address, value: Any, value_type: Type[Any] | None = None) -> Message:
    """Return a message with a value; without a type, the type of the value's class encodes it.

    Raises:
        DefinitionError: if the value cannot be encoded, or the id is empty.
    """
    type_ = type_of_value(value) if value_type is None else value_type
    message = Message(target.typename, target.id, typed(value, type_))
    message._type = type_  # noqa: SLF001 - the constructor takes encoded values
    return message


def message_builder(  # noqa: PLR0913 - one keyword per primitive type, as users know it
    target_typename: str,
    target_id: str,
    *,
    int_value: int | None = None,
    float_value: float | None = None,
    long_value: int | None = None,
    str_value: str | None = None,
    double_value: float | None = None,
    bool_value: bool | None = None,
    value: Any = None,
    value_type: Type[Any] | None = None,
) -> Message:
    """Build a message to a function from exactly one value.

    Args:
        target_typename: the target's type, ``namespace/name``.
        target_id: the target's id, not empty.
        int_value: a 32-bit integer.
        float_value: a 32-bit float.
        long_value: a 64-bit integer.
        str_value: a string.
        double_value: a 64-bit float.
        bool_value: a bool.
        value: any other value, together with ``value_type``.
        value_type: the type to encode ``value`` with.

    Raises:
        DefinitionError: on an ill-formed typename, an empty id, no value or several, a value
            without its type, or a value that its type cannot encode.

    >>> message_builder("com.example.fns/greeter", "Ada", int_value=5).as_int()
    5
    """
    target_typename = checked_typename(target_typename)
    values = [
        (candidate, type_)
        for candidate, type_ in (
            (int_value, IntType),
            (float_value, FloatType),
            (long_value, LongType),
            (str_value, StringType),
            (double_value, DoubleType),
            (bool_value, BoolType),
            (value, value_type),
        )
        if candidate is not None
    ]
    if len(values) != 1:
        raise DefinitionError(
            f"a message to {target_typename}/{target_id} needs exactly one value, not {len(values)}"
        )
    return Message(target_typename, target_id, typed(*values[0]))
