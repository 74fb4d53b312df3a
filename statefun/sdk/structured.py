# SPDX-License-Identifier: Apache-2.0
"""Types of structured values: JSON and MessagePack of classes, and Protobuf messages.

msgspec encodes and decodes dataclasses, attrs classes and what Python's annotations can say beside
them, and ignores fields that a class does not have, so that classes may grow. Of Pydantic models,
their own methods do. Neither package is imported before a type needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, overload

from google.protobuf.message import Message as ProtobufMessage

from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import (
    are_same,
    field_problem,
    forget_decoders,
    is_class,
    is_pydantic,
    text_of_annotation,
)
from statefun.sdk.types import SimpleType, Type, TypeSerializer, default_types, simple_type

T = TypeVar("T")
P = TypeVar("P", bound=ProtobufMessage)

Format = Literal["json", "msgpack"]


class StructuredType(Type[T]):
    """The type of the values that an annotation allows, as JSON or MessagePack."""

    def __init__(
        self,
        typename: str,
        annotation: Any,
        encoding: Format = "json",
        upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
        *,
        is_compared: bool = True,
    ) -> None:
        python_type = None if annotation is Any else annotation
        super().__init__(typename, python_type=python_type, upgrades=upgrades)
        self._annotation = annotation
        self._encoding: Format = encoding
        self._is_compared = is_compared
        self._serializer: TypeSerializer[T] | None = None
        try:
            problem = field_problem(annotation)
            if problem is None:
                self.serializer()
        except Exception as error:  # noqa: BLE001 - reading a class may run its own code
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            raise DefinitionError(
                f"type {typename}: {text_of_annotation(annotation)} cannot be decoded: {problem}"
            )

    def serializer(self) -> TypeSerializer[T]:
        """Return the serializer of this type."""
        if self._serializer is None:
            self._serializer = _serializer(
                self._annotation, self._encoding, is_compared=self._is_compared
            )
        return self._serializer

    @property
    def is_json(self) -> bool:
        """Whether its values are JSON."""
        return self._encoding == "json"

    def origin(self) -> str:
        """Return where the class of its values comes from."""
        return f"{text_of_annotation(self._annotation)} as {self._encoding}"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_serializer": None}  # decoders cannot be pickled


class _Serializer(TypeSerializer[T]):
    """Encodes values, and makes sure that they come back when they are decoded.

    A field that holds what its annotation does not allow would otherwise show where the value is
    read, maybe months later, and not where it was made.
    """

    def __init__(
        self,
        python_type: type | None,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
        *,
        is_compared: bool = True,
    ) -> None:
        self._is_compared = is_compared
        self._python_type = python_type
        self._encode = encode
        self.deserialize = decode  # type: ignore[method-assign] # saves a call

    def serialize(self, value: T, /) -> bytes:
        """Encode ``value``."""
        class_ = self._python_type
        if class_ is not None and type(value) is not class_:
            raise TypeError(f"a value of {class_.__name__} is wanted")
        content = self._encode(value)
        again = self.deserialize(content)
        if self._is_compared and again != value and not are_same(again, value):
            raise TypeError(f"it would come back as {again!r}")
        return content

    def deserialize(self, value: bytes, /) -> T:
        """Decode ``value``."""
        raise NotImplementedError


def _serializer(annotation: Any, encoding: Format, *, is_compared: bool) -> TypeSerializer[Any]:
    if is_pydantic(annotation):
        return _pydantic_serializer(annotation, encoding)
    import msgspec  # noqa: PLC0415 - workers of programs without structured types do without

    class_ = annotation if _is_concrete(annotation) else None
    if encoding == "json":
        serializer = _Serializer(
            class_,
            msgspec.json.Encoder().encode,
            msgspec.json.Decoder(annotation).decode,
            is_compared=is_compared,
        )
    else:
        serializer = _Serializer(
            class_,
            msgspec.msgpack.Encoder().encode,
            msgspec.msgpack.Decoder(annotation).decode,
            is_compared=is_compared,
        )
    forget_decoders(annotation)
    return serializer


def _is_concrete(annotation: Any) -> bool:
    """Tell whether the values of an annotation have it as their class; not so a TypedDict."""
    return is_class(annotation) and not issubclass(annotation, dict)


def _pydantic_serializer(model: Any, encoding: Format) -> TypeSerializer[Any]:
    # What others write has the aliases of fields, and so has what is written for them, unless
    # that would not be read again.
    fields = model.model_fields.values()
    by_alias = all(field.serialization_alias == field.validation_alias for field in fields)
    written: dict[str, Any] = {"by_alias": by_alias, "round_trip": True, "warnings": False}
    if encoding == "json":

        def decode_json(value: bytes) -> Any:
            return model.model_validate_json(value, by_alias=True, by_name=True)

        return _Serializer(
            model, lambda value: value.model_dump_json(**written).encode(), decode_json
        )
    import msgspec  # noqa: PLC0415 - as above

    def encode(value: Any) -> bytes:
        return msgspec.msgpack.encode(value.model_dump(mode="json", **written))

    def decode(value: bytes) -> Any:
        return model.model_validate(msgspec.msgpack.decode(value), by_alias=True, by_name=True)

    return _Serializer(model, encode, decode)


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@overload
def make_json_type(typename: str) -> SimpleType[Any]: ...


@overload
def make_json_type(
    typename: str,
    python_type: type[T],
    *,
    upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
) -> Type[T]: ...


def make_json_type(
    typename: str,
    python_type: Any = None,
    *,
    upgrades: Mapping[Type[Any], Callable[[Any], Any]] | None = None,
) -> Type[Any]:
    """Make and register a type whose values are JSON documents in UTF-8.

    Args:
        typename: ``namespace/name``, as ``valueType`` in module.yaml names it.
        python_type: a dataclass, an attrs class, a Pydantic model, or anything else that an
            annotation can say, such as ``list[int]``; values are checked when they are encoded
            and decoded. If not given, they are whatever the module ``json`` reads and writes.
        upgrades: older types, whose values are read with them, and made into values of this type
            by a function each.

    Raises:
        DefinitionError: if the typename is ill-formed or belongs to another type, or values of
            ``python_type`` cannot be decoded.

    >>> make_json_type("com.example/Order").serializer().serialize({"item": 7})
    b'{"item": 7}'
    >>> import attrs
    >>> @attrs.frozen
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> points = make_json_type("com.example/JsonPoint", Point)
    >>> points.serializer().deserialize(b'{"x": 1, "color": "red"}')
    Point(x=1, y=0)
    """
    if python_type is None and upgrades is None:
        return simple_type(typename, _json_bytes, json.loads)
    return default_types.add(StructuredType(typename, python_type or Any, "json", upgrades))


def make_msgpack_type(
    typename: str,
    python_type: type[T] | None = None,
    *,
    upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
) -> Type[T]:
    r"""Make and register a type whose values are encoded in MessagePack: smaller than JSON.

    The arguments and errors are those of :func:`make_json_type`.

    >>> pairs = make_msgpack_type("com.example/Pairs", dict[str, int])
    >>> pairs.serializer().serialize({"a": 1})
    b'\x81\xa1a\x01'
    """
    return default_types.add(StructuredType(typename, python_type or Any, "msgpack", upgrades))


def make_protobuf_type(cls: type[P], namespace: str | None = None) -> SimpleType[P]:
    """Make and register a type for a Protobuf message class.

    Args:
        cls: the generated message class.
        namespace: of the typename; the name is the message's full name.
            ``type.googleapis.com`` if not given.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> make_protobuf_type(Duration).typename
    'type.googleapis.com/google.protobuf.Duration'
    """
    typename = f"{namespace or 'type.googleapis.com'}/{cls.DESCRIPTOR.full_name}"
    return simple_type(typename, cls.SerializeToString, cls.FromString, python_type=cls)
