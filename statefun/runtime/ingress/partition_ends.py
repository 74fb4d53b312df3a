# SPDX-License-Identifier: Apache-2.0
"""Watches which partitions are read to their ends: only those can become idle.

A backlog, a broker that does not answer, or a pause of the application is never idle: the time of a partition
begins anew as soon as nobody knows that it is read to its end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from statefun.engine.clock import Clock
from statefun.engine.watermark import Partition
from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.starting_offsets import admin_client, reads_committed
from statefun.runtime.kafka.cluster_offsets import watermarks
from statefun.sdk.errors import StatefunError

logger = logging.getLogger("statefun.ingress")

_MOST = timedelta(seconds=5)
_LEAST = timedelta(milliseconds=200)
_PATIENCE = timedelta(seconds=5)
"""How long a cluster may take to answer a question; partitions count as not read to the end meanwhile."""
_LOOKS = 4
"""How often the ends are asked for within the time after which a partition is idle."""


class End(NamedTuple):
    """The end of a partition, as its cluster has returned it."""

    offset: int
    asked_at: int
    """When the cluster was asked, in milliseconds of the clock: what has come since is not known."""


class PartitionEnds:
    """Asks the clusters, in a thread of its own, where the partitions of ingresses end.

    The thread asks several times within the time after which a partition is idle, or every five seconds if no ingress has
    event time.

    Args:
        ingresses: the ingresses.
        clock: measures how old an answer is.
    """

    def __init__(self, ingresses: Sequence[KafkaIngress], clock: Clock) -> None:
        self._ingresses = ingresses
        self._clock = clock
        self._clients: dict[str, AdminClient] = {}
        """The clients, by the id of their ingress."""
        self._asking = threading.Lock()
        """Held by the thread that asks: a client takes one question after the other; see :func:`watermarks`."""
        self._lock = threading.Lock()
        self._ends: dict[Partition, End] = {}
        self._asked: dict[str, list[tuple[str, int]]] = {}
        """The partitions to ask about, by ingress."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        idle = min(
            (each.event_time.idle for each in ingresses if each.event_time is not None),
            default=_MOST * _LOOKS,
        )
        self._interval = min(max(idle / _LOOKS, _LEAST), _MOST)

    def ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, End]:
        """Return the newest known end offsets; partitions of a cluster that does not answer are left out.

        Args:
            partitions: the partitions about which the thread asks from now on.
        """
        self._remember(partitions)
        with self._lock:
            ends = dict(self._ends)
        if self._thread is None and partitions:
            self._thread = threading.Thread(
                target=self._run, name="statefun-partition-ends", daemon=True
            )
            self._thread.start()
        return ends

    def ask(self, partitions: Sequence[Partition]) -> None:
        """Ask the clusters now, and wait for their answers."""
        self._remember(partitions)
        self._ask_all()

    def _remember(self, partitions: Sequence[Partition]) -> None:
        asked: dict[str, list[tuple[str, int]]] = {}
        for ingress, topic, number in partitions:
            asked.setdefault(ingress, []).append((topic, number))
        with self._lock:
            self._asked = asked

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._ask_all()
            self._stopped.wait(self._interval.total_seconds())

    def _ask_all(self) -> None:
        for ingress in self._ingresses:
            with self._asking:
                self._ask(ingress)

    def _ask(self, ingress: KafkaIngress) -> None:
        name = str(ingress.id)
        with self._lock:
            asked = list(self._asked.get(name, ()))
        found: dict[tuple[str, int], tuple[int, int]] = {}
        clients, asked_at = self._clients, self._clock.monotonic()
        try:
            if name not in clients:
                clients[name] = admin_client(ingress)
            committed = reads_committed(ingress)
            found = watermarks(clients[name], asked, _PATIENCE, committed=committed)
        except (KafkaException, StatefunError):
            logger.debug("%s: its partitions' ends are not known", ingress.label, exc_info=True)
        with self._lock:
            self._ends = {each: end for each, end in self._ends.items() if each.ingress != name} | {
                Partition(name, *place): End(end, asked_at) for place, (_, end) in found.items()
            }


class CaughtUp:
    """Knows for how long each partition has been read to its end, and has had no new record."""

    def __init__(self) -> None:
        self._since: dict[Partition, tuple[int, int]] = {}
        """For each partition that is read to its end: its end offset, and since when it is read up to there."""

    def look(
        self, read: Mapping[Partition, int], ends: Mapping[Partition, End]
    ) -> Mapping[Partition, int]:
        """Return for how many milliseconds each partition has been read to its end; others are left out.

        Args:
            read: the offset before which each partition is read, and its records are handled.
            ends: the ends of partitions, as far as they are known.
        """
        before = self._since
        self._since = {}
        for each, offset in read.items():
            if each in ends and offset >= ends[each].offset:
                asked_at = ends[each].asked_at
                last, since = before.get(each, (offset, asked_at))
                self._since[each] = (offset, since if last == offset else asked_at)
        return {each: ends[each].asked_at - since for each, (_, since) in self._since.items()}
