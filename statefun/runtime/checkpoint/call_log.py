# SPDX-License-Identifier: Apache-2.0
"""The log of the calls that have left their micro-batches: the folder ``calls`` of the checkpoint.

An address does not notice by itself that its long call was lost when the run ended. The next run sends it a message:
the log has the addresses of all calls under way. If a run fails because a call has ended its worker, the log also has
the calls that were lost with that worker, so that the next run counts their losses.
"""

from __future__ import annotations

from collections.abc import Mapping

from statefun.protocol.runtime_pb2 import CallLoss, CallsUnderWay
from statefun.runtime.checkpoint.batch_log import BatchLog
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder

_LOG_LENGTH = 100
"""The number of additions to the log after which a snapshot of all calls replaces them."""
_MOST_ENDED = 1000
"""A snapshot replaces the log as well if it has this many more calls than twice the calls under way."""

Addresses = Mapping[str, bytes]
"""The keys of the addresses of calls, by the names of the calls."""
Losses = Mapping[str, CallLoss]
"""Losses of calls, by the names of the calls."""


class CallLog:
    """The durable log of the calls under way, by the micro-batch that they have left.

    The log has each call that is under way in the state of a committed micro-batch. It may also have calls that
    have ended, and calls of micro-batches that were not committed: their addresses ignore messages about them.
    Only one object may use the log.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._log = BatchLog(checkpoint, "calls")
        self._commit_log = CommitLog(checkpoint)
        self._size = 0
        """The number of calls in the files of the log."""
        self._losses: dict[str, CallLoss] = {}
        """The losses in the log."""

    def recover(self) -> Addresses:
        """Flush the log to the disk, and return its calls."""
        self._log.flush()
        contents = self._log.load(CallsUnderWay)
        calls = [call for content in contents for call in content.calls]
        self._size = len(calls)
        # A crash may have left a call in several files, of which only the newest one has the loss.
        self._losses = {
            call.attempt: CallLoss(attempt=call.attempt, begun=call.begun, ended=True)
            for call in calls
            if call.ended
        }
        return {call.attempt: call.address for call in calls}

    @property
    def losses(self) -> Losses:
        """The losses in the log: these calls were lost with their worker when a run failed."""
        return self._losses

    def add(self, batch: int, calls: Addresses, under_way: Addresses) -> None:
        """Write the calls that have left a micro-batch into the log; this must be done before its commit.

        Args:
            batch: the number of the micro-batch.
            calls: the calls that have left it.
            under_way: all calls that are not over, including ``calls``; for a snapshot. A call is over when a
                committed micro-batch has read its result or its loss.
        """
        self._size += len(calls)
        is_small = self._size <= 2 * len(under_way) + _MOST_ENDED
        if is_small and self._log.additions + 1 < _LOG_LENGTH:
            self._log.add(batch, _encoded(calls, {}))
        else:
            self._replace(batch, under_way)

    def lose(self, losses: Losses, under_way: Addresses) -> None:
        """Add losses to the log, since no committed micro-batch has told the addresses of them yet.

        Args:
            losses: the losses.
            under_way: all calls that are not over, including the lost ones.
        """
        self._losses |= losses
        self._replace(max(self._commit_log.newest(), 0), under_way)

    def clear(self) -> None:
        """Delete the log, as no call is under way."""
        if self._size:
            self._flush_commit()
            self._log.clear()
            self._size = 0

    def _replace(self, batch: int, under_way: Addresses) -> None:
        """Write a snapshot of all calls that are not over."""
        self._losses = {name: loss for name, loss in self._losses.items() if name in under_way}
        self._flush_commit()
        self._log.replace(batch, _encoded(under_way, self._losses))
        self._size = len(under_way)

    def _flush_commit(self) -> None:
        """Flush the newest commit to the disk, before calls that are over leave the log.

        If a loss of power took the commit back, the calls would be under way again.
        """
        self._commit_log.sync(self._commit_log.newest())


def _encoded(calls: Addresses, losses: Losses) -> CallsUnderWay:
    content = CallsUnderWay()
    for name, address in calls.items():
        call = content.calls.add(address=address, attempt=name)
        if name in losses:
            call.ended, call.begun = True, losses[name].begun
    return content
