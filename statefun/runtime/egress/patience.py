# SPDX-License-Identifier: Apache-2.0
"""Logs that records of an egress wait, and how many records an egress does not accept."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from statefun.module.connectors import ConnectorEgress
from statefun.module.model import KafkaEgress
from statefun.runtime.kafka.client import admin_for, cluster_metadata
from statefun.sdk.errors import KafkaError

logger = logging.getLogger("statefun.egress")

_PATIENCE = timedelta(seconds=10)
"""How long records must wait before a warning about them is logged."""
_ANSWER = timedelta(seconds=5)
"""How long a cluster may take to answer whether it is reachable."""


class Patience:
    """Logs once when records of an egress have waited for some time, and once when they no longer wait."""

    def __init__(self, egress: KafkaEgress | ConnectorEgress) -> None:
        self._egress = egress
        self._since: float | None = None
        self._is_logged = False

    def wait(self, reason: str = "") -> None:
        """Remember since when records wait; log a warning if they have waited for some time."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif not self._is_logged and now - self._since > _PATIENCE.total_seconds():
            self._is_logged = True
            logger.warning(
                "egress %s: %s %s%s; the records stay in the outbox, and are sent again until they are "
                "accepted",
                self._egress.id,
                self._egress.address,
                self._trouble(),
                f" ({reason})" if reason else "",
            )

    def end(self) -> None:
        """End the wait, because the egress accepts records again; log this if a warning was logged before."""
        if self._is_logged:
            logger.info(
                "egress %s: %s accepts records again", self._egress.id, self._egress.address
            )
        self._since, self._is_logged = None, False

    def _trouble(self) -> str:
        """Return a text that says why records wait, as far as this process can find out."""
        if isinstance(self._egress, KafkaEgress) and not self._answers(self._egress):
            return "does not answer"
        is_kafka = isinstance(self._egress, KafkaEgress)
        return "answers, and accepts no records" if is_kafka else "accepts no records"

    def _answers(self, egress: KafkaEgress) -> bool:
        owner, address = egress.label, egress.address
        try:
            admin = admin_for(owner, address, egress.properties)
            cluster_metadata(owner, address, admin, _ANSWER)
        except KafkaError:
            return False
        return True


class RecordCounter:
    """Counts records that an egress does not accept, and logs the count now and then.

    Args:
        egress: the egress.
        fate: what happens to these records, such as ``lost``; a log line then says ``7 records lost``.
    """

    def __init__(self, egress: KafkaEgress, fate: str) -> None:
        self._egress = egress
        self._fate = fate
        self.count = 0
        """The number of records that the egress has not accepted since this counter was made."""
        self._logged = 0
        self._logged_at = 0.0

    def add(self, topic: str, reason: str, count: int = 1) -> None:
        """Count further records that the egress does not accept; log the total, but not too often.

        Args:
            topic: the topic of these records, for the log line.
            reason: why the egress does not accept these records, for the log line.
            count: the number of these records.
        """
        self.count += count
        if not self._logged or time.monotonic() - self._logged_at > _PATIENCE.total_seconds():
            self._log(f"{reason} (topic {topic})")

    def log_remaining(self) -> None:
        """Log the total when the connection is closed, if it has grown since it was last logged."""
        if self.count > self._logged:
            self._log("the connection is closed")

    def _log(self, reason: str) -> None:
        self._logged, self._logged_at = self.count, time.monotonic()
        logger.warning(
            "egress %s at %s: %d records %s so far: %s",
            self._egress.id,
            self._egress.address,
            self.count,
            self._fate,
            reason,
        )
