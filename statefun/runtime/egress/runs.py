# SPDX-License-Identifier: Apache-2.0
"""The runs of an application that have published from one checkpoint.

A checkpoint that is copied, and then continued twice, has two histories. What one of them has
published must not be mistaken for the other's, and batches have the same numbers in both. But each
start of an application is a run of its own, whose id is in the markers of what it publishes, and
in a file ``<checkpoint>/runs/<id>`` that is there before: a marker of a run that the checkpoint
does not know is another history's.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from statefun.runtime.filesystem import Folder


class Runs:
    """The ids of runs, kept in a checkpoint for as long as markers may hold them.

    Args:
        checkpoint: where they are kept.
        run: the id of this run.
        egresses: which ones it publishes to exactly once.
    """

    def __init__(self, checkpoint: Folder, run: str, egresses: Collection[str]) -> None:
        self._folder = checkpoint.child("runs")
        self._run = run
        self._egresses = egresses

    def begin(self) -> frozenset[str]:
        """Take note of this run, before it publishes; return all that are known."""
        if self._egresses:
            self._folder.write(self._run, json.dumps(sorted(self._egresses)).encode())
        return frozenset(self._names()) | {self._run}

    def forget_all_but(self, publishers: Collection[str]) -> None:
        """Forget runs of which no marker is left.

        Args:
            publishers: the runs that the markers of this run's egresses name.
        """
        for run in self._names():
            if run == self._run or run in publishers:
                continue
            if set(json.loads(self._folder.read(run))) <= set(self._egresses):
                self._folder.remove(run)

    def _names(self) -> list[str]:
        return [name for name in self._folder.names() if not name.startswith(".")]
