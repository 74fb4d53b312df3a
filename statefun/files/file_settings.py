# SPDX-License-Identifier: Apache-2.0
"""The settings of files in module files, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum

import attrs

from statefun.files.rows import Columns


class FileFormat(Enum):
    """The format of a file."""

    LINES = "lines"
    JSON_LINES = "json-lines"
    CSV = "csv"
    PARQUET = "parquet"


class OnChange(Enum):
    """What to do about a file that was cut off, replaced or deleted before all of it was read."""

    FAIL = "fail"
    GO_ON = "go-on"


class UnfinishedLine(Enum):
    """What to do about a last line without a line break."""

    READ = "read"
    WAIT = "wait"


class AfterRead(Enum):
    """What becomes of a file that is read to its end."""

    KEEP = "keep"
    DELETE = "delete"
    MOVE = "move"


@attrs.frozen
class Files:
    """The files of one route, and how to read them."""

    path: str
    """A folder, a file, or a folder with a pattern for names: an absolute path, or a URI."""
    format: FileFormat
    id_field: str | None = None
    """The field whose value is the id of the address; None for the line itself."""
    delimiter: str = ","
    """The character between the fields of CSV."""


@attrs.frozen
class IngressFiles:
    """The settings of an ingress, apart from its routes."""

    owner: str
    """The ingress, for messages: ``ingress example/in``."""
    files: Mapping[str, Files]
    """The files of each route, by the topic of the route."""
    on_change: OnChange = OnChange.FAIL
    unfinished_line: UnfinishedLine = UnfinishedLine.READ
    after_read: AfterRead = AfterRead.KEEP


@attrs.frozen
class EgressFiles:
    """The settings of an egress."""

    owner: str
    folder: str
    """An absolute path, or a URI."""
    columns: Columns | None = None
    """The columns of Parquet; None for JSON lines."""
    roll_every: timedelta = timedelta(minutes=1)
    """How long records are gathered before they become a file."""
    roll_size: int = 64 * 1024 * 1024
    """How many bytes of gathered records become a file before ``roll_every`` is over."""
