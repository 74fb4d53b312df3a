# SPDX-License-Identifier: Apache-2.0
"""What ``statefun.state()`` returns for values, ``statefun.bootstrap()`` makes the same values of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pyarrow as pa
import pydantic
import pytest
from google.protobuf import any_pb2, duration_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import unicode_texts
from value_classes import Kind, kinds

from statefun import (
    DefinitionError,
    IntType,
    StringType,
    Type,
    ValueSpec,
    make_avro_type,
    make_json_type,
    make_protobuf_type,
)
from statefun.protocol.runtime_pb2 import AddressState, CallReport, EffectStream, Manifest, Segment
from statefun.runtime.loading.encoded_states import StateEncoder
from statefun.runtime.stored.decoded_rows import decoded_states
from statefun.runtime.stored.known_values import Secrets
from statefun.sdk.fields import are_same
from statefun.sdk.structured import Format, StructuredType
from statefun.sdk.types import TypedValue

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - functions may store such values
AVRO = {
    "type": "record",
    "name": "Node",
    "fields": [
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "exactly", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "moment", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "either", "type": ["null", "long", "string", "double", "bytes"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "pair", "type": {"type": "fixed", "name": "Pair", "size": 2}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "children", "type": {"type": "array", "items": "Node"}},
    ],
}


def nodes(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of the Avro schema."""
    times = st.times().map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
    moments = st.datetimes(NOON.replace(year=1900), NOON.replace(year=2200))
    return st.fixed_dictionaries(
        {
            "price": st.decimals(-9999999, 9999999, places=2),
            "id": st.uuids(),
            "at": times,
            "exactly": st.times(),
            "moment": moments.map(lambda each: each.replace(tzinfo=timezone.utc)),
            "local": moments,
            "either": st.none() | st.integers(-9, 9) | unicode_texts() | st.floats() | st.binary(),
            "kind": st.sampled_from("AB"),
            "pair": st.binary(min_size=2, max_size=2),
            "counts": st.dictionaries(unicode_texts(), st.none() | st.integers(-9, 9)),
            "children": children,
        }
    )


def loaded(type_: Type[Any], stored: TypedValue) -> tuple[Mapping[str, Any], TypedValue | str]:
    """Return the row that shows a stored value, and the value that is stored if this row is loaded, or the problem."""
    batch = shown_rows(type_, stored)
    return batch.to_pylist(maps_as_pydicts="strict")[0], encoded(type_, batch)


def shown_rows(type_: Type[Any], stored: TypedValue) -> pa.RecordBatch:
    """Return the row that shows a stored value of an address."""
    state = AddressState()
    state.values.add(name="kept", typename=stored.typename, value=stored.value)
    columns = {"kept": ("kept", type_)}
    rows = decoded_states(columns, [state.SerializeToString()], {}, Secrets())
    arrays = [pa.array(["Ada"]), *rows.flatten()]
    return pa.RecordBatch.from_arrays(arrays, names=["id", "kept", "undecoded"])


def encoded(type_: Type[Any], batch: pa.RecordBatch) -> TypedValue | str:
    """Return the value that is stored if a row is loaded, or why the row is refused."""
    spec = ValueSpec("kept", type_)
    (rows,) = StateEncoder("t/f", {"kept": spec}, 0, {"kept": spec})(iter([batch]))
    (row,) = rows.to_pylist()
    if row["problem"] is not None:
        return str(row["problem"])
    (value,) = AddressState.FromString(row["state"]).values
    return TypedValue(value.typename, value.value)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and have the same classes; the order of keys is none of a dict's values."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = {(type(key), key): key for key in other}
        return len(one) == len(other) and all(
            (type(key), key) in keys and same(one[key], other[keys[type(key), key]]) for key in one
        )
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dict__") and type(one) is type(other) and attrs.has(type(one)):
        return same(vars(one), vars(other))
    return are_same(one, other) or (type(one) is type(other) and one == other)


@st.composite
def types_and_contents(draw: st.DrawFn) -> tuple[Type[Any], TypedValue]:
    """Draw a type of values in JSON or MessagePack, and a stored value."""
    kind: Kind = draw(kinds())
    encoding: Format = draw(st.sampled_from(("json", "msgpack")))
    try:
        type_: Type[Any] = StructuredType("t/made", kind.annotation, encoding)
        value = draw(kind.values)
        content = type_.serializer().serialize(value)
    except (DefinitionError, TypeError, ValueError, OverflowError):
        assume(condition=False)  # no function can store such a value
        raise
    return type_, TypedValue(type_.typename, content)


@given(types_and_contents())
def test_each_value_that_is_shown_is_loaded_as_it_was(
    type_and_content: tuple[Type[Any], TypedValue],
) -> None:
    """Of random classes and annotations, by its cell, or else by its bytes beside it."""
    type_, stored = type_and_content

    _shown, again = loaded(type_, stored)

    assert isinstance(again, TypedValue), again
    assert same(type_.decode(*again), type_.decode(*stored))


@given(
    st.recursive(nodes(st.just([])), lambda inner: nodes(st.lists(inner, max_size=2)), max_leaves=3)
)
def test_each_value_of_avro_is_loaded_as_it_was(value: Any) -> None:
    """Also times, decimals, unions of several types, and records that contain themselves."""
    type_ = make_avro_type("t/node", AVRO)
    content = type_.serializer().serialize(value)

    _shown, again = loaded(type_, TypedValue("t/node", content))

    assert isinstance(again, TypedValue), again
    assert same(type_.decode(*again), type_.decode("t/node", content))


def packed(message: Message) -> any_pb2.Any:
    """Return a message that contains another one."""
    wrapped = any_pb2.Any()
    wrapped.Pack(message)
    return wrapped


@pytest.mark.parametrize(
    "message",
    [
        timestamp_pb2.Timestamp(seconds=9, nanos=5000),
        timestamp_pb2.Timestamp(seconds=9, nanos=1),
        duration_pb2.Duration.FromString(b"\x08\x01\x38\x05"),
        wrappers_pb2.UInt64Value(value=2**64 - 1),
        struct_pb2.Struct(fields={"a": struct_pb2.Value(number_value=1), "b": struct_pb2.Value()}),
        struct_pb2.ListValue(values=[struct_pb2.Value(string_value="[x")]),
        type_pb2.Type(name="T", fields=[type_pb2.Field(kind=type_pb2.Field.TYPE_BOOL)]),
        type_pb2.Field(kind=99),  # type: ignore[arg-type] # a number that a newer program has written
        FieldDescriptorProto(name="", label=FieldDescriptorProto.LABEL_REPEATED),
        packed(wrappers_pb2.BytesValue(value=b"\xff")),
        Manifest(
            batch=3,
            segments=[Segment(partition=1, egress={"a": EffectStream(records=2)}, buckets=[7])],
        ),
        CallReport(),
    ],
    ids=lambda message: message.DESCRIPTOR.name,
)
def test_each_message_of_protobuf_is_loaded_as_it_was(message: Message) -> None:
    """Also times, enums, maps, messages that contain themselves, and fields that a program does not know."""
    type_ = make_protobuf_type(type(message))

    _shown, again = loaded(type_, TypedValue(type_.typename, message.SerializeToString()))

    assert isinstance(again, TypedValue), again
    assert type_.decode(*again) == message


def test_a_value_that_its_column_changes_is_loaded_from_its_bytes() -> None:
    """Such as a time without a time zone, which is shown as one of UTC, and a null, which is no value."""
    type_: Type[Any] = make_json_type("t/moment", datetime | None)  # type: ignore[arg-type] # an annotation
    content = TypedValue("t/moment", type_.serializer().serialize(NOON))
    null = TypedValue("t/moment", b"null")

    shown, again = loaded(type_, content)
    assert shown["kept"] == NOON.replace(tzinfo=timezone.utc)
    assert shown["undecoded"]["kept"] == {
        "typename": "t/moment",
        "value": content.value,
        "reason": "its column cannot have exactly this value",
    }
    assert again == content
    assert loaded(type_, null)[1] == null


def test_a_value_that_expires_is_loaded_without_its_column() -> None:
    """It expires as if it were written now, like a value in a column."""
    type_: Type[Any] = make_json_type("t/moment", datetime | None)  # type: ignore[arg-type] # an annotation
    batch = shown_rows(type_, TypedValue("t/moment", type_.serializer().serialize(NOON)))
    spec = ValueSpec("kept", type_, expire_after_write=timedelta(seconds=5))

    (rows,) = StateEncoder("t/f", {}, 1000, {"kept": spec})(iter([batch]))

    (value,) = AddressState.FromString(rows.to_pylist()[0]["state"]).values
    assert value.expires == 6000


class Open(pydantic.BaseModel, extra="allow"):
    """A model that keeps fields that it does not declare, for which there is no column."""

    name: str


def test_fields_that_a_model_does_not_declare_are_loaded_from_the_bytes() -> None:
    """Its column has the declared fields alone."""
    type_ = make_json_type("t/open", Open)
    content = TypedValue("t/open", b'{"name":"Ada","age":36}')

    shown, again = loaded(type_, content)

    assert shown["kept"] == {"name": "Ada"}
    assert again == content


def test_a_row_whose_column_was_changed_beside_the_bytes_is_refused() -> None:
    """Either the change would be lost, or what the column cannot have."""
    type_: Type[Any] = make_json_type("t/moment", datetime | None)  # type: ignore[arg-type] # an annotation
    batch = shown_rows(type_, TypedValue("t/moment", type_.serializer().serialize(NOON)))
    later = pa.array(
        [NOON.replace(year=2027, tzinfo=timezone.utc)], batch.schema.field("kept").type
    )
    gone = pa.nulls(1, batch.schema.field("undecoded").type)

    for changed in (later, pa.nulls(1, later.type)):
        assert encoded(type_, batch.set_column(1, "kept", changed)) == (
            "the value kept of t/f/Ada cannot be taken from the column undecoded: the column kept shows another value; leave "
            "one of the two out, with null in its place"
        )
    assert encoded(
        type_, batch.set_column(1, "kept", later).set_column(2, "undecoded", gone)
    ) == TypedValue("t/moment", b'"2027-01-01T12:00:00Z"')


def test_values_that_the_function_cannot_read_are_refused() -> None:
    """One sentence says which value it is, and why: they would be lost, or kept for a later error."""
    stored = StringType.serializer().serialize("Ada")
    damaged = make_json_type("t/numbers", list[int])

    assert loaded(IntType, TypedValue(StringType.typename, stored))[1] == (
        "the value kept of t/f/Ada cannot be taken from the column undecoded: it is stored as io.statefun.types/string, and "
        "declared as io.statefun.types/int"
    )
    assert str(loaded(damaged, TypedValue("t/numbers", b'["a"]'))[1]).startswith(
        "the value kept of t/f/Ada cannot be taken from the column undecoded: it does not decode as t/numbers: "
        "ValidationError: "
    )
