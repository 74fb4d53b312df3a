# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from statefun.files.scanning import whole_lines

LINES = st.lists(st.text('ab\r "', max_size=6).map(lambda text: text.encode()), max_size=30)


@given(LINES, st.binary(max_size=5).filter(lambda rest: b"\n" not in rest), st.integers(1, 40))
def test_parts_are_whole_lines(lines: list[bytes], rest: bytes, most: int) -> None:
    """They have all lines up to the limit, in order, and the rest of the file only if asked for."""
    content = b"".join(line + b"\n" for line in lines) + rest
    file = io.BytesIO(content)

    parts = list(whole_lines(file, 0, len(content), most))
    with_rest = list(whole_lines(file, 0, len(content), most, takes_rest=True))

    taken = lines[:most]
    assert sum(part.lines for part in parts) == len(taken)
    assert b"".join(content[part.start : part.end] for part in parts) == b"".join(
        line + b"\n" for line in taken
    )
    has_rest = bool(rest) and len(lines) < most
    assert sum(part.lines for part in with_rest) == len(taken) + has_rest
    assert all(one.end == two.start for one, two in pairwise(with_rest))


@given(st.lists(st.lists(st.text('a",\n', max_size=5), min_size=2, max_size=2), min_size=1))
def test_rows_of_csv_may_have_line_breaks(rows: list[list[str]]) -> None:
    """Line breaks between quotation marks belong to the row."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    content = text.getvalue().encode()

    parts = list(whole_lines(io.BytesIO(content), 0, len(content), 1, delimiter=","))
    everything = list(whole_lines(io.BytesIO(content), 0, len(content), 10_000, delimiter=","))

    [first] = parts
    assert list(csv.reader(io.StringIO(content[: first.end].decode(), newline=""))) == rows[:1]
    assert sum(part.lines for part in everything) == len(rows)


def test_large_files_are_divided() -> None:
    """A task reads a few megabytes at most, however long the lines are."""
    content = b"x" * 3_000_000 + b"\n" + b"y\n" * 50_000

    parts = list(whole_lines(io.BytesIO(content), 0, len(content), 100_000))

    assert [part.lines for part in parts] == [20_000, 20_000, 10_001]
    assert parts[-1].end == len(content)
