# SPDX-License-Identifier: Apache-2.0
"""Checks whether the files of a checkpoint fit together, before a run changes any of them.

Spark plans a batch (``offsets/N``), the runtime stages it (``outbox/N``), and Spark commits it
(``commits/N``). Only then does Spark plan the next batch, and are the effects released. If the files of a
checkpoint contradict this order, either files were lost, or two drivers have written into the checkpoint.
"""

from __future__ import annotations

from statefun.runtime.checkpoint.commit_log import CommitLog, overtaken
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.sdk.errors import CheckpointError


def check_logs(checkpoint: Folder, last: int | None = None) -> None:
    """Check that Spark's logs and the outbox of a checkpoint fit together and are complete.

    Args:
        checkpoint: the checkpoint.
        last: the last batch that belongs to the checkpoint, if its outbox may have files of later ones.

    Raises:
        CheckpointError: if they contradict each other, or a file is missing.
    """
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    committed, planned = log.newest(), log.planned()
    batches = (batch for batch in outbox.batches() if last is None or batch <= last)
    staged = max(batches, default=-1)
    if not committed <= planned <= committed + 1:
        reason = f"the newest batch in its folder 'offsets' is {_named(planned)}"
    elif staged > planned:
        reason = f"the newest batch in its folder 'offsets' is {_named(planned)}, and its outbox has batch {staged}"
    elif staged > committed and outbox.is_published(staged):
        reason = f"batch {staged} in its outbox is marked as published"
    elif committed < 0 and TimerLog(checkpoint).exists():
        reason = "its folder 'timers' is not empty"
    elif planned >= 0 and not log.query_id():
        reason = "its file metadata is missing"
    else:
        log.check(committed)
        return
    raise CheckpointError(
        f"checkpoint {checkpoint.shown} has lost files: the newest batch in its folder 'commits' is "
        f"{_named(committed)}, but {reason}; nothing was changed: restore the checkpoint from a copy, or start "
        "with a new checkpoint"
    )


class Succession:
    """Checks that the batch before each staged batch is this run's own, not the batch of another driver.

    Args:
        committed: the newest committed batch when the run began.
    """

    def __init__(self, committed: int) -> None:
        self._first = self._next = committed + 1

    def check_start(self, committed: int) -> None:
        """Check, before the run's query starts, that no batch was committed since the run began.

        Raises:
            CheckpointError: if another driver has committed a batch.
        """
        if committed != self._first - 1:
            raise overtaken(committed)

    def check(self, batch: int) -> bool:
        """Check that ``batch`` is the next batch, before it is staged; return whether it is the run's first.

        Raises:
            CheckpointError: if another driver has committed batches since the run began.
        """
        if batch != self._next:
            raise overtaken(batch - 1)
        self._next += 1
        return batch == self._first


def _named(batch: int) -> str:
    return "none" if batch < 0 else str(batch)
