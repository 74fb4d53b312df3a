# SPDX-License-Identifier: Apache-2.0
"""Reads the records of a part of a file, in workers."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import BinaryIO, NamedTuple

import attrs
import pyarrow as pa

from statefun.components.running import PROBLEM_HEADER, RECORDS_ARROW, Folder
from statefun.files.file_log import FileRange, FileState
from statefun.files.file_settings import FileFormat, Files
from statefun.files.parquet_rows import rows_between
from statefun.files.places import HIDDEN
from statefun.files.record_fields import first_repeated, id_of_field, id_problem
from statefun.files.scanning import BOM, SHOWN, csv_rows
from statefun.sdk.errors import ConnectorError

logger = logging.getLogger("statefun.ingress")

PATH, LINE = "file.path", "file.line"
"""The names of the headers with the path of a record's file and with the number of its line or row."""
_KNOWN = 1024
"""The digest of a file covers this many bytes at the beginning and at the end of the part already read."""
_BATCH = 2_000
_FIRST = datetime(1, 1, 2, tzinfo=timezone.utc).timestamp()
_LAST = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()
"""The first and the last time that a record of a file may have, in seconds since the epoch, in any time zone."""
_UNITS = {
    FileFormat.LINES: "line",
    FileFormat.JSON_LINES: "line",
    FileFormat.CSV: "row",  # it may have several lines
    FileFormat.PARQUET: "row",
}
"""What the numbers of records in a file count."""


class ParsedRecord(NamedTuple):
    """A record that was read from a file, or the reason why the record cannot become a message."""

    line: int
    """The number of the record's line or row within the part of the file, from 0 on."""
    key: bytes | None
    """The id of the record's target; None if the record has no id."""
    value: bytes
    problem: str | None = None
    """Why the record has no id; None if it has one."""


def encode_task(
    range_: FileRange, location: str, files: Files, owner: str, *, may_change: bool
) -> bytes:
    """Return a task, as bytes, that reads a part of a file.

    Args:
        range_: the part of the file.
        location: the location of the file's folder, with the options of its file system.
        files: how to read the file.
        owner: the ingress as error texts name it.
        may_change: what to do if the file has changed since it was planned: if True, the task logs a
            warning and yields no records; if False, it fails.
    """
    files_ = attrs.asdict(files) | {"format": files.format.value}
    task = {
        "location": location,
        "range": attrs.asdict(range_),
        "files": files_,
        "owner": owner,
        "may_change": may_change,
    }
    return json.dumps(task).encode()


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task that :func:`encode_task` has made, as Arrow batches.

    Raises:
        ConnectorError: if the file cannot be read, or has changed and the task may not skip it.
    """
    content = json.loads(task)
    state = FileState(**content["range"]["state"])
    part = FileRange(**{**content["range"], "state": state})
    files = Files(**{**content["files"], "format": FileFormat(content["files"]["format"])})
    owner = content["owner"]
    folder = Folder(content["location"])
    try:
        with folder.open(part.name) as file:
            change = change_of(file, state)
            if change is None:
                records = _parsed_records(file, part, files)
                while batch := list(islice(records, _BATCH)):
                    yield _rows(batch, part, _UNITS[files.format])
    except FileNotFoundError:
        if all(name.startswith(HIDDEN) for name in folder.files()):
            raise ConnectorError(
                f"{owner}: file {part.path} cannot be read: its folder has no files, and is perhaps "
                "not mounted; mount the folder, or if its files were deleted, put another file into it"
            ) from None
        change = "was deleted"
    except (OSError, ValueError) as error:  # errors of pyarrow are of these classes
        raise ConnectorError(f"{owner}: file {part.path} cannot be read: {error}") from error
    if change is not None:
        problem = change_error(owner, part.path, change)
        if not content["may_change"]:
            raise problem
        logger.warning(
            "%s; the part of it that this micro-batch was to read is skipped",
            problem.message.partition(";")[0],
        )


def digest_of(file: BinaryIO, size: int) -> str:
    """Return a digest of the first ``size`` bytes of a file, computed from their beginning and their end."""
    digest = hashlib.sha256()
    for start in (0, max(0, size - _KNOWN)):
        file.seek(start)
        digest.update(file.read(min(_KNOWN, size - start)))
    return digest.hexdigest()


def change_of(file: BinaryIO, state: FileState) -> str | None:
    """Return how the part already read has changed, such as "was cut off"; None if it has not changed."""
    if file.seek(0, io.SEEK_END) < state.size:
        return "was cut off"
    return None if digest_of(file, state.size) == state.digest else "was replaced by another file"


def change_error(owner: str, path: str, what: str) -> ConnectorError:
    """Return the error about a file that has changed after a part of it was read.

    Args:
        owner: the ingress as error texts name it.
        path: the path of the file.
        what: what has happened to the file, such as "was cut off".
    """
    return ConnectorError(
        f"{owner}: file {path} {what} after a part of it was read; restore the file, or set onChange: "
        "go-on to read the present file from its beginning"
    )


def _parsed_records(file: BinaryIO, part: FileRange, files: Files) -> Iterator[ParsedRecord]:
    if files.format is FileFormat.PARQUET and part.problem is None:
        for number, key, value, problem in rows_between(file, part.start, part.end, files.id_field):
            yield ParsedRecord(number - part.start, key, value, problem)
        return
    if part.problem is not None:
        is_text = files.format is not FileFormat.PARQUET
        file.seek(part.start)
        beginning = file.read(min(SHOWN, part.end - part.start)) if is_text else b""
        yield ParsedRecord(0, None, beginning, part.problem)
        return
    file.seek(part.start)
    content = file.read(part.end - part.start)
    if files.format is FileFormat.CSV:
        file.seek(0)
        yield from _rows_of_csv(file.read(part.state.header), content, files)
        return
    if part.start == 0:
        content = content.removeprefix(BOM)
    for number, line in enumerate(content.split(b"\n")):
        text = line.removesuffix(b"\r")
        if not text.strip():
            continue
        if files.format is FileFormat.LINES:
            yield ParsedRecord(number, text, text)
        else:
            yield _json_line(number, text, files.id_field)


def _json_line(number: int, text: bytes, id_field: str | None) -> ParsedRecord:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        return ParsedRecord(number, None, text, f"the line is not JSON: {error}")
    if not isinstance(content, dict):
        return ParsedRecord(number, None, text, "the line is not a JSON object")
    key = id_of_field(content.get(id_field or ""))
    return ParsedRecord(number, key, text, id_problem(id_field) if key is None else None)


def _rows_of_csv(header: bytes, content: bytes, files: Files) -> Iterator[ParsedRecord]:
    header_row = next(iter(csv_rows([header.removeprefix(BOM)], files.delimiter)), None)
    names = header_row.cells if header_row else []
    repeated_name = first_repeated(names)
    lines = (line + b"\n" for line in content.removesuffix(b"\n").split(b"\n"))
    for number, (text, cells) in enumerate(csv_rows(lines, files.delimiter)):
        if not cells:
            continue
        problem = None
        if repeated_name is not None:
            problem = f"two columns of the file are named {repeated_name!r}"
        elif len(cells) != len(names):
            problem = f"the row has {len(cells)} fields, but the first line of the file names {len(names)}"
        if problem is not None:
            yield ParsedRecord(number, None, text.removesuffix(b"\n"), problem)
            continue
        row = dict(zip(names, cells, strict=True))
        line = json.dumps(row, ensure_ascii=False).encode(errors="surrogateescape")
        key = id_of_field(row.get(files.id_field or ""))
        yield ParsedRecord(number, key, line, id_problem(files.id_field) if key is None else None)


def _rows(records: list[ParsedRecord], part: FileRange, unit: str) -> pa.RecordBatch:
    seconds = part.state.modified / 1e9  # some file systems store years that datetime lacks
    modified = datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), timezone.utc)
    path = part.path.encode(errors="surrogateescape")
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": part.route,
            "partition": 0,
            "offset": part.first + record.line,
            "timestamp": modified,
            "headers": [
                {"key": PATH, "value": path},
                {"key": LINE, "value": b"%d" % (part.line + record.line)},
                *_problem_header(record, part, unit),
            ],
        }
        for record in records
    ]
    return pa.RecordBatch.from_pylist(rows, RECORDS_ARROW)


def _problem_header(
    record: ParsedRecord, part: FileRange, unit: str
) -> Iterator[dict[str, str | bytes]]:
    """Yield the header that says why a record has no id; yield nothing if it has one."""
    if record.problem is not None:
        text = f"file {part.path}, {unit} {part.line + record.line:,}: {record.problem}"
        yield {"key": PROBLEM_HEADER, "value": text.encode(errors="backslashreplace")}
