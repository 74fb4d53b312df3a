# SPDX-License-Identifier: Apache-2.0
"""Types of structured values: objects of classes, as JSON or MessagePack, and Protobuf messages.

msgspec encodes and decodes dataclasses, attrs classes and other annotations, such as ``list[int]``. It
ignores fields that a class does not have, so that a program can still decode values after a
newer program has added fields to the class. Pydantic encodes and decodes its models. Neither package is
imported before a type needs it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from google.protobuf.message import Message as ProtobufMessage

from statefun.sdk.annotated_parts import annotations_within
from statefun.sdk.containers import Compare, comparison
from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import (
    allows_anything,
    are_same,
    field_problem,
    forget_decoders,
    is_class,
    is_pydantic,
    pydantic_models,
    short_text,
    text_of_annotation,
)
from statefun.sdk.types import SimpleType, Type, TypeSerializer, default_types, simple_type

T = TypeVar("T")
P = TypeVar("P", bound=ProtobufMessage)

Format = Literal["json", "msgpack"]


class StructuredType(Type[T]):
    """A type of the values that an annotation allows, encoded as JSON or MessagePack."""

    def __init__(
        self,
        typename: str,
        annotation: Any,
        encoding: Format = "json",
        upgrades: Mapping[Type[Any], Callable[[Any], T]] | None = None,
    ) -> None:
        python_type = None if annotation is Any else annotation
        super().__init__(typename, python_type=python_type, upgrades=upgrades)
        self._annotation = annotation
        self._encoding: Format = encoding
        self._serializer: TypeSerializer[T] | None = None
        self._is_secret = False
        try:
            problem = field_problem(annotation)
            if problem is None:
                self.serializer()
        except Exception as error:  # noqa: BLE001 - reading a class may run its own code
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            raise DefinitionError(
                f"type {typename}: values of {short_text(annotation)} cannot be decoded: {problem}"
            )

    @property
    def is_secret(self) -> bool:
        """Whether the type was registered as secret, or a part of its values is of a secret type.

        Found when it is needed, as a type may be registered as secret after the types that have such parts.
        """
        return self._is_secret or any(
            _is_marked(each)
            for part in annotations_within(self._annotation)
            for each in self._others(part)
        )

    @is_secret.setter
    def is_secret(self, value: bool) -> None:
        self._is_secret = value

    def _others(self, part: Any) -> Iterable[Type[Any]]:
        """Return the types, except this one, of the values of an annotation."""
        types = (part,) if isinstance(part, Type) else default_types.of_class(part)
        return [each for each in types if each.typename != self.typename]

    def serializer(self) -> TypeSerializer[T]:
        """Return the serializer of this type."""
        if self._serializer is None:
            self._serializer = _serializer(self._annotation, self._encoding)
        return self._serializer

    @property
    def annotation(self) -> Any:
        """The annotation that describes the values, such as a class; ``Any`` if they may be anything."""
        return self._annotation

    @property
    def is_json(self) -> bool:
        """Whether values of this type are encoded as JSON, and not as MessagePack."""
        return self._encoding == "json"

    def origin(self) -> str:
        """Return the module and name of the class of the values, and the encoding."""
        return f"{text_of_annotation(self._annotation)} as {self._encoding}"

    def shape(self) -> str:
        """Return a digest of the JSON Schema of the values; empty if the values have no JSON Schema."""
        try:
            if pydantic_models(self._annotation):
                import pydantic  # noqa: PLC0415 - only programs with Pydantic have models

                schema = pydantic.TypeAdapter(self._annotation).json_schema()
            else:
                import msgspec  # noqa: PLC0415 - as below

                schema = msgspec.json.schema(self._annotation)
        except Exception:  # noqa: BLE001 - not every class that can be decoded has a schema
            return ""
        finally:
            forget_decoders(self._annotation)
        return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:16]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_serializer": None}  # decoders cannot be pickled


def _is_marked(type_: Type[Any]) -> bool:
    """Return whether a type was registered as secret, whatever its parts are."""
    # The parts of parts are visited anyway, and those of a class may be of the class itself.
    return type_._is_secret if isinstance(type_, StructuredType) else type_.is_secret  # noqa: SLF001 - a class of this module


_HINT = (
    "; decoding returns only dicts with strings as keys, lists, strings, numbers, True, False and None "
    "unchanged: for other values make a type of an annotation, such as make_json_type('com.example/Pair', tuple[int, str])"
)
_CONTAINER_HINT = (
    "decoding would return another container, as one of the value's is of a class derived from dict, list, tuple or set, or "
    "of another class than the annotation: convert it first, such as a Counter with dict(...)"
)


class _Serializer(TypeSerializer[T]):
    """Encodes values, and checks that decoding returns the same value.

    Without the check, a value that the annotation of a field does not allow would cause an error only
    when it is read, maybe months after it was written.

    Args:
        python_type: the class of all values; None if values have several classes.
        encode: converts a value to bytes.
        decode: converts bytes to a value.
        is_exact: whether the decoded value must have the same classes in all its parts: necessary if the
            annotation allows any class somewhere.
        compare: compares the classes of the containers in two equal values; None if that is not necessary.
    """

    def __init__(
        self,
        python_type: type | None,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
        *,
        is_exact: bool = False,
        compare: Compare | None = None,
    ) -> None:
        self._is_exact = is_exact
        self._compare = compare
        self._python_type = python_type
        self._encode = encode
        self.deserialize = decode  # type: ignore[method-assign] # saves a call

    def serialize(self, value: T, /) -> bytes:
        """Encode ``value``."""
        class_ = self._python_type
        if class_ is not None and type(value) is not class_:
            raise TypeError(f"the value is not of class {class_.__name__}")
        content = self._encode(value)
        again = self.deserialize(content)
        if (self._is_exact or again != value) and not are_same(again, value):
            hint = _HINT if self._is_exact else ""
            raise TypeError(f"decoding would return another value, {again!r}{hint}")
        if self._compare is not None and not self._compare(again, value):
            raise TypeError(_CONTAINER_HINT)
        return content

    def deserialize(self, value: bytes, /) -> T:
        """Decode ``value``."""
        raise NotImplementedError


def _serializer(annotation: Any, encoding: Format) -> TypeSerializer[Any]:
    if pydantic_models(annotation):
        return _pydantic_serializer(annotation, encoding)
    import msgspec  # noqa: PLC0415 - workers of programs without structured types do without

    class_ = annotation if _is_concrete(annotation) else None
    format_ = msgspec.json if encoding == "json" else msgspec.msgpack
    serializer = _Serializer(
        class_,
        format_.Encoder().encode,
        format_.Decoder(annotation).decode,
        is_exact=allows_anything(annotation),
        compare=comparison(annotation),
    )
    forget_decoders(annotation)
    return serializer


def _is_concrete(annotation: Any) -> bool:
    """Return whether values of an annotation are instances of it, unlike those of a TypedDict."""
    return is_class(annotation) and not issubclass(annotation, dict)


def _pydantic_serializer(annotation: Any, encoding: Format) -> TypeSerializer[Any]:
    import pydantic  # noqa: PLC0415 - only programs with Pydantic have models

    adapter = pydantic.TypeAdapter(annotation)
    class_ = annotation if is_pydantic(annotation) else None
    # Other programs use the aliases of fields. So does this one, unless the aliases for writing
    # and reading differ.
    by_alias = all(
        field.serialization_alias == field.validation_alias
        for model in pydantic_models(annotation)
        for field in model.model_fields.values()
    )
    written: dict[str, Any] = {"by_alias": by_alias, "round_trip": True, "warnings": False}
    if encoding == "json":

        def decode_json(value: bytes) -> Any:
            return adapter.validate_json(value, by_alias=True, by_name=True)

        return _Serializer(class_, lambda value: adapter.dump_json(value, **written), decode_json)
    import msgspec  # noqa: PLC0415 - as above

    def encode(value: Any) -> bytes:
        return msgspec.msgpack.encode(adapter.dump_python(value, mode="json", **written))

    def decode(value: bytes) -> Any:
        return adapter.validate_python(msgspec.msgpack.decode(value), by_alias=True, by_name=True)

    return _Serializer(class_, encode, decode)


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


_json: TypeSerializer[Any] = _Serializer(None, _json_bytes, json.loads, is_exact=True)


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
        python_type: a dataclass, an attrs class, a Pydantic model, or another annotation, such as
            ``list[int]``; values are checked when they are encoded and decoded. If not given, values
            are dicts with strings as keys, lists, strings, finite numbers, True, False and None, and
            nothing else: a tuple would be decoded as a list.
        upgrades: older types, each with a function that converts a value of the older type to a
            value of this type.

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
        return simple_type(typename, _json.serialize, json.loads)
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
        namespace: the namespace of the typename, ``type.googleapis.com`` if not given; the full name of
            the Protobuf message follows the namespace.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> make_protobuf_type(Duration).typename
    'type.googleapis.com/google.protobuf.Duration'
    """
    typename = f"{namespace or 'type.googleapis.com'}/{cls.DESCRIPTOR.full_name}"
    return simple_type(typename, cls.SerializeToString, cls.FromString, python_type=cls)
