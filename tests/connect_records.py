# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies of records in the model of Kafka Connect, with schemas and without."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import attrs
from hypothesis import strategies as st

from statefun.transforms.data import (
    CONNECT_DATE,
    CONNECT_DECIMAL,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    INTEGERS,
    MILLIS_PER_DAY,
    Data,
    Field,
    Moment,
    Schema,
    SchemaKind,
)
from statefun.transforms.java_numbers import single
from statefun.transforms.transform import Record

NAMES = ("a", "b", "c", "d.e")
"""Few names, so that options often name fields that there are."""
names = st.sampled_from(NAMES)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    (
        "12",
        "-7",
        "+3",
        "1.5",
        "1e3",
        "true",
        "TRUE",
        "no",
        " 4 ",
        "2026-02-29",
        "0x1p3",
        "7f",
        "300",
    )
)
# Java 17 does not always write the shortest digits of a float.
floats = st.floats(-1e18, 1e18).map(lambda number: float(f"{number:.9g}") + 0.0)
singles = st.integers(-10000, 10000).map(lambda number: single(number / 64))
millis = st.integers(0, 4_000_000_000_000) | st.sampled_from((0, 1, MILLIS_PER_DAY))

_PLAIN: Mapping[SchemaKind, st.SearchStrategy[Any]] = {
    **{
        kind: st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) | st.integers(-3, 3)
        for kind, bits in INTEGERS.items()
    },
    SchemaKind.FLOAT32: singles,
    SchemaKind.FLOAT64: floats,
    SchemaKind.BOOLEAN: st.booleans(),
    SchemaKind.STRING: texts,
    SchemaKind.BYTES: st.binary(max_size=4),
}
_LOGICAL: Mapping[str, tuple[Schema, st.SearchStrategy[Any]]] = {
    CONNECT_DATE: (
        Schema(SchemaKind.INT32, name=CONNECT_DATE, version=1),
        st.integers(-1000, 40000).map(lambda days: Moment(days * MILLIS_PER_DAY)),
    ),
    CONNECT_TIME: (
        Schema(SchemaKind.INT32, name=CONNECT_TIME, version=1),
        st.integers(0, 86_399_999).map(Moment),
    ),
    CONNECT_TIMESTAMP: (
        Schema(SchemaKind.INT64, name=CONNECT_TIMESTAMP, version=1),
        millis.map(Moment),
    ),
    CONNECT_DECIMAL: (
        Schema(SchemaKind.BYTES, name=CONNECT_DECIMAL, version=1, parameters=(("scale", "2"),)),
        st.integers(-(10**6), 10**6).map(lambda number: Decimal(number).scaleb(-2)),
    ),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Schema:
    """Draw any schema."""
    plain: list[SchemaKind | str] = [*_PLAIN, *_LOGICAL]
    nested = [*(SchemaKind.STRUCT,) * 4, SchemaKind.ARRAY, SchemaKind.MAP] if depth else []
    made = draw(st.sampled_from([*plain, *nested]))
    if made is SchemaKind.STRUCT:
        schema = draw(structs(depth))
    elif isinstance(made, str):
        schema = _LOGICAL[made][0]
    else:
        assert isinstance(made, SchemaKind)
        schema = Schema(made)
        if made in {SchemaKind.ARRAY, SchemaKind.MAP}:
            schema = attrs.evolve(schema, items=draw(schemas(depth - 1)))
        if made is SchemaKind.MAP:
            schema = attrs.evolve(
                schema, keys=Schema(draw(st.sampled_from((SchemaKind.STRING, SchemaKind.INT32))))
            )
    if draw(st.booleans()):
        schema = attrs.evolve(schema, is_optional=True)
    if schema.kind in _PLAIN and draw(st.integers(0, 3)) == 0:
        default = draw(values(attrs.evolve(schema, is_optional=False)))
        schema = attrs.evolve(schema, default=default)
    return schema


@st.composite
def structs(draw: st.DrawFn, depth: int = 2) -> Schema:
    """Draw the schema of a struct."""
    found = draw(st.lists(names, unique=True, max_size=4))
    fields = tuple(Field(name, draw(schemas(depth - 1))) for name in found)
    named = draw(st.sampled_from((None, "com.example.User")))
    documented = draw(st.sampled_from((None, "users")))
    version = draw(st.sampled_from((None, 3)))
    return Schema(SchemaKind.STRUCT, name=named, version=version, doc=documented, fields=fields)


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Return a strategy of values of a schema."""
    if schema.name is not None and schema.name in _LOGICAL:
        made = _LOGICAL[schema.name][1]
    elif schema.kind is SchemaKind.STRUCT:
        made = st.fixed_dictionaries({name: values(each) for name, each in schema.fields})
    elif schema.kind is SchemaKind.ARRAY and schema.items is not None:
        made = st.lists(values(schema.items), max_size=2)
    elif schema.kind is SchemaKind.MAP and schema.items is not None and schema.keys is not None:
        made = st.dictionaries(values(schema.keys), values(schema.items), max_size=2)
    else:
        made = _PLAIN[schema.kind]
    return st.none() | made if schema.is_optional else made


def json_values(depth: int = 2) -> st.SearchStrategy[Any]:
    """Return a strategy of values without a schema, as JSON has them."""
    plain = st.none() | st.booleans() | _PLAIN[SchemaKind.INT64] | millis | floats | texts
    if depth == 0:
        return plain
    inner = json_values(depth - 1)
    return plain | st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=4)


@st.composite
def data(draw: st.DrawFn) -> Data:
    """Draw a key or value: most often an object."""
    if draw(st.booleans()):
        schema = draw(structs() | structs() | structs() | schemas())
        if draw(st.integers(0, 5)) == 0:
            schema = attrs.evolve(schema, is_optional=True)
        return Data(schema, draw(values(schema)))
    objects = st.dictionaries(names, json_values(), max_size=4)
    return Data(None, draw(objects | objects | json_values()))


records = st.builds(
    Record,
    topic=st.sampled_from(("users", "users-v2", "a.b_c", "x")),
    partition=st.integers(0, 9),
    offset=st.integers(0, 2**40),
    timestamp=millis,
    key=data(),
    value=data(),
)
