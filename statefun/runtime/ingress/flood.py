# SPDX-License-Identifier: Apache-2.0
"""Detects that functions send each other more and more messages, before the disk is full.

All messages of a micro-batch are delivered in the next one. That is stable as long as each causes
few others; a loop in which each causes two doubles them again and again, until the disk is full.
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
"""The number of messages in a micro-batch from which a warning is logged, and again at each doubling."""
MOST = 100_000_000
"""The largest number of messages in a micro-batch; with more messages, the application ends."""
_SAMPLE = 10_000
"""How many messages of each segment are looked at to find the functions that send most."""


class FloodGauge:
    """Watches the number of messages that micro-batches send."""

    def __init__(self, outbox: Outbox, *, warning: int = WARNING, most: int = MOST) -> None:
        self._outbox = outbox
        self._warning = warning
        self._most = most

    def look(self, manifest: Manifest) -> None:
        """Check a micro-batch before it is staged.

        Raises:
            InvocationError: if functions have sent too many messages; the error names the functions
                that have sent most of them.
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
                f"{text}; the limit is {self._most:,}: correct the loop of functions in which messages multiply, "
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
