# SPDX-License-Identifier: Apache-2.0
"""The counts of an application since its process began, across its runs: for the admin API and its metrics."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

import attrs

from statefun.engine.tallies import BOUNDS
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.ingress.stopping import Offsets
from statefun.runtime.reporting.counted_names import CountedNames
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.spark_internals.query_progress import BatchTimes

_KEPT_BATCHES = 300
"""How many micro-batches are kept."""
_MOST_PROBLEMS = 200
"""How many kinds of failures are kept; the oldest one leaves for a new one."""
_WINDOW_SECONDS = 10
"""The period over which rates are averaged."""


@attrs.define
class Durations:
    """A histogram of durations."""

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(BOUNDS) + 1))
    """How many durations are between each bound and the one before it, and how many are above the last bound."""
    seconds: float = 0.0
    """All durations together."""

    def add(self, counts: Sequence[int], seconds: float) -> None:
        """Add durations, given as their numbers between the bounds (``counts``) and as their sum (``seconds``)."""
        self.counts = [sum(pair) for pair in zip(self.counts, counts, strict=True)]
        self.seconds += seconds


@attrs.define
class FunctionFigures:
    """The counts of one function."""

    invocations: int = 0
    durations: Durations = attrs.field(factory=Durations)
    messages: Counter[str] = attrs.field(factory=Counter)
    """The number of messages that the function has sent, by the typename of the target."""
    records: Counter[str] = attrs.field(factory=Counter)
    """The number of records that the function has sent, by the id of the egress."""
    failures: Counter[str] = attrs.field(factory=Counter)
    """How often messages have failed, by the code of the error."""
    retries: int = 0


@attrs.define
class FailureFigures:
    """The count of the failures of one kind, with an example."""

    kind: str
    """The function, the exception and the line of code."""
    what: str
    """What has become of the messages."""
    text: str
    """The newest text about one of them."""
    count: int
    last: float
    """When the newest one was reported, in seconds since the epoch."""


@attrs.frozen
class PartitionFigures:
    """How far a partition of a topic is read."""

    ingress: str
    topic: str
    partition: str
    group: str
    """The consumer group; empty if there is none."""
    read: int
    """The offset of the next record to read."""
    lag: int
    first: int
    """The offset at which this process began to read."""


@attrs.frozen
class EgressFigures:
    """The counts of one egress."""

    records: int = 0
    waiting_records: int = 0
    waiting_batches: int = 0


@attrs.frozen
class _Sample:
    time: float
    read: int
    published: int


class Figures:
    """The figures of an application; any thread may read and write them.

    Args:
        declared: the typenames of the functions that are counted as they are, however many others are called.
    """

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self.began = time.time()
        """When the process began to run the application, in seconds since the epoch."""
        self.functions: dict[str, FunctionFigures] = {}
        """By typename; those beyond the first ones of a namespace together, as ``namespace/*``."""
        self.problems: dict[tuple[str, str], FailureFigures] = {}
        """Failures by kind, and by what has become of the messages; those with the newest failure are last."""
        self.batches: deque[BatchTimes] = deque(maxlen=_KEPT_BATCHES)
        """Micro-batches that have ended, oldest first: one for each second at most."""
        self.partitions: Sequence[PartitionFigures] = ()
        self.egresses: dict[str, EgressFigures] = {}
        self.published: Counter[str] = Counter()
        """The number of records that were published in this process, by the id of their egress."""
        self.connectors: dict[str, int] = {}
        """The number of records that each ingress of a connector has read in this process, by its id."""
        self.summary = Summary()
        """The counts of the present run."""
        self.committed_at = self.began
        """When the newest micro-batch was committed, in seconds since the epoch; before the first one, the start."""
        self.heap: tuple[int, int] = (0, 0)
        """The used and the largest size of the JVM's heap, in bytes; zero if not known."""
        self.waits: Mapping[str, Sequence[str]] = {}
        """The ids of the ingresses that are not read yet, each with those that are read before it."""
        self.is_up = False
        """Whether the query of the present run goes on."""
        self.lock = threading.Lock()
        """Must be held to read or change what is not replaced as a whole."""
        self._names = CountedNames(declared)
        self._first: dict[str, dict[tuple[str, str], int]] = {}
        """The offsets at which this process began to read, by ingress, and by topic and partition."""
        self._samples: deque[_Sample] = deque([_Sample(time.monotonic(), 0, 0)])
        self._newest = -1

    def staged(self, outcomes: Sequence[Outcome]) -> None:
        """Add the counts that the tasks of a staged micro-batch have reported."""
        with self.lock:
            for outcome in outcomes:
                for counts in outcome.functions:
                    name = self._names.function(counts.typename)
                    figures = self.functions.setdefault(name, FunctionFigures())
                    figures.invocations += counts.invocations
                    figures.durations.add(counts.durations, counts.seconds)
                    for target, count in counts.messages.items():
                        figures.messages[self._names.target(name, target)] += count
                    figures.records.update(counts.records)
                for failed in outcome.failed:
                    name = self._names.function(failed.typename)
                    figures = self.functions.setdefault(name, FunctionFigures())
                    figures.failures[failed.code] += failed.count
                    figures.retries += failed.count if failed.retried else 0
                for example in outcome.examples:
                    self._note(example)

    def _note(self, example: Outcome.Example) -> None:
        key = example.kind, example.what
        known = self.problems.pop(key, None)
        count = example.count + (0 if known is None else known.count)
        self.problems[key] = FailureFigures(*key, example.text, count, time.time())
        if len(self.problems) > _MOST_PROBLEMS:
            del self.problems[next(iter(self.problems))]

    def ended(self, times: BatchTimes) -> None:
        """Add a micro-batch that has ended, unless it is the last one that was added."""
        with self.lock:
            if not self.batches or self.batches[-1].batch != times.batch:
                self.batches.append(times)

    def committed(self, newest: int) -> None:
        """Set the newest committed micro-batch."""
        if newest > self._newest:
            self._newest, self.committed_at = newest, time.time()

    def first_offset(self, ingress: str, topic: str, partition: str, start: int) -> int:
        """Return the offset at which this process began to read a partition.

        Args:
            ingress: the id of the ingress.
            topic: the topic; empty for an ingress of a connector, which has one number of records.
            partition: the number of the partition; empty for an ingress of a connector.
            start: the offset, if the partition is a new one.
        """
        return self._first.setdefault(ingress, {}).setdefault((topic, partition), start)

    def knows(self, ingress: str, topic: str, partition: str) -> bool:
        """Return whether :meth:`first_offset` was called for a partition."""
        return (topic, partition) in self._first.get(ingress, ())

    def forget_others(self, ingress: str, *present: Offsets) -> None:
        """Forget all partitions of an ingress of Kafka that are in none of some offsets: topics may come and go."""
        first = self._first.get(ingress, {})
        for topic, partition in [*first]:
            if not any(partition in offsets.get(topic, ()) for offsets in present):
                del first[topic, partition]

    def count_published(self, waiting: Mapping[str, tuple[int, int]]) -> None:
        """Update the counts of the egresses.

        Args:
            waiting: how many committed micro-batches, and how many of their records, wait for each egress.
        """
        self.egresses = {
            name: EgressFigures(self.published[name], records, batches)
            for name, (batches, records) in waiting.items()
        }

    def look(self) -> None:
        """Take a sample for the rates; must be called about once a second."""
        read = sum(each.read - each.first for each in self.partitions)
        published = sum(each.records for each in self.egresses.values())
        sample = _Sample(time.monotonic(), read + sum(self.connectors.values()), published)
        with self.lock:
            self._samples.append(sample)
            while sample.time - self._samples[1].time > _WINDOW_SECONDS:
                self._samples.popleft()

    def rates(self) -> tuple[float, float]:
        """Return how many records were read, and how many were published, per second, over the last few seconds."""
        with self.lock:
            first, last = self._samples[0], self._samples[-1]
        seconds = max(last.time - first.time, 1.0)
        # The records of a partition that is gone are in the first sample alone.
        read = max(last.read - first.read, 0)
        return read / seconds, (last.published - first.published) / seconds
