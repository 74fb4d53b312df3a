# SPDX-License-Identifier: Apache-2.0
"""Shared code of the commands that copy checkpoints: the progress on the terminal, and errors of files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from statefun.inspect.copied_files import Progress
from statefun.runtime.terminal.status_line import StatusLine, renews_lines
from statefun.sdk.errors import CheckpointError


@contextmanager
def copying() -> Iterator[Progress]:
    """Return a function that shows on the terminal, if there is one, how much is copied.

    During the block, errors of the file system are raised as a CheckpointError.
    """
    try:
        with _shown_progress() as progress:
            yield progress
    except OSError as error:
        raise CheckpointError(f"the files cannot be copied: {error}") from error


@contextmanager
def _shown_progress() -> Iterator[Progress]:
    if not renews_lines(sys.stderr):
        yield lambda *_: None
        return
    line = StatusLine(sys.stderr)
    try:
        yield lambda done, total: line.show(f"{done:,} of {total:,} bytes copied")
    finally:
        line.clear()
