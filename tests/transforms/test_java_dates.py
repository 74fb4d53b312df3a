# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.transforms.java_dates import DateFormat

_DAY = 86_400_000
_YEARS = st.integers(-62_135_596_800_000, 253_402_300_799_999)


@pytest.mark.parametrize(
    "pattern",
    [
        "yyyy-MM-dd HH:mm:ss.SSS",
        "yyyyMMddHHmmssSSS",
        "EEEE, d. MMMM yyyy h:m:s.S a",
        "yyyy D k:m:s.S",
    ],
)
@given(millis=_YEARS)
def test_times_are_read_as_they_were_written(pattern: str, millis: int) -> None:
    """A pattern with all units loses nothing."""
    made = DateFormat(pattern)
    assert made.parse(made.format(millis)) == millis


@given(text=st.text(max_size=30))
def test_any_text_is_a_date_or_an_error(text: str) -> None:
    """No text raises anything but a ValueError."""
    for pattern in ("yyyy-MM-dd'T'HH:mm:ssX", "d MMM yy h a z", "D y"):
        try:
            millis = DateFormat(pattern).parse(text)
        except ValueError:
            continue
        assert isinstance(millis, int)


@pytest.mark.parametrize(
    ("pattern", "text", "millis"),
    [
        ("yyyy-MM-dd", "2026-13-32 and more", 1_801_440_000_000),
        ("yyyy-MM-dd HH:mm Z", "1970-01-01 02:00 +0130", 30 * 60_000),
        ("yyyy-MM-dd HH:mm z", "1970-01-01 02:00 GMT-1:00", 3 * 3_600_000),
        ("HH:mmX", "01:00Z", 3_600_000),
        ("HH:mmXXX", "01:00-00:30", 5_400_000),
        ("hh a", "12 am", 0),
        ("hh a", "12 PM", 12 * 3_600_000),
        ("d MMMM yyyy", "1 feb 1970", 31 * _DAY),
        ("''yyyy'' 'o''clock'", "'1971' o'clock", 365 * _DAY),
    ],
)
def test_dates_are_read_as_java_reads_them(pattern: str, text: str, millis: int) -> None:
    """Parsing is lenient: units carry over, and text after the pattern is ignored."""
    assert DateFormat(pattern).parse(text) == millis


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "2026/01/01"),
        ("yyyy", "99999"),
        ("d MMM", "1 Foo"),
        ("HHmm", "1"),
        ("yyyy-MM-dd", "0000-01-01"),
        ("s", "9" * 30),
    ],
)
def test_other_texts_are_refused(pattern: str, text: str) -> None:
    """The error has a reason."""
    with pytest.raises(ValueError, match=r"match the pattern|out of range"):
        DateFormat(pattern).parse(text)
