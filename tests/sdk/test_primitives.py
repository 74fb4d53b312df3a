# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    """Bytes decode to what Protobuf decodes, or to the same error."""
    try:
        expected = repr(wrapper.FromString(encoded).value)
    except Exception as error:  # noqa: BLE001 - whatever Protobuf raises
        with pytest.raises(type(error)):
            type_.serializer().deserialize(encoded)
    else:
        assert repr(type_.serializer().deserialize(encoded)) == expected


@pytest.mark.parametrize("type_", [IntType, StringType, BoolType, KafkaIntType])
def test_types_can_be_sent_to_workers(type_: Type[Any]) -> None:
    """A primitive type that was pickled encodes as before."""
    again: Type[Any] = pickle.loads(pickle.dumps(type_))
    value = "Ada" if type_ is StringType else 1
    if type_ is BoolType:
        value = True
    assert again.serializer().serialize(value) == type_.serializer().serialize(value)
    assert again.origin() == type_.origin()
