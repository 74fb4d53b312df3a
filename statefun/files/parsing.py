# SPDX-License-Identifier: Apache-2.0
"""Reads parts of files as records, in workers."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import attrs
import pyarrow as pa

from statefun.components.running import RECORDS_ARROW, Folder
from statefun.files.file_log import FileRange, FileState
from statefun.files.file_settings import FileFormat, Files
from statefun.files.scanning import csv_rows
from statefun.sdk.errors import ConnectorError

logger = logging.getLogger("statefun.ingress")

PATH, LINE = "file.path", "file.line"
"""The headers with a record's file, and the number of its line or row."""
_KNOWN = 1024
"""How many bytes at the beginning and at the end of what is read tell a file from others."""
_BATCH = 2_000
_BOM = b"\xef\xbb\xbf"


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
        ConnectorError: if the file cannot be read, or is no longer the one that was planned to be.
    """
    content = json.loads(task)
    state = FileState(**content["range"]["state"])
    part = FileRange(**{**content["range"], "state": state})
    files = Files(**{**content["files"], "format": FileFormat(content["files"]["format"])})
    owner = content["owner"]
    try:
        with Folder(part.folder).open(part.name) as file:
            change = change_of(file, state)
            if change is None:
                records = _parsed(file, part, files)
                while batch := list(islice(records, _BATCH)):
                    yield _rows(batch, part)
    except FileNotFoundError:
        change = "was deleted"
    except (OSError, ValueError) as error:  # those of pyarrow are of these
        raise ConnectorError(f"{owner}: file {part.path} cannot be read: {error}") from error
    if change is not None:
        problem = changed(owner, part.path, change)
        if not content["may_change"]:
            raise problem
        logger.warning("%s; going on", problem.message.partition(";")[0])


def digest_of(file: BinaryIO, size: int) -> str:
    """Return the digest of the first and the last of so many bytes of a file."""
    digest = hashlib.sha256()
    for start in (0, max(0, size - _KNOWN)):
        file.seek(start)
        digest.update(file.read(min(_KNOWN, size - start)))
    return digest.hexdigest()


def change_of(file: BinaryIO, state: FileState) -> str | None:
    """Return how a file has changed since it was looked at; None if it has only grown."""
    if file.seek(0, io.SEEK_END) < state.size:
        return "was cut off"
    return None if digest_of(file, state.size) == state.digest else "was replaced by another one"


def changed(owner: str, path: str, what: str) -> ConnectorError:
    """Return the error for a file that is no longer what it was."""
    return ConnectorError(
        f"{owner}: file {path} {what} after a part of it was read; bring it back, or set onChange: "
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
    if part.start == 0:
        content = content.removeprefix(_BOM)
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
    try:
        return str(value).encode()
    except UnicodeEncodeError:
        return None


def _rows_of_csv(header: bytes, content: bytes, files: Files) -> Iterator[Parsed]:
    names = next(iter(csv_rows([header.removeprefix(_BOM)], files.delimiter)), [])
    lines = (line + b"\n" for line in content.removesuffix(b"\n").split(b"\n"))
    for number, cells in enumerate(csv_rows(lines, files.delimiter)):
        if not cells:
            continue
        row = dict(zip(names, cells, strict=False))
        line = json.dumps(row, ensure_ascii=False).encode(errors="surrogateescape")
        is_whole = len(cells) == len(names)
        yield Parsed(number, _id(row.get(files.id_field or "")) if is_whole else None, line)


def _rows_of_parquet(file: BinaryIO, part: FileRange, files: Files) -> Iterator[Parsed]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

    parquet = pq.ParquetFile(file)
    at, groups, first = 0, list[int](), 0
    for group in range(parquet.num_row_groups):
        end = at + parquet.metadata.row_group(group).num_rows
        if at < part.end and end > part.start:
            first = first if groups else at
            groups.append(group)
        at = end
    number = first
    for batch in parquet.iter_batches(batch_size=_BATCH, row_groups=groups):
        for row in batch.to_pylist():
            if part.start <= number < part.end:
                line = json.dumps(row, ensure_ascii=False, default=_as_json)
                value = line.encode(errors="replace")
                yield Parsed(number - part.start, _id(row.get(files.id_field)), value)
            number += 1


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
