# SPDX-License-Identifier: Apache-2.0
"""What module files say of files, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import attrs


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


@attrs.frozen
class EgressFiles:
    """What an egress needs."""

    owner: str
    folder: str
    """Absolute, or a URI."""
    format: FileFormat
