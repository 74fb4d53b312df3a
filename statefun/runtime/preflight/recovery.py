# SPDX-License-Identifier: Apache-2.0
"""Checks the consistency of a checkpoint at a start, before anything is changed.

Spark plans a batch (``offsets/N``), the runtime stages it (``outbox/N``), and Spark commits it
(``commits/N``). Only then does Spark plan the next batch, and are the effects released. A checkpoint that
breaks this order has lost files, or was written by two drivers.
"""

from __future__ import annotations

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.sdk.errors import CheckpointError


def check_logs(checkpoint: Folder) -> None:
    """Check that the logs of a checkpoint are consistent and complete.

    Raises:
        CheckpointError: if they are inconsistent, or a file is missing.
    """
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    committed, planned = log.newest(), log.planned()
    staged = max(outbox.batches(), default=-1)
    if not committed <= planned <= committed + 1:
        reason = f"the newest batch of its offsets is {_named(planned)}"
    elif staged > planned:
        reason = f"the newest batch of its offsets is {_named(planned)}, its outbox has {staged}"
    elif staged > committed and outbox.is_published(staged):
        reason = f"its outbox has batch {staged} as published"
    elif committed < 0 and TimerLog(checkpoint).exists():
        reason = "it has a log of timers"
    elif planned >= 0 and not log.query_id():
        reason = "its file metadata is missing"
    else:
        log.check(committed)
        return
    raise CheckpointError(
        f"checkpoint {checkpoint.shown} has lost files: the newest batch of its commits is "
        f"{_named(committed)}, and {reason}; nothing was changed: restore it from a copy, or start "
        "with a new checkpoint"
    )


class Succession:
    """Checks that a run stages the batches one by one, after the newest committed batch.

    Args:
        committed: the newest committed batch when the run began.
    """

    def __init__(self, committed: int) -> None:
        self._first = self._next = committed + 1

    def check_start(self, committed: int) -> None:
        """Check that no batch was committed since the run began, before its query starts.

        Raises:
            CheckpointError: if another driver has committed one.
        """
        if committed != self._first - 1:
            raise _overtaken(committed)

    def check(self, batch: int) -> bool:
        """Register a batch before it is staged; return whether it is the run's first batch.

        Raises:
            CheckpointError: if another driver has committed batches meanwhile.
        """
        if batch != self._next:
            raise _overtaken(batch - 1)
        self._next += 1
        return batch == self._first


def _overtaken(batch: int) -> CheckpointError:
    return CheckpointError(
        f"another driver, or the JVM of one that has ended, has committed batch {batch} to this checkpoint "
        "since this run began; make sure that it has ended, and start again: the next start goes on from "
        "that batch"
    )


def _named(batch: int) -> str:
    return "none" if batch < 0 else str(batch)
