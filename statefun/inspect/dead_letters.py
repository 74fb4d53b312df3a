# SPDX-License-Identifier: Apache-2.0
"""Reads the dead letters of an application.

A letter that was replayed or dropped stays in its topic. A later record of the topic, a note, has
the letter's id: a letter with a note is settled, and is not returned any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.admin._metadata import ClusterMetadata

from statefun.engine.letters import HEADER_PREFIX
from statefun.inspect.dead_letter import DeadLetter, LetterHeaders, header_text
from statefun.inspect.letter_filter import LetterFilter
from statefun.module.model import KafkaEgress, Module
from statefun.runtime.kafka.client import (
    admin_for,
    cluster_metadata,
    partitions_of,
    read_committed,
)
from statefun.sdk.errors import ConfigurationError

REPLAYED_HEADER = f"{HEADER_PREFIX}replayed"
"""The header of a note that a letter was replayed; its value is the letter's id."""
DROPPED_HEADER = f"{HEADER_PREFIX}dropped"
"""The header of a note that a letter was dropped."""
_NOTES = (REPLAYED_HEADER, DROPPED_HEADER)
TIMEOUT = timedelta(seconds=30)
"""How long the cluster may take to answer."""
_NO_FILTER = LetterFilter()


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
        self.module = module
        self.egress: KafkaEgress = egress
        self.topic: str = egress.dead_letter_topic
        self.owner = egress.label

    def read(self, filter_: LetterFilter = _NO_FILTER) -> list[DeadLetter]:
        """Return the unsettled letters that pass a filter, oldest first.

        Raises:
            ConfigurationError: if no unsettled letter has an id that the filter names.
            KafkaError: if the topic cannot be read.
        """
        letters = sorted(self.stream(filter_), key=lambda letter: letter.age_order)
        missing_ids = sorted((filter_.ids or frozenset()) - {letter.id for letter in letters})
        if missing_ids:
            raise ConfigurationError(
                f"no dead letter has the id {missing_ids[0]}, or it was replayed or dropped "
                "already; list the dead letters with 'statefun dlq list'"
            )
        return letters

    def stream(self, filter_: LetterFilter = _NO_FILTER) -> Iterator[DeadLetter]:
        """Yield the unsettled letters that pass a filter, partition by partition.

        The topic is read twice, because the notes come after the letters.

        Raises:
            KafkaError: if the topic cannot be read.
        """
        settled_ids = {
            header_text(value)
            for message in self._messages()
            for name, value in message.headers() or ()
            if name in _NOTES
        }
        for message in self._messages():
            headers: LetterHeaders = list(message.headers() or [])
            letter = DeadLetter.of(
                message.partition(), message.offset(), message.key(), message.value(), headers
            )
            is_note = any(name in _NOTES for name, _ in headers)
            if not is_note and letter.id not in settled_ids and filter_(letter):
                yield letter

    def metadata(self) -> ClusterMetadata:
        """Return the topics of the cluster that has the dead-letter topic.

        Raises:
            KafkaError: if the cluster does not answer.
        """
        address = self.egress.address
        admin = admin_for(self.owner, address, self.egress.properties)
        return cluster_metadata(self.owner, address, admin, TIMEOUT)

    def _messages(self) -> Iterator[Any]:
        """Yield all records that the topic has now, without those of open transactions."""
        address = self.egress.address
        partitions = partitions_of(self.owner, self.topic, self.metadata(), address)
        # From the first record that the topic still has: it may delete old records.
        starts = [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in partitions]
        return read_committed(self.owner, address, self.egress.properties, starts, TIMEOUT)
