# SPDX-License-Identifier: Apache-2.0
"""What an egress says of records that wait, and of those that do not arrive: now and then."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from statefun.module.model import KafkaEgress
from statefun.runtime.kafka.client import admin_for, cluster_metadata
from statefun.sdk.errors import KafkaError

logger = logging.getLogger("statefun.egress")

_PATIENCE = timedelta(seconds=10)
"""Waiting for longer than this is worth a word to whoever watches."""
_ANSWER = timedelta(seconds=5)
"""How long a cluster has to say that it is there."""


class Patience:
    """Says once when an egress keeps its records waiting, and when it does no more."""

    def __init__(self, egress: KafkaEgress) -> None:
        self._egress = egress
        self._since: float | None = None
        self._told = False

    def wait(self, reason: str = "") -> None:
        """Take note that records wait."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif not self._told and now - self._since > _PATIENCE.total_seconds():
            self._told = True
            logger.warning(
                "egress %s: %s %s%s; its records are kept, and tried until it takes them",
                self._egress.id,
                self._egress.address,
                "answers, and takes no records" if self._answers() else "does not answer",
                f" ({reason})" if reason else "",
            )

    def end(self) -> None:
        """Take note that nothing waits any more."""
        if self._told:
            logger.info("egress %s: %s takes records again", self._egress.id, self._egress.address)
        self._since, self._told = None, False

    def _answers(self) -> bool:
        owner, address = f"egress {self._egress.id}", self._egress.address
        try:
            admin = admin_for(owner, address, self._egress.properties)
            cluster_metadata(owner, address, admin, _ANSWER)
        except KafkaError:
            return False
        return True


class Tally:
    """Counts what becomes of records that an egress does not take, and says so now and then.

    Args:
        egress: which one.
        fate: what becomes of them, such as ``lost``.
    """

    def __init__(self, egress: KafkaEgress, fate: str) -> None:
        self._egress = egress
        self._fate = fate
        self.count = 0
        """How many there were."""
        self._told = 0
        self._told_at = 0.0

    def add(self, topic: str, reason: str, count: int = 1) -> None:
        """Take note of more."""
        self.count += count
        if not self._told or time.monotonic() - self._told_at > _PATIENCE.total_seconds():
            self._tell(f"{reason} (topic {topic})")

    def tell_rest(self) -> None:
        """Say what was not said yet: there will be no more by this connection."""
        if self.count > self._told:
            self._tell("the connection is closed")

    def _tell(self, reason: str) -> None:
        self._told, self._told_at = self.count, time.monotonic()
        logger.warning(
            "egress %s at %s: %d records %s so far: %s",
            self._egress.id,
            self._egress.address,
            self.count,
            self._fate,
            reason,
        )
