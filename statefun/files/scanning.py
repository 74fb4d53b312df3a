# SPDX-License-Identifier: Apache-2.0
"""Where the records of a file begin and end: what the driver has to know to plan a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_CHUNK = 1024 * 1024
_MOST_BYTES = 8 * 1024 * 1024
_MOST_LINES = 20_000
"""The limits of a part, which a task reads at once."""


class Part(NamedTuple):
    """Whole lines of a file."""

    start: int
    end: int
    lines: int


def whole_lines(  # noqa: PLR0913 - the facts about the lines
    file: BinaryIO,
    start: int,
    size: int,
    most: int,
    *,
    has_quotes: bool = False,
    takes_rest: bool = False,
) -> Iterator[Part]:
    r"""Divide the lines between two places of a file into parts.

    >>> from io import BytesIO
    >>> list(whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100))
    [Part(start=0, end=8, lines=2)]
    >>> list(whole_lines(BytesIO(b"one\ntwo\nthr"), 0, 11, 100, takes_rest=True))
    [Part(start=0, end=8, lines=2), Part(start=8, end=11, lines=1)]

    Args:
        file: the file.
        start: where the first line begins.
        size: where to end.
        most: how many lines to find at most.
        has_quotes: whether line breaks between quotation marks belong to the line.
        takes_rest: whether what follows the last line break is a line.
    """
    file.seek(start)
    at = part_start = start
    part_lines = found = 0
    rest = b""
    while at < size and found < most:
        chunk = file.read(min(_CHUNK, size - at))
        if not chunk:
            break
        at += len(chunk)
        rest += chunk
        length, lines = _lines(rest, min(most - found, _MOST_LINES - part_lines), has_quotes)
        while lines:
            found, part_lines = found + lines, part_lines + lines
            rest = rest[length:]
            end = at - len(rest)
            if part_lines >= _MOST_LINES or end - part_start >= _MOST_BYTES or found >= most:
                yield Part(part_start, end, part_lines)
                part_start, part_lines = end, 0
            length, lines = _lines(rest, min(most - found, _MOST_LINES - part_lines), has_quotes)
    if part_lines:
        yield Part(part_start, at - len(rest), part_lines)
    if takes_rest and rest and found < most and at >= size:
        yield Part(at - len(rest), at, 1)


def _lines(text: bytes, most: int, has_quotes: bool) -> tuple[int, int]:  # noqa: FBT001 - as above
    """Return the length of whole lines at the beginning of a text, and how many these are."""
    end = lines = at = 0
    quotes = 0
    while lines < most:
        newline = text.find(b"\n", at)
        if newline < 0:
            break
        if has_quotes:
            quotes += text.count(b'"', at, newline)
        at = newline + 1
        if quotes % 2 == 0:
            end, lines = at, lines + 1
    return end, lines
