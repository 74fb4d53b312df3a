# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import JSON, ids, type_names, typed_values, types_and_values, values_of

from statefun import (
    Address,
    BoolType,
    BytesType,
    DefinitionError,
    DoubleType,
    FloatType,
    IntType,
    KafkaEgressMessage,
    LongType,
    Message,
    SimpleType,
    StringType,
    Type,
    TypedValue,
    ValueDecodeError,
    message_builder,
    simple_type,
)
from statefun.sdk.encoding import typed
from statefun.sdk.message import ReceivedMessage, message_to

TARGET = "com.example.fns/greeter"

KEYWORDS: list[tuple[str, str, Type[Any], object]] = [
    ("bool_value", "bool", BoolType, True),
    ("int_value", "int", IntType, -7),
    ("long_value", "long", LongType, 2**40),
    ("float_value", "float", FloatType, 1.5),
    ("double_value", "double", DoubleType, 0.1),
    ("str_value", "string", StringType, "Ada"),
]


@pytest.mark.parametrize(("keyword", "word", "type_", "value"), KEYWORDS)
def test_each_primitive_type_has_a_keyword(
    keyword: str, word: str, type_: Type[Any], value: object
) -> None:
    """A keyword encodes as its type, and one pair of methods reads that type."""
    message = message_builder(TARGET, "Ada", **{keyword: value})  # type: ignore[arg-type]

    readers = {other: getattr(message, f"is_{other}")() for _, other, _, _ in KEYWORDS}
    assert [other for other, fits in readers.items() if fits] == [word]
    assert getattr(message, f"as_{word}")() == value
    assert message.is_type(type_)
    assert message.as_type(type_) == value
    assert message.value() == value
    assert message.value_typename() == type_.typename
    assert message.raw_value() == type_.serializer().serialize(value)


@pytest.mark.parametrize(("_keyword", "word", "type_", "value"), KEYWORDS)
def test_a_primitive_type_reads_no_value_of_another_one(
    _keyword: str, word: str, type_: Type[Any], value: Any
) -> None:
    """Some of their bytes decode as another type as well, to another value; the error names both types."""
    for _, _, other, other_value in KEYWORDS:
        if other is type_:
            continue
        message = message_to(Address(TARGET, "Ada"), other_value, other)
        text = rf"declared as {other.typename}, .* does not decode as {type_.typename}: .* read the value as the type"
        with pytest.raises(ValueDecodeError, match=text):
            getattr(message, f"as_{word}")()
        upgraded = type_.with_upgrades({other: lambda _: value})
        assert message.as_type(upgraded) == value
        assert message.as_type(BytesType) == message.raw_value()


@pytest.mark.parametrize(("keyword", "word", "type_", "_value"), KEYWORDS)
@given(data=st.data())
def test_keywords_and_value_types_build_the_same(
    keyword: str, word: str, type_: Type[Any], _value: object, data: st.DataObject
) -> None:
    """`int_value=7` is short for `value=7, value_type=IntType`, and so on; zeros are values."""
    value = data.draw(values_of(type_))

    by_keyword = message_builder(TARGET, "Ada", **{keyword: value})
    by_type = message_builder(TARGET, "Ada", value=value, value_type=type_)

    assert by_keyword.typed_value == by_type.typed_value
    assert repr(getattr(by_keyword, f"as_{word}")()) == repr(value)


@given(type_names(), ids(), types_and_values())
def test_a_message_holds_what_it_was_built_of(
    name: object, id_: str, type_and_value: tuple[Type[Any], Any]
) -> None:
    """Target, id and value are the given ones."""
    type_, value = type_and_value

    message = message_builder(str(name), id_, value=value, value_type=type_)

    assert (message.target_typename, message.target_id) == (str(name), id_)
    assert repr(message.value()) == repr(value)


@given(ids(), typed_values())
def test_a_message_can_be_made_of_bytes(id_: str, value: TypedValue) -> None:
    """The constructor takes an encoded value as it is."""
    message = Message(TARGET, id_, value)

    assert message.typed_value is value
    assert TypedValue(message.value_typename(), message.raw_value()) == value


def test_blanks_around_a_target_do_not_count() -> None:
    """The target is the type name that was parsed, as functions are registered by it."""
    message = message_builder(f" {TARGET}\n", "Ada", int_value=1)

    assert message.target_typename == TARGET


def test_a_target_has_a_whole_typename() -> None:
    """A message to half a type name is refused where it is built."""
    with pytest.raises(DefinitionError, match="typename 'greeter' is not of the form"):
        message_builder("greeter", "Ada", int_value=1)


@pytest.mark.parametrize("id_", ["", None, 7, b"Ada"])
def test_a_message_needs_an_id(id_: Any) -> None:
    """The id is a string and not empty, however the message is made."""
    expected = (
        f"a message to {TARGET} needs an id, which must be a string that is not empty, not {id_!r}"
    )

    with pytest.raises(DefinitionError) as built:
        message_builder(TARGET, id_, int_value=1)
    with pytest.raises(DefinitionError) as made:
        Message(TARGET, id_, TypedValue(IntType.typename, b""))

    assert built.value.message == expected
    assert made.value.message == expected


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ({}, 0),
        ({"int_value": None}, 0),
        ({"value_type": IntType}, 0),
        ({"int_value": 0, "str_value": ""}, 2),
        ({"int_value": 1, "value": 1, "value_type": IntType}, 2),
    ],
)
def test_a_message_has_one_value(values: dict[str, Any], count: int) -> None:
    """None or several values are refused."""
    with pytest.raises(DefinitionError) as raised:
        message_builder(TARGET, "Ada", **values)

    assert raised.value.message == (
        f"a message to {TARGET}/Ada needs exactly one value, not {count}"
    )


@pytest.mark.parametrize("value_type", [None, int, "io.statefun.types/int"])
def test_other_values_need_their_type(value_type: Any) -> None:
    """A value without a Type, or with a class or a name for it, is refused."""
    with pytest.raises(DefinitionError) as raised:
        message_builder(TARGET, "Ada", value=7, value_type=value_type)

    assert (
        raised.value.message
        == f"value 7 needs a value_type, which must be a Type, not {value_type!r}"
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"int_value": 2**31},
            (
                "2147483648 does not encode as io.statefun.types/int: "
                "ValueError: Value out of range: 2147483648"
            ),
        ),
        (
            {"str_value": "\ud800"},
            (
                "'\\ud800' does not encode as io.statefun.types/string: "
                "UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud800' in position 0: "
                "surrogates not allowed"
            ),
        ),
        (
            {"value": {1}, "value_type": JSON},
            (
                "{1} does not encode as test.strategies/json: "
                "TypeError: Object of type set is not JSON serializable"
            ),
        ),
    ],
)
def test_a_value_that_does_not_encode_is_named(values: dict[str, Any], text: str) -> None:
    """The error has the value, the type and the serializer's text."""
    with pytest.raises(DefinitionError) as raised:
        message_builder(TARGET, "Ada", **values)

    assert raised.value.message == text
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("serialized", ["7", bytearray(b"7"), None])
def test_serializers_return_bytes(serialized: Any) -> None:
    """A serializer that forgets to encode is found where it is used, not when state is stored."""
    type_: Type[Any] = SimpleType("test.message/text", lambda _: serialized, bytes.decode)

    with pytest.raises(DefinitionError) as raised:
        typed(7, type_)

    assert raised.value.message == (
        "7 does not encode as test.message/text: TypeError: the serializer returned "
        f"{type(serialized).__name__}, not bytes"
    )


@pytest.mark.parametrize(
    ("read", "typename"),
    [
        (Message.as_int, "io.statefun.types/int"),
        (Message.value, "io.statefun.types/string"),
        (lambda message: message.as_type(JSON), "test.strategies/json"),
    ],
    ids=["as_int", "value", "as_type"],
)
def test_bytes_of_another_type_are_reported(read: Callable[[Message], Any], typename: str) -> None:
    """The error has the address, the declared type, the length and the attempted type."""
    message = Message(TARGET, "Ada", TypedValue(StringType.typename, b"Hello"))

    with pytest.raises(ValueDecodeError) as raised:
        read(message)

    assert raised.value.message.startswith(
        f"message to {TARGET}/Ada: its value (declared as io.statefun.types/string, 5 bytes) "
        f"does not decode as {typename}: "
    )
    assert "Hello" not in raised.value.message
    assert raised.value.__cause__ is not None


def test_as_type_reads_any_bytes() -> None:
    """A value is read as the requested type, regardless of the type name that it carries."""
    message = Message(TARGET, "Ada", TypedValue("com.example/Raw", b"\x0d\x07\0\0\0"))

    assert message.as_int() == 7
    assert not message.is_int()


def test_a_value_of_an_unknown_type_is_reported() -> None:
    """Reading by name needs the name in the registry; the error names the remedy."""
    message = Message(TARGET, "Ada", TypedValue("com.example/Unknown", b""))

    with pytest.raises(ValueDecodeError) as raised:
        message.value()

    assert raised.value.message == (
        f"message to {TARGET}/Ada: no type named 'com.example/Unknown' is registered; define it "
        "with SimpleType.simple_immutable_type_from, or read the bytes with raw_value()"
    )


def test_a_registered_type_is_found_by_name() -> None:
    """A type of the user's own decodes without being named at the reading end."""
    text = simple_type("test.message/greeting", str.encode, bytes.decode)

    message = message_builder(TARGET, "Ada", value="Hello", value_type=text)

    assert message.value() == "Hello"


def test_a_message_prints_no_content() -> None:
    """The repr has the target, the type and the length: values may be large or private."""
    message = message_builder(TARGET, "Ada", str_value="secret")

    assert repr(message) == (
        "Message('com.example.fns/greeter', 'Ada', 'io.statefun.types/string', 8 bytes)"
    )


def test_messages_can_be_pickled_and_copied() -> None:
    """A message that was pickled or copied has its target, its value and its trace."""
    message = message_builder("com.example/f", "Ada", int_value=5)
    message.trace = "traceparent=00-1"
    for again in (pickle.loads(pickle.dumps(message)), copy.copy(message)):
        assert (again.target_typename, again.target_id) == ("com.example/f", "Ada")
        assert (again.as_int(), again.trace) == (5, "traceparent=00-1")


def test_copies_have_all_parts_and_change_alone() -> None:
    """Also those of a received message, which a function may send on."""
    sent = Message("t/f", "Ada", TypedValue("t/v", b"value"))
    sent.trace, sent.event_time = "traceparent=00-1-2-01", 7
    received = ReceivedMessage(Address("t/f", "Ada"), TypedValue("t/v", b"value"), None, 3)
    record = KafkaEgressMessage(
        "t/out", topic="out", key="Ada", value=b"v", headers={"a": b"b"}, partition=2
    )
    for original in (sent, received, record):
        copied = copy.copy(original)
        names = [name for each in type(original).__mro__ for name in getattr(each, "__slots__", ())]
        parts = [name for name in names if name != "_typed_value"]

        assert [getattr(copied, name) for name in parts] == [
            getattr(original, name) for name in parts
        ]
        assert type(copied) is type(original)
    copied_message = copy.copy(sent)
    copied_message.event_time = 8
    assert sent.event_time == 7
