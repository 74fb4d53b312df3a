# SPDX-License-Identifier: Apache-2.0
"""The location of a declaration: its file, line and column."""

from __future__ import annotations

import attrs


@attrs.frozen
class Location:
    """The file, line and column of a declaration; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"
