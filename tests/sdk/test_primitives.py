# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from statefun import Context, KafkaIngress, OnFailure, StatefulFunctions
from statefun.protocol import types_pb2
from statefun.sdk.primitives import (
    BoolType,
    DoubleType,
    FloatType,
    IntType,
    KafkaIntType,
    LongType,
    StringType,
)
from statefun.sdk.types import Type
from statefun.testing import InProcessApplication

WRAPPERS: list[tuple[Type[Any], Any, st.SearchStrategy[Any]]] = [
    (IntType, types_pb2.IntWrapper, st.integers(-(2**31), 2**31 - 1)),
    (LongType, types_pb2.LongWrapper, st.integers(-(2**63), 2**63 - 1)),
    (DoubleType, types_pb2.DoubleWrapper, st.floats()),
    (FloatType, types_pb2.FloatWrapper, st.floats(width=32)),
    (BoolType, types_pb2.BooleanWrapper, st.booleans()),
    (StringType, types_pb2.StringWrapper, st.text() | st.text(min_size=120)),
]


@given(st.data())
@pytest.mark.parametrize(("type_", "wrapper", "values"), WRAPPERS)
def test_values_are_encoded_as_protobuf_does(
    type_: Type[Any], wrapper: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """The bytes of a primitive value are those of its Protobuf wrapper, and decode to the value."""
    value = data.draw(values)
    encoded = type_.serializer().serialize(value)
    assert encoded == wrapper(value=value).SerializeToString()
    assert repr(type_.serializer().deserialize(encoded)) == repr(value)


@given(st.binary(max_size=12))
@pytest.mark.parametrize(("type_", "wrapper", "values"), WRAPPERS)
def test_any_bytes_are_decoded_as_protobuf_does(
    type_: Type[Any], wrapper: Any, values: object, encoded: bytes
) -> None:
    """Bytes decode to what Protobuf decodes, or to an error: Protobuf's own, or if another field comes first."""
    tag = wrapper(value="a" if type_ is StringType else 1).SerializeToString()[:1]
    if encoded and encoded[:1] != tag:
        with pytest.raises(DecodeError, match=f"another type: those of {type_.typename} begin"):
            type_.serializer().deserialize(encoded)
        return
    try:
        expected = repr(wrapper.FromString(encoded).value)
    except Exception as error:  # noqa: BLE001 - whatever Protobuf raises
        with pytest.raises(type(error)):
            type_.serializer().deserialize(encoded)
    else:
        assert repr(type_.serializer().deserialize(encoded)) == expected


@pytest.mark.parametrize(
    "text", ["123456789", "51234", "-1234", "nine", "98765432109876543", "true"]
)
@pytest.mark.parametrize("type_", [LongType, IntType, DoubleType, FloatType, BoolType, StringType])
def test_a_record_of_plain_text_is_of_no_primitive_type(type_: Type[Any], text: str) -> None:
    """The failure policy of the ingress decides about such a record, which Protobuf would decode as zero."""
    received: list[Any] = []
    functions = StatefulFunctions()

    def call(ctx: Context, value: Any) -> None:
        received.append(value)

    call.__annotations__["value"] = type_.python_type
    functions.register("test/f", call)
    ingress = (
        KafkaIngress.for_id("test/in")
        .with_kafka_address("localhost:1")
        .with_topic("values", value_type=type_.typename, targets=["test/f"])
        .with_consumer_group_id("g")
        .with_failure_policy(OnFailure.SKIP)
        .build()
    )
    app = InProcessApplication(functions=functions, components=[ingress])
    app.produce("values", "Ada", text)
    app.drain()

    assert (len(app.skipped), received) == (1, [])


@pytest.mark.parametrize(
    ("type_", "encoded", "value"),
    [(BoolType, b"\x08\x00", False), (IntType, b"\x0d\0\0\0\0", 0), (StringType, b"\x0a\0", "")],
)
def test_a_zero_that_is_encoded_decodes(type_: Type[Any], encoded: bytes, value: Any) -> None:
    """Protobuf leaves a field with zero out, but other programs may write it."""
    assert type_.serializer().deserialize(encoded) == value
    assert type_.serializer().deserialize(b"") == value


@pytest.mark.parametrize("type_", [IntType, StringType, BoolType, KafkaIntType])
def test_types_can_be_sent_to_workers(type_: Type[Any]) -> None:
    """A primitive type that was pickled encodes as before."""
    again: Type[Any] = pickle.loads(pickle.dumps(type_))
    value = "Ada" if type_ is StringType else 1
    if type_ is BoolType:
        value = True
    assert again.serializer().serialize(value) == type_.serializer().serialize(value)
    assert again.origin() == type_.origin()
