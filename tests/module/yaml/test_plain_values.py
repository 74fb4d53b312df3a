# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from statefun.module.yaml.plain_values import plain_value
from statefun.sdk.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("[7, -7, +7, 0, 0x1f, 0o17]", [7, -7, 7, 0, 31, 15]),
        ("[1.5, .5, 1., 1e5, 1E-2, -1.5e+3]", [1.5, 0.5, 1.0, 100000.0, 0.01, -1500.0]),
        ("[true, False, null, ~]", [True, False, None, None]),
        (
            "[010, 010.5, 12:30, 1:2.5, 1_000, 0b1]",
            ["010", "010.5", "12:30", "1:2.5", "1_000", "0b1"],
        ),
        ("[yes, no, on, off, y, -, =, ٣]", ["yes", "no", "on", "off", "y", "-", "=", "٣"]),
        ("['7', \"true\", !!str 7, 2026-02-28]", ["7", "true", "7", date(2026, 2, 28)]),
        ("a: !!binary AAEC", {"a": b"\0\1\2"}),
        ("[&a {x: 1}, &b {<<: *a, x: 2}, {<<: *b, y: 3}]", [{"x": 1}, {"x": 2}, {"x": 2, "y": 3}]),
    ],
)
def test_values_are_read_as_json_and_yaml_1_2_have_them(text: str, value: Any) -> None:
    """What only YAML 1.1 takes for a number or a truth value is text."""
    assert plain_value(text, "f.yaml") == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{a: 1, a: 2}", ": line 1, column 8: this key occurs twice"),
        ("{16: 1, 0x10: 2}", ": line 1, column 9: this key occurs twice"),
        ("a: {b: 1, 'b': 2}", ": line 1, column 11: this key occurs twice"),
        ("a: 2026-02-30", ": line 1, column 4: this date or number cannot be read; put it in quotes if"),
        ("a: " + "9" * 5000, ": line 1, column 4: this date or number cannot be read"),
        ("a: !!timestamp soon", ": line 1, column 4: this date or number cannot be read"),
        ("a: !!bool soon", ": line 1, column 4: this date or number cannot be read"),
        ("[" * 1000 + "]" * 1000, ": the document nests deeper than 64 levels"),
        ("&a [*a]", ": line 1, column 1: aliases make the document too deep, or too large"),
        (
            "[&a [" + "1," * 200 + "], &b [" + "*a," * 200 + "]]",
            ": aliases make the document too deep, or too large",
        ),
        ('"\\ud800"', ": line 1, column 1: this text has characters that are not Unicode text"),
        ('a:\n  "\\UFFFFFFFF"', " is not YAML: line 2, column 6"),
        ("a: b: c", " is not YAML: line 1, column 5 (mapping values are not allowed here)"),
        ("a: *hunter2", " is not YAML: line 1, column 4"),
        ("a: !hunter2 b", " is not YAML: line 1, column 4"),
        ("a: \x01", " is not YAML"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(text: str, problem: str) -> None:
    """In one sentence, which quotes nothing that may be a secret."""
    with pytest.raises(ConfigurationError) as caught:
        plain_value(text, "f.yaml")

    assert problem in caught.value.message
    assert caught.value.message.startswith("file f.yaml")
    assert "hunter2" not in caught.value.message


TEXTS = st.text(st.characters(exclude_characters="\x7f", codec="utf-8"), max_size=20)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | TEXTS,
        lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
        max_leaves=10,
    ),
    st.booleans(),
)
def test_json_has_the_same_value(value: Any, is_ascii: bool) -> None:
    """Also if its characters are escaped, those outside of the basic plane as two."""
    text = json.dumps(value, ensure_ascii=is_ascii)
    # What a line of YAML cannot have in JSON's form.
    assume(is_ascii or all(each.isprintable() for each in text))

    assert plain_value(text, "f.yaml") == value
