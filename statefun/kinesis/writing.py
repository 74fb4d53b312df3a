# SPDX-License-Identifier: Apache-2.0
"""Writes the records of an egress to Kinesis: at least once, and in order for each partition key."""

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
from statefun.kinesis.aws_client import RequestFailure, connect, connector_error, trouble_of
from statefun.kinesis.connection import EgressSettings
from statefun.kinesis.outgoing import HASH_KEY
from statefun.kinesis.sending_order import SendingOrder

_MOST_RECORDS = 500
_MOST_BYTES = 5_000_000
"""How many records and bytes a request has at most; Kinesis allows 500 records and 5 MiB."""
_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=2)
_MOMENT = timedelta(milliseconds=20)
"""How often to check whether the lane must stop, and whether to send failed records again."""
_NOT_THERE = "ResourceNotFoundException"


def write_kinesis(writing: Writing) -> KinesisCluster:
    """Return a new connection to Kinesis for a lane of an egress.

    Raises:
        ConfigurationError: if boto3 is not installed, or does not accept the settings.
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
        """How many requests to Kinesis may run at once."""
        self._threads = ThreadPoolExecutor(self._requests, f"statefun-{writing.egress.id}")

    def open(self) -> None:
        """Do nothing: Kinesis stores no markers, and the first request opens the connection."""

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records to their streams; return once Kinesis has confirmed all of them.

        Raises:
            ConnectorError: if a stream does not exist, or a request fails for a reason that is not
                temporary.
            UndeliveredError: if the lane must stop before all records are confirmed.
        """
        del marker
        order, backoff, requests = SendingOrder(records), _Backoff(), set[_Request]()
        reported_count = 0
        try:
            while not order.is_done:
                if self._writing.should_stop(backoff.stalled):
                    raise UndeliveredError
                for position in backoff.pop_ready():
                    order.enqueue(position)
                self._send(order, requests)
                self._handle_answers(order, backoff, requests)
                if order.confirmed >= reported_count + self._most:
                    reported_count = order.confirmed
                    self._writing.has_written(reported_count)
        except BaseException:
            try:
                # Kinesis may still write the records of these requests: wait, and report how many are. Report at once
                # and after each answer, because the process may be killed before the last one.
                while requests:
                    with suppress(Exception):  # another exception is being raised
                        self._handle_answers(order, backoff, requests)
                        self._writing.has_written(order.confirmed)
            finally:
                self._writing.has_written(order.confirmed)
            raise

    def close(self) -> None:
        """Close the connection; requests that have not begun are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _send(self, order: SendingOrder, requests: set[_Request]) -> None:
        """Start requests with the records that may be sent now, as far as the limits allow."""
        free = self._most - sum(len(request.positions) for request in requests)
        while free and len(requests) < self._requests:
            positions = order.next_request(min(free, _MOST_RECORDS), _MOST_BYTES)
            if not positions:
                return
            records = [order.records[position] for position in positions]
            requests.add(_Request(positions, self._threads.submit(self._put, records)))
            free -= len(positions)

    def _handle_answers(
        self, order: SendingOrder, backoff: _Backoff, requests: set[_Request]
    ) -> None:
        """Wait a moment for answers, and mark the records of each answer as confirmed or as failed.

        Raises:
            ConnectorError: if a request has failed, and the reason is not temporary.
        """
        if not requests:
            time.sleep(_MOMENT.total_seconds())
        wait([request.answer for request in requests], _MOMENT.total_seconds(), FIRST_COMPLETED)
        for request in [request for request in requests if request.answer.done()]:
            requests.discard(request)
            trouble = None
            for position, failure in zip(request.positions, request.answer.result(), strict=True):
                if failure is None:
                    order.confirm(position)
                    backoff.reset()
                else:
                    trouble = failure
                    backoff.positions.append(position)
            if trouble is None:
                self._writing.went_well()
            else:
                self._writing.waits(trouble.text)
                backoff.begin()

    def _put(self, records: Sequence[EgressRecord]) -> Sequence[RequestFailure | None]:
        """Send records of one stream in one request; return for each record why it was not written, or None.

        Raises:
            ConnectorError: if the request fails, and the reason is not temporary.
        """
        stream, entries = records[0].topic, [_entry(record) for record in records]
        try:
            answer = self._client.put_records(StreamName=stream, Records=entries)
        except Exception as error:
            trouble = trouble_of(error)
            if trouble.is_temporary:
                return [trouble] * len(records)
            what = (
                f"records for stream {stream} wait in the outbox (skip them with 'statefun outbox skip'), "
                "because Kinesis refuses them"
            )
            if trouble.code == _NOT_THERE:
                trouble = attrs.evolve(trouble, text="the stream does not exist; create it")
            raise connector_error(self._connection, what, trouble) from error
        results = answer["Records"]
        if len(results) != len(records):
            text = f"Kinesis has answered a request with {len(records)} records for {len(results)} records"
            return [RequestFailure(text, is_temporary=True)] * len(records)
        return [
            RequestFailure(
                f"{each['ErrorCode']}: {each.get('ErrorMessage', '')}", is_temporary=True
            )
            if each.get("ErrorCode")
            else None
            for each in results
        ]


@attrs.frozen(eq=False)
class _Request:
    positions: Sequence[int]
    answer: Future[Sequence[RequestFailure | None]]


class _Backoff:
    """Keeps records that Kinesis did not write until they are sent again.

    The pause grows with each failure; it is short again after a record is confirmed.
    """

    def __init__(self) -> None:
        self.positions: list[int] = []
        """The positions of the records that wait to be sent again."""
        self._pause = _FIRST_PAUSE
        self._until = self._progress = time.monotonic()

    @property
    def stalled(self) -> timedelta:
        """The time since Kinesis last confirmed a record; if it has confirmed none, since the start."""
        return timedelta(seconds=time.monotonic() - self._progress)

    def begin(self) -> None:
        """Begin a pause for the records in ``positions``, longer than the pause before."""
        jitter = random.uniform(0.5, 1.5)  # noqa: S311 - jitter is no secret
        self._until = time.monotonic() + self._pause.total_seconds() * jitter
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def reset(self) -> None:
        """Make the next pause short again, because Kinesis has confirmed a record."""
        self._pause, self._progress = _FIRST_PAUSE, time.monotonic()

    def pop_ready(self) -> list[int]:
        """Remove the records from ``positions`` and return them, if their pause is over."""
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
