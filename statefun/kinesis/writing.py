# SPDX-License-Identifier: Apache-2.0
"""Writes records to streams: at least once, and in the order of each partition key.

A request of Kinesis's may take some of its records and refuse others, in no order. So one request has
one record of each key, and the next record of a key follows when the one before is confirmed.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import attrs

from statefun.components.running import (
    EgressRecord,
    Marker,
    UndeliveredError,
    Writing,
)
from statefun.kinesis.aws_client import Trouble, connect, failed, trouble_of
from statefun.kinesis.connection import EgressSettings
from statefun.kinesis.outgoing import HASH_KEY

_MOST_RECORDS = 500
_MOST_BYTES = 5_000_000
"""The limits of a request: Kinesis's are 500 records and 5 MiB."""
_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=2)
_Waiting = defaultdict[tuple[str, str], deque[EgressRecord]]
"""Records that are not confirmed, by stream and partition key."""
_NOT_THERE = "ResourceNotFoundException"


def write_kinesis(writing: Writing) -> KinesisCluster:
    """Return the connection of a lane.

    Raises:
        ConfigurationError: if boto3 is not installed, or the egress's settings cannot be used.
    """
    return KinesisCluster(writing)


class KinesisCluster:
    """A connection that writes records; see :class:`~statefun.components.running.Cluster`."""

    def __init__(self, writing: Writing) -> None:
        settings: EgressSettings = writing.egress.settings
        self._writing = writing
        self._connection = settings.connection
        self._client: Any = connect(settings.connection)
        self._request_records = min(_MOST_RECORDS, settings.max_outstanding_records)
        most = max(1, settings.max_outstanding_records // _MOST_RECORDS)
        self._threads = ThreadPoolExecutor(
            min(most, settings.threads or most), f"statefun-{writing.egress.id}"
        )

    def open(self) -> None:
        """Connect with the first record; Kinesis keeps no markers of progress."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records; return when Kinesis has confirmed each of them.

        Raises:
            ConnectorError: if a stream is not there, or Kinesis refuses a request for good.
            UndeliveredError: if told to stop.
        """
        del marker
        waiting: _Waiting = defaultdict(deque)
        for record in records:
            waiting[record.topic, _key(record)].append(record)
        pause, progress = _FIRST_PAUSE.total_seconds(), time.monotonic()
        while waiting:
            before = sum(map(len, waiting.values()))
            if self._writing.should_stop(timedelta(seconds=time.monotonic() - progress)):
                raise UndeliveredError
            trouble = self._send_first(waiting)
            if sum(map(len, waiting.values())) < before:
                pause, progress = _FIRST_PAUSE.total_seconds(), time.monotonic()
            if trouble is None:
                continue
            self._writing.waits(trouble.text)
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            pause = min(pause * 2, _LONGEST_PAUSE.total_seconds())
        self._writing.went_well()

    def close(self) -> None:
        """Give up what is not written yet."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _send_first(self, waiting: _Waiting) -> Trouble | None:
        """Send the first record of each key; return a reason why some are still there."""
        trouble = None
        requests = self._requests(queue[0] for queue in waiting.values())
        answers = self._threads.map(self._put, requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Trouble):
                trouble = answer
                continue
            for record, refused in zip(request.records, answer, strict=True):
                if refused is not None:
                    trouble = refused
                    continue
                key = record.topic, _key(record)
                waiting[key].popleft()
                if not waiting[key]:
                    del waiting[key]
        return trouble

    def _requests(self, heads: Iterable[EgressRecord]) -> list[_Request]:
        """Divide records among requests, each to one stream."""
        by_stream: defaultdict[str, list[EgressRecord]] = defaultdict(list)
        for record in heads:
            by_stream[record.topic].append(record)
        return [
            _Request(stream, part)
            for stream, records in by_stream.items()
            for part in self._parts(records)
        ]

    def _parts(self, records: Sequence[EgressRecord]) -> Iterator[list[EgressRecord]]:
        part: list[EgressRecord] = []
        size = 0
        for record in records:
            added = len(record.value or b"") + len(record.key or b"")
            if part and (len(part) == self._request_records or size + added > _MOST_BYTES):
                yield part
                part, size = [], 0
            part.append(record)
            size += added
        yield part

    def _put(self, request: _Request) -> list[Trouble | None] | Trouble:
        """Send a request; return why each record was refused, or why all were."""
        entries = [_entry(record) for record in request.records]
        try:
            answer = self._client.put_records(StreamName=request.stream, Records=entries)
        except Exception as error:
            trouble = trouble_of(error)
            if trouble.passes:
                return trouble
            what = (
                f"records for stream {request.stream} are refused, and kept in the outbox (statefun "
                "outbox skips them)"
            )
            if trouble.code == _NOT_THERE:
                trouble = attrs.evolve(trouble, text="there is no such stream; create it")
            raise failed(self._connection, what, trouble) from error
        return [
            Trouble(f"{each['ErrorCode']}: {each.get('ErrorMessage', '')}", passes=True)
            if each.get("ErrorCode")
            else None
            for each in answer["Records"]
        ]


@attrs.frozen
class _Request:
    stream: str
    records: Sequence[EgressRecord]


def _key(record: EgressRecord) -> str:
    return (record.key or b"").decode()


def _entry(record: EgressRecord) -> dict[str, Any]:
    entry: dict[str, Any] = {"Data": record.value or b"", "PartitionKey": _key(record)}
    for name, value in record.headers or ():
        if name == HASH_KEY and value is not None:
            entry["ExplicitHashKey"] = value.decode()
    return entry
