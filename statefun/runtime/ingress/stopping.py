# SPDX-License-Identifier: Apache-2.0
"""Bounded runs: ingresses that stop at a position, and leave later records to later runs.

Spark's Kafka source has no stop position, and plans batches beyond it. Records after the stop position are
filtered out before they become messages. Before the next run, the offsets in Spark's log are lowered to
the stop position, so that the next run reads these records. A *stop offset* is the offset before which a run
stops in a partition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from statefun.module.model import FromDate, FromSpecificOffsets, KafkaIngress
from statefun.module.model import TopicPartition as Partition
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.checkpoint.ingress_order import STOPS, IngressOrder
from statefun.runtime.checkpoint.outbox import Outbox, has_messages
from statefun.runtime.ingress.declared import REPLAYS
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.starting_offsets import (
    EARLIEST,
    admin_client,
    as_number,
    readable_watermarks,
    reads_committed,
    warn_of_other_partitions,
)
from statefun.runtime.kafka.client import raising_kafka_errors
from statefun.runtime.kafka.cluster_offsets import dated_offsets

Offsets = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition, as in Spark's logs."""


def stops_of_last_run(checkpoint: Folder) -> dict[str, Offsets]:
    """Return the stop offsets of the last run by the ids of ingresses, without the ingresses that have none.

    Raises:
        CheckpointError: if the file with the offsets is damaged.
    """
    try:
        return dict(json.loads(read_framed(checkpoint, STOPS)))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise damaged(checkpoint, STOPS, error) from error


def rewrite_read_offsets(checkpoint: Folder) -> None:
    """Lower the offsets in Spark's log to the last run's stop offsets, so that this run leaves out no record.

    A stop offset is the offset before which a run stops in a partition; Spark may have planned further. Call
    this before any other code reads the offsets of the checkpoint.

    Args:
        checkpoint: the checkpoint; Spark's log of offsets is rewritten if the last run had stop offsets.

    Raises:
        CheckpointError: if the file with the last run's stop offsets is damaged.
    """
    stops = stops_of_last_run(checkpoint)
    if stops and not CommitLog(checkpoint).is_fresh():
        names = IngressOrder.read(checkpoint).names
        CommitLog(checkpoint).rewrite_offsets([stops.get(name) for name in names])


class Bounds:
    """Decides at which offsets the ingresses of a run stop, and checks whether all have reached them."""

    def __init__(
        self,
        checkpoint: Folder,
        commit_log: CommitLog,
        ingresses: Sequence[KafkaIngress],
        *,
        are_endless: bool = False,
    ) -> None:
        """Make an object that has no stop offsets yet; :meth:`decide` sets them.

        Args:
            checkpoint: the checkpoint into which the stop offsets are written.
            commit_log: the log that has the read offsets.
            ingresses: the Kafka ingresses in the order of the query's sources.
            are_endless: whether the application has other ingresses, which never stop.
        """
        self._are_endless = are_endless
        self._checkpoint = checkpoint
        self._commit_log = commit_log
        self._outbox = Outbox(checkpoint)
        self._ingresses = ingresses
        self._have_all = False
        self._repeated = commit_log.planned()
        """The newest micro-batch that earlier runs have planned."""
        self._starts: list[Offsets] = []
        self.stops: list[Offsets | None] = []
        """The offsets before which each ingress stops; None for an ingress that reads for ever."""

    def decide(
        self,
        partitions: Sequence[Mapping[str, Sequence[int]]],
        starts: Sequence[Offsets],
        timeout: timedelta,
    ) -> list[Offsets]:
        """Decide where each ingress stops; call :meth:`write` afterwards, before the first record is read.

        Args:
            partitions: the partitions of the ingresses, by topic.
            starts: the starting offsets of the ingresses; -2 stands for the earliest record, and -1 for the
                next record that is written.
            timeout: how long a cluster may take to answer.

        Returns:
            The starting offsets. For an ingress that stops, offsets of records replace -2 and -1: Spark
            would look up -1 later, and might begin after the stop offset.

        Raises:
            KafkaError: if a cluster does not return its offsets.
        """
        offsets = [
            _stops(ingress, topics, start, timeout)
            for ingress, topics, start in zip(self._ingresses, partitions, starts, strict=True)
        ]
        self.stops = [stops for _, stops in offsets]
        declared = [ingress for ingress in self._ingresses if ingress.id != REPLAYS]
        have_stops = all(ingress.stop_position is not None for ingress in declared)
        self._have_all = have_stops and not self._are_endless
        self._starts = [start for start, _ in offsets]
        return self._starts

    def write(self) -> None:
        """Write the stop offsets of the ingresses into the checkpoint: the next run begins at these offsets."""
        stored_stops = {
            str(ingress.id): stops
            for ingress, stops in zip(self._ingresses, self.stops, strict=True)
            if stops is not None
        }
        if stored_stops:
            write_framed(self._checkpoint, STOPS, json.dumps(stored_stops).encode())
        else:
            self._checkpoint.remove(STOPS)

    def are_reached(self) -> bool:
        """Return whether all ingresses have read up to their stops, and no message between functions waits.

        Delayed messages may still wait: later runs deliver them.
        """
        if not self._have_all:
            return False
        newest = self._commit_log.newest()
        if newest < 0:  # the first batch always runs, and the next run starts after it
            return False
        read = self._commit_log.end_offsets(newest)
        is_repeated = newest <= self._repeated
        for stops, starts, offsets in zip(self.stops, self._starts, read, strict=False):
            if not _is_reached(stops or {}, offsets or {}, starts if is_repeated else None):
                return False
        delivered = feedback_offset(self._commit_log, newest).batch
        manifests = map(self._outbox.manifest, range(delivered + 1, newest + 1))
        return not any(manifest and has_messages(manifest) for manifest in manifests)


def _stops(
    ingress: KafkaIngress,
    partitions: Mapping[str, Sequence[int]],
    starts: Offsets,
    timeout: timedelta,
) -> tuple[Offsets, Offsets | None]:
    """Return the starting offsets of an ingress as numbers, and the offsets before which it stops.

    If the ingress never stops, its starting offsets are returned unchanged, with None. Partitions that are
    created later have no offsets in the result: a bounded run does not read them.
    """
    if ingress.stop_position is None:
        return starts, None
    places = [(topic, number) for topic in partitions for number in partitions[topic]]
    start_offsets: dict[str, dict[str, int]] = {}
    stops: dict[str, dict[str, int]] = {}
    failure = f"{ingress.label}: the stop offsets could not be read from {ingress.address}"
    with raising_kafka_errors(failure):
        # In this order: a record of a date or a later one that comes meanwhile is after the end.
        readable = readable_watermarks(ingress, places, timeout)
        declared_stops = _declared_stops(ingress, places, timeout)
    for topic, number in places:
        first, end = readable[topic, number]
        start = as_number(starts.get(topic, {}).get(str(number), EARLIEST), first, end)
        stop = declared_stops.get(Partition(topic, number), end)
        start_offsets.setdefault(topic, {})[str(number)] = start
        # Not before the start: records are not read twice.
        stops.setdefault(topic, {})[str(number)] = max(start, stop)
    return start_offsets, stops


def _declared_stops(
    ingress: KafkaIngress, places: Sequence[tuple[str, int]], timeout: timedelta
) -> dict[Partition, int]:
    """Return the declared stop offsets by partition; a partition without one is read until its end."""
    match ingress.stop_position:
        case FromSpecificOffsets(offsets):
            read_partitions = {Partition(*place) for place in places}
            warn_of_other_partitions(ingress, "stopPosition", offsets, read_partitions)
            return dict(offsets)
        case FromDate(date):
            admin, committed = admin_client(ingress), reads_committed(ingress)
            dated = dated_offsets(admin, places, date, timeout, committed=committed)
            return {Partition(*place): offset for place, offset in dated.items() if offset >= 0}
        case _:
            return {}


def is_before(stops: Offsets) -> Column:
    """Return a condition: whether a record of Spark's Kafka source is before its partition's stop offset."""
    ends = F.create_map(
        *(
            F.lit(part)
            for topic, partitions in stops.items()
            for number, end in partitions.items()
            for part in (f"{topic}/{number}", end)
        )
    )
    end = F.try_element_at(ends, F.concat_ws("/", "topic", "partition"))
    return F.coalesce(F.col("offset") < end, F.lit(False))


def has_unread(newest: Offsets | None, read: Offsets | None, stops: Offsets | None) -> bool:
    """Return whether a bounded run has records left to read of an ingress.

    >>> has_unread({"users": {"0": 9}}, {"users": {"0": 7}}, None)
    True
    >>> has_unread({"users": {"0": 9}}, {"users": {"0": 7}}, {"users": {"0": 7}})
    False

    Args:
        newest: the offsets at which the run ends; None if they are not known yet.
        read: the offsets before which the records are read; None if none were planned yet.
        stops: the stop offsets of the ingress; None if it has none.
    """
    if newest is None or read is None:
        return True
    ends = {
        (topic, number): min(end, end if stops is None else stops.get(topic, {}).get(number, 0))
        for topic, partitions in newest.items()
        for number, end in partitions.items()
    }
    return any(read.get(topic, {}).get(number, end) < end for (topic, number), end in ends.items())


def _is_reached(stops: Offsets, read: Offsets, starts: Offsets | None) -> bool:
    """Return whether all records before the stop offsets were read.

    >>> new = {"users": {"0": 7, "1": 3}}
    >>> _is_reached(new, {"users": {"0": 7}}, None), _is_reached(new, {"users": {"0": 7}}, {})
    (True, True)
    >>> _is_reached(new, {"users": {"0": 7}}, {"users": {"0": 5, "1": 0}})
    False

    Args:
        stops: the stop offsets.
        read: the offsets before which the records are read; partitions that were deleted are missing.
        starts: the starting offsets if an earlier run has planned the micro-batch that was read last: it lacks
            partitions that are new. None if this run has planned it.
    """
    return all(
        read.get(topic, {}).get(number, (starts or {}).get(topic, {}).get(number, end)) >= end
        for topic, partitions in stops.items()
        for number, end in partitions.items()
    )
