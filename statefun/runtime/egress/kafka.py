# SPDX-License-Identifier: Apache-2.0
"""Producing to Kafka, with each of the three delivery semantics."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from statefun.runtime.effects import EgressRecord
from statefun.runtime.egress.lane import Marker, UncertainError, UndeliveredError
from statefun.runtime.egress.progress import ProgressTopic
from statefun.runtime.kafka_client import connect
from statefun.sdk.errors import KafkaError, TopicError
from statefun.spec.model import KafkaEgress

logger = logging.getLogger("statefun.egress")

_POLL = timedelta(milliseconds=500)
_PATIENCE = timedelta(seconds=10)
"""Waiting for longer than this is worth a word to whoever watches."""
_FAREWELL = timedelta(seconds=5)
"""How long an egress that promises nothing has for its last records when an application ends."""
_TRANSACTION_CALL = timedelta(seconds=30)
"""How long to wait for an answer to a call that opens or commits a transaction."""

_UNKNOWN_TOPIC = {ClientError._UNKNOWN_TOPIC, ClientError.UNKNOWN_TOPIC_OR_PART}  # noqa: SLF001 - how the client names its own codes
_REFUSALS = _UNKNOWN_TOPIC | {
    ClientError._INVALID_ARG,  # noqa: SLF001 - as above
    ClientError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
    ClientError.CLUSTER_AUTHORIZATION_FAILED,
    ClientError.INVALID_MSG,
    ClientError.INVALID_MSG_SIZE,
    ClientError.INVALID_RECORD,
    ClientError.INVALID_REQUIRED_ACKS,
    ClientError.INVALID_TIMESTAMP,
    ClientError.INVALID_TRANSACTION_TIMEOUT,
    ClientError.MSG_SIZE_TOO_LARGE,
    ClientError.POLICY_VIOLATION,
    ClientError.RECORD_LIST_TOO_LARGE,
    ClientError.TOPIC_AUTHORIZATION_FAILED,
    ClientError.TOPIC_EXCEPTION,
    ClientError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Answers that will stay the same until a person does something."""


_PLAIN = [None, None, None]
"""Most records have no headers, partition and timestamp of their own."""


def _others(record: EgressRecord) -> dict[str, Any]:
    """Return what a record has beside key and value."""
    others = {"headers": record.headers, "partition": record.partition}
    given: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
    return given if record.timestamp is None else {**given, "timestamp": record.timestamp}


class Patience:
    """Says once when an egress keeps its records waiting, and when it does no more."""

    def __init__(self, egress: KafkaEgress) -> None:
        self._egress = egress
        self._since: float | None = None
        self._told = False

    def wait(self, reason: str = "") -> None:
        """Take note that records wait."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif not self._told and now - self._since > _PATIENCE.total_seconds():
            self._told = True
            logger.warning(
                "egress %s: %s takes no records%s; they are kept, and tried until it does",
                self._egress.id,
                self._egress.address,
                f" ({reason})" if reason else "",
            )

    def over(self) -> None:
        """Take note that nothing waits any more."""
        if self._told:
            logger.info("egress %s: %s takes records again", self._egress.id, self._egress.address)
        self._since, self._told = None, False


class AtLeastOnce:
    """A cluster that confirms every record, and that may get some of them again after a crash."""

    def __init__(
        self,
        egress: KafkaEgress,
        should_stop: Callable[[], bool],
        patience: Patience,
        **properties: Any,
    ) -> None:
        self._egress = egress
        self._should_stop = should_stop
        self._patience = patience
        self._refused: ClientError | None = None
        self._refused_topic = ""
        settings: dict[str, Any] = {
            # In order and without duplicates by the producer's own retries.
            "enable.idempotence": True,
            # Where Java's default partitioner puts the same keys.
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            # The outbox, not a time limit, decides how long a record is kept for.
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": 200_000,
            "message.max.bytes": egress.max_record_size,
            **egress.properties,
            "bootstrap.servers": egress.address,
            "delivery.report.only.error": True,
            **properties,
        }
        settings = {name: value for name, value in settings.items() if value is not None}
        self._producer: Producer = connect(Producer, f"egress {egress.id}", settings)

    def open(self) -> Marker | None:
        """Nobody keeps note of what is published."""
        return None

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:  # noqa: ARG002 - there is nowhere to write it
        """Write ``records`` and wait until the cluster has them.

        Raises:
            KafkaError: if the cluster refuses a record for good: naming egress and topic.
            UncertainError: if it has not confirmed all of them.
            UndeliveredError: if told to stop before it has.
        """
        self._produce(records)
        self._flush()

    def close(self) -> None:
        """Forget what is not delivered; a successor ends the transaction that may be open."""
        self._producer.purge()
        with contextlib.suppress(UncertainError):
            self._serve(self._producer.flush, timedelta())

    def _produce(self, records: Iterable[EgressRecord]) -> None:
        produce = self._producer.produce
        on_delivery = self._on_delivery
        for record in records:
            topic, key, value, *others = record
            while True:
                try:
                    if others == _PLAIN:
                        produce(topic, value, key, on_delivery=on_delivery)
                    else:
                        produce(topic, value, key, on_delivery=on_delivery, **_others(record))
                except BufferError:
                    self._wait()
                except KafkaException as error:
                    raise self._explained(error.args[0], topic) from error
                else:
                    break

    def _flush(self) -> None:
        while self._serve(self._producer.flush) > 0:
            self._wait()
        self._check()
        self._patience.over()

    def _serve(self, call: Callable[[float], int], time: timedelta = _POLL) -> int:
        """Let callbacks run for a while."""
        try:
            return call(time.total_seconds())
        except Exception as error:
            # A fatal error is raised into whatever callback comes next, which Python then finds
            # in a state that is not possible: it may be anything.
            raise UncertainError(f"the producer has failed: {error.__cause__ or error}") from error

    def _wait(self) -> None:
        self._serve(self._producer.poll)
        self._check()
        self._patience.wait()
        if self._should_stop():
            raise UndeliveredError

    def _on_delivery(self, error: ClientError | None, message: Message) -> None:
        if error is not None and self._refused is None:
            self._refused, self._refused_topic = error, message.topic() or ""

    def _check(self) -> None:
        if self._refused is not None:
            raise self._explained(self._refused, self._refused_topic)

    def _explained(self, error: ClientError, topic: str) -> Exception:
        where = f"egress {self._egress.id}, topic {topic} at {self._egress.address}"
        if error.code() in _UNKNOWN_TOPIC:
            return TopicError(
                f"{where}: the topic does not exist; create it and start again: the records are "
                "kept in the outbox until then"
            )
        if error.code() == ClientError._UNKNOWN_PARTITION:  # noqa: SLF001 - as above
            return TopicError(
                f"{where}: the topic has no partition of the number that a record was sent to; "
                "the records are kept in the outbox"
            )
        if error.code() in _REFUSALS:
            return KafkaError(
                f"{where}: the record was refused: {error.str()}; it is kept in the outbox"
            )
        return UncertainError(error.str())


class Losses:
    """Counts the records that an egress has lost, and says so now and then."""

    def __init__(self, egress: KafkaEgress) -> None:
        self._egress = egress
        self._count = 0
        self._told = 0
        self._told_at = 0.0

    def add(self, topic: str, reason: str) -> None:
        """Take note of one more."""
        self._count += 1
        if not self._told or time.monotonic() - self._told_at > _PATIENCE.total_seconds():
            self._tell(f"{reason} (topic {topic})")

    def over(self) -> None:
        """Say what was not said yet: no more will be lost by this connection."""
        if self._count > self._told:
            self._tell("the connection is closed")

    def _tell(self, reason: str) -> None:
        self._told, self._told_at = self._count, time.monotonic()
        logger.warning(
            "egress %s at %s: %d records lost so far: %s",
            self._egress.id,
            self._egress.address,
            self._count,
            reason,
        )


class Unconfirmed(AtLeastOnce):
    """A cluster that nobody waits for: what it does not take is counted, and lost."""

    def __init__(
        self,
        egress: KafkaEgress,
        should_stop: Callable[[], bool],
        patience: Patience,
        losses: Losses,
    ) -> None:
        super().__init__(egress, should_stop, patience, **{"message.timeout.ms": None})
        self._losses = losses

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:  # noqa: ARG002 - as above
        """Hand ``records`` to the producer.

        Raises:
            UncertainError: if it has failed for good: another one takes them.
        """
        for record in records:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=self._on_delivery,
                    **_others(record),
                )
            except BufferError:
                self._losses.add(record.topic, "the queue is full")
            except KafkaException as error:
                reason: ClientError = error.args[0]
                if reason.code() == ClientError._FATAL:  # noqa: SLF001 - as above
                    raise UncertainError(reason.str()) from error
                self._losses.add(record.topic, reason.str())
        self._serve(self._producer.poll, timedelta())
        self._patience.over()

    def close(self) -> None:
        """Give what is on its way a moment, and say what was lost."""
        with contextlib.suppress(UncertainError):
            self._serve(self._producer.flush, _FAREWELL)
        super().close()
        self._losses.over()

    def _on_delivery(self, error: ClientError | None, message: Message) -> None:
        if error is not None:
            self._losses.add(message.topic() or "", error.str())


class ExactlyOnce(AtLeastOnce):
    """A cluster that takes records and marker in one transaction."""

    def __init__(
        self,
        egress: KafkaEgress,
        should_stop: Callable[[], bool],
        patience: Patience,
        progress: ProgressTopic,
        lane: int,
    ) -> None:
        timeout = round(egress.transaction_timeout / timedelta(milliseconds=1))
        super().__init__(
            egress,
            should_stop,
            patience,
            **{
                "transactional.id": f"{progress.name}-{lane}",
                "transaction.timeout.ms": timeout,
                # A transaction that is over does not wait for its records.
                "message.timeout.ms": timeout,
            },
        )
        self._progress = progress
        self._lane = lane

    def open(self) -> Marker | None:
        """Fence whoever published the lane before, and read its marker.

        In this order: from the first step on nobody else can move the marker.
        """
        self._call(self._producer.init_transactions)
        marker = self._progress.read(self._lane)
        self._patience.over()
        return marker

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:
        """Write ``records`` and ``marker`` in one transaction.

        Raises:
            KafkaError: if the cluster refuses a record for good: naming egress and topic.
            UncertainError: if it may or may not have committed.
            UndeliveredError: if told to stop before that.
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise UncertainError(error.args[0].str()) from error
        self._produce(records)
        self._produce([self._progress.record(self._lane, marker)])
        self._flush()
        self._call(self._producer.commit_transaction)

    def _call(self, call: Callable[[float], None]) -> None:
        """Make a call of the transaction protocol.

        After any other answer than "done" the producer is of no use. librdkafka would let some
        calls be repeated, but what was asked may take effect later, on another transaction.
        """
        try:
            call(_TRANSACTION_CALL.total_seconds())
        except KafkaException as error:
            self._check()  # the reason, if it was a record
            reason: ClientError = error.args[0]
            if reason.code() in _REFUSALS:
                raise KafkaError(
                    f"egress {self._egress.id} at {self._egress.address}: {reason.str()}; the "
                    "records are kept in the outbox"
                ) from error
            raise UncertainError(reason.str()) from error
