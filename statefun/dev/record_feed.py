# SPDX-License-Identifier: Apache-2.0
"""Prints the records of all topics of a broker as they are written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from types import TracebackType
from typing import final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from statefun.dev.dev_topics import ADMIN_TIMEOUT, OWNER, list_topics
from statefun.dev.records import PlacedRecord
from statefun.runtime.kafka.client import connect
from statefun.sdk.printable import printable

_POLL = timedelta(milliseconds=100)
_NEW_TOPICS = timedelta(seconds=1)
"""The time between two looks for new topics."""
_LONGEST = 300
"""The largest number of characters of a key or value that are shown."""


@final
class RecordFeed:
    """Prints a line for each record that is written during the ``with`` block, in a thread.

    Topics whose names begin with two underscores are left out.

    Args:
        address: host and port of a broker.
        show: prints a line.
        all_topics: whether to show the records of all topics; otherwise only those of :attr:`inputs`.

    Raises:
        KafkaError: if no broker answers.
    """

    def __init__(
        self, address: str, show: Callable[[str], None], *, all_topics: bool = True
    ) -> None:
        self.inputs: Collection[str] = ()
        """The topics that ingresses read: the lines of their records begin with ``in``, all others with ``out``."""
        self._address = address
        self._show = show
        self._all_topics = all_topics
        topics = list_topics(address) if all_topics else []
        self._ends = {
            (topic.name, number): end
            for topic in topics
            for number, (_, end) in enumerate(topic.offsets)
        }
        """The end offsets of the partitions that there were at the start: earlier records are not shown."""
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records")

    def __enter__(self) -> RecordFeed:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        settings = {
            "bootstrap.servers": self._address,
            "group.id": "statefun-dev",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        consumer: Consumer = connect(Consumer, OWNER, settings)
        assigned: set[tuple[str, int]] = set()
        next_look = 0.0
        while not self._stops.is_set():
            if time.monotonic() >= next_look:
                self._assign_new(consumer, assigned)
                next_look = time.monotonic() + _NEW_TOPICS.total_seconds()
            record = consumer.poll(_POLL.total_seconds())
            if record is not None and record.error() is None:
                self._show(self._line(record.topic() or "", PlacedRecord.of(record)))
        consumer.close()

    def _assign_new(self, consumer: Consumer, assigned: set[tuple[str, int]]) -> None:
        """Let the consumer also read the partitions that it does not read yet."""
        try:
            topics = consumer.list_topics(timeout=ADMIN_TIMEOUT.total_seconds()).topics
        except KafkaException:
            return  # the broker is away; the next look may find it
        present = {
            (name, number)
            for name, topic in topics.items()
            if not name.startswith("__") and (self._all_topics or name in self.inputs)
            for number in topic.partitions
        }
        new = sorted(present - assigned)
        if new:
            otherwise = OFFSET_BEGINNING if self._all_topics else OFFSET_END
            consumer.incremental_assign(
                [TopicPartition(*place, self._ends.get(place, otherwise)) for place in new]
            )
            assigned |= present

    def _line(self, topic: str, record: PlacedRecord) -> str:
        direction = "in " if topic in self.inputs else "out"
        return f"{direction} {topic}  {_text(record.key)}  {_text(record.value)}"


def _text(content: bytes | None) -> str:
    return (
        "-" if content is None else printable(content.decode(errors="backslashreplace"), _LONGEST)
    )
