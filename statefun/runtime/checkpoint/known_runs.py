# SPDX-License-Identifier: Apache-2.0
"""The runs of an application that have published from a checkpoint.

If an application goes on from a checkpoint and from a copy of it, there are two histories. The records of
one history must not be mistaken for those of the other, although both use the same batch numbers. Each
start of an application is a run with an id. The run writes its id into a file
``<checkpoint>/runs/<id>`` first, and then into the markers that it publishes: a marker with the id of a
run that the checkpoint does not know belongs to another history.
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
        """Write this run's id into the checkpoint, before it publishes.

        The run has to claim its lanes first: another start at the same time could not distinguish a run
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
                continue  # not a file of ours, or a damaged one: it does no harm


def _path(run: str) -> str:
    return f"runs/{run}"
