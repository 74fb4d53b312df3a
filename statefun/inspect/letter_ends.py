# SPDX-License-Identifier: Apache-2.0
"""Replays and drops dead letters, each exactly once, also after crashes.

A replay writes the record and, in the same transaction, a note into the dead-letter topic that
names the letter. Two commands at the same time cannot both end a letter: the second one fences the
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer

from statefun.inspect.dead_letter import DeadLetter
from statefun.inspect.dead_letters import DROPPED_HEADER, REPLAYED_HEADER, TIMEOUT, DeadLetters
from statefun.inspect.letter_filter import LetterFilter
from statefun.inspect.replay_routes import Replay, ReplayRoutes
from statefun.runtime.kafka.client import connect, reason_of
from statefun.sdk.errors import ConfigurationError, KafkaError

_CHUNK = 1000
"""The number of letters that one transaction ends."""

Ending = tuple[DeadLetter, Replay | None]
"""A letter, and the record that it becomes; None if it is dropped."""


@attrs.frozen
class Ended:
    """What has become of letters."""

    count: int
    """How many are done now."""
    stay: tuple[ConfigurationError, ...] = ()
    """Why others stay: an error for each."""


class LetterEnds:
    """Ends the dead letters of an application, in one way or another."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._egress = letters.egress

    def replay(self, wanted: LetterFilter, *, to_target: bool) -> Ended:
        """Replay letters; those that cannot be replayed stay, and hold up no other one.

        Args:
            wanted: which ones.
            to_target: send them to the function that failed, through the replay topic, and
                not into their original topic.

        Raises:
            ConfigurationError: if a letter is not there (any more), or none could go that way.
            KafkaError: if the cluster refuses them; then no letter of the present transaction is
                sent.
        """
        routes = self._routes(to_target=to_target)
        return self._end(wanted, routes.replay)

    def replay_changed(self, id_: str, value: bytes, *, to_target: bool) -> Ended:
        """Replay a letter with another value.

        Args:
            id_: of the letter.
            value: what its record holds instead.
            to_target: as for :meth:`replay`.

        Raises:
            ConfigurationError: if it is not there (any more), or cannot be replayed.
            KafkaError: if the cluster refuses it.
        """
        routes = self._routes(to_target=to_target)
        return self._end(
            LetterFilter.of([id_]),
            lambda letter: routes.replay(letter, {"value"})._replace(value=value),
        )

    def drop(self, wanted: LetterFilter) -> Ended:
        """Let letters be done without a replay.

        Raises:
            ConfigurationError: if a letter is not there (any more).
            KafkaError: if the cluster refuses the notes about them.
        """
        return self._end(wanted, lambda _: None)

    def _routes(self, *, to_target: bool) -> ReplayRoutes:
        letters = self._letters
        present = letters.metadata().topics
        return ReplayRoutes(letters.module, letters.egress, present, to_target=to_target)

    def _end(self, wanted: LetterFilter, end: Callable[[DeadLetter], Replay | None]) -> Ended:
        with self._producer() as producer:
            # Read only now: init_transactions has fenced any other command.
            chosen = self._letters.read(wanted)
            endings, stay = list[Ending](), list[ConfigurationError]()
            for letter in chosen:
                try:
                    endings.append((letter, end(letter)))
                except ConfigurationError as error:
                    stay.append(error)
            for start in range(0, len(endings), _CHUNK):
                stay += self._write(producer, endings[start : start + _CHUNK])
        return Ended(len(chosen) - len(stay), tuple(stay))

    def _write(self, producer: Producer, endings: Iterable[Ending]) -> list[ConfigurationError]:
        """End letters in one transaction; return why some are too large for it."""
        too_large = []
        producer.begin_transaction()
        for letter, record in endings:
            if record is not None:
                try:
                    producer.produce(record.topic, record.value, record.key, headers=record.headers)
                except KafkaException as error:
                    if reason_of(error).code() != ClientError.MSG_SIZE_TOO_LARGE:
                        raise
                    too_large.append(self._too_large(letter))
                    continue
            producer.produce(
                self._letters.topic,
                None,
                letter.id,
                partition=letter.partition,
                headers=[
                    (DROPPED_HEADER if record is None else REPLAYED_HEADER, letter.id.encode())
                ],
            )
        producer.commit_transaction(TIMEOUT.total_seconds())
        return too_large

    def _too_large(self, letter: DeadLetter) -> ConfigurationError:
        return ConfigurationError(
            f"dead letter {letter.id} would become a larger record than {self._letters.owner} takes "
            f"({self._egress.max_record_size:,} bytes): raise its property max.request.size"
        )

    @contextmanager
    def _producer(self) -> Iterator[Producer]:
        """Yield a producer that has fenced all others."""
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
                f"{letters.owner}: {self._egress.address} refuses this: {reason_of(error).str()}; run "
                "the command again: nothing is done twice"
            ) from error
