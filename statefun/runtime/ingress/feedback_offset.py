# SPDX-License-Identifier: Apache-2.0
"""The offset of the feedback source, which says which messages and ticks are delivered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from statefun.engine.watermark import EventProgress
from statefun.engine.wheel import due_tick, event_tick_of, is_of_event_time
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.sdk.errors import CheckpointError

if TYPE_CHECKING:  # importing Spark takes long, and commands need none of it here
    from statefun.runtime.spark_internals.driver_source import Offset

_NONE = -1


def _sorted(inboxes: Mapping[str, int]) -> dict[str, int]:
    """Return the entries sorted by name, without zeros, so that equal offsets are written as equal JSON."""
    return {name: number for name, number in sorted(inboxes.items()) if number}


@attrs.frozen
class FeedbackOffset:
    """An offset of the feedback source; without arguments, the offset before the first message.

    >>> FeedbackOffset(4, 70, {"playground": 2}).encode()
    {'batch': 4, 'tick': 70, 'inboxes': {'playground': 2}}
    >>> FeedbackOffset.decode({"batch": 4, "tick": 70})
    FeedbackOffset(batch=4, tick=70, inboxes={}, event=None, opened=None)
    """

    batch: int = _NONE
    """All messages that functions have sent in micro-batches up to this number are delivered; -1 for none."""
    tick: int = _NONE
    """All buckets that are due by the tick with this number have got their tick; -1 before the first tick.

    The number counts intervals of 250 milliseconds since the epoch."""
    inboxes: Mapping[str, int] = attrs.field(factory=dict, converter=_sorted)
    """The number of the last delivered message of each inbox, by the inbox's name.

    Inboxes of which no message is delivered yet are absent."""
    event: EventProgress | None = None
    """How far event time has come before the micro-batch; None if no ingress declares event time."""
    opened: int | None = None
    """The number of the last bucket of :attr:`event_tick` that has got its tick; None if all have got it."""

    @property
    def event_tick(self) -> int:
        """The number of the newest tick of event time; if ``opened`` is set, some buckets have not got it yet."""
        return event_tick_of(None if self.event is None else self.event.watermark)

    @property
    def last_event_tick(self) -> int:
        """The number of the newest tick of event time that was sent to all buckets which are due by it."""
        return self.event_tick - (self.opened is not None)

    def has_ticked(self, bucket: int) -> bool:
        """Return whether a bucket, or a chunk of a bucket, has got its tick."""
        tick = due_tick(bucket)
        if not is_of_event_time(tick):
            return tick <= self.tick
        is_partly = self.opened is not None and tick == self.event_tick
        return bucket <= (self.opened or 0) if is_partly else tick <= self.event_tick

    @classmethod
    def decode(cls, offset: Offset | None) -> FeedbackOffset:
        """Decode the offset in Spark's log; None stands for a source that has not had any data yet.

        Raises:
            ValueError: if the object is not an offset of the feedback source.
        """
        if offset is None:
            return cls()
        try:
            inboxes = {str(name): int(n) for name, n in offset.get("inboxes", {}).items()}
            event = offset.get("event")
            progress = None if event is None else EventProgress.decode(event)
            opened = offset.get("opened")
            opened = None if opened is None else int(opened)
            return cls(int(offset["batch"]), int(offset["tick"]), inboxes, progress, opened)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{offset} is not an offset of the feedback source") from error

    def encode(self) -> Offset:
        """Return the offset as a dict, which Spark's log stores as JSON."""
        offset: dict[str, Any] = {"batch": self.batch, "tick": self.tick}
        if self.inboxes:
            offset["inboxes"] = dict(self.inboxes)
        if self.event is not None:
            offset["event"] = self.event.encode()
        if self.opened is not None:
            offset["opened"] = self.opened
        return offset

    def last_of(self, inbox: str) -> int:
        """Return the number of the last delivered message of an inbox; 0 if none is delivered."""
        return self.inboxes.get(inbox, 0)


def feedback_offset(log: CommitLog, batch: int) -> FeedbackOffset:
    """Return the end offset that the feedback source has in a micro-batch.

    Args:
        log: Spark's log of offsets.
        batch: the micro-batch; -1 stands for the time before the first one.

    Raises:
        CheckpointError: if the log has no such batch, or its file is damaged.
    """
    if batch < 0:
        return FeedbackOffset()
    offsets = log.end_offsets(batch)
    try:
        return FeedbackOffset.decode(offsets[-1] if offsets else {})
    except ValueError as error:
        raise CheckpointError(
            f"{log.offsets_file(batch)} is damaged: its last line must be the offset of messages "
            "between functions; restore the checkpoint from a copy"
        ) from error
