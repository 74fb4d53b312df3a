# SPDX-License-Identifier: Apache-2.0
"""Decodes rows of Parquet files, in workers; a row group is decoded only up to the last needed row."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, BinaryIO, NamedTuple

from statefun.files.record_fields import first_repeated, id_of_field, id_problem

_BATCH = 2_000
UNDECODABLE = (OSError, ValueError, ArithmeticError, KeyError, NotImplementedError)
"""The classes of pyarrow's errors; KeyError stands for a time zone that this machine does not know."""
_UNREPRESENTABLE = (ValueError, ArithmeticError)
"""The classes of errors about one value, such as a date after the year 9999 or bytes that are no text."""


class ParquetRow(NamedTuple):
    """A row of a Parquet file; ``problem`` says why this row, or it and further ones, cannot be decoded."""

    number: int
    """The number of the row in its file; the first row is 0."""
    key: bytes | None
    value: bytes
    problem: str | None


def rows_between(
    file: BinaryIO, start: int, end: int, id_field: str | None
) -> Iterator[ParquetRow]:
    """Yield the rows of a file from ``start`` to ``end``; for a damaged row group, one row with a problem.

    Raises:
        OSError: if the file cannot be read.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

    observed_file = _ObservedFile(file)
    parquet = pq.ParquetFile(observed_file)
    if name := first_repeated(parquet.schema_arrow.names):
        yield ParquetRow(start, None, b"", f"two columns are named {name!r}")
        return
    first = 0
    for group in range(parquet.num_row_groups):
        after = first + parquet.metadata.row_group(group).num_rows
        at = max(start, first)
        if at < min(end, after):
            try:
                for row in _rows(parquet, group, first, at, min(end, after)):
                    if isinstance(row, dict):
                        yield _row(at, row, id_field)
                    else:
                        problem = f"row {at + 1:,} has a value that cannot be decoded: {row}"
                        yield ParquetRow(at, None, b"", problem)
                    at += 1
            except UNDECODABLE as error:
                if observed_file.error is not None:
                    raise observed_file.error from None
                rows = f"rows {at + 1:,} to {min(end, after):,} of row group {group}"
                yield ParquetRow(at, None, b"", f"{rows} cannot be decoded: {error}")
        first = after


def _rows(
    parquet: Any, group: int, number: int, start: int, end: int
) -> Iterator[dict[str, Any] | Exception]:
    for batch in parquet.iter_batches(batch_size=_BATCH, row_groups=[group]):
        begin = max(0, start - number)
        if begin < batch.num_rows:
            yield from _values(batch.slice(begin, end - number - begin))
        number += batch.num_rows
        if number >= end:
            return


def _values(batch: Any) -> Iterator[dict[str, Any] | Exception]:
    """Yield the content of each row, or the error about a value that Python cannot hold."""
    try:
        values = batch.to_pylist()
    except _UNREPRESENTABLE as error:
        if batch.num_rows == 1:
            yield error
            return
        for number in range(batch.num_rows):
            yield from _values(batch.slice(number, 1))
    else:
        yield from values


def _row(number: int, row: dict[str, Any], id_field: str | None) -> ParquetRow:
    try:
        line = json.dumps(row, ensure_ascii=False, default=_as_json, allow_nan=False)
    except ValueError:  # it has numbers that are not finite
        line = json.dumps(_with_texts(row), ensure_ascii=False, default=_as_json)
    key = id_of_field(row.get(id_field or ""))
    return ParquetRow(
        number, key, line.encode(errors="replace"), id_problem(id_field) if key is None else None
    )


def _as_json(value: object) -> Any:
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value)


def _with_texts(value: Any) -> Any:
    """Return a value with texts in place of the numbers that JSON lacks, as Spark's ``to_json`` writes them.

    >>> _with_texts({"x": [1.5, float("nan"), (float("-inf"),)]})
    {'x': [1.5, 'NaN', ['-Infinity']]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, dict):
        return {name: _with_texts(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_texts(each) for each in value]
    return value


class _ObservedFile:
    """Wraps a file and stores the error of a failed read.

    pyarrow raises errors of the same class for a file that cannot be read and for a damaged one; the
    stored error shows which it was.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read() if size < 0 else self._file.read(size)
        except OSError as error:
            self.error = error
            raise

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the caller that has opened the file closes it."""
