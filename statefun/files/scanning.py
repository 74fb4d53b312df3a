# SPDX-License-Identifier: Apache-2.0
"""Finds where the records of a file begin and end: the driver plans micro-batches with that."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

_CHUNK = 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024
MOST_LINES = 20_000
"""The limits of a part, all of which a task reads into memory."""
LONGEST = 8 * 1024 * 1024
"""The size of the longest record, in bytes."""
SHOWN = 64 * 1024
"""How much of a longer record is kept, in bytes."""

csv.field_size_limit(LONGEST)
_ROW_LINES = 100_000
"""The most lines of a row of CSV."""
_ALONE = {ord("\r"): 0xD800, ord("\0"): 0xD801}
_BACK = {substitute: character for character, substitute in _ALONE.items()}
"""Characters at which Python's reader of CSV ends rows, or which it refuses, and their substitutes: no
bytes are decoded to those."""


class Part(NamedTuple):
    """Whole records of a file."""

    start: int
    end: int
    """In bytes; of Parquet, in rows."""
    lines: int
    """How many lines or rows the part has."""
    problem: str | None = None
    """Why the part is one record that cannot be decoded; None if it can."""


class _Line(NamedTuple):
    """A line with its line break, if it has one."""

    content: bytes
    """The bytes of the line, or its first bytes if it is longer than :data:`LONGEST`."""
    size: int
    is_whole: bool


def whole_lines(  # noqa: PLR0913 - the facts about the lines
    file: BinaryIO,
    start: int,
    size: int,
    most: int,
    *,
    delimiter: str | None = None,
    takes_rest: bool = False,
) -> Iterator[Part]:
    r"""Divide the lines between two places of a file into parts.

    A record that cannot be decoded is a part of its own: a line that is too long, and the first line of
    a row of CSV in which a quotation mark is not closed. Reading goes on with the next line.

    >>> from io import BytesIO
    >>> [part[:3] for part in whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100)]
    [(0, 8, 2)]
    >>> [part[:3] for part in whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100, takes_rest=True)]
    [(0, 11, 3)]

    Args:
        file: the file.
        start: where the first line begins.
        size: where to end.
        most: how many lines to return at most.
        delimiter: the delimiter of CSV, where line breaks may belong to a field; None for lines.
        takes_rest: whether the end of the file ends the last line and row.
    """
    lines = _lines(file, start, size)
    at, part, count = start, start, 0
    for number, (length, is_ended, problem) in enumerate(
        _plain(lines) if delimiter is None else _rows(lines, delimiter)
    ):
        if number == most or not (is_ended or takes_rest):
            break
        if problem is not None:
            if count:
                yield Part(part, at, count)
            yield Part(at, at + length, 1, f"{problem}, from byte {at:,} on")
            at, part, count = at + length, at + length, 0
            continue
        at, count = at + length, count + 1
        if count >= MOST_LINES or at - part >= MOST_BYTES:
            yield Part(part, at, count)
            part, count = at, 0
    if count:
        yield Part(part, at, count)


class Row(NamedTuple):
    """A row of CSV."""

    content: bytes
    cells: list[str]
    """The fields; bytes that are no UTF-8 are surrogates."""


def csv_rows(lines: Iterable[bytes], delimiter: str) -> Iterator[Row]:
    """Yield the rows of complete lines of CSV."""
    row_lines: list[bytes] = []

    def fed() -> Iterator[str]:
        for line in lines:
            row_lines.append(line)
            yield _decoded(line)

    for cells in csv.reader(fed(), delimiter=delimiter):
        yield Row(b"".join(row_lines), [cell.translate(_BACK) for cell in cells])
        row_lines.clear()


def _decoded(line: bytes) -> str:
    # For Python's reader a carriage return ends a row, even if it is not a part of a line break.
    if b"\r" not in line and b"\0" not in line:
        return line.decode(errors="surrogateescape")
    end = "\r\n" if line.endswith(b"\r\n") else "\n" if line.endswith(b"\n") else ""
    return line.decode(errors="surrogateescape").removesuffix(end).translate(_ALONE) + end


_Record = tuple[int, bool, str | None]
"""The size of a record in bytes, whether it is complete, and its problem."""


def _lines(file: BinaryIO, start: int, size: int) -> Iterator[_Line]:
    """Yield the lines between two places of a file."""
    file.seek(start)
    at, rest, length = start, list[bytes](), 0
    while at < size and (chunk := file.read(min(_CHUNK, size - at))):
        at += len(chunk)
        for piece in _split(chunk):
            length += len(piece)
            if length <= LONGEST + _CHUNK:
                rest.append(piece)
            if piece.endswith(b"\n"):
                yield _Line(b"".join(rest), length, is_whole=True)
                rest, length = [], 0
    if length:
        yield _Line(b"".join(rest), length, is_whole=False)


def _split(chunk: bytes) -> list[bytes]:
    """Split at line feeds alone."""
    *whole, last = chunk.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _too_long(size: int) -> str:
    return f"a line of {size:,} bytes, which is more than {LONGEST:,}"


def _plain(lines: Iterator[_Line]) -> Iterator[_Record]:
    for line in lines:
        problem = _too_long(line.size) if line.size > LONGEST else None
        yield line.size, line.is_whole, problem


def _rows(lines: Iterator[_Line], delimiter: str) -> Iterator[_Record]:
    """Yield rows of CSV."""
    pushed_back: deque[_Line] = deque()
    """Lines that were read for a row whose quotation mark is not closed."""

    def following() -> Iterator[_Line]:
        while True:
            line = pushed_back.popleft() if pushed_back else next(lines, None)
            if line is None:
                return
            yield line

    for first in following():
        if first.size > LONGEST:
            yield first.size, first.is_whole, _too_long(first.size)
        elif b'"' not in first.content:
            yield first.size, first.is_whole, None
        else:
            row, is_closed = _row(first, following(), delimiter)
            if is_closed:
                yield sum(line.size for line in row), row[-1].is_whole, None
            else:
                is_ended = _is_too_long(row)
                pushed_back.extendleft(reversed(row[1:]))
                yield first.size, is_ended, "a quotation mark that is not closed"


def _is_too_long(lines: list[_Line]) -> bool:
    return len(lines) > _ROW_LINES or sum(line.size for line in lines) > LONGEST


def _row(first: _Line, lines: Iterator[_Line], delimiter: str) -> tuple[list[_Line], bool]:
    """Return the lines of a row, and whether the row is complete; a row that is too long is not."""
    row, is_closed = [first], True

    def fed() -> Iterator[str]:
        nonlocal is_closed
        yield _decoded(first.content)
        size = first.size
        for line in lines:
            row.append(line)
            size += line.size
            if size > LONGEST or len(row) > _ROW_LINES:
                break
            yield _decoded(line.content)
        is_closed = False

    next(csv.reader(fed(), delimiter=delimiter), None)
    return row, is_closed
