# SPDX-License-Identifier: Apache-2.0
"""Reads the dead letters of an application.

A letter that was replayed or dropped stays in its topic. A later record of the topic, called a note, has
the letter's id. A letter with a note is settled: the commands no longer list it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka.admin._metadata import ClusterMetadata

from statefun.engine.letters import HEADER_PREFIX
from statefun.module.model import KafkaEgress, Module
from statefun.runtime.kafka.client import (
    admin_for,
    cluster_metadata,
    partitions_of,
    raising_kafka_errors,
    read_committed,
)
from statefun.runtime.kafka.cluster_offsets import watermarks
from statefun.runtime.letters.dead_letter import DeadLetter, LetterHeaders, header_text
from statefun.runtime.letters.letter_filter import LetterFilter
from statefun.sdk.errors import ConfigurationError

REPLAYED_HEADER = f"{HEADER_PREFIX}replayed"
"""The header of a record which says that a letter was replayed; the header's value is the letter's id."""
DROPPED_HEADER = f"{HEADER_PREFIX}dropped"
"""The header of a record which says that a letter was dropped; the header's value is the letter's id."""
_NOTES = (REPLAYED_HEADER, DROPPED_HEADER)
TIMEOUT = timedelta(seconds=30)
"""How long the Kafka cluster may take to answer a request."""
_NO_FILTER = LetterFilter()


class DeadLetters:
    """The dead letters of an application.

    Raises:
        ConfigurationError: if no egress of the module has a deadLetterTopic.
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

    def read(
        self, filter_: LetterFilter = _NO_FILTER, *, is_final: bool = False
    ) -> list[DeadLetter]:
        """Return the letters that pass a filter and are neither replayed nor dropped yet, oldest first.

        Args:
            filter_: selects the letters.
            is_final: whether to wait until the transactions that are open now have ended, as in :meth:`stream`.

        Raises:
            ConfigurationError: if the filter names an id, and no such letter has it.
            KafkaError: if the topic cannot be read, or a transaction stays open.
        """
        stream = self.stream(filter_, is_final=is_final)
        letters = sorted(stream, key=lambda letter: letter.age_order)
        missing_ids = sorted((filter_.ids or frozenset()) - {letter.id for letter in letters})
        if missing_ids:
            raise ConfigurationError(
                f"no dead letter has the id {missing_ids[0]}, or it was replayed or dropped "
                "already; list the dead letters with 'statefun dlq list'"
            )
        return letters

    def stream(
        self,
        filter_: LetterFilter = _NO_FILTER,
        newest: int | None = None,
        *,
        is_final: bool = False,
    ) -> Iterator[DeadLetter]:
        """Yield the letters that pass a filter and are neither replayed nor dropped yet.

        The letters of a partition are in order. The topic is read twice: first for the notes about replayed
        and dropped letters, as the note about a letter comes after the letter, in the same partition.

        Args:
            filter_: selects the letters.
            newest: how many of the newest offsets of each partition are read; None to read all.
            is_final: whether to wait until the transactions that are open now have ended. Nobody can read a note
                that comes after the beginning of an open transaction, and its letter would be replayed again.

        Raises:
            KafkaError: if the topic cannot be read, or a transaction stays open.
        """
        ranges = self._ranges(filter_, newest, is_final=is_final)
        settled_ids = {
            header_text(value)
            for message in self._records(ranges)
            for name, value in message.headers() or ()
            if name in _NOTES
        }
        for message in self._records(ranges):
            headers: LetterHeaders = list(message.headers() or [])
            letter = DeadLetter.of(
                message.partition(), message.offset(), message.key(), message.value(), headers
            )
            is_note = any(name in _NOTES for name, _ in headers)
            if not is_note and letter.id not in settled_ids and filter_(letter):
                yield letter

    def metadata(self) -> ClusterMetadata:
        """Return the metadata of the cluster that has the dead-letter topic, such as its topics.

        Raises:
            KafkaError: if the cluster does not answer.
        """
        address = self.egress.address
        admin = admin_for(self.owner, address, self.egress.properties)
        return cluster_metadata(self.owner, address, admin, TIMEOUT)

    def _ranges(
        self, filter_: LetterFilter, newest: int | None, *, is_final: bool
    ) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Return the partitions that may have letters that pass a filter, each with its first offset to read and its end."""
        is_whole = filter_.ids is None and newest is None
        numbers = partitions_of(self.owner, self.topic, self.metadata(), self.egress.address)
        firsts = dict.fromkeys(numbers, 0) if filter_.ids is None else filter_.first_offsets()
        admin = admin_for(self.owner, self.egress.address, self.egress.properties)
        places = [(self.topic, number) for number in numbers if number in firsts]
        with raising_kafka_errors(f"{self.owner}: topic {self.topic} at {self.egress.address}"):
            ranges = watermarks(admin, places, TIMEOUT, committed=not is_final)
        if is_whole:  # the first records may be deleted before they are read
            return {place: (OFFSET_BEGINNING, end) for place, (_, end) in ranges.items() if end}
        return {
            (topic, number): (max(firsts[number], low, 0 if newest is None else end - newest), end)
            for (topic, number), (low, end) in ranges.items()
        }

    def _records(self, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> Iterator[Any]:
        """Yield the records of ranges of partitions; those of aborted transactions are left out."""
        return read_committed(
            self.owner, self.egress.address, self.egress.properties, ranges, TIMEOUT
        )
