# SPDX-License-Identifier: Apache-2.0
"""The ids of the runs that have published records from a checkpoint.

If an application continues from a checkpoint, and another run continues from a copy of it, their records
differ, although both use the same batch numbers. Neither run may take the other's records for its own.
So each run has an id. It first writes its id into a file ``<checkpoint>/runs/<id>``, and then into the
markers that it publishes: a marker with the id of a run that the checkpoint does not know was published
from another copy.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.sdk.errors import CheckpointError


class Runs:
    """The ids of runs, which a checkpoint keeps for as long as the marker of a lane may contain them.

    Args:
        checkpoint: the checkpoint that keeps the ids.
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
        """The ids of the runs that the checkpoint already had when this run began."""

    def add(self) -> None:
        """Write the id of this run into the checkpoint, before the run publishes.

        The run must have claimed its lanes: otherwise a run that starts at the same time could not distinguish a
        run that is about to publish from one that never will.
        """
        if self._egresses:
            content = json.dumps(sorted(self._egresses)).encode()
            write_framed(self._checkpoint, _path(self._run), content)

    def forget_all_but(self, publishers: Collection[str]) -> None:
        """Delete the ids of earlier runs that no marker has any more.

        Args:
            publishers: the ids of runs in the markers of this run's egresses; they are kept.
        """
        for run in sorted(self.earlier.difference(publishers)):
            try:
                egresses = set(json.loads(read_framed(self._checkpoint, _path(run))))
                if egresses <= set(self._egresses):
                    self._folder.remove(run)
            except FileNotFoundError:
                continue  # another start has forgotten it
            except (CheckpointError, ValueError, TypeError):
                continue  # not a file of ours, or a damaged one: it does no harm


def _path(run: str) -> str:
    return f"runs/{run}"
