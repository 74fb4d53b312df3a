# SPDX-License-Identifier: Apache-2.0
"""Finds the files of a project that have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_ENDINGS = (".py", ".yaml", ".yml", ".avsc")
_SKIPPED = {"__pycache__", "build", "dist", "env", "node_modules", "venv"}


class ChangedFiles:
    """Finds the programs and module files in a folder and its subfolders that have changed since the last comparison.

    Hidden folders, and folders of packages and of builds such as ``venv`` and ``dist``, are left out.

    Args:
        folder: the folder of the project.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._states = self._look()

    def take(self) -> list[Path]:
        """Return the files that were written, made or deleted since the last call, sorted."""
        before, self._states = self._states, self._look()
        states = self._states
        changed = {path for path in {*before, *states} if before.get(path) != states.get(path)}
        return sorted(changed)

    def _look(self) -> Mapping[Path, tuple[int, int]]:
        """Return the time of the last change and the size of each file."""
        states = {}
        for path in _files(self._folder):
            try:
                status = path.stat()
            except OSError:  # it was deleted in this moment
                continue
            states[path] = (status.st_mtime_ns, status.st_size)
        return states


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each not in _SKIPPED and each[0] != "."]
        yield from (Path(place, name) for name in names if name.endswith(_ENDINGS))
