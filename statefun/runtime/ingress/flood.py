# SPDX-License-Identifier: Apache-2.0
"""Ends an application whose functions send each other more and more messages, before the disk is full.

All messages of a micro-batch are delivered in the next one. That is stable as long as each message causes
few others. If functions form a loop in which each message causes two, their number doubles in each
micro-batch, until the disk is full.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import chain, islice

from statefun.engine.address_keys import typename_of
from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.rows.effect_streams import read_batches
from statefun.sdk.errors import InvocationError

logger = logging.getLogger("statefun")

WARNING = 1_000_000
"""A micro-batch that sends this many messages causes a warning; the next warning needs twice as many."""
MOST = 100_000_000
"""The largest allowed number of messages in a micro-batch; with more messages, the application ends."""
_SAMPLE = 10_000
"""The number of messages of each segment that are examined to find the functions that send most messages."""


class FloodGauge:
    """Checks the number of messages that the functions send in each micro-batch."""

    def __init__(self, outbox: Outbox, *, warning: int = WARNING, most: int = MOST) -> None:
        self._outbox = outbox
        self._warning = warning
        self._most = most

    def look(self, manifest: Manifest) -> None:
        """Check the number of messages that a micro-batch has sent, before it is staged; warn if it is high.

        Raises:
            InvocationError: if functions have sent too many messages; the error names the function
                that has sent most of them, and their target.
        """
        count = sum(segment.messages.records for segment in manifest.segments)
        if count < self._warning:
            return
        text = (
            f"functions have sent {count:,} messages to functions in micro-batch {manifest.batch}, "
            f"{self._most_active(manifest)}"
        )
        if count > self._most:
            raise InvocationError(
                f"{text}; at most {self._most:,} messages are allowed: correct the loop of functions in which messages multiply, "
                "and start again"
            )
        self._warning = 2 * count
        logger.warning(
            "%s; if functions send more than %s in a micro-batch, the application ends",
            text,
            f"{self._most:,}",
        )

    def _most_active(self, manifest: Manifest) -> str:
        pairs: Counter[tuple[str, str]] = Counter()
        for segment in manifest.segments:
            if segment.messages.records:
                with self._outbox.open(manifest.batch, segment.messages) as file:
                    rows = chain.from_iterable(
                        zip(batch.column("caller"), batch.column("target"), strict=True)
                        for batch in read_batches(file)
                    )
                    pairs.update(
                        (typename_of(caller.as_py()), typename_of(target.as_py()))
                        for caller, target in islice(rows, _SAMPLE)
                    )
        [((caller, target), count)] = pairs.most_common(1)
        return f"{count / pairs.total():.0%} of them from {caller} to {target}"
