# SPDX-License-Identifier: Apache-2.0
"""Divides the unread rest of a file into parts, one for each task."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from statefun.files.file_log import FileState
from statefun.files.parquet_rows import UNDECODABLE
from statefun.files.scanning import MOST_LINES, whole_lines

_MAGIC = b"PAR1"
_TAIL = 8
"""How many bytes follow the footer of a Parquet file: its length (4 bytes) and the magic number (4)."""
_SHARES = 4
"""Into how many parts a row group is divided at most.

More parts would cost more: the task of a part also decodes the pages of the row group before the part.
"""


class DamagedFileError(Exception):
    """Raised if a file is damaged: its content can never be decoded."""


class UnfinishedFileError(Exception):
    """Raised if a Parquet file is not complete."""


class Piece(NamedTuple):
    """A part of a file, which one task reads."""

    start: int
    end: int
    """The position in the file at which the part ends, in bytes; for Parquet, in rows."""
    lines: int
    is_last: bool
    """Whether this is the last part of the file."""
    header: int = 0
    """For CSV, the size of the first line, which names the fields, in bytes; 0 for other formats."""
    is_torn: bool = False
    """Whether the part does not end with a line break."""
    problem: str | None = None
    """If the part is one record that cannot be decoded, the reason; else None."""


def lines_of(  # noqa: PLR0913 - the facts about the lines
    file: BinaryIO,
    state: FileState,
    size: int,
    most: int,
    delimiter: str | None,
    *,
    takes_rest: bool,
) -> Iterator[Piece]:
    """Yield the unread parts of a file of lines or of CSV; a part has only whole lines or rows.

    Args:
        file: the file.
        state: how far the file is read.
        size: how many bytes of the file may be read, from its beginning on.
        most: how many lines or rows all parts together have at most.
        delimiter: the character between two fields of CSV; None for a file of lines.
        takes_rest: whether a last line without a line break is a line, too.
    """
    start, header = state.end, state.header
    if delimiter is not None and start == 0:
        lines = whole_lines(file, 0, size, 1, delimiter=delimiter, takes_rest=takes_rest)
        first = next(lines, None)
        if first is None:
            return
        if first.problem is not None:
            problem = f"the first line must name the fields, but {first.problem}"
            yield Piece(0, size, 1, is_last=True, problem=problem)
            return
        start = header = first.end
    for part in whole_lines(file, start, size, most, delimiter=delimiter, takes_rest=takes_rest):
        file_position = file.tell()
        file.seek(part.end - 1)
        is_torn = file.read(1) != b"\n"
        file.seek(file_position)
        is_last = part.end >= size
        yield Piece(part.start, part.end, part.lines, is_last, header, is_torn, part.problem)


def rows_of(file: BinaryIO, state: FileState, size: int, most: int) -> Iterator[Piece]:
    """Yield the unread parts of a Parquet file, which are ranges of rows; none if the file has no rows.

    Raises:
        UnfinishedFileError: if the file is not complete.
        DamagedFileError: if the file looks complete, but its footer cannot be decoded.
    """
    if size < len(_MAGIC) + _TAIL:
        raise UnfinishedFileError
    file.seek(size - _TAIL)
    tail = file.read(_TAIL)
    if not tail.endswith(_MAGIC):
        raise UnfinishedFileError
    metadata = _metadata(file, size, tail)
    at, remaining = 0, most
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        step = max(MOST_LINES, -(-rows // _SHARES))
        start, end = max(at, state.end), at + rows
        while start < end and remaining > 0:
            part = min(start + step, end, start + remaining)
            yield Piece(start, part, part - start, part == metadata.num_rows)
            start, remaining = part, remaining - (part - start)
        at = end


def _metadata(file: BinaryIO, size: int, tail: bytes) -> Any:
    """Return the metadata of a Parquet file, which its footer holds.

    The footer is read first, and then decoded from memory. So an error of pyarrow can only mean that the
    footer cannot be decoded, and not that the file cannot be read.

    Raises:
        DamagedFileError: if the footer cannot be decoded.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

    length = int.from_bytes(tail[:4], "little")
    file.seek(max(0, size - _TAIL - length))
    footer = file.read(length)
    try:
        return pq.read_metadata(io.BytesIO(_MAGIC + footer + tail))
    except UNDECODABLE as error:
        raise DamagedFileError(f"the footer cannot be decoded: {error}") from None
