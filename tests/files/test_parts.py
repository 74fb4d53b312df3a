# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statefun.files.file_log import FileState
from statefun.files.parts import DamagedFileError, UnfinishedFileError, rows_of
from statefun.files.scanning import MOST_LINES

NEW = FileState(0, 0, 0, is_all=False, size=0, digest="")


@pytest.mark.parametrize(
    ("rows", "expected"), [(MOST_LINES, 1), (3 * MOST_LINES, 3), (40 * MOST_LINES + 1, 4)]
)
def test_few_tasks_decode_a_row_group(rows: int, expected: int) -> None:
    """Each task decodes the row group from its beginning: as many tasks as it has lines would take their square."""
    file = io.BytesIO()
    pq.write_table(pa.table({"n": range(rows)}), file, row_group_size=rows)

    pieces = [*rows_of(file, NEW, file.tell(), most=rows)]

    assert len(pieces) == expected
    assert [piece.end for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    assert (pieces[0].start, pieces[-1].end, pieces[-1].is_last) == (0, rows, True)


def test_a_file_without_rows_has_no_parts_and_is_complete() -> None:
    """A file that has not been written to its end is not complete, and may get rows."""
    file = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), file)
    size = file.tell()

    assert list(rows_of(file, NEW, size, most=1)) == []
    for written in (3, size - 1):
        with pytest.raises(UnfinishedFileError):
            list(rows_of(file, NEW, written, most=1))


@pytest.mark.parametrize(
    ("place", "byte", "problem"), [(124, 9, "Integers"), (0, 0, "")], ids=["9 bits", "no schema"]
)
def test_a_footer_that_cannot_be_decoded_is_damage(place: int, byte: int, problem: str) -> None:
    """Also a type that pyarrow does not know, for which it has an error of another class."""
    written = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2, 3]}), written)
    schema = pq.read_metadata(written).metadata[b"ARROW:schema"]
    changed = bytearray(base64.b64decode(schema))
    changed[place] = byte
    content = written.getvalue().replace(schema, base64.b64encode(changed))

    with pytest.raises(DamagedFileError, match=f"the footer cannot be decoded: .*{problem}"):
        list(rows_of(io.BytesIO(content), NEW, len(content), most=3))
