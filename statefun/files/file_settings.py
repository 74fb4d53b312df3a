# SPDX-License-Identifier: Apache-2.0
"""What module files say of files, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum

import attrs

from statefun.files.rows import Columns


class FileFormat(Enum):
    """What a file holds."""

    LINES = "lines"
    JSON_LINES = "json-lines"
    CSV = "csv"
    PARQUET = "parquet"


class OnChange(Enum):
    """What to do about a file that was cut off, replaced or deleted before it was read."""

    FAIL = "fail"
    GO_ON = "go-on"


class UnfinishedLine(Enum):
    """What to do about a last line whose line break has not come."""

    READ = "read"
    WAIT = "wait"


class AfterRead(Enum):
    """What becomes of a file of which all was read."""

    KEEP = "keep"
    DELETE = "delete"
    MOVE = "move"


@attrs.frozen
class Files:
    """Files that are read in one way."""

    path: str
    """A folder, a file, or a folder with a pattern for names: absolute, or a URI."""
    format: FileFormat
    id_field: str | None = None
    """The field whose value is the id of the address; None for the line itself."""
    delimiter: str = ","
    """Between the fields of CSV."""


@attrs.frozen
class IngressFiles:
    """What an ingress needs beside its routes."""

    owner: str
    """Who reads, for messages: ``ingress example/in``."""
    files: Mapping[str, Files]
    """By the topic of their route."""
    on_change: OnChange = OnChange.FAIL
    unfinished_line: UnfinishedLine = UnfinishedLine.READ
    after_read: AfterRead = AfterRead.KEEP


@attrs.frozen
class EgressFiles:
    """What an egress needs."""

    owner: str
    folder: str
    """Absolute, or a URI."""
    columns: Columns | None = None
    """The columns of Parquet; None for JSON lines."""
    roll_every: timedelta = timedelta(minutes=1)
    """How long records are gathered before they become a file."""
    roll_size: int = 64 * 1024 * 1024
    """After how many bytes of gathered records they become a file earlier."""
