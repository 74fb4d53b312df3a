# SPDX-License-Identifier: Apache-2.0
"""Reads parts of files as records, in workers."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from typing import Any, BinaryIO, NamedTuple

import attrs
import pyarrow as pa

from statefun.components.running import RECORDS_ARROW, Folder
from statefun.files.file_log import FileRange, FileState
from statefun.files.file_settings import FileFormat, Files
from statefun.sdk.errors import ConnectorError

PATH, LINE = "file.path", "file.line"
"""The headers with a record's file, and the number of its line or row."""


class Parsed(NamedTuple):
    """A record of a file."""

    line: int
    """The number of its line or row, from 0 on within the part."""
    key: bytes | None
    """None if it has no id."""
    value: bytes


def encode_task(range_: FileRange, files: Files, owner: str, *, may_change: bool) -> bytes:
    """Return a task that reads a part of a file; if the file has changed, nothing or an error."""
    files_ = attrs.asdict(files) | {"format": files.format.value}
    task = {
        "range": attrs.asdict(range_),
        "files": files_,
        "owner": owner,
        "may_change": may_change,
    }
    return json.dumps(task).encode()


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the records of a task.

    Raises:
        ConnectorError: if the file is no longer the one that was planned to be read.
    """
    content = json.loads(task)
    state = FileState(**content["range"]["state"])
    part = FileRange(**{**content["range"], "state": state})
    files = Files(**{**content["files"], "format": FileFormat(content["files"]["format"])})
    try:
        with Folder(part.folder).open(part.name) as file:
            check(file, state, part.path, content["owner"])
            records = list(_parsed(file, part, files))
    except FileNotFoundError:
        if content["may_change"]:
            return
        raise changed(content["owner"], part.path, "was deleted") from None
    except ConnectorError:
        if content["may_change"]:  # the driver tells of it when it looks next
            return
        raise
    if records:
        yield _rows(records, part)


def head_of(file: BinaryIO, size: int) -> str:
    """Return the digest of the first bytes of a file."""
    file.seek(0)
    return hashlib.sha256(file.read(size)).hexdigest()


def check(file: BinaryIO, state: FileState, path: str, owner: str) -> None:
    """Check that a file is still the one that was looked at.

    Raises:
        ConnectorError: if it is another one, or shorter.
    """
    if file.seek(0, io.SEEK_END) < state.size:
        raise changed(owner, path, "was cut off")
    if head_of(file, state.head_size) != state.head:
        raise changed(owner, path, "was replaced by another one")


def changed(owner: str, path: str, what: str) -> ConnectorError:
    """Return the error for a file that is no longer what it was."""
    return ConnectorError(
        f"{owner}: file {path} {what} before all of it was read; bring it back, or set onChange: "
        "go-on to read what is there"
    )


def _parsed(file: BinaryIO, part: FileRange, files: Files) -> Iterator[Parsed]:
    if files.format is FileFormat.PARQUET:
        yield from _rows_of_parquet(file, part, files)
        return
    file.seek(part.start)
    content = file.read(part.end - part.start)
    if files.format is FileFormat.CSV:
        file.seek(0)
        yield from _rows_of_csv(file.read(part.state.header), content, files)
        return
    for number, line in enumerate(content.split(b"\n")):
        text = line.removesuffix(b"\r")
        if text.strip():
            is_json = files.format is FileFormat.JSON_LINES
            yield Parsed(number, _field_of_json(text, files) if is_json else text, text)


def _field_of_json(text: bytes, files: Files) -> bytes | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _id(content.get(files.id_field)) if isinstance(content, dict) else None


def _id(value: object) -> bytes | None:
    """Return a field's value as the id of an address; None if it can be none."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    return str(value).encode(errors="surrogateescape")


def _rows_of_csv(header: bytes, content: bytes, files: Files) -> Iterator[Parsed]:
    text = (header + content).decode("utf-8-sig", errors="surrogateescape")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=files.delimiter)
    names = next(reader, [])
    for number, cells in enumerate(reader):
        if not cells:
            continue
        row = dict(zip(names, cells, strict=False))
        line = json.dumps(row, ensure_ascii=False).encode(errors="surrogateescape")
        is_whole = len(cells) == len(names)
        yield Parsed(number, _id(row.get(files.id_field or "")) if is_whole else None, line)


def _rows_of_parquet(file: BinaryIO, part: FileRange, files: Files) -> Iterator[Parsed]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

    at = 0
    for batch in pq.ParquetFile(file).iter_batches(batch_size=10_000):
        first, last = max(part.start - at, 0), min(part.end - at, len(batch))
        for number, row in enumerate(batch.slice(first, max(0, last - first)).to_pylist()):
            line = json.dumps(row, ensure_ascii=False, default=_as_json).encode()
            yield Parsed(at + first + number - part.start, _id(row.get(files.id_field)), line)
        at += len(batch)
        if at >= part.end:
            return


def _as_json(value: object) -> Any:
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value)


def _rows(records: list[Parsed], part: FileRange) -> pa.RecordBatch:
    modified = datetime.fromtimestamp(part.state.modified / 1e9, timezone.utc)
    path = part.path.encode()
    rows = [
        {
            "key": key,
            "value": value,
            "topic": part.route,
            "partition": 0,
            "offset": part.first + number,
            "timestamp": modified,
            "headers": [
                {"key": PATH, "value": path},
                {"key": LINE, "value": b"%d" % (part.line + number)},
            ],
        }
        for number, key, value in records
    ]
    return pa.RecordBatch.from_pylist(rows, RECORDS_ARROW)
