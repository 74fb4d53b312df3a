# SPDX-License-Identifier: Apache-2.0
"""Columns for values of Avro schemas and of Protobuf messages."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import struct_pb2, timestamp_pb2

from statefun.formats.avro import decode, encode
from statefun.protocol.runtime_pb2 import CallReport, Progress, RecordOrigin
from statefun.runtime.stored.columns_of_classes import MOMENT
from statefun.runtime.stored.columns_of_formats import column_of_message, column_of_schema

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LIST = {
    "type": "record",
    "name": "List",
    "fields": [
        {"name": "head", "type": "int"},
        {"name": "tail", "type": ["null", "List"]},
    ],
}


@pytest.mark.parametrize(
    ("schema", "value", "type_", "converted"),
    [
        ("boolean", True, pa.bool_(), True),
        ("long", 5, pa.int64(), 5),
        ("double", 1.5, pa.float64(), 1.5),
        (["null", "string"], None, pa.string(), None),
        (["int", "string"], 5, pa.string(), "5"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", pa.string(), "A"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(), b"ab"),
        ({"type": "map", "values": "int"}, {"a": 1}, pa.map_(pa.string(), pa.int32()), {"a": 1}),
        ({"type": "long", "logicalType": "timestamp-millis"}, NOON, MOMENT, NOON),
        (
            LIST,
            {"head": 1, "tail": None},
            pa.struct([("head", pa.int32()), ("tail", pa.string())]),
            None,
        ),
    ],
)
def test_avro_values_are_those_of_their_columns(
    schema: Any, value: Any, type_: pa.DataType, converted: Any
) -> None:
    """Decoded values of a schema fit the type of its column."""
    text = json.dumps(schema)
    column = column_of_schema(text)
    decoded = column.convert(decode(encode(value, text), text))

    assert column.type == type_
    assert decoded == (value if schema is LIST else converted)
    pa.array([decoded], type_)


def test_protobuf_messages_are_structs() -> None:
    """With nested messages, lists and fields that are missing."""
    message = RecordOrigin(
        topic="t", headers=[RecordOrigin.Header(key="h", value=b"1")], keyless=True
    )
    column = column_of_message(RecordOrigin.DESCRIPTOR)
    value = column.convert(message)

    assert value["topic"] == "t"
    assert value["key"] is None
    assert value["headers"] == [{"key": "h", "value": b"1"}]
    assert value["keyless"] is True
    assert pa.array([value], column.type).to_pylist() == [value]
    for other in (Progress(batch=1), CallReport(begun=True)):
        of_other = column_of_message(other.DESCRIPTOR)
        pa.array([of_other.convert(other)], of_other.type)


def test_times_and_messages_that_contain_themselves() -> None:
    """A timestamp is a time; where a message contains itself, there is text."""
    time = timestamp_pb2.Timestamp()
    time.FromDatetime(NOON)
    anything = struct_pb2.Struct(fields={"a": struct_pb2.Value(number_value=1)})

    assert column_of_message(time.DESCRIPTOR).convert(time) == NOON
    column = column_of_message(anything.DESCRIPTOR)
    assert pa.array([column.convert(anything)], column.type)
