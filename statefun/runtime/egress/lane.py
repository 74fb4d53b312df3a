# SPDX-License-Identifier: Apache-2.0
"""A lane: the records of some state partitions for one egress, published in order.

Records of one sender always travel in the same lane. A lane knows no Kafka: it talks to a
cluster through the protocol :class:`Cluster`, and exactly-once rests on the order of its steps::

    open    fence the lane's former publisher, then read the lane's progress
    claim   name the lane's new owner, once all lanes of all egresses are open
    skip    the records that were published
    write   the next records and the progress that they make, both or neither
    again   from ``open`` on, as soon as an answer is missing: the request may still take effect

A driver that is fenced by another one cannot distinguish that from a lost answer or from a
transaction that took too long: it opens the lane again, finds its owner, and goes on or ends.
Two drivers, on two copies of a checkpoint, may fence each other for a while. But a claim is only
made on lanes that nobody else has claimed since they were opened; so of two drivers that have
claimed all lanes, one has opened each of them after the other's claim, and sees what is published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

import attrs

from statefun.engine.effects import row_size
from statefun.engine.sinks import EgressRecord
from statefun.protocol.runtime_pb2 import EffectStream
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, Staged
from statefun.runtime.rows.effect_streams import read_egress_records
from statefun.sdk.errors import CheckpointError

_CHUNK_BYTES = 32 * 1024 * 1024
"""Bytes after which a transaction ends, so that it is open for a short time only."""
_ADVICE = "Go on with that one, or start anew with a checkpoint of another name"


class UncertainError(Exception):
    """A cluster has not confirmed whether a request took effect; the text is the reason."""


class UndeliveredError(Exception):
    """The lane was stopped before everything was published; the next run publishes the rest."""


class Marker(NamedTuple):
    """The progress of a lane, and its owner."""

    batch: int
    """The last published batch; -1 if nothing is published."""
    records: int
    """The number of the lane's records that are published from that batch."""
    digest: bytes
    """The digest of the batch's manifest."""
    publisher: str
    """The run that has published the batch."""
    owner: str
    """The run that the lane belongs to."""

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Marker:
        """Return the marker of a value that :meth:`to_json` has returned.

        >>> marker = Marker(7, 0, b"digest", "this run", "this run")
        >>> Marker.of_json(marker.to_json()) == marker
        True
        """
        return cls(**{**content, "digest": bytes.fromhex(content["digest"])})

    def to_json(self) -> dict[str, Any]:
        """Return the marker as values that JSON has."""
        return {**self._asdict(), "digest": self.digest.hex()}


class Cluster(Protocol):
    """A lane's connection to its cluster, usable until the first missing answer.

    Any method may raise UncertainError; after that only :meth:`close` is called.
    """

    def open(self) -> Marker | None:
        """Fence the lane's former publisher; return the lane's progress, or None if it has none."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write ``records`` in order, or their replacements, together with ``marker``."""

    def close(self) -> None:
        """Give up all records that are not written yet."""


@runtime_checkable
class GatheringCluster(Cluster, Protocol):
    """A cluster that keeps records safely for a while before readers see them.

    Records count as written when they and their marker are safe, seen or not.
    """

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Show the records that were kept for long enough, or all if no batch may follow.

        Returns:
            The time after which to call this again, even without new records; None if nothing is kept.
        """


@attrs.frozen
class LaneBatch:
    """A lane's records of a batch."""

    number: int
    digest: bytes
    streams: tuple[EffectStream, ...]
    left_out: frozenset[int] = frozenset()
    """The positions of records that are left out; they count as written."""

    @classmethod
    def of(cls, staged: Staged, egress: str, lane: int) -> LaneBatch:
        """Take a lane's share of a batch."""
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
        """The number of records."""
        return sum(stream.records for stream in self.streams)

    def records(self, outbox: Outbox) -> Iterator[EgressRecord]:
        """Read the records, in order: the same at every attempt."""
        for stream in self.streams:
            with outbox.open(self.number, stream) as file:
                yield from read_egress_records(file)


class Lane:
    """Publishes batches to one egress, one after the other.

    Args:
        name: the name in messages.
        run: the id of the application's run that publishes.
        checkpoint: the checkpoint with the batches.
        connect: makes a connection to the cluster.
        pause: called with the reason when an answer is missing, to wait before the next attempt;
            raises UndeliveredError to give up.
        is_late: returns whether to leave the remaining records to another lane, which goes on from
            :attr:`marker`; called after each chunk.
        marker: the lane's progress, if known.
        chunk_records: how many records are written at a time.
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
        self._chunk_records = chunk_records
        self._cluster: Cluster | None = None
        self._is_late = is_late
        self._marker = marker
        self._owners: Container[str] | None = {run}
        """The runs that may own the lane when it is opened; None for any run."""
        self._publishers: Container[str] | None = None
        """The runs that may have published; None for any run that an owner has accepted."""

    def open(self, known_runs: Collection[str]) -> None:
        """Connect to a lane that an earlier run may have had; :meth:`claim` it when all are open.

        Args:
            known_runs: the runs that have published from this checkpoint.

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
        """Connect to a cluster without markers, so that the first batch does not wait for that.

        A cluster that does not answer yet is no error: the first batch tries again.

        Raises:
            ConfigurationError: if the egress's properties are wrong.
        """
        try:
            self._opened()
        except UncertainError:
            self.close()

    def claim(self) -> str:
        """Claim the lane, so that no other run publishes; return the run that has published last.

        The answer is empty if no run has published. A lane that was not opened before must be new,
        or belong to this run.

        Raises:
            CheckpointError: if the lane has changed since it was opened.
            UndeliveredError: if ``pause`` gives up.
        """
        self._persist(self._claim)
        self._owners, self._publishers = {self._run}, None
        return self._marker.publisher if self._marker else ""

    def publish(self, batch: LaneBatch) -> None:
        """Publish a batch, or its remaining records.

        Raises:
            CheckpointError: if another run has taken over, another attempt at the batch is
                published, or batches are published that the checkpoint does not know.
            KafkaError: if the cluster refuses a record for good.
            UndeliveredError: if ``pause`` gives up.
        """
        if batch.total:
            self._persist(lambda: self._publish(batch))

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """Let the cluster show readers the records that it keeps, if it keeps any.

        Args:
            is_last: whether no batch follows; then readers are shown all records.

        Returns:
            The time after which to call this again; None if nothing is kept.

        Raises:
            CheckpointError: if another run has taken over.
            UndeliveredError: if ``pause`` gives up; the cluster still keeps the records.
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
        """The lane's progress, if known."""
        return self._marker

    def close(self) -> None:
        """Disconnect."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _persist(self, attempt: Callable[[], object]) -> None:
        """Call ``attempt`` until it gets all answers; pause, and reconnect, after each failure."""
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
        """Return the connection; make and open it if there is none."""
        if self._cluster is None:
            self._cluster = self._connect()
            marker = self._cluster.open() or self._marker
            self._marker = None if marker is None else self._accepted(marker)
        return self._cluster

    def _accepted(self, marker: Marker) -> Marker:
        """Return the marker from which the lane goes on.

        Raises:
            CheckpointError: if this run must not publish in the lane.
        """
        newest = self._commit_log.newest()
        if self._owners is not None and marker.owner not in self._owners:
            raise CheckpointError(
                f"{self._name}: another run has taken over, with this checkpoint or a copy of it. "
                f"{_ADVICE}"
            )
        if marker.batch > newest:
            raise CheckpointError(
                f"{self._name}: batch {marker.batch} is published, but the checkpoint's newest is "
                f"{newest}: it is an older copy of another one, or was copied while its "
                f"application ran. {_ADVICE}"
            )
        if not marker.publisher or self._publishers is None or marker.publisher in self._publishers:
            return marker
        staged = self._outbox.staged(marker.batch)
        if staged is not None and staged.digest == marker.digest:
            # A run on a copy of the checkpoint has published this very batch. The marker gets this
            # run's name, as later runs cannot compare the digests: the batch is deleted by then.
            return marker._replace(publisher=self._run)
        raise CheckpointError(
            f"{self._name}: batch {marker.batch} was published with a copy of this checkpoint, "
            f"and is not this checkpoint's batch {marker.batch}. {_ADVICE}"
        )

    def _claim(self) -> None:
        cluster = self._opened()
        marker = self._marker or Marker(-1, 0, b"", "", "")
        marker = marker._replace(owner=self._run)
        cluster.write([], marker)
        self._marker = marker

    def _publish(self, batch: LaneBatch) -> None:
        cluster = self._opened()
        count = self._published_count(batch)
        records = islice(batch.records(self._outbox), count, None)
        for chunk in _chunks(records, self._chunk_records):
            outgoing = [
                record
                for position, record in enumerate(chunk, count)
                if position not in batch.left_out
            ]
            count += len(chunk)
            marker = Marker(batch.number, count, batch.digest, self._run, self._run)
            cluster.write(outgoing, marker)
            self._marker = marker
            if count < batch.total and self._is_late():
                raise UndeliveredError

    def _published_count(self, batch: LaneBatch) -> int:
        """Return how many of the batch's records are published."""
        marker = self._marker
        if marker is None or marker.batch < batch.number:
            return 0
        if marker.batch > batch.number:
            return batch.total
        if marker.digest != batch.digest:
            raise CheckpointError(
                f"{self._name}: another attempt at batch {batch.number} is published: a copy of "
                f"this checkpoint is or was in use. {_ADVICE}"
            )
        return marker.records


def _chunks(records: Iterable[EgressRecord], limit: int) -> Iterator[list[EgressRecord]]:
    """Divide records into chunks of at most ``limit`` records, and of about ``_CHUNK_BYTES``."""
    chunk: list[EgressRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += row_size(record)
        if len(chunk) >= limit or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
