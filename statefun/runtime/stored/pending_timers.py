# SPDX-License-Identifier: Apache-2.0
"""When the timers of an application are due, as its checkpoint shows it."""

from __future__ import annotations

from collections import Counter

from statefun.engine.wheel import due_tick, time_of
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.ingress.feedback_offset import feedback_offset


def pending_timers(checkpoint: Folder) -> Counter[int]:
    """Return how many buckets of timers are due in each second, in milliseconds since the epoch.

    A bucket holds any number of delayed messages. For a message that waits for minutes or more, the time is early by up to
    1/64 of the wait.

    Raises:
        CheckpointError: if a file is damaged.
    """
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    newest = log.newest()
    pending = TimerLog(checkpoint).load()
    for batch in outbox.batches():
        manifest = outbox.manifest(batch) if batch <= newest else None
        if manifest is not None:
            pending.add(timer_buckets(manifest))
    pending.drop(feedback_offset(log, newest).tick)
    return Counter(time_of(due_tick(bucket)) // 1000 * 1000 for bucket in pending.all())
