# SPDX-License-Identifier: Apache-2.0
"""Reads dead letters, and replays each of them exactly once, also after crashes.

A replay writes the record and, in the same transaction, a note into the dead-letter topic that
names the letter. A letter with a note is not replayed again. Two replays at the same time cannot
both replay a letter: the second one fences the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Producer, TopicPartition

from statefun.module.letters import CUT, HEADER_PREFIX, LEFT_OUT, TARGET_TYPE_HEADER
from statefun.module.model import KafkaEgress, Module
from statefun.module.topic_routes import route_of
from statefun.runtime.kafka.client import (
    admin_for,
    cluster_metadata,
    connect,
    partitions_of,
    read_committed,
)
from statefun.runtime.rows.origin import replay_headers
from statefun.sdk.errors import ConfigurationError, KafkaError

_NOTE = f"{HEADER_PREFIX}replayed"
_TIMEOUT = timedelta(seconds=30)
_CHUNK = 1000
"""The number of letters that one transaction replays."""

Headers = list[tuple[str, str | bytes | None]]


@attrs.frozen
class DeadLetter:
    """A message or record that was not handled."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The headers of the record itself."""
    facts: dict[str, str]
    """The facts about the failure, by header names without their prefix."""

    @property
    def id(self) -> str:
        """The letter's place in the dead-letter topic: ``<partition>/<offset>``."""
        return f"{self.partition}/{self.offset}"

    @classmethod
    def of(
        cls,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, str | bytes | None]],
    ) -> DeadLetter:
        """Read a letter from its record; any record is a letter, whatever its headers hold."""
        return cls(
            partition,
            offset,
            key,
            value,
            [each for each in headers if not each[0].startswith(HEADER_PREFIX)],
            {
                name.removeprefix(HEADER_PREFIX): _text(value)
                for name, value in headers
                if name.startswith(HEADER_PREFIX)
            },
        )

    @property
    def time(self) -> datetime:
        """When the message was given up; 1970 if the header is missing or malformed."""
        try:
            millis = int(self.facts.get("time", "0"))
            return datetime.fromtimestamp(millis / 1000, timezone.utc)
        except (ValueError, OverflowError, OSError):
            return datetime.fromtimestamp(0, timezone.utc)

    @property
    def age_order(self) -> tuple[datetime, int, int]:
        """The sort key of letters, oldest first."""
        return self.time, self.partition, self.offset

    @property
    def target_type(self) -> str | None:
        """The typename of the target function, if the letter was for one."""
        return self.facts.get(TARGET_TYPE_HEADER.removeprefix(HEADER_PREFIX))

    @property
    def target_id(self) -> bytes | None:
        """The id of the target, if it is not the record's key."""
        if "target" in self.facts.get(CUT, "").split(","):
            return None
        target, typename = self.facts.get("target", ""), f"{self.target_type}/"
        return target.removeprefix(typename).encode() if target.startswith(typename) else None


class DeadLetters:
    """The dead letters of an application.

    Raises:
        ConfigurationError: if the module declares no topic for them.
    """

    def __init__(self, module: Module) -> None:
        egress = module.dead_letters
        if egress is None or egress.dead_letter_topic is None:
            raise ConfigurationError(
                "no egress has a deadLetterTopic, so there are no dead letters"
            )
        self._module = module
        self._egress: KafkaEgress = egress
        self.topic: str = egress.dead_letter_topic
        self._owner = f"egress {egress.id}"

    def read(self) -> list[DeadLetter]:
        """Return the letters that were not replayed, oldest first.

        Raises:
            KafkaError: if the topic cannot be read.
        """
        return sorted(self.stream(), key=lambda letter: letter.age_order)

    def stream(self) -> Iterator[DeadLetter]:
        """Yield the letters that were not replayed, partition by partition, without keeping them.

        The topic is read twice, because the notes of replays come after the letters.

        Raises:
            KafkaError: if it cannot be read.
        """
        replayed = {
            _text(value)
            for message in self._messages()
            for name, value in message.headers() or ()
            if name == _NOTE
        }
        for message in self._messages():
            headers: Headers = list(message.headers() or [])
            letter = DeadLetter.of(
                message.partition(), message.offset(), message.key(), message.value(), headers
            )
            if letter.id not in replayed and all(name != _NOTE for name, _ in headers):
                yield letter

    def find(self, wanted: Sequence[str]) -> list[DeadLetter]:
        """Return the letters of these ids, in their order.

        Raises:
            ConfigurationError: if a letter is not there (any more).
            KafkaError: if the topic cannot be read.
        """
        letters = {letter.id: letter for letter in self.stream() if letter.id in wanted}
        gone = [id_ for id_ in wanted if id_ not in letters]
        if gone:
            raise ConfigurationError(
                f"no dead letter has the id {gone[0]}, or it was replayed already; "
                "list them with 'statefun dlq list'"
            )
        return [letters[id_] for id_ in wanted]

    def replay(self, wanted: Sequence[str] | None, *, to_target: bool) -> int:
        """Replay letters; return their number.

        Args:
            wanted: their ids; None for all.
            to_target: send them to the function that failed, through the replay topic, and
                not into their original topic.

        Raises:
            ConfigurationError: if a letter is not there (any more), or cannot go that way.
            KafkaError: if the cluster refuses them; then no letter of the present transaction is
                sent.
        """
        producer = self._producer()
        try:
            producer.init_transactions(_TIMEOUT.total_seconds())
            # Read only now: init_transactions has fenced any other replay.
            chosen = self.read() if wanted is None else self.find(wanted)
            records = [(letter, *self._record(letter, to_target=to_target)) for letter in chosen]
            for start in range(0, len(records), _CHUNK):
                self._write(producer, records[start : start + _CHUNK])
        except KafkaException as error:
            raise KafkaError(
                f"{self._owner}: {self._egress.address} does not take the replay: "
                f"{error.args[0].str()}; run it again: what was replayed is not replayed twice"
            ) from error
        return len(chosen)

    def _record(self, letter: DeadLetter, *, to_target: bool) -> tuple[str, bytes | None, Headers]:
        """Return the topic, key and headers for the replay of a letter."""
        if LEFT_OUT in letter.facts:
            where = "topic {topic}, partition {partition}, offset {offset}"
            place = defaultdict(lambda: "?", letter.facts)
            raise ConfigurationError(
                f"dead letter {letter.id} was too large to hold all of its record, and lacks its "
                f"{letter.facts[LEFT_OUT]}; send the record at {where.format_map(place)} again"
            )
        if to_target:
            topic = self._egress.replay_topic
            if topic is None:
                raise ConfigurationError(
                    f"{self._owner} has no replayTopic, through which letters could go to their "
                    "targets"
                )
            if letter.target_type is None:
                raise ConfigurationError(
                    f"dead letter {letter.id} was for no function: its record could not be read "
                    f"({letter.facts.get('error-message', '')})"
                )
            id_ = letter.target_id or letter.key
            kept = replay_headers(letter.facts, letter.key, id_)
            return topic, id_, [*letter.headers, *kept]
        origin = letter.facts.get("topic")
        if origin in {None, self._egress.replay_topic}:
            raise ConfigurationError(
                f"dead letter {letter.id} is a message from "
                f"{letter.facts.get('caller', 'a function')}, and came from no topic; replay it "
                "with --to-target"
            )
        own = [
            egress
            for egress in self._module.egresses
            if str(egress.id) == letter.facts.get("egress")
        ]
        addresses = {egress.address for egress in own} or {
            ingress.address
            for ingress in self._module.ingresses
            if route_of(ingress.topics, origin) is not None
        }
        connectors = [
            ingress
            for ingress in self._module.connector_ingresses
            if route_of(ingress.topics, origin) is not None
        ]
        if connectors and not addresses:
            raise ConfigurationError(
                f"dead letter {letter.id} came from {origin} by ingress {connectors[0].id}, which is no "
                "topic of Kafka's; "
                + (
                    f"it was for no function: write the record to {origin} again"
                    if letter.target_type is None
                    else "replay it with --to-target"
                )
            )
        if addresses and self._egress.address not in addresses:
            raise ConfigurationError(
                f"topic {origin} is on another cluster than the dead letters, so that no "
                "transaction could cover both; replay with --to-target"
            )
        return origin, letter.key, letter.headers

    def _write(
        self, producer: Producer, records: Iterable[tuple[DeadLetter, str, bytes | None, Headers]]
    ) -> None:
        """Replay letters in one transaction."""
        producer.begin_transaction()
        for letter, topic, key, headers in records:
            producer.produce(topic, letter.value, key, headers=headers)
            producer.produce(
                self.topic,
                None,
                letter.id,
                partition=letter.partition,
                headers=[(_NOTE, letter.id.encode())],
            )
        producer.commit_transaction(_TIMEOUT.total_seconds())

    def _producer(self) -> Producer:
        properties: dict[str, Any] = {
            **self._egress.properties,
            "bootstrap.servers": self._egress.address,
            "transactional.id": f"statefun-replay-{self.topic}",
            "partitioner": "murmur2_random",
            "message.max.bytes": self._egress.max_record_size,
        }
        producer: Producer = connect(Producer, self._owner, properties)
        return producer

    def _messages(self) -> Iterator[Any]:
        """Read the whole topic, as far as it is committed now."""
        address = self._egress.address
        admin = admin_for(self._owner, address, self._egress.properties)
        metadata = cluster_metadata(self._owner, address, admin, _TIMEOUT)
        partitions = partitions_of(self._owner, self.topic, metadata, address)
        # From the first record that is still there: the topic may delete old ones.
        starts = [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in partitions]
        return read_committed(self._owner, address, self._egress.properties, starts, _TIMEOUT)


def _text(value: str | bytes | None) -> str:
    return value if isinstance(value, str) else (value or b"").decode(errors="backslashreplace")
