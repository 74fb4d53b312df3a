# SPDX-License-Identifier: Apache-2.0
"""Finds out which records a producer could not write, from the topic, key and value in the client's reports.

A callback for each record can carry the record's number. But these callbacks, which almost never have a failure to
report, and the garbage collector that examines them, take more time than all other steps of producing. So plain
records share one callback, and only after a failure are they looked for. The client's report of a failure has no
headers and no timestamp; so records that have them keep callbacks of their own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message

from statefun.engine.sinks import EgressRecord


class PlainRecords:
    """The plain records among those given to a producer: records that have only topic, key and value.

    Equal records are found in any order: nobody can distinguish them.

    >>> ada, bob = (EgressRecord("greetings", name, b"Hello", None) for name in (b"Ada", b"Bob"))
    >>> records = PlainRecords({7: ada, 8: ada, 9: bob})
    >>> records.remove(7)
    >>> records.take(Message(topic="greetings", key=b"Ada", value=b"Hello"))
    8
    """

    def __init__(self, records: Mapping[int, EgressRecord]) -> None:
        self._records = records
        self._remaining: dict[EgressRecord, deque[int]] | None = None
        """The numbers of the records that are still here; None before the first one is removed."""

    def take(self, message: Message) -> int:
        """Return the number of the first record that is equal to ``message``, and remove the record.

        Raises:
            LookupError: if there is none.
        """
        record = EgressRecord(message.topic() or "", message.key(), message.value(), None)
        numbers = self._by_content().get(record)
        if not numbers:
            raise LookupError(f"no such record for topic {record.topic} was given to the producer")
        return numbers.popleft()

    def remove(self, number: int) -> None:
        """Remove the record with a number, if it is a plain one."""
        record = self._records[number]
        if _is_plain(record):
            self._by_content()[record].remove(number)

    def _by_content(self) -> dict[EgressRecord, deque[int]]:
        if self._remaining is None:
            self._remaining = defaultdict(deque)
            for number, record in self._records.items():
                if _is_plain(record):
                    self._remaining[record].append(number)
        return self._remaining


def _is_plain(record: EgressRecord) -> bool:
    return record.headers is None and record.partition is None and record.timestamp is None


def other_arguments(record: EgressRecord) -> dict[str, Any]:
    """Return a record's headers, partition and timestamp, where they are set, as arguments of ``produce``.

    The first millisecond of 1970 becomes the second one: the client writes the present time for a timestamp of 0.
    """
    values = {
        "headers": record.headers,
        "partition": record.partition,
        "timestamp": None if record.timestamp is None else max(1, record.timestamp),
    }
    return {name: value for name, value in values.items() if value is not None}
