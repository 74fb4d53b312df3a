# SPDX-License-Identifier: Apache-2.0
"""How far messages between functions are delivered, as the driver knows it.

A message to the sender's own address, or to a plain function without state, may be delivered in the
micro-batch that sends it, if it overtakes no other message: no earlier message of its sender may be on its
way through the outbox. Which messages go through the outbox depends on the functions' declarations. So the
messages of an earlier run, whose functions may have had other declarations, must be delivered first.
"""

from __future__ import annotations

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, has_messages
from statefun.runtime.ingress.feedback_offset import feedback_offset


class Delivery:
    """Determines which messages are delivered; an object is made before a run's first micro-batch."""

    def __init__(self, checkpoint: Folder) -> None:
        self._commit_log = CommitLog(checkpoint)
        outbox, newest = Outbox(checkpoint), self._commit_log.newest()
        self._earlier = max(
            (
                batch
                for batch in outbox.batches()
                if batch <= newest and (manifest := outbox.manifest(batch)) is not None
                if has_messages(manifest)
            ),
            default=-1,
        )

    def delivered_before(self, batch: int) -> int | None:
        """Return the number of the micro-batch up to which all messages are delivered when ``batch`` begins.

        Returns:
            The number of the newest such micro-batch; -1 if there is none; None if messages of an earlier run
            are not delivered yet.
        """
        delivered = feedback_offset(self._commit_log, batch - 1).batch
        return delivered if delivered >= self._earlier else None
