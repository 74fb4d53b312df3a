# SPDX-License-Identifier: Apache-2.0
"""Provides a location of a checkpoint that Spark's own readers and writers of state read correctly."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from statefun.runtime.checkpoint.folder import Folder


@contextmanager
def spark_location(checkpoint: Folder) -> Iterator[str]:
    """Provide a location of the checkpoint that has no escaped characters.

    Spark's reader of state and its offline repartitioning do not decode URIs: escaped characters would become part
    of the path. So if a URI escapes characters of the path, the location is a temporary link to the checkpoint.
    """
    if not checkpoint.is_local or quote(checkpoint.location) == checkpoint.location:
        yield checkpoint.spark_uri
        return
    with tempfile.TemporaryDirectory(prefix="statefun-") as folder:
        link = Path(folder) / "checkpoint"
        link.symlink_to(checkpoint.location)
        yield f"file:{link}"
