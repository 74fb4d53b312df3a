# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import attrs
import pytest
from connect_records import data, schemas, values
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from statefun.formats.avro import decode, encode
from statefun.transforms.avro_data import avro_of_schema, schema_of_avro
from statefun.transforms.codecs import AvroCodec, JsonWithSchemaCodec, json_of, read_part
from statefun.transforms.connect_json import json_of_schema, schema_of_json
from statefun.transforms.data import (
    CONNECT_DECIMAL,
    CONNECT_TIMESTAMP,
    Data,
    Moment,
    Schema,
    SchemaKind,
    TransformError,
)

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.example",
    "doc": "an order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "any", "type": ["null", "string", "int"]},
        {"name": "note", "type": ["string", "null"], "default": "none"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "state", "type": "com.example.State"}],
                },
            },
        },
        {"name": "first", "type": ["null", "Line"]},
    ],
}
ORDER: dict[str, Any] = {
    "id": 7,
    "state": "NEW",
    "before": "SENT",
    "hash": b"ab",
    "at": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc),
    "exact": datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone.utc),
    "price": Decimal("12.50"),
    "any": 3,
    "note": None,
    "lines": [{"state": "SENT"}],
    "first": {"state": "NEW"},
}


def test_avro_values_survive_a_round_trip() -> None:
    """Details that Connect's model does not have survive as well."""
    text = json.dumps(EVERYTHING)
    codec = AvroCodec(text)
    content = encode(ORDER, text)
    read = codec.read(content)
    assert codec.schema is not None
    assert read.value["at"] == Moment(1_767_323_045_678)
    assert read.value["price"] == Decimal("12.50")
    assert codec.write(read) == content
    assert decode(content, avro_of_schema(codec.schema)) == ORDER


def test_a_named_type_is_defined_at_its_first_use() -> None:
    """If a transform leaves out the first use, the next one has the definition."""
    schema = schema_of_avro(json.dumps(EVERYTHING))
    fields = tuple(each for each in schema.fields if each.name in {"before", "lines", "first"})
    less = attrs.evolve(schema, fields=fields)
    text = avro_of_schema(less)
    value = {name: ORDER[name] for name in ("before", "lines", "first")}
    assert decode(encode(value, text), text) == value
    assert text.count('"symbols"') == 1


def test_recursive_schemas_are_refused() -> None:
    """A recursive schema has no end without references."""
    recursive = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    with pytest.raises(TransformError, match="the schema of Node is recursive"):
        schema_of_avro(json.dumps(recursive))


@settings(suppress_health_check=list(HealthCheck))
@given(schema=schemas())
def test_schemas_in_json_survive_a_round_trip(schema: Schema) -> None:
    """Names, versions, defaults and parameters survive."""
    assert schema_of_json(json.loads(json.dumps(json_of_schema(schema)))) == schema


@settings(suppress_health_check=list(HealthCheck))
@given(drawn=data())
def test_values_with_schemas_survive_a_round_trip(drawn: Data) -> None:
    """Only null becomes the default of its schema."""
    assume("'default': None" not in str(drawn))
    codec = JsonWithSchemaCodec()
    try:
        content = codec.write(drawn)
    except TransformError:
        assume(False)
    if content is None:
        return
    read = codec.read(content)
    assert codec.write(read) == content or "default" in content.decode()


@settings(suppress_health_check=list(HealthCheck))
@given(
    content=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(("type", "fields", "field", "items", "optional", "default", "a")),
                inner | st.sampled_from(("int8", "struct", "array", "map", "string", "bytes")),
                max_size=4,
            )
        ),
    )
)
def test_any_json_is_data_or_an_error(content: Any) -> None:
    """No JSON raises anything but the documented errors."""
    envelope = json.dumps({"schema": content, "payload": content}).encode()
    try:
        read = read_part(JsonWithSchemaCodec(), envelope, "value")
    except TransformError:
        return
    hash(read.schema)


def test_a_map_with_other_keys_is_a_list_of_pairs() -> None:
    """A map whose keys are not texts is a list of pairs, as Connect's converter writes it."""
    schema = Schema(SchemaKind.MAP, items=Schema(SchemaKind.BOOLEAN), keys=Schema(SchemaKind.INT32))
    content = JsonWithSchemaCodec().write(Data(schema, {1: True}))
    assert content is not None
    assert json.loads(content)["payload"] == [[1, True]]
    assert JsonWithSchemaCodec().read(content).value == {1: True}


def test_a_date_with_a_time_is_refused() -> None:
    """A timestamp in the place of a date is an error: its time is not cut off."""
    schema = Schema(SchemaKind.INT64, name=CONNECT_TIMESTAMP, version=1)
    content = JsonWithSchemaCodec().write(Data(schema, Moment(5)))
    assert content is not None
    assert json.loads(content)["payload"] == 5
    day = attrs.evolve(schema, name="org.apache.kafka.connect.data.Date", kind=SchemaKind.INT32)
    with pytest.raises(TransformError, match="a date must not contain a time of day, but 1970-"):
        JsonWithSchemaCodec().write(Data(day, Moment(5)))


@settings(suppress_health_check=list(HealthCheck))
@given(drawn=st.data())
def test_generated_values_fit_their_schemas(drawn: st.DataObject) -> None:
    """The values of this module's strategies can be written."""
    schema = drawn.draw(schemas())
    JsonWithSchemaCodec().write(Data(schema, drawn.draw(values(schema))))


def test_decimal_numbers_lose_no_digit() -> None:
    """The precision of Python's own decimal context has no effect."""
    exact = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
    text = json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": exact}]})
    content = encode({"a": Decimal("1234567890123456789012345678.1234567891")}, text)
    codec = AvroCodec(text)
    assert codec.write(codec.read(content)) == content
    schema = {"type": "bytes", "name": CONNECT_DECIMAL, "parameters": {"scale": "2"}}
    envelope = b'{"schema":%s,"payload":1.239}' % json.dumps(schema).encode()
    read = JsonWithSchemaCodec().read(envelope)
    assert read.value == Decimal("1.239")
    with pytest.raises(
        TransformError, match="more decimal places than its schema's scale allows: 2"
    ):
        JsonWithSchemaCodec().write(read)


@pytest.mark.parametrize("scale", ["990000", "-990000", "x"])
def test_an_invalid_scale_is_refused(scale: str) -> None:
    """A record may have any scale, and numbers of a million digits take half a minute."""
    schema = {"type": "bytes", "name": CONNECT_DECIMAL, "parameters": {"scale": scale}}
    envelope = b'{"schema":%s,"payload":1}' % json.dumps(schema).encode()
    read = JsonWithSchemaCodec().read(envelope)
    with pytest.raises(TransformError, match="scale"):
        JsonWithSchemaCodec().write(read)


@pytest.mark.parametrize(
    "payload",
    [b"1e1000000", b"-1e-1000000", b"1." + b"1" * 20_000, b'"%b"' % (b"/" * 100_000)],
    ids=["large", "small", "long", "bytes"],
)
def test_a_decimal_number_with_too_many_digits_is_refused(payload: bytes) -> None:
    """A record of a few bytes could otherwise occupy a worker for minutes."""
    schema = {"type": "bytes", "name": CONNECT_DECIMAL, "parameters": {"scale": "2"}}
    envelope = b'{"schema":%s,"payload":%b}' % (json.dumps(schema).encode(), payload)
    with pytest.raises(TransformError, match="a decimal number must have at most 10,000 digits"):
        JsonWithSchemaCodec().read(envelope)


def test_a_union_keeps_its_branch() -> None:
    """A value keeps its type, even if it fits another type of the union."""
    records = [
        {"type": "record", "name": name, "fields": [{"name": "id", "type": "string"}]}
        for name in ("Created", "Deleted")
    ]
    fields = [{"name": "event", "type": ["null", *records]}]
    text = json.dumps({"type": "record", "name": "A", "fields": fields})
    content = encode({"event": ("Deleted", {"id": "7"})}, text)
    codec = AvroCodec(text)
    assert codec.write(codec.read(content)) == content


def test_null_may_be_a_type() -> None:
    """The type null is read as a name and as an object."""
    fields = [
        {"name": "a", "type": "null"},
        {"name": "b", "type": [{"type": "null"}, {"type": "string"}]},
    ]
    text = json.dumps({"type": "record", "name": "A", "fields": fields})
    codec = AvroCodec(text)
    read = codec.read(encode({"a": None, "b": None}, text))
    assert read.value == {"a": None, "b": None}
    assert codec.write(read) == encode({"a": None, "b": None}, text)


def test_defaults_and_docs_of_fields_stay() -> None:
    """A registry compares defaults and docs."""
    fields = [
        {"name": "a", "type": {"type": "array", "items": "int"}, "default": [], "doc": "some"},
        {"name": "b", "type": {"type": "string", "avro.java.string": "String"}, "default": "x"},
        {
            "name": "c",
            "type": [{"type": "enum", "name": "E", "symbols": ["N"]}, "null"],
            "default": "N",
        },
        {"name": "d", "type": "int", "default": 7, "doc": "seven"},
    ]
    record = {"type": "record", "name": "A", "fields": fields}
    written = json.loads(avro_of_schema(schema_of_avro(json.dumps(record))))
    assert written["fields"] == fields


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_floats_that_json_does_not_have_are_refused(number: float) -> None:
    """A float such as NaN would become null, which may be another id."""
    for data_ in (Data(None, {"a": [None, number]}), Data(Schema(SchemaKind.FLOAT64), number)):
        with pytest.raises(TransformError, match="JSON cannot represent the number"):
            json_of(data_)


def test_a_moment_without_a_schema_is_a_number() -> None:
    """The number is in milliseconds since the epoch."""
    assert json_of(Data(None, {"a": Moment(5), "b": None})) == b'{"a":5,"b":null}'


def test_a_null_with_a_schema_is_no_tombstone() -> None:
    """Null with a schema is an object with schema and payload, as in Connect."""
    codec = JsonWithSchemaCodec()
    assert codec.write(Data(None, None)) is None
    content = codec.write(Data(Schema(SchemaKind.STRING, is_optional=True), None))
    assert content is not None
    assert json.loads(content)["payload"] is None
