# SPDX-License-Identifier: Apache-2.0
"""Noticing that functions send each other more and more messages, before the disk is full.

All messages of a micro-batch are delivered in the next one. That is stable as long as each causes
few others; a loop in which each causes two doubles them, until nothing is left to hold them.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import chain, islice

from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.rows.effects import read_batches
from statefun.runtime.rows.envelope import typename_of
from statefun.sdk.errors import InvocationError

logger = logging.getLogger("statefun")

WARNING = 1_000_000
"""From so many messages of a micro-batch on there is a warning, and again at each doubling."""
MOST = 100_000_000
"""With more messages in a micro-batch the application ends."""
_SAMPLE = 10_000
"""So many messages per part of a micro-batch are looked at to say who sends them."""


class FloodGauge:
    """Watches how many messages micro-batches send."""

    def __init__(self, outbox: Outbox, *, warning: int = WARNING, most: int = MOST) -> None:
        self._outbox = outbox
        self._warning = warning
        self._most = most

    def look(self, manifest: Manifest) -> None:
        """Look at a micro-batch that is to be staged.

        Raises:
            InvocationError: if it has sent too many messages; names the functions that have sent
                most of them.
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
                f"{text}; more than {self._most:,} are not kept: mend the loop in which they grow, "
                "and start again"
            )
        self._warning = 2 * count
        logger.warning("%s; at more than %s the application ends", text, f"{self._most:,}")

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
