# SPDX-License-Identifier: Apache-2.0
"""The parts of a file that are not read yet, by its format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from statefun.files.file_log import FileState
from statefun.files.scanning import MOST_BYTES, MOST_LINES, whole_lines

_MAGIC = b"PAR1"


class Piece(NamedTuple):
    """A part of a file for one task."""

    start: int
    end: int
    """Bytes, or rows of Parquet."""
    lines: int
    is_last: bool
    """Whether nothing follows."""
    header: int = 0
    """The bytes of the first line, which names the fields of CSV."""
    is_torn: bool = False
    """Whether it does not end with a line break."""


def lines_of(  # noqa: PLR0913 - the facts about the lines
    file: BinaryIO,
    state: FileState,
    size: int,
    most: int,
    delimiter: str | None,
    *,
    takes_rest: bool,
) -> Iterator[Piece]:
    """Yield parts of whole lines, or of rows of CSV.

    Raises:
        TooLongError: if a line is too long.
    """
    start, header = state.end, state.header
    if delimiter is not None and start == 0:
        first = next(whole_lines(file, 0, size, 1, delimiter=delimiter), None)
        if first is None:
            return
        start = header = first.end
    for part in whole_lines(file, start, size, most, delimiter=delimiter, takes_rest=takes_rest):
        file_position = file.tell()
        file.seek(part.end - 1)
        is_torn = file.read(1) != b"\n"
        file.seek(file_position)
        yield Piece(part.start, part.end, part.lines, part.end >= size, header, is_torn)


def rows_of(file: BinaryIO, state: FileState, size: int, most: int) -> Iterator[Piece]:
    """Yield parts of the rows of a Parquet file, if it is complete."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

    file.seek(max(0, size - len(_MAGIC)))
    if size < len(_MAGIC) or file.read(len(_MAGIC)) != _MAGIC:
        return
    file.seek(0)
    try:
        metadata = pq.ParquetFile(file).metadata
    except pa.ArrowException:
        return
    at, left = 0, most
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        bytes_ = metadata.row_group(group).total_byte_size
        step = max(1, min(MOST_LINES, rows * MOST_BYTES // max(1, bytes_)))
        start, end = max(at, state.end), at + rows
        while start < end and left > 0:
            part = min(start + step, end, start + left)
            yield Piece(start, part, part - start, part == metadata.num_rows)
            start, left = part, left - (part - start)
        at = end
