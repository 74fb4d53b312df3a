# SPDX-License-Identifier: Apache-2.0
"""Typed values: how Python objects become bytes with a typename, and back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import attrs
from google.protobuf.message import Message as ProtobufMessage

from statefun.protocol import types_pb2
from statefun.sdk.address import RESERVED, TypeName, is_reserved, is_unicode
from statefun.sdk.errors import DefinitionError

T = TypeVar("T")
P = TypeVar("P", bound=ProtobufMessage)

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""The largest value, in bytes, that a message or a state can hold."""


class TypedValue(NamedTuple):
    """An encoded value and the name of its type: the form in which values travel and are stored."""

    typename: str
    value: bytes

    @property
    def has_value(self) -> bool:
        """Whether there is a value, if only an empty one.

        There is none in a message of another language's SDK that was sent without; then the bytes
        are None.
        """
        return self.value is not None


@runtime_checkable
class TypeSerializer(Protocol[T]):
    """Turns values of one type into bytes and back; subclass it, or have methods of these names."""

    @abstractmethod
    def serialize(self, value: T, /) -> bytes:
        """Encode ``value``."""

    @abstractmethod
    def deserialize(self, value: bytes, /) -> T:
        """Decode ``value``; any exception means that the bytes are not of this type."""


@attrs.frozen
class _Functions(Generic[T]):
    """A serializer made of two functions."""

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]


class Type(ABC, Generic[T]):
    """A named type of values; subclass it, or use :class:`SimpleType` for two functions."""

    def __init__(self, typename: str) -> None:
        self.typename = str(TypeName.parse(typename))

    @abstractmethod
    def serializer(self) -> TypeSerializer[T]:
        """Return the serializer of this type."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.typename!r})"


class SimpleType(Type[T]):
    """A type made of two functions.

    >>> point = SimpleType.simple_immutable_type_from(
    ...     "com.example/Point", serialize_fn=lambda p: bytes(p), deserialize_fn=tuple
    ... )
    >>> point.serializer().deserialize(point.serializer().serialize((1, 2)))
    (1, 2)
    """

    def __init__(
        self,
        typename: str,
        serialize_fn: Callable[[T], bytes],
        deserialize_fn: Callable[[bytes], T],
    ) -> None:
        super().__init__(typename)
        for name, fn in (("serialize_fn", serialize_fn), ("deserialize_fn", deserialize_fn)):
            if not callable(fn):
                raise DefinitionError(f"type {typename}: {name} is {fn!r}, not a function")
        self.deserialize_fn = deserialize_fn
        self._serializer = _Functions(serialize_fn, deserialize_fn)

    def serializer(self) -> TypeSerializer[T]:
        """Return the serializer of this type."""
        return self._serializer

    @staticmethod
    def simple_immutable_type_from(
        typename: str,
        serialize_fn: Callable[[T], bytes],
        deserialize_fn: Callable[[bytes], T],
    ) -> SimpleType[T]:
        """Make and register a type whose values are immutable.

        Args:
            typename: ``namespace/name``, as ``valueType`` in module.yaml names it.
            serialize_fn: from a value to its bytes.
            deserialize_fn: from bytes to the value; may raise on bytes that are no such value.

        Raises:
            DefinitionError: if the typename is ill-formed or belongs to another type.
        """
        return default_types.add(SimpleType(typename, serialize_fn, deserialize_fn))


class TypeRegistry:
    """Maps typenames to types, so that values can be decoded by the name they carry.

    >>> default_types.find("io.statefun.types/int")
    SimpleType('io.statefun.types/int')
    """

    def __init__(self, types: Iterable[Type[Any]] = ()) -> None:
        self._types = {type_.typename: type_ for type_ in types}

    def add(self, type_: Type_) -> Type_:
        """Register ``type_`` and return it; the same definition may be registered again.

        Raises:
            DefinitionError: if the typename already belongs to a different type.
        """
        known = self._types.get(type_.typename)
        if known is not None and _origin(known) != _origin(type_):
            raise DefinitionError(
                f"typename {type_.typename!r} already belongs to another type ({_origin(known)}); "
                "give one of the two another name"
            )
        self._types[type_.typename] = type_
        return type_

    def find(self, typename: str) -> Type[Any] | None:
        """Return the type of that name, or None."""
        return self._types.get(typename)

    def update(self, other: TypeRegistry) -> None:
        """Take over all types of ``other``, which win over equal names."""
        self._types.update(other._types)


Type_ = TypeVar("Type_", bound=Type[Any])


def _origin(type_: Type[Any]) -> str:
    """Where a type's code comes from: equal for a module or notebook cell that runs again."""
    if not isinstance(type_, SimpleType):
        return f"{type(type_).__module__}.{type(type_).__qualname__}"
    fn = type_.deserialize_fn
    owner = getattr(fn, "__self__", None)
    if attrs.has(type(owner)):  # the difference is in its fields
        return repr(owner)
    return f"{getattr(fn, '__module__', None)}.{getattr(fn, '__qualname__', fn)}"


default_types = TypeRegistry()
"""The process's registry: :func:`simple_type`, its siblings and the primitive types add to it."""


def simple_type(
    typename: str, serialize_fn: Callable[[T], bytes], deserialize_fn: Callable[[bytes], T]
) -> SimpleType[T]:
    """Make and register a :class:`SimpleType`."""
    return SimpleType.simple_immutable_type_from(typename, serialize_fn, deserialize_fn)


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def make_json_type(typename: str) -> SimpleType[Any]:
    """Make and register a type whose values are JSON documents in UTF-8.

    >>> make_json_type("com.example/Order").serializer().serialize({"item": 7})
    b'{"item": 7}'
    """
    return simple_type(typename, _json_bytes, json.loads)


def make_protobuf_type(cls: type[P], namespace: str | None = None) -> SimpleType[P]:
    """Make and register a type for a Protobuf message class.

    Args:
        cls: the generated message class.
        namespace: of the typename; the name is the message's full name.
            ``type.googleapis.com`` if not given.
    """
    typename = f"{namespace or 'type.googleapis.com'}/{cls.DESCRIPTOR.full_name}"
    return simple_type(typename, cls.SerializeToString, cls.FromString)


def _wrapper_type(typename: str, wrapper: Any, python_type: type[T]) -> SimpleType[T]:
    """Make a primitive type, encoded as the Protobuf ``wrapper`` with one field ``value``."""

    def serialize(value: T) -> bytes:
        if value is None:  # Protobuf takes it for "not set", and so for zero
            raise TypeError("None is no value")
        encoded: bytes = wrapper(value=value).SerializeToString()
        return encoded

    def deserialize(value: bytes) -> T:
        return python_type(wrapper.FromString(value).value)  # type: ignore[call-arg]

    serialize.__qualname__ = deserialize.__qualname__ = typename
    return simple_type(typename, serialize, deserialize)


BoolType = _wrapper_type("io.statefun.types/bool", types_pb2.BooleanWrapper, bool)
"""True or False."""
IntType = _wrapper_type("io.statefun.types/int", types_pb2.IntWrapper, int)
"""32 bits, signed."""
LongType = _wrapper_type("io.statefun.types/long", types_pb2.LongWrapper, int)
"""64 bits, signed."""
FloatType = _wrapper_type("io.statefun.types/float", types_pb2.FloatWrapper, float)
"""32 bits."""
DoubleType = _wrapper_type("io.statefun.types/double", types_pb2.DoubleWrapper, float)
"""64 bits."""
StringType = _wrapper_type("io.statefun.types/string", types_pb2.StringWrapper, str)
"""Text, in UTF-8."""


def _big_endian_type(typename: str, size: int) -> SimpleType[int]:
    """Make a type of whole numbers as Kafka's own serializers for Java write them."""

    def serialize(value: int) -> bytes:
        return value.to_bytes(size, "big", signed=True)

    def deserialize(value: bytes) -> int:
        if len(value) != size:
            raise ValueError(f"a number of {size} bytes does not have {len(value)}")
        return int.from_bytes(value, "big", signed=True)

    serialize.__qualname__ = deserialize.__qualname__ = typename
    return simple_type(typename, serialize, deserialize)


KafkaIntType = _big_endian_type("io.statefun.kafka/int", 4)
KafkaLongType = _big_endian_type("io.statefun.kafka/long", 8)


def as_typed_value(value: Any) -> TypedValue:
    """Return a typed value, also of one in Protobuf, as the request-reply protocol has it.

    Raises:
        DefinitionError: if it is neither.
    """
    if isinstance(value, TypedValue):
        return value
    try:
        content: Any = value.value if value.has_value else None
        return TypedValue(value.typename, content)
    except AttributeError:
        raise DefinitionError(f"a typed value is a typename and bytes, not {value!r}") from None


def typed(value: Any, type_: Type[Any] | None) -> TypedValue:
    """Encode ``value`` with ``type_``.

    Raises:
        DefinitionError: if the type is missing or cannot encode the value.
    """
    if not isinstance(type_, Type):
        raise DefinitionError(f"value {value!r} needs its value_type, a Type, not {type_!r}")
    return encoded(value, type_)


def encoded(value: Any, type_: Type[Any]) -> TypedValue:
    """Encode ``value`` with ``type_``, which is known to be a type.

    Raises:
        DefinitionError: if the type cannot encode the value.
    """
    try:
        content = type_.serializer().serialize(value)
        if not isinstance(content, bytes):
            raise TypeError(f"its serializer returned {type(content).__name__}, not bytes")
    except Exception as error:
        raise DefinitionError(
            f"{value!r} does not encode as {type_.typename}: {type(error).__name__}: {error}"
        ) from error
    return check_value(TypedValue(type_.typename, content))


def check_value(typed_value: TypedValue) -> TypedValue:
    """Return a value that can be sent and stored.

    Raises:
        DefinitionError: if it has more than 64 MiB, is no value at all, or of a type of the
            runtime's own.
    """
    typename, content = typed_value
    if not (isinstance(typename, str) and isinstance(content, bytes)):
        raise DefinitionError(f"a typed value is a typename and bytes, not {typed_value!r}")
    problem = _typename_problem(typename)
    if problem:
        raise DefinitionError(problem)
    if len(content) > MAX_VALUE_BYTES:
        raise DefinitionError(
            f"a value of type {typename} has {len(content):,} bytes, and {MAX_VALUE_BYTES:,} are "
            "the most that can be sent or stored; keep it elsewhere, and send where it is"
        )
    return typed_value


@lru_cache
def _typename_problem(typename: str) -> str:
    """Return why no value can have that typename; empty if one can."""
    if not is_unicode(typename):
        return f"typename {typename!r} holds a lone surrogate"
    return f"typename {typename!r} {RESERVED}" if is_reserved(typename) else ""
