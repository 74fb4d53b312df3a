# SPDX-License-Identifier: Apache-2.0
"""The settings of file ingresses and egresses in module files, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum

import attrs

from statefun.files.rows import ParquetColumns


class FileFormat(Enum):
    """The format of a file."""

    LINES = "lines"
    JSON_LINES = "json-lines"
    CSV = "csv"
    PARQUET = "parquet"


class OnChange(Enum):
    """What to do if a file was cut off or replaced after a part of it was read, or deleted too early."""

    FAIL = "fail"
    GO_ON = "go-on"


class UnfinishedLine(Enum):
    """What to do with the last line of a file if it has no line break."""

    READ = "read"
    WAIT = "wait"


class AfterRead(Enum):
    """What the ingress does with a file that is read to its end."""

    KEEP = "keep"
    DELETE = "delete"
    MOVE = "move"


@attrs.frozen
class Files:
    """The files of one route, and how to read them."""

    path: str
    """The absolute path or URI of a folder, of a file, or of files whose names match a pattern."""
    format: FileFormat
    id_field: str | None = None
    """The field of a record whose value is the id of the target; None if the id is the whole line."""
    delimiter: str = ","
    """The character between two fields of CSV; other formats do not use it."""


@attrs.frozen
class IngressFiles:
    """The settings of a file ingress, apart from its routes."""

    owner: str
    """The ingress as error texts name it: ``ingress example/in``."""
    files: Mapping[str, Files]
    """The files of each route, by the topic of the route."""
    on_change: OnChange = OnChange.FAIL
    unfinished_line: UnfinishedLine = UnfinishedLine.READ
    after_read: AfterRead = AfterRead.KEEP


@attrs.frozen
class EgressFiles:
    """The settings of a file egress."""

    owner: str
    folder: str
    """The folder to write to, as an absolute path or a URI."""
    columns: ParquetColumns | None = None
    """The columns of the Parquet files; None if the format is JSON lines."""
    roll_every: timedelta = timedelta(minutes=1)
    """How long records are gathered before they are written into a file."""
    roll_size: int = 64 * 1024 * 1024
    """Once gathered records have this size in bytes, they are written before ``roll_every`` is over."""
