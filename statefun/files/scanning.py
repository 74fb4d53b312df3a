# SPDX-License-Identifier: Apache-2.0
"""Finds where the records of a file begin and end, so that the driver can plan micro-batches."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

_CHUNK = 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024
MOST_LINES = 20_000
"""How many bytes (MOST_BYTES) and lines a part has at most: a task reads a whole part into memory."""
LONGEST = 8 * 1024 * 1024
"""How many bytes a record may have; a longer one is rejected."""
SHOWN = 64 * 1024
"""How many bytes of a record that cannot be decoded become the value of the rejected record."""

csv.field_size_limit(LONGEST)
BOM = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, with which some programs begin a file."""
_ROW_LINES = 100_000
"""How many lines a row of CSV may have."""
_ALONE = {ord("\r"): 0xD800, ord("\0"): 0xD801}
_BACK = {substitute: character for character, substitute in _ALONE.items()}
"""Maps the substitutes of ``_ALONE`` back to a carriage return and a null character.

Python's reader of CSV would end a row at a carriage return and fail at a null character, so it gets the
substitutes. They cannot occur in the text of a file, because no bytes are decoded to them.
"""


class FilePart(NamedTuple):
    """A part of a file that has only whole records: its first position, and the position at which it ends."""

    start: int
    end: int
    """The position in the file at which the part ends, in bytes."""
    lines: int
    """How many lines or rows of CSV the part has."""
    problem: str | None = None
    """If the part is one record that cannot be decoded, the reason; else None."""


class _Line(NamedTuple):
    """A line of a file, with its line break if the line has one."""

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
) -> Iterator[FilePart]:
    r"""Yield the parts into which the lines between two positions of a file are divided.

    A record that cannot be decoded is a part of its own: a line that is too long, or the first line of
    a row of CSV in which a quotation mark is not closed. The next part begins with the next line.

    >>> from io import BytesIO
    >>> [part[:3] for part in whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100)]
    [(0, 8, 2)]
    >>> [part[:3] for part in whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100, takes_rest=True)]
    [(0, 11, 3)]

    Args:
        file: the file.
        start: the position at which the first line begins, in bytes.
        size: the position at which to end, in bytes.
        most: how many lines or rows all parts together have at most.
        delimiter: the character between two fields of CSV, where a row may have several lines; None for
            a file of lines.
        takes_rest: whether a last line without a line break is a line, too.
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
                yield FilePart(part, at, count)
            yield FilePart(at, at + length, 1, f"{problem}, from byte {at:,} on")
            at, part, count = at + length, at + length, 0
            continue
        at, count = at + length, count + 1
        if count >= MOST_LINES or at - part >= MOST_BYTES:
            yield FilePart(part, at, count)
            part, count = at, 0
    if count:
        yield FilePart(part, at, count)


class CsvRow(NamedTuple):
    """A row of CSV."""

    content: bytes
    cells: list[str]
    """The fields as text; bytes that are not UTF-8 become surrogates."""


def csv_rows(lines: Iterable[bytes], delimiter: str) -> Iterator[CsvRow]:
    """Yield the rows of CSV that complete lines contain; a row may have several lines."""
    row_lines: list[bytes] = []

    def fed() -> Iterator[str]:
        for line in lines:
            row_lines.append(line)
            yield _decoded(line)

    for cells in csv.reader(fed(), delimiter=delimiter):
        yield CsvRow(b"".join(row_lines), [cell.translate(_BACK) for cell in cells])
        row_lines.clear()


def _decoded(line: bytes) -> str:
    # For Python's reader a carriage return ends a row, even if it is not a part of a line break.
    if b"\r" not in line and b"\0" not in line:
        return line.decode(errors="surrogateescape")
    end = "\r\n" if line.endswith(b"\r\n") else "\n" if line.endswith(b"\n") else ""
    return line.decode(errors="surrogateescape").removesuffix(end).translate(_ALONE) + end


_Record = tuple[int, bool, str | None]
"""A record: its size in bytes, whether it is complete, and why it cannot be decoded (None if it can)."""


def _lines(file: BinaryIO, start: int, size: int) -> Iterator[_Line]:
    """Yield the lines between two positions of a file; a byte order mark counts only for the size of its line."""
    file.seek(start)
    at, rest, length = start, list[bytes](), 0
    mark = BOM if start == 0 else b""
    while at < size and (chunk := file.read(min(_CHUNK, size - at))):
        at += len(chunk)
        for piece in _split_lines(chunk):
            length += len(piece)
            if length <= LONGEST + _CHUNK:
                rest.append(piece.removeprefix(mark))
            mark = b""
            if piece.endswith(b"\n"):
                yield _Line(b"".join(rest), length, is_whole=True)
                rest, length = [], 0
    if length:
        yield _Line(b"".join(rest), length, is_whole=False)


def _split_lines(chunk: bytes) -> list[bytes]:
    """Split bytes into lines; only a line feed ends a line."""
    *whole, last = chunk.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _too_long(size: int) -> str:
    return f"a line has {size:,} bytes, more than the limit of {LONGEST:,}"


def _plain(lines: Iterator[_Line]) -> Iterator[_Record]:
    for line in lines:
        problem = _too_long(line.size) if line.size > LONGEST else None
        yield line.size, line.is_whole, problem


def _rows(lines: Iterator[_Line], delimiter: str) -> Iterator[_Record]:
    """Yield the size of each row of CSV, whether it is complete, and its problem."""
    pushed_back: deque[_Line] = deque()
    """Lines to read again: they were read for a row whose quotation mark is not closed."""

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
                yield first.size, is_ended, "a quotation mark is not closed"


def _is_too_long(lines: list[_Line]) -> bool:
    return len(lines) > _ROW_LINES or sum(line.size for line in lines) > LONGEST


def _row(first: _Line, lines: Iterator[_Line], delimiter: str) -> tuple[list[_Line], bool]:
    """Return the lines of a row, and whether its quotation marks are closed within the limits of a row."""
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
