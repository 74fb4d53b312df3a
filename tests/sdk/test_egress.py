# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    JSON,
    PRIMITIVE_TYPES,
    type_names,
    typed_values,
    types_and_values,
    unicode_texts,
)

from statefun import (
    DefinitionError,
    EgressMessage,
    KafkaEgressMessage,
    LongType,
    StringType,
    Type,
    TypedValue,
    kafka_egress_message,
)
from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME

EGRESS = "com.example/greets"
RECORD = f"a record for egress {EGRESS}, topic greetings: "

millis = st.integers(0, 10**13).map(
    lambda number: datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=number)
)
plain_values = st.binary() | unicode_texts() | st.integers(-(2**31), 2**31 - 1) | st.floats()


@given(
    name=type_names(),
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda t: t.strip(".")),
    key=st.none() | unicode_texts(),
    value_and_type=st.tuples(plain_values | st.none(), st.none())
    | types_and_values().map(lambda pair: (pair[1], pair[0])),
    placement=st.fixed_dictionaries(
        {
            "headers": st.lists(st.tuples(unicode_texts(), st.none() | st.binary())),
            "partition": st.none() | st.integers(0, 2**31 - 1),
            "timestamp": st.none() | millis,
        }
    ),
)
def test_all_ways_build_the_same_record(
    name: object,
    topic: str,
    key: str | None,
    value_and_type: tuple[Any, Type[Any] | None],
    placement: dict[str, Any],
) -> None:
    """Steps, keywords, the older name and the wire form agree."""
    typename, (value, value_type) = str(name), value_and_type

    by_steps = (
        KafkaEgressMessage.for_egress(typename)
        .with_topic(topic)
        .with_key(key)
        .with_value(value, value_type)
        .with_headers(placement["headers"])
        .with_partition(placement["partition"])
        .with_timestamp(placement["timestamp"])
        .build()
    )
    by_keywords = KafkaEgressMessage(
        typename, topic=topic, key=key, value=value, value_type=value_type, **placement
    )
    from_wire = KafkaEgressMessage.from_typed_value(typename, by_steps.typed_value)

    for message in (by_steps, by_keywords, from_wire):
        assert message.typename == typename
        assert message.topic == topic
        assert message.key == (key or None)
        assert message.value == by_steps.value
        assert message.headers == tuple(placement["headers"])
        assert message.partition == placement["partition"]
        assert message.timestamp == placement["timestamp"]
        assert message.typed_value == by_steps.typed_value
    is_simple = placement == {"headers": [], "partition": None, "timestamp": None}
    if is_simple and value is not None:  # the older name makes no tombstones
        by_function = kafka_egress_message(typename, topic, value, value_type, key)
        assert by_function.typed_value == by_steps.typed_value


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ()),
        ({"a": "Ä", "b": b"\xff", "c": None}, (("a", "Ä".encode()), ("b", b"\xff"), ("c", None))),
        ([("a", "1"), ("a", "2")], (("a", b"1"), ("a", b"2"))),
    ],
)
def test_headers_are_names_and_values(
    headers: Mapping[str, str | bytes | None], expected: object
) -> None:
    """They are a mapping, or pairs where a name occurs more than once; text is UTF-8."""
    assert KafkaEgressMessage(EGRESS, topic="t", value="", headers=headers).headers == expected


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"headers": 7}, "headers must be names with values that are bytes, strings or None: "),
        (
            {"headers": {"a": 7}},
            "headers must be names with values that are bytes, strings or None: ",
        ),
        (
            {"headers": {7: "a"}},
            "headers must be names with values that are bytes, strings or None: ",
        ),
        (
            {"headers": ["abc"]},
            "headers must be names with values that are bytes, strings or None: ",
        ),
        ({"headers": {"a": "\ud800"}}, "its key, value or a header is not valid Unicode: "),
        ({"partition": -1}, "the partition must be a number from 0 to 2147483647, not -1"),
        ({"partition": True}, "the partition must be a number from 0 to 2147483647, not True"),
        (
            {"partition": 2**31},
            "the partition must be a number from 0 to 2147483647, not 2147483648",
        ),
        ({"timestamp": 7}, "the timestamp must be a datetime with a time zone, not 7"),
        (
            {"timestamp": datetime(2026, 1, 1)},  # noqa: DTZ001 - the case
            "the timestamp must be a datetime with a time zone, not datetime.datetime(2026, 1, 1, 0, 0)",
        ),
        (
            {"timestamp": datetime(1969, 1, 1, tzinfo=timezone.utc)},
            "the timestamp must not be before 1970, as 1969-01-01 00:00:00+00:00 is",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(parts: dict[str, Any], sentence: str) -> None:
    """The function that sends a record gets the error."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage(EGRESS, topic="greetings", value="", **parts)

    assert raised.value.message.startswith(RECORD + sentence)


def test_the_partition_of_an_enumeration_is_a_number() -> None:
    """Kafka's client, and what is stored, have no enumerations."""

    class Part(IntEnum):
        ONE = 1

    partition = KafkaEgressMessage(EGRESS, topic="t", value="", partition=Part.ONE).partition
    assert (type(partition), partition) == (int, 1)


def test_the_wire_form_is_a_producer_record() -> None:
    """Any runtime that speaks the protocol can write the record."""
    message = KafkaEgressMessage(EGRESS, topic="greetings", key="Ada", value="Hello")

    typename, value = message.typed_value

    assert typename == "type.googleapis.com/io.statefun.sdk.egress.KafkaProducerRecord"
    assert KafkaProducerRecord.FromString(value) == KafkaProducerRecord(
        key="Ada", value_bytes=b"Hello", topic="greetings"
    )


@pytest.mark.parametrize(
    ("value", "value_type", "expected"),
    [
        ("Grüße", None, "Grüße".encode()),
        (b"\xff\0", None, b"\xff\0"),
        (bytearray(b"ab"), None, b"ab"),
        pytest.param(memoryview(b"ab"), None, b"ab", id="memoryview"),
        (258, None, b"\0\0\x01\x02"),
        (-1, None, b"\xff\xff\xff\xff"),
        (2**31 - 1, None, b"\x7f\xff\xff\xff"),
        (-(2**31), None, b"\x80\0\0\0"),
        (1.5, None, struct.pack(">d", 1.5)),
        ("", None, b""),
        (2**40, LongType, LongType.serializer().serialize(2**40)),
        ("Ada", StringType, b"\x0a\x03Ada"),
        (None, JSON, b"null"),
        (True, JSON, b"true"),
    ],
    ids=repr,
)
def test_values_are_encoded_by_their_python_type(
    value: object, value_type: Type[Any] | None, expected: bytes
) -> None:
    """Plain values have the encoding that is documented, all others that of their type."""
    message = KafkaEgressMessage(EGRESS, topic="greetings", value=value, value_type=value_type)

    assert message.value == expected


def test_a_value_is_copied() -> None:
    """Changing a buffer after it was sent does not change the record."""
    buffer = bytearray(b"Hello")

    message = KafkaEgressMessage(EGRESS, topic="greetings", value=buffer)
    buffer[:] = b"later"

    assert message.value == b"Hello"


@pytest.mark.parametrize("key", [None, ""])
def test_an_empty_key_is_no_key(key: str | None) -> None:
    """The wire cannot tell them apart, so the message does not either."""
    message = KafkaEgressMessage(EGRESS, topic="greetings", key=key, value="Hello")

    assert message.key is None


@pytest.mark.parametrize("topic", ["", None, b"greetings"])
def test_a_record_needs_a_topic(topic: Any) -> None:
    """There is no default topic."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage(EGRESS, topic=topic, value="Hello")

    assert raised.value.message == f"a record for egress {EGRESS} needs a topic, not {topic!r}"


@pytest.mark.parametrize("key", [b"Ada", 7])
def test_a_key_is_text(key: Any) -> None:
    """Keys are ids of addresses elsewhere: strings."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage(EGRESS, topic="greetings", key=key, value="Hello")

    assert raised.value.message == f"{RECORD}its key must be a string or None, not {key!r}"


def test_bytes_that_are_no_text_are_no_key() -> None:
    """The function of the published package takes keys as bytes, too."""
    assert (
        kafka_egress_message(typename=EGRESS, topic="greetings", key=b"Ada", value="x").key == "Ada"
    )
    with pytest.raises(DefinitionError) as raised:
        kafka_egress_message(typename=EGRESS, topic="greetings", key=b"A\xff", value="x")

    assert raised.value.message == (
        f"{RECORD}its key must be text, or bytes in UTF-8: invalid start byte at byte 1"
    )


@pytest.mark.parametrize("parts", [{"key": "\ud800", "value": ""}, {"value": "\ud800"}])
def test_text_without_an_encoding_is_refused(parts: dict[str, str]) -> None:
    """A lone surrogate, which JSON input may hold, fails in the function that sends it."""
    with pytest.raises(DefinitionError) as raised:
        kafka_egress_message(EGRESS, "greetings", **parts)  # type: ignore[arg-type]

    assert raised.value.message == (
        f"{RECORD}its key, value or a header is not valid Unicode: 'utf-8' codec can't encode character "
        "'\\ud800' in position 0: surrogates not allowed"
    )


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_large_integer_needs_its_type(value: int) -> None:
    """A number that does not fit into 4 bytes is refused, not cut off."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage(EGRESS, topic="greetings", value=value)

    text = raised.value.message
    assert text.startswith(f"{RECORD}the value {value} cannot be encoded: ")
    assert text.endswith("; give a value_type such as LongType")


@pytest.mark.parametrize(("value", "name"), [(True, "bool"), ({"a": 1}, "dict"), ([], "list")])
def test_other_values_of_records_need_their_type(value: object, name: str) -> None:
    """Nothing is converted to text by guessing; bools are no integers here."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage(EGRESS, topic="greetings", value=value)

    assert raised.value.message == (
        f"{RECORD}a value of class {name} needs a value_type; without a value_type, a value must be "
        "bytes, str, int or float"
    )


def test_a_value_that_its_type_cannot_encode_is_refused() -> None:
    """The type's own error is passed on."""
    with pytest.raises(DefinitionError, match="'x' does not encode as "):
        KafkaEgressMessage(EGRESS, topic="greetings", value="x", value_type=LongType)


def test_an_egress_has_a_whole_typename() -> None:
    """Steps start with the egress's id, which is parsed."""
    assert KafkaEgressMessage.for_egress(f" {EGRESS} ").with_topic("t").with_value("").build()
    with pytest.raises(DefinitionError, match="typename 'greets' is not of the form"):
        KafkaEgressMessage.for_egress("greets")


def test_unfinished_steps_do_not_build() -> None:
    """A builder without a topic, or without a value, says which is missing."""
    builder = KafkaEgressMessage.for_egress(EGRESS)

    with pytest.raises(DefinitionError, match=r"needs a topic; call with_topic\(\)"):
        builder.with_value("Hello").build()
    with pytest.raises(DefinitionError, match=r"needs a value; call with_value\(\)"):
        KafkaEgressMessage.for_egress(EGRESS).with_topic("greetings").build()


def test_a_builder_can_be_used_again() -> None:
    """A built record does not change with its builder."""
    builder = KafkaEgressMessage.for_egress(EGRESS).with_topic("greetings").with_value("Hello")

    first = builder.with_key("Ada").build()
    second = builder.with_key(None).with_value("Bye").build()

    assert (first.key, first.value) == ("Ada", b"Hello")
    assert (second.key, second.value) == (None, b"Bye")


@given(typed_values())
def test_other_typed_values_are_no_kafka_records(value: TypedValue) -> None:
    """A Kafka egress takes nothing but producer records."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage.from_typed_value(EGRESS, value)

    assert raised.value.message == (
        f"the Kafka egress {EGRESS} takes values of type {KAFKA_RECORD_TYPENAME}, not of type {value.typename}; "
        "build the message with KafkaEgressMessage"
    )


def test_bytes_that_are_no_record_are_refused() -> None:
    """The error says which egress they were for and how long they were."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage.from_typed_value(EGRESS, TypedValue(KAFKA_RECORD_TYPENAME, b"\xff"))

    assert raised.value.message.startswith(
        f"a record for egress {EGRESS} (1 bytes) does not decode as {KAFKA_RECORD_TYPENAME}: "
    )


@pytest.mark.parametrize(
    "topic",
    [
        "no such/topic!",
        "t\n",
        "t\x1b[2J",
        "caf\u00e9",
        "\ud800",
        ".",
        "..",
        "t" * 250,
        "t" * 100_000,
    ],
)
def test_a_topic_has_a_name_that_kafka_takes(topic: str) -> None:
    """A record that no cluster could take is an error where it is made, also from the wire."""
    with pytest.raises(
        DefinitionError, match="is not a name of a topic: it must have 1 to 249 of"
    ) as raised:
        KafkaEgressMessage(EGRESS, topic=topic, value="Hello")

    assert len(raised.value.message) < 1000
    assert raised.value.message.isprintable()


def test_a_record_from_the_wire_needs_a_topic() -> None:
    """An empty topic, which Protobuf cannot tell from none, is refused."""
    without_topic = KafkaProducerRecord(key="Ada").SerializeToString()

    with pytest.raises(DefinitionError, match="needs a topic, not ''"):
        KafkaEgressMessage.from_typed_value(
            EGRESS, TypedValue(KAFKA_RECORD_TYPENAME, without_topic)
        )


def test_a_record_from_the_wire_has_a_timestamp_that_is_a_date() -> None:
    """Such as one in nanoseconds by mistake, which no date can be."""
    record = KafkaProducerRecord(topic="greetings", timestamp=1_700_000_000_000_000_000)

    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage.from_typed_value(
            EGRESS, TypedValue(KAFKA_RECORD_TYPENAME, record.SerializeToString())
        )

    assert raised.value.message == (
        f"{RECORD}its timestamp, 1700000000000000000 milliseconds since 1970, is not between the years 1 and 9999"
    )


@given(typed_values())
def test_an_egress_message_passes_its_value(value: TypedValue) -> None:
    """Messages for other egresses are any typed value."""
    message = EgressMessage(EGRESS, value)

    assert message.typename == EGRESS
    assert message.typed_value is value


def test_a_record_prints_no_content() -> None:
    """The repr has where the record goes and how long it is."""
    message = KafkaEgressMessage(EGRESS, topic="greetings", key="Ada", value="secret")

    assert isinstance(message, EgressMessage)
    assert repr(message) == (
        "KafkaEgressMessage('com.example/greets', topic='greetings', key='Ada', 6 bytes)"
    )


@pytest.mark.parametrize("value_type", PRIMITIVE_TYPES, ids=repr)
def test_none_is_no_primitive_value(value_type: Type[Any]) -> None:
    """A value that is missing is not sent as zero."""
    with pytest.raises(DefinitionError) as raised:
        KafkaEgressMessage(EGRESS, topic="greetings", value=None, value_type=value_type)

    assert raised.value.message == (
        f"None does not encode as {value_type.typename}: TypeError: None cannot be encoded"
    )


def test_records_can_be_pickled() -> None:
    """A record that was pickled has all of its parts."""
    record = KafkaEgressMessage(
        "com.example/out", topic="t", key="k", value=b"v", headers={"h": "x"}, partition=3
    )
    again = pickle.loads(pickle.dumps(record))
    assert again.typed_value == record.typed_value
    assert again.typename == record.typename
