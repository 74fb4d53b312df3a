# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from strategies import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, PRIMITIVE_TYPES, types_and_values

from statefun import (
    BoolType,
    DefinitionError,
    DoubleType,
    FloatType,
    IntType,
    LongType,
    SimpleType,
    StringType,
    Type,
    TypeRegistry,
    TypeSerializer,
    make_json_type,
    make_protobuf_type,
    simple_type,
)
from statefun.protocol.request_reply_pb2 import Address as AddressProto
from statefun.sdk.primitives import KafkaIntType
from statefun.sdk.types import default_types


@attrs.frozen
class Point:
    """A class of this module."""

    x: int


def _text_type(typename: str) -> SimpleType[str]:
    return SimpleType(typename, str.encode, bytes.decode)


class _Upper(Type[str]):
    """A type written as a class."""

    def __init__(self) -> None:
        super().__init__("test.types/upper")

    def serializer(self) -> TypeSerializer[str]:
        return _UpperSerializer()


class _UpperSerializer(TypeSerializer[str]):
    def serialize(self, value: str) -> bytes:
        return value.upper().encode()

    def deserialize(self, value: bytes) -> str:
        return value.decode()


@given(types_and_values())
def test_primitive_values_survive_bytes(type_and_value: tuple[Type[Any], Any]) -> None:
    """Each primitive type decodes what it has encoded, the sign of zero and NaN included."""
    type_, value = type_and_value
    serializer = type_.serializer()

    decoded = serializer.deserialize(serializer.serialize(value))

    assert repr(decoded) == repr(value)
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (BoolType, 5),
        (IntType, True),
        (LongType, True),
        (KafkaIntType, True),
        (DoubleType, True),
        (DoubleType, 2**53 + 1),
        (FloatType, 2**24 + 1),
        (FloatType, 1e300),
        (StringType, b"x"),
    ],
    ids=repr,
)
def test_values_that_would_come_back_as_others_are_refused(type_: Type[Any], value: Any) -> None:
    """Where they are made."""
    with pytest.raises(TypeError):
        type_.serializer().serialize(value)


class _Name(str):
    """A text with a class of its own."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("type_", "value", "again"),
    [
        (FloatType, 0.1, 0.10000000149011612),
        (FloatType, math.inf, math.inf),
        (DoubleType, 3, 3.0),
        (StringType, _Name("x"), "x"),
    ],
    ids=repr,
)
def test_values_that_a_type_stands_for(type_: Type[Any], value: Any, again: object) -> None:
    """32 bits round a float; a type names the class that comes back."""
    assert type_.decode(type_.typename, type_.serializer().serialize(value)) == again


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (BoolType, False),
        (IntType, 0),
        (LongType, 0),
        (FloatType, 0.0),
        (DoubleType, 0.0),
        (StringType, ""),
    ],
    ids=repr,
)
def test_default_values_have_no_bytes(type_: Type[Any], value: object) -> None:
    """Zero and the like are empty on the wire, and come back as themselves."""
    serializer = type_.serializer()

    encoded = serializer.serialize(value)

    assert encoded == b""
    assert serializer.deserialize(encoded) == value


@pytest.mark.parametrize(
    ("type_", "tag", "pack", "values"),
    [
        (IntType, b"\x0d", "<i", st.integers(INT_MIN, INT_MAX)),
        (LongType, b"\x09", "<q", st.integers(LONG_MIN, LONG_MAX)),
        (FloatType, b"\x0d", "<f", st.floats(width=32, allow_nan=False)),
        (DoubleType, b"\x09", "<d", st.floats(allow_nan=False)),
    ],
    ids=repr,
)
@given(st.data())
def test_numbers_have_a_fixed_width(
    type_: Type[Any], tag: bytes, pack: str, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """A number other than zero is a tag and its little-endian bytes."""
    value = data.draw(values.filter(bool))

    assert type_.serializer().serialize(value) == tag + struct.pack(pack, value)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (IntType, INT_MAX + 1),
        (IntType, INT_MIN - 1),
        (LongType, LONG_MAX + 1),
        (LongType, LONG_MIN - 1),
    ],
    ids=repr,
)
def test_integers_out_of_range_do_not_encode(type_: Type[Any], value: int) -> None:
    """One beyond the edge is an error, not another number."""
    with pytest.raises(ValueError, match=f"Value out of range: {value}"):
        type_.serializer().serialize(value)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (BoolType, "true"),
        (IntType, 1.5),
        (IntType, "1"),
        (LongType, None),
        (StringType, None),
        (FloatType, "1"),
        (DoubleType, b"1"),
        (StringType, 1),
    ],
    ids=repr,
)
def test_values_of_other_types_do_not_encode(type_: Type[Any], value: object) -> None:
    """Values are not converted silently; None is no zero."""
    with pytest.raises(TypeError):
        type_.serializer().serialize(value)


def test_floats_are_rounded_to_32_bits() -> None:
    """A Python float loses precision as a float, and is refused beyond its range."""
    serializer = FloatType.serializer()

    rounded = serializer.deserialize(serializer.serialize(0.1))

    assert rounded == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    with pytest.raises(TypeError, match="decoding would return another value, inf"):
        serializer.serialize(1e300)


@pytest.mark.parametrize("type_", PRIMITIVE_TYPES, ids=repr)
@pytest.mark.parametrize("raw", [b"Hello Ada", b"\x0d\x01", b"\xff" * 3])
def test_raw_text_is_no_primitive_value(type_: Type[Any], raw: bytes) -> None:
    """Kafka payloads pass unmodified: text that is no wrapper message does not decode."""
    with pytest.raises(DecodeError):
        type_.serializer().deserialize(raw)


def test_strings_decode_as_unicode_only() -> None:
    """A wrapper around invalid UTF-8 does not decode."""
    with pytest.raises(DecodeError, match="bad UTF-8"):
        StringType.serializer().deserialize(b"\x0a\x01\xff")


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (BoolType, "bool"),
        (IntType, "int"),
        (LongType, "long"),
        (FloatType, "float"),
        (DoubleType, "double"),
        (StringType, "string"),
    ],
    ids=repr,
)
def test_primitive_types_are_registered(type_: Type[Any], name: str) -> None:
    """The typenames of the primitive types equal the protocol's."""
    assert type_.typename == f"io.statefun.types/{name}"
    assert default_types.find(type_.typename) is type_
    assert repr(type_) == f"SimpleType('io.statefun.types/{name}')"


def test_a_type_can_be_a_class() -> None:
    """Subclasses of Type need a serializer, and print under their own name."""
    upper = _Upper()

    assert upper.serializer().serialize("Ada") == b"ADA"
    assert repr(upper) == "_Upper('test.types/upper')"


@pytest.mark.parametrize("typename", ["greeting", "", "/greeting", "test.types/"])
def test_a_type_needs_a_whole_typename(typename: str) -> None:
    """A type without a namespace or a name is refused."""
    with pytest.raises(DefinitionError, match="is not of the form <namespace>/<name>"):
        _text_type(typename)


@pytest.mark.parametrize("part", ["serialize_fn", "deserialize_fn"])
def test_a_simple_type_needs_two_functions(part: str) -> None:
    """An argument that is no function is refused, with the argument's name."""
    functions: dict[str, Any] = {"serialize_fn": bytes, "deserialize_fn": tuple, part: "utf-8"}

    with pytest.raises(DefinitionError) as raised:
        SimpleType("test.types/point", **functions)

    assert raised.value.message == f"type test.types/point: {part} must be a function, not 'utf-8'"


def test_simple_types_are_registered_by_their_builder_only() -> None:
    """The builder registers, the constructor does not."""
    built = SimpleType.simple_immutable_type_from("test.types/built", str.encode, bytes.decode)
    _text_type("test.types/constructed")

    assert default_types.find("test.types/built") is built
    assert default_types.find("test.types/constructed") is None


@pytest.mark.parametrize("annotation", [Point, list[Point], dict[str, Point] | None])
def test_types_of_a_module_are_forgotten(annotation: Any) -> None:
    """Types of containers of its classes are as well: the module may be loaded under another name."""
    make_json_type("test.types/points", annotation)

    default_types.forget("test")  # a prefix of the name is another module
    assert default_types.find("test.types/points") is not None

    default_types.forget(__name__)
    assert default_types.find("test.types/points") is None


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "Ada", ["a", {"b": None}]], ids=repr)
def test_json_documents_survive_bytes(value: object) -> None:
    """A JSON type takes all that JSON can express."""
    serializer = make_json_type("test.types/json").serializer()

    encoded = serializer.serialize(value)

    assert serializer.deserialize(encoded) == value


def test_protobuf_types_are_named_after_their_message() -> None:
    """The name is the message's; the namespace is Google's unless another is given."""
    address = AddressProto(namespace="a", type="b", id="c")

    by_default = make_protobuf_type(AddressProto)
    named = make_protobuf_type(AddressProto, "test.types")

    assert by_default.typename == "type.googleapis.com/io.statefun.sdk.reqreply.Address"
    assert named.typename == "test.types/io.statefun.sdk.reqreply.Address"
    assert named.serializer().deserialize(named.serializer().serialize(address)) == address


def test_a_registry_starts_with_the_given_types() -> None:
    """Exactly the types that a registry is made of can be found."""
    text = _text_type("test.types/text")

    registry = TypeRegistry([text])

    assert registry.find("test.types/text") is text
    assert registry.find("io.statefun.types/int") is None


def test_a_registry_returns_what_it_adds() -> None:
    """Adding is part of an assignment."""
    registry = TypeRegistry()

    added = registry.add(IntType)

    assert added is IntType
    assert registry.find(IntType.typename) is IntType


def test_the_same_definition_can_run_again() -> None:
    """A notebook cell that runs again replaces its type."""
    registry = TypeRegistry()

    first = registry.add(_text_type("test.types/text"))
    second = registry.add(_text_type("test.types/text"))

    assert registry.find("test.types/text") is second
    assert first is not second


def _one_decoder(value: bytes) -> bytes:
    return value


def _other_decoder(value: bytes) -> bytes:
    return value


@pytest.mark.parametrize(
    ("known", "other", "origin"),
    [
        (
            lambda: SimpleType("test.types/upper", bytes, _one_decoder),
            lambda: SimpleType("test.types/upper", bytes, _other_decoder),
            "_one_decoder",
        ),
        (_Upper, lambda: _text_type("test.types/upper"), "_Upper"),
        (lambda: SimpleType("test.types/upper", bytes, _one_decoder), _Upper, "_one_decoder"),
    ],
    ids=["functions", "class-function", "function-class"],
)
def test_a_typename_belongs_to_one_type(
    known: Callable[[], Type[Any]], other: Callable[[], Type[Any]], origin: str
) -> None:
    """A second type of the same name is refused, and the first one stays."""
    registry = TypeRegistry()
    first = registry.add(known())

    with pytest.raises(DefinitionError) as raised:
        registry.add(other())

    assert raised.value.message == (
        f"typename 'test.types/upper' already belongs to another type ({__name__}.{origin}); "
        "give one of the two another name"
    )
    assert registry.find("test.types/upper") is first


def test_primitive_typenames_are_taken() -> None:
    """Primitive types cannot be redefined."""
    with pytest.raises(DefinitionError, match=r"'io\.statefun\.types/int' already belongs"):
        simple_type(IntType.typename, str.encode, bytes.decode)

    assert default_types.find(IntType.typename) is IntType


def test_another_registry_wins() -> None:
    """Types of another registry replace types of the same name, and leave the others."""
    old, new = _text_type("test.types/text"), _text_type("test.types/text")
    registry = TypeRegistry([old, IntType])

    registry.update(TypeRegistry([new]))

    assert registry.find("test.types/text") is new
    assert registry.find(IntType.typename) is IntType
