# SPDX-License-Identifier: Apache-2.0
"""When the timers of an application are due, as its checkpoint shows it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from statefun.engine.wheel import PendingBuckets, due_tick, is_of_event_time, time_of
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.ingress.feedback_offset import feedback_offset


class DueSecond(NamedTuple):
    """A second in which timers are due."""

    time: int
    """The second, in milliseconds since the epoch."""
    in_event_time: bool
    """Whether they are due when the watermark has come to that time, and not when the clock has."""


def pending_timers(checkpoint: Folder) -> Counter[DueSecond]:
    """Return how many buckets of timers are due in each second.

    A bucket holds any number of delayed messages. For a message that waits for minutes or more, the time that is
    returned is too early, by up to 1/64 of the wait.

    Raises:
        CheckpointError: if a file is damaged.
    """
    log = CommitLog(checkpoint)
    newest = log.newest()
    pending = pending_buckets(checkpoint, newest)
    feedback = feedback_offset(log, newest)
    for tick in (feedback.tick, feedback.last_event_tick):
        pending.drop(tick)
    ticks = map(due_tick, pending.all())
    return Counter(
        DueSecond(time_of(tick) // 1000 * 1000, is_of_event_time(tick)) for tick in ticks
    )


def pending_buckets(checkpoint: Folder, batch: int) -> PendingBuckets:
    """Return all buckets of timers that wait for their tick after a micro-batch, perhaps also some whose tick has come.

    Args:
        checkpoint: the checkpoint.
        batch: the number of the newest micro-batch, or of one that was the newest a moment ago.

    Raises:
        CheckpointError: if a file is damaged.
    """
    outbox = Outbox(checkpoint)
    # A batch leaves the outbox, maybe meanwhile, when its buckets are in the log; it may stay for long after it is
    # delivered, if an egress is paused.
    manifests = [outbox.manifest(each) for each in outbox.batches() if each <= batch]
    pending = TimerLog(checkpoint).load()
    for manifest in manifests:
        if manifest is not None:
            pending.add(timer_buckets(manifest))
    return pending
