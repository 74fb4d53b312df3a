# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_application import SPECS, everything

from statefun import (
    BoolType,
    BytesType,
    ConfigurationError,
    DoubleType,
    FloatType,
    IntType,
    LongType,
    StringType,
    Type,
)
from statefun.runtime.stored.written_values import RawValue, encoded_value, written_value

TYPES = {spec.name: spec.type for spec in everything()}
TEXTS = {
    "flag": "true",
    "number": "7",
    "big": "1099511627776",
    "ratio": "0.5",
    "name": "Ada",
    "order": '{"lines": [{"item": "pen"}, {"item": "ink", "count": 2}], "placed": "2026-01-01T00:00:00Z"}',
    "note": '{"text": "read", "tags": {"a": 1}}',
    "profile": '{"name": "Ada"}',
    "reading": '{"sensor": "s1", "values": [1.0, 2.5], "comment": null}',
    "span": '"90.000000005s"',
    "anything": '{"free": [1, null, "x"]}',
}
"""How a person writes the values of ``SPECS``, but for the type that has no form in JSON."""


@pytest.mark.parametrize("name", TEXTS)
def test_values_of_all_kinds_of_types_can_be_written(name: str) -> None:
    """As text, or as the JSON of their type."""
    type_ = TYPES[name]

    content = encoded_value(written_value(TEXTS[name], type_), type_, type_.typename)

    assert type_.serializer().deserialize(content) == SPECS[name]


@given(
    st.one_of(
        st.tuples(st.just(BoolType), st.booleans()),
        st.tuples(st.just(IntType), st.integers(-(1 << 31), (1 << 31) - 1)),
        st.tuples(st.just(LongType), st.integers(-(1 << 63), (1 << 63) - 1)),
        st.tuples(st.just(DoubleType), st.floats(allow_nan=False)),
        st.tuples(st.just(FloatType), st.floats(allow_nan=False, width=32)),
        st.tuples(st.just(StringType), st.text()),
    )
)
def test_primitive_values_go_round(pair: tuple[Type[Any], Any]) -> None:
    """What is printed is what was written."""
    type_, value = pair
    text = value if isinstance(value, str) else json.dumps(value)

    content = encoded_value(written_value(text, type_), type_, type_.typename)

    assert content == type_.serializer().serialize(value)


@pytest.mark.parametrize(
    ("type_", "text", "reason"),
    [
        (IntType, "five", "'five' is not JSON"),
        (IntType, "5.5", "it is no value of type io.statefun.types/int"),
        (IntType, "true", "it is no value of type io.statefun.types/int"),
        (IntType, "2147483648", "it is no value of type io.statefun.types/int"),
        (IntType, "null", "it is no value of type io.statefun.types/int"),
        (BoolType, "1", "it is no value of type io.statefun.types/bool"),
        (DoubleType, '"1"', "it is no value of type io.statefun.types/double"),
        (BytesType, '"AAEC"', "bytes must be given in base64 or hex"),
        (TYPES["order"], '{"lines": [{"count": 1}]}', "missing required field `item`"),
        (TYPES["profile"], '{"age": 1}', "it is no value of type test.state/Profile"),
        (TYPES["note"], '{"text": 1, "tags": {}}', "it is no value of type test.state/Note"),
        (TYPES["span"], '"soon"', "it is no value of type"),
        (TYPES["anything"], '{"a": 1, "a": 2}', "is not JSON (the key 'a' occurs twice)"),
        (TYPES["anything"], "[" * 200_000, "it is nested too deep"),
        (None, "1", "its type, a/b, is known only to a program"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    type_: Type[Any] | None, text: str, reason: str
) -> None:
    """With the reason, before anything is written."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        encoded_value(written_value(text, type_), type_, "a/b" if type_ is None else type_.typename)


def test_bytes_are_written_in_base64_or_hex() -> None:
    """The content of a value of bytes; any other value as it is stored, if its type reads that."""
    five = IntType.serializer().serialize(5)
    assert RawValue.of("AAEC", "base64") == RawValue.of("00 01 02", "hex") == RawValue(b"\0\1\2")
    raw = BytesType.serializer().serialize(b"\0\1\2")
    assert encoded_value(RawValue(b"\0\1\2"), BytesType, BytesType.typename) == raw
    assert encoded_value(RawValue(five), IntType, IntType.typename) == five
    assert encoded_value(RawValue(b"\xff"), None, "a/b") == b"\xff"
    with pytest.raises(ValueError, match="it does not decode as"):
        encoded_value(RawValue(b"\xff"), IntType, IntType.typename)
    for text, encoding in (("A", "base64"), ("0", "hex"), ("zz", "hex")):
        with pytest.raises(ConfigurationError, match=f"the value is not {encoding}"):
            RawValue.of(text, encoding)
