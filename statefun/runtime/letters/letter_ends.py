# SPDX-License-Identifier: Apache-2.0
"""Replays and drops dead letters, each exactly once, also after crashes.

A replay writes the record of the letter and, in the same transaction, a note with the letter's id into
the dead-letter topic. Two commands at the same time cannot both replay or drop a letter: the command that
starts later fences the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer

from statefun.runtime.kafka.client import connect, reason_of
from statefun.runtime.kafka.refusal_codes import OF_TOPIC, UNKNOWN_PLACES
from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.runtime.letters.dead_letters import TIMEOUT, DeadLetters
from statefun.runtime.letters.letter_filter import LetterFilter
from statefun.runtime.letters.letter_transaction import Ending, LetterTransaction
from statefun.runtime.letters.replay_routes import Replay, ReplayRoutes
from statefun.sdk.errors import ConfigurationError, KafkaError

_LETTERS_PER_TRANSACTION = 1000
"""How many letters one transaction replays or drops at most."""


@attrs.frozen
class EndResult:
    """How many letters were replayed or dropped, and why further letters could not be."""

    count: int
    """The number of letters that were replayed or dropped."""
    problems: tuple[ConfigurationError, ...] = ()
    """For each letter that could not be replayed or dropped, the reason."""


class LetterEnds:
    """Replays and drops the dead letters of an application."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._egress = letters.egress

    def replay(self, filter_: LetterFilter, *, to_target: bool) -> EndResult:
        """Replay letters; one that cannot be replayed stays a dead letter, and the rest are still replayed.

        Args:
            filter_: selects the letters.
            to_target: if True, a letter goes to the address whose function failed, through the replay
                topic; if False, into the topic of its original record.

        Raises:
            ConfigurationError: if a given id is not that of a letter, or the letter was replayed or
                dropped already; or if ``to_target`` is True and the egress has no replay topic.
            KafkaError: if a transaction fails for another reason than a record: the letters of this transaction
                and of later ones are not replayed.
        """
        routes = self._routes(to_target=to_target)
        return self._end(filter_, routes.replay)

    def replay_changed(self, id_: str, value: bytes, *, to_target: bool) -> EndResult:
        """Replay a letter with another value.

        Args:
            id_: the id of the letter.
            value: the new value, which replaces the value of the original record.
            to_target: as for :meth:`replay`.

        Raises:
            ConfigurationError: if there is no letter with this id, or it was replayed or dropped
                already; or if ``to_target`` is True and the egress has no replay topic.
            KafkaError: if the cluster refuses the transaction.
        """
        routes = self._routes(to_target=to_target)
        return self._end(
            LetterFilter.of([id_]),
            lambda letter: routes.replay(letter, {"value"})._replace(value=value),
        )

    def drop(self, filter_: LetterFilter) -> EndResult:
        """Drop letters, so that they are no longer listed; nothing is replayed.

        Raises:
            ConfigurationError: if a given id is not that of a letter, or the letter was replayed or
                dropped already.
            KafkaError: if the cluster refuses the records which say that the letters were dropped.
        """
        return self._end(filter_, lambda _: None)

    def _routes(self, *, to_target: bool) -> ReplayRoutes:
        letters = self._letters
        present = letters.metadata().topics
        return ReplayRoutes(letters.module, letters.egress, present, to_target=to_target)

    def _end(self, filter_: LetterFilter, end: Callable[[DeadLetter], Replay | None]) -> EndResult:
        with self._producer() as producer:
            # The letters are read after init_transactions has fenced any other command.
            letters = self._letters.read(filter_, is_final=True)
            endings, problems = list[Ending](), list[ConfigurationError]()
            for letter in letters:
                try:
                    endings.append((letter, end(letter)))
                except ConfigurationError as error:
                    problems.append(error)
            for start in range(0, len(endings), _LETTERS_PER_TRANSACTION):
                problems += self._write(producer, endings[start : start + _LETTERS_PER_TRANSACTION])
        return EndResult(len(letters) - len(problems), tuple(problems))

    def _write(self, producer: Producer, endings: Sequence[Ending]) -> list[ConfigurationError]:
        """Replay or drop letters in one transaction, or in more of them if the cluster refuses records.

        A cluster refuses whole batches of a producer, and a transaction is written as a whole or not at all. So if a
        record is refused, the letters are divided among two transactions, until the refused one is alone.

        Returns:
            An error for each letter that cannot be replayed.
        """
        transaction = LetterTransaction(producer, self._letters.topic)
        if transaction.write(endings):
            return [self._too_large(letter) for letter in transaction.too_large]
        topic, reason = transaction.refusal
        refused: list[Ending] = []
        # Then all records for the topic are refused; no replayed record names a partition.
        if reason.code() in OF_TOPIC | UNKNOWN_PLACES:
            others: list[Ending] = []
            for letter, record in endings:
                is_for_topic = record is not None and record.topic == topic
                (refused if is_for_topic else others).append((letter, record))
            parts: list[Sequence[Ending]] = [others]
        elif len(endings) == 1:
            refused, parts = [*endings], []
        else:
            middle = len(endings) // 2
            parts = [endings[:middle], endings[middle:]]
        problems = [self._refused(letter, topic, reason) for letter, _ in refused]
        for part in filter(None, parts):
            problems += self._write(producer, part)
        return problems

    def _refused(self, letter: DeadLetter, topic: str, reason: ClientError) -> ConfigurationError:
        return ConfigurationError(
            f"dead letter {letter.id}: the cluster {self._egress.address} refuses its record for topic {topic}: "
            f"{reason.str()}; change the topic, replay another value with `statefun dlq edit`, or drop the letter"
        )

    def _too_large(self, letter: DeadLetter) -> ConfigurationError:
        return ConfigurationError(
            f"dead letter {letter.id} would become a record that is too large for "
            f"{self._letters.owner} (limit: {self._egress.max_record_size:,} bytes); raise the "
            "egress's property max.request.size"
        )

    @contextmanager
    def _producer(self) -> Iterator[Producer]:
        """Yield a transactional producer; it has fenced the producers of other running commands."""
        letters = self._letters
        properties: dict[str, Any] = {
            **self._egress.properties,
            "bootstrap.servers": self._egress.address,
            "transactional.id": f"statefun-replay-{letters.topic}",
            "partitioner": "murmur2_random",
            "message.max.bytes": self._egress.max_record_size,
        }
        try:
            producer = connect(Producer, letters.owner, properties)
            producer.init_transactions(TIMEOUT.total_seconds())
            yield producer
        except KafkaException as error:
            raise KafkaError(
                f"{letters.owner}: the cluster {self._egress.address} refuses the transaction: "
                f"{reason_of(error).str()}; run the command again: it replays no letter twice"
            ) from error
