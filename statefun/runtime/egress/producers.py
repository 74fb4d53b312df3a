# SPDX-License-Identifier: Apache-2.0
"""Writes records to Kafka, so that the cluster confirms them: at least once, or exactly once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from statefun.engine.sinks import EgressRecord
from statefun.module.model import KafkaEgress
from statefun.runtime.egress.lane import UncertainError, UndeliveredError
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.patience import Patience
from statefun.runtime.egress.produced import PlainRecords, other_arguments
from statefun.runtime.egress.progress_topic import ProgressTopic
from statefun.runtime.egress.refusals import Refusals, Refused, numbered
from statefun.runtime.kafka.client import connect, reason_of
from statefun.runtime.kafka.refusal_codes import OF_CLIENTS, OF_RECORDS
from statefun.sdk.bounded_map import MOST_NAMES
from statefun.sdk.errors import KafkaError
from statefun.sdk.times import in_milliseconds

_POLL = timedelta(milliseconds=500)
_TRANSACTION_CALL = timedelta(seconds=30)
"""How long to wait for the answer to a request that begins, commits or aborts a transaction."""
_ANSWER = timedelta(seconds=60)
"""How long to wait for the answer to a request before the connection counts as dead. librdkafka has the same time
for other producers; for a transactional one, that of a transaction: fifteen minutes."""
_LESS_THAN_TRANSACTION = timedelta(milliseconds=100)
"""By how much librdkafka requires the time for an answer to be shorter than that of a transaction."""
_PROPAGATION = timedelta(seconds=5)
"""How long a producer waits for a topic that a broker does not know yet, since the topic may be new."""

ShouldStop = Callable[[timedelta], bool]
"""Returns whether to stop publishing; its argument is the time without progress so far."""


class AtLeastOnce:
    """A connection that waits until the cluster confirms all records; a crash may repeat some records."""

    _lane = 0

    def __init__(
        self,
        egress: KafkaEgress,
        should_stop: ShouldStop,
        patience: Patience,
        refusals: Refusals,
        **properties: Any,
    ) -> None:
        self._egress = egress
        self._should_stop = should_stop
        self._patience = patience
        self._refusals = refusals
        self._alone = refusals.alone
        self._topics: set[str] = set()
        """The topics of all records that were given to the producer."""
        self._records: Mapping[int, EgressRecord] = {}
        self._plain = PlainRecords({})
        self._refused: list[Refused] = []
        self._error: ClientError | None = None
        self._unanswered = 0
        self._progress_at = time.monotonic()
        settings: dict[str, Any] = {
            # Retries of the producer keep the order and add no duplicates.
            "enable.idempotence": True,
            # The partitions that Java's default partitioner chooses.
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            # A record is kept for as long as it is in the outbox, without a time limit.
            "message.timeout.ms": 0,
            "socket.timeout.ms": in_milliseconds(
                min(_ANSWER, egress.transaction_timeout - _LESS_THAN_TRANSACTION)
            ),
            "topic.metadata.propagation.max.ms": in_milliseconds(_PROPAGATION),
            "queue.buffering.max.messages": 200_000,
            "message.max.bytes": egress.max_record_size,
            **egress.properties,
            "bootstrap.servers": egress.address,
            "delivery.report.only.error": True,
            **({"batch.num.messages": 1} if self._alone else {}),
            **properties,
        }
        settings = {name: value for name, value in settings.items() if value is not None}
        self._producer: Producer = connect(Producer, egress.label, settings)

    def open(self) -> Marker | None:
        """Return None: with this delivery semantic, a lane has no marker."""
        return None

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write ``records`` and wait until the cluster has stored them.

        Raises:
            KafkaError: if the cluster refuses a record for good, and the policy is to fail.
            UncertainError: if the cluster has not confirmed all records.
            UndeliveredError: if publishing stops before all answers have come.
        """
        self._check_producer(records)
        refused: list[Refused] = []
        remaining = numbered(records, marker)
        while newly_refused := self._deliver(remaining):
            refused += newly_refused
            remaining = self._refusals.replace(newly_refused, self._lane, marker)
        self._refusals.settle(refused)

    def close(self) -> None:
        """Close without sending further records; an open transaction ends when the lane is opened again."""
        self._producer.purge()
        with contextlib.suppress(UncertainError):
            self._serve(self._producer.flush, timedelta())

    def _check_producer(self, records: Sequence[EgressRecord]) -> None:
        """Check that the producer may write ``records``.

        Raises:
            UncertainError: if the lane has to make another producer. Either this one sends records in batches although
                :attr:`Refusals.alone` is set, or the other way round: the setting of a producer cannot change. Or it
                has written to very many topics: librdkafka keeps about 10 KB for each, as long as the producer lives.
        """
        if self._alone != self._refusals.alone:
            raise UncertainError(
                "the lane needs another producer, with another value of batch.num.messages"
            )
        # An egress that waits for no confirmation is patient first: another producer loses what waits in this one.
        if len(self._topics) > MOST_NAMES * (2 if len(self._producer) else 1):
            raise UncertainError(
                f"the lane needs another producer, as this one has written to {len(self._topics):,} topics"
            )
        self._topics.update(record.topic for record in records)

    def _deliver(self, records: Mapping[int, EgressRecord]) -> Sequence[Refused]:
        """Write ``records`` and wait for all answers; return the records that the cluster refuses for good.

        Raises:
            UncertainError: if some records are neither written nor refused.
            UndeliveredError: if publishing stops before all answers have come.
        """
        self._records, self._plain = records, PlainRecords(records)
        self._refused, self._error = [], None
        self._unanswered, self._progress_at = 0, time.monotonic()
        self._produce(records)
        self._flush()
        # In a failed transaction, other records for a refused topic count as refused untried.
        aborted_records = records if self._has_failed() else {}
        return self._refusals.certain(self._refused, aborted_records)

    def _produce(self, records: Mapping[int, EgressRecord]) -> None:
        produce, on_plain = self._producer.produce, self._on_plain_delivery
        for number, record in records.items():
            topic, key, value, headers, partition, timestamp = record
            while True:
                try:
                    if headers is None and partition is None and timestamp is None:
                        produce(topic, value, key, on_delivery=on_plain)
                    else:
                        on_delivery = partial(self._on_delivery, number)
                        produce(
                            topic, value, key, on_delivery=on_delivery, **other_arguments(record)
                        )
                except BufferError:
                    self._wait()
                except KafkaException as error:
                    if self._has_failed():
                        return  # the transaction takes no more records
                    reason = reason_of(error)
                    self._plain.remove(number)
                    self._add_failure(number, reason, alone=True)
                    if reason.code() == ClientError._STATE:  # noqa: SLF001 - as above
                        return  # the transaction has failed; a callback brings the reason soon
                    self._check()
                    break
                else:
                    break
            if self._has_failed():
                return

    def _flush(self) -> None:
        """Wait for the answers to all records, unless a transaction has failed and will be aborted."""
        while self._serve(self._producer.flush) > 0 and not self._has_failed():
            self._wait()
        self._check()
        self._patience.end()

    def _has_failed(self) -> bool:
        """Return whether the current transaction has failed; False here, since there are no transactions."""
        return False

    def _serve(self, call: Callable[[float], int], time: timedelta = _POLL) -> int:
        """Run ``call``, a producer's method that runs callbacks for up to ``time``; return its result.

        Raises:
            UncertainError: if the producer has failed.
        """
        try:
            return call(time.total_seconds())
        except Exception as error:
            # librdkafka raises a fatal error into the next callback, which leaves Python in an
            # impossible state: the exception may be of any class.
            raise UncertainError(f"the producer has failed: {error.__cause__ or error}") from error

    def _wait(self) -> None:
        """Let the producer send and receive for a moment; log a warning after some time without progress.

        Raises:
            UndeliveredError: if publishing stops.
        """
        self._serve(self._producer.poll)
        self._check()
        unanswered, now = len(self._producer), time.monotonic()
        if unanswered == self._unanswered:
            self._patience.wait()
        else:
            self._unanswered, self._progress_at = unanswered, now
            self._patience.end()
        if self._should_stop(timedelta(seconds=now - self._progress_at)):
            raise UndeliveredError

    def _on_plain_delivery(self, error: ClientError | None, message: Message) -> None:
        if error is not None:
            self._on_delivery(self._plain.take(message), error, message)

    def _on_delivery(self, number: int, error: ClientError | None, _message: Message) -> None:
        if error is not None:
            self._add_failure(number, error, alone=self._alone)

    def _add_failure(self, number: int, error: ClientError, *, alone: bool) -> None:
        if error.code() in OF_RECORDS:
            self._refused.append(Refused(number, self._records[number], error, alone))
        elif self._error is None:
            self._error = error

    def _check(self) -> None:
        """Raise the error, if any, that has kept a record from being written; refusals do not count."""
        if self._error is not None:
            raise self._explained(self._error)

    def _explained(self, error: ClientError) -> Exception:
        if error.code() in OF_CLIENTS:
            return KafkaError(
                f"{self._egress.label} at {self._egress.address}: {error.str()}; the records "
                "stay in the outbox"
            )
        return UncertainError(error.str())


class ExactlyOnce(AtLeastOnce):
    """A connection that writes records and the lane's marker in one transaction."""

    def __init__(  # noqa: PLR0913, PLR0917 - one argument more than the others
        self,
        egress: KafkaEgress,
        should_stop: ShouldStop,
        patience: Patience,
        refusals: Refusals,
        progress: ProgressTopic,
        lane: int,
    ) -> None:
        timeout = in_milliseconds(egress.transaction_timeout)
        super().__init__(
            egress,
            should_stop,
            patience,
            refusals,
            **{
                "transactional.id": f"{progress.name}-{lane}",
                "transaction.timeout.ms": timeout,
                # A record is given up when its transaction has timed out.
                "message.timeout.ms": timeout,
            },
        )
        self._progress = progress
        self._lane = lane

    def open(self) -> Marker | None:
        """Fence the lane's former publisher, and read the lane's marker.

        In this order: once the former publisher is fenced, no other producer can change the marker.
        """
        self.fence()
        return self._progress.read(self._lane)

    def fence(self) -> None:
        """Fence the lane's former publisher, and abort its open transaction."""
        # Connect first: without a connection, librdkafka looks for the transaction coordinator in
        # vain, and tries again only half a second later. This lists all topics, since a request for
        # a topic that was deleted would create it anew.
        with contextlib.suppress(KafkaException):
            self._producer.list_topics(timeout=_POLL.total_seconds())
        self._call(self._producer.init_transactions)

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write ``records`` and ``marker`` in one transaction.

        A transaction with a refused record is aborted; the next transaction has a dead letter instead of the
        record, or leaves the record out.

        Raises:
            KafkaError: if the cluster refuses a record for good, and the policy is to fail.
            UncertainError: if the transaction may or may not be committed.
            UndeliveredError: if publishing stops before all answers have come.
        """
        self._check_producer(records)
        refused: list[Refused] = []
        remaining = numbered(records, marker)
        remaining[marker.records] = self._progress.record(self._lane, marker)
        while newly_refused := self._transact(remaining):
            refused += newly_refused
            letters = self._refusals.replace(newly_refused, self._lane, marker)
            omitted = {each.number for each in newly_refused} - letters.keys()
            remaining = {
                number: letters.get(number, record)
                for number, record in remaining.items()
                if number not in omitted
            }
        self._refusals.settle(refused)

    def _transact(self, records: Mapping[int, EgressRecord]) -> Sequence[Refused]:
        """Write all ``records`` in one transaction; if some are refused, abort it, and return those records."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise UncertainError(reason_of(error).str()) from error
        refused = self._deliver(records)
        self._call(
            self._producer.abort_transaction if refused else self._producer.commit_transaction
        )
        return refused

    def _has_failed(self) -> bool:
        return bool(self._refused)

    def _check(self) -> None:
        if not self._refused:  # a refused record is the reason why others were not delivered
            super()._check()

    def _call(self, call: Callable[[float], None]) -> None:
        """Send a request of the transaction protocol, and wait for the answer.

        After any answer but success, the producer is abandoned. librdkafka would allow to repeat some
        requests, but the first request may take effect later, on another transaction.
        """
        try:
            call(_TRANSACTION_CALL.total_seconds())
        except KafkaException as error:
            self._check()  # raises the error of a record, if that is the reason
            raise self._explained(reason_of(error)) from error
