# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.transforms.java_numbers import (
    parsed_float,
    parsed_integer,
    shortest,
    single,
    text_of_float,
    truncated,
    wrapped,
)


@given(number=st.floats(allow_nan=False))
def test_floats_are_read_as_they_were_written(number: float) -> None:
    """The written digits distinguish a float from all others."""
    assert parsed_float(text_of_float(number)) == number


@given(number=st.floats(width=32, allow_nan=False))
def test_singles_are_written_with_fewer_digits(number: float) -> None:
    """The written digits distinguish a float of 32 bits from all others of 32 bits."""
    assert single(parsed_float(text_of_float(number, is_single=True))) == number
    assert single(shortest(number)) == number


@given(number=st.integers(-(2**70), 2**70), bits=st.sampled_from((8, 16, 32, 64)))
def test_whole_numbers_lose_their_upper_bits(number: int, bits: int) -> None:
    """The result is that of a cast in C."""
    code = {8: "b", 16: "h", 32: "i", 64: "q"}[bits]
    low = (number % (1 << bits)).to_bytes(bits // 8, "little")
    assert wrapped(number, bits) == struct.unpack(f"<{code}", low)[0]


@pytest.mark.parametrize(
    ("number", "bits", "expected"),
    [
        (1e10, 32, 2**31 - 1),
        (-1e10, 8, 0),
        (1e10, 8, -1),
        (-2.9, 16, -2),
        (math.inf, 64, 2**63 - 1),
    ],
)
def test_floats_are_limited_before_they_are_wrapped(
    number: float, bits: int, expected: int
) -> None:
    """The limit is the range of int or long: "Narrowing Primitive Conversion" in Java."""
    assert truncated(number, bits) == expected


@pytest.mark.parametrize("text", ["", " ", "1_000", "0x10", "1e", "--1", "1 2", "one", "12x"])
def test_other_texts_are_refused(text: str) -> None:
    """Texts that only Python accepts are refused as well."""
    with pytest.raises(ValueError, match="is no"):
        parsed_integer(text, 64)
    with pytest.raises(ValueError, match="is no"):
        parsed_float(text)


@pytest.mark.parametrize(
    ("text", "number"), [("1f", 1), (" -.5D ", -0.5), ("0x1.8p1", 3), ("-Infinity", -math.inf)]
)
def test_floats_are_read_in_javas_forms(text: str, number: float) -> None:
    """A float may have a type letter, be hexadecimal, or be a name such as NaN."""
    assert parsed_float(text) == number
