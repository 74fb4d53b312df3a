# SPDX-License-Identifier: Apache-2.0
"""Writes records to streams: at least once, and in order for each partition key."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from typing import Any

import attrs

from statefun.components.running import (
    EgressRecord,
    Marker,
    UndeliveredError,
    Writing,
)
from statefun.kinesis.aws_client import Trouble, connect, connector_error, trouble_of
from statefun.kinesis.connection import EgressSettings
from statefun.kinesis.outgoing import HASH_KEY
from statefun.kinesis.sending_order import SendingOrder

_MOST_RECORDS = 500
_MOST_BYTES = 5_000_000
"""The limits of a request; Kinesis allows 500 records and 5 MiB."""
_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=2)
_MOMENT = timedelta(milliseconds=20)
"""How often to check whether to stop, and whether refused records may be sent again."""
_NOT_THERE = "ResourceNotFoundException"


def write_kinesis(writing: Writing) -> KinesisCluster:
    """Return the connection of a lane.

    Raises:
        ConfigurationError: if boto3 is not installed, or the egress's settings cannot be used.
    """
    return KinesisCluster(writing)


class KinesisCluster:
    """The connection of a lane to Kinesis; see :class:`~statefun.components.running.Cluster`."""

    def __init__(self, writing: Writing) -> None:
        settings: EgressSettings = writing.egress.settings
        self._writing = writing
        self._connection = settings.connection
        self._client: Any = connect(settings.connection)
        self._most = settings.max_outstanding_records
        most = max(1, self._most // _MOST_RECORDS)
        self._requests = min(most, settings.threads or most)
        """How many requests may run at once."""
        self._threads = ThreadPoolExecutor(self._requests, f"statefun-{writing.egress.id}")

    def open(self) -> None:
        """Do nothing: Kinesis keeps no markers of progress, and the first request connects."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records; return when Kinesis has confirmed each of them.

        Raises:
            ConnectorError: if a stream does not exist, or Kinesis refuses a request for good.
            UndeliveredError: if the lane is to stop.
        """
        del marker
        order, backoff, requests = SendingOrder(records), _Backoff(), set[_Request]()
        reported_count = 0
        try:
            while not order.is_done:
                if self._writing.should_stop(backoff.stalled):
                    raise UndeliveredError
                for position in backoff.take_ready():
                    order.send_again(position)
                self._send(order, requests)
                self._take(order, backoff, requests)
                if order.confirmed >= reported_count + self._most:
                    reported_count = order.confirmed
                    self._writing.has_written(reported_count)
        except BaseException:
            try:
                while (
                    requests
                ):  # Kinesis may still write their records, and the checkpoint has to know
                    with suppress(Exception):  # another exception is being raised
                        self._take(order, backoff, requests)
            finally:
                self._writing.has_written(order.confirmed)
            raise

    def close(self) -> None:
        """Give up records that are not written yet."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _send(self, order: SendingOrder, requests: set[_Request]) -> None:
        """Send the records that may be sent now."""
        free = self._most - sum(len(request.positions) for request in requests)
        while free and len(requests) < self._requests:
            positions = order.next_request(min(free, _MOST_RECORDS), _MOST_BYTES)
            if not positions:
                return
            records = [order.records[position] for position in positions]
            requests.add(_Request(positions, self._threads.submit(self._put, records)))
            free -= len(positions)

    def _take(self, order: SendingOrder, backoff: _Backoff, requests: set[_Request]) -> None:
        """Handle the answers that have come; wait a moment if there are none.

        Raises:
            ConnectorError: if another attempt would be in vain.
        """
        if not requests:
            time.sleep(_MOMENT.total_seconds())
        wait([request.answer for request in requests], _MOMENT.total_seconds(), FIRST_COMPLETED)
        for request in [request for request in requests if request.answer.done()]:
            requests.discard(request)
            trouble = None
            for position, refusal in zip(request.positions, request.answer.result(), strict=True):
                if refusal is None:
                    order.confirm(position)
                    backoff.end()
                else:
                    trouble = refusal
                    backoff.positions.append(position)
            if trouble is None:
                self._writing.went_well()
            else:
                self._writing.waits(trouble.text)
                backoff.begin()

    def _put(self, records: Sequence[EgressRecord]) -> Sequence[Trouble | None]:
        """Send records of one stream; return why Kinesis has refused each record, or None if it has not.

        Raises:
            ConnectorError: if another attempt would be in vain.
        """
        stream, entries = records[0].topic, [_entry(record) for record in records]
        try:
            answer = self._client.put_records(StreamName=stream, Records=entries)
        except Exception as error:
            trouble = trouble_of(error)
            if trouble.passes:
                return [trouble] * len(records)
            what = (
                f"records for stream {stream} are refused, and kept in the outbox (statefun outbox "
                "skips them)"
            )
            if trouble.code == _NOT_THERE:
                trouble = attrs.evolve(trouble, text="there is no such stream; create it")
            raise connector_error(self._connection, what, trouble) from error
        results = answer["Records"]
        if len(results) != len(records):
            text = f"a request with {len(records)} records has an answer for {len(results)} records"
            return [Trouble(text, passes=True)] * len(records)
        return [
            Trouble(f"{each['ErrorCode']}: {each.get('ErrorMessage', '')}", passes=True)
            if each.get("ErrorCode")
            else None
            for each in results
        ]


@attrs.frozen(eq=False)
class _Request:
    positions: Sequence[int]
    answer: Future[Sequence[Trouble | None]]


class _Backoff:
    """Makes refused records wait: longer and longer, until a record is confirmed."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        """The positions of refused records that wait."""
        self._pause = _FIRST_PAUSE
        self._until = self._progress = time.monotonic()

    @property
    def stalled(self) -> timedelta:
        """The time without progress."""
        return timedelta(seconds=time.monotonic() - self._progress)

    def begin(self) -> None:
        """Let the refused records wait from now on."""
        jitter = random.uniform(0.5, 1.5)  # noqa: S311 - jitter is no secret
        self._until = time.monotonic() + self._pause.total_seconds() * jitter
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def end(self) -> None:
        """Make the next wait short again: a record is confirmed."""
        self._pause, self._progress = _FIRST_PAUSE, time.monotonic()

    def take_ready(self) -> list[int]:
        """Return the positions of refused records that have waited for long enough."""
        if time.monotonic() < self._until:
            return []
        positions, self.positions = self.positions, []
        return positions


def _entry(record: EgressRecord) -> dict[str, Any]:
    key = (record.key or b"").decode()
    entry: dict[str, Any] = {"Data": record.value or b"", "PartitionKey": key}
    for name, value in record.headers or ():
        if name == HASH_KEY and value is not None:
            entry["ExplicitHashKey"] = value.decode()
    return entry
