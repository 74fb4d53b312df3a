# SPDX-License-Identifier: Apache-2.0
"""Logs which clusters do not answer while an application runs.

Spark's Kafka source tries for minutes before it gives up, and logs nothing meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import timedelta

from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.starting_offsets import admin_client
from statefun.runtime.kafka.client import cluster_metadata
from statefun.sdk.errors import KafkaError

logger = logging.getLogger("statefun.ingress")

_INTERVAL = timedelta(seconds=15)
_TIMEOUT = timedelta(seconds=3)


class IngressWatch:
    """Checks at intervals whether the clusters of the ingresses answer."""

    def __init__(self, ingresses: Sequence[KafkaIngress], interval: timedelta = _INTERVAL) -> None:
        self._watched = [(ingress, admin_client(ingress)) for ingress in ingresses]
        self._interval = interval.total_seconds()
        self._next = time.monotonic() + self._interval
        self._silent: set[str] = set()

    def look(self) -> None:
        """Log which clusters no longer answer, or answer again; check at most once per interval."""
        if time.monotonic() < self._next:
            return
        for ingress, admin in self._watched:
            id_ = str(ingress.id)
            try:
                cluster_metadata(ingress.label, ingress.address, admin, _TIMEOUT)
            except KafkaError:
                if id_ not in self._silent:
                    self._silent.add(id_)
                    logger.warning(
                        "ingress %s: no Kafka broker answers at %s; no records are read until one answers",
                        id_,
                        ingress.address,
                    )
            else:
                if id_ in self._silent:
                    self._silent.remove(id_)
                    logger.info("ingress %s: %s answers again", id_, ingress.address)
        self._next = time.monotonic() + self._interval
