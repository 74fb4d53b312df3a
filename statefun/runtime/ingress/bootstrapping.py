# SPDX-License-Identifier: Apache-2.0
"""Ingresses with ``bootstrapFrom``, which are read only after other ingresses, such as those of tables.

The other ingresses are first read to the ends that they had when the run began.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.declared import REPLAYS
from statefun.runtime.ingress.starting_offsets import EARLIEST, as_number, readable_watermarks
from statefun.runtime.ingress.stopping import Offsets
from statefun.runtime.kafka.client import raising_kafka_errors

logger = logging.getLogger("statefun")

_Partition = tuple[str, str]
"""The topic and the number of a partition, as in Spark's logs."""


class Bootstrap:
    """Knows which ingresses may not be read yet, because those in their ``bootstrapFrom`` have unread records.

    Args:
        ingresses: the Kafka ingresses in the order of the query's sources.
        unread: for each ingress in a ``bootstrapFrom``, by its id: the offsets up to which its partitions must be read,
            without the partitions that are read up to there already.
    """

    def __init__(
        self, ingresses: Sequence[KafkaIngress], unread: Mapping[str, Mapping[_Partition, int]]
    ) -> None:
        self._names = [str(each.id) for each in ingresses]
        self._begins_from = {
            str(each.id): [str(name) for name in each.bootstrap_from] for each in ingresses
        }
        self._unread = {name: dict(ends) for name, ends in unread.items() if ends}
        self._seen: set[tuple[str, _Partition]] = set()
        """The ingresses and partitions that a micro-batch of this run has read, or could have read."""
        for name in self._unread:
            logger.info("%s will be read after %s", ", ".join(self._followers(name)), name)

    @classmethod
    def decide(
        cls,
        ingresses: Sequence[KafkaIngress],
        partitions: Sequence[Mapping[str, Sequence[int]]],
        starts: Sequence[Offsets],
        stops: Sequence[Offsets | None],
        timeout: timedelta,
    ) -> Bootstrap:
        """Ask the clusters for the present ends of the ingresses that others have in ``bootstrapFrom``.

        Args:
            ingresses: the Kafka ingresses in the order of the query's sources.
            partitions: their partitions, by topic.
            starts: the offsets from which they are read; -2 stands for the earliest record, -1 for the next one.
            stops: the offsets before which they stop; None for an ingress that does not.
            timeout: how long a cluster may take to answer.

        Raises:
            KafkaError: if a cluster does not return its offsets.
        """
        named = {name for each in ingresses for name in each.bootstrap_from}
        unread = {
            str(ingress.id): _unread(ingress, topics, start, stop, timeout)
            for ingress, topics, start, stop in zip(
                ingresses, partitions, starts, stops, strict=True
            )
            if ingress.id in named
        }
        return cls(ingresses, unread)

    @property
    def is_complete(self) -> bool:
        """Whether all ingresses may be read."""
        return not self._unread

    def holds(self, ingress: str) -> bool:
        """Return whether an ingress may not be read yet."""
        if ingress == str(REPLAYS):  # replays may need the rows of any table
            return not self.is_complete
        return any(name in self._unread for name in self._begins_from.get(ingress, ()))

    def waits(self) -> dict[str, list[str]]:
        """Return the ids of the declared ingresses that may not be read yet, each with the ids that it waits for."""
        waits = {
            name: [other for other in others if other in self._unread]
            for name, others in self._begins_from.items()
        }
        return {name: others for name, others in waits.items() if others}

    def look(self, read: Sequence[Offsets | None]) -> None:
        """Take note of how far the ingresses are read; partitions that were deleted meanwhile count as read.

        Args:
            read: the offsets up to which the planned micro-batches read each ingress, in the order of the ingresses;
                later micro-batches come after all of these records. If an earlier run has planned the newest
                micro-batch, partitions that were created since are missing.
        """
        for name, offsets in zip(self._names, read, strict=False):
            ends = self._unread.get(name)
            if ends is None or offsets is None:
                continue
            for partition, end in list(ends.items()):
                topic, number = partition
                offset = offsets.get(topic, {}).get(number)
                if offset is None:
                    is_read = (name, partition) in self._seen  # it was deleted
                else:
                    self._seen.add((name, partition))
                    is_read = offset >= end
                if is_read:
                    del ends[partition]
            if not ends:
                del self._unread[name]
                begun = [each for each in self._followers(name) if not self.holds(each)]
                logger.info("%s is read%s", name, f": {', '.join(begun)} begins" if begun else "")

    def _followers(self, name: str) -> list[str]:
        return [ingress for ingress, names in self._begins_from.items() if name in names]


def _unread(
    ingress: KafkaIngress,
    topics: Mapping[str, Sequence[int]],
    start: Offsets,
    stop: Offsets | None,
    timeout: timedelta,
) -> dict[_Partition, int]:
    """Return the ends of the partitions that have records between the start and the end."""
    partitions = [(topic, number) for topic, numbers in topics.items() for number in numbers]
    failure = f"{ingress.label}: its ends could not be read from {ingress.address}"
    with raising_kafka_errors(failure):
        readable = readable_watermarks(ingress, partitions, timeout)
    unread: dict[_Partition, int] = {}
    for (topic, partition), (first, end) in readable.items():
        number = str(partition)
        begin = as_number(start.get(topic, {}).get(number, EARLIEST), first, end)
        until = end if stop is None else min(end, stop.get(topic, {}).get(number, end))
        if begin < until:
            unread[topic, number] = until
    return unread
