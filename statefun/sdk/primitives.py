# SPDX-License-Identifier: Apache-2.0
"""Types of single values: StateFun's primitive types, bytes, and numbers as Kafka's clients encode them."""

from __future__ import annotations

import struct
from math import isfinite
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError

from statefun.protocol import types_pb2
from statefun.sdk.types import SimpleType, simple_type

T = TypeVar("T")


class _Wrapped(Generic[T]):
    """Encodes a value of a primitive type as a Protobuf message: a ``wrapper`` with the value in its only field.

    Args:
        typename: the name of the type.
        wrapper: the class of the Protobuf message.
        python_type: the class of the values.
        tag: Protobuf's tag of the field, with which all values except zero and the empty string begin.
    """

    def __init__(self, typename: str, wrapper: Any, python_type: type[T], tag: int) -> None:
        self._typename = typename
        self._wrapper = wrapper
        self._python_type = python_type
        self._tag = tag

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._typename, self._wrapper, self._python_type, self._tag)

    def serialize(self, value: T) -> bytes:
        """Encode ``value``."""
        if value is None:  # Protobuf takes it for "not set", and so for zero
            raise TypeError("None cannot be encoded")
        message = self._wrapper(value=value)
        if type(value) is not self._python_type or message.value != value:
            _check_same(value, message.value, self._python_type)
        encoded: bytes = message.SerializeToString()
        return encoded

    def deserialize(self, value: bytes) -> T:
        """Decode ``value``.

        Raises:
            DecodeError: if ``value`` is of another type, also if Protobuf would take it for fields that it does not know,
                and so for zero.
        """
        if value and value[0] != self._tag:
            raise DecodeError(
                f"the bytes are of another type: those of {self._typename} begin with 0x{self._tag:02X}"
            )
        return self._python_type(self._wrapper.FromString(value).value)  # type: ignore[call-arg]

    def __repr__(self) -> str:
        return self._typename


# The usual values take a short way; Protobuf takes all others, with the same results.


class _Number(_Wrapped[T]):
    """Encodes numbers of a fixed size.

    Args:
        typename: as above.
        wrapper: as above.
        python_type: as above.
        tag: as above.
        layout: the layout of the encoded number: a byte for the tag, and the number.
    """

    def __init__(
        self, typename: str, wrapper: Any, python_type: type[T], tag: int, layout: str
    ) -> None:
        super().__init__(typename, wrapper, python_type, tag)
        self._layout = layout
        self._struct = struct.Struct(layout)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self._typename, self._wrapper, self._python_type, self._tag, self._layout
        return type(self), parts

    def serialize(self, value: T) -> bytes:
        """Encode ``value``."""
        if type(value) is self._python_type and value:  # Protobuf omits zero
            try:
                return self._struct.pack(self._tag, value)
            except struct.error:
                return super().serialize(value)
        return super().serialize(value)

    def deserialize(self, value: bytes) -> T:
        """Decode ``value``."""
        if len(value) == self._struct.size and value[0] == self._tag:
            number: T = self._struct.unpack(value)[1]
            return number
        return super().deserialize(value)


class _Text(_Wrapped[Any]):
    """Encodes strings."""

    def serialize(self, value: Any) -> bytes:
        """Encode ``value``."""
        if type(value) is str and value.isascii() and 0 < len(value) < _LONG:
            return b"%c%c%b" % (_TEXT_TAG, len(value), value.encode())
        return super().serialize(value)

    def deserialize(self, value: bytes) -> Any:
        """Decode ``value``."""
        size = len(value) - 2
        if 0 < size < _LONG and value[0] == _TEXT_TAG and value[1] == size:
            text = value[2:]
            if text.isascii():
                return text.decode()
        return super().deserialize(value)


_TEXT_TAG: Final = 0x0A
_LONG: Final = 128
"""The smallest length that takes more than one byte in Protobuf's encoding."""


def _type_of(wrapped: _Wrapped[T], python_type: type[T]) -> SimpleType[T]:
    return simple_type(
        repr(wrapped), wrapped.serialize, wrapped.deserialize, python_type=python_type
    )


def _check_same(value: Any, again: Any, python_type: type) -> None:
    """Check that a value is the same after encoding and decoding: 5 must not become True, nor 1e300 infinity.

    Raises:
        TypeError: if ``again``, the decoded value, differs from ``value``; only a float may differ,
            by rounding to 32 bits.
    """
    is_rounded = type(value) is float and (isfinite(again) or not isfinite(value))
    is_other_bool = isinstance(value, bool) and python_type is not bool
    if is_other_bool or (again != value and not is_rounded):
        raise TypeError(f"decoding would return another value, {again!r}")


BoolType = _type_of(_Wrapped("io.statefun.types/bool", types_pb2.BooleanWrapper, bool, 0x08), bool)
"""The type of the values True and False."""
# If several types have one class, its values are sent as the type that is registered first.
LongType = _type_of(_Number("io.statefun.types/long", types_pb2.LongWrapper, int, 0x09, "<Bq"), int)
"""The type of signed whole numbers of 64 bits."""
IntType = _type_of(_Number("io.statefun.types/int", types_pb2.IntWrapper, int, 0x0D, "<Bi"), int)
"""The type of signed whole numbers of 32 bits."""
DoubleType = _type_of(
    _Number("io.statefun.types/double", types_pb2.DoubleWrapper, float, 0x09, "<Bd"), float
)
"""The type of floating-point numbers of 64 bits."""
FloatType = _type_of(
    _Wrapped("io.statefun.types/float", types_pb2.FloatWrapper, float, 0x0D), float
)
"""The type of floating-point numbers of 32 bits."""
StringType: SimpleType[str] = _type_of(
    _Text("io.statefun.types/string", types_pb2.StringWrapper, str, _TEXT_TAG), str
)
"""The type of strings, in UTF-8."""


def _bytes(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a value of class {type(value).__name__} is not bytes")
    return value


WRAPPED: Final = frozenset(
    each.typename for each in (BoolType, IntType, LongType, FloatType, DoubleType, StringType)
)
"""The typenames of the types with wrappers; the bytes of some of them also decode as others of them, as other values."""


BytesType = simple_type("io.statefun.types/bytes", _bytes, _bytes, python_type=bytes)
"""The type of bytes, which stay as they are."""


class _BigEndian:
    """Encodes whole numbers in big-endian bytes, as Kafka's serializers for Java write them."""

    def __init__(self, typename: str, size: int) -> None:
        self._typename = typename
        self._size = size

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._typename, self._size)

    def serialize(self, value: Any) -> bytes:
        """Encode ``value``."""
        if isinstance(value, bool):
            raise TypeError("a bool is not a number")
        encoded: bytes = value.to_bytes(self._size, "big", signed=True)
        return encoded

    def deserialize(self, value: bytes) -> int:
        """Decode ``value``."""
        if len(value) != self._size:
            raise ValueError(
                f"a number of {self._size} bytes cannot be decoded from {len(value)} bytes"
            )
        return int.from_bytes(value, "big", signed=True)


def _big_endian_type(typename: str, size: int) -> SimpleType[int]:
    numbers = _BigEndian(typename, size)
    return simple_type(typename, numbers.serialize, numbers.deserialize, python_type=int)


KafkaIntType = _big_endian_type("io.statefun.kafka/int", 4)
KafkaLongType = _big_endian_type("io.statefun.kafka/long", 8)
