# SPDX-License-Identifier: Apache-2.0
"""Slows down the reading of records while too many messages wait for endpoints or long calls."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta

import attrs

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

logger = logging.getLogger("statefun")

WAITING = "waiting.json"
MOST_WAITING_BYTES = 1024**3
"""The total size of waiting messages, in bytes, above which the reading of records slows down."""
_NAMED = 3
"""The largest number of functions that a log line names."""
_HOLD = timedelta(seconds=10)
"""By how much each micro-batch that adds waiting messages is prolonged while too many wait."""


@attrs.frozen
class _Count:
    """The total size of the messages that wait, in bytes, as the checkpoint keeps it."""

    batch: int
    """The newest micro-batch that has changed the size of the waiting messages."""
    before: int
    """The size of the waiting messages before the micro-batch ``batch``, in case Spark repeats this micro-batch."""
    after: int
    """The size of the waiting messages after the micro-batch ``batch``."""


class WaitingGauge:
    """Measures the total size of waiting messages, and slows the reading of records while it is too large.

    The messages wait for endpoints that are down, or for long calls.

    Args:
        checkpoint: keeps the total size of the waiting messages.
        pause: waits for a number of seconds.
    """

    def __init__(self, checkpoint: Folder, pause: Callable[[float], None] = time.sleep) -> None:
        self._checkpoint = checkpoint
        self._pause = pause
        self._count = _read_count(checkpoint)
        self._is_held = False

    def add(self, batch: int, outcomes: Iterable[Outcome]) -> None:
        """Count the waiting messages that a micro-batch has added or delivered, before it is committed.

        If too many messages wait, prolong a micro-batch that has added some.
        """
        growth = Counter[str]()
        for outcome in outcomes:
            growth.update(outcome.waiting_bytes)
        count, added = self._count, growth.total()
        before = count.before if batch == count.batch else count.after
        after = max(before + added, 0)
        if after != count.after:
            self._count = _Count(batch, before, after)
            _write_count(self._checkpoint, self._count)
        self._report(after, growth)
        if self._is_held and added > 0:
            self._pause(_HOLD.total_seconds())

    def _report(self, size: int, growth: Counter[str]) -> None:
        was_held, self._is_held = self._is_held, size > MOST_WAITING_BYTES
        if self._is_held and not was_held:
            logger.warning(
                "%s bytes of messages wait for endpoints that are down, or for the end of long calls; the newest "
                "messages are for %s; until fewer than %s bytes wait, each micro-batch that adds waiting messages "
                "takes %s longer, so that fewer records are read",
                f"{size:,}",
                ", ".join(name for name, added in growth.most_common(_NAMED) if added > 0),
                f"{MOST_WAITING_BYTES:,}",
                _HOLD,
            )
        elif was_held and not self._is_held:
            logger.warning(
                "%s bytes of messages wait for endpoints or long calls: few enough that micro-batches are no "
                "longer prolonged",
                f"{size:,}",
            )


def take_back_waiting(checkpoint: Folder, newest: int) -> None:
    """Take back what a micro-batch after ``newest`` has counted, as it is not committed and will not be repeated.

    Raises:
        CheckpointError: if the file with the count is damaged.
    """
    count = _read_count(checkpoint)
    if count.batch > newest:
        _write_count(checkpoint, _Count(newest, count.before, count.before))


def _write_count(checkpoint: Folder, count: _Count) -> None:
    write_framed(checkpoint, WAITING, json.dumps(attrs.asdict(count)).encode())


def _read_count(checkpoint: Folder) -> _Count:
    checkpoint.sync(WAITING)  # the process that wrote it may have ended before it was on the disk
    try:
        return _Count(**json.loads(read_framed(checkpoint, WAITING)))
    except FileNotFoundError:
        return _Count(-1, 0, 0)
    except (ValueError, TypeError) as error:
        raise damaged(checkpoint, WAITING, error) from error
