# SPDX-License-Identifier: Apache-2.0
"""The runs of an application that have published from a checkpoint.

A checkpoint that is copied, and then continued twice, has two histories. The records that one has
published must not be mistaken for the other's, although both use the same batch numbers. But each
start of an application is a separate run. The run's id is in the markers that it publishes, and
in a file ``<checkpoint>/runs/<id>`` that exists earlier: a marker of a run that the checkpoint
does not know belongs to another history.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.sdk.errors import CheckpointError


class Runs:
    """The ids of runs, kept in a checkpoint for as long as markers may hold them.

    Args:
        checkpoint: the checkpoint that keeps them.
        run: the id of this run.
        egresses: the exactly-once egresses of this run: their ids and clusters.
    """

    def __init__(self, checkpoint: Folder, run: str, egresses: Collection[str]) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child("runs")
        self._run = run
        self._egresses = egresses
        names = self._folder.names()
        self.earlier = frozenset(name for name in names if not name.startswith("."))
        """The ids of the known runs."""

    def add(self) -> None:
        """Write down this run's id, before it publishes.

        But after it has claimed its lanes: another start at the same time could not tell a run
        that is about to publish from one that never will.
        """
        if self._egresses:
            content = json.dumps(sorted(self._egresses)).encode()
            write_framed(self._checkpoint, _path(self._run), content)

    def forget_all_but(self, publishers: Collection[str]) -> None:
        """Forget earlier runs that have no marker any more.

        Args:
            publishers: the runs that the markers of this run's egresses name.
        """
        for run in sorted(self.earlier.difference(publishers)):
            try:
                egresses = set(json.loads(read_framed(self._checkpoint, _path(run))))
                if egresses <= set(self._egresses):
                    self._folder.remove(run)
            except FileNotFoundError:
                continue  # another start has forgotten it
            except (CheckpointError, ValueError, TypeError):
                continue  # not our file, or a damaged one: kept, it does no harm


def _path(run: str) -> str:
    return f"runs/{run}"
