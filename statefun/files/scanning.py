# SPDX-License-Identifier: Apache-2.0
"""Where the records of a file begin and end: what the driver has to know to plan a micro-batch."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

_CHUNK = 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024
MOST_LINES = 20_000
"""The limits of a part, which a task reads at once."""
LONGEST = 8 * 1024 * 1024
"""The longest record, in bytes."""

csv.field_size_limit(LONGEST)


class Part(NamedTuple):
    """Whole records of a file."""

    start: int
    end: int
    """Bytes, or rows of Parquet."""
    lines: int
    """Lines or rows."""


class TooLongError(Exception):
    """A record is longer than :data:`LONGEST`; the text says where it begins."""


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

    >>> from io import BytesIO
    >>> list(whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100))
    [Part(start=0, end=8, lines=2)]
    >>> list(whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100, takes_rest=True))
    [Part(start=0, end=11, lines=3)]

    Args:
        file: the file.
        start: where the first line begins.
        size: where to end.
        most: how many lines to find at most.
        delimiter: of rows of CSV, in which line breaks may belong to a field; None for lines.
        takes_rest: whether what follows the last line break is a line.

    Raises:
        TooLongError: if a line is.
    """
    lines = _lines(file, start, size)
    records = ((line,) for line in lines) if delimiter is None else _rows(lines, delimiter)
    at, part, count, found = start, start, 0, 0
    for record in records:
        is_whole = record[-1].endswith(b"\n") and not (delimiter and _is_open(record, delimiter))
        if found == most or not (is_whole or takes_rest):
            break
        at += sum(map(len, record))
        count, found = count + 1, found + 1
        if count >= MOST_LINES or at - part >= MOST_BYTES:
            yield Part(part, at, count)
            part, count = at, 0
    if count:
        yield Part(part, at, count)


def csv_rows(lines: Iterable[bytes], delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of rows; bytes that are no UTF-8 become surrogates."""
    return csv.reader(map(_decoded, lines), delimiter=delimiter)


def _decoded(line: bytes) -> str:
    # A carriage return alone ends a row for Python's reader, and no line of ours.
    text = line.decode(errors="surrogateescape")
    return text.replace("\r\n", "\n").replace("\r", " ")


def _lines(file: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    """Yield the lines between two places of a file, with their line breaks."""
    file.seek(start)
    at, rest = start, [b""]
    while at < size and (chunk := file.read(min(_CHUNK, size - at))):
        at += len(chunk)
        *whole, last = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*rest, line, b"\n"])
            rest.clear()
        rest.append(last)
        if sum(map(len, rest)) > LONGEST:
            raise TooLongError(f"a line of more than {LONGEST:,} bytes before byte {at:,}")
    if text := b"".join(rest):
        yield text


def _rows(lines: Iterator[bytes], delimiter: str) -> Iterator[tuple[bytes, ...]]:
    """Yield the lines of each row."""
    taken: list[bytes] = []

    def fed() -> Iterator[bytes]:
        size = 0
        for line in lines:
            size = size + len(line) if taken else len(line)
            if size > LONGEST:
                raise TooLongError(
                    f"a row of more than {LONGEST:,} bytes, which begins {taken[0][:40]!r}; a "
                    "quotation mark may not be closed"
                )
            taken.append(line)
            yield line

    for _ in csv_rows(fed(), delimiter):
        yield tuple(taken)
        taken.clear()


def _is_open(lines: tuple[bytes, ...], delimiter: str) -> bool:
    """Tell whether a row goes on behind its lines: a quotation mark is not closed."""
    reader = csv.reader(map(_decoded, [*lines, b"\n"]), delimiter=delimiter)
    next(reader, None)
    return reader.line_num > len(lines)
