# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statefun.files.parquet_rows import rows_between


def parquet(**columns: Any) -> io.BytesIO:
    """Return a file with these columns, in groups of two rows."""
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=2)
    return file


def test_a_row_group_with_an_unknown_time_zone_is_a_rejected_record() -> None:
    """It cannot be decoded, as other damaged row groups; the next one is read."""
    times = pa.array([1, None, None], pa.timestamp("us", tz="Nowhere/City"))

    broken, last = rows_between(parquet(id=["a", "b", "c"], at=times), 0, 3, "id")

    assert (broken.number, broken.key, broken.value) == (0, None, b"")
    assert "rows 1 to 2 of row group 0 cannot be decoded: " in (broken.problem or "")
    assert "Nowhere/City" in (broken.problem or "")
    assert (last.key, json.loads(last.value)) == (b"c", {"id": "c", "at": None})


@pytest.mark.parametrize(
    "odd",
    [
        pa.array([0, 2**62, 0, 0], pa.timestamp("us")),
        pa.array([0, 2**31 - 1, 0, 0], pa.date32()),
        pa.array([b"x", b"\xff\xfe", b"y", b"z"]).view(pa.string()),
    ],
    ids=["timestamp", "date", "text"],
)
def test_a_value_that_cannot_be_decoded_rejects_its_row_alone(odd: Any) -> None:
    """The rows before and after it in the same row group are read."""
    file = io.BytesIO()
    pq.write_table(pa.table({"id": ["a", "b", "c", "d"], "odd": odd}), file)

    rows = list(rows_between(file, 0, 4, "id"))

    assert [row.key for row in rows] == [b"a", None, b"c", b"d"]
    assert [row.number for row in rows] == [0, 1, 2, 3]
    assert rows[1].value == b""
    assert "row 2 has a value that cannot be decoded: " in (rows[1].problem or "")
    assert [row.problem for row in rows if row.key] == [None, None, None]


def test_a_value_is_json_also_for_numbers_that_are_not_finite() -> None:
    """JSON has no such numbers, and a reader may refuse them: they are the texts that Spark's to_json writes."""
    nan, infinity = float("nan"), float("inf")
    deep = [{"list": [nan, 1.5], "time": pa.scalar(0, pa.timestamp("s")).as_py()}, None]
    file = parquet(id=["a", "b"], x=[nan, 2.5], y=[infinity, -infinity], deep=deep)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    rows = [json.loads(row.value, parse_constant=refuse) for row in rows_between(file, 0, 2, "id")]

    first = {"list": ["NaN", 1.5], "time": "1970-01-01T00:00:00"}
    assert rows == [
        {"id": "a", "x": "NaN", "y": "Infinity", "deep": first},
        {"id": "b", "x": 2.5, "y": "-Infinity", "deep": None},
    ]


def test_a_decimal_can_be_the_id() -> None:
    """With all digits, and without an exponent."""
    ids = pa.array([Decimal("1E+3"), Decimal("-0.0000001"), Decimal(7)], pa.decimal128(20, 7))

    rows = [*rows_between(parquet(id=ids), 0, 3, "id")]
    assert [(row.key, row.problem) for row in rows] == [
        (b"1000.0000000", None),
        (b"-0.0000001", None),
        (b"7.0000000", None),
    ]
