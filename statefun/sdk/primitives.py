# SPDX-License-Identifier: Apache-2.0
"""Types of single values: StateFun's primitive types, bytes, and numbers as Kafka's clients encode them."""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeVar

from statefun.protocol import types_pb2
from statefun.sdk.types import SimpleType, simple_type

T = TypeVar("T")


def _wrapper_type(typename: str, wrapper: Any, python_type: type[T]) -> SimpleType[T]:
    """Make a primitive type, encoded as the Protobuf ``wrapper`` with one field ``value``."""

    def serialize(value: T) -> bytes:
        if value is None:  # Protobuf takes it for "not set", and so for zero
            raise TypeError("None cannot be encoded")
        message = wrapper(value=value)
        if type(value) is not python_type or message.value != value:
            _check_same(value, message.value, python_type)
        encoded: bytes = message.SerializeToString()
        return encoded

    def deserialize(value: bytes) -> T:
        return python_type(wrapper.FromString(value).value)  # type: ignore[call-arg]

    serialize.__qualname__ = deserialize.__qualname__ = typename
    return simple_type(typename, serialize, deserialize, python_type=python_type)


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


BoolType = _wrapper_type("io.statefun.types/bool", types_pb2.BooleanWrapper, bool)
"""The type of the values True and False."""
# If several types have one class, its values are sent as the type that is registered first.
LongType = _wrapper_type("io.statefun.types/long", types_pb2.LongWrapper, int)
"""The type of signed whole numbers of 64 bits."""
IntType = _wrapper_type("io.statefun.types/int", types_pb2.IntWrapper, int)
"""The type of signed whole numbers of 32 bits."""
DoubleType = _wrapper_type("io.statefun.types/double", types_pb2.DoubleWrapper, float)
"""The type of floating-point numbers of 64 bits."""
FloatType = _wrapper_type("io.statefun.types/float", types_pb2.FloatWrapper, float)
"""The type of floating-point numbers of 32 bits."""
StringType = _wrapper_type("io.statefun.types/string", types_pb2.StringWrapper, str)
"""The type of strings, in UTF-8."""


def _bytes(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a value of class {type(value).__name__} is not bytes")
    return value


BytesType = simple_type("io.statefun.types/bytes", _bytes, _bytes, python_type=bytes)
"""The type of bytes, which stay as they are."""


def _big_endian_type(typename: str, size: int) -> SimpleType[int]:
    """Make a type of whole numbers in big-endian bytes, as Kafka's serializers for Java write them."""

    def serialize(value: int) -> bytes:
        if isinstance(value, bool):
            raise TypeError("a bool is not a number")
        return value.to_bytes(size, "big", signed=True)

    def deserialize(value: bytes) -> int:
        if len(value) != size:
            raise ValueError(f"a number of {size} bytes cannot be decoded from {len(value)} bytes")
        return int.from_bytes(value, "big", signed=True)

    serialize.__qualname__ = deserialize.__qualname__ = typename
    return simple_type(typename, serialize, deserialize, python_type=int)


KafkaIntType = _big_endian_type("io.statefun.kafka/int", 4)
KafkaLongType = _big_endian_type("io.statefun.kafka/long", 8)
