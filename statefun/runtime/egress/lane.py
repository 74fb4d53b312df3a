# SPDX-License-Identifier: Apache-2.0
"""A lane: the records of some state partitions for one egress, published in order.

Records of one sender always go through the same lane. A lane does not depend on Kafka: it talks
to a cluster through the protocol :class:`Cluster`, and exactly-once rests on the order of its steps::

    open    fence the lane's former publisher, then read the lane's progress
    claim   name the lane's new owner, once all lanes of all egresses are open
    skip    leave out the records that are published already
    write   write the next records and the progress with them, both or neither
    again   from ``open`` on, as soon as an answer is missing: the request may still take effect

A driver that another driver has fenced cannot distinguish the fencing from a lost answer or from a
transaction that took too long: it opens the lane again, reads the owner, and goes on or ends.
Two drivers, on two copies of a checkpoint, may fence each other for a while. But a driver claims
only lanes that nobody else has claimed since this driver opened them. So of two drivers that have
claimed all lanes, one has opened each lane after the other's claim, and sees what is published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import Protocol, runtime_checkable

import attrs

from statefun.engine.effects import row_size
from statefun.engine.sinks import EgressRecord
from statefun.protocol.runtime_pb2 import EffectStream
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, Staged
from statefun.runtime.egress.marker import OTHER_CHECKPOINT, Marker
from statefun.runtime.rows.effect_streams import read_egress_records
from statefun.sdk.errors import CheckpointError

_NOTHING = Marker(-1, 0, b"", "", "")
"""The progress of a lane that has published nothing."""
_PORTION_BYTES = 32 * 1024 * 1024
"""The size of records, in bytes, after which a transaction ends, so that it is open only for a short time."""


class UncertainError(Exception):
    """A cluster has not confirmed whether a request took effect; the error text is the reason."""


class UndeliveredError(Exception):
    """The lane was stopped before all records were published; the next run publishes the rest."""


class Cluster(Protocol):
    """A lane's connection to its cluster; the lane closes it as soon as an answer of the cluster is missing.

    Any method may raise UncertainError; after that, only :meth:`close` is called.
    """

    def open(self) -> Marker | None:
        """Fence the lane's former publisher; return the lane's marker, or None if the lane has none."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write ``records`` in order, together with ``marker``; dead letters may replace refused records."""

    def close(self) -> None:
        """Close the connection without writing further records; unwritten records are still in the outbox."""


@runtime_checkable
class GatheringCluster(Cluster, Protocol):
    """A connection to a cluster that stores records safely, and shows them to readers only after a while.

    Records count as written when they and their marker are stored safely, even before readers see them.
    """

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Show readers the records that were gathered long enough ago.

        Args:
            is_last: whether no batch follows; then readers see all records.

        Returns:
            The time after which to call this again, even without new records; None if no record is gathered.
        """


@runtime_checkable
class NotingCluster(Cluster, Protocol):
    """A connection that notes the lane's progress also during a call of :meth:`write`."""

    @property
    def noted_marker(self) -> Marker | None:
        """The lane's progress as it is noted; None if nothing is."""


@attrs.frozen
class LaneBatch:
    """The records of one batch that a lane publishes."""

    number: int
    digest: bytes
    streams: tuple[EffectStream, ...]
    left_out: frozenset[int] = frozenset()
    """The positions of skipped records among the lane's records in the batch; the first position is 0.

    The lane leaves skipped records out, and its progress includes them as if they were published."""

    @classmethod
    def of(cls, staged: Staged, egress: str, lane: int) -> LaneBatch:
        """Return the records that a lane has in a staged batch."""
        shares = [share for share in staged.shares(egress) if share.lane == lane]
        positions: frozenset[int] = frozenset()
        if left_out := staged.left_out(egress):
            numbers = chain.from_iterable(share.numbers for share in shares)
            positions = frozenset(
                position for position, number in enumerate(numbers) if number in left_out
            )
        streams = tuple(share.stream for share in shares)
        return cls(staged.manifest.batch, staged.digest, streams, positions)

    @property
    def total(self) -> int:
        """The number of records, including skipped ones."""
        return sum(stream.records for stream in self.streams)

    def records(self, outbox: Outbox) -> Iterator[EgressRecord]:
        """Read the records from the outbox, in the same order at every attempt."""
        for stream in self.streams:
            with outbox.open(self.number, stream) as file:
                yield from read_egress_records(file)


class Lane:
    """Publishes the records of a lane, batch by batch, and retries until they are published.

    Args:
        name: the egress's name in error texts.
        run: the id of the application's run that publishes.
        checkpoint: the checkpoint with the batches.
        connect: makes a connection to the cluster.
        pause: called with the reason when an answer is missing, to wait before the next attempt;
            raises UndeliveredError to give up.
        is_late: returns whether to stop before all records are published; another lane object then
            goes on from :attr:`marker`. Called after each portion of records.
        marker: the lane's progress, from which on records count, also if the cluster has a newer one; None if it is
            not known, and records count from the cluster's.
        chunk_records: the largest number of records in a portion, which is written at once.
    """

    def __init__(  # noqa: PLR0913 - each argument is a seam for tests or for a kind of egress
        self,
        name: str,
        run: str,
        checkpoint: Folder,
        connect: Callable[[], Cluster],
        pause: Callable[[str], None],
        *,
        is_late: Callable[[], bool] = lambda: False,
        marker: Marker | None = None,
        chunk_records: int = 50_000,
    ) -> None:
        self._name = name
        self._run = run
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._connect = connect
        self._pause = pause
        self._portion_records = chunk_records
        self._cluster: Cluster | None = None
        self.handled = 0
        """The number of records that were written since the lane's progress was known first, or refused by the cluster."""
        self._first = marker
        """The progress that was known first; None before the lane is opened."""
        self._counted: int | None = None
        """How many of the present batch's records are counted, or were published before; None if that is not known yet."""
        self._is_late = is_late
        self._marker = marker
        self._owners: Container[str] | None = {run}
        """The ids of runs that may own the lane when it is opened; None if any run may."""
        self._publishers: Container[str] | None = None
        """The ids of runs that may have published through the lane; None if any run may."""

    def open(self, known_runs: Collection[str]) -> None:
        """Connect to a lane that an earlier run may own; call :meth:`claim` when all lanes are open.

        Args:
            known_runs: the ids of the runs that have published from this checkpoint.

        Raises:
            CheckpointError: if records are published that this checkpoint does not know.
            UndeliveredError: if ``pause`` gives up.
        """
        self._owners, self._publishers = None, known_runs
        self._persist(self._opened)
        # Without a marker, a first run that has not quite ended may still publish: it claims late.
        earlier_owners = [self._marker.owner] if self._marker else ["", *known_runs]
        self._owners = {self._run, *earlier_owners}

    def connect(self) -> None:
        """Connect early, so that the first batch need not wait for the connection.

        Only lanes of clusters that store no markers are connected in this way: others connect when they are
        opened.

        If the cluster does not answer yet, publishing the first batch connects again.

        Raises:
            ConfigurationError: if the egress's properties are wrong.
        """
        try:
            self._opened()
        except UncertainError:
            self.close()

    def claim(self) -> str:
        """Claim the lane, so that no other run publishes through it.

        If :meth:`open` has not read the lane's marker before, the lane must have no marker, or one of this run.

        Returns:
            The id of the run that has published last; empty if no run has published.

        Raises:
            CheckpointError: if the lane has changed since it was opened.
            UndeliveredError: if the cluster has not accepted the claim when this lane's time for attempts is over.
        """
        self._persist(self._claim)
        self._owners, self._publishers = {self._run}, None
        return self._marker.publisher if self._marker else ""

    def publish(self, batch: LaneBatch) -> None:
        """Publish the lane's records of a batch that are not published yet.

        Raises:
            CheckpointError: if another run has taken over the lane, another attempt at the batch is
                published, or batches are published that the checkpoint does not know.
            KafkaError: if the cluster refuses a record for good.
            UndeliveredError: if ``pause`` gives up.
        """
        if batch.total:
            self._counted = None
            self._persist(lambda: self._publish(batch))

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """If the cluster gathers records, show readers the records that it gathered long enough ago.

        A cluster that gathers records stores them safely at once, and shows them to readers later.

        Args:
            is_last: whether no batch follows; then readers see all records.

        Returns:
            The time after which to call this again; None if no record is gathered.

        Raises:
            CheckpointError: if another run has taken over the lane.
            UndeliveredError: if ``pause`` gives up; the gathered records are still stored safely.
        """
        later: timedelta | None = None

        def attempt() -> None:
            nonlocal later
            cluster = self._opened()
            later = cluster.tend(is_last=is_last) if isinstance(cluster, GatheringCluster) else None

        if isinstance(self._cluster, GatheringCluster):
            self._persist(attempt)
        return later

    @property
    def marker(self) -> Marker | None:
        """The lane's progress; None if it is not known, or nothing is published."""
        return self._marker

    def close(self) -> None:
        """Close the connection to the cluster, if there is one."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _persist(self, attempt: Callable[[], object]) -> None:
        """Call ``attempt`` until the cluster gives all answers; after each failure, pause and reconnect."""
        while True:
            try:
                attempt()
            except UncertainError as error:
                self.close()
                self._pause(str(error))
            except BaseException:
                self.close()
                raise
            else:
                return

    def _opened(self) -> Cluster:
        """Return the open connection to the cluster; make and open one if there is none."""
        if self._cluster is None:
            self._cluster = self._connect()
            marker = self._cluster.open() or self._marker
            self._marker = None if marker is None else self._accepted(marker)
            self._first = self._first or self._marker or _NOTHING
        return self._cluster

    def _accepted(self, marker: Marker) -> Marker:
        """Check a marker that the cluster has returned; return the marker from which this run goes on.

        Raises:
            CheckpointError: if this run must not publish through the lane.
        """
        if self._owners is not None and marker.owner not in self._owners:
            raise CheckpointError(
                f"{self._name}: another run has taken over the lanes, with this checkpoint or a copy of it. "
                f"{OTHER_CHECKPOINT}"
            )
        publishers = self._publishers
        if publishers is None:
            publishers = {marker.publisher}
        try:
            is_ours = marker.is_ours(publishers, self._commit_log, self._outbox)
        except CheckpointError as error:
            raise CheckpointError(f"{self._name}: {error.message}") from error
        # A run on a copy of the checkpoint may have published this very batch. The marker gets this
        # run's name, as later runs cannot compare the digests: the batch is deleted by then.
        return marker if is_ours else marker._replace(publisher=self._run)

    def _claim(self) -> None:
        cluster = self._opened()
        marker = (self._marker or _NOTHING)._replace(owner=self._run)
        cluster.write([], marker)
        self._marker = marker

    def _publish(self, batch: LaneBatch) -> None:
        cluster = self._opened()
        count = self._published_count(batch, self._marker)
        self._count(batch, count)
        records = islice(batch.records(self._outbox), count, None)
        for portion in _portions(records, self._portion_records):
            outgoing = [
                record
                for position, record in enumerate(portion, count)
                if position not in batch.left_out
            ]
            count += len(portion)
            marker = Marker(batch.number, count, batch.digest, self._run, self._run)
            try:
                cluster.write(outgoing, marker)
            except Exception:
                if isinstance(cluster, NotingCluster):  # the next run does not write these records
                    self._count(batch, self._published_count(batch, cluster.noted_marker))
                raise
            self._marker = marker
            self._count(batch, count)
            if count < batch.total and self._is_late():
                raise UndeliveredError

    def _count(self, batch: LaneBatch, published: int) -> None:
        """Count the records of a batch that were written since the last call, given how many are published by now.

        So records count even if only the marker shows that they were written, since the answer was missing, or since
        the result of a task was lost.
        """
        if self._counted is None:
            self._counted = self._published_count(batch, self._first)
        written = range(self._counted, published)
        self.handled += len(written) - sum(each in written for each in batch.left_out)
        self._counted = published

    def _published_count(self, batch: LaneBatch, marker: Marker | None) -> int:
        """Return how many of the lane's records in a batch are published according to a marker."""
        if marker is None or marker.batch < batch.number:
            return 0
        if marker.batch > batch.number:
            return batch.total
        if marker.digest != batch.digest:
            raise CheckpointError(
                f"{self._name}: another attempt at batch {batch.number} is published already: a copy of "
                f"this checkpoint is or was used by another run. {OTHER_CHECKPOINT}"
            )
        return marker.records


def _portions(records: Iterable[EgressRecord], limit: int) -> Iterator[list[EgressRecord]]:
    """Divide records into portions of at most ``limit`` records, and of about ``_PORTION_BYTES`` bytes."""
    portion: list[EgressRecord] = []
    size = 0
    for record in records:
        portion.append(record)
        size += row_size(record)
        if len(portion) >= limit or size >= _PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
