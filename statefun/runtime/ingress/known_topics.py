# SPDX-License-Identifier: Apache-2.0
"""Checks while an application runs that its topics are still the ones that it began to read.

If a topic is deleted and created anew, Spark goes on at the same offset in the new topic, and leaves out the records
before it. A topic never gets back an id that it had. So if it has its id after a micro-batch has read it, all records of
the micro-batch were in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from confluent_kafka.admin import AdminClient

from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.identities import (
    Identity,
    compare,
    stored_identities,
    topic_ids,
    write_identities,
)
from statefun.runtime.ingress.starting_offsets import admin_client
from statefun.runtime.ingress.stopping import Offsets
from statefun.sdk.errors import CheckpointError, StatefunError

logger = logging.getLogger("statefun.ingress")

_INTERVAL = timedelta(seconds=15)
_ANSWER = timedelta(seconds=3)
"""How long a cluster may take to describe topics."""


class KnownTopics:
    """Compares the ids of topics with those that the checkpoint has, and stores the ids of new topics.

    Without the id of a new topic that a pattern matches, the next start could not distinguish it from a later topic of the
    same name.

    Args:
        checkpoint: the checkpoint, which has the ids that the start has stored.
        ingresses: the Kafka ingresses in the order of the query's sources.
        interval: how long :meth:`look` and :meth:`watch` wait before they check again.
    """

    def __init__(
        self,
        checkpoint: Folder,
        ingresses: Sequence[KafkaIngress],
        interval: timedelta = _INTERVAL,
    ) -> None:
        self._checkpoint = checkpoint
        self._commit_log = CommitLog(checkpoint)
        self._ingresses = ingresses
        self._identities = stored_identities(checkpoint) if ingresses else {}
        self._clients: dict[str, AdminClient] = {}
        """The clients, by the id of their ingress."""
        self._silent: set[str] = set()
        """The ingresses whose clusters have not answered the last question."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        """Checks all topics now, or has done it last."""
        self._found: CheckpointError | None = None
        """What that thread has found."""
        self._is_closed = False
        self._interval = interval.total_seconds()
        self._next = time.monotonic() + self._interval

    def check(self, batch: int) -> None:
        """Check the topics from which a micro-batch has read; call this before its commit.

        If a cluster does not answer, a later call finds out.

        Raises:
            CheckpointError: if a topic was deleted and created anew.
        """
        if not self._ingresses:
            return
        ends = self._commit_log.end_offsets(batch)
        # The first micro-batch begins in the topics whose ids the start has stored.
        starts = self._commit_log.end_offsets(batch - 1) if batch else [None] * len(ends)
        for ingress, start, end in zip(self._ingresses, starts, ends, strict=False):
            topics = _changed(start or {}, end or {})
            present = self._present(ingress, topics)
            with self._lock:
                if start is not None:
                    self._forget_others(ingress, start)
                self._compare(ingress, topics, present)

    def watch(self) -> None:
        """Check all topics as :meth:`look` does, but in another thread, as clusters may not answer for seconds.

        Raises:
            CheckpointError: if an earlier check has found a topic that was deleted and created anew.
        """
        if self._found is not None:
            raise self._found
        is_looking = self._thread is not None and self._thread.is_alive()
        if self._ingresses and not is_looking and time.monotonic() >= self._next:
            self._thread = threading.Thread(target=self._look, name="statefun-topics", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the check in the other thread: it waits for the answer of one cluster at most."""
        self._is_closed = True
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        try:
            self.look()
        except CheckpointError as error:
            self._found = error
        except (StatefunError, OSError) as error:  # a later check finds out
            logger.debug("the topics are not checked now: %s", error)

    def look(self) -> None:
        """Check all topics that committed micro-batches have read; do so at most every 15 seconds.

        So a topic from which nothing is read is checked, too: the new one may just have as many records as were read
        of the former one.

        Raises:
            CheckpointError: if a topic was deleted and created anew.
        """
        if not self._ingresses or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._interval
        try:
            newest = self._commit_log.newest()
            ends = self._commit_log.end_offsets(newest) if newest >= 0 else []
        except (
            StatefunError,
            OSError,
        ) as error:  # an idle application waits until a store answers again
            logger.debug("the topics are not checked now: %s", error)
            return
        for number, (ingress, end) in enumerate(zip(self._ingresses, ends, strict=False)):
            if self._is_closed:
                return
            topics = {*(end or {})}
            present = self._present(ingress, topics)
            with self._lock:
                try:
                    self._compare(ingress, topics, present)
                except CheckpointError:
                    still = topics & self._planned_topics(number)
                    self._compare(
                        ingress, still, {each: present[each] for each in still & present.keys()}
                    )

    def _planned_topics(self, number: int) -> set[str]:
        """Return the topics that the newest planned micro-batch has of an ingress, given the ingress's number.

        A topic that it does not have is gone, and may come back as another one.
        """
        offsets = self._commit_log.end_offsets(self._commit_log.planned())[number]
        return {*(offsets or {})}

    def _forget_others(self, ingress: KafkaIngress, start: Offsets) -> None:
        """Forget the ids of topics that a micro-batch does not begin with: they are read from their beginning."""
        identity = self._identities.get(str(ingress.id), Identity())
        topics = {topic: id_ for topic, id_ in identity.topics.items() if topic in start}
        self._identities[str(ingress.id)] = Identity(identity.cluster, topics)

    def _compare(
        self, ingress: KafkaIngress, topics: Collection[str], present: Mapping[str, str]
    ) -> None:
        identity = self._identities.get(str(ingress.id), Identity())
        compare(self._checkpoint, ingress, identity, Identity(topics=dict(present)), topics)
        if not present.keys() <= identity.topics.keys():
            self._identities[str(ingress.id)] = Identity(
                identity.cluster, {**identity.topics, **present}
            )
            self._store()

    def _present(self, ingress: KafkaIngress, topics: Collection[str]) -> dict[str, str]:
        """Return the ids that topics have now; those of a cluster that does not answer are left out."""
        name = str(ingress.id)
        try:
            with self._lock:
                if name not in self._clients:
                    self._clients[name] = admin_client(ingress)
            present = topic_ids(ingress, self._clients[name], topics, _ANSWER)
        except StatefunError as error:  # no reason to end the run
            if name not in self._silent:
                self._silent.add(name)
                logger.warning(
                    "%s; if a topic is deleted and created anew now, the run does not notice",
                    error.message,
                )
            return {}
        self._silent.discard(name)
        return present

    def _store(self) -> None:
        try:
            write_identities(self._checkpoint, self._identities)
        except (StatefunError, OSError) as error:  # no reason to end the run
            reason = error.message if isinstance(error, StatefunError) else error
            logger.warning(
                "the ids of new topics cannot be stored: %s; if a new topic is deleted and created anew, the "
                "next start will not notice",
                reason,
            )


def _changed(start: Offsets, end: Offsets) -> list[str]:
    """Return the topics from which a micro-batch reads records.

    >>> _changed({"users": {"0": 7}, "orders": {"0": 2}}, {"users": {"0": 7}, "orders": {"0": 3}, "new": {"0": 1}})
    ['orders', 'new']
    """
    return [topic for topic, offsets in end.items() if start.get(topic) != offsets]
