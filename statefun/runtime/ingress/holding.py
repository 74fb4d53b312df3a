# SPDX-License-Identifier: Apache-2.0
"""Holds reading up while too much waits for endpoints that are down, in the whole application."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

import attrs

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

logger = logging.getLogger("statefun")

WAITING = "waiting.json"
MOST_WAITING_BYTES = 1024**3
"""Bytes of messages that may wait; from then on micro-batches that add to them are held up."""
_HOLD = timedelta(seconds=10)


@attrs.frozen
class _Count:
    """How much waits, in bytes."""

    batch: int
    """The newest micro-batch that has changed it."""
    before: int
    """How much waited before that one, which may be repeated."""
    after: int


class WaitingGauge:
    """Counts what waits for endpoints, and holds reading up when that is too much.

    Args:
        checkpoint: keeps the count.
        pause: waits for so many seconds.
    """

    def __init__(self, checkpoint: Folder, pause: Callable[[float], None] = time.sleep) -> None:
        self._checkpoint = checkpoint
        self._pause = pause
        self._count = _stored(checkpoint)
        self._is_held = False

    def add(self, batch: int, outcomes: Iterable[Outcome]) -> None:
        """Count what a micro-batch has added or taken away, before it is committed."""
        known, added = self._count, sum(outcome.waiting_bytes for outcome in outcomes)
        before = known.before if batch == known.batch else known.after
        after = max(before + added, 0)
        if after != known.after:
            self._count = _Count(batch, before, after)
            content = json.dumps(attrs.asdict(self._count)).encode()
            write_framed(self._checkpoint, WAITING, content)
        self._report(after)
        if self._is_held and added > 0:
            self._pause(_HOLD.total_seconds())

    def _report(self, size: int) -> None:
        was_held, self._is_held = self._is_held, size > MOST_WAITING_BYTES
        if self._is_held and not was_held:
            logger.warning(
                "%s bytes of messages wait for endpoints that are down; until fewer than %s do, each "
                "micro-batch that adds to them takes %s longer, so that less is read",
                f"{size:,}",
                f"{MOST_WAITING_BYTES:,}",
                _HOLD,
            )
        elif was_held and not self._is_held:
            logger.warning("%s bytes of messages wait for endpoints now", f"{size:,}")


def _stored(checkpoint: Folder) -> _Count:
    checkpoint.sync(WAITING)  # who wrote it need not have lived until it was on the disk
    try:
        return _Count(**json.loads(read_framed(checkpoint, WAITING)))
    except FileNotFoundError:
        return _Count(-1, 0, 0)
    except (ValueError, TypeError) as error:
        raise damaged(checkpoint, WAITING, error) from error
