# SPDX-License-Identifier: Apache-2.0
"""How far an application has come, and which of its parts are paused, as its checkpoint shows it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import attrs

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import begun_at
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.pauses import Parts, Paused
from statefun.runtime.release.retention import BACKLOG
from statefun.runtime.spark_internals.log_files import OFFSETS_FOLDER

RUNNING, _PAUSED, _STOPPED, _UNKNOWN = "RUNNING", "PAUSED", "STOPPED", "UNKNOWN"


@attrs.frozen
class CommittedProgress:
    """How far an application has read, delivered and published, as its checkpoint shows it."""

    is_running: bool | None
    """Whether the application runs; None if that is not known."""
    batch: int
    """The newest committed micro-batch; -1 if none is committed."""
    planned_for: timedelta | None
    """How long ago the micro-batch that is under way was planned; None if none is under way."""
    unpublished: int
    """The number of committed micro-batches with effects that are not published and delivered yet."""
    paused: Paused
    parts: list[tuple[str, str]]
    """The kind and id of each ingress and egress."""

    def state(self, kind: str = "", name: str = "") -> str:
        """Return RUNNING, PAUSED, STOPPED or UNKNOWN for an ingress, an egress or, without arguments, the application."""
        state = running_state(self.paused, kind, name)
        if (
            self.is_running is None
        ):  # a paused part does nothing, whether the application runs or not
            return state if kind and state == _PAUSED else _UNKNOWN
        return state if self.is_running else _STOPPED

    @classmethod
    def of(
        cls, checkpoint: Folder, parts: Parts, paused: Paused, *, is_running: bool | None
    ) -> CommittedProgress:
        """Read from a checkpoint how far its application has come.

        Args:
            checkpoint: the checkpoint.
            parts: the parts of the application.
            paused: which of them are paused.
            is_running: whether the application runs; None if that is not known.
        """
        log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
        newest, planned = log.newest(), log.planned()
        return cls(
            is_running,
            newest,
            _planned_for(checkpoint, planned) if planned > newest else None,
            sum(batch <= newest for batch in outbox.batches()),
            paused,
            [("ingress", name) for name in sorted(parts.ingresses)]
            + [("egress", name) for name in sorted(parts.egresses)],
        )

    def as_json(self) -> dict[str, Any]:
        """Return the progress for JSON."""
        planned_for = self.planned_for
        return {
            "state": self.state(),
            "batch": self.batch,
            "planned_seconds_ago": None if planned_for is None else planned_for.total_seconds(),
            "outbox": self.unpublished,
            "paused": {
                "application": self.paused.application,
                "ingresses": sorted(self.paused.ingresses),
                "egresses": sorted(self.paused.egresses),
            },
            "parts": [
                {"kind": kind, "id": name, "state": self.state(kind, name)}
                for kind, name in self.parts
            ],
        }

    def is_stuck(self, patience: timedelta) -> bool:
        """Return whether a micro-batch takes longer than ``patience``, and does not wait for an egress."""
        # A micro-batch that waits for an egress goes on with it; another start would have to wait, too.
        waits = self.unpublished >= BACKLOG
        return not waits and (self.planned_for or timedelta()) > patience


def running_state(paused: Paused, kind: str = "", name: str = "") -> str:
    """Return RUNNING or PAUSED for a running application, or for one of its ingresses and egresses.

    Args:
        paused: what is paused.
        kind: ``ingress`` or ``egress``; empty for the application.
        name: the id of the part.
    """
    if kind == "egress":  # it publishes, too, while the application is paused
        is_paused = name in paused.egresses
    else:
        is_paused = paused.application or name in paused.ingresses
    return _PAUSED if is_paused else RUNNING


def _planned_for(checkpoint: Folder, batch: int) -> timedelta | None:
    """Return for how long the present run has known the plan of a micro-batch; None if that is not known.

    An earlier run may have planned it, and ended long ago.
    """
    facts = checkpoint.child(OFFSETS_FOLDER).facts(str(batch))
    if facts is None or not facts.modified:
        return None
    begun = max(facts.modified, begun_at(checkpoint))
    return timedelta(seconds=max(time.time() - begun / 1e9, 0))
