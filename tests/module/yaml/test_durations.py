# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.module.yaml.durations import parse_duration

UNITS = {
    timedelta(days=1): ["d", "day", "days"],
    timedelta(hours=1): ["h", "hour", "hours"],
    timedelta(minutes=1): ["min", "m", "minute", "minutes", "MIN"],
    timedelta(seconds=1): ["s", "sec", "second", "seconds"],
    timedelta(milliseconds=1): ["", "ms", "milli", "millis", "millisecond", "milliseconds"],
    timedelta(microseconds=1): ["us", "µs", "\u03bcs", "micro", "microsecond", "microseconds"],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123ms", timedelta(milliseconds=123)),
        ("1 min", timedelta(minutes=1)),
        ("15min", timedelta(minutes=15)),
        ("1 minute", timedelta(minutes=1)),
        ("100000", timedelta(seconds=100)),
        (" 2 h ", timedelta(hours=2)),
        ("0", timedelta()),
    ],
)
def test_reads_documented_forms(text: str, expected: timedelta) -> None:
    """The documented forms have the documented values."""
    duration = parse_duration(text)

    assert duration == expected


@given(
    number=st.integers(0, 100_000),
    unit=st.sampled_from([(unit, name) for unit, names in UNITS.items() for name in names]),
    space=st.sampled_from(["", " ", "  "]),
)
def test_a_unit_multiplies_the_number(number: int, unit: tuple[timedelta, str], space: str) -> None:
    """Every unit, with and without a space, multiplies the number."""
    length, name = unit

    duration = parse_duration(f"{number}{space}{name}")

    assert duration == number * length


@given(number=st.integers(0, 10**15), unit=st.sampled_from(["ns", "nano", "nanoseconds"]))
def test_rounds_nanoseconds_up(number: int, unit: str) -> None:
    """A fraction of a microsecond never becomes zero."""
    duration = parse_duration(f"{number}{unit}")

    assert 0 <= duration / timedelta(microseconds=1) * 1000 - number < 1000


@pytest.mark.parametrize("text", ["", "min", "-1s", "1.5s", "1 fortnight", "1h 30min", "\u0661s"])
def test_refuses_other_texts(text: str) -> None:
    """Anything else is refused, without repeating it."""
    with pytest.raises(ValueError, match="such as '15min'") as raised:
        parse_duration(text)

    assert str(raised.value) == (
        "is not a duration; write a whole number and a unit (d, h, min, s, ms, us or ns), "
        "such as '15min'; without a unit it is milliseconds"
    )


def test_refuses_long_texts_in_linear_time() -> None:
    """The time to refuse a text does not grow with the square of its length."""
    text = "9" * 200_000 + " x y"

    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1000000000d", "9" * 24, "9" * 10_000])
def test_refuses_durations_that_are_too_long(text: str) -> None:
    """Durations that Python cannot hold are refused, with any number of digits."""
    with pytest.raises(ValueError, match=r"^is too long for a duration$"):
        parse_duration(text)


@given(text=st.text())
def test_raises_only_value_errors(text: str) -> None:
    """Any text is a duration or a ValueError."""
    try:
        duration = parse_duration(text)
    except ValueError:
        return

    assert duration >= timedelta()
