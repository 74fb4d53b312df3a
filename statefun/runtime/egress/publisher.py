# SPDX-License-Identifier: Apache-2.0
"""Publishing: what is staged leaves the outbox once Spark has committed its batch.

A thread of its own watches the commit log, since nothing in Spark says "committed" while a
stream is idle. It publishes batches in order, then commits the consumer groups' offsets, then
deletes what is published and delivered; a crash in between repeats the batch, and loses nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import timedelta

from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.commit_log import CommitLog
from statefun.runtime.effects import EgressRecord, read_egress_records
from statefun.runtime.egress.kafka import KafkaPublisher, UndeliveredError
from statefun.runtime.filesystem import Folder
from statefun.runtime.ingress.group_offsets import GroupOffsets
from statefun.runtime.outbox import Leftovers, Outbox
from statefun.runtime.retention import Retention
from statefun.sdk.errors import CheckpointError, EngineError, StatefunError
from statefun.spec.model import KafkaEgress

logger = logging.getLogger("statefun.egress")

_POLL_LOCAL = timedelta(milliseconds=5)
_POLL_REMOTE = timedelta(milliseconds=100)
_BACKLOG = 16
"""So many batches may wait for the egresses; then staging waits too."""


class Publisher:
    """Publishes committed batches, one after the other, from a thread of the driver."""

    def __init__(
        self,
        egresses: Mapping[str, KafkaEgress],
        checkpoint: Folder,
        group_offsets: GroupOffsets,
        retention: Retention,
    ) -> None:
        self._egresses = egresses
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._group_offsets = group_offsets
        self._retention = retention
        self._poll = (_POLL_LOCAL if checkpoint.is_local else _POLL_REMOTE).total_seconds()
        self._clients: dict[str, KafkaPublisher] = {}
        self._waiting: deque[int] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statefun-publisher", daemon=True)
        self.error: StatefunError | None = None
        """Why publishing has ended, if it has."""
        self.records = 0
        """How many records were published since the start."""

    def start(self, leftovers: Leftovers) -> None:
        """Start publishing in the background, with what an earlier run has left."""
        self._retention.start(leftovers)
        self._waiting.extend(leftovers.unpublished)
        self._thread.start()

    def add(self, batch: int) -> None:
        """Take note of a batch that is about to be committed; wait while too many do.

        Raises:
            StatefunError: if publishing has failed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._waiting) < _BACKLOG or self._stop.is_set() or self.error
            )
            if self.error is not None:
                raise self.error
            self._waiting.append(batch)
            self._changed.notify_all()

    def drain(self, newest_commit: int) -> None:
        """Wait until everything up to ``newest_commit`` is published.

        Raises:
            StatefunError: if publishing has failed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.error is not None or not self._waiting or self._waiting[0] > newest_commit
                )
            )
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Stop; what is not published yet stays in the outbox."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def publish(self, batch: int) -> None:
        """Publish one committed batch.

        Raises:
            StatefunError: if an egress refuses a record.
            UndeliveredError: if stopped before everything was confirmed.
        """
        manifest = self._outbox.manifest(batch)
        if manifest is None:
            return
        used = {record.egress: None for record in self._produced(manifest)}
        for egress in used:
            self._client(egress).confirm(self._stop)
        self._retention.published(manifest)

    def _produced(self, manifest: Manifest) -> Iterator[EgressRecord]:
        """Produce the records of a batch, in order, and yield each."""
        for segment in manifest.segments:
            if not segment.egress.records:
                continue
            with self._outbox.open(manifest.batch, segment.egress) as file:
                for record in read_egress_records(file):
                    self._client(record.egress).produce(record, self._stop)
                    self.records += 1
                    yield record

    def _client(self, egress: str) -> KafkaPublisher:
        if egress not in self._clients:
            if egress not in self._egresses:
                raise CheckpointError(
                    f"the outbox holds records for egress {egress}, which module.yaml no longer "
                    "declares; declare it until they are published"
                )
            self._clients[egress] = KafkaPublisher(self._egresses[egress])
        return self._clients[egress]

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self.publish(batch)
                self._group_offsets.commit(batch)
                self._retention.committed(batch)
                with self._changed:
                    self._waiting.popleft()
                    self._changed.notify_all()
        except UndeliveredError:
            logger.info("stopped with unpublished batches; they are published at the next start")
        except StatefunError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - a thread that just ended would hang the driver
            self.error = EngineError(
                f"batch {self._waiting[0]} cannot be published: {type(error).__name__}: {error}; "
                "it is kept in the outbox"
            )
        finally:
            with self._changed:
                self._changed.notify_all()

    def _next(self) -> int | None:
        """Wait for the oldest batch that waits to be committed; None when told to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stop.is_set())
            if self._stop.is_set():
                return None
            batch = self._waiting[0]
        while not self._commit_log.has(batch):
            if self._stop.wait(self._poll):
                return None
        return batch
