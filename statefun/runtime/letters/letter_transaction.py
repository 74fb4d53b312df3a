# SPDX-License-Identifier: Apache-2.0
"""Replays and drops dead letters in one transaction of Kafka, with a note for each into the dead-letter topic."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from statefun.runtime.kafka.client import reason_of
from statefun.runtime.kafka.refusal_codes import OF_RECORDS
from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.runtime.letters.dead_letters import DROPPED_HEADER, REPLAYED_HEADER, TIMEOUT
from statefun.runtime.letters.replay_routes import Replay

_LOOK_SECONDS = 0.5
"""The time between two looks whether a record was refused, while answers are missing."""
_ATTEMPTS = 2
"""How often a transaction is written that fails, but not because a record is refused."""

Ending = tuple[DeadLetter, Replay | None]
"""A letter and the record that replays it; None instead of a record drops the letter."""


class LetterTransaction:
    """A transaction; it is committed if the cluster takes all of its records, and is aborted otherwise.

    Args:
        producer: a producer without an open transaction.
        topic: the dead-letter topic.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._refusal: tuple[str, ClientError] | None = None
        self._error: ClientError | None = None
        self.too_large: list[DeadLetter] = []
        """The letters that were left out, since the producer does not take records as large as theirs."""

    @property
    def refusal(self) -> tuple[str, ClientError]:
        """The topic of a record that the cluster has refused, perhaps since another record is wrong, and the reason."""
        if self._refusal is None:
            raise AssertionError("no record was refused: read this only if `write` returns False")
        return self._refusal

    def write(self, endings: Sequence[Ending]) -> bool:
        """Replay or drop letters; return False if none is, since the cluster refuses a record.

        After a refusal, librdkafka may leave out numbers of the producer's next records, which the cluster does not
        take. Aborting corrects the numbers, so the transaction is then written once more.

        Raises:
            KafkaException: if the transaction fails for another reason.
        """
        failures = 0
        while True:
            self._producer.begin_transaction()
            failure = self._deliver(endings)
            if failure is None and self._refusal is None:
                self._producer.commit_transaction(TIMEOUT.total_seconds())
                return True
            self._producer.abort_transaction(TIMEOUT.total_seconds())
            if self._refusal is not None:
                return False
            failures += 1
            if failure is not None and failures == _ATTEMPTS:
                raise failure

    def _deliver(self, endings: Sequence[Ending]) -> KafkaException | None:
        """Write the records of the transaction; return why not all are written, unless one was refused."""
        self._error, self.too_large = None, []
        try:
            self._produce(endings)
        except (
            KafkaException
        ) as error:  # perhaps since a record was refused meanwhile, which its answer says
            failure: KafkaException | None = error
        else:
            failure = None
        end = time.monotonic() + TIMEOUT.total_seconds()
        while self._flush() and not self._has_failed:
            if time.monotonic() > end:
                break  # committing says what is wrong
        return failure if self._error is None else KafkaException(self._error)

    def _flush(self) -> int:
        """Wait for answers; return how many are missing after a while."""
        try:
            return self._producer.flush(_LOOK_SECONDS)
        except KafkaException:
            raise
        except Exception as error:
            # librdkafka raises a fatal error into the next callback, which leaves Python in an
            # impossible state: the exception may be of any class.
            if isinstance(error.__cause__, KafkaException):
                raise error.__cause__ from error
            raise

    @property
    def _has_failed(self) -> bool:
        return self._refusal is not None or self._error is not None

    def _produce(self, endings: Sequence[Ending]) -> None:
        """Give all records and notes to the producer; stop early if a record was refused."""
        for letter, record in endings:
            if record is not None and not self._replay(letter, record):
                if self._refusal is not None:
                    return
                continue
            header = DROPPED_HEADER if record is None else REPLAYED_HEADER
            self._producer.produce(
                self._topic,
                None,
                letter.id,
                partition=letter.partition,
                headers=[(header, letter.id.encode())],
                on_delivery=self._on_note,
            )

    def _replay(self, letter: DeadLetter, record: Replay) -> bool:
        """Give the record of a letter to the producer; return whether the producer has taken it."""
        topic, key, value, headers = record
        try:
            self._producer.produce(topic, value, key, headers=headers, on_delivery=self._on_record)
        except KafkaException as error:
            reason = reason_of(error)
            if reason.code() == ClientError.MSG_SIZE_TOO_LARGE:
                self.too_large.append(letter)
            elif reason.code() in OF_RECORDS:
                self._refusal = topic, reason
            else:
                raise
            return False
        return True

    def _on_record(self, error: ClientError | None, message: Message) -> None:
        if error is not None and error.code() in OF_RECORDS:
            self._refusal = self._refusal or (message.topic() or "", error)
        else:
            self._on_note(error, message)

    def _on_note(self, error: ClientError | None, _: Message) -> None:
        self._error = self._error or error
